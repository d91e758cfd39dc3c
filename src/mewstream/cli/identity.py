"""The participant that a command acts as, and the options ``--url``, ``--space``, ``--as`` and ``--token-file``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import click

from mewstream.cli.name_suggestions import suggest_own_names
from mewstream.protocol.errors import ConfigError

if TYPE_CHECKING:
    from mewstream.client import Backoff, Connecting

DEFAULT_URL = "ws://127.0.0.1:8080"


@dataclass(frozen=True)
class Identity:
    """A participant of a space, as given by the command line and the environment."""

    url: str
    space: str | None
    participant: str | None
    token_file: str | None

    @property
    def id(self) -> str:
        """The id of the participant. Raises ConfigError if none was given."""
        if self.participant:
            return self.participant
        from mewstream.cli.token_lookup import known_participants

        known = known_participants()
        hint = f": there are tokens of {', '.join(known)} here" if known else ""
        raise ConfigError(f"who are you? Give --as NAME, or set MEW_PARTICIPANT{hint}")

    @property
    def http_url(self) -> str:
        """The root of the HTTP API, which shares its port with the WebSocket."""
        from mewstream.client.connection import websocket_url

        parts = urlsplit(websocket_url(self.url))
        path = parts.path.removesuffix("/").removesuffix("/ws")
        return urlunsplit(("https" if parts.scheme == "wss" else "http", parts.netloc, path, "", ""))

    @functools.cached_property
    def token(self) -> str:
        """The token, found as :func:`mewstream.cli.token_lookup.find_token` describes."""
        # Cached, because a token from stdin can be read only once.
        from mewstream.cli.token_lookup import find_token

        return find_token(self.id, space=self.space, token_file=self.token_file)

    def connect(self, *, reconnect: Backoff | bool = True) -> Connecting:
        """Join the space by WebSocket. This replaces any other connection of the same participant."""
        import mewstream

        return mewstream.connect(self.url, space=self.space, participant=self.id, token=self.token, reconnect=reconnect)


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
        shell_complete=suggest_own_names,
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
    """Add --url, --space, --as and --token-file to a command, which gets them as the argument ``identity``."""

    @functools.wraps(command)
    def run_command(
        url: str, space: str | None, participant: str | None, token_file: str | None, **others: Any
    ) -> None:
        command(identity=Identity(url, space, participant, token_file), **others)

    decorated: Callable[..., None] = run_command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
