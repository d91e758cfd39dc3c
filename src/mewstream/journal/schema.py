"""The columns of the journal, and how records become rows and rows become records again.

Everything that people query is a column. What remains of a control record is JSON in ``detail``;
``data`` holds the bytes that flowed: the data of a frame, or a whole envelope.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mewstream.protocol import kinds
from mewstream.protocol.records import (
    AnyRecord,
    CapabilitiesGranted,
    CapabilitiesRevoked,
    ClockJumped,
    EnvelopeAccepted,
    Frame,
    FrameBlock,
    FramesDropped,
    Invited,
    Joined,
    Left,
    OwnershipTransferred,
    Paused,
    ReadGranted,
    ReadRevoked,
    Record,
    Refused,
    SpaceStarted,
    StreamEnded,
    StreamOpened,
    StreamStarted,
    Suspended,
    Unpaused,
    WriteGranted,
    WriteRevoked,
)

SCHEMA_VERSION = 1

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),  # gap-free in the partition
        pa.field("space", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),  # gap-free in the space
        pa.field("epoch", pa.string(), nullable=False),  # the run of the gateway that wrote it
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("record", pa.string(), nullable=False),  # what happened: frame, joined, write-granted, ...
        pa.field("kind", pa.string()),  # the kind of the message that it was, or that told of it
        pa.field("sender", pa.string()),  # who caused it
        pa.field("participant", pa.string()),  # whom it concerns, where that is another
        pa.field("stream_id", pa.string()),
        pa.field("stream_seq", pa.int64()),  # gap-free in the stream, frames only
        pa.field("opcode", pa.int8()),  # 1 text, 2 binary
        pa.field("recipients", pa.int32()),  # how many were connected and addressed
        pa.field("outcome", pa.string(), nullable=False),  # accepted, or the code of the refusal
        pa.field("cause_seq", pa.int64()),
        pa.field("sequence", pa.int64()),  # the writer's own number in stream/data
        pa.field("gap", pa.int64()),  # how many of those were skipped before it
        pa.field("format_id", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("data", pa.binary()),
    ],
    metadata={"mewstream.schema_version": str(SCHEMA_VERSION)},
)

_TYPES = [field.type for field in SCHEMA]
_TS = SCHEMA.get_field_index("ts")
_TIME = struct.Struct("=q")
#: A larger column of one value is made anew each time: names are the participants' choice, and many could be kept.
_KEPT_BYTES = 256 << 10
#: Fewer frames cost less one by one than as columns of their own.
_WORTH_A_BLOCK = 32


class Entry(NamedTuple):
    """A record with its place in the journal."""

    offset: int
    space: str
    epoch: str
    record: Record


class UnknownRecord(Record, tag="unknown"):
    """A record of a newer version: kept, shown and passed on, and without effect on the state."""

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
_decode_record = msgspec.json.Decoder(AnyRecord).decode


class Described(NamedTuple):
    """What the columns say of a control record."""

    kind: str | None = None
    sender: str | None = None
    participant: str | None = None
    stream_id: str | None = None
    outcome: str = "accepted"


_ENDINGS = {"closed": kinds.STREAM_CLOSE, "completed": kinds.STREAM_COMPLETE, "failed": kinds.STREAM_ERROR}

_DESCRIBE: dict[type[Record], Callable[[Any], Described]] = {
    SpaceStarted: lambda r: Described(sender=kinds.GATEWAY),
    ClockJumped: lambda r: Described(sender=kinds.GATEWAY),
    Joined: lambda r: Described(kinds.PRESENCE, r.participant),
    Left: lambda r: Described(kinds.PRESENCE, r.participant),
    Suspended: lambda r: Described(None, r.participant),
    Refused: lambda r: Described(r.kind or None, r.sender, None, r.stream_id, r.code),
    CapabilitiesGranted: lambda r: Described(kinds.CAPABILITY_GRANT, r.by, r.participant),
    CapabilitiesRevoked: lambda r: Described(kinds.CAPABILITY_REVOKE, r.by, r.participant),
    Invited: lambda r: Described(kinds.PRESENCE, r.by, r.participant),
    Paused: lambda r: Described(kinds.PAUSE, r.by, r.participant),
    Unpaused: lambda r: Described(kinds.RESUME, r.by, r.participant),
    StreamOpened: lambda r: Described(
        kinds.STREAM_OPEN if r.status == "live" else kinds.STREAM_READY, r.owner, None, r.stream_id
    ),
    StreamStarted: lambda r: Described(kinds.STREAM_START, r.by, None, r.stream_id),
    StreamEnded: lambda r: Described(_ENDINGS.get(r.how), r.by, None, r.stream_id),
    WriteGranted: lambda r: Described(kinds.WRITE_GRANTED, r.by, r.participant, r.stream_id),
    WriteRevoked: lambda r: Described(kinds.WRITE_REVOKED, r.by, r.participant, r.stream_id),
    OwnershipTransferred: lambda r: Described(kinds.OWNERSHIP_TRANSFERRED, r.by, r.new_owner, r.stream_id),
    ReadGranted: lambda r: Described(kinds.READ_GRANTED, r.by, r.participant, r.stream_id),
    ReadRevoked: lambda r: Described(kinds.READ_REVOKED, r.by, r.participant, r.stream_id),
    FramesDropped: lambda r: Described(kinds.NOTICE, kinds.GATEWAY, r.participant, r.stream_id),
}


class _Run:
    """Records of one space that follow one another: raw frames, or anything else."""

    __slots__ = ("are_frames", "epoch", "records", "space")

    def __init__(self, space: str, epoch: str, are_frames: bool) -> None:
        self.space = space
        self.epoch = epoch
        self.are_frames = are_frames
        self.records: list[Any] = []

    def __len__(self) -> int:
        return len(self.records)

    @property
    def last_ts(self) -> int:
        ts: int = self.records[-1].ts
        return ts

    def encode(self, first_offset: int) -> pa.RecordBatch:
        rows = _raw_frames if self.are_frames else _mixed
        return rows(first_offset, self.space, self.epoch, self.records)


class _BlockRun:
    """Blocks of one sender on one stream that follow one another: all but their numbers, times and data is constant.
    What there is to do for each frame is done as its block comes, or to encode many would hold up the loop."""

    __slots__ = ("count", "data", "epoch", "first", "lengths", "newest", "space", "times")

    def __init__(self, space: str, epoch: str, block: FrameBlock) -> None:
        self.space = space
        self.epoch = epoch
        self.first = self.newest = block
        self.count = 0
        self.data: list[bytes] = []
        self.lengths = array("i", (0,))
        self.times: list[bytes] = []
        self.add(block)

    def __len__(self) -> int:
        return self.count

    def goes_on_with(self, space: str, epoch: str, block: FrameBlock) -> bool:
        first, newest = self.first, self.newest
        return (
            block.seq == newest.seq + len(newest)
            and block.stream_seq == newest.stream_seq + len(newest)
            and space == self.space
            and epoch == self.epoch
            and block.stream_id == first.stream_id
            and block.sender == first.sender
            and block.opcode == first.opcode
            and block.recipients == first.recipients
            and block.format_id == first.format_id
            and (block.readers is first.readers or block.readers == first.readers)
        )

    def add(self, block: FrameBlock) -> None:
        self.newest = block
        self.count += len(block)
        self.data.append(b"".join(block.data))
        self.lengths.extend(map(len, block.data))
        self.times.append(_TIME.pack(block.ts) * len(block))

    @property
    def last_ts(self) -> int:
        return self.newest.ts

    def encode(self, first_offset: int) -> pa.RecordBatch:
        return _frame_blocks(first_offset, self)


class Rows:
    """Records that become one batch. Raw frames come in long runs, and most of their columns are constant."""

    __slots__ = ("_runs", "count", "size")

    def __init__(self) -> None:
        self._runs: list[_Run | _BlockRun] = []
        self.count = 0
        self.size = 0
        """In bytes, about: whoever adds records says how much."""

    def append(self, space: str, epoch: str, record: Record) -> None:
        are_frames = type(record) is Frame and record.id is None
        run = self._runs[-1] if self._runs else None
        if type(run) is not _Run or run.are_frames is not are_frames or run.space != space or run.epoch != epoch:
            run = _Run(space, epoch, are_frames)
            self._runs.append(run)
        run.records.append(record)
        self.count += 1

    def extend(self, space: str, epoch: str, block: FrameBlock) -> None:
        if len(block) < _WORTH_A_BLOCK:
            for frame in block.frames():
                self.append(space, epoch, frame)
            return
        run = self._runs[-1] if self._runs else None
        if type(run) is _BlockRun and run.goes_on_with(space, epoch, block):
            run.add(block)
        else:
            self._runs.append(_BlockRun(space, epoch, block))
        self.count += len(block)

    @property
    def last_ts(self) -> int:
        return self._runs[-1].last_ts

    def encode(self, first_offset: int) -> pa.RecordBatch:
        """Numbered from ``first_offset``."""
        batches = []
        for run in self._runs:
            batches.append(run.encode(first_offset))
            first_offset += len(run)
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _frame_blocks(offset: int, run: _BlockRun) -> pa.RecordBatch:
    first, count = run.first, run.count
    text, integer = pa.string(), pa.int64()
    no_text, no_integer = _constant(None, text, count), _constant(None, integer, count)
    frame = _constant("frame", text, count)
    detail = no_text if first.readers is None else pa.repeat(pa.scalar(_frame_detail(first.readers), text), count)
    columns = [
        _numbers(offset, count),
        _constant(run.space, text, count),
        _numbers(first.seq, count),
        _constant(run.epoch, text, count),
        pa.Array.from_buffers(_TYPES[_TS], count, [None, pa.py_buffer(b"".join(run.times))]),
        frame,
        frame,
        _constant(first.sender, text, count),
        no_text,
        _constant(first.stream_id, text, count),
        _numbers(first.stream_seq, count),
        _constant(first.opcode, pa.int8(), count),
        _constant(first.recipients, pa.int32(), count),
        _constant("accepted", text, count),
        no_integer,
        no_integer,
        no_integer,
        _constant(first.format_id, text, count),
        detail,
        _joined(run),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _joined(run: _BlockRun) -> pa.Array:
    """The data of all frames, one after another."""
    lengths = pa.Array.from_buffers(pa.int32(), run.count + 1, [None, pa.py_buffer(run.lengths)])
    ends = pc.cumulative_sum(lengths).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), run.count, [None, ends, pa.py_buffer(b"".join(run.data))])


def _numbers(first: int, count: int) -> pa.Array:
    """Counting up from the first."""
    return pc.add(_counting(_at_least(count)).slice(0, count), first)


def _raw_frames(offset: int, space: str, epoch: str, records: list[Any]) -> pa.RecordBatch:
    """The hot path: a column is one comprehension, and a slice of a constant where it can be."""
    count = len(records)
    text, integer = pa.string(), pa.int64()
    no_text, no_integer = _constant(None, text, count), _constant(None, integer, count)
    frame = _constant("frame", text, count)
    columns = [
        pa.array(range(offset, offset + count), integer),
        _constant(space, text, count),
        pa.array([record.seq for record in records], integer),
        _constant(epoch, text, count),
        pa.array([record.ts for record in records], integer).view(_TYPES[_TS]),
        frame,
        frame,
        _column([record.sender for record in records], text),
        no_text,
        _column([record.stream_id for record in records], text),
        pa.array([record.stream_seq for record in records], integer),
        _column([record.opcode for record in records], pa.int8()),
        _column([record.recipients for record in records], pa.int32()),
        _constant("accepted", text, count),
        no_integer,
        no_integer,
        no_integer,
        _column([record.format_id for record in records], text),
        _details([record.readers for record in records]),
        pa.array([record.data for record in records], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _column(values: list[Any], type: pa.DataType) -> pa.Array:
    if values.count(values[0]) == len(values):
        return _constant(values[0], type, len(values))
    return pa.array(values, type)


def _details(readers: list[tuple[str, ...] | None]) -> pa.Array:
    """Frames of a stream share one reader set, so that each set is written out once."""
    text = pa.string()
    if readers.count(readers[0]) == len(readers):
        if readers[0] is None:
            return _constant(None, text, len(readers))
        return pa.repeat(pa.scalar(_frame_detail(readers[0]), text), len(readers))
    known = {each: _frame_detail(each) if each is not None else None for each in set(readers)}
    return pa.array([known[each] for each in readers], text)


def _frame_detail(readers: tuple[str, ...] | None, id: str | None = None, digest: int = 0) -> str:
    return _encode_json(_FrameDetail(id, digest, readers)).decode()


def _constant(value: str | int | None, type: pa.DataType, count: int) -> pa.Array:
    size = _at_least(count)
    if size * (len(value) if isinstance(value, str) else 8) > _KEPT_BYTES:
        return pa.repeat(pa.scalar(value, type), count)
    return _constants(value, type, size).slice(0, count)


@functools.lru_cache(maxsize=1024)
def _constants(value: str | int | None, type: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type), count)


@functools.lru_cache
def _counting(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _at_least(count: int) -> int:
    """A size to make what is kept and of which slices are used: few sizes are kept."""
    return max(1024, 1 << (count - 1).bit_length())


def _mixed(offset: int, space: str, epoch: str, records: list[Record]) -> pa.RecordBatch:
    rows = [_row(offset + place, space, epoch, record) for place, record in enumerate(records)]
    columns = [pa.array(column, type) for column, type in zip(zip(*rows, strict=True), _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _row(offset: int, space: str, epoch: str, record: Record) -> tuple[Any, ...]:
    """One row in the order of the columns."""
    if isinstance(record, Frame):
        detail = None
        if record.id is not None or record.readers is not None:
            detail = _frame_detail(record.readers, record.id, record.digest)
        return (
            *(offset, space, record.seq, epoch, record.ts, "frame", record.kind, record.sender, None),
            *(record.stream_id, record.stream_seq, record.opcode, record.recipients, "accepted"),
            *(record.cause_seq, record.sequence, record.gap or None, record.format_id, detail, record.data),
        )
    data = None
    if isinstance(record, EnvelopeAccepted):
        described = Described(record.kind, record.sender, None, record.stream_id)
        detail = _encode_json(_EnvelopeDetail(record.id, record.digest)).decode()
        data = record.data
    else:
        described = _DESCRIBE[type(record)](record)
        detail = _encode_json(record).decode()
    return (
        *(offset, space, record.seq, epoch, record.ts, _tag(record), described.kind, described.sender),
        *(described.participant, described.stream_id, None, None, None, described.outcome),
        *(record.cause_seq, None, None, None, detail, data),
    )


def _tag(record: Record) -> str:
    return str(type(record).__struct_config__.tag)


def decode(batch: pa.RecordBatch) -> Iterator[Entry]:
    """The records of a batch, as they were."""
    columns = [column.to_pylist() for column in batch.set_column(_TS, "ts", batch.column(_TS).cast(pa.int64()))]
    for row in zip(*columns, strict=True):
        yield _entry(row)


def _entry(row: tuple[Any, ...]) -> Entry:
    offset, space, seq, epoch, ts, name, kind, sender, _, stream_id, *rest = row
    stream_seq, opcode, recipients, _, cause_seq, sequence, gap, format_id, detail, data = rest
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
        )
    elif name == "envelope":
        envelope = _decode_envelope_detail(detail)
        record = EnvelopeAccepted(seq, ts, cause_seq, sender, kind, envelope.id, envelope.digest, data, stream_id)
    else:
        try:
            record = _decode_record(detail or "{}")
        except msgspec.ValidationError:
            record = UnknownRecord(seq, ts, cause_seq, name, detail)
    return Entry(offset, space, epoch, record)
