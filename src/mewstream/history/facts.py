"""Facts that one control record gives by itself: ``envelopes`` and ``refusals``."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from mewstream.audit.records import ControlRecord
from mewstream.history.records import Detail, text_of
from mewstream.protocol.errors import SequenceRegression
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


class _Details(msgspec.Struct):
    stream_id: Any = None
    last_sequence: Any = None


_decode_details = msgspec.json.Decoder(_Details).decode


def _details(given: msgspec.Raw) -> _Details:
    try:
        return _decode_details(given) if bytes(given) else _Details()
    except (msgspec.MsgspecError, RecursionError):
        return _Details()


def _stream_in(details: msgspec.Raw) -> str | None:
    found = _details(details).stream_id
    return found if isinstance(found, str) else None


class Regression(NamedTuple):
    """A number was refused because it did not grow."""

    seq: int
    ts: int
    sender: str
    stream_id: str
    last_sequence: int
    """What its sender was told."""
    sequence: int | None
    """The number, as far as the beginning of the payload that was recorded has it."""


def regression(record: ControlRecord, detail: Detail) -> Regression | None:
    """None where the record is no such refusal, or stands for several."""
    last = _details(detail.details).last_sequence
    is_one = detail.code == SequenceRegression.code and detail.count in (None, 1)
    if not is_one or not isinstance(last, int) or record.stream_id is None:
        return None
    return Regression(record.seq, record.ts, detail.sender or "", record.stream_id, last, _number_in(detail.excerpt))


class _Numbered(msgspec.Struct):
    sequence: Any = None


_decode_numbered = msgspec.json.Decoder(_Numbered).decode


def _number_in(excerpt: str | None) -> int | None:
    try:
        found = _decode_numbered(excerpt or "").sequence
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if isinstance(found, int) else None
