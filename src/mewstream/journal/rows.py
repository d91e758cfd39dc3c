"""Encoding records as one batch of Arrow.

Most records are raw frames, which come in long runs with mostly constant columns: they are encoded column by column.
Everything else is encoded row by row.
"""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mewstream.journal.errors import RecordTooLarge
from mewstream.journal.schema import SCHEMA, describe, detail_of, frame_detail, name_of
from mewstream.protocol.records import EnvelopeAccepted, Frame, FrameBlock, Record

_TYPES = [field.type for field in SCHEMA]
_TS = SCHEMA.get_field_index("ts")
#: The approximate bytes of a row beside its detail and its data.
_ROW_BYTES = 190
#: A larger record is refused. A column of Arrow must be smaller than 2 GiB, so a batch has room for a few such records.
MAX_RECORD_BYTES = 256 << 20
#: A constant column is only cached up to this size, because participants choose names and may choose many long ones.
_KEPT_BYTES = 256 << 10


@dataclass(slots=True)
class _FrameRun:
    """Consecutive raw frames of one space, in the parts in which they were appended: one frame, or a block."""

    space: str
    epoch: str
    parts: list[Frame | FrameBlock] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """How many frames each part has."""
    data: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _RecordRun:
    """Consecutive other records of one space with their details. A detail is encoded when its record is appended, so
    that a record that cannot be written is refused before it takes effect."""

    space: str
    epoch: str
    records: list[Record] = field(default_factory=list)
    details: list[str | None] = field(default_factory=list)


