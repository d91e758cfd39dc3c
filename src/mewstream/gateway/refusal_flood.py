"""Floods of refusals: the first ones are recorded one by one, the rest are counted and recorded as sums.

So a participant whose messages are refused costs the log a few records, however much it sends. The sums are exact: they
are recorded at intervals that grow while a flood lasts, and when the participant leaves.

Every refused envelope is answered, because its sender may wait for that. Of refused frames only the first for each
stream and code is answered at once, and the first after each change of rights; a sum tells of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from mewstream.gateway.inbound import Rate
from mewstream.protocol.commands import Refuse
from mewstream.protocol.records import Refused

#: Refusals of one participant that are recorded one by one, and how many more of them each second.
BURST = 100
PER_SECOND = 1.0
#: Seconds between the sums of a flood: the first and the longest.
FIRST_INTERVAL = 1.0
LONGEST_INTERVAL = 5.0
#: Sums that one participant may have at the same time. Further refusals are summed up by their code, those of frames
#: apart from the others.
MAX_SUMS = 32
#: How many refused frames, by stream, code and rights, are answered at once.
MAX_TOLD = 256

_Key = tuple[str, str, str, int | None]
"""Kind, stream, code, and the version of the rights on the stream; None where each refusal is told."""


class Treatment(Enum):
    """What becomes of a refusal."""

    RECORDED = auto()
    TOLD = auto()
    """It was counted, and its sender is to be answered."""
    COUNTED = auto()


class _Sum:
    """``told`` is how many of the counted refusals were answered already. ``kind`` and ``stream_id`` hold for all of
    them, and are empty where they differ."""

    __slots__ = ("count", "is_mixed", "kind", "last", "stream_id", "told")

    def __init__(self, first: Refused) -> None:
        self.count = self.told = 0
        self.last = first
        self.kind = first.kind
        self.stream_id = first.stream_id
        self.is_mixed = False

    def add(self, refused: Refused, *, is_told: bool) -> None:
        self.count += 1
        self.told += is_told
        self.last = refused
        if refused.kind != self.kind:
            self.kind, self.is_mixed = "", True
        if refused.stream_id != self.stream_id:
            self.stream_id, self.is_mixed = None, True


class _Flood:
    """The refusals of one participant."""

    def __init__(self, now: float) -> None:
        self.rate = Rate("refusals", PER_SECOND, now, burst=BURST)
        self.sums: dict[_Key, _Sum] = {}
        self.told: set[_Key] = set()
        """The keys of refused frames of which the first was answered."""
        self.interval = FIRST_INTERVAL
        self.due = now + FIRST_INTERVAL

    def is_first(self, key: _Key) -> bool:
        if key in self.told or len(self.told) >= MAX_TOLD:
            return False
        self.told.add(key)
        return True

    def count(self, key: _Key, refused: Refused, *, is_told: bool) -> None:
        if key not in self.sums and len(self.sums) >= MAX_SUMS:
            key = ("frame" if refused.kind == "frame" else "", "", refused.code, None)
        counted = self.sums.get(key)
        if counted is None:
            counted = self.sums[key] = _Sum(refused)
        counted.add(refused, is_told=is_told)


class RefusalFloods:
    """The floods of one space. ``report`` records a sum, and returns False where that is impossible at the moment."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[Refuse], bool]) -> None:
        self._loop = loop
        self._report = report
        self._floods: dict[str, _Flood] = {}
        self._timer: asyncio.TimerHandle | None = None

    def treat(self, refused: Refused, *, version: int | None = None, may_record: bool = True) -> Treatment:
        """Count a refusal and say what becomes of it. ``version`` is that of the rights on the stream of a frame, 0
        where there is no such stream, and None for anything but a frame, which is always answered."""
        now = self._loop.time()
        flood = self._floods.get(refused.sender)
        if flood is None:
            flood = self._floods[refused.sender] = _Flood(now)
            if self._timer is None:
                self._timer = self._loop.call_later(FIRST_INTERVAL, self._record_due)
        key: _Key = (refused.kind, refused.stream_id or "", refused.code, version)
        is_told = version is None or flood.is_first(key)
        if is_told and may_record and flood.rate.has(1, now):
            flood.rate.take(1, now)
            return Treatment.RECORDED
        flood.count(key, refused, is_told=is_told)
        return Treatment.TOLD if is_told else Treatment.COUNTED

    def finish(self, participant: str) -> None:
        """A participant leaves: record its sums. When it is back, its refusals are answered as if they were the
        first."""
        flood = self._floods.get(participant)
        if flood is not None:
            self._sum_up(flood)
            flood.told.clear()

    def sum_up_all(self) -> None:
        """Record all sums, because recording works again or because the gateway stops."""
        for flood in list(self._floods.values()):
            self._sum_up(flood)

    def finish_all(self) -> int:
        """Record all sums for the last time. Returns how many refusals could not be recorded."""
        self.sum_up_all()
        if self._timer is not None:
            self._timer.cancel()
        return sum(each.count for flood in self._floods.values() for each in flood.sums.values())

    def _record_due(self) -> None:
        """Record the sums that are due. A flood that has ended is forgotten when its burst is available again."""
        self._timer = None
        now = self._loop.time()
        for participant, flood in list(self._floods.items()):
            if now < flood.due:
                continue
            if self._sum_up(flood):
                flood.interval = min(flood.interval * 2, LONGEST_INTERVAL)
            else:
                flood.interval = max(flood.interval / 2, FIRST_INTERVAL)
                flood.told.clear()  # the next refused frame is answered again
                if flood.interval == FIRST_INTERVAL and flood.rate.has(BURST, now):
                    del self._floods[participant]
            flood.due = now + flood.interval
        if self._floods:
            self._timer = self._loop.call_later(FIRST_INTERVAL, self._record_due)

    def _sum_up(self, flood: _Flood) -> bool:
        """Record the sums of one participant. Returns whether there were any."""
        counted, flood.sums = flood.sums, {}
        for key, each in counted.items():
            if not self._report(_sum_of(each)):
                flood.sums[key] = each
        return bool(counted)


def _sum_of(counted: _Sum) -> Refuse:
    last = counted.last
    what = "frames" if counted.kind == "frame" else "messages"
    number = (counted.count - counted.told) or counted.count
    message = f"{last.message} ({number} {what} since the last report)"
    if counted.is_mixed:
        # What is said of the last one does not hold for the others.
        message = f"{number} {what} of several kinds or streams were refused with {last.code} since the last report"
    return Refuse(
        sender=last.sender,
        kind=counted.kind,
        code=last.code,
        message=message,
        http_status=last.http_status,
        details={} if counted.is_mixed else last.details,
        stream_id=counted.stream_id,
        excerpt=b"" if counted.is_mixed else last.excerpt.encode(),
        count=counted.count,
        told=counted.told,
    )
