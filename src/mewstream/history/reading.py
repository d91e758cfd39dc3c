"""From the columns of the journal, or of the table ``records``, to what a fold reads: space by space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mewstream.history.flow import grouped
from mewstream.history.records import ControlRecord, Frames, Integers

COLUMNS = (
    *("offset", "space", "seq", "epoch", "ts", "record", "kind", "sender", "participant", "stream_id", "stream_seq"),
    *("outcome", "cause_seq", "sequence", "format_id", "detail", "data", "readers_seq"),
)
"""Those that a fold reads."""
_OF_CONTROL = ("offset", *ControlRecord._fields)


class SpaceRecords(NamedTuple):
    """The records of one space in a batch."""

    space: str
    control: list[ControlRecord]
    offsets: list[int]
    """Of the control records."""
    frames: Frames


def narrow(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the sizes of payloads in place of those of frames, so that a whole batch may be in memory."""
    is_frame = pc.equal(rows.column("record"), "frame")
    data = rows.column("data")
    kept = pc.if_else(is_frame, pa.scalar(None, data.type), data)
    arrays = {name: rows.column(name) for name in COLUMNS} | {"data": kept, "size": pc.binary_length(data)}
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def by_space(rows: pa.Table) -> Iterator[SpaceRecords]:
    """``rows`` are narrow ones, each space's in any order."""
    rows = rows.sort_by([("offset", "ascending")]) if not _is_sorted(rows) else rows
    spaces = _encoded(rows.column("space"))
    is_frame = pc.equal(rows.column("record"), "frame")
    frames, control = rows.filter(is_frame), rows.filter(pc.invert(is_frame))
    of_frames = _encoded(frames.column("space"))
    of_control = _encoded(control.column("space"))
    frame_places = {of_frames.names[number]: places for number, places in grouped(of_frames.numbers)}
    control_places = {of_control.names[number]: places for number, places in grouped(of_control.numbers)}
    columns = _frames(frames)
    for space in spaces.names:
        told = control.take(pa.array(control_places[space])) if space in control_places else control.slice(0, 0)
        offsets, records = _control(told)
        yield SpaceRecords(space, records, offsets, columns.taken(frame_places.get(space, np.empty(0, np.int64))))


def _is_sorted(rows: pa.Table) -> bool:
    offsets = rows.column("offset").to_numpy()
    return bool((offsets[1:] >= offsets[:-1]).all())


def _control(rows: pa.Table) -> tuple[list[int], list[ControlRecord]]:
    rows = rows.set_column(rows.schema.get_field_index("ts"), "ts", _micros(rows.column("ts")))
    offsets, *columns = (rows.column(name).to_pylist() for name in _OF_CONTROL)
    return offsets, [ControlRecord(*values) for values in zip(*columns, strict=True)]


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())


class _Encoded(NamedTuple):
    numbers: Integers
    names: list[str]


def _encoded(column: pa.ChunkedArray) -> _Encoded:
    """Names as numbers; one that is missing is empty."""
    whole = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    encoded = pc.fill_null(whole, "").combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return _Encoded(encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist())


def _frames(rows: pa.Table) -> Frames:
    stream, sender = _encoded(rows.column("stream_id")), _encoded(rows.column("sender"))
    sequence = rows.column("sequence")
    return Frames(
        offset=_numbers(rows.column("offset")),
        seq=_numbers(rows.column("seq")),
        ts=_numbers(_micros(rows.column("ts"))),
        stream=stream.numbers,
        sender=sender.numbers,
        size=_numbers(rows.column("size")),
        stream_seq=_numbers(rows.column("stream_seq")),
        sequence=_numbers(sequence),
        numbered=pc.is_valid(sequence).to_numpy(),
        formatted=pc.is_valid(rows.column("format_id")).to_numpy(),
        streams=stream.names,
        senders=sender.names,
    )


def _numbers(column: pa.ChunkedArray) -> Integers:
    return np.asarray(pc.fill_null(column, 0).to_numpy(), dtype=np.int64)
