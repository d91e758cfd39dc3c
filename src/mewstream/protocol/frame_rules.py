"""What flows through streams: raw frames and ``stream/data`` envelopes, under the same rules."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mewstream.protocol import delegation, frames, kinds
from mewstream.protocol import transitions as table
from mewstream.protocol.envelope import Envelope, decode_json
from mewstream.protocol.errors import (
    FormatRequired,
    FormatViolation,
    InvalidOperation,
    PeerError,
    SequenceRegression,
    ValidationFailed,
)
from mewstream.protocol.formats import checker_for
from mewstream.protocol.identifiers import describe, gateway_message_id
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.records import Frame, FrameBlock
from mewstream.protocol.refusals import RightSpent, write_refusal
from mewstream.protocol.right_rules import write_revoke
from mewstream.protocol.state import SpaceState, Stream, WriteRight
from mewstream.protocol.stream_rules import check_transition, find_stream, name_stream, stream_not_found
from mewstream.protocol.times import rfc3339
from mewstream.protocol.transitions import Status


def decide_frames(
    ledger: Ledger, sender: str, reference: str, data: Sequence[bytes], opcode: int, id: str | None = None
) -> Sequence[bytes]:
    """Judge raw frames of one sender that arrived together for one stream: the hot path.

    Nothing can happen between them, so one judgement holds for all, and they are accepted as one block. Only if the
    outcome may differ from one frame to the next, fewer are judged: as many as a condition of the sender's right has
    left, and one at a time if the content is checked or a frame is refused.

    Returns the frames that were not judged. They are judged next, when the state knows of what was written here."""
    state = ledger.state
    stream = state.find_stream(reference)
    try:
        if stream is None:
            raise stream_not_found(reference)
        right = _right_to_write(ledger, stream, sender)
        format_id = _format_of_raw(stream, data[0], opcode) if stream.formats else None
    except PeerError as flaw:
        write_refusal(ledger, flaw, sender=sender, kind="frame", id=id, remember=False, payload=data[0])
        return data[1:]
    count = 1 if format_id is not None and stream.policy.validate == "enforce" else len(data)
    left = delegation.frames_left(stream, sender) if right.is_bounded else None
    if left is not None:
        count = min(count, left)
    ledger.write_frames(
        FrameBlock(
            ledger.next_seq,
            ledger.now,
            stream.id,
            sender,
            stream.frames + 1,
            opcode,
            state.recipient_count(stream),
            data if count == len(data) else data[:count],
            stream.readers,
            format_id,
            stream.readers_seq,
        )
    )
    if left == count:
        _revoke_spent(ledger, stream, sender, count)
    return data[count:]


class _Names(msgspec.Struct):
    """The fields of a ``stream/data`` payload that name its stream. The others are not decoded."""

    stream_id: msgspec.Raw = msgspec.Raw(b"null")
    stream: msgspec.Raw = msgspec.Raw(b"null")


_decode_names = msgspec.json.Decoder(_Names).decode
#: Bytes of a field that names a stream.
_LONGEST_NAME = 4_096


def check_large_data(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """Check the right to write before a large content is decoded. The names of the stream are checked in full later."""
    found = _decode_names(envelope.payload_raw)
    names = {"stream_id": bytes(found.stream_id), "stream": bytes(found.stream)}
    if max(map(len, names.values())) > _LONGEST_NAME:
        raise ValidationFailed(f"the name of the stream is longer than {_LONGEST_NAME} bytes", field="stream")
    payload = {key: decode_json(raw, key) for key, raw in names.items()}
    _right_to_write(ledger, find_stream(ledger.state, kinds.STREAM_DATA, payload), sender)


def decide_data(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """A ``stream/data`` envelope: a frame with a sequence number and a format."""
    state, payload = ledger.state, envelope.payload
    sequence = payload.get("sequence")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 1 << 63:
        raise ValidationFailed(
            f"stream/data needs payload.sequence, a whole number from 0, got {describe(sequence)}",
            field="sequence",
        )
    if "content" not in payload:
        raise ValidationFailed("stream/data needs payload.content", field="content")
    format_id = payload.get("format_id")
    if format_id is not None and not isinstance(format_id, str):
        raise ValidationFailed("payload.format_id must be a string", field="format_id")
    stream = find_stream(state, envelope.kind, payload)
    right = _right_to_write(ledger, stream, sender)
    gap = _check_sequence(state, stream, sender, sequence)
    format_id = _format_of_data(stream, format_id, payload["content"])

    name_stream(state.id, envelope, stream, nested=True)
    seq = ledger.next_seq
    id = envelope.id or gateway_message_id(state.epoch, seq)
    ledger.write(
        Frame,
        stream_id=stream.id,
        sender=sender,
        stream_seq=stream.frames + 1,
        opcode=frames.TEXT,
        recipients=state.recipient_count(stream),
        data=envelope.encode(id=id, ts=rfc3339(ledger.now), sender=sender),
        kind=kinds.STREAM_DATA,
        readers=stream.readers,
        id=id,
        digest=envelope.digest,
        sequence=sequence,
        gap=gap,
        format_id=format_id,
        readers_seq=stream.readers_seq,
    )
    if right.is_bounded and delegation.frames_left(stream, sender) == 1:
        _revoke_spent(ledger, stream, sender, 1)


def _right_to_write(ledger: Ledger, stream: Stream, sender: str) -> WriteRight:
    """The sender's right, judged at this record's own time (decision 17)."""
    right = stream.writers.get(sender)
    spent = delegation.spent(stream, sender, ledger.now) if right is not None and right.is_bounded else None
    if spent is not None:
        raise RightSpent(stream, sender, *spent)
    # The table has no row for frames in another state. It is asked only in order to refuse: this is the hot path.
    if right is None or stream.status is not Status.LIVE:
        check_transition(ledger.state, stream, table.FRAME, sender)
    assert right is not None
    if sender in ledger.state.shut_down:
        raise InvalidOperation(
            "you were shut down: frames are not accepted until you join again", stream_id=stream.id, shut_down=True
        )
    if ledger.state.paused and ledger.state.is_paused(sender, ledger.now):
        raise InvalidOperation("you are paused: frames are not accepted until you are resumed", stream_id=stream.id)
    return right


def _revoke_spent(ledger: Ledger, stream: Stream, sender: str, count: int) -> None:
    """Revoke the right whose last frame was just written: the highest in the chain, if it is that of several."""
    holders = [holder for holder, right in delegation.chain(stream, sender) if right.frames_left == count]
    write_revoke(ledger, stream, holders[-1], "max_frames", ledger.next_seq - 1)


def _check_sequence(state: SpaceState, stream: Stream, sender: str, sequence: int) -> int:
    """How many numbers were skipped since the writer's last; a step back is refused (decision 14)."""
    present = state.participants.get(sender)
    session, last = stream.sequences.get(sender, (-1, 0))
    if session != (present.counting_since if present else 0):
        return 0
    if sequence <= last:
        raise SequenceRegression(
            f"payload.sequence is {sequence}, your last on {stream.id} was {last}: it must grow",
            stream_id=stream.id,
            last_sequence=last,
        )
    return sequence - last - 1


