"""A right to write passes on: from a grant or a transfer to the first frame of the new writer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from mewstream.history.flow import OfStream, grouped
from mewstream.history.records import Integers
from mewstream.history.state import Handoff, Key, Right

First = tuple[int, int]
"""The place of a frame in the log, and its time."""


class Answered(NamedTuple):
    """What became of a handoff."""

    handoff: Handoff
    first: First | None
    """The first frame under its right."""
    has_ended: bool
    """The right ended."""

    @property
    def is_open(self) -> bool:
        """Nobody has written yet, and somebody still may."""
        return self.first is None and not self.has_ended


def answered(
    handoffs: Iterable[Handoff], writing: dict[Key, list[Right]], firsts: dict[tuple[str, str, int], First]
) -> Iterator[Answered]:
    """A right that was granted again goes on: all its intervals have the same beginning, ``since_seq``."""
    by_right: dict[tuple[str, str, int], list[Handoff]] = defaultdict(list)
    for each in handoffs:
        by_right[each.stream_id, each.writer, each.since_seq].append(each)
    for (stream, writer, since), begun in by_right.items():
        intervals = [right for right in writing.get((stream, writer), ()) if right.since_seq == since]
        has_ended = not intervals or any(right.ended_how not in (None, "replaced") for right in intervals)
        first: First | None = None
        # From the last to the first: what comes later is an answer to what was before.
        for handoff in sorted(begun, key=lambda each: -each.seq):
            while intervals and intervals[-1].from_seq >= handoff.seq:
                right = intervals.pop()
                first = firsts.get((stream, writer, right.from_seq), first)
            yield Answered(handoff, first, has_ended)


def silences(
    frames: OfStream, life: Integers, last_ts: Mapping[int, int | None], asked: Iterable[int]
) -> dict[int, int]:
    """How long the stream had been silent before frames that are ``asked`` for, by their place in the log. ``life`` is
    the life of the stream that each frame is in, ``last_ts`` the time of the last frame of each before the batch."""
    wanted = np.isin(frames.seq, np.fromiter(asked, dtype=np.int64))
    found = {}
    for number, inside in grouped(life):
        if number >= 0:
            ts = frames.ts[inside]
            for place in np.flatnonzero(wanted[inside]).tolist():
                previous = int(ts[place - 1]) if place else last_ts[number]
                if previous is not None:
                    found[int(frames.seq[inside[place]])] = int(ts[place]) - previous
    return found


def rows(told: Iterable[Answered], silent: dict[int, int]) -> Iterator[dict[str, Any]]:
    for handoff, first, has_ended in told:
        row = {**msgspec.structs.asdict(handoff), "is_open": first is None and not has_ended}
        if first is None:
            row["outcome"] = "unused" if has_ended else "pending"
        else:
            seq, ts = first
            row |= {"outcome": "written", "first_frame_seq": seq, "first_frame_ts": ts}
            row["waited_ms"] = (ts - handoff.ts) / 1000
            row["silent_ms"] = silent[seq] / 1000 if seq in silent else None
        yield row
