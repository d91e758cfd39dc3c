"""What a token says of its holder, and why it may not be believed."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from mewstream.protocol.errors import Unauthorized


class TokenFlaw(StrEnum):
    """Why a token is refused, as the field ``reason`` of the error."""

    UNKNOWN = "unknown_token"
    MALFORMED = "malformed_token"
    WRONG_ALGORITHM = "wrong_algorithm"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    MALFORMED_CLAIM = "malformed_claim"
    OTHER_SPACE = "other_space"


EXPLANATIONS: dict[TokenFlaw, str] = {
    TokenFlaw.UNKNOWN: "the token is missing, unknown, or not of this participant in this space",
    TokenFlaw.MALFORMED: "the signed token is malformed",
    TokenFlaw.WRONG_ALGORITHM: "the token is signed with an algorithm that this gateway does not accept",
    TokenFlaw.UNKNOWN_KEY: "the token is signed with a key that this gateway does not know",
    TokenFlaw.BAD_SIGNATURE: "the signature of the token is wrong",
    TokenFlaw.EXPIRED: "the token has expired: get a new one",
    TokenFlaw.NOT_YET_VALID: "the token is not valid yet: compare the clocks",
    TokenFlaw.WRONG_ISSUER: "the token was issued by somebody else than this gateway expects",
    TokenFlaw.WRONG_AUDIENCE: "the token is meant for another audience than this gateway",
    TokenFlaw.MALFORMED_CLAIM: "a claim of the token is missing, or has another form than this gateway expects",
    TokenFlaw.OTHER_SPACE: "the token does not name this space",
}


class TokenRefused(Exception):
    """A token is not believed. ``claim`` names the claim that is at fault, if it is one."""

    def __init__(self, flaw: TokenFlaw, claim: str | None = None) -> None:
        super().__init__(EXPLANATIONS[flaw])
        self.flaw = flaw
        self.claim = claim

    @property
    def error(self) -> Unauthorized:
        """What its holder is told. A token that is unknown has no further reason: there is nothing to tell."""
        details = {} if self.flaw is TokenFlaw.UNKNOWN else {"reason": str(self.flaw)}
        if self.claim is not None:
            details["claim"] = self.claim
        return Unauthorized(str(self), **details)


class Claims(NamedTuple):
    """What a token says of its holder."""

    participant: str
    spaces: frozenset[str]
    """``*`` is every space."""
    capabilities: list[dict[str, Any]] | None
    """None: those that the space gives by itself."""
    expires_at: int
    """Microseconds. The leeway is part of it, so that everything that follows agrees on one end."""
    issuer: str | None
