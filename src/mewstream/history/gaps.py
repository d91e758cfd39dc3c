"""Numbers that a writer's ``stream/data`` skipped, and whether they came later.

The numbers of a writer grow as long as it is here. When it comes back it may count anew, which is no gap; and it may
send what was missing, which heals one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mewstream.history.durations import GAP_HEALS_WITHIN_SECONDS
from mewstream.history.flow import OfStream, grouped
from mewstream.history.frame_rules import Finding, steps_back
from mewstream.history.records import Integers
from mewstream.history.state import Counting, Gap, Stream

_HEALS_WITHIN = GAP_HEALS_WITHIN_SECONDS * 1_000_000
_LEAST = np.iinfo(np.int64).min


class Gaps:
    """Gaps of one writer of one stream are kept in runs, in which numbers grow: each number is in at most one of a
    run."""

    def __init__(self, open_ones: Iterable[Gap], counting: dict[str, dict[str, Counting]]) -> None:
        self.all: list[Gap] = []
        self.counting = counting
        self.steps_back: list[Finding] = []
        self._runs: dict[tuple[str, str], list[list[Gap]]] = defaultdict(list)
        for gap in open_ones:
            self._add(gap)

    def _add(self, gap: Gap) -> None:
        self.all.append(gap)
        runs = self._runs[gap.stream_id, gap.sender]
        if not runs or runs[-1][-1].sequence > gap.after_sequence:
            runs.append([])
        runs[-1].append(gap)

    def add(
        self,
        frames: OfStream,
        found: Integers,
        lives: Sequence[Stream],
        counted_anew: Mapping[str, list[int]],
        anew: Callable[[str], list[int]],
    ) -> None:
        """``found`` is the life of the stream that each frame is in. ``counted_anew`` are, for each participant, the
        joins since which its numbers begin again without a gap, and ``anew`` gives all places since which they may."""
        numbered = frames.numbered & (found >= 0)
        if not numbered.any():
            return
        mine = frames.taken(numbered)
        for number, inside in grouped(found[numbered]):
            life = lives[number]
            for sender, few in mine.taken(inside).by_sender():
                known = self.counting.get(frames.stream_id, {}).get(sender)
                before = known if known is not None and known.seq >= life.ready_seq else None
                self._read(sender, few, before, counted_anew.get(sender, []))
                self.steps_back += steps_back(few, sender, before, anew(sender))
                last = Counting(int(few.seq[-1]), int(few.sequence[-1]), int(few.sequence.max()))
                if before is not None:
                    last.highest = max(last.highest, before.highest)
                self.counting.setdefault(frames.stream_id, {})[sender] = last

    def _read(self, sender: str, frames: OfStream, before: Counting | None, joins: list[int]) -> None:
        numbers = frames.sequence
        previous = np.concatenate([[numbers[0] if before is None else before.sequence], numbers[:-1]])
        highest = np.maximum.accumulate(np.concatenate([[_LEAST if before is None else before.highest], numbers[:-1]]))
        jumps = numbers > previous + 1
        for place in np.flatnonzero(jumps | (numbers < highest)).tolist():
            seq, ts, number = int(frames.seq[place]), int(frames.ts[place]), int(numbers[place])
            if number < highest[place]:
                self._arrive(frames.stream_id, sender, number, seq, ts)
            if jumps[place]:
                last = (before.seq if before is not None else seq) if place == 0 else int(frames.seq[place - 1])
                newest = bisect_left(joins, seq)
                if not newest or joins[newest - 1] <= last:
                    after = int(previous[place])
                    self._add(Gap(frames.stream_id, sender, seq, ts, after, number, [(after + 1, number - 1)]))

    def _arrive(self, stream_id: str, sender: str, number: int, seq: int, ts: int) -> None:
        """A number is taken out of the range that it is in, and a gap without ranges is healed."""
        for run in self._runs.get((stream_id, sender), ()):
            place = bisect_left(run, number, key=lambda each: each.sequence)
            gap = run[place] if place < len(run) else None
            if gap is None or not gap.after_sequence < number < gap.sequence or ts > gap.ts + _HEALS_WITHIN:
                continue
            ranges = []
            for first, last in gap.ranges:
                if first <= number <= last:
                    ranges += [each for each in ((first, number - 1), (number + 1, last)) if each[0] <= each[1]]
                else:
                    ranges.append((first, last))
            if gap.ranges and not ranges:
                gap.healed_seq, gap.healed_ts = seq, ts
            gap.ranges = ranges

    def may_heal(self, gap: Gap, streams: Mapping[str, Stream], now: int) -> bool:
        alive = streams.get(gap.stream_id)
        return bool(gap.ranges) and alive is not None and alive.ready_seq <= gap.seq and now <= gap.ts + _HEALS_WITHIN

    def forget(self, streams: Mapping[str, Stream]) -> None:
        """The numbers of streams that have ended."""
        for name in list(self.counting):
            stream = streams.get(name)
            kept = {who: each for who, each in self.counting[name].items() if stream and each.seq >= stream.ready_seq}
            if kept:
                self.counting[name] = kept
            else:
                del self.counting[name]

    def rows(self, streams: Mapping[str, Stream], now: int) -> Iterator[dict[str, Any]]:
        for gap in self.all:
            yield {
                "stream_id": gap.stream_id,
                "sender": gap.sender,
                "seq": gap.seq,
                "ts": gap.ts,
                "after_sequence": gap.after_sequence,
                "sequence": gap.sequence,
                "missing": gap.sequence - gap.after_sequence - 1,
                "still_missing": sum(last - first + 1 for first, last in gap.ranges),
                "ranges": [{"first": first, "last": last} for first, last in gap.ranges],
                "healed": not gap.ranges,
                "healed_seq": gap.healed_seq,
                "healed_ts": gap.healed_ts,
                "is_open": self.may_heal(gap, streams, now),
            }