class Rows:
    """The records of a future batch."""

    __slots__ = ("_runs", "count", "last_ts", "size")

    def __init__(self) -> None:
        self._runs: list[_FrameRun | _RecordRun] = []
        self.count = 0
        self.size = 0
        """The approximate bytes."""
        self.last_ts = 0

    def append(self, space: str, epoch: str, record: Record | FrameBlock) -> int:
        """See :meth:`mewstream.journal.interface.Writer.append`."""
        if isinstance(record, FrameBlock):
            data = record.data
        elif type(record) is Frame and record.id is None:
            data = [record.data]
        else:
            return self._append_record(space, epoch, record)
        run = self._runs[-1] if self._runs else None
        if type(run) is not _FrameRun or run.space != space or run.epoch != epoch:
            run = _FrameRun(space, epoch)
            self._runs.append(run)
        count = len(data)
        run.parts.append(record)
        run.sizes.append(count)
        run.data += data
        size = len(data[0]) if count == 1 else sum(map(len, data))
        if record.readers is not None and record.readers_seq is None:  # the detail of each frame repeats them
            size += count * (sum(map(len, record.readers)) + 3 * len(record.readers))
        self.count += count
        self.size += size + count * _ROW_BYTES
        self.last_ts = record.ts
        return size

    def _append_record(self, space: str, epoch: str, record: Record) -> int:
        detail = detail_of(record)
        size = len(detail or "") + len(getattr(record, "data", b""))
        if size > MAX_RECORD_BYTES:
            raise RecordTooLarge(space, record.seq, name_of(record), size)
        run = self._runs[-1] if self._runs else None
        if type(run) is not _RecordRun or run.space != space or run.epoch != epoch:
            run = _RecordRun(space, epoch)
            self._runs.append(run)
        run.records.append(record)
        run.details.append(detail)
        self.count += 1
        self.size += _ROW_BYTES + size
        self.last_ts = record.ts
        return size

    def encode(self, first_offset: int) -> pa.RecordBatch:
        """Return the batch, with offsets that count up from ``first_offset``."""
        batches = []
        for run in self._runs:
            if isinstance(run, _FrameRun):
                batches.append(_encode_frames(first_offset, run))
            else:
                batches.append(_encode_records(first_offset, run))
            first_offset += batches[-1].num_rows
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def split(block: FrameBlock, most: int) -> list[FrameBlock]:
    """Return a block in parts of about ``most`` bytes if each of its frames repeats a reader set: the rows of a few
    thousand frames with a large set are more than a column of Arrow can hold."""
    if block.readers is None or block.readers_seq is not None:
        return [block]
    readers = sum(map(len, block.readers)) + 3 * len(block.readers)
    size = sum(map(len, block.data)) + len(block) * (_ROW_BYTES + readers)
    step = max(1, len(block) * most // size)
    return [
        msgspec.structs.replace(
            block, seq=block.seq + start, stream_seq=block.stream_seq + start, data=block.data[start : start + step]
        )
        for start in range(0, len(block), step)
    ]


def _encode_frames(offset: int, run: _FrameRun) -> pa.RecordBatch:
    """The hot path: most columns of a run are a slice of a cached constant, or count up."""
    parts, sizes, count = run.parts, run.sizes, len(run.data)
    text, integer = pa.string(), pa.int64()
    none, frame = _constant(None, integer, count), _constant("frame", text, count)
    columns = [
        _numbers(offset, count),
        _constant(run.space, text, count),
        _counting_up([part.seq for part in parts], sizes, count),
        _constant(run.epoch, text, count),
        pa.array(_spread([part.ts for part in parts], sizes, count), integer).view(_TYPES[_TS]),
        frame,
        frame,
        _column([part.sender for part in parts], sizes, count, text),
        _constant(None, text, count),
        _column([part.stream_id for part in parts], sizes, count, text),
        _counting_up([part.stream_seq for part in parts], sizes, count),
        _column([part.opcode for part in parts], sizes, count, pa.int8()),
        _column([part.recipients for part in parts], sizes, count, pa.int32()),
        _constant("accepted", text, count),
        none,
        none,
        none,
        _column([part.format_id for part in parts], sizes, count, text),
        _column(_details(parts), sizes, count, text, cached=False),
        pa.array(run.data, pa.binary()),
        _column([part.readers_seq for part in parts], sizes, count, integer, cached=False),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _details(parts: list[Frame | FrameBlock]) -> list[str | None]:
    """Return the details of raw frames: reader sets that no record in the journal is known to have made. The frames of
    a stream share a set, which is encoded once."""
    inline = {id(part.readers): part.readers for part in parts if part.readers_seq is None and part.readers is not None}
    if not inline:
        return [None] * len(parts)
    encoded = {key: frame_detail(readers) for key, readers in inline.items()}
    return [encoded.get(id(part.readers)) if part.readers_seq is None else None for part in parts]


def _column(values: list[Any], sizes: list[int], count: int, type: pa.DataType, *, cached: bool = True) -> pa.Array:
    """Return a column with one value for each part. If all are the same, that is a constant, which is cached unless it
    will hardly come again."""
    first = values[0]
    if values.count(first) < len(values):
        return pa.array(_spread(values, sizes, count), type)
    return _constant(first, type, count) if cached or first is None else pa.repeat(pa.scalar(first, type), count)


def _spread(values: list[Any], sizes: list[int], count: int) -> list[Any]:
    """Repeat the value of each part for each of its frames."""
    if len(values) == count:
        return values
    return list(itertools.chain.from_iterable(map(itertools.repeat, values, sizes)))


def _counting_up(firsts: list[int], sizes: list[int], count: int) -> pa.Array:
    """Return a column that counts up from the first number of each part."""
    if len(firsts) == count:
        return pa.array(firsts, pa.int64())
    if firsts == list(itertools.accumulate(sizes[:-1], initial=firsts[0])):
        return _numbers(firsts[0], count)
    ranges = map(range, firsts, map(operator.add, firsts, sizes))
    return pa.array(list(itertools.chain.from_iterable(ranges)), pa.int64())


def _numbers(first: int, count: int) -> pa.Array:
    """Return a column that counts up from ``first``. Arrow adds faster than Python, but a call of it takes a while."""
    if count < 64:
        return pa.array(range(first, first + count), pa.int64())
    return pc.add(_counting(_cached_size(count)).slice(0, count), first)


def _constant(value: str | int | None, type: pa.DataType, count: int) -> pa.Array:
    size = _cached_size(count)
    if size * (len(value) if isinstance(value, str) else 8) > _KEPT_BYTES:
        return pa.repeat(pa.scalar(value, type), count)
    return _constants(value, type, size).slice(0, count)


@functools.lru_cache(maxsize=1024)
def _constants(value: str | int | None, type: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type), count)


@functools.lru_cache
def _counting(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _cached_size(count: int) -> int:
    """Return a power of two, so that only few sizes of cached columns are made and slices of them are used."""
    return max(1024, 1 << (count - 1).bit_length())


def _encode_records(offset: int, run: _RecordRun) -> pa.RecordBatch:
    rows = [
        _row(offset + place, run.space, run.epoch, record, detail)
        for place, (record, detail) in enumerate(zip(run.records, run.details, strict=True))
    ]
    columns = [pa.array(column, type) for column, type in zip(zip(*rows, strict=True), _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _row(offset: int, space: str, epoch: str, record: Record, detail: str | None) -> tuple[Any, ...]:
    """Return one row in the order of the columns."""
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
