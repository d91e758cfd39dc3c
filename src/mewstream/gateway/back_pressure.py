"""Back-pressure of a space: writers wait, for a bounded time, while readers of their streams are behind.

One slow reader must not hold up the others for long. Where many are slow at the same time, the writer is too fast for
the space, and is held up for longer (see :mod:`mewstream.gateway.outbound`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable

from mewstream.gateway.membership import Member, Membership

#: Connections that fell behind within this many seconds count as slow at the same time.
WINDOW_SECONDS = 1.0
#: Fewer slow connections than this are many only if they are most of the space.
FEW = 3


class BackPressure:
    """The slow connections of one space."""

    def __init__(self, loop: asyncio.AbstractEventLoop, members: Membership) -> None:
        self._loop = loop
        self._members = members
        self._slow = RecentCount(WINDOW_SECONDS)

    def hold_writers(self, why: object, writers: Iterable[str]) -> list[Member]:
        """Stop reading from participants whose frames a connection cannot take fast enough. Returns their
        connections; each must be released for the same ``why``."""
        held = [member for writer in writers if (member := self._members.get(writer)) is not None]
        for member in held:
            member.hold_reading(why)
        return held

    def fell_behind(self, connection: object) -> None:
        self._slow.add(connection, self._loop.time())

    def are_many_behind(self) -> bool:
        """Whether most connections, or at least a quarter of them, fell behind within the last second."""
        slow = self._slow.count(self._loop.time())
        return slow * 2 > len(self._members) or (slow >= FEW and slow * 4 >= len(self._members))


class RecentCount:
    """Counts the distinct objects that were added within the last ``seconds``, in constant time for each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._added: deque[tuple[float, object]] = deque()
        self._times: Counter[object] = Counter()

    def add(self, item: object, now: float) -> None:
        self._forget(now)
        self._added.append((now, item))
        self._times[item] += 1

    def count(self, now: float) -> int:
        self._forget(now)
        return len(self._times)

    def _forget(self, now: float) -> None:
        while self._added and self._added[0][0] < now - self._seconds:
            _, item = self._added.popleft()
            self._times[item] -= 1
            if not self._times[item]:
                del self._times[item]
