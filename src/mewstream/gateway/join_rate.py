"""The rate limiter of joins. Each join costs a welcome and a record, and everyone is told of it."""

from __future__ import annotations

import asyncio

from mewstream.gateway.inbound import ParticipantRates
from mewstream.protocol.errors import LimitExceeded

#: How many joins of one participant may come at once, before the rate applies.
BURST = 100
#: Standing grants that a join brings into force and that count as one more join: each is recorded and told to everyone,
#: and so is its end when the participant leaves.
GRANTS_PER_JOIN = 8


class JoinRate:
    """The joins of one space. ``per_second`` 0 means no limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_second: float) -> None:
        self._loop = loop
        self._per_second = per_second
        self._rates = ParticipantRates(loop, "joins_per_second", per_second, burst=BURST)

    def check(self, participant: str, *, grants: int = 0) -> None:
        """Count a join, and the standing grants that it brings into force. Raises :class:`LimitExceeded`, which says
        when to try again."""
        rate = self._rates.of(participant)
        if rate is None:
            return
        now = self._loop.time()
        cost = 1 + grants / GRANTS_PER_JOIN
        wait = rate.wait_for(cost, now)
        if wait:
            raise LimitExceeded(
                f"more than {BURST} joins of {participant!r} at once, or {self._per_second:g} per second: "
                f"try again in {wait:.1f} seconds",
                limit=rate.name,
                retry_after=round(wait, 1),
            )
        rate.take(cost, now)
