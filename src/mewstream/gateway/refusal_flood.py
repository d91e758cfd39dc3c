"""Floods of refusals: the first ones are recorded one by one, the rest are counted and recorded as sums.

So a participant whose messages are refused adds only a few records to the log, however much it sends. The sums are
exact. They are recorded at intervals that grow while a flood lasts, and when the participant leaves.

Every refused envelope is answered, because its sender may wait for the answer. Of refused frames only the first for
each stream and code is answered at once, and again after each change of rights. The others are reported as a sum, with
the ids of those that have one. Such a sum is told earlier if its sender asks whether everything is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from mewstream.gateway.inbound import Rate
from mewstream.protocol.commands import Refuse
from mewstream.protocol.records import Refused

#: Refusals of one participant that are recorded one by one at first, and that many more each second.
BURST = 100
PER_SECOND = 1.0
#: Seconds between the sums of a flood: the first interval, and the longest.
FIRST_INTERVAL = 1.0
LONGEST_INTERVAL = 5.0
#: Sums that one participant may have at the same time. Further refusals are summed by their code alone, with frames
#: apart from other messages.
MAX_SUMS = 32
#: Ids of refused frames that wait for the sum that names them. With more, the sum is told at once.
MAX_IDS = 256
#: Combinations of stream, code and rights for which a refused frame is answered at once.
MAX_ANSWERED = 256

_Key = tuple[str, str, str, int | None]
"""Kind, stream, code, and the version of the rights on the stream, or None if each refusal is answered."""


class Treatment(Enum):
    """What is to be done with a refusal."""

    RECORDED = auto()
    ANSWERED = auto()
    """It was counted, and its sender must be answered."""
    COUNTED = auto()


class _Sum:
    """Refusals that were counted. ``answered`` is how many of them were answered already. ``kind`` and ``stream_id``
    are those of all of them, and empty if they differ."""

    __slots__ = ("answered", "count", "ids", "is_mixed", "kind", "last", "stream_id")

    def __init__(self, first: Refused) -> None:
        self.count = self.answered = 0
        self.ids: list[str] = []
        """Of those that were not answered."""
        self.last = first
        self.kind = first.kind
        self.stream_id = first.stream_id
        self.is_mixed = False

    def add(self, refused: Refused, *, is_answered: bool) -> None:
        self.count += 1
        self.answered += is_answered
        if not is_answered and refused.id is not None:
            self.ids.append(refused.id)
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
        self.answered: set[_Key] = set()
        """The keys of refused frames of which the first was answered."""
        self.interval = FIRST_INTERVAL
        self.due = now + FIRST_INTERVAL

    def is_first(self, key: _Key) -> bool:
        if key in self.answered or len(self.answered) >= MAX_ANSWERED:
            return False
        self.answered.add(key)
        return True

    def count(self, key: _Key, refused: Refused, *, is_answered: bool) -> None:
        if key not in self.sums and len(self.sums) >= MAX_SUMS:
            key = ("frame" if refused.kind == "frame" else "", "", refused.code, None)
        counted = self.sums.get(key)
        if counted is None:
            counted = self.sums[key] = _Sum(refused)
        counted.add(refused, is_answered=is_answered)


class RefusalFloods:
    """The floods of one space. ``report`` records a sum, or returns False if that is impossible at the moment."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[Refuse], bool]) -> None:
        self._loop = loop
        self._report = report
        self._floods: dict[str, _Flood] = {}
        self._timer: asyncio.TimerHandle | None = None

    def treat(self, refused: Refused, *, version: int | None = None, may_record: bool = True) -> Treatment:
        """Count a refusal. Returns what is to be done with it.

        ``version`` is that of the rights on the stream of a refused frame, 0 if there is no such stream, and None for
        any other message, which is always answered."""
        now = self._loop.time()
        flood = self._floods.get(refused.sender)
        if flood is None:
            flood = self._floods[refused.sender] = _Flood(now)
            if self._timer is None:
                self._timer = self._loop.call_later(FIRST_INTERVAL, self._record_due)
        key: _Key = (refused.kind, refused.stream_id or "", refused.code, version)
        is_answered = version is None or flood.is_first(key)
        if is_answered and may_record and not flood.rate.wait_for(1, now):
            flood.rate.take(1, now)
            return Treatment.RECORDED
        flood.count(key, refused, is_answered=is_answered)
        return Treatment.ANSWERED if is_answered else Treatment.COUNTED

    def ids_waiting(self, participant: str) -> int:
        """How many refused frames with an id wait for the sum that names them."""
        flood = self._floods.get(participant)
        return 0 if flood is None else sum(len(each.ids) for each in flood.sums.values())

    def take_untold(self, participant: str) -> list[Refuse]:
        """The sums that name frames by their ids, to be told now. They are recorded later, as told."""
        flood = self._floods.get(participant)
        untold = [] if flood is None else [each for each in flood.sums.values() if each.ids]
        sums = [_sum_of(each) for each in untold]
        for each in untold:
            each.answered, each.ids = each.count, []
        return sums

    def finish(self, participant: str) -> None:
        """Record the sums of a participant that leaves. When it comes back, its refusals are answered anew."""
        flood = self._floods.get(participant)
        if flood is not None:
            self._sum_up(flood)
            flood.answered.clear()

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
                flood.answered.clear()  # the next refused frame is answered again
                if flood.interval == FIRST_INTERVAL and not flood.rate.wait_for(BURST, now):
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
    number = (counted.count - counted.answered) or counted.count
    message = f"{last.message} ({number} {what} since the last report)"
    if counted.is_mixed:
        # The message and details of the last refusal do not apply to the others.
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
        told=counted.answered,
        ids=counted.ids,
    )
