"""Finding the records of a space in a partition without reading what lies between them.

Spaces share a partition, so the ``seq`` of a record does not say where it is in the files. Each sealed segment has a
small file beside it (``N.sealed.spaces``) that lists, for every space, the batches that have records of it and which
ones. For a segment that is still written, or that was sealed before there were such files, the same is found by reading
it once, and kept in memory.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import fs

from mewstream.journal.checked import encode_checked, parse_checked
from mewstream.journal.errors import CorruptJournal
from mewstream.journal.listing import list_names
from mewstream.journal.schema import SCHEMA
from mewstream.journal.segments import (
    ENTRY_BYTES,
    BatchEntry,
    Flaw,
    Segment,
    SegmentName,
    parse_index,
    read_batch,
    read_file,
    schema_of,
)

#: How many parts of batches are kept in memory, at about 50 bytes each. The least recently used segments are dropped.
MAX_CACHED_PARTS = 1_000_000

_COLUMNS = tuple(SCHEMA.get_field_index(name) for name in ("space", "seq", "ts"))


class Part(NamedTuple):
    """The records of one space in one batch. Times are microseconds."""

    batch: int
    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int


_FIELDS = len(Part._fields)
_FIRST_SEQ, _LAST_SEQ, _FIRST_TS = map(Part._fields.index, ("first_seq", "last_seq", "first_ts"))
_NOTHING = array("q")


class SegmentSpaces:
    """The index of a segment by space: which batches hold its records, and which records."""

    def __init__(self, parts: dict[str, list[int]] | None = None, batches: int = 0) -> None:
        self._parts = {space: array("q", numbers) for space, numbers in (parts or {}).items()}
        self.batches = batches
        """How many batches of the segment are indexed."""
        self.is_whole = parts is not None
        """Whether all batches are indexed and no more will follow."""
        self.size = 1 + sum(map(len, self._parts.values())) // _FIELDS
        """The number of parts, and one for the segment itself."""
        self._damaged: dict[int, CorruptJournal] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Index the next batch. It must have the columns ``space``, ``seq`` and ``ts``."""
        table = pa.table(
            {"space": rows.column("space"), "seq": rows.column("seq"), "ts": rows.column("ts").cast(pa.int64())}
        )
        wanted = [("seq", "min"), ("seq", "max"), ("ts", "min"), ("ts", "max")]
        groups = table.group_by("space", use_threads=False).aggregate(wanted).to_pylist()
        for group in groups:
            numbers = self._parts.setdefault(group["space"], array("q"))
            numbers.extend((self.batches, group["seq_min"], group["seq_max"], group["ts_min"], group["ts_max"]))
        self.batches += 1
        self.size += len(groups)

    def add_damaged(self, flaw: CorruptJournal) -> None:
        """Note that the next batch cannot be read, so that it may hold records of any space."""
        self._damaged[self.batches] = flaw
        self.batches += 1

    @property
    def has_damaged(self) -> bool:
        return bool(self._damaged)

    def refuse_damaged(self, start: int, end: int | None = None) -> None:
        """Raise if one of the batches from ``start`` up to ``end`` could not be read."""
        for batch, flaw in self._damaged.items():
            if batch >= start and (end is None or batch < end):
                raise flaw

    def bounds(self, space: str) -> tuple[int, int] | None:
        """Return the first and the last ``seq`` of a space in this segment, or None."""
        numbers = self._parts.get(space)
        return (numbers[_FIRST_SEQ], numbers[_LAST_SEQ - _FIELDS]) if numbers else None

    def parts_above(self, space: str, seq: int) -> Iterator[Part]:
        """Yield the batches that hold records of a space above a position, in order. Raises if a damaged batch may hold
        some of them."""
        numbers = self._parts.get(space, _NOTHING)
        count = len(numbers) // _FIELDS
        first = bisect.bisect_right(range(count), seq, key=lambda place: numbers[place * _FIELDS + _LAST_SEQ])
        behind = _part(numbers, first - 1).batch + 1 if first else 0
        for place in range(first, count):
            part = _part(numbers, place)
            if place > first or part.first_seq > seq + 1:
                self.refuse_damaged(behind, part.batch)
            yield part
            behind = part.batch + 1
        self.refuse_damaged(behind)

    def part_before(self, space: str, micros: int) -> Part | None:
        """Return the batch of this segment with the last record of a space before a time, or None."""
        numbers = self._parts.get(space, _NOTHING)
        count = len(numbers) // _FIELDS
        later = bisect.bisect_left(range(count), micros, key=lambda place: numbers[place * _FIELDS + _FIRST_TS])
        return _part(numbers, later - 1) if later else None

    def encode(self) -> bytes:
        return encode_checked(
            _SpacesFile(self.batches, {space: list(numbers) for space, numbers in self._parts.items()})
        )

    @classmethod
    def parse(cls, data: bytes) -> SegmentSpaces:
        """Raises :class:`ValueError` if the file is damaged or is something else."""
        content = parse_checked(data, _SpacesFile)
        return cls(content.spaces, content.batches)


def _part(numbers: array[int], place: int) -> Part:
    return Part(*numbers[place * _FIELDS : (place + 1) * _FIELDS])


class _SpacesFile(msgspec.Struct):
    batches: int
    spaces: dict[str, list[int]]


class Located(NamedTuple):
    """A batch that holds records of a space, and which ones."""

    segment: Segment
    entry: BatchEntry
    first: BatchEntry
    """The first batch of the segment. The schema of the segment stands before it."""
    part: Part


