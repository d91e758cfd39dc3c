"""Coming back: what a participant has missed, in order and exactly once, or a clear no.

A position is (epoch, seq). It means something as long as this log knows that run of the gateway and
still has that seq and what came after it. A run that was killed may have told its clients of a few
frames that it had not written: who has seen those is told that they did not survive.
"""

from __future__ import annotations

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


class Missed(NamedTuple):
    """Records above ``after`` up to ``upto``; what came later is still in memory."""

    after: int
    upto: int
    records: list[Record]


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


def epoch_of(state: SpaceState, seq: int) -> str:
    """The run of the gateway that wrote a record."""
    known = [(first, epoch) for epoch, first in state.epochs.items() if first <= seq]
    return max(known, default=(0, state.epoch))[1]


class Told(NamedTuple):
    """A message of the past, for somebody who asked for positions."""

    seq: int
    opcode: int
    body: bytes


def tell_again(state: SpaceState, record: Record, participant: str) -> Told | None:
    """What a record told a participant, had it been here; None where it was told nothing."""
    if not visible_to(record, participant):
        return None
    if isinstance(record, Frame) and record.kind == "frame":
        body = frames.frame_with_position(record.stream_id, record.seq, record.sender, record.data)
        return Told(record.seq, record.opcode, body)
    rendered = render(state.id, epoch_of(state, record.seq), record)
    return None if rendered is None else Told(record.seq, frames.TEXT, with_seq(rendered, record.seq))
