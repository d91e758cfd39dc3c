"""Frames, placed into the intervals of the control records: how many came in which life of a stream, under which right,
in which window of time.

They are columns and stay columns. What is done once for each writer of a stream is done with whole arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mewstream.history.records import Frames, Integers, Readers
from mewstream.history.state import Key, Right, Stream

_FAR = np.iinfo(np.int64).max
_NOWHERE = -1
_COLUMNS = (
    *("seq", "ts", "now", "size", "sender", "stream_seq", "sequence", "numbered"),
    *("is_raw", "recipients", "readers"),
)


class OfStream(NamedTuple):
    """The frames of one stream, in the order of the log."""

    stream_id: str
    seq: Integers
    ts: Integers
    now: Integers
    """The latest time of the log until then."""
    size: Integers
    sender: Integers
    senders: list[str]
    stream_seq: Integers
    sequence: Integers
    numbered: NDArray[np.bool_]
    is_raw: NDArray[np.bool_]
    recipients: Integers
    readers: Integers
    named: list[Readers]

    @property
    def number(self) -> int:
        """How many they are."""
        return len(self.seq)

    def taken(self, places: Integers | NDArray[np.bool_]) -> OfStream:
        return self._replace(**{name: getattr(self, name)[places] for name in _COLUMNS})

    def by_sender(self) -> Iterator[tuple[str, OfStream]]:
        for number, places in grouped(self.sender):
            yield self.senders[number], self if len(places) == self.number else self.taken(places)


def by_stream(frames: Frames) -> Iterator[OfStream]:
    for number, places in grouped(frames.stream):
        columns = {name: getattr(frames, name)[places] for name in _COLUMNS}
        yield OfStream(frames.streams[number], senders=frames.senders, named=frames.named, **columns)


def grouped(numbers: Integers) -> Iterator[tuple[int, Integers]]:
    """Each number that occurs, with its places in their order."""
    if not len(numbers):
        return
    if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        yield int(numbers[0]), np.arange(len(numbers))
        return
    order = np.argsort(numbers, kind="stable")
    inside = numbers[order]
    cuts = np.flatnonzero(np.diff(inside)) + 1
    for places in np.split(order, cuts):
        yield int(numbers[places[0]]), places


def placed(seqs: Integers, begins: Sequence[int], ends: Sequence[int | None], *, after: bool = False) -> Integers:
    """For each position of the log the interval that it is in, or -1. Intervals are in their order and do not overlap.
    The end of one is not in it, and with ``after`` neither is its beginning."""
    if not begins:
        return np.full(len(seqs), _NOWHERE)
    starts = np.asarray(begins, dtype=np.int64)
    stops = np.asarray([_FAR if each is None else each for each in ends], dtype=np.int64)
    found = np.searchsorted(starts, seqs, side="left" if after else "right") - 1
    found[(found >= 0) & (seqs >= stops[found])] = _NOWHERE
    return found


def in_lives(frames: OfStream, lives: Sequence[Stream]) -> Integers:
    """For each frame the life of its stream that it is in, and what the lives have of them is added to those."""
    found = placed(frames.seq, [each.ready_seq for each in lives], [each.ended_seq for each in lives])
    for number, inside in grouped(found):
        if number >= 0:
            life = lives[number]
            life.frames += len(inside)
            life.bytes += int(frames.size[inside].sum())
            life.last_frame_seq = int(frames.seq[inside].max())
            life.last_frame_ts = int(frames.ts[inside].max())
            life.last_number = max(life.last_number, int(frames.stream_seq[inside].max()))
    return found


def under_rights(
    frames: OfStream, writing: dict[Key, list[Right]], first: dict[tuple[str, str, int], tuple[int, int]]
) -> None:
    """Count the frames under each right to write, and note the ``first`` of each: by stream, writer and the record that
    gave the right, its place in the log and its time."""
    for sender, mine in frames.by_sender():
        rights = writing.get((frames.stream_id, sender))
        if not rights:
            continue
        found = placed(mine.seq, [each.from_seq for each in rights], [each.until_seq for each in rights], after=True)
        inside = np.flatnonzero(found >= 0)
        numbers, at, counts = np.unique(found[inside], return_index=True, return_counts=True)
        for number, place, count in zip(numbers.tolist(), inside[at].tolist(), counts.tolist(), strict=True):
            right = rights[number]
            right.frames_used += count
            first[frames.stream_id, sender, right.from_seq] = int(mine.seq[place]), int(mine.ts[place])


class Counted:
    """How many frames there are of each writer of each stream, between two places of the log."""

    def __init__(self, frames: Frames) -> None:
        self._places: dict[Key, Integers] = {}
        writers = len(frames.senders)
        for number, places in grouped(frames.stream * writers + frames.sender):
            stream, sender = divmod(number, writers)
            self._places[frames.streams[stream], frames.senders[sender]] = frames.seq[places]

    def __call__(self, stream_id: str, sender: str, after: int, before: int | None) -> int:
        """After ``after``, and before ``before`` or to the end of the batch."""
        seqs = self._places.get((stream_id, sender))
        if seqs is None:
            return 0
        end = len(seqs) if before is None else int(np.searchsorted(seqs, before))
        return max(0, end - int(np.searchsorted(seqs, after, side="right")))


class LastNumbers:
    """The numbers of each writer of each stream, by their place in the log."""

    def __init__(self, frames: Frames) -> None:
        mine = frames.taken(np.flatnonzero(frames.numbered))
        writers = len(frames.senders)
        self._numbers: dict[Key, tuple[Integers, Integers]] = {}
        for number, places in grouped(mine.stream * writers + mine.sender):
            stream, sender = divmod(number, writers)
            self._numbers[frames.streams[stream], frames.senders[sender]] = mine.seq[places], mine.sequence[places]

    def before(self, writer: Key, seq: int) -> tuple[int, int] | None:
        """The last frame of a writer with a number before a place: where it is, and the number."""
        seqs, numbers = self._numbers.get(writer, (None, None))
        if seqs is None or numbers is None:
            return None
        place = int(np.searchsorted(seqs, seq))
        return (int(seqs[place - 1]), int(numbers[place - 1])) if place else None