class Positions:
    """Finds the records of any space in one partition. Several threads may use it."""

    def __init__(
        self,
        filesystem: fs.FileSystem,
        directory: str,
        *,
        begins_at: Callable[[], int],
        on_read: Callable[[int], None],
    ) -> None:
        """``begins_at`` returns the first offset that was not pruned; ``on_read`` is called with the size of each batch
        that is read."""
        self._fs = filesystem
        self._directory = directory
        self._begins_at = begins_at
        self._on_read = on_read
        self._lock = threading.Lock()
        self._known: OrderedDict[SegmentName, SegmentSpaces] = OrderedDict()
        self._size = 0

    def above(self, space: str, seq: int) -> Iterator[Located]:
        """Yield the batches that hold records of a space above a position, in order; the first may also have some below
        it. Raises :class:`FileNotFoundError` if a segment has just been sealed."""
        names = self._names()
        for listed in names[self._begin(names, space, seq) :]:
            name, spaces = self._current_form(listed)
            yield from self._located(name, spaces.parts_above(space, seq))

    def before(self, space: str, micros: int) -> Located | None:
        """Return the batch with the last record of a space before a time, or None."""
        for listed in reversed(self._names()):
            name, spaces = self._current_form(listed)
            part = spaces.part_before(space, micros)
            if part is not None:
                return next(self._located(name, iter((part,))))
        return None

    def _names(self) -> list[SegmentName]:
        return list_names(self._fs, self._directory, self._begins_at)

    def _begin(self, names: list[SegmentName], space: str, seq: int) -> int:
        """Return the place in ``names`` of the segment that holds the record after a position, or of the first that may
        hold a later one."""
        if not seq:
            return 0
        # Every record of a space takes one offset of the partition, so the offset of a record is at least its seq - 1.
        least = max(0, bisect.bisect_right(names, seq, key=lambda name: name.first_offset) - 1)
        if names:
            bounds = self._current_form(names[least])[1].bounds(space)
            if bounds is not None and bounds[0] <= seq + 1 <= bounds[1]:
                return least
        begin = len(names)
        for place in range(len(names) - 1, least - 1, -1):
            _, spaces = self._current_form(names[place])
            bounds = spaces.bounds(space)
            # A damaged batch may hold records of this space.
            if spaces.has_damaged or (bounds is not None and bounds[1] > seq):
                begin = place
            if bounds is not None and bounds[0] <= seq + 1:
                break
        return begin

    def _located(self, name: SegmentName, parts: Iterator[Part]) -> Iterator[Located]:
        segment = Segment(self._directory, name, [], None)
        with self._fs.open_input_file(f"{self._directory}/{name.index_file}") as index:
            first: BatchEntry | None = None
            for part in parts:
                first = first or _entry(index, 0, segment)
                yield Located(segment, _entry(index, part.batch, segment), first, part)

    # -- what is in a segment ---------------------------------------------------------------------

    def _current_form(self, name: SegmentName) -> tuple[SegmentName, SegmentSpaces]:
        """Return a listed segment in the form that it has now, and its index by space."""
        try:
            return name, self.spaces_in(name)
        except FileNotFoundError:
            if name.sealed:
                raise
            name = SegmentName(name.first_offset, sealed=True)
            return name, self.spaces_in(name)

    def spaces_in(self, name: SegmentName) -> SegmentSpaces:
        """Return the index of a segment by space. If the segment is still written, it has all committed batches."""
        with self._lock:
            known = self._known.get(name)
            if known is None:
                known = self._load(name) if name.sealed else SegmentSpaces()
                self._known[name] = known
            else:
                self._size -= known.size
                self._known.move_to_end(name)
            try:
                if not known.is_whole:
                    self._read_rest(name, known)
                    known.is_whole = name.sealed
            finally:
                self._size += known.size
                self._drop_oldest()
            return known

    def _load(self, name: SegmentName) -> SegmentSpaces:
        try:
            return SegmentSpaces.parse(read_file(self._fs, f"{self._directory}/{name.spaces_file}"))
        except (OSError, ValueError):
            # The file only saves time: the segment itself has the same information.
            return SegmentSpaces()

    def _read_rest(self, name: SegmentName, known: SegmentSpaces) -> None:
        """Index the batches that were committed since the last call."""
        segment = Segment(self._directory, name, [], None)
        with self._fs.open_input_file(f"{self._directory}/{name.index_file}") as index:
            start = known.batches * ENTRY_BYTES
            entries, flaw = parse_index(index.read_at(max(0, index.size() - start), start), known.batches)
            if flaw is not None and not flaw.is_torn:
                raise segment._replace(flaw=flaw).damage()
            if not entries:
                return
            first = _entry(index, 0, segment)
        with self._fs.open_input_file(segment.data_path) as source:
            schema = schema_of(source, segment, first)
            for entry in entries:
                self._on_read(entry.length)
                try:
                    known.add(read_batch(source, segment, entry, schema, _COLUMNS))
                except CorruptJournal as damage:
                    known.add_damaged(damage)

    def _drop_oldest(self) -> None:
        while self._size > MAX_CACHED_PARTS and len(self._known) > 1:
            _, dropped = self._known.popitem(last=False)
            self._size -= dropped.size


def _entry(index: pa.NativeFile, number: int, segment: Segment) -> BatchEntry:
    entries, flaw = parse_index(index.read_at(ENTRY_BYTES, number * ENTRY_BYTES), number)
    if not entries:
        raise segment._replace(flaw=flaw or Flaw(f"entry {number} of the index is missing")).damage()
    return entries[0]
