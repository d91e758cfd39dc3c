"""Reading ranges of offsets of a journal: by many readers at once, planned first and read later and elsewhere, while a
gateway writes, seals and prunes.

:class:`~mewstream.journal.reader.JournalReader` serves one reader that follows a log, and looks at every index. Here
only those are read that a range needs, so that the length of history costs nothing.
"""

from __future__ import annotations

import bisect
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.journal.errors import CorruptJournal, PositionGone
from mewstream.journal.listing import list_names
from mewstream.journal.reader import ATTEMPTS, Identity, JournalReader
from mewstream.journal.segments import (
    ENTRY_BYTES,
    BatchEntry,
    Segment,
    SegmentName,
    parse_index,
    read_batch,
    read_file,
    schema_of,
)

#: How much of a segment is asked for at once: batches of the tail are small, and requests to far storage are slow.
WINDOW_BYTES = 4 << 20
_PAUSE_SECONDS = 0.02

T = TypeVar("T")


class Span(NamedTuple):
    """One committed batch, or the part of it that lies in a range. ``bytes`` are those in the file."""

    start: int
    end: int
    bytes: int

    @property
    def rows(self) -> int:
        return self.end - self.start


class RangeReader:
    """``root`` is the ``journal`` directory on that file system."""

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self._fs = filesystem
        self._reader = JournalReader(root, filesystem)
        self.root = root

    def identity(self) -> Identity:
        return self._reader.identity()

    # -- where things are -------------------------------------------------------------------------

    def bounds(self, partition: int) -> tuple[int, int]:
        """The first offset that is still there, and the one after the last that is committed."""
        return self._steadily(partition, lambda: self._bounds_now(partition))

    def spans(self, partition: int, start: int, end: int) -> list[Span]:
        """The batches that hold the offsets from ``start`` up to ``end`` (not included), cut to that range."""

        def look() -> list[Span]:
            located = self._located(partition, start, end)
            return [_part(entry, start, end) for _, entries in located for entry in entries]

        return self._steadily(partition, look)

    def offset_at(self, partition: int, micros: int) -> int:
        """The first offset at or after a time. Times are taken to grow along a partition, as clocks do."""

        def look() -> int:
            begin, end = self._bounds_now(partition)
            found: _Index | None = None
            # From the end backwards: most ask for what is recent.
            for name in reversed(self._names(partition)):
                index = self._index(partition, name)
                if index.next_offset > begin and not index.is_empty:
                    if index.last_ts < micros:
                        break
                    found = index
            if found is None:
                return end
            entry = found.first_at(micros)
            [rows] = self._rows_now(partition, entry.first_offset, entry.last_offset + 1)
            times = rows.column("ts").cast(pa.int64())
            return entry.first_offset + int(pc.index(pc.greater_equal(times, micros), True).as_py())

        return self._steadily(partition, look)

    # -- what is there ----------------------------------------------------------------------------

    def rows(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Exactly the rows from ``start`` up to ``end`` (not included), in order. Raises
        :class:`PositionGone` or :class:`CorruptJournal` where one of them is not there."""
        attempt = 0
        while start < end:
            try:
                for batch in self._rows_now(partition, start, end):
                    yield batch
                    start += batch.num_rows
                    attempt = 0
            except (FileNotFoundError, _Moved) as moved:
                self._look_again(partition, attempt, moved)
                attempt += 1

    def epoch_at(self, partition: int, offset: int) -> str:
        """The run of the gateway that wrote a record."""
        [rows] = self.rows(partition, offset, offset + 1)
        return str(rows.column("epoch")[0].as_py())

    # -- as it is at this moment: each of these may find that a file has just been replaced -----------

    def _bounds_now(self, partition: int) -> tuple[int, int]:
        names = self._names(partition)
        # Asked after the files, for it is written before the first of them goes.
        begin = self.identity().pruned.get(partition, 0)
        if not names:
            raise _Moved(CorruptJournal(self._reader.directory(partition), begin, "every segment is missing"))
        if names[0].first_offset > begin:
            raise self._hole(partition, begin, names[0].first_offset)
        if names[-1].sealed:
            # The next one is begun before a segment is sealed.
            directory = self._reader.directory(partition)
            what = f"the segment after {names[-1].data_file} is missing"
            raise _Moved(CorruptJournal(directory, names[-1].first_offset, what))
        last = self._index(partition, names[-1])
        return begin, max(last.next_offset, self._last_with_data(partition, names, last).next_offset)

    def _last_with_data(self, partition: int, names: list[SegmentName], last: _Index | None = None) -> _Index:
        """The index of the last segment in which there is anything: that may have gone on, when a new one could not
        be begun."""
        index = last or self._index(partition, names[-1])
        for name in reversed(names[:-1]):
            if not index.is_empty:
                break
            index = self._index(partition, name)
        return index

    def _rows_now(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for index, entries in self._located(partition, start, end):
            segment = index.segment
            with self._fs.open_input_file(segment.data_path) as source:
                schema = schema_of(source, segment, index.first)
                for window in _windows(entries):
                    held = _Window(source, window)
                    for entry in window:
                        part = _part(entry, start, end)
                        rows = read_batch(held, segment, entry, schema)
                        yield rows.slice(part.start - entry.first_offset, part.rows)

    def _located(self, partition: int, start: int, end: int) -> Iterator[tuple[_Index, list[BatchEntry]]]:
        """The segments that hold a range, each with those of its batches that do; nothing is missing in between."""
        if start >= end:
            return
        names = self._names(partition)
        pruned = self.identity().pruned.get(partition, 0)
        if start < pruned:
            raise PositionGone(f"partition {partition}: offset {start} was pruned, the journal begins at {pruned}")
        first = bisect.bisect_right(names, start, key=lambda name: name.first_offset)
        for place, name in enumerate(names[max(0, first - 1) :]):
            if name.first_offset >= end:
                break
            before = names[: max(1, first)]
            index = self._last_with_data(partition, before) if place == 0 else self._index(partition, name)
            entries = index.between(start, end)
            if index.is_empty:
                continue
            if not entries or entries[0].first_offset > start:
                break
            yield index, entries
            start = entries[-1].last_offset + 1
        if start < end:
            raise self._hole(partition, start, end)

    def _names(self, partition: int) -> list[SegmentName]:
        return list_names(self._fs, self._reader.directory(partition))

    def _index(self, partition: int, name: SegmentName) -> _Index:
        """In the form that the segment has by now."""
        directory = self._reader.directory(partition)
        try:
            return _Index(directory, name, read_file(self._fs, f"{directory}/{name.index_file}"))
        except FileNotFoundError:
            if name.sealed:
                raise
            return self._index(partition, SegmentName(name.first_offset, sealed=True))

    # -- when it is not there ---------------------------------------------------------------------

    def _steadily(self, partition: int, look: Callable[[], T]) -> T:
        attempt = 0
        while True:
            try:
                return look()
            except (FileNotFoundError, _Moved) as moved:
                self._look_again(partition, attempt, moved)
                attempt += 1

    def _look_again(self, partition: int, attempt: int, moved: FileNotFoundError | _Moved) -> None:
        """For a while: what was sealed is in another file now, and files are not listed at one moment."""
        if attempt < ATTEMPTS:
            time.sleep(_PAUSE_SECONDS * attempt)
        elif isinstance(moved, _Moved):
            raise moved.as_damage from None
        else:
            raise CorruptJournal(self._reader.directory(partition), 0, f"a file is missing: {moved}") from None

    def _hole(self, partition: int, start: int, end: int) -> _Moved:
        what = f"records {start} to {end - 1} are missing"
        return _Moved(CorruptJournal(self._reader.directory(partition), start, what))


class _Moved(Exception):
    """What was listed is not as it was listed: a segment was sealed or pruned meanwhile. Or it is damage."""

    def __init__(self, as_damage: CorruptJournal) -> None:
        super().__init__(str(as_damage))
        self.as_damage = as_damage


class _Index:
    """The index of one segment, of which only those entries are parsed that are asked for."""

    def __init__(self, directory: str, name: SegmentName, data: bytes) -> None:
        self._data = data
        # What is cut short at the end is being written now, and not there yet.
        self._count = len(data) // ENTRY_BYTES
        while self._count and not any(self._piece(self._count - 1, self._count)):
            self._count -= 1
        self.segment = Segment(directory, name, [], None)

    def _piece(self, first: int, end: int) -> bytes:
        return self._data[first * ENTRY_BYTES : end * ENTRY_BYTES]

    def _parse(self, first: int, end: int) -> list[BatchEntry]:
        entries, flaw = parse_index(self._piece(first, end))
        if flaw is not None:
            # The whole index tells which entry it is.
            sound, found = parse_index(self._piece(0, self._count))
            damaged = self.segment._replace(batches=sound, flaw=found or flaw)
            raise _Moved(damaged.damage())
        return entries

    def _last_offset(self, place: int) -> int:
        entries, _ = parse_index(self._piece(place, place + 1))
        return entries[0].last_offset if entries else sys.maxsize

    def between(self, start: int, end: int) -> list[BatchEntry]:
        first = bisect.bisect_left(range(self._count), start, key=self._last_offset)
        last = bisect.bisect_left(range(self._count), end - 1, lo=first, key=self._last_offset)
        return self._parse(first, min(last + 1, self._count))

    def first_at(self, micros: int) -> BatchEntry:
        """The first batch that ends at or after a time; there is one."""
        return next(entry for entry in self._parse(0, self._count) if entry.last_ts >= micros)

    @property
    def is_empty(self) -> bool:
        return not self._count

    @property
    def first(self) -> BatchEntry:
        return self._parse(0, 1)[0]

    @property
    def next_offset(self) -> int:
        return self._last.last_offset + 1 if self._count else self.segment.name.first_offset

    @property
    def last_ts(self) -> int:
        return self._last.last_ts

    @property
    def _last(self) -> BatchEntry:
        return self._parse(self._count - 1, self._count)[0]


class _Window:
    """Neighbouring batches of a segment, read at once. To ``read_batch`` it is the file."""

    def __init__(self, source: pa.NativeFile, entries: list[BatchEntry]) -> None:
        self._position = entries[0].position
        source.seek(self._position)
        self._data = source.read_buffer(entries[-1].position + entries[-1].length - self._position)

    def read_at(self, length: int, position: int) -> pa.Buffer:
        start = min(position - self._position, self._data.size)
        return self._data.slice(start, min(length, self._data.size - start))


def _windows(entries: list[BatchEntry]) -> Iterator[list[BatchEntry]]:
    window: list[BatchEntry] = []
    for entry in entries:
        if window and entry.position + entry.length - window[0].position > WINDOW_BYTES:
            yield window
            window = []
        window.append(entry)
    if window:
        yield window


def _part(entry: BatchEntry, start: int, end: int) -> Span:
    first, after = max(start, entry.first_offset), min(end, entry.last_offset + 1)
    rows = entry.last_offset + 1 - entry.first_offset
    return Span(first, after, -(-entry.length * (after - first) // rows))
