"""Signed tokens (JWT): who they name, in which spaces, with which capabilities, and until when.

A token is believed when its signature is that of a key of :mod:`.signing_keys`, and its issuer, audience and times are
those that the settings ask for. Each way in which it can fail has a name, which its holder is told: none of them tells
anything about the keys.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jwt

from mewstream.gateway.claims import Claims, TokenFlaw, TokenRefused
from mewstream.gateway.jwt_settings import JwtSettings
from mewstream.gateway.signing_keys import SigningKeys
from mewstream.protocol.capabilities import Capabilities
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import ValidationFailed
from mewstream.protocol.identifiers import flaw_in_participant_id
from mewstream.protocol.policy import Limits
from mewstream.protocol.times import SECOND

MAX_TOKEN_BYTES = 16 << 10
#: Verified tokens that are remembered, because a signature takes far longer to check than a request to answer.
REMEMBERED = 4096
#: The last second of the year 9999. A token that is valid for longer is treated as if it ended then.
_LATEST = 253_402_300_799


class SignedTokens:
    def __init__(self, settings: JwtSettings, *, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self.keys = SigningKeys(settings)
        self._verified: OrderedDict[bytes, Claims] = OrderedDict()
        """What verified tokens say, by their digests, as long as the keys are the same."""
        self._verified_by = self.keys.generation

    def is_signed(self, token: str) -> bool:
        """Whether a text has the form of a signed token."""
        return token.count(".") == 2 and token.startswith("ey")

    def wants_newer_keys(self, token: str) -> bool:
        """Whether a token names a key that is not known, or the set of keys is old."""
        if not self.is_signed(token):
            return False
        try:
            algorithm, key_id = _head(token)
        except TokenRefused:
            return False
        unknown = algorithm in self._settings.algorithms and not self.keys.candidates(algorithm, key_id)
        return unknown or self.keys.is_stale

    def verify(self, token: str) -> Claims:
        """Raises :class:`TokenRefused`."""
        if self._verified_by != self.keys.generation:
            self._verified.clear()
            self._verified_by = self.keys.generation
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._verified.get(digest)
        if known is None:
            known = self._verified[digest] = self._read(token)
            if len(self._verified) > REMEMBERED:
                self._verified.popitem(last=False)
        if known.expires_at <= self._now() * SECOND:
            del self._verified[digest]
            raise TokenRefused(TokenFlaw.EXPIRED)
        return known

    def _read(self, token: str) -> Claims:
        settings = self._settings
        algorithm, key_id = _head(token)
        if algorithm not in settings.algorithms:
            raise TokenRefused(TokenFlaw.WRONG_ALGORITHM)
        keys = self.keys.candidates(algorithm, key_id)
        if not keys:
            raise TokenRefused(TokenFlaw.UNKNOWN_KEY)
        refused = TokenRefused(TokenFlaw.BAD_SIGNATURE)
        for each in keys:
            try:
                claims = jwt.decode(
                    token,
                    each.key,
                    algorithms=sorted(each.algorithms),
                    audience=settings.audience,
                    issuer=settings.issuer,
                    leeway=settings.leeway,
                    options={"require": ["exp", settings.participant_claim], "verify_sub": False},
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as error:
                refused = _refusal(error)
                break
            return self._claims(claims)
        raise refused from None

    def _claims(self, claims: dict[str, Any]) -> Claims:
        settings = self._settings
        participant = claims[settings.participant_claim]
        if not isinstance(participant, str):
            raise TokenRefused(TokenFlaw.MALFORMED_CLAIM, settings.participant_claim)
        spaces = claims.get(settings.spaces_claim, list(settings.spaces))
        if isinstance(spaces, str):
            spaces = spaces.split()
        if not isinstance(spaces, list) or not all(isinstance(each, str) for each in spaces):
            raise TokenRefused(TokenFlaw.MALFORMED_CLAIM, settings.spaces_claim)
        return Claims(
            participant,
            frozenset(spaces),
            self._capabilities(claims.get(settings.capabilities_claim)),
            round(min(int(claims["exp"]), _LATEST) + settings.leeway) * SECOND,
            claims.get("iss"),
        )

    def _capabilities(self, listed: Any) -> list[dict[str, Any]] | None:
        if listed is None:
            return None
        try:
            if isinstance(listed, list):
                return Capabilities(listed).as_list()
        except ValidationFailed:
            pass
        raise TokenRefused(TokenFlaw.MALFORMED_CLAIM, self._settings.capabilities_claim)

    def check(self, claims: Claims, space: str, limits: Limits) -> None:
        """Check what depends on the space. Raises :class:`TokenRefused`."""
        if space not in claims.spaces and "*" not in claims.spaces:
            raise TokenRefused(TokenFlaw.OTHER_SPACE)
        if flaw_in_participant_id(claims.participant, max_bytes=limits.id_bytes):
            raise TokenRefused(TokenFlaw.MALFORMED_CLAIM, self._settings.participant_claim)
        if len(encode_json(claims.capabilities or [])) > limits.capability_list_bytes:
            raise TokenRefused(TokenFlaw.MALFORMED_CLAIM, self._settings.capabilities_claim)


def _head(token: str) -> tuple[str, str | None]:
    """The algorithm and the id of the key that a token claims for itself."""
    if len(token) > MAX_TOKEN_BYTES or not token.isascii():
        raise TokenRefused(TokenFlaw.MALFORMED)
    try:
        head = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenRefused(TokenFlaw.MALFORMED) from None
    algorithm, key_id = head.get("alg"), head.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
        raise TokenRefused(TokenFlaw.MALFORMED)
    return algorithm, key_id


def _refusal(error: jwt.PyJWTError) -> TokenRefused:
    match error:
        case jwt.ExpiredSignatureError():
            return TokenRefused(TokenFlaw.EXPIRED)
        case jwt.ImmatureSignatureError():
            return TokenRefused(TokenFlaw.NOT_YET_VALID)
        case jwt.InvalidIssuerError():
            return TokenRefused(TokenFlaw.WRONG_ISSUER)
        case jwt.InvalidAudienceError():
            return TokenRefused(TokenFlaw.WRONG_AUDIENCE)
        case jwt.MissingRequiredClaimError(claim="aud"):
            return TokenRefused(TokenFlaw.WRONG_AUDIENCE)
        case jwt.MissingRequiredClaimError(claim="iss"):
            return TokenRefused(TokenFlaw.WRONG_ISSUER)
        case jwt.MissingRequiredClaimError(claim=claim):
            return TokenRefused(TokenFlaw.MALFORMED_CLAIM, claim)
        case jwt.InvalidAlgorithmError():
            return TokenRefused(TokenFlaw.WRONG_ALGORITHM)
    return TokenRefused(TokenFlaw.MALFORMED)
