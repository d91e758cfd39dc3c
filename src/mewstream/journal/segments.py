"""Segments: Arrow IPC streams on disk, each with a sidecar index.

A segment is named after its first offset. While it is written it is ``N.arrow`` with ``N.index``;
sealed, it is rewritten with large compressed batches as ``N.sealed.arrow`` with
``N.sealed.index``. The index is what makes a batch count: bytes without an entry were never
committed. Each entry carries the checksum of its batch and one of its own. The schema at the beginning of a
segment says which columns its batches have: those of its version.
"""

from __future__ import annotations

import bisect
import itertools
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from mewstream.journal.errors import CorruptJournal
from mewstream.journal.schema import SCHEMA, conform, schema_in

_ENTRY = struct.Struct(">QQQQqI")
_CHECK = struct.Struct(">I")
ENTRY_BYTES = _ENTRY.size + _CHECK.size
_INDEX = re.compile(r"(\d{20})(\.sealed)?\.index\Z")
_DATA = re.compile(r"(\d{20})\.arrow\Z")

HEADER = SCHEMA.serialize().to_pybytes()
"""What every segment that is written now begins with."""

#: A header is smaller, whatever version of Arrow wrote it.
_MAX_HEADER_BYTES = 1 << 20
#: Seconds before each look at a directory in which segments are being sealed. What is missing in all of them is gone.
_LOOKS = (0.0, 0.0, 0.002, 0.01, 0.05)


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

    @property
    def spaces_file(self) -> str:
        return f"{self.stem}.spaces"


class Flaw(NamedTuple):
    """What is wrong with an index."""

    what: str
    is_torn: bool = False
    """It ends in half an entry."""
    is_missing: bool = False


class Segment(NamedTuple):
    """A segment as its index describes it. ``flaw`` says where the index ends too early."""

    directory: str
    name: SegmentName
    batches: list[BatchEntry]
    flaw: Flaw | None

    @property
    def data_path(self) -> str:
        return f"{self.directory}/{self.name.data_file}"

    @property
    def is_torn(self) -> bool:
        """Its index ends in half an entry, which was never committed: in the last segment no damage."""
        return self.flaw is not None and self.flaw.is_torn

    def damage(self) -> CorruptJournal:
        """What to raise for the flaw of its index."""
        assert self.flaw is not None
        return CorruptJournal(self.data_path, self.next_offset, self.flaw.what)

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
    """The entries of an index up to the first that cannot be right, and what was wrong with that. ``number`` is that of
    the first entry, where these are not all."""
    entries: list[BatchEntry] = []
    for start in range(0, len(data), ENTRY_BYTES):
        piece = data[start : start + ENTRY_BYTES]
        # A disk that lost power may have the end of a file and not what came before it.
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


# -- what there is --------------------------------------------------------------------------------


def list_segments(
    filesystem: fs.FileSystem, directory: str, begins_at: Callable[[], int] | None = None
) -> list[Segment]:
    """The segments of a partition in order. Where a segment is there both as it was written and sealed, the sealed one
    counts: its index comes last, so it is complete. ``begins_at`` tells the first offset that was not pruned.

    A directory is not listed at one moment. Whoever looks while a segment is sealed may see neither of its forms, and
    whoever looks again sees one. So a row of segments with a hole in it is looked at again before it is believed.
    """
    for pause in _LOOKS:
        time.sleep(pause)
        segments = list_once(filesystem, directory)
        abandoned = {id(segment) for segment in abandoned_in(segments)}
        segments = [segment for segment in segments if id(segment) not in abandoned]
        # Asked after the files, for it is written before the first of them goes.
        begin = begins_at() if begins_at is not None else None
        if begin is not None:
            segments = segments[_pruned([segment.name for segment in segments], begin) :]
        if _is_whole(segments, begin):
            break
    return segments


def _pruned(names: list[SegmentName], begin: int) -> int:
    """How many of these segments lie below the first offset that was not pruned: they are being removed."""
    following = bisect.bisect_right(names, begin, key=lambda name: name.first_offset)
    return max(0, following - 1)


def list_once(filesystem: fs.FileSystem, directory: str) -> list[Segment]:
    """The same at one look, those included that were begun and given up."""
    infos = {
        info.base_name: info for info in filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    }
    names = {name.first_offset: name for name in _counting(infos)}
    orphans = {
        int(match[1])
        for file, info in infos.items()
        # Data without an index: one that was just begun has nothing but a header in it.
        if (match := _DATA.match(file)) and int(match[1]) not in names and info.size > len(HEADER)
    }
    segments = [_read_segment(filesystem, directory, name) for name in names.values()]
    segments += [Segment(directory, SegmentName(first, sealed=False), [], _NO_INDEX) for first in orphans]
    return sorted(segments, key=lambda segment: segment.name.first_offset)


