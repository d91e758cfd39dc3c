"""The records of one decision, numbered from the end of the log."""

from __future__ import annotations

from typing import Any, TypeVar

from mewstream.protocol.envelope import Envelope
from mewstream.protocol.fold import gateway_message_id
from mewstream.protocol.records import EnvelopeAccepted, FrameBlock, Record
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import rfc3339

R = TypeVar("R", bound=Record)


class Ledger:
    """Collects the records of one decision. The state is read, never changed."""

    __slots__ = ("next_seq", "now", "records", "state")

    def __init__(self, state: SpaceState, now: int) -> None:
        self.state = state
        self.now = max(now, state.ts)
        """The time of the records: never before that of the last one in the log, whatever the clock says."""
        self.records: list[Record | FrameBlock] = []
        self.next_seq = state.seq + 1

    def write(self, record: type[R], cause: int | None = None, /, **fields: Any) -> R:
        written = record(self.next_seq, self.now, cause, **fields)
        self.records.append(written)
        self.next_seq += 1
        return written

    def write_frames(self, block: FrameBlock) -> None:
        """Add a block that was made with this ledger's ``next_seq`` and ``now``."""
        self.records.append(block)
        self.next_seq += len(block.data)

    def accept(self, sender: str, envelope: Envelope, *, stream_id: str | None = None) -> EnvelopeAccepted:
        """Record that an envelope is relayed to everyone, with its missing fields filled in."""
        id = envelope.id or gateway_message_id(self.state.epoch, self.next_seq)
        return self.write(
            EnvelopeAccepted,
            sender=sender,
            kind=envelope.kind,
            id=id,
            digest=envelope.digest,
            data=envelope.encode(id=id, ts=rfc3339(self.now), sender=sender),
            stream_id=stream_id,
        )
