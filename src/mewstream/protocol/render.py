"""The message of a record, the same live and in a replay.

A record has at most one message. It has none if the envelope that caused it has told everyone already, such as a
start or a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mewstream.protocol import kinds
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.identifiers import gateway_message_id, stream_names
from mewstream.protocol.records import (
    EnvelopeAccepted,
    Frame,
    FramesDropped,
    HistoryRead,
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
    StreamReused,
    Subscribed,
    Suspended,
    Uninvited,
    Unpaused,
    Unsubscribed,
    WriteDenied,
    WriteGranted,
    WriteRevoked,
)
from mewstream.protocol.state import Stream
from mewstream.protocol.times import rfc3339
from mewstream.protocol.transitions import EMITS, OWNER_LEFT_CLOSE, START_TIMEOUT, Status


class Message(NamedTuple):
    """What the gateway says, before it has an id and a time."""

    kind: str
    payload: dict[str, Any]
    to: list[str] | None = None
    correlation_id: str | list[str] | None = None
    context: str | None = None


def render(space: str, epoch: str, record: Record, *, id: str | None = None) -> bytes | None:
    """The JSON of the message that a control record sends, or None if it sends none. The message is named after its
    record, unless ``id`` is given.

    A raw :class:`Frame` is not JSON: see :mod:`mewstream.protocol.frames`.
    """
    if isinstance(record, EnvelopeAccepted):
        return record.data
    if isinstance(record, Frame):
        return record.data if record.kind == kinds.STREAM_DATA else None
    message_of = _MESSAGES.get(type(record))
    message = message_of(space, record) if message_of is not None else None
    if message is None:
        return None
    id = id or gateway_message_id(epoch, record.seq)
    return gateway_envelope(
        message.kind,
        message.payload,
        id=id,
        ts=record.ts,
        to=message.to,
        correlation_id=message.correlation_id,
        context=message.context,
    )


def gateway_envelope(
    kind: str,
    payload: dict[str, Any],
    *,
    id: str,
    ts: int,
    to: list[str] | None = None,
    correlation_id: str | list[str] | None = None,
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
        fields["correlation_id"] = [correlation_id] if isinstance(correlation_id, str) else correlation_id
    if context is not None:
        fields["context"] = context
    fields["payload"] = payload
    return encode_json(fields)


def with_seq(envelope: bytes, seq: int) -> bytes:
    """The same envelope for those who asked for positions."""
    return b'{"seq":%d,%b' % (seq, envelope[1:])


def private_to(record: Record) -> str | None:
    """The one participant whom a record's message is for; None if it is for everyone."""
    match record:
        case Refused(sender=sender):
            return sender
        case FramesDropped(participant=participant) | Subscribed(participant=participant):
            return participant
        case Unsubscribed(participant=participant) | HistoryRead(participant=participant):
            return participant
        case StreamReused(owner=owner):
            return owner
    return None


def needs_extensions(record: Record) -> bool:
    """Whether a record's message is only for clients that have sent ``extensions``."""
    return isinstance(record, Suspended) or (isinstance(record, Joined) and record.resumed)


def excluded_from(record: Record) -> str | None:
    """The one participant who does not get a message that goes to everyone, because it is about what it did."""
    match record:
        case Joined(participant=id) | Left(participant=id) | Suspended(participant=id):
            return id
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
    return private_to(record) in (None, participant) and excluded_from(record) != participant


def _joined(space: str, record: Joined) -> Message | None:
    if record.replaced:
        return None
    participant = {"id": record.participant, "capabilities": record.capabilities}
    return Message(kinds.PRESENCE, {"event": "resumed" if record.resumed else "join", "participant": participant})


def _suspended(space: str, record: Suspended) -> Message | None:
    if record.reason != "disconnected":
        return None  # the gateway itself stops or starts, and everyone is suspended
    payload = {"event": "suspended", "participant": {"id": record.participant}, "until": rfc3339(record.until)}
    return Message(kinds.PRESENCE, payload)


def _left(space: str, record: Left) -> Message:
    return Message(kinds.PRESENCE, {"event": "leave", "participant": {"id": record.participant}})


def _invited(space: str, record: Invited) -> Message:
    participant = {"id": record.participant, "capabilities": record.capabilities}
    payload = {"event": "invited", "participant": participant, "by": record.by}
    return Message(kinds.PRESENCE, payload, correlation_id=record.request_id)


def _uninvited(space: str, record: Uninvited) -> Message | None:
    if record.by != kinds.GATEWAY:
        return None
    return Message(kinds.PRESENCE, {"event": "uninvited", "participant": {"id": record.participant}})


def _unpaused(space: str, record: Unpaused) -> Message | None:
    if record.by != kinds.GATEWAY:
        return None
    return Message(kinds.RESUME, {"reason": "timeout"}, [record.participant], record.request_id)


def _refused(space: str, record: Refused) -> Message | None:
    unanswered = record.count - record.told
    if unanswered <= 0:
        return None
    payload = {"error": record.code, "message": record.message, **record.details}
    if unanswered > 1:
        payload["count"] = unanswered
    return Message(kinds.ERROR, payload, [record.sender], record.ids or record.id)


def _frames_dropped(space: str, record: FramesDropped) -> Message:
    payload = {
        "notice": "frames_dropped",
        "stream_id": record.stream_id,
        "count": record.count,
        "first_seq": record.first_seq,
        "last_seq": record.last_seq,
        "policy": record.policy,
    }
    return Message(kinds.NOTICE, payload, [record.participant])