def list_names(
    filesystem: fs.FileSystem, directory: str, begins_at: Callable[[], int] | None = None
) -> list[SegmentName]:
    """The same by their names alone: no index is read, however long the history is. One in the middle may be missing,
    when it is being sealed."""
    for pause in _LOOKS:
        time.sleep(pause)
        names = sorted(_counting(_files(filesystem, directory)))
        begin = begins_at() if begins_at is not None else None
        if begin is not None:
            names = names[_pruned(names, begin) :]
        is_begun = begin is None or not names or names[0].first_offset <= begin
        # The next one is begun before a segment is sealed.
        if is_begun and not (names and names[-1].sealed):
            break
    return names


def _files(filesystem: fs.FileSystem, directory: str) -> list[str]:
    if isinstance(filesystem, fs.LocalFileSystem):
        # Arrow asks for the size of every file.
        try:
            return os.listdir(directory)  # noqa: PTH208 - names, and no objects around them
        except FileNotFoundError:
            return []
    selector = fs.FileSelector(directory, allow_not_found=True)
    return [info.base_name for info in filesystem.get_file_info(selector)]


def _counting(files: Iterable[str]) -> Iterable[SegmentName]:
    """Of the files of a partition those segments that count."""
    names: dict[int, SegmentName] = {}
    for file in files:
        if match := _INDEX.match(file):
            name = SegmentName(int(match[1]), match[2] is not None)
            if name.sealed or name.first_offset not in names:
                names[name.first_offset] = name
    return names.values()


_NO_INDEX = Flaw("the index of this segment is missing", is_missing=True)


def _is_whole(segments: list[Segment], begin: int | None) -> bool:
    """Nothing is missing before the first nor up to the last, and the last is one that can be written to."""
    if any(segment.flaw is not None and segment.flaw.is_missing for segment in segments):
        return False
    if segments and (segments[-1].name.sealed or (begin is not None and segments[0].name.first_offset > begin)):
        return False
    return all(
        # An index that is damaged is no matter of the moment.
        before.flaw is not None or before.next_offset == after.name.first_offset
        for before, after in itertools.pairwise(segments)
    )


def abandoned_in(segments: list[Segment]) -> list[Segment]:
    """Empty ones that were begun and could not be finished, while the one before went on."""
    return [
        after
        for before, after in itertools.pairwise(segments)
        if not after.batches and after.flaw is None and after.name.first_offset < before.next_offset
    ]


def _read_segment(filesystem: fs.FileSystem, directory: str, name: SegmentName) -> Segment:
    try:
        data = read_file(filesystem, f"{directory}/{name.index_file}")
    except FileNotFoundError:
        return Segment(directory, name, [], _NO_INDEX)  # sealed or pruned since it was listed
    batches, flaw = parse_index(data)
    if batches and batches[0].first_offset != name.first_offset:
        batches, flaw = [], Flaw(f"its name does not fit its content, which begins at {batches[0].first_offset}")
    return Segment(directory, name, batches, flaw)


def read_file(filesystem: fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_stream(path) as stream:
        data: bytes = stream.read()
    return data


# -- what is in them ------------------------------------------------------------------------------


class Source(Protocol):
    """The data of a segment: a file, or a part of it that has the bytes that are asked for."""

    def read_at(self, length: int, position: int) -> bytes | pa.Buffer: ...


#: On far storage each request takes its time, and the tail is opened again and again.
_schemas: dict[tuple[str, int], pa.Schema] = {}
_MAX_SCHEMAS = 1024


def schema_of(source: Source, segment: Segment, first: BatchEntry) -> pa.Schema:
    """The columns of a segment. ``first`` is its first batch, before which they are written."""
    # A segment that was written again under its name has another header, or the same columns.
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


def open_segment(filesystem: fs.FileSystem, segment: Segment) -> tuple[Segment, pa.NativeFile] | None:
    """A segment and its data, in its other form where it was sealed meanwhile; None where it was pruned, or is
    missing."""
    for _ in _LOOKS:
        try:
            return segment, filesystem.open_input_file(segment.data_path)
        except FileNotFoundError:
            first = segment.name.first_offset
            found = [each for each in list_segments(filesystem, segment.directory) if each.name.first_offset == first]
            if not found:
                return None
            segment = found[0]
    return None


def read_batch(
    source: Source, segment: Segment, entry: BatchEntry, schema: pa.Schema, columns: Sequence[int] | None = None
) -> pa.RecordBatch:
    """One batch, checked, with all columns or only these (by number). Raises :class:`CorruptJournal` with segment and
    offset; never returns a record that was not written."""
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


def encode_index(entries: Iterable[BatchEntry]) -> bytes:
    return b"".join(entry.encode() for entry in entries)
