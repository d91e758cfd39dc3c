"""The message of a record, the same live and in a replay.

A record has at most one message. It has none where the envelope that caused it has told everyone already, such as a
start or a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mewstream.protocol import kinds
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.fold import gateway_message_id
from mewstream.protocol.identifiers import namespace
from mewstream.protocol.records import (
    EnvelopeAccepted,
    Frame,
    FramesDropped,
    Invited,
    Joined,
    Left,
    OwnershipTransferred,
    ReadGranted,
    ReadRevoked,
    Record,
    Refused,
    StreamEnded,
    StreamOpened,
    Unpaused,
    WriteGranted,
    WriteRevoked,
)
from mewstream.protocol.state import describe_stream
from mewstream.protocol.times import rfc3339
from mewstream.protocol.transitions import EMITS, OWNER_LEFT_CLOSE, START_TIMEOUT, Status


def render(space: str, epoch: str, record: Record) -> bytes | None:
    """The JSON of the message that a control record sends; None where it sends none.

    A raw :class:`Frame` is not JSON: see :mod:`mewstream.protocol.frames`.
    """
    if isinstance(record, EnvelopeAccepted):
        return record.data
    if isinstance(record, Frame):
        return record.data if record.kind == kinds.STREAM_DATA else None
    message_of = _MESSAGES.get(type(record))
    if message_of is None:
        return None
    message: _Message | None = message_of(space, record)
    if message is None:
        return None
    kind, payload, to, correlation_id, context = message
    return gateway_envelope(
        kind,
        payload,
        id=gateway_message_id(epoch, record.seq),
        ts=record.ts,
        to=to,
        correlation_id=correlation_id,
        context=context,
    )


def gateway_envelope(
    kind: str,
    payload: dict[str, Any],
    *,
    id: str,
    ts: int,
    to: list[str] | None = None,
    correlation_id: str | None = None,
    context: str | None = None,
) -> bytes:
    """A message from ``system:gateway``."""
    fields: dict[str, Any] = {
        "protocol": kinds.PROTOCOL,
        "id": id,
        "ts": rfc3339(ts),
        "from": kinds.GATEWAY,
    }
    if to is not None:
        fields["to"] = to
    fields["kind"] = kind
    if correlation_id is not None:
        fields["correlation_id"] = [correlation_id]
    if context is not None:
        fields["context"] = context
    fields["payload"] = payload
    return encode_json(fields)


def unrecorded_refusal(refused: Refused, *, id: str) -> bytes:
    """What its sender is told of a refusal that is not recorded by itself, under an id of its own."""
    message = _refused("", refused)
    assert message is not None
    kind, payload, to, correlation_id, _ = message
    return gateway_envelope(kind, payload, id=id, ts=refused.ts, to=to, correlation_id=correlation_id)


def with_seq(envelope: bytes, seq: int) -> bytes:
    """The same envelope for those who asked for positions."""
    return b'{"seq":%d,%b' % (seq, envelope[1:])


def private_to(record: Record) -> str | None:
    """The one participant whom a record's message is for; None where it is for everyone."""
    match record:
        case Refused(sender=sender):
            return sender
        case FramesDropped(participant=participant):
            return participant
    return None


def excluded_from(record: Record) -> str | None:
    """The one participant who does not get a message that goes to everyone, because it is about what it did."""
    match record:
        case Joined(participant=joined) | Left(participant=joined):
            return joined
        case Invited(by=inviter):
            return inviter
    return None


def visible_to(record: Record, participant: str) -> bool:
    """Whether a participant that was present got this record's message."""
    if isinstance(record, Frame):
        if record.readers is None:
            # A set that was not looked up yet must not become everyone.
            return record.readers_seq is None
        return participant in record.readers
    private = private_to(record)
    return excluded_from(record) != participant and (private is None or private == participant)


_Message = tuple[str, dict[str, Any], list[str] | None, str | None, str | None]
"""kind, payload, to, correlation id, context."""


def _joined(space: str, record: Joined) -> _Message | None:
    if record.resumed or record.replaced:
        return None
    participant = {"id": record.participant, "capabilities": record.capabilities}
    return kinds.PRESENCE, {"event": "join", "participant": participant}, None, None, None


def _left(space: str, record: Left) -> _Message:
    return kinds.PRESENCE, {"event": "leave", "participant": {"id": record.participant}}, None, None, None


def _invited(space: str, record: Invited) -> _Message:
    participant = {"id": record.participant, "capabilities": record.capabilities}
    payload = {"event": "invited", "participant": participant, "by": record.by}
    return kinds.PRESENCE, payload, None, record.request_id, None


def _unpaused(space: str, record: Unpaused) -> _Message | None:
    if record.by != kinds.GATEWAY:
        return None
    return kinds.RESUME, {"reason": "timeout"}, [record.participant], record.request_id, None


