"""``frames``: every accepted frame, and when its writer says that it was sent.

They are many, and each needs a look into its payload: batches of Arrow, made by the workers from those of ``records``.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mewstream.protocol import kinds
from mewstream.protocol.times import parse_rfc3339

_TIME = pa.timestamp("us", "UTC")
_UNCHANGED_FIRST = ("space", "seq", "ts", "stream_id", "sender", "stream_seq")
_UNCHANGED_LAST = ("opcode", "kind", "sequence", "gap", "format_id", "recipients")
COLUMNS = (*_UNCHANGED_FIRST, *_UNCHANGED_LAST, "record", "data")
"""Those of ``records`` that frames are made from."""


def frames(records: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the table, from a batch that has at least ``COLUMNS``."""
    is_frame = pc.equal(records.column("record"), "frame")
    if is_frame.true_count < records.num_rows:
        records = records.filter(is_frame)
    data, moments = records.column("data"), records.column("ts").cast(_TIME)
    ts = moments.cast(pa.int64())
    sent_at = pa.array(_sent_at(records.column("kind"), data, ts), pa.int64())
    made = {
        **{name: records.column(name) for name in _UNCHANGED_FIRST},
        "ts": moments,
        "size": pc.binary_length(data),
        **{name: records.column(name) for name in _UNCHANGED_LAST},
        "sent_at": sent_at.cast(_TIME),
        # Times may be so far apart that the last digits of a double are not exact.
        "latency_ms": pc.divide(pc.subtract(ts, sent_at).cast(pa.float64(), safe=False), 1000.0),
    }
    return pa.RecordBatch.from_arrays(list(made.values()), list(made))


# -- when something was sent ----------------------------------------------------------------------


class _Told(msgspec.Struct):
    """The keys of a payload that may tell, the first that holds a time counts."""

    ts: Any = None
    timestamp: Any = None
    sent_at: Any = None


class _Payload(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct):
    payload: _Payload
    ts: str = ""


_decode = msgspec.json.Decoder(_Told).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
#: What a stranger's payload makes a decoder raise.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_NUMBER = re.compile(r"\s*[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*\Z")
_LONGEST = 40
#: Numbers are seconds or milliseconds since 1970, of times after September 2001: what is smaller is a counter or a
#: duration.
_SECONDS = 10**9, 10**10
_MILLISECONDS = 10**12, 10**13


def _sent_at(kind: pa.Array, data: pa.Array, ts: pa.Array) -> list[int | None]:
    """Microseconds, None where nothing says so. Only what begins like a JSON object is looked into."""
    payloads = data.to_pylist()
    of_messages = pc.equal(kind, kinds.STREAM_DATA)
    if of_messages.true_count:
        rows = zip(of_messages.to_pylist(), payloads, ts.to_pylist(), strict=True)
        return [_of_message(each, now) if is_message else _of_payload(each) for is_message, each, now in rows]
    return [_of_payload(each) for each in payloads]


def _of_payload(data: bytes | None) -> int | None:
    if not data or (data[:1] != b"{" and not data.lstrip().startswith(b"{")):
        return None
    try:
        told = _decode(data)
    except _UNREADABLE:
        return None
    given = told.ts
    if type(given) is int and _MILLISECONDS[0] <= given <= _MILLISECONDS[1]:
        return given * 1000  # what most send
    for given in (told.ts, told.timestamp, told.sent_at):
        if given is not None and (moment := _moment(given)) is not None:
            return moment
    return None


def _of_message(data: bytes | None, now: int) -> int | None:
    """Of a ``stream/data``, what its content tells, or else its own ``ts``. Where a client gave none, the gateway wrote
    the time of the record: that is none of the client's."""
    try:
        envelope = _decode_envelope(data or b"")
        content = bytes(envelope.payload.content)
        if content.startswith(b'"'):
            content = _decode_text(content).encode()
    except _UNREADABLE:
        return None
    moment = _of_payload(content)
    if moment is None and (moment := parse_rfc3339(envelope.ts)) == now:
        return None
    return moment


def _moment(given: object) -> int | None:
    """A number, a number as text, or a text as in RFC 3339."""
    if isinstance(given, str):
        if ":" in given:
            return parse_rfc3339(given)
        given = float(given) if len(given) <= _LONGEST and _NUMBER.match(given) else None
    if not isinstance(given, int | float):
        return None
    if _SECONDS[0] <= given <= _SECONDS[1]:
        return round(given * 1_000_000)
    if _MILLISECONDS[0] <= given <= _MILLISECONDS[1]:
        return round(given * 1_000)
    return None