def _history_read(space: str, record: HistoryRead) -> Message | None:
    if record.transport != "websocket":
        return None
    payload = {
        "stream_id": record.stream_id,
        "from_seq": record.from_seq,
        "to_seq": record.to_seq,
        "frames": record.frames,
        "stream": stream_names(space, record.stream_id),
    }
    return Message(kinds.STREAM_HISTORY, payload, [record.participant], record.request_id)


def _subscribed(space: str, record: Subscribed | Unsubscribed) -> Message:
    kind = kinds.STREAM_SUBSCRIBED if isinstance(record, Subscribed) else kinds.STREAM_UNSUBSCRIBED
    payload: dict[str, Any] = {"streams": record.streams}
    if record.total > len(record.streams):
        payload["streams_total"] = record.total
    return Message(kind, payload, [record.participant], record.request_id)


def _stream_opened(space: str, record: StreamOpened) -> Message:
    described = Stream.opened(record).describe(space, owner_connected=record.owner_connected)
    if record.alias_taken_by is not None:
        described |= {"alias": None, "alias_taken_by": record.alias_taken_by}
    if record.status == Status.LIVE:
        return Message(EMITS[kinds.STREAM_REQUEST], described, [record.owner], record.request_id)
    mirror = described["namespace"]
    return Message(EMITS[kinds.STREAM_ANNOUNCE], {"stream": described}, None, record.request_id, mirror)


def _stream_reused(space: str, record: StreamReused) -> Message:
    payload = record.described if record.kind == kinds.STREAM_REQUEST else {"stream": record.described}
    return Message(EMITS[record.kind], payload, [record.owner], record.request_id, record.described["namespace"])


def _stream_ended(space: str, record: StreamEnded) -> Message | None:
    if record.by != kinds.GATEWAY:
        return None
    stream = stream_names(space, record.stream_id)
    if record.how == "failed":
        payload = {"stream": stream, "code": record.code, "message": record.message}
        return Message(EMITS[START_TIMEOUT], payload, context=stream["namespace"])
    payload = {"stream_id": record.stream_id, "stream": stream, "reason": record.reason}
    return Message(EMITS[OWNER_LEFT_CLOSE], payload, context=stream["namespace"])


def _ownership_transferred(space: str, record: OwnershipTransferred) -> Message:
    payload = {
        "stream_id": record.stream_id,
        "previous_owner": record.previous_owner,
        "new_owner": record.new_owner,
        "authorized_writers": record.authorized_writers,
        "reason": record.reason,
        "by": record.by,
        "stream": stream_names(space, record.stream_id),
    }
    return Message(EMITS[kinds.TRANSFER_OWNERSHIP], payload, correlation_id=record.request_id)


_RIGHT_EVENTS: dict[type[Record], str] = {
    WriteGranted: kinds.GRANT_WRITE,
    WriteRevoked: kinds.REVOKE_WRITE,
    ReadGranted: kinds.GRANT_READ,
    ReadRevoked: kinds.REVOKE_READ,
}


def _right_changed(space: str, record: WriteGranted | WriteRevoked | ReadGranted | ReadRevoked) -> Message:
    payload: dict[str, Any] = {
        "stream_id": record.stream_id,
        "participant_id": record.participant,
        "reason": record.reason,
        "by": record.by,
        "stream": stream_names(space, record.stream_id),
    }
    if isinstance(record, WriteGranted | WriteRevoked):
        payload["authorized_writers"] = record.authorized_writers
    elif record.authorized_readers is not None:
        payload["authorized_readers"] = record.authorized_readers
    if isinstance(record, WriteGranted) and record.conditions is not None:
        payload["conditions"] = record.conditions
    if isinstance(record, WriteGranted) and record.pending:
        payload["pending"] = True
    if isinstance(record, WriteGranted) and record.replaces is not None:
        payload["replaces"] = record.replaces
    if isinstance(record, WriteGranted) and record.parent is not None:
        payload["parent"] = record.parent
    if isinstance(record, WriteGranted) and record.delegate is not None:
        payload["delegate"] = record.delegate
    if isinstance(record, WriteRevoked) and record.replaced_by is not None:
        payload["replaced_by"] = record.replaced_by
    return Message(EMITS[_RIGHT_EVENTS[type(record)]], payload, correlation_id=record.request_id)


def _write_denied(space: str, record: WriteDenied) -> Message:
    payload = {
        "stream_id": record.stream_id,
        "participant_id": record.participant,
        "reason": record.reason,
        "by": record.by,
        "stream": stream_names(space, record.stream_id),
    }
    return Message(EMITS[kinds.DENY_WRITE], payload, correlation_id=record.request_id)


_MESSAGES: dict[type[Record], Callable[[str, Any], Message | None]] = {
    Joined: _joined,
    Left: _left,
    Suspended: _suspended,
    Invited: _invited,
    Uninvited: _uninvited,
    Unpaused: _unpaused,
    Refused: _refused,
    FramesDropped: _frames_dropped,
    HistoryRead: _history_read,
    StreamOpened: _stream_opened,
    StreamReused: _stream_reused,
    StreamEnded: _stream_ended,
    OwnershipTransferred: _ownership_transferred,
    Subscribed: _subscribed,
    Unsubscribed: _subscribed,
    WriteDenied: _write_denied,
    **dict.fromkeys(_RIGHT_EVENTS, _right_changed),
}
