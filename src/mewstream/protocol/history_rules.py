"""Reading the history of a stream: who may read which frames, and the record that every read leaves.

A read has two parts, because finding the frames may take a while. :func:`check_read` judges the question. When the
frames are found, :func:`read_history` judges it again and writes the record: the frames before it are history for that
reader, and those after it are live.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mewstream.protocol import commands, kinds
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import InvalidOperation, PeerError, Unauthorized, ValidationFailed
from mewstream.protocol.identifiers import describe
from mewstream.protocol.interest_rules import subscribe_to
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.records import HistoryRead
from mewstream.protocol.refusals import write_refusal
from mewstream.protocol.state import SpaceState, Stream
from mewstream.protocol.stream_rules import capability_violation, find_stream, require_capability
from mewstream.protocol.times import parse_rfc3339

#: The most frames that ``{"last": n}`` may ask for.
MAX_LAST = 100_000
_EXPECTED = 'payload.from must be "start", a seq, an RFC 3339 time, or {"last": n}'


class Start(NamedTuple):
    """Where a read begins: at a ``seq``, at a time in microseconds, with the ``last`` n frames, or if all are None at
    the first frame that the reader may have."""

    seq: int | None = None
    micros: int | None = None
    last: int | None = None


def parse_start(value: Any) -> Start:
    """Raises :class:`ValidationFailed`."""
    if value == "start":
        return Start()
    if type(value) is int and 0 <= value < 1 << 63:
        return Start(seq=value)
    if isinstance(value, str) and (micros := parse_rfc3339(value)) is not None:
        return Start(micros=micros)
    if isinstance(value, dict) and value.keys() == {"last"}:
        last = value["last"]
        if type(last) is int and 1 <= last <= MAX_LAST:
            return Start(last=last)
        raise ValidationFailed(f"payload.from.last must be a number from 1 to {MAX_LAST}", field="from")
    raise ValidationFailed(f"{_EXPECTED}, got {describe(value)}", field="from")


def is_reader(stream: Stream, participant: str) -> bool:
    return stream.readers is None or participant in stream.readers


def may_see(history: str, readers: tuple[str, ...] | None, reader: str) -> bool:
    """Whether a policy shows a frame, sent to these readers, to somebody who is a reader now."""
    return history == "all" or (history == "joined" and (readers is None or reader in readers))


def oldest_readable(state: SpaceState, stream: Stream, reader: str) -> int:
    """The seq after which a reader may read frames."""
    if stream.policy.history == "all":
        return max(0, stream.opened_seq - 1)
    return max(stream.opened_seq - 1, state.first_joins.get(reader, state.seq))


def require_readable(state: SpaceState, stream: Stream, reader: str) -> None:
    """Raises :class:`Unauthorized` if this participant may not read the history of a stream now."""
    if stream.policy.history == "none":
        raise Unauthorized(f"the history of {stream.id} may not be read: its policy is none", stream_id=stream.id)
    if not state.is_present(reader):
        raise Unauthorized("you are not in this space: join it first", stream_id=stream.id)
    if not is_reader(stream, reader):
        raise Unauthorized(f"you are no reader of {stream.id}", stream_id=stream.id)


def check_read(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """The rule for ``stream/read``. It needs no capability, but a denial of it holds. Nothing is written yet."""
    state, payload = ledger.state, envelope.payload
    if not state.knows_extensions(sender):
        # A client of v0.4 does not know this kind from us, and means something else by it.
        require_capability(ledger, sender, envelope)
        ledger.accept(sender, envelope)
        return
    parse_start(payload.get("from"))
    stream = find_stream(state, envelope.kind, payload)
    if state.capabilities(sender).denies(envelope.kind, payload | {"stream_id": stream.id}):
        raise capability_violation(state, sender, envelope.kind)
    require_readable(state, stream, sender)


def read_history(ledger: Ledger, command: commands.ReadHistory) -> None:
    """Record a read, or refuse it: a right may have ended, or the stream, while the frames were looked for."""
    state, sender = ledger.state, command.sender
    try:
        stream = find_stream(state, kinds.STREAM_READ, {"stream_id": command.stream_id})
        require_readable(state, stream, sender)
        if sender in state.shut_down:
            raise InvalidOperation("you were shut down: nothing is read until you join again", shut_down=True)
        if command.transport == "websocket":
            subscribe_to(ledger, sender, stream)
    except PeerError as flaw:
        write_refusal(ledger, flaw, sender=sender, kind=kinds.STREAM_READ, id=command.request_id, remember=False)
        return
    ledger.write(
        HistoryRead,
        participant=sender,
        stream_id=stream.id,
        from_seq=command.from_seq,
        to_seq=command.to_seq if command.to_seq is not None else ledger.next_seq - 1,
        frames=command.frames,
        transport=command.transport,
        request_id=command.request_id,
    )
