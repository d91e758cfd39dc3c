"""How records become rows: one batch of Arrow out of what waits to be written.

Raw frames are the many: they come in long runs, most of whose columns are constant. Everything else is made row by row.
"""

from __future__ import annotations

import functools
import struct
from array import array
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mewstream.journal.errors import RecordTooLarge
from mewstream.journal.schema import SCHEMA, describe, detail_of, frame_detail, name_of
from mewstream.protocol.records import EnvelopeAccepted, Frame, FrameBlock, Record

_TYPES = [field.type for field in SCHEMA]
_TS = SCHEMA.get_field_index("ts")
_TIME = struct.Struct("=q")
#: What a row costs beside its detail and its data, for counting what waits.
_ROW_BYTES = 190
#: No message may be so large. A batch has room for a few of them, and a column holds less than 2 GiB.
MAX_RECORD_BYTES = 256 << 20
#: A larger column of one value is made anew each time: names are the participants' choice, and many could be kept.
_KEPT_BYTES = 256 << 10
#: Fewer frames cost less one by one than as columns of their own.
_WORTH_A_BLOCK = 32


class _Run:
    """Records of one space that follow one another: raw frames, or anything else with what is left of it as JSON.
    That is made as a record comes: one that cannot be written must be known before anybody is told of it."""

    __slots__ = ("details", "epoch", "records", "space")

    def __init__(self, space: str, epoch: str, *, are_frames: bool) -> None:
        self.space = space
        self.epoch = epoch
        self.records: list[Any] = []
        self.details: list[str | None] | None = None if are_frames else []

    def __len__(self) -> int:
        return len(self.records)

    def goes_on_with(self, space: str, epoch: str, *, are_frames: bool) -> bool:
        return (self.details is None) is are_frames and self.space == space and self.epoch == epoch

    @property
    def last_ts(self) -> int:
        ts: int = self.records[-1].ts
        return ts

    def encode(self, first_offset: int) -> pa.RecordBatch:
        if self.details is None:
            return _raw_frames(first_offset, self.space, self.epoch, self.records)
        return _mixed(first_offset, self.space, self.epoch, self.records, self.details)


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
            and block.readers_seq == first.readers_seq
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
        """In bytes, about."""

    def append(self, space: str, epoch: str, record: Record) -> int:
        """Returns the bytes of its detail and its data. Raises where it can never be written: nothing has changed."""
        are_frames = type(record) is Frame and record.id is None
        if are_frames:
            detail, size = None, _frame_bytes(record, len(record.data))  # type: ignore[arg-type, attr-defined]
        else:
            detail = detail_of(record)
            size = len(detail or "") + len(getattr(record, "data", b""))
            if size > MAX_RECORD_BYTES:
                raise RecordTooLarge(space, record.seq, name_of(record), size)
        run = self._runs[-1] if self._runs else None
        if type(run) is not _Run or not run.goes_on_with(space, epoch, are_frames=are_frames):
            run = _Run(space, epoch, are_frames=are_frames)
            self._runs.append(run)
        run.records.append(record)
        if run.details is not None:
            run.details.append(detail)
        self.count += 1
        self.size += _ROW_BYTES + size
        return size

    def extend(self, space: str, epoch: str, block: FrameBlock, data_bytes: int) -> None:
        """The same for many, whose data has so many bytes."""
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
        self.size += data_bytes + len(block) * (_ROW_BYTES + _frame_bytes(block, 0))

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


def _frame_bytes(frame: Frame | FrameBlock, data_bytes: int) -> int:
    """Of the detail and the data of a raw frame. One whose set no record is known to have made repeats it."""
    if frame.readers is None or frame.readers_seq is not None:
        return data_bytes
    return data_bytes + sum(map(len, frame.readers)) + 3 * len(frame.readers)


def _frame_blocks(offset: int, run: _BlockRun) -> pa.RecordBatch:
    first, count = run.first, run.count
    text, integer = pa.string(), pa.int64()
    no_text, no_integer = _constant(None, text, count), _constant(None, integer, count)
    frame = _constant("frame", text, count)
    detail = no_text
    if first.readers is not None and first.readers_seq is None:
        detail = pa.repeat(pa.scalar(frame_detail(first.readers), text), count)
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
        no_integer if first.readers_seq is None else pa.repeat(pa.scalar(first.readers_seq, integer), count),
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
        _details(records),
        pa.array([record.data for record in records], pa.binary()),
        _references([record.readers_seq for record in records]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _column(values: list[Any], type: pa.DataType) -> pa.Array:
    if values.count(values[0]) == len(values):
        return _constant(values[0], type, len(values))
    return pa.array(values, type)


def _references(seqs: list[int | None]) -> pa.Array:
    """Not :func:`_column`: what it keeps must be of use again."""
    if seqs.count(None) == len(seqs):
        return _constant(None, pa.int64(), len(seqs))
    return pa.array(seqs, pa.int64())


def _details(records: list[Any]) -> pa.Array:
    """Of sets that no record in the journal is known to have made. Frames of a stream share one, so that each is
    encoded once."""
    text = pa.string()
    readers = [record.readers if record.readers_seq is None else None for record in records]
    if readers.count(readers[0]) == len(readers):
        if readers[0] is None:
            return _constant(None, text, len(readers))
        return pa.repeat(pa.scalar(frame_detail(readers[0]), text), len(readers))
    known = {each: frame_detail(each) if each is not None else None for each in set(readers)}
    return pa.array([known[each] for each in readers], text)


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


def _mixed(offset: int, space: str, epoch: str, records: list[Record], details: list[str | None]) -> pa.RecordBatch:
    rows = [
        _row(offset + place, space, epoch, record, detail)
        for place, (record, detail) in enumerate(zip(records, details, strict=True))
    ]
    columns = [pa.array(column, type) for column, type in zip(zip(*rows, strict=True), _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _row(offset: int, space: str, epoch: str, record: Record, detail: str | None) -> tuple[Any, ...]:
    """One row in the order of the columns."""
    if isinstance(record, Frame):
        return (
            *(offset, space, record.seq, epoch, record.ts, "frame", record.kind, record.sender, None),
            *(record.stream_id, record.stream_seq, record.opcode, record.recipients, "accepted"),
            *(record.cause_seq, record.sequence, record.gap or None, record.format_id, detail, record.data),
            record.readers_seq,
        )
    described = describe(record)
    data = record.data if isinstance(record, EnvelopeAccepted) else None
    return (
        *(offset, space, record.seq, epoch, record.ts, name_of(record), described.kind, described.sender),
        *(described.participant, described.stream_id, None, None, None, described.outcome),
        *(record.cause_seq, None, None, None, detail, data, None),
    )
