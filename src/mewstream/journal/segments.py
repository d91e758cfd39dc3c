"""Segments: Arrow IPC streams on disk, each with an index beside it.

A segment is named after its first offset. While it is written it is ``N.arrow`` with ``N.index``. When it is full it is
sealed: rewritten with large compressed batches as ``N.sealed.arrow`` with ``N.sealed.index``. A batch is committed by
its entry in the index; bytes without an entry do not count. An entry carries the checksum of its batch and one of its
own. The schema at the beginning of a segment says which columns its batches have: those of the version that wrote it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from mewstream.journal.errors import CorruptJournal
from mewstream.journal.schema import SCHEMA, conform, schema_in

_ENTRY = struct.Struct(">QQQQqI")
_CHECK = struct.Struct(">I")
ENTRY_BYTES = _ENTRY.size + _CHECK.size

HEADER = SCHEMA.serialize().to_pybytes()
"""The first bytes of every segment that this version writes."""

#: Every header is smaller, whichever version of Arrow wrote it.
_MAX_HEADER_BYTES = 1 << 20


class BatchEntry(NamedTuple):
    """The place of a batch in its segment, its offsets, and its checksum."""

    position: int
    length: int
    first_offset: int
    last_offset: int
    last_ts: int
    checksum: int

    def encode(self) -> bytes:
        packed = _ENTRY.pack(*self)
        return packed + _CHECK.pack(zlib.crc32(packed))


class SegmentName(NamedTuple):
    first_offset: int
    sealed: bool

    @property
    def stem(self) -> str:
        return f"{self.first_offset:020d}{'.sealed' if self.sealed else ''}"

    @property
    def data_file(self) -> str:
        return f"{self.stem}.arrow"

    @property
    def index_file(self) -> str:
        return f"{self.stem}.index"

    @property
    def spaces_file(self) -> str:
        return f"{self.stem}.spaces"


class Flaw(NamedTuple):
    """Why an index ends too early."""

    what: str
    is_torn: bool = False
    """It ends in an incomplete entry."""
    is_missing: bool = False


NO_INDEX = Flaw("the index of this segment is missing", is_missing=True)


class Segment(NamedTuple):
    """A segment as its index describes it, up to the ``flaw`` of the index if it has one."""

    directory: str
    name: SegmentName
    batches: list[BatchEntry]
    flaw: Flaw | None

    @property
    def data_path(self) -> str:
        return f"{self.directory}/{self.name.data_file}"

    @property
    def is_torn(self) -> bool:
        """Whether the index ends in an incomplete entry. In the last segment that is not damage: its batch was never
        committed."""
        return self.flaw is not None and self.flaw.is_torn

    def damage(self) -> CorruptJournal:
        """Return the exception for the flaw of the index."""
        assert self.flaw is not None
        return CorruptJournal(self.data_path, self.next_offset, self.flaw.what)

    def damage_before(self, expected: int) -> CorruptJournal:
        """Return the exception for a segment that does not begin at the expected offset."""
        first = self.name.first_offset
        what = f"records {expected} to {first - 1} are missing"
        if first < expected:
            what = "this segment repeats records of the one before it"
        return CorruptJournal(self.data_path, expected, what)

    @property
    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.name.first_offset

    @property
    def last_ts(self) -> int:
        return self.batches[-1].last_ts if self.batches else 0

    @property
    def committed_bytes(self) -> int:
        return self.batches[-1].position + self.batches[-1].length if self.batches else 0


def parse_index(data: bytes, number: int = 0) -> tuple[list[BatchEntry], Flaw | None]:
    """Return the entries of an index up to the first that is wrong, and what is wrong with that. ``number`` is the
    number of the first entry, if ``data`` is not the whole index."""
    entries: list[BatchEntry] = []
    for start in range(0, len(data), ENTRY_BYTES):
        piece = data[start : start + ENTRY_BYTES]
        # After a loss of power, a file may have its full length and zeros at the end.
        which = f"entry {number + len(entries)} of the index"
        if len(piece) < ENTRY_BYTES or not any(piece):
            return entries, Flaw(f"{which} is cut short", is_torn=True)
        packed, (check,) = piece[: _ENTRY.size], _CHECK.unpack(piece[_ENTRY.size :])
        if zlib.crc32(packed) != check:
            return entries, Flaw(f"{which} has a wrong checksum")
        entry = BatchEntry(*_ENTRY.unpack(packed))
        if entries and (
            entry.first_offset != entries[-1].last_offset + 1
            or entry.position != entries[-1].position + entries[-1].length
        ):
            return entries, Flaw(f"{which} does not follow the one before it")
        entries.append(entry)
    return entries, None


def read_segment(filesystem: fs.FileSystem, directory: str, name: SegmentName) -> Segment:
    """Read the index of a segment. A missing index is a flaw of the result."""
    try:
        data = read_file(filesystem, f"{directory}/{name.index_file}")
    except FileNotFoundError:
        return Segment(directory, name, [], NO_INDEX)  # sealed or pruned since it was listed
    batches, flaw = parse_index(data)
    if batches and batches[0].first_offset != name.first_offset:
        batches, flaw = [], Flaw(f"its name does not fit its content, which begins at {batches[0].first_offset}")
    return Segment(directory, name, batches, flaw)


def read_file(filesystem: fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_stream(path) as stream:
        data: bytes = stream.read()
    return data


# -- the data of segments -------------------------------------------------------------------------


class Source(Protocol):
    """The data of a segment: a file, or enough of one to read a batch."""

    def read_at(self, length: int, position: int) -> bytes | pa.Buffer: ...


#: Schemas are cached, because the tail is opened again and again and each request to remote storage takes time.
_schemas: dict[tuple[str, int], pa.Schema] = {}
_MAX_SCHEMAS = 1024


def schema_of(source: Source, segment: Segment, first: BatchEntry) -> pa.Schema:
    """Return the columns of a segment. ``first`` is its first batch; the schema stands before it."""
    # If a segment was rewritten under the same name, its header has another size or the same columns.
    key = (segment.data_path, first.position)
    schema = _schemas.get(key)
    if schema is None:
        try:
            schema = schema_in(bytes(source.read_at(min(first.position, _MAX_HEADER_BYTES), 0)))
        except ValueError as flaw:
            raise CorruptJournal(segment.data_path, segment.name.first_offset, str(flaw)) from None
        if len(_schemas) >= _MAX_SCHEMAS:
            _schemas.clear()
        _schemas[key] = schema
    return schema


def read_batch(
    source: Source, segment: Segment, entry: BatchEntry, schema: pa.Schema, columns: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Read one batch and check it, with all columns or only those with these numbers. Raises :class:`CorruptJournal` if
    it is not exactly what was written."""
    data = source.read_at(entry.length, entry.position)
    if len(data) < entry.length:
        raise CorruptJournal(segment.data_path, entry.first_offset, "the file ends inside this batch")
    if zlib.crc32(data) != entry.checksum:
        raise CorruptJournal(segment.data_path, entry.first_offset, "the checksum of this batch is wrong")
    try:
        if columns is None:
            return conform(pa.ipc.read_record_batch(pa.py_buffer(data), schema))
        stream = pa.BufferReader(b"".join((schema.serialize(), data)))
        options = pa.ipc.IpcReadOptions(included_fields=list(columns), use_threads=False)
        return pa.ipc.open_stream(stream, options=options).read_next_batch()
    except (pa.ArrowInvalid, OSError, StopIteration) as error:
        raise CorruptJournal(segment.data_path, entry.first_offset, f"not an Arrow batch: {error}") from None


def entry_for(data: bytes | memoryview, position: int, first_offset: int, rows: int, last_ts: int) -> BatchEntry:
    return BatchEntry(position, len(data), first_offset, first_offset + rows - 1, last_ts, zlib.crc32(data))
