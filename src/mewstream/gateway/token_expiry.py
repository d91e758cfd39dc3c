"""The end of a signed token: its holder is warned in time, and may go on with a newer one.

That somebody leaves when the token ends is a rule of the protocol, and a record of the log. Here is only what the
holder is told, which concerns one connection.
"""

from __future__ import annotations

import asyncio

from mewstream.gateway.claims import Claims
from mewstream.gateway.membership import Member
from mewstream.gateway.space import Space
from mewstream.protocol import kinds
from mewstream.protocol.times import SECOND, rfc3339

#: Seconds before the end of a token at which its holder is warned, or half of its time if that is less.
WARNING = 60.0
#: The longest timer of an event loop that can be relied on, in seconds. The holder of a token that is valid for longer
#: is warned then.
LONGEST_TIMER = 86_400.0 * 30
EXPIRING = "token_expiring"
ACCEPTED = "token_accepted"


class TokenExpiry:
    """What the signed token of a connection says. ``claims`` is None if it has joined by a token of its own.

    The member is passed in and not kept: two objects that refer to each other are freed late."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.claims: Claims | None = None
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, space: Space, member: Member) -> None:
        """Warn the holder when it is time. Call this when it has joined."""
        self.cancel()
        if self.claims is None:
            return
        left = (self.claims.expires_at - space.clock.now()) / SECOND
        wait = min(left - min(WARNING, left / 2), LONGEST_TIMER)
        self._timer = self._loop.call_later(wait, _tell, space, member, EXPIRING, self.claims)

    def refresh(self, space: Space, member: Member, claims: Claims) -> None:
        """Go on with a newer token."""
        refusal = space.admit(claims)
        if refusal is not None:
            space.refuse(member.participant, kinds.JOIN, refusal)
            return
        self.claims = claims
        _tell(space, member, ACCEPTED, claims)
        self.watch(space, member)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _tell(space: Space, member: Member, notice: str, claims: Claims) -> None:
    space.notify(member, {"notice": notice, "expires_at": rfc3339(claims.expires_at)})
