"""Who we are and where the gateway is: the options that every command of a participant has."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import click

from mewstream.cli.completing import complete_me
from mewstream.cli.output import complain
from mewstream.protocol.errors import ConfigError

if TYPE_CHECKING:
    from mewstream.client import Backoff, Connecting, Space
    from mewstream.client.events import Event

T = TypeVar("T")

DEFAULT_URL = "ws://127.0.0.1:8080"


@dataclass(frozen=True)
class Who:
    """A participant of a space, as the command line and the environment name it."""

    url: str
    space: str | None
    participant: str | None
    token_file: str | None

    @property
    def id(self) -> str:
        """Our id. It is an error to have none."""
        if self.participant:
            return self.participant
        from mewstream.cli.tokens import known_participants

        known = known_participants()
        hint = f": there are tokens of {', '.join(known)} here" if known else ""
        raise ConfigError(f"who are you? Give --as NAME, or set MEW_PARTICIPANT{hint}")

    @property
    def http_url(self) -> str:
        """The root of the HTTP API, which is on the same port as the socket."""
        from mewstream.client.connection import websocket_url

        parts = urlsplit(websocket_url(self.url))
        path = parts.path.removesuffix("/").removesuffix("/ws")
        return urlunsplit(("https" if parts.scheme == "wss" else "http", parts.netloc, path, "", ""))

    def token(self) -> str:
        """From --token-file, the environment, .mew/tokens, or ./space.yaml: the first that has one."""
        return self._token

    @functools.cached_property
    def _token(self) -> str:
        # Kept, for stdin can be read only once.
        from mewstream.cli.tokens import find_token

        return find_token(self.id, space=self.space, token_file=self.token_file)

    def connect(self, *, reconnect: Backoff | bool = True) -> Connecting:
        """Join the space by a socket. This replaces another connection of the same participant."""
        import mewstream

        return mewstream.connect(
            self.url, space=self.space, participant=self.id, token=self.token(), reconnect=reconnect
        )


_OPTIONS = [
    click.option(
        "--url", envvar="MEW_URL", default=DEFAULT_URL, show_default=True, show_envvar=True, help="The gateway."
    ),
    click.option(
        "--space", "-s", envvar="MEW_SPACE", show_envvar=True, help="The space; not needed where there is only one."
    ),
    click.option(
        "--as",
        "-p",
        "participant",
        metavar="PARTICIPANT",
        envvar="MEW_PARTICIPANT",
        show_envvar=True,
        shell_complete=complete_me,
        help="Who you are.",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        type=click.Path(dir_okay=False, allow_dash=True),
        help="A file with your token; - is stdin.  [default: MEW_TOKEN_<PARTICIPANT> or MEW_TOKEN, "
        ".mew/tokens/<PARTICIPANT>.token, ./space.yaml]",
    ),
]


def participant_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --url, --space, --as and --token-file; the command gets them as ``who``."""

    @functools.wraps(command)
    def run_command(
        url: str, space: str | None, participant: str | None, token_file: str | None, **others: Any
    ) -> None:
        command(who=Who(url, space, participant, token_file), **others)

    decorated: Callable[..., None] = run_command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end. SIGTERM cancels it, as Ctrl-C does, so that it can leave in good order."""
    import uvloop

    terminated = False

    async def until_terminated() -> T:
        task = asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return await main

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(until_terminated())
    except asyncio.CancelledError:
        if terminated:
            sys.exit(128 + signal.SIGTERM)
        raise


@asynccontextmanager
async def telling_of_connection(space: Space) -> AsyncIterator[None]:
    """Meanwhile, a connection that is lost and made again is told on stderr."""
    events = space.events()

    async def tell() -> None:
        async for event in events:
            if said := _connection_news(event):
                complain(said)

    task = asyncio.create_task(tell())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _connection_news(event: Event) -> str | None:
    """What to tell a user of an event of the connection itself."""
    from mewstream.client.events import Disconnected, Resumed

    match event:
        case Disconnected(reason=reason):
            return f"the connection is lost ({reason or 'no reason given'}): trying again"
        case Resumed(recovered=True):
            return "connected again, nothing was missed"
        case Resumed(reason=reason):
            return f"connected again; what happened meanwhile is missed ({reason or 'no reason given'})"
    return None
