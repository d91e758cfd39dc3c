"""The space file of a gateway, as its clients on the same machine read it: the address, the spaces and the tokens.

It is not validated here, because it may depend on environment variables that only the gateway has. What cannot be
understood counts as absent, except for a file that is no YAML at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SPACE_FILE_VARIABLE = "MEW_SPACE_FILE"
DEFAULT_URL = "ws://127.0.0.1:8080"
#: Where a gateway listens on every address of the machine, its own machine reaches it here.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here


def space_file(environ: Mapping[str, str]) -> Path:
    """Return the space file: ``$MEW_SPACE_FILE``, ``./space.yaml``, or the reference's ``./.mew/space.yaml``."""
    if named := environ.get(SPACE_FILE_VARIABLE):
        return Path(named)
    here, below = Path("space.yaml"), Path(".mew", "space.yaml")
    return below if below.exists() and not here.exists() else here


@dataclass(frozen=True, slots=True)
class ListedSpace:
    """A space of the file: its id, and the tokens of each participant."""

    id: str | None
    tokens: dict[str, list[str]] = field(repr=False)

    @property
    def participants(self) -> list[str]:
        return list(self.tokens)


@dataclass(frozen=True, slots=True)
class SpaceFile:
    url: str | None
    """How its gateway is reached: ``gateway.public_url``, or else its host and port on this machine. None if the file
    does not say it."""
    spaces: list[ListedSpace]

    def token(self, space: str | None, participant: str) -> str | None:
        """Return the first token of a participant."""
        for each in self.spaces:
            if (space is None or each.id == space) and (tokens := each.tokens.get(participant)):
                return tokens[0]
        return None


def read_space_file(file: Path) -> SpaceFile:
    """Read a space file. One that does not exist is empty. Raises ConfigError if it is no YAML."""
    if not file.exists():
        return SpaceFile(None, [])
    from mewstream.settings.yamlfile import read_yaml

    root = read_yaml(file, name=file).value
    several = _within(root, "spaces")
    return SpaceFile(_url(root), [_space(each) for each in (several if isinstance(several, list) else [root])])


def _url(root: Any) -> str | None:
    public = _within(root, "gateway", "public_url")
    if isinstance(public, str):
        return public
    host, port = _within(root, "gateway", "host"), _within(root, "gateway", "port")
    has_tls = isinstance(_within(root, "gateway", "tls"), dict)
    if not (isinstance(host, str) or _is_port(port) or has_tls):
        return None
    host = _EVERYWHERE.get(host, host) if isinstance(host, str) else "127.0.0.1"
    address = f"[{host}]" if ":" in host else host
    return f"{'wss' if has_tls else 'ws'}://{address}:{port if _is_port(port) else 8080}"


def _is_port(value: Any) -> bool:
    return type(value) is int and 0 < value < 65536


def _space(document: Any) -> ListedSpace:
    id, participants = _within(document, "space", "id"), _within(document, "participants")
    listed = participants if isinstance(participants, dict) else {}
    return ListedSpace(id if isinstance(id, str) else None, {str(name): _tokens(each) for name, each in listed.items()})


def _tokens(participant: Any) -> list[str]:
    tokens = _within(participant, "tokens")
    return [each for each in tokens if isinstance(each, str)] if isinstance(tokens, list) else []


def _within(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
