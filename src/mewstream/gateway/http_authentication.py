"""Who sends an HTTP request: the space, and the participant that the token belongs to."""

from __future__ import annotations

from mewstream.gateway.gateway import Gateway
from mewstream.gateway.http_message import HttpError, Request
from mewstream.gateway.identity import token_from_headers
from mewstream.gateway.space import Space
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
        participant = self._gateway.participant_of(space, token)
        if participant is None or (claimed is not None and claimed != participant):
            self._gateway.log_wrong_token(space.id, claimed, request.address)
            raise HttpError(403, Unauthorized("the token is not of this participant in this space"))
        return space, participant

    def holder(self, request: Request, capability: str) -> tuple[Space, str]:
        """The same for a request that needs a capability."""
        space, participant = self.participant(request)
        if not space.state.capabilities(participant).allows(capability, {}):
            raise capability_violation(space.state, participant, capability)
        return space, participant

    def everywhere(self, request: Request) -> list[tuple[Space, str]]:
        """Every space in which the token of a request is valid, with the participant that it belongs to there."""
        token = self._token(request)
        found = [(space, self._gateway.participant_of(space, token)) for space in self._gateway.spaces.values()]
        known = [(space, participant) for space, participant in found if participant is not None]
        if not known:
            self._gateway.log_wrong_token(None, None, request.address)
            raise HttpError(403, Unauthorized("the token is not of any participant of this gateway"))
        return known

    def _token(self, request: Request) -> str:
        presented = token_from_headers(request.credentials())
        if presented.token is not None:
            return presented.token
        if presented.problem is not None:
            self._gateway.log_wrong_token(None, None, request.address)
        raise HttpError(401, Unauthorized(presented.problem or "send Authorization: Bearer <token>"))
