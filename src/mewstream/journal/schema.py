"""The columns of the journal, what they contain for each record, and how rows become records again.

Everything that people query is a column. The rest of a control record is JSON in ``detail``; ``data`` holds the bytes
of a frame or a whole envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from mewstream.journal.interface import Entry
from mewstream.protocol import kinds, records
from mewstream.protocol.records import EnvelopeAccepted, Frame, Record

SCHEMA_VERSION = 2
"""Version 1 had no ``readers_seq``: each frame repeated its whole reader set in ``detail``."""

_VERSION = b"mewstream.schema_version"
_FIRST_COLUMNS = 20

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),  # gap-free in the partition
        pa.field("space", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),  # gap-free in the space
        pa.field("epoch", pa.string(), nullable=False),  # the run of the gateway that wrote it
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("record", pa.string(), nullable=False),  # what happened: frame, joined, write-granted, ...
        pa.field("kind", pa.string()),  # the kind of the message that was recorded, or that announced it
        pa.field("sender", pa.string()),  # the participant that caused it
        pa.field("participant", pa.string()),  # the participant that it concerns, if that is another
        pa.field("stream_id", pa.string()),
        pa.field("stream_seq", pa.int64()),  # gap-free in the stream, frames only
        pa.field("opcode", pa.int8()),  # 1 text, 2 binary
        pa.field("recipients", pa.int32()),  # how many participants were connected and addressed
        pa.field("outcome", pa.string(), nullable=False),  # accepted, or the code of the refusal
        pa.field("cause_seq", pa.int64()),
        pa.field("sequence", pa.int64()),  # the writer's own number in stream/data
        pa.field("gap", pa.int64()),  # how many of those numbers were skipped before it
        pa.field("format_id", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("readers_seq", pa.int64()),  # frames only: the record that made the reader set; null: everyone reads
    ],
    metadata={_VERSION: str(SCHEMA_VERSION)},
)

_TS = SCHEMA.get_field_index("ts")
#: At most this much of a batch is decoded to Python objects at a time.
_DECODED_ROWS = 1024
_DECODED_BYTES = 4 << 20


class UnknownRecord(Record, tag="unknown"):
    """A record of a newer version, or a tombstone. It is kept and shown, and has no effect on the state."""

    name: str
    detail: str | None = None


class _FrameDetail(msgspec.Struct, omit_defaults=True):
    id: str | None = None
    digest: int = 0
    readers: tuple[str, ...] | None = None


class _EnvelopeDetail(msgspec.Struct):
    id: str
    digest: int


_encode_json = msgspec.json.Encoder().encode
_decode_frame_detail = msgspec.json.Decoder(_FrameDetail).decode
_decode_envelope_detail = msgspec.json.Decoder(_EnvelopeDetail).decode
_decode_record = msgspec.json.Decoder(records.AnyRecord).decode


class Described(NamedTuple):
    """The columns of a control record."""

    kind: str | None = None
    sender: str | None = None
    participant: str | None = None
    stream_id: str | None = None
    outcome: str = "accepted"


_ENDINGS = {"closed": kinds.STREAM_CLOSE, "completed": kinds.STREAM_COMPLETE, "failed": kinds.STREAM_ERROR}

_DESCRIBE: dict[type[Record], Callable[[Any], Described]] = {
    records.SpaceStarted: lambda r: Described(sender=kinds.GATEWAY),
    records.ClockJumped: lambda r: Described(sender=kinds.GATEWAY),
    records.Joined: lambda r: Described(kinds.PRESENCE, r.participant),
    records.Left: lambda r: Described(kinds.PRESENCE, r.participant),
    records.Suspended: lambda r: Described(None, r.participant),
    records.Refused: lambda r: Described(r.kind or None, r.sender, None, r.stream_id, r.code),
    records.CapabilitiesGranted: lambda r: Described(kinds.CAPABILITY_GRANT, r.by, r.participant),
    records.CapabilitiesRevoked: lambda r: Described(kinds.CAPABILITY_REVOKE, r.by, r.participant),
    records.Invited: lambda r: Described(kinds.PRESENCE, r.by, r.participant),
    records.Uninvited: lambda r: Described(kinds.UNINVITE, r.by, r.participant),
    records.Banned: lambda r: Described(kinds.KICK, r.by, r.participant),
    records.Unbanned: lambda r: Described(kinds.UNBAN, r.by, r.participant),
    records.Admitted: lambda r: Described(None, r.participant, r.participant),
    records.AdmissionEnded: lambda r: Described(None, kinds.GATEWAY, r.participant),
    records.Paused: lambda r: Described(kinds.PAUSE, r.by, r.participant),
    records.Unpaused: lambda r: Described(kinds.RESUME, r.by, r.participant),
    records.ShutDown: lambda r: Described(kinds.SHUTDOWN, r.by, r.participant),
    records.StreamOpened: lambda r: Described(
        kinds.STREAM_OPEN if r.status == "live" else kinds.STREAM_READY, r.owner, None, r.stream_id
    ),
    records.StreamReused: lambda r: Described(
        kinds.STREAM_OPEN if r.kind == kinds.STREAM_REQUEST else kinds.STREAM_READY, r.owner, None, r.stream_id
    ),
    records.StreamStarted: lambda r: Described(kinds.STREAM_START, r.by, None, r.stream_id),
    records.StreamEnded: lambda r: Described(_ENDINGS.get(r.how), r.by, None, r.stream_id),
    records.WriteGranted: lambda r: Described(kinds.WRITE_GRANTED, r.by, r.participant, r.stream_id),
    records.WriteRevoked: lambda r: Described(kinds.WRITE_REVOKED, r.by, r.participant, r.stream_id),
    records.WriteRequested: lambda r: Described(kinds.REQUEST_WRITE, r.participant, None, r.stream_id),
    records.WriteDenied: lambda r: Described(kinds.WRITE_DENIED, r.by, r.participant, r.stream_id),
    records.OwnershipTransferred: lambda r: Described(kinds.OWNERSHIP_TRANSFERRED, r.by, r.new_owner, r.stream_id),
    records.ReadGranted: lambda r: Described(kinds.READ_GRANTED, r.by, r.participant, r.stream_id),
    records.ReadRevoked: lambda r: Described(kinds.READ_REVOKED, r.by, r.participant, r.stream_id),
    records.Subscribed: lambda r: Described(kinds.STREAM_SUBSCRIBED, r.participant),
    records.Unsubscribed: lambda r: Described(kinds.STREAM_UNSUBSCRIBED, r.participant),
    records.FramesDropped: lambda r: Described(kinds.NOTICE, kinds.GATEWAY, r.participant, r.stream_id),
}


def describe(record: Record) -> Described:
    """Return the columns of any record but a frame."""
    if isinstance(record, EnvelopeAccepted):
        return Described(record.kind, record.sender, None, record.stream_id)
    return _DESCRIBE[type(record)](record)


def detail_of(record: Record) -> str | None:
    """Return the fields of a record that have no column, as JSON."""
    if isinstance(record, Frame):
        readers = record.readers if record.readers_seq is None else None
        return None if record.id is None and readers is None else frame_detail(readers, record.id, record.digest)
    if isinstance(record, EnvelopeAccepted):
        return _encode_json(_EnvelopeDetail(record.id, record.digest)).decode()
    return _encode_json(record).decode()


def frame_detail(readers: tuple[str, ...] | None, id: str | None = None, digest: int = 0) -> str:
    return _encode_json(_FrameDetail(id, digest, readers)).decode()


def name_of(record: Record) -> str:
    return str(type(record).__struct_config__.tag)


# -- from rows to records -------------------------------------------------------------------------


def schema_in(header: bytes) -> pa.Schema:
    """Return the columns of a segment from its first bytes: all of ours, or fewer in a segment of an older version.
    Raises :class:`ValueError` for any other schema."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(header))
        version = int((schema.metadata or {}).get(_VERSION, b"0"))
    except (pa.ArrowInvalid, OSError, EOFError, ValueError):
        raise ValueError("does not begin with a schema") from None
    if version > SCHEMA_VERSION:
        raise ValueError(f"has schema {version}, this reads up to {SCHEMA_VERSION}: update mewstream")
    if len(schema) < _FIRST_COLUMNS or list(schema) != list(SCHEMA)[: len(schema)]:
        raise ValueError("has another schema")
    return SCHEMA if len(schema) == len(SCHEMA) else schema


