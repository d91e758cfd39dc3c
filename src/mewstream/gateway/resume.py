"""Coming back: what a participant has missed, in order and exactly once, or a clear no.

A position is (epoch, seq). It means something as long as this log knows that run of the gateway and
still has that seq and what came after it. A run that was killed may have told its clients of a few
frames that it had not written: who has seen those is told that they did not survive.
"""

from __future__ import annotations

import bisect
from typing import NamedTuple

from mewstream.gateway.joining import Resume
from mewstream.protocol import frames
from mewstream.protocol.records import Frame, Record
from mewstream.protocol.render import render, visible_to, with_seq
from mewstream.protocol.state import SpaceState


class CannotResume(Exception):
    """Why there is nothing to send again: the client must start from the welcome alone."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Told(NamedTuple):
    """A message of the past, for somebody who asked for positions."""

    seq: int
    opcode: int
    body: bytes


class Missed(NamedTuple):
    """What records above ``after`` up to ``upto`` told; what came later is still in memory."""

    after: int
    upto: int
    told: list[Told]


def position(state: SpaceState, participant: str, resume: Resume, limit: int) -> int:
    """The seq after which a participant has missed everything."""
    if resume.epoch not in state.epochs:
        raise CannotResume("the position is of another journal, or of a run that is forgotten")
    end = min((first - 1 for first in state.epochs.values() if first > state.epochs[resume.epoch]), default=state.seq)
    if resume.seq > end:
        raise CannotResume(f"the log of that run ends at {end}: what came after it did not survive")
    first_join = state.first_joins.get(participant)
    if first_join is None:
        raise CannotResume("you have not been in this space before")
    after = max(resume.seq, first_join)
    if state.seq - after > limit:
        raise CannotResume(f"{state.seq - after} records were missed, at most {limit} are sent again")
    return after


class Epochs:
    """The runs of the gateway that a log knows, as they were at one moment."""

    def __init__(self, state: SpaceState) -> None:
        runs = sorted((first, epoch) for epoch, first in state.epochs.items())
        self._firsts = [first for first, _ in runs]
        self._names = [epoch for _, epoch in runs]
        self._current = state.epoch

    def at(self, seq: int) -> str:
        """The run that wrote a record."""
        place = bisect.bisect_right(self._firsts, seq)
        return self._names[place - 1] if place else self._current


class Viewer:
    """A participant to whom the past is told. Frames that follow one another are mostly for the same readers, and those
    may be many: they are looked through once."""

    def __init__(self, participant: str) -> None:
        self.participant = participant
        self._readers: tuple[str, ...] | None = None
        self._is_reader = False

    def sees(self, record: Record) -> bool:
        """Whether it got this record's message, had it been here."""
        if type(record) is not Frame or record.readers is None:
            return visible_to(record, self.participant)
        if record.readers is not self._readers:
            self._readers = record.readers
            self._is_reader = visible_to(record, self.participant)
        return self._is_reader


def tell_again(space: str, epochs: Epochs, record: Record, viewer: Viewer) -> Told | None:
    """What a record told a participant, had it been here; None where it was told nothing."""
    if not viewer.sees(record):
        return None
    if isinstance(record, Frame) and record.kind == "frame":
        body = frames.frame_with_position(record.stream_id, record.seq, record.sender, record.data)
        return Told(record.seq, record.opcode, body)
    rendered = render(space, epochs.at(record.seq), record)
    return None if rendered is None else Told(record.seq, frames.TEXT, with_seq(rendered, record.seq))
