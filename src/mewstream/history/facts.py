"""Facts that one control record gives by itself: ``envelopes`` and ``refusals``."""

from __future__ import annotations

from typing import Any

import msgspec

from mewstream.audit.records import ControlRecord
from mewstream.history.records import Detail, text_of
from mewstream.protocol.times import parse_rfc3339


class _Envelope(msgspec.Struct):
    ts: Any = None
    to: Any = None
    correlation_id: Any = None
    context: msgspec.Raw = msgspec.Raw()
    payload: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Envelope).decode


def envelope(record: ControlRecord, detail: Detail) -> dict[str, Any]:
    data = record.data or b""
    try:
        told = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        told = _Envelope()
    sent_at = parse_rfc3339(told.ts) if isinstance(told.ts, str) else None
    return {
        "seq": record.seq,
        "ts": record.ts,
        "id": detail.id,
        "kind": record.kind,
        "sender": record.sender,
        "addressed": _names(told.to),
        "correlation_id": _names(told.correlation_id),
        "context": text_in(told.context),
        "stream_id": record.stream_id,
        # Where a client gave none, the gateway wrote the time of the record: that is none of the client's.
        "sent_at": None if sent_at == record.ts else sent_at,
        "payload": text_in(told.payload),
        "size": len(data),
    }


def refusal(record: ControlRecord, detail: Detail) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "ts": record.ts,
        "sender": detail.sender,
        "kind": detail.kind or None,
        "stream_id": record.stream_id or _stream_in(detail.details),
        "code": detail.code,
        "message": detail.message,
        "http_status": detail.http_status,
        "count": 1 if detail.count is None else detail.count,
        "id": detail.id,
        "details": text_of(detail.details),
        "excerpt": detail.excerpt,
    }


def text_in(json: msgspec.Raw) -> str | None:
    """A text as it is, anything else as JSON."""
    text = text_of(json)
    return msgspec.json.decode(text, type=str) if text is not None and text.startswith('"') else text


def _names(given: Any) -> list[str] | None:
    return given if isinstance(given, list) and all(isinstance(each, str) for each in given) else None


class _Concerned(msgspec.Struct):
    stream_id: Any = None


_decode_details = msgspec.json.Decoder(_Concerned).decode


def _stream_in(details: msgspec.Raw) -> str | None:
    try:
        found = _decode_details(details).stream_id if bytes(details) else None
    except (msgspec.MsgspecError, RecursionError):
        return None
    return found if isinstance(found, str) else None
