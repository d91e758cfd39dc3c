"""Reading the committed records of a journal, by partition and offset or by space and seq.

A reader needs nothing but the files, wherever ``pyarrow.fs`` can reach them. It may read the tail while a gateway
writes it.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.journal.errors import CorruptJournal, JournalError, PositionGone
from mewstream.journal.identity import IDENTITY_FILE, Identity, parse_identity
from mewstream.journal.interface import Entry
from mewstream.journal.listing import list_segments
from mewstream.journal.positions import Located, Positions
from mewstream.journal.reader_sets import ReaderSets
from mewstream.journal.schema import decode, decode_heads
from mewstream.journal.segments import BatchEntry, Segment, read_batch, read_file, schema_of
from mewstream.protocol.records import Frame

__all__ = ["ATTEMPTS", "IDENTITY_FILE", "Batch", "Identity", "JournalReader", "partition_of"]

#: How often a reader tries again when a segment was sealed or pruned while it was being opened.
ATTEMPTS = 5
_PAUSE_SECONDS = 0.01
#: Frames of a stream that are decoded at a time.
_PORTION_ROWS = 512
#: The columns that tell which frames there are, and who could read them.
_HEADS = ("space", "seq", "record", "stream_id", "stream_seq", "detail", "readers_seq")


class Batch(NamedTuple):
    """The rows of a batch that were asked for, and the segment that holds it."""

    segment: Segment
    entry: BatchEntry
    rows: pa.RecordBatch


def partition_of(space: str, partitions: int) -> int:
    """Return the number of the partition that a space belongs to. It never changes."""
    return zlib.crc32(space.encode()) % partitions


class JournalReader:
    """Several threads may use it."""

    def __init__(
        self,
        root: str | Path,
        filesystem: fs.FileSystem | None = None,
        *,
        on_read: Callable[[int], None] = lambda size: None,
    ) -> None:
        """``root`` is the ``journal`` directory, or a URI that ``pyarrow.fs`` understands. ``on_read`` is called with
        the size in bytes of each batch that is read for a space."""
        if filesystem is None and "://" in str(root):
            filesystem, path = fs.FileSystem.from_uri(str(root))
        else:
            path = str(root)
        self._fs = filesystem or fs.LocalFileSystem()
        self.root = path
        self.on_read = on_read
        self._positions: dict[int, Positions] = {}
        self.sets = ReaderSets(self._fs, self)
        """The reader sets that frames refer to."""

    def identity(self) -> Identity:
        file = f"{self.root}/{IDENTITY_FILE}"
        try:
            return parse_identity(read_file(self._fs, file), file)
        except FileNotFoundError:
            raise JournalError(f"there is no journal in {self.root}: expected {IDENTITY_FILE}") from None

    def directory(self, partition: int) -> str:
        return f"{self.root}/p{partition}"

    def segments(self, partition: int) -> list[Segment]:
        return list_segments(self._fs, self.directory(partition), partial(self._begins_at, partition))

    def _begins_at(self, partition: int) -> int:
        return self.identity().pruned.get(partition, 0)

    def next_offset(self, partition: int) -> int:
        segments = self.segments(partition)
        return segments[-1].next_offset if segments else 0

    # -- by offset --------------------------------------------------------------------------------

    def batches(self, partition: int, start: int = 0, end: int | None = None) -> Iterator[Batch]:
        """Yield the rows from the offset ``start`` up to but not including ``end``, batch by batch and in order."""
        patience = _Patience()
        while True:
            try:
                for batch in self._batches_now(partition, start, end):
                    yield batch
                    start = batch.entry.last_offset + 1
                    patience.renew()
                return
            except FileNotFoundError as gone:
                # A segment was sealed meanwhile, so that its records are in another file now.
                patience.wait_or_raise(CorruptJournal(self.directory(partition), start, f"a file is missing: {gone}"))

    def _batches_now(self, partition: int, start: int, end: int | None) -> Iterator[Batch]:
        expected: int | None = None
        for segment in self._segments_from(partition, start):
            if expected is not None and segment.name.first_offset != expected:
                raise segment.damage_before(expected)
            expected = segment.next_offset
            wanted = [
                entry
                for entry in segment.batches
                if entry.last_offset >= start and (end is None or entry.first_offset < end)
            ]
            if wanted:
                with self._fs.open_input_file(segment.data_path) as source:
                    schema = schema_of(source, segment, segment.batches[0])
                    for entry in wanted:
                        rows = read_batch(source, segment, entry, schema)
                        skipped = max(0, start - entry.first_offset)
                        count = (rows.num_rows if end is None else end - entry.first_offset) - skipped
                        yield Batch(segment, entry, rows.slice(skipped, count))
            if segment.flaw is not None and (end is None or segment.next_offset < end):
                raise segment.damage()

    def entries(
        self, partition: int, start: int = 0, end: int | None = None, *, with_readers: bool = True
    ) -> Iterator[Entry]:
        """Yield the records from ``start`` up to but not including ``end``. ``with_readers=False`` saves the time to
        look up the reader sets of frames."""
        for batch in self.batches(partition, start, end):
            for entry in decode(batch.rows):
                yield self._with_readers(entry) if with_readers else entry

    def _segments_from(self, partition: int, start: int) -> list[Segment]:
        segments = self.segments(partition)
        if segments and start < segments[0].name.first_offset:
            first = segments[0].name.first_offset
            pruned = self._begins_at(partition)
            if first > pruned:
                raise segments[0].damage_before(pruned)
            if start:
                raise PositionGone(f"partition {partition}: offset {start} was pruned, the journal begins at {first}")
        last = segments[-1] if segments else None
        return [
            # A torn entry at the very end is being written, and is not damage.
            segment._replace(flaw=None) if segment is last and segment.is_torn else segment
            for segment in segments
            if segment.next_offset > start or segment.flaw is not None
        ]

    # -- by space ---------------------------------------------------------------------------------

    def read(self, space: str, after: int = 0, *, with_readers: bool = True) -> Iterator[Entry]:
        """Yield the records of a space with a ``seq`` above ``after``, in order. Raises :class:`PositionGone` if the
        first of them was pruned, and :class:`CorruptJournal` if one is missing: none is left out silently."""
        reached, is_first = after, True
        patience = _Patience()
        while True:
            try:
                for segment, rows in self._rows_above(space, reached):
                    for entry in decode(rows):
                        if entry.record.seq != reached + 1 and (reached or not is_first):
                            what = f"seq {reached + 1} of {space!r} is missing"
                            raise _Hole(segment.data_path, entry.offset, what)
                        reached, is_first = entry.record.seq, False
                        patience.renew()
                        yield self._with_readers(entry) if with_readers else entry
                return
            except (FileNotFoundError, _Hole) as flaw:
                # A segment may have been sealed or pruned since the directory was listed.
                self._refuse_pruned(space, reached)
                patience.wait_or_raise(flaw if isinstance(flaw, _Hole) else self._missing(space, flaw))

    def frames(
        self, space: str, stream_id: str, after: int, upto: int, *, with_data: bool = True
    ) -> Iterator[tuple[int, list[Frame]]]:
        """Yield the frames of a stream above ``after``, up to ``upto`` or the last that is committed. They come in
        portions, some of them empty, each with the ``seq`` up to which the space was read. Raises as :meth:`read`.

        Without their data, frames have nothing but their numbers and their readers, and are read much faster."""
        reached, is_first = after, True
        patience = _Patience()
        while True:
            try:
                for segment, rows in self._rows_above(space, reached, None if with_data else _HEADS):
                    if not rows.num_rows:
                        continue
                    first, last = rows.column("seq")[0].as_py(), rows.column("seq")[-1].as_py()
                    if last - first + 1 != rows.num_rows or (first != reached + 1 and (reached or not is_first)):
                        raise _Hole(segment.data_path, 0, f"a seq of {space!r} above {reached} is missing")
                    is_first = False
                    for portion in _portions(rows, stream_id, upto):
                        found = self._frames_in(space, stream_id, portion, with_data=with_data)
                        reached = found[-1].seq
                        patience.renew()
                        yield reached, found
                    reached = last
                    patience.renew()
                    yield min(reached, upto), []
                    if reached >= upto:
                        return
                return
            except (FileNotFoundError, _Hole) as flaw:
                self._refuse_pruned(space, reached)
                patience.wait_or_raise(flaw if isinstance(flaw, _Hole) else self._missing(space, flaw))

    def _frames_in(self, space: str, stream_id: str, rows: pa.RecordBatch, *, with_data: bool) -> list[Frame]:
        if with_data:
            entries = map(self._with_readers, decode(rows))
            return [entry.record for entry in entries if isinstance(entry.record, Frame)]
        found = decode_heads(rows, stream_id)
        for head in found:
            if head.readers_seq is not None:
                head.readers = self.sets.made_by(space, stream_id, head.readers_seq)
        return found

    def _missing(self, space: str, gone: FileNotFoundError) -> CorruptJournal:
        return CorruptJournal(self.directory(self.partition_of(space)), 0, f"a file is missing: {gone}")

    def _refuse_pruned(self, space: str, after: int) -> None:
        """Raise :class:`PositionGone` if the record after a position was pruned."""
        if not after or not self._begins_at(self.partition_of(space)):
            return
        for _ in range(ATTEMPTS):
            try:
                oldest = next(self._of(space).above(space, 0), None)
            except FileNotFoundError:
                continue  # the journal is being pruned
            if oldest is not None and oldest.part.first_seq > after + 1:
                raise PositionGone(
                    f"seq {after + 1} of {space!r} was pruned: the log begins at {oldest.part.first_seq}"
                )
            return

    def seq_before(self, space: str, micros: int) -> int:
        """Return the last ``seq`` of a space before a time in microseconds, or 0."""

        def find() -> int:
            located = self._of(space).before(space, micros)
            if located is None:
                return 0
            with self._fs.open_input_file(located.segment.data_path) as source:
                rows = self._rows(source, located, space, 0)
            earlier = pc.less(rows.column("ts").cast(pa.int64()), micros)
            return int(pc.max(rows.column("seq").filter(earlier)).as_py())

        return self._find_patiently(space, find)

    def start_of(self, space: str, after: int) -> int:
        """Return an offset that has no record of a space above a position before it. 0 is the beginning."""
        if not after:
            return 0
        # First, so that records that are written meanwhile are not skipped.
        end = self.next_offset(self.partition_of(space))

        def find() -> int:
            located = next(self._of(space).above(space, after), None)
            return end if located is None else located.entry.first_offset

        return self._find_patiently(space, find)

    def _find_patiently(self, space: str, find: Callable[[], int]) -> int:
        """Try again if a segment was sealed or pruned meanwhile."""
        patience = _Patience()
        while True:
            try:
                return find()
            except FileNotFoundError as gone:
                patience.wait_or_raise(self._missing(space, gone))

    def _rows_above(
        self, space: str, seq: int, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[Segment, pa.RecordBatch]]:
        """Yield the rows of a space above a position, batch by batch, with all columns or with these. Each file is
        opened once."""
        located = self._of(space).above(space, seq)
        for _, batches in itertools.groupby(located, key=lambda batch: batch.segment.name):
            first = next(batches)
            with self._fs.open_input_file(first.segment.data_path) as source:
                for batch in itertools.chain((first,), batches):
                    yield batch.segment, self._rows(source, batch, space, seq, columns)

    def _rows(
        self, source: pa.NativeFile, located: Located, space: str, after: int, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Read the rows of one batch that belong to a space and are above a position."""
        schema = schema_of(source, located.segment, located.first)
        numbers = None
        if columns is not None:  # a segment of an older version may not have all of them
            numbers = [number for name in columns if (number := schema.get_field_index(name)) >= 0]
        rows = read_batch(source, located.segment, located.entry, schema, numbers)
        self.on_read(located.entry.length)
        wanted = pc.and_(pc.equal(rows.column("space"), space), pc.greater(rows.column("seq"), after))
        return rows.filter(wanted)

    def _of(self, space: str) -> Positions:
        partition = self.partition_of(space)
        found = self._positions.get(partition)
        if found is None:
            made = Positions(
                self._fs,
                self.directory(partition),
                begins_at=partial(self._begins_at, partition),
                on_read=lambda size: self.on_read(size),
            )
            found = self._positions.setdefault(partition, made)
        return found

    def partition_of(self, space: str) -> int:
        """Return the number of the partition that a space belongs to."""
        return partition_of(space, self.identity().partitions)

    def _with_readers(self, entry: Entry) -> Entry:
        record = entry.record
        if type(record) is Frame:
            if record.readers_seq is not None:
                record.readers = self.sets.made_by(entry.space, record.stream_id, record.readers_seq)
        else:
            self.sets.note(entry.space, record)
        return entry


def _portions(rows: pa.RecordBatch, stream_id: str, upto: int) -> Iterator[pa.RecordBatch]:
    """The frames of a stream among these rows, a few at a time."""
    wanted = pc.and_(
        pc.and_(pc.equal(rows.column("stream_id"), stream_id), pc.equal(rows.column("record"), "frame")),
        pc.less_equal(rows.column("seq"), upto),
    )
    found = rows.filter(wanted)
    for start in range(0, found.num_rows, _PORTION_ROWS):
        yield found.slice(start, _PORTION_ROWS)


class _Patience:
    """Counts the attempts since something new was found, and pauses between them."""

    def __init__(self) -> None:
        self._attempts = 0

    def renew(self) -> None:
        self._attempts = 0

    def wait_or_raise(self, error: CorruptJournal) -> None:
        """Pause before the next attempt. After too many attempts in a row, raise the error instead."""
        time.sleep(_PAUSE_SECONDS * self._attempts)
        self._attempts += 1
        if self._attempts > ATTEMPTS:
            raise error from None


class _Hole(CorruptJournal):
    """A record is missing before one that was read."""
