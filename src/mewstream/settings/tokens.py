"""Tokens: what they look like, and where that of a participant is found."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from mewstream.protocol.errors import ConfigError
from mewstream.settings.space_file import read_space_file, space_file
from mewstream.settings.workspace import workspace_of

_USABLE = re.compile(r"[\x21-\x7e]+")
_STDIN = "-"


def new_token() -> str:
    """Make a token of 256 random bits, in characters that a header and a subprotocol may contain.

    It contains no ``.``, so it cannot be mistaken for the name or prefix of a subprotocol.
    """
    return secrets.token_urlsafe(32)


def is_usable_token(token: str) -> bool:
    """Whether a token consists of visible ASCII characters, so that it can be presented in every way."""
    return _USABLE.fullmatch(token) is not None


def token_variable(participant: str) -> str:
    """The environment variable that may hold the token of a participant."""
    return "MEW_TOKEN_" + re.sub("[^A-Z0-9]", "_", participant.upper())


def token_file(directory: Path, participant: str) -> Path | None:
    """The file below a directory that may hold the token of a participant. None for an id with a slash, which could
    lead out of the directory."""
    if re.search(r"[/\\]", participant):
        return None
    return directory / ".mew" / "tokens" / f"{participant}.token"


def token_in_environment(participant: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the token in ``MEW_TOKEN_<ID>``, or else in ``MEW_TOKEN``."""
    own = [token_variable(participant)] if participant else []
    for name in (*own, "MEW_TOKEN"):
        if token := environ.get(name, "").strip():
            return usable(token, f"the variable {name}")
    return None


def token_in_workspace(participant: str, space: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the token in ``.mew/tokens``, in the working directory or the workspace, or else in the space file."""
    for workspace in _workspaces(environ):
        own_file = token_file(workspace, participant)
        if own_file is not None and own_file.exists():
            return read_token(str(own_file))
    file = space_file(environ)
    token = read_space_file(file).token(space, participant)
    return usable(token, str(file)) if token else None


def known_participants(environ: Mapping[str, str]) -> list[str]:
    """Return the participants whose tokens are in ``.mew/tokens`` or in the space file."""
    names: list[str] = []
    for workspace in _workspaces(environ):
        names += sorted(file.stem for file in (workspace / ".mew" / "tokens").glob("*.token"))
    for space in read_space_file(space_file(environ)).spaces:
        names += space.participants
    return list(dict.fromkeys(names))


def read_token(file: str) -> str:
    """Read a token from a file; ``-`` is stdin."""
    try:
        content = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
        token = content.decode("utf-8-sig").strip()
    except OSError as error:
        raise ConfigError(f"{file}: the token cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: found bytes that are not UTF-8, expected a token") from None
    return usable(token, "stdin" if file == _STDIN else file)


def usable(token: str, source: str) -> str:
    """Return the token. Raises ConfigError, which names the source, if no token looks like this."""
    if not is_usable_token(token):
        raise ConfigError(f"{source}: expected a token: visible ASCII characters without spaces, and nothing else")
    return token


def _workspaces(environ: Mapping[str, str]) -> list[Path]:
    """Return the directories that may contain ``.mew/tokens``: the working directory and that of the space file."""
    beside = workspace_of(space_file(environ))
    return [Path()] if beside == Path.cwd() else [Path(), beside]