def _format_of_raw(stream: Stream, data: bytes, opcode: int) -> str:
    if len(stream.formats) > 1:
        raise FormatRequired(
            f"{stream.id} has {len(stream.formats)} formats: send stream/data with a format_id, not raw frames",
            stream_id=stream.id,
            formats=[each["id"] for each in stream.formats],
        )
    descriptor = stream.formats[0]
    if stream.policy.validate == "enforce":
        problems = checker_for(descriptor).problems_in(data, text=opcode == frames.TEXT)
        _refuse_problems(stream, descriptor["id"], problems)
    return str(descriptor["id"])


def _format_of_data(stream: Stream, format_id: str | None, content: object) -> str | None:
    if not stream.formats:
        return format_id
    known = [each["id"] for each in stream.formats]
    if format_id is None:
        if len(known) > 1:
            raise FormatRequired(
                f"{stream.id} has {len(known)} formats: say which by payload.format_id",
                stream_id=stream.id,
                formats=known,
            )
        format_id = str(known[0])
    descriptor = stream.format(format_id)
    if descriptor is None:
        raise FormatViolation(f"{format_id[:128]!r} is not a format of {stream.id}", stream_id=stream.id, formats=known)
    if stream.policy.validate == "enforce":
        _refuse_problems(stream, format_id, checker_for(descriptor).problems(content))
    return format_id


def _refuse_problems(stream: Stream, format_id: str, problems: list[str]) -> None:
    if problems:
        raise FormatViolation(
            f"the content is not {format_id}: {problems[0]}",
            stream_id=stream.id,
            format_id=format_id,
            problems=problems,
        )
