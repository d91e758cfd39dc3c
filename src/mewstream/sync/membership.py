"""Who may be in a space, and what they may do there, without ``async``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mewstream.client import membership
from mewstream.client import space as client
from mewstream.client.membership import Invitation
from mewstream.sync.event_loop import EventLoop, documented_as


@documented_as(membership.Membership)
class Membership:
    """The part of a space that is about people."""

    _loop: EventLoop
    _space: client.Space

    def invite(
        self, participant: str, *, capabilities: Sequence[Any] | None = None, expires_in: float | None = None
    ) -> Invitation:
        return self._loop.run(self._space.invite(participant, capabilities=capabilities, expires_in=expires_in))

    def uninvite(self, participant: str, *, reason: str | None = None) -> None:
        self._loop.run(self._space.uninvite(participant, reason=reason))

    def kick(self, participant: str, *, reason: str | None = None, ban: float | None = None) -> None:
        self._loop.run(self._space.kick(participant, reason=reason, ban=ban))

    def unban(self, participant: str) -> None:
        self._loop.run(self._space.unban(participant))

    def grant_capabilities(self, participant: str, capabilities: Sequence[Any], *, reason: str | None = None) -> str:
        return self._loop.run(self._space.grant_capabilities(participant, capabilities, reason=reason))

    def revoke_capabilities(
        self,
        participant: str,
        *,
        grant_id: str | None = None,
        capabilities: Sequence[Any] | None = None,
        reason: str | None = None,
    ) -> None:
        self._loop.run(
            self._space.revoke_capabilities(participant, grant_id=grant_id, capabilities=capabilities, reason=reason)
        )