def conform(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with all columns: those that an older version did not have are null."""
    if rows.num_columns == len(SCHEMA):
        return rows
    missing = [pa.nulls(rows.num_rows, each.type) for each in list(SCHEMA)[rows.num_columns :]]
    return pa.RecordBatch.from_arrays([*rows.columns, *missing], schema=SCHEMA)


def decode(batch: pa.RecordBatch) -> Iterator[Entry]:
    """Yield the records of a batch. A frame that only refers to its reader set does not have the readers."""
    batch = batch.set_column(_TS, "ts", batch.column(_TS).cast(pa.int64()))
    step = max(1, min(_DECODED_ROWS, batch.num_rows * _DECODED_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, step):
        for row in zip(*(column.to_pylist() for column in batch.slice(start, step)), strict=True):
            yield _entry(row)


def _entry(row: tuple[Any, ...]) -> Entry:
    offset, space, seq, epoch, ts, name, kind, sender, _, stream_id, *rest = row
    stream_seq, opcode, recipients, _, cause_seq, sequence, gap, format_id, detail, data, readers_seq = rest
    record: Record
    if name == "frame":
        more = _decode_frame_detail(detail) if detail is not None else _FrameDetail()
        record = Frame(
            *(seq, ts, cause_seq, stream_id, sender, stream_seq, opcode, recipients, data, kind),
            readers=more.readers,
            id=more.id,
            digest=more.digest,
            sequence=sequence,
            gap=gap or 0,
            format_id=format_id,
            readers_seq=readers_seq,
        )
    elif name == "envelope":
        envelope = _decode_envelope_detail(detail)
        record = EnvelopeAccepted(seq, ts, cause_seq, sender, kind, envelope.id, envelope.digest, data, stream_id)
    else:
        try:
            record = _decode_record(detail or "{}")
        except msgspec.ValidationError:
            record = UnknownRecord(seq, ts, cause_seq, name, detail)
    return Entry(offset, space, epoch, record, len(detail or "") + len(data or b""))
