"""From the columns of the journal, or of the table ``records``, to what a fold reads: space by space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mewstream.audit.records import ControlRecord
from mewstream.history.flow import grouped
from mewstream.history.records import Frames, Integers, Readers
from mewstream.protocol import kinds

COLUMNS = (
    *("offset", "space", "seq", "epoch", "ts", "record", "kind", "sender", "participant", "stream_id", "stream_seq"),
    *("outcome", "cause_seq", "sequence", "format_id", "detail", "data", "readers_seq", "recipients"),
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
    readers, named = _readers(rows)
    return Frames(
        offset=_numbers(rows.column("offset")),
        seq=_numbers(rows.column("seq")),
        ts=_numbers(_micros(rows.column("ts"))),
        now=_numbers(_micros(rows.column("ts"))),
        stream=stream.numbers,
        sender=sender.numbers,
        size=_numbers(rows.column("size")),
        stream_seq=_numbers(rows.column("stream_seq")),
        sequence=_numbers(sequence),
        numbered=pc.is_valid(sequence).to_numpy(),
        formatted=pc.is_valid(rows.column("format_id")).to_numpy(),
        is_raw=np.asarray(pc.not_equal(rows.column("kind"), kinds.STREAM_DATA).to_numpy()),
        recipients=_numbers(rows.column("recipients")),
        readers=readers,
        streams=stream.names,
        senders=sender.names,
        named=named,
    )


class _OfFrame(msgspec.Struct):
    readers: list[str] | None = None


_decode_detail = msgspec.json.Decoder(_OfFrame).decode


def _readers(rows: pa.Table) -> tuple[Integers, list[Readers]]:
    """Whom each frame was for, as its place in a list of all that there are. Most frames name the record that made the
    set, or are for everyone."""
    seqs, codes = np.unique(_numbers(rows.column("readers_seq")), return_inverse=True)
    named: list[Readers] = [int(seq) or None for seq in seqs]
    by_name: dict[str, int] = {}
    details = rows.column("detail").cast(pa.string())
    spelled = pc.fill_null(pc.match_substring(details, '"readers"'), False).to_numpy()
    unnamed = named.index(None) if None in named else -1
    for place in np.flatnonzero(spelled & (codes == unnamed)).tolist():
        text = details[place].as_py()
        if text not in by_name:
            by_name[text] = len(named)
            named.append(_spelled(text))
        codes[place] = by_name[text]
    return codes.astype(np.int64), named


def _spelled(detail: str) -> list[str] | None:
    try:
        return _decode_detail(detail).readers
    except msgspec.MsgspecError:
        return None


def _numbers(column: pa.ChunkedArray) -> Integers:
    return np.asarray(pc.fill_null(column, 0).to_numpy(), dtype=np.int64)
