"""How often a participant may join. Each join costs a welcome, is recorded, and is told to everyone."""

from __future__ import annotations

import asyncio

from mewstream.gateway.inbound import Rate
from mewstream.protocol.errors import LimitExceeded

#: Joins of one participant that may come together; those since then count against the rate.
BURST = 100
#: Participants whose joins are counted; more than a space has.
_MOST = 20_000


class JoinRate:
    """Of one space. ``per_second`` 0: no limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_second: float) -> None:
        self._loop = loop
        self._per_second = per_second
        self._rates: dict[str, Rate] = {}

    def check(self, participant: str) -> None:
        """Count one more. It raises :class:`LimitExceeded`, which says when to come back."""
        if self._per_second <= 0:
            return
        now = self._loop.time()
        rate = self._rates.pop(participant, None) or Rate("joins_per_second", self._per_second, now, burst=BURST)
        self._rates[participant] = rate  # now the newest: the one that came longest ago is forgotten first
        if len(self._rates) > _MOST:
            del self._rates[next(iter(self._rates))]
        wait = rate.wait_for(1, now)
        if wait:
            raise LimitExceeded(
                f"more than {BURST} joins of {participant!r} at once, or {self._per_second:g} per second: "
                f"try again in {wait:.1f} seconds",
                limit=rate.name,
                retry_after=round(wait, 1),
            )
        rate.take(1, now)
