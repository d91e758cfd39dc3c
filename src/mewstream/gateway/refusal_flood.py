"""A flood of refusals is summed up: the first ones are recorded one by one, the rest are counted.

Whoever is refused costs the log a few records, however much it sends, over the socket and over HTTP. Nothing is lost of
the numbers: the sums of a participant are recorded at intervals that grow while a flood lasts, and when it leaves.

Every refused envelope is answered, for somebody may wait for that. Of frames that may not be written, the first of each
kind is told at once, and the first after each change of rights; the others are told with their sum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from mewstream.gateway.inbound import Rate
from mewstream.protocol.commands import Refuse
from mewstream.protocol.records import Refused

#: So many refusals of one participant are recorded one by one, and then one a second.
BURST = 100
PER_SECOND = 1.0
#: Seconds between the sums of a flood: the first and the longest.
FIRST_INTERVAL = 1.0
LONGEST_INTERVAL = 5.0
#: Sums that one participant has at the same time; what does not fit is summed up by its code alone.
MAX_SUMS = 32
#: Kinds of refused frames that are told at once.
MAX_TOLD = 256

_Key = tuple[str, str, str, int | None]
"""Kind, stream, code, and the version of the rights on the stream; None where each refusal is told."""


class Treatment(Enum):
    """What becomes of a refusal."""

    RECORDED = auto()
    TOLD = auto()
    """It has been counted, and its sender is told."""
    COUNTED = auto()


class _Sum:
    """``told``: so many of those that are counted were told to their sender already."""

    __slots__ = ("count", "last", "told")

    def __init__(self) -> None:
        self.count = self.told = 0
        self.last: Refused | None = None

    def add(self, refused: Refused, *, is_told: bool) -> None:
        self.count += 1
        self.told += is_told
        self.last = refused


class _Flood:
    """The refusals of one participant."""

    def __init__(self, now: float) -> None:
        self.rate = Rate("refusals", PER_SECOND, now, burst=BURST)
        self.sums: dict[_Key, _Sum] = {}
        self.told: set[_Key] = set()
        """The kinds of refused frames of which the first was told."""
        self.interval = FIRST_INTERVAL
        self.due = now + FIRST_INTERVAL

    def is_first(self, key: _Key) -> bool:
        if key in self.told or len(self.told) >= MAX_TOLD:
            return False
        self.told.add(key)
        return True

    def count(self, key: _Key, refused: Refused, *, is_told: bool) -> None:
        if key not in self.sums and len(self.sums) >= MAX_SUMS:
            key = ("", "", refused.code, None)
        self.sums.setdefault(key, _Sum()).add(refused, is_told=is_told)


class RefusalFloods:
    """Of one space. ``report`` records a sum; False: that is not possible at the moment."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[Refuse], bool]) -> None:
        self._loop = loop
        self._report = report
        self._floods: dict[str, _Flood] = {}
        self._timer: asyncio.TimerHandle | None = None

    def treat(self, refused: Refused, *, version: int | None = None, may_record: bool = True) -> Treatment:
        """``version``: of the rights on the stream of a frame, 0 where there is no such stream. None: it is no frame,
        and is told whatever came before it."""
        now = self._loop.time()
        flood = self._floods.get(refused.sender)
        if flood is None:
            flood = self._floods[refused.sender] = _Flood(now)
            if self._timer is None:
                self._timer = self._loop.call_later(FIRST_INTERVAL, self._look)
        key: _Key = (refused.kind, refused.stream_id or "", refused.code, version)
        is_told = version is None or flood.is_first(key)
        if is_told and may_record and flood.rate.has(1, now):
            flood.rate.take(1, now)
            return Treatment.RECORDED
        flood.count(key, refused, is_told=is_told)
        return Treatment.TOLD if is_told else Treatment.COUNTED

    def finish(self, participant: str) -> None:
        """It leaves: nothing that was counted is forgotten, and what it is refused when it is back is told anew."""
        flood = self._floods.get(participant)
        if flood is not None:
            self._sum_up(flood)
            flood.told.clear()

    def sum_up_all(self) -> None:
        """Something can be recorded again, or for the last time."""
        for flood in list(self._floods.values()):
            self._sum_up(flood)

    def finish_all(self) -> int:
        """How many refusals could not be recorded."""
        self.sum_up_all()
        if self._timer is not None:
            self._timer.cancel()
        return sum(each.count for flood in self._floods.values() for each in flood.sums.values())

    def _look(self) -> None:
        """Sum up what is due. A flood that has ended is forgotten when its burst is there again."""
        self._timer = None
        now = self._loop.time()
        for participant, flood in list(self._floods.items()):
            if now < flood.due:
                continue
            if self._sum_up(flood):
                flood.interval = min(flood.interval * 2, LONGEST_INTERVAL)
            else:
                flood.interval = max(flood.interval / 2, FIRST_INTERVAL)
                flood.told.clear()  # of frames that go on being refused the next one is no news
                if flood.interval == FIRST_INTERVAL and flood.rate.has(BURST, now):
                    del self._floods[participant]
            flood.due = now + flood.interval
        if self._floods:
            self._timer = self._loop.call_later(FIRST_INTERVAL, self._look)

    def _sum_up(self, flood: _Flood) -> bool:
        """Whether anything was counted since the last time."""
        counted, flood.sums = flood.sums, {}
        for key, each in counted.items():
            if not self._report(_sum_of(each)):
                flood.sums[key] = each
        return bool(counted)


def _sum_of(counted: _Sum) -> Refuse:
    last = counted.last
    assert last is not None
    what = "frames" if last.kind == "frame" else "messages"
    untold = counted.count - counted.told
    return Refuse(
        sender=last.sender,
        kind=last.kind,
        code=last.code,
        message=f"{last.message} ({untold or counted.count} {what} since the last report)",
        http_status=last.http_status,
        details=last.details,
        stream_id=last.stream_id,
        excerpt=last.excerpt.encode(),
        count=counted.count,
        told=counted.told,
    )
