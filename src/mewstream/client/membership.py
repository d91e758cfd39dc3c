"""Who may be in a space, and what they may do there: invitations, kicks and capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mewstream.client import untrusted
from mewstream.client.errors import refusal
from mewstream.client.messages import without_none
from mewstream.client.requests import Requests
from mewstream.protocol import kinds
from mewstream.protocol.errors import AlreadyExists, InvalidOperation


class Invitation(msgspec.Struct, frozen=True):
    """What an invited participant needs to join. The token is given here once, and nowhere else."""

    participant: str
    token: str
    url: str | None

    def __repr__(self) -> str:
        return f"Invitation(participant={self.participant!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("participant", self.participant)]


class Membership(Requests):
    """The part of a :class:`Space` that is about people."""

    async def invite(
        self, participant: str, *, capabilities: Sequence[Any] | None = None, expires_in: float | None = None
    ) -> Invitation:
        """Invite a new participant, who must join within ``expires_in`` seconds if that is given. Returns an
        :class:`Invitation` with the token, which is sent to nobody else. Raises :class:`AlreadyExists` if the name is
        taken, and what every request raises."""
        payload = without_none(participant_id=participant, capabilities=capabilities, expires_in=expires_in)
        answer = (await self._call(kinds.INVITE, payload, answer=kinds.INVITE_ACK)).payload
        status = answer.get("status")
        if status in (AlreadyExists.code, "error"):  # some gateways send no system/error beside it
            code = AlreadyExists.code if status == AlreadyExists.code else InvalidOperation.code
            raise refusal({"message": f"{participant} could not be invited", "error": code, **answer})
        token = untrusted.text(answer.get("token"))
        if not token:
            raise AlreadyExists(f"{participant} was invited before and has joined: its token is not given again")
        id = untrusted.text(answer.get("participant_id")) or participant
        return Invitation(id, token, untrusted.text(answer.get("connection_url")))

    async def uninvite(self, participant: str, *, reason: str | None = None) -> None:
        """Take an invitation back: the token is not valid any more, and whoever has joined by it is removed. Raises
        :class:`ParticipantNotFound`, and what every request raises."""
        await self._call(kinds.UNINVITE, without_none(participant_id=participant, reason=reason))

    async def kick(self, participant: str, *, reason: str | None = None, ban: float | None = None) -> None:
        """Remove a participant from the space, and do not let it come back for ``ban`` seconds if that is given. A ban
        is also for those who are not present. Raises :class:`ParticipantNotFound`, and what every request raises."""
        await self._call(kinds.KICK, without_none(participant_id=participant, reason=reason, ban=ban))

    async def unban(self, participant: str) -> None:
        """End a ban. Raises :class:`ParticipantNotFound` if there is none, and what every request raises."""
        await self._call(kinds.UNBAN, {"participant_id": participant})

    async def grant_capabilities(
        self, participant: str, capabilities: Sequence[Any], *, reason: str | None = None
    ) -> str:
        """Grant capabilities that we hold ourselves. Returns the id of the grant, for :meth:`revoke_capabilities`.
        Raises :class:`CapabilityViolation`, and what every request raises."""
        payload = without_none(recipient=participant, capabilities=capabilities, reason=reason)
        return (await self._call(kinds.CAPABILITY_GRANT, payload, to=participant)).id

    async def revoke_capabilities(
        self,
        participant: str,
        *,
        grant_id: str | None = None,
        capabilities: Sequence[Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Revoke granted capabilities, by the id of the grant or by patterns. Raises what every request raises."""
        payload = without_none(recipient=participant, grant_id=grant_id, capabilities=capabilities, reason=reason)
        await self._call(kinds.CAPABILITY_REVOKE, payload, to=participant)
