"""The keys by which signed tokens are verified: from files, and from a set of keys (JWKS) that its owner rotates.

The set is read when the gateway starts, again after ``refresh`` seconds, and at once when a token names a key that is
not in it, because a new key signs from the moment it is published. The last can be caused by anybody, so it happens at
most once in :data:`LEAST_SECONDS_BETWEEN`. While the set cannot be read, the keys that are known go on being used.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from mewstream.gateway.jwt_settings import LEAST_SECRET_BYTES, SHARED_SECRET_ALGORITHMS, JwtSettings
from mewstream.io.log_lines import event
from mewstream.protocol.errors import ConfigError

log = logging.getLogger("mewstream.gateway")

LEAST_SECONDS_BETWEEN = 10.0
FETCH_TIMEOUT = 5.0
MAX_SET_BYTES = 1 << 20
MAX_KEYS = 100

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class SigningKey(NamedTuple):
    """A key, and the algorithms that it can be used with: one of the other kind would be a way to forge."""

    key: Any
    algorithms: frozenset[str]
    id: str | None = None

    def __repr__(self) -> str:
        return f"<SigningKey {self.id!r} for {', '.join(sorted(self.algorithms))}>"


class SigningKeys:
    """All keys of the settings. Raises :class:`ConfigError` if a file cannot be used."""

    def __init__(self, settings: JwtSettings, *, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now = now
        self._fixed = [_read_pem(path, settings) for path in settings.keys]
        if settings.secret_file is not None:
            self._fixed.append(_read_secret(settings.secret_file, settings))
        self._published: list[SigningKey] = []
        self.generation = 0
        """Grows whenever the keys have changed: what was verified with the old ones may not be valid any more."""
        self._asked_at: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_failing = False
        if settings.jwks is not None and not _is_url(settings.jwks):
            self._published = _parse_set(_read_file(settings.jwks), settings)
            self._asked_at = now()

    def candidates(self, algorithm: str, key_id: str | None) -> list[SigningKey]:
        """The keys that may have signed a token with this head. Keys from files have no id, and may have signed any."""
        named = [each for each in self._published if key_id is None or each.id is None or each.id == key_id]
        return [each for each in (*named, *self._fixed) if algorithm in each.algorithms]

    @property
    def is_stale(self) -> bool:
        """Whether the set of keys is old, or was never read."""
        return self._settings.jwks is not None and (
            self._asked_at is None or self._now() - self._asked_at >= self._settings.refresh
        )

    def renew(self) -> asyncio.Task[None] | None:
        """Read the set of keys again, unless that was tried a moment ago. Returns the reading, which never fails."""
        if self._settings.jwks is None:
            return None
        if self._reading is not None and not self._reading.done():
            return self._reading
        if self._asked_at is not None and self._now() - self._asked_at < LEAST_SECONDS_BETWEEN:
            return None
        self._asked_at = self._now()
        self._reading = asyncio.get_running_loop().create_task(self._read_set(self._settings.jwks))
        return self._reading

    async def _read_set(self, source: str) -> None:
        try:
            async with asyncio.timeout(2 * FETCH_TIMEOUT):
                text = await asyncio.to_thread(_fetch if _is_url(source) else _read_file, source)
            published = _parse_set(text, self._settings)
        except (ConfigError, TimeoutError) as problem:
            if not self._is_failing:
                log.error(
                    "%s; the keys that are known stay in use",
                    problem or f"{source} did not answer in time",
                    extra=event("signing_keys_unreadable"),
                )
            self._is_failing = True
            return
        self._published = published
        self.generation += 1
        if self._is_failing:
            log.info(
                "the set of keys can be read again: %d keys", len(self._published), extra=event("signing_keys_readable")
            )
        self._is_failing = False

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


# -- files ----------------------------------------------------------------------------------------


def _read_pem(path: Path, settings: JwtSettings) -> SigningKey:
    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: the key cannot be read: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{path}: found no public key, expected a PEM file (BEGIN PUBLIC KEY)") from None
    fitting = _algorithms_of(key) & settings.algorithms
    if not fitting:
        raise ConfigError(
            f"{path}: found a key for {', '.join(sorted(_algorithms_of(key))) or 'no known algorithm'}, "
            f"expected one for gateway.jwt.algorithms ({', '.join(sorted(settings.algorithms))})"
        )
    return SigningKey(key, fitting)


def _algorithms_of(key: object) -> frozenset[str]:
    match key:
        case rsa.RSAPublicKey():
            return frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
        case ec.EllipticCurvePublicKey():
            return frozenset({_CURVES[key.curve.name]} if key.curve.name in _CURVES else ())
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return frozenset({"EdDSA"})
    return frozenset()


def _read_secret(path: Path, settings: JwtSettings) -> SigningKey:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{path}: the secret cannot be read: {error.strerror}") from None
    if len(secret) < LEAST_SECRET_BYTES:
        raise ConfigError(
            f"{path}: found a secret of {len(secret)} bytes, expected at least {LEAST_SECRET_BYTES}, made at random"
        )
    return SigningKey(secret, settings.algorithms.intersection(SHARED_SECRET_ALGORITHMS))


# -- sets of keys ---------------------------------------------------------------------------------


def _is_url(source: str) -> bool:
    return source.startswith(("https://", "http://"))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another address might not be HTTPS, and the operator named this one."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json", "User-Agent": "mewstream"})  # noqa: S310
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=FETCH_TIMEOUT) as answer:
            text: bytes = answer.read(MAX_SET_BYTES + 1)
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "code", None) or type(error).__name__
        raise ConfigError(f"the set of keys cannot be fetched from {url}: {reason}") from None
    return text


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: the set of keys cannot be read: {error.strerror}") from None


def _parse_set(text: bytes, settings: JwtSettings) -> list[SigningKey]:
    """The keys of a set that verify signatures. Keys of other kinds, and secrets, are passed over: who publishes a set
    publishes public keys."""
    source = settings.jwks
    if len(text) > MAX_SET_BYTES:
        raise ConfigError(f"{source}: the set of keys is larger than {MAX_SET_BYTES} bytes")
    try:
        listed = msgspec.json.decode(text, type=dict[str, Any])["keys"]
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, RecursionError):
        listed = None
    if not isinstance(listed, list):
        raise ConfigError(f'{source}: found no set of keys, expected {{"keys": [...]}} (RFC 7517)')
    found: list[SigningKey] = []
    for each in listed[:MAX_KEYS]:
        key = _parse_key(each, settings)
        if key is not None:
            found.append(key)
    if not found:
        raise ConfigError(
            f"{source}: found no public key for {', '.join(sorted(settings.algorithms))} (gateway.jwt.algorithms)"
        )
    return found


def _parse_key(listed: Any, settings: JwtSettings) -> SigningKey | None:
    if not isinstance(listed, dict) or listed.get("use", "sig") != "sig" or listed.get("kty") == "oct":
        return None
    try:
        key = jwt.PyJWK.from_dict(listed).key
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    fitting = _algorithms_of(key) & settings.algorithms
    if listed.get("alg") is not None:
        fitting &= {listed["alg"]} if isinstance(listed["alg"], str) else set()
    key_id = listed.get("kid")
    return SigningKey(key, fitting, key_id if isinstance(key_id, str) else None) if fitting else None
