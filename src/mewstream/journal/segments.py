"""Segments: Arrow IPC streams on disk, each with a sidecar index.

A segment is named after its first offset. While it is written it is ``N.arrow`` with ``N.index``;
sealed, it is rewritten with large compressed batches as ``N.sealed.arrow`` with
``N.sealed.index``. The index is what makes a batch count: bytes without an entry were never
committed. Each entry carries the checksum of its batch and one of its own.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from mewstream.journal.errors import CorruptJournal
from mewstream.journal.schema import SCHEMA

_ENTRY = struct.Struct(">QQQQqI")
_CHECK = struct.Struct(">I")
ENTRY_BYTES = _ENTRY.size + _CHECK.size
_INDEX = re.compile(r"(\d{20})(\.sealed)?\.index\Z")
_DATA = re.compile(r"(\d{20})\.arrow\Z")

HEADER = SCHEMA.serialize().to_pybytes()
"""What every segment begins with."""


class BatchEntry(NamedTuple):
    """Where a batch is, what it holds, and its checksum."""

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


class Segment(NamedTuple):
    """A segment as its index describes it. ``flaw`` says where the index ends too early."""

    directory: str
    name: SegmentName
    batches: list[BatchEntry]
    flaw: str | None

    @property
    def data_path(self) -> str:
        return f"{self.directory}/{self.name.data_file}"

    @property
    def is_torn(self) -> bool:
        """Its index ends in half an entry, which was never committed: in the last segment no damage."""
        return self.flaw is not None and self.flaw.endswith("is cut short")

    @property
    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.name.first_offset

    @property
    def last_ts(self) -> int:
        return self.batches[-1].last_ts if self.batches else 0

    @property
    def committed_bytes(self) -> int:
        return self.batches[-1].position + self.batches[-1].length if self.batches else 0


def parse_index(data: bytes) -> tuple[list[BatchEntry], str | None]:
    """The entries of an index up to the first that cannot be right, and what was wrong with that."""
    entries: list[BatchEntry] = []
    for start in range(0, len(data), ENTRY_BYTES):
        piece = data[start : start + ENTRY_BYTES]
        # A disk that lost power may have the end of a file and not what came before it.
        if len(piece) < ENTRY_BYTES or not any(piece):
            return entries, f"entry {len(entries)} of the index is cut short"
        packed, (check,) = piece[: _ENTRY.size], _CHECK.unpack(piece[_ENTRY.size :])
        if zlib.crc32(packed) != check:
            return entries, f"entry {len(entries)} of the index has a wrong checksum"
        entry = BatchEntry(*_ENTRY.unpack(packed))
        if entries and (
            entry.first_offset != entries[-1].last_offset + 1
            or entry.position != entries[-1].position + entries[-1].length
        ):
            return entries, f"entry {len(entries)} of the index does not follow the one before it"
        entries.append(entry)
    return entries, None


def list_segments(filesystem: fs.FileSystem, directory: str) -> list[Segment]:
    """The segments of a partition in order. Where a segment is there both as it was written and
    sealed, a crash fell between the two: the sealed one is complete, for its index comes last."""
    infos = {
        info.base_name: info for info in filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    }
    names: dict[int, SegmentName] = {}
    for file in infos:
        if match := _INDEX.match(file):
            name = SegmentName(int(match[1]), match[2] is not None)
            if name.sealed or name.first_offset not in names:
                names[name.first_offset] = name
    orphans = {
        int(match[1])
        for file, info in infos.items()
        # Data without an index: one that was just begun has nothing but a header in it.
        if (match := _DATA.match(file)) and int(match[1]) not in names and info.size > len(HEADER)
    }
    segments = [_read_segment(filesystem, directory, name) for name in names.values()]
    segments += [
        Segment(directory, SegmentName(first, sealed=False), [], "the index of this segment is missing")
        for first in orphans
    ]
    return sorted(segments, key=lambda segment: segment.name.first_offset)


def _read_segment(filesystem: fs.FileSystem, directory: str, name: SegmentName) -> Segment:
    with filesystem.open_input_stream(f"{directory}/{name.index_file}") as stream:
        batches, flaw = parse_index(stream.read())
    if batches and batches[0].first_offset != name.first_offset:
        batches, flaw = [], f"its name does not fit its content, which begins at {batches[0].first_offset}"
    return Segment(directory, name, batches, flaw)


def read_batch(source: pa.NativeFile, segment: Segment, entry: BatchEntry) -> pa.RecordBatch:
    """One batch, checked. Raises :class:`CorruptJournal` with segment and offset; never returns a
    record that was not written."""
    data = source.read_at(entry.length, entry.position)
    if len(data) < entry.length:
        raise CorruptJournal(segment.data_path, entry.first_offset, "the file ends inside this batch")
    if zlib.crc32(data) != entry.checksum:
        raise CorruptJournal(segment.data_path, entry.first_offset, "the checksum of this batch is wrong")
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptJournal(segment.data_path, entry.first_offset, f"not an Arrow batch: {error}") from None


def entry_for(data: bytes | memoryview, position: int, first_offset: int, rows: int, last_ts: int) -> BatchEntry:
    return BatchEntry(position, len(data), first_offset, first_offset + rows - 1, last_ts, zlib.crc32(data))


def encode_index(entries: Iterable[BatchEntry]) -> bytes:
    return b"".join(entry.encode() for entry in entries)
