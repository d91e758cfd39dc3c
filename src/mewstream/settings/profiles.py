"""Profiles: gateways that somebody uses often, by name, in a TOML file of the user.

[default]
url = "wss://play.example.org"
space = "arena"
participant = "alice"
token_file = "alice.token"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mewstream.protocol.errors import ConfigError

PROFILES_VARIABLE = "MEW_PROFILES"
DEFAULT = "default"
_KEYS = ("url", "space", "participant", "token_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    url: str | None = None
    space: str | None = None
    participant: str | None = None
    token_file: Path | None = None


def profiles_file(environ: Mapping[str, str]) -> Path:
    """Return ``$MEW_PROFILES``, or ``mewstream/profiles.toml`` in the user's directory of configurations."""
    if named := environ.get(PROFILES_VARIABLE):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home(), ".config")
    return Path(home, "mewstream", "profiles.toml")


def find_profile(name: str | None, environ: Mapping[str, str]) -> Profile | None:
    """Return the profile of a name; with None that of ``default``, if there is one.

    Raises ConfigError if there is no profile of that name, or if the file has a mistake."""
    file = profiles_file(environ)
    known = _read(file)
    if (name or DEFAULT) in known:
        return _profile(file, name or DEFAULT, known[name or DEFAULT])
    if name is None:
        return None
    has = f"it has {', '.join(known)}" if known else "it has none" if file.exists() else "there is no such file"
    raise ConfigError(f"there is no profile {name!r} in {file}: {has}")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{file}: the profiles cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: found bytes that are not UTF-8, expected TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from None


def _profile(file: Path, name: str, found: Any) -> Profile:
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: {name}: expected a table: [{name}] and its keys below")
    for key, value in found.items():
        if key not in _KEYS:
            # A token belongs into a file of its own, and its text into no message.
            hint = "put it into a file, and name that by 'token_file'" if key == "token" else f"expected {_listed()}"
            raise ConfigError(f"{file}: {name}.{key}: unknown key, {hint}")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{file}: {name}.{key}: expected a text in quotes")
    token_file = found.pop("token_file", None)
    return Profile(**found, token_file=file.parent / Path(token_file).expanduser() if token_file else None)


def _listed() -> str:
    return f"{', '.join(_KEYS[:-1])} or {_KEYS[-1]}"
