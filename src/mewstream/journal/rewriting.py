"""Rewriting segments: in large compressed batches when they are full, and without a space that is erased."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from mewstream.journal.batches import gathered
from mewstream.journal.files import Files
from mewstream.journal.positions import SegmentSpaces
from mewstream.journal.schema import SCHEMA
from mewstream.journal.segments import (
    HEADER,
    BatchEntry,
    Segment,
    SegmentName,
    entry_for,
    read_batch,
    schema_of,
)

_LOCAL = fs.LocalFileSystem()
#: A sealed batch ends at whichever comes first. A page of history costs the reading of at least one batch.
SEALED_BATCH_ROWS = 16_384
SEALED_BATCH_BYTES = 8 << 20


def write_again(
    files: Files,
    segment: Segment,
    name: SegmentName,
    change: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
) -> None:
    """Write the rows of a segment under another name, in large compressed batches. ``change`` may replace rows but must
    keep their count, offsets, seqs and times. The new index is written last."""
    directory = Path(segment.directory)
    entries: list[BatchEntry] = []
    spaces = SegmentSpaces()
    position = len(HEADER)
    handle = files.open(directory / name.data_file)
    try:
        files.truncate(handle, 0)
        files.write_at(handle, HEADER, 0)
        for rows in map(change, _large_batches(segment)):
            data = compressed(rows)
            first_offset, last_ts = rows.column("offset")[0].as_py(), rows.column("ts").cast(pa.int64())[-1].as_py()
            entries.append(entry_for(data, position, first_offset, rows.num_rows, last_ts))
            spaces.add(rows)
            files.write_at(handle, data, position)
            position += len(data)
        files.sync(handle)
    finally:
        files.close(handle)
    if name.sealed:
        files.replace(directory / name.spaces_file, spaces.encode())
    files.replace(directory / name.index_file, b"".join(entry.encode() for entry in entries))


def remove_segment(files: Files, segment: Segment) -> None:
    """Remove the files of a segment, the index first: data without an index does not count."""
    directory = Path(segment.directory)
    files.remove(directory / segment.name.index_file)
    files.remove(directory / segment.name.data_file)
    if segment.name.sealed:
        files.remove(directory / segment.name.spaces_file)


def _batches_of(segment: Segment) -> Iterator[pa.RecordBatch]:
    if segment.batches:
        with _LOCAL.open_input_file(segment.data_path) as source:
            schema = schema_of(source, segment, segment.batches[0])
            for entry in segment.batches:
                yield read_batch(source, segment, entry, schema)


def _large_batches(segment: Segment) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment in large batches."""
    for some in gathered(_batches_of(segment), most_rows=SEALED_BATCH_ROWS, most_bytes=SEALED_BATCH_BYTES):
        yield pa.concat_batches(some)


def spaces_in(segment: Segment) -> SegmentSpaces:
    spaces = SegmentSpaces()
    for rows in _batches_of(segment):
        spaces.add(rows)
    return spaces


def compressed(rows: pa.RecordBatch) -> memoryview:
    """Return the IPC message of one compressed batch, without the schema that precedes it in a stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    writer = pa.ipc.new_stream(sink, SCHEMA, options=options)
    writer.write_batch(rows)
    end = sink.tell()
    writer.close()
    return memoryview(sink.getvalue())[len(HEADER) : end]
