"""The participant that a command acts as, and the options ``--url``, ``--space``, ``--as``, ``--profile`` and
``--token-file``."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import click

from mewstream.cli.name_suggestions import suggest_own_names
from mewstream.protocol.errors import ConfigError
from mewstream.settings.space_file import DEFAULT_URL

if TYPE_CHECKING:
    from mewstream.client import Backoff, Connecting
    from mewstream.settings.connection import ConnectionSettings


class Identity:
    """A participant of a space, as the command line gives it. What it does not give is found when it is needed, as
    :mod:`mewstream.settings.connection` describes."""

    def __init__(
        self,
        url: str | None = None,
        space: str | None = None,
        participant: str | None = None,
        *,
        profile: str | None = None,
        token_file: str | None = None,
    ) -> None:
        self._url, self._space, self._participant, self._profile = url, space, participant, profile
        self._token_file = token_file

    @functools.cached_property
    def _settings(self) -> ConnectionSettings:
        from mewstream.settings.connection import find_connection

        return find_connection(url=self._url, space=self._space, participant=self._participant, profile=self._profile)

    @property
    def url(self) -> str:
        return self._settings.url

    @property
    def space(self) -> str | None:
        return self._settings.space

    @property
    def is_known(self) -> bool:
        """Whether it is known who we are."""
        return self._settings.participant is not None

    @property
    def id(self) -> str:
        """The id of the participant. Raises ConfigError if none was given."""
        if self._settings.participant:
            return self._settings.participant
        from mewstream.settings.tokens import known_participants

        known = known_participants(os.environ)
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
        """The token: that of ``--token-file``, or else the one that is found. Raises ConfigError if there is none."""
        # Cached, because a token from stdin can be read only once.
        from mewstream.settings.tokens import read_token, token_file, token_variable

        if self._token_file is not None:
            return read_token(self._token_file)
        if (found := self._settings.token()) is not None:
            return found
        from pathlib import Path

        raise ConfigError(
            f"there is no token of {self.id!r}: give --token-file FILE, set {token_variable(self.id)} or MEW_TOKEN, "
            f"or put it into {token_file(Path(), self.id) or 'a file'}"
        )

    def connect(self, *, reconnect: Backoff | bool = True) -> Connecting:
        """Join the space by WebSocket. This replaces any other connection of the same participant."""
        import mewstream

        return mewstream.connect(self.url, space=self.space, participant=self.id, token=self.token, reconnect=reconnect)


_OPTIONS = [
    click.option(
        "--url",
        envvar="MEW_URL",
        show_envvar=True,
        help=f"The gateway.  [default: {DEFAULT_URL}, or the one of ./space.yaml]",
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
        "--profile",
        metavar="NAME",
        envvar="MEW_PROFILE",
        show_envvar=True,
        help="A section of ~/.config/mewstream/profiles.toml, which has what is not given.",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        type=click.Path(dir_okay=False, allow_dash=True),
        help="A file with your token; - is stdin.  [default: MEW_TOKEN_<PARTICIPANT> or MEW_TOKEN, that of the "
        "profile, .mew/tokens/<PARTICIPANT>.token, ./space.yaml]",
    ),
]


def participant_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say who acts where to a command, which gets them as the argument ``identity``."""

    @functools.wraps(command)
    def run_command(
        url: str | None,
        space: str | None,
        participant: str | None,
        profile: str | None,
        token_file: str | None,
        **others: Any,
    ) -> None:
        command(identity=Identity(url, space, participant, profile=profile, token_file=token_file), **others)

    decorated: Callable[..., None] = run_command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
