"""Where the commands find the token of a participant."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mewstream.gateway import identity
from mewstream.gateway.workspace import workspace_of
from mewstream.protocol.errors import ConfigError

SPACE_FILE_VARIABLE = "MEW_SPACE_FILE"
_STDIN = "-"


def find_token(
    participant: str,
    *,
    space: str | None,
    token_file: str | None,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Find the token of a participant, or raise ConfigError.

    The first of these places that has one is used: ``token_file``, the environment (``MEW_TOKEN_<ID>`` before
    ``MEW_TOKEN``), ``.mew/tokens`` in the working directory and in the workspace, and the space file."""
    if token_file is not None:
        return _usable(_read(token_file), "stdin" if token_file == _STDIN else token_file)
    variable = identity.token_variable(participant)
    for name in (variable, "MEW_TOKEN"):
        if token := environ.get(name, "").strip():
            return _usable(token, f"the variable {name}")
    for workspace in _workspaces(environ):
        own_file = identity.token_file(workspace, participant)
        if own_file is not None and own_file.exists():
            return _usable(_read(str(own_file)), str(own_file))
    file = space_file(environ)
    if listed := _listed(file, space, participant):
        return _usable(listed, str(file))
    raise ConfigError(
        f"there is no token of {participant!r}: give --token-file FILE, set {variable} or MEW_TOKEN, "
        f"or put it into {identity.token_file(Path(), participant) or 'a file'}"
    )


def known_participants(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The participants whose tokens are in ``.mew/tokens`` or in the space file."""
    names: list[str] = []
    for workspace in _workspaces(environ):
        names += sorted(file.stem for file in (workspace / ".mew" / "tokens").glob("*.token"))
    for document in _documents(space_file(environ)):
        participants = _within(document, "participants")
        names += [str(name) for name in participants] if isinstance(participants, dict) else []
    return list(dict.fromkeys(names))


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
        return content.decode("utf-8-sig").strip()
    except OSError as error:
        raise ConfigError(f"{file}: the token cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: found bytes that are not UTF-8, expected a token") from None


def _usable(token: str, source: str) -> str:
    if not identity.is_usable_token(token):
        raise ConfigError(f"{source}: expected a token: visible ASCII characters without spaces, and nothing else")
    return token


def space_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The space file: ``$MEW_SPACE_FILE``, or ``./space.yaml``, or the ``./.mew/space.yaml`` of the reference."""
    if named := environ.get(SPACE_FILE_VARIABLE):
        return Path(named)
    here, below = Path("space.yaml"), Path(".mew", "space.yaml")
    return below if below.exists() and not here.exists() else here


def _workspaces(environ: Mapping[str, str]) -> list[Path]:
    """The directories that may contain ``.mew/tokens``: the working directory, and the workspace of the space file."""
    beside = workspace_of(space_file(environ))
    return [Path()] if beside == Path.cwd() else [Path(), beside]


def _listed(file: Path, space: str | None, participant: str) -> str | None:
    """The first token of a participant in a space file."""
    for document in _documents(file):
        if space is None or _within(document, "space", "id") == space:
            tokens = _within(document, "participants", participant, "tokens")
            if isinstance(tokens, list) and tokens and isinstance(tokens[0], str):
                return tokens[0]
    return None


def _documents(file: Path) -> list[Any]:
    """The spaces in a space file; none if the file does not exist.

    They are not validated, because they may depend on environment variables that only the gateway has."""
    if not file.exists():
        return []
    from mewstream.gateway.yamlfile import read_yaml

    root = read_yaml(file, name=file).value
    several = _within(root, "spaces")
    return several if isinstance(several, list) else [root]


def _within(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
