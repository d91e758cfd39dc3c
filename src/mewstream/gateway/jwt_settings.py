"""The section ``gateway.jwt``: whose signed tokens (JWT, RFC 7519) the gateway accepts, and what their claims mean."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mewstream import extras
from mewstream.settings.yamlfile import YamlValue

#: Algorithms that can be allowed. ``none`` is missing on purpose.
SHARED_SECRET_ALGORITHMS = ("HS256", "HS384", "HS512")
PUBLIC_KEY_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
#: Bytes that a secret must have, whatever the algorithm: shorter ones can be guessed from one token.
LEAST_SECRET_BYTES = 32

_KEYS = (
    *("issuer", "audience", "algorithms", "keys", "secret_file", "jwks", "refresh", "leeway", "spaces"),
    *("participant_claim", "spaces_claim", "capabilities_claim"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings:
    algorithms: frozenset[str]
    """The algorithms that tokens may be signed with."""
    issuer: str | None = None
    """What ``iss`` must be. None: it is not checked."""
    audience: str | None = None
    """What ``aud`` must name. None: tokens that name an audience are refused, because they are for somebody else."""
    keys: tuple[Path, ...] = ()
    """Public keys, as PEM files."""
    secret_file: Path | None = None
    """The secret of HS256 and its like."""
    jwks: str | None = None
    """A set of keys (RFC 7517): a file, or a URL from which it is fetched."""
    refresh: float = 600.0
    """Seconds after which the set of keys is read again. An unknown key makes it be read at once, but not often."""
    leeway: float = 10.0
    """Seconds by which clocks may differ."""
    spaces: tuple[str, ...] = ()
    """Where the holder of a token without the claim for spaces may join. ``*`` is everywhere."""
    participant_claim: str = "sub"
    spaces_claim: str = "spaces"
    capabilities_claim: str = "capabilities"


def read_jwt_settings(at: YamlValue, workspace: Path) -> JwtSettings:
    """Raises :class:`~mewstream.protocol.errors.ConfigError` for settings that cannot work, or that let anybody in."""
    extras.require("jwt", who=f"{at.path} in {at.file}")
    section = at.section(_KEYS)
    if "algorithms" not in section:
        raise at.error("found no key 'algorithms', expected a list such as [RS256]")
    algorithms = frozenset(_algorithm(each) for each in section["algorithms"].items("a list of algorithms"))
    if not algorithms:
        raise section["algorithms"].error("found an empty list, expected at least one algorithm")
    shared = algorithms.intersection(SHARED_SECRET_ALGORITHMS)
    keys = tuple(_file(each, workspace) for each in _items(section, "keys", "a list of files"))
    secret = _file(section["secret_file"], workspace) if "secret_file" in section else None
    jwks = _jwks(section["jwks"], workspace) if "jwks" in section else None
    if shared and secret is None:
        raise at.error(f"found the algorithm {min(shared)} and no key 'secret_file', expected the file of its secret")
    if secret is not None and not shared:
        raise section["secret_file"].error("found a secret and no algorithm for it, expected HS256, HS384 or HS512")
    if algorithms - shared and not keys and jwks is None:
        raise at.error(f"found the algorithm {min(algorithms - shared)} and no public key, expected 'keys' or 'jwks'")
    if (keys or jwks is not None) and algorithms == shared:
        raise at.error("found public keys and no algorithm that uses them, expected for instance RS256")
    given: dict[str, Any] = {key: section[key].text() for key in ("issuer", "audience") if key in section}
    given |= {key: _claim(section[key]) for key in _KEYS if key.endswith("_claim") and key in section}
    given |= {key: section[key].seconds(zero=key == "leeway") for key in ("refresh", "leeway") if key in section}
    given["spaces"] = tuple(each.text() for each in _items(section, "spaces", "a list of spaces"))
    return JwtSettings(algorithms=algorithms, keys=keys, secret_file=secret, jwks=jwks, **given)


def _items(section: dict[str, YamlValue], key: str, what: str) -> Iterator[YamlValue]:
    return section[key].items(what) if key in section else iter(())


def _algorithm(at: YamlValue) -> str:
    name = at.text("the name of an algorithm")
    known = (*PUBLIC_KEY_ALGORITHMS, *SHARED_SECRET_ALGORITHMS)
    if name not in known:
        raise at.error(f"found {name[:20]!r}, expected one of {', '.join(known)}")
    return name


def _claim(at: YamlValue) -> str:
    if not (name := at.text("the name of a claim")):
        raise at.error("found an empty string, expected the name of a claim")
    return name


def _file(at: YamlValue, workspace: Path) -> Path:
    path = at.path_from(workspace)
    if not path.is_file():
        raise at.error(f"found no file {path}, expected a key")
    return path


def _jwks(at: YamlValue, workspace: Path) -> str:
    """A URL, or the path of a file. Whoever can change an answer on its way could sign tokens, so it is HTTPS, except
    on this machine."""
    text = at.text("a URL or a path")
    try:
        url = urlsplit(text)
        host = url.hostname
    except ValueError:
        raise at.error("found a malformed URL, expected https://host/path") from None
    if url.scheme not in ("http", "https"):
        return str(_file(at, workspace))
    if not host or url.username is not None or url.password is not None:
        raise at.error("found a URL without a host, or with a password, expected https://host/path")
    if url.scheme == "http" and not _is_loopback(host):
        raise at.error(f"found http to {host}, expected https: over http somebody else could answer")
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