def _refused(space: str, record: Refused) -> _Message | None:
    untold = record.count - record.told
    if untold <= 0:
        return None
    payload = {"error": record.code, "message": record.message, **record.details}
    if untold > 1:
        payload["count"] = untold
    return kinds.ERROR, payload, [record.sender], record.id, None


def _frames_dropped(space: str, record: FramesDropped) -> _Message:
    payload = {
        "notice": "frames_dropped",
        "stream_id": record.stream_id,
        "count": record.count,
        "first_seq": record.first_seq,
        "last_seq": record.last_seq,
        "policy": record.policy,
    }
    return kinds.NOTICE, payload, [record.participant], None, None


def _stream_opened(space: str, record: StreamOpened) -> _Message:
    described = describe_stream(
        space=space,
        stream_id=record.stream_id,
        request=record.request,
        owner=record.owner,
        owner_connected=record.owner_connected,
        writers=record.authorized_writers,
        readers=record.authorized_readers,
        created=record.ts,
        status=record.status,
        last_seq=record.seq,
        alias=record.alias,
        announced=record.status != Status.LIVE,
        formats=record.formats,
        conditions={},
    )
    if record.status == Status.LIVE:
        return EMITS[kinds.STREAM_REQUEST], described, [record.owner], record.request_id, None
    mirror = described["namespace"]
    return EMITS[kinds.STREAM_ANNOUNCE], {"stream": described}, None, record.request_id, mirror


def _stream_ended(space: str, record: StreamEnded) -> _Message | None:
    if record.by != kinds.GATEWAY:
        return None
    mirror = namespace(space, record.stream_id)
    stream = _names(space, record.stream_id)
    if record.how == "failed":
        payload = {"stream": stream, "code": record.code, "message": record.message}
        return EMITS[START_TIMEOUT], payload, None, None, mirror
    payload = {"stream_id": record.stream_id, "stream": stream, "reason": record.reason}
    return EMITS[OWNER_LEFT_CLOSE], payload, None, None, mirror


def _write_granted(space: str, record: WriteGranted) -> _Message:
    payload = _right_changed(space, record)
    payload["authorized_writers"] = record.authorized_writers
    if record.conditions is not None:
        payload["conditions"] = record.conditions
    return EMITS[kinds.GRANT_WRITE], payload, None, record.request_id, None


def _write_revoked(space: str, record: WriteRevoked) -> _Message:
    payload = _right_changed(space, record)
    payload["authorized_writers"] = record.authorized_writers
    return EMITS[kinds.REVOKE_WRITE], payload, None, record.request_id, None


def _ownership_transferred(space: str, record: OwnershipTransferred) -> _Message:
    payload = {
        "stream_id": record.stream_id,
        "previous_owner": record.previous_owner,
        "new_owner": record.new_owner,
        "authorized_writers": record.authorized_writers,
        "reason": record.reason,
        "by": record.by,
        "stream": _names(space, record.stream_id),
    }
    return EMITS[kinds.TRANSFER_OWNERSHIP], payload, None, record.request_id, None


def _read_granted(space: str, record: ReadGranted) -> _Message:
    return EMITS[kinds.GRANT_READ], _readers_changed(space, record), None, record.request_id, None


def _read_revoked(space: str, record: ReadRevoked) -> _Message:
    return EMITS[kinds.REVOKE_READ], _readers_changed(space, record), None, record.request_id, None


def _readers_changed(space: str, record: ReadGranted | ReadRevoked) -> dict[str, Any]:
    payload = _right_changed(space, record)
    if record.authorized_readers is not None:
        payload["authorized_readers"] = record.authorized_readers
    return payload


def _right_changed(space: str, record: WriteGranted | WriteRevoked | ReadGranted | ReadRevoked) -> dict[str, Any]:
    return {
        "stream_id": record.stream_id,
        "participant_id": record.participant,
        "reason": record.reason,
        "by": record.by,
        "stream": _names(space, record.stream_id),
    }


def _names(space: str, stream_id: str) -> dict[str, str]:
    """What every envelope about a stream carries, so that observers can filter by prefix (seed 003)."""
    return {"stream_id": stream_id, "namespace": namespace(space, stream_id)}


_MESSAGES: dict[type[Record], Callable[[str, Any], _Message | None]] = {
    Joined: _joined,
    Left: _left,
    Invited: _invited,
    Unpaused: _unpaused,
    Refused: _refused,
    FramesDropped: _frames_dropped,
    StreamOpened: _stream_opened,
    StreamEnded: _stream_ended,
    WriteGranted: _write_granted,
    WriteRevoked: _write_revoked,
    OwnershipTransferred: _ownership_transferred,
    ReadGranted: _read_granted,
    ReadRevoked: _read_revoked,
}
