"""Where a participant's own token is found, and how secrets are written to files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

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
    """The token of a participant, from the first of these places that has one: a file that the user names, the
    environment (the more special variable first), ``.mew/tokens`` here and in the workspace, the space file
    (:func:`space_file`)."""
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
    """Those whose token is in ``.mew/tokens`` or in the space file."""
    names: list[str] = []
    for workspace in _workspaces(environ):
        names += sorted(file.stem for file in (workspace / ".mew" / "tokens").glob("*.token"))
    for document in _documents(space_file(environ)):
        participants = _within(document, "participants")
        names += [str(name) for name in participants] if isinstance(participants, dict) else []
    return list(dict.fromkeys(names))


@contextmanager
def secret_file(file: Path, *, replace: bool = False) -> Iterator[TextIO]:
    """A new file that only its owner can read, from its first moment on. It is gone again where writing it
    fails. An existing one is replaced only where that is asked for."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if replace:
        file.unlink(missing_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{file} exists already: remove it, or give another file") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            yield opened
    except BaseException:
        file.unlink(missing_ok=True)
        raise


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
    """What ``MEW_SPACE_FILE`` names, else ``./space.yaml``, else the reference's ``./.mew/space.yaml`` where only that
    is there."""
    if named := environ.get(SPACE_FILE_VARIABLE):
        return Path(named)
    here, below = Path("space.yaml"), Path(".mew", "space.yaml")
    return below if below.exists() and not here.exists() else here


def _workspaces(environ: Mapping[str, str]) -> list[Path]:
    """Where ``.mew/tokens`` may be: here, and beside the space file."""
    beside = workspace_of(space_file(environ))
    return [Path()] if beside == Path.cwd() else [Path(), beside]


def _listed(file: Path, space: str | None, participant: str) -> str | None:
    """The token that a space file lists."""
    for document in _documents(file):
        if space is None or _within(document, "space", "id") == space:
            tokens = _within(document, "participants", participant, "tokens")
            if isinstance(tokens, list) and tokens and isinstance(tokens[0], str):
                return tokens[0]
    return None


def _documents(file: Path) -> list[Any]:
    """The spaces of a space file, as they stand there; none where there is no file. What is wrong with them is
    none of our business: they may need variables that only the gateway has."""
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
