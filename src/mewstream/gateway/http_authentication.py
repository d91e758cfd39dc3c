"""Who sends an HTTP request: the space, and the participant that the token belongs to."""

from __future__ import annotations

from mewstream.gateway.claims import Claims, TokenFlaw, TokenRefused
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.http_message import HttpError, Request
from mewstream.gateway.identities import Identity
from mewstream.gateway.identity import token_from_headers
from mewstream.gateway.space import Space
from mewstream.protocol.access_rules import banned
from mewstream.protocol.errors import Unauthorized, ValidationFailed
from mewstream.protocol.identifiers import invalid_characters
from mewstream.protocol.stream_rules import capability_violation


class Authentication:
    """Each method raises :class:`HttpError` or a :class:`~mewstream.protocol.errors.PeerError` for a refusal."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def participant(self, request: Request, claimed: str | None = None) -> tuple[Space, str]:
        """The space and the participant of a request. ``claimed`` is the participant that its path names."""
        token = self._token(request)
        if claimed is not None and (flaw := invalid_characters(claimed)):
            raise ValidationFailed(f"the participant id in the path {flaw}", field="participant_id")
        name = request.query.get("space")
        space = self._gateway.find_space(name)
        if space is None:
            text = "there is no space of that name" if name else "name a space by ?space=: there are several"
            raise HttpError(404 if name else 400, ValidationFailed(text, field="space"))
        try:
            identity = self._identify(space, token)
        except TokenRefused as refused:
            self._gateway.log_wrong_token(space.id, claimed, request.address)
            raise HttpError(403, refused.error) from None
        if claimed is not None and claimed != identity.participant:
            self._gateway.log_wrong_token(space.id, claimed, request.address)
            raise HttpError(403, TokenRefused(TokenFlaw.UNKNOWN).error)
        if (until := space.state.banned.get(identity.participant)) is not None:
            raise HttpError(403, banned(until))
        if identity.claims is not None:
            _admit(space, identity.claims)
        return space, identity.participant

    def holder(self, request: Request, capability: str) -> tuple[Space, str]:
        """The same for a request that needs a capability."""
        space, participant = self.participant(request)
        if not space.state.capabilities(participant).allows(capability, {}):
            raise capability_violation(space.state, participant, capability)
        return space, participant

    def everywhere(self, request: Request) -> list[tuple[Space, str]]:
        """Every space in which the token of a request is valid, with the participant that it belongs to there."""
        token = self._token(request)
        known: list[tuple[Space, str]] = []
        refused = TokenRefused(TokenFlaw.UNKNOWN)
        for space in self._gateway.spaces.values():
            try:
                known.append((space, self._identify(space, token).participant))
            except TokenRefused as reason:
                refused = reason
        if not known:
            self._gateway.log_wrong_token(None, None, request.address)
            raise HttpError(403, refused.error)
        return known

    def _identify(self, space: Space, token: str) -> Identity:
        try:
            return self._gateway.identities.identify(space.id, token)
        except TokenRefused as refused:
            if refused.flaw is TokenFlaw.UNKNOWN_KEY and self._gateway.identities.newer_keys((token,)) is not None:
                text = "the key of the token is not known yet, and is being looked up: try again"
                raise HttpError(503, Unauthorized(text, reason=str(refused.flaw)), Retry_After="1") from None
            raise

    def _token(self, request: Request) -> str:
        presented = token_from_headers(request.credentials())
        if presented.token is not None:
            return presented.token
        if presented.problem is not None:
            self._gateway.log_wrong_token(None, None, request.address)
        raise HttpError(401, Unauthorized(presented.problem or "send Authorization: Bearer <token>"))


def _admit(space: Space, claims: Claims) -> None:
    """Record what a signed token gives, unless its holder has used one that lasts as long."""
    known = space.state.admitted.get(claims.participant)
    if known is not None and known.until >= claims.expires_at:
        return
    refusal = space.admit(claims)
    if refusal is not None:
        raise HttpError(refusal.http_status, refusal)
