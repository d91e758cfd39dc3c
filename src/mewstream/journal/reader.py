"""Reading a journal: by partition and offset, or by space and seq. Committed batches only.

A reader needs nothing of the writer but the files, wherever ``pyarrow.fs`` can reach them; the
tail that is being written is read like everything else.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.journal.errors import CorruptJournal, JournalError, PositionGone
from mewstream.journal.schema import SCHEMA_VERSION, Entry, decode
from mewstream.journal.segments import BatchEntry, Segment, list_segments, read_batch

IDENTITY_FILE = "journal.json"
#: How often a reader looks again when a segment is moved under its hands.
ATTEMPTS = 5


class Identity(msgspec.Struct):
    """Made once: a recreated journal is another journal. ``pruned`` is, for each partition, the
    first offset that is still there."""

    id: str
    partitions: int
    created: str
    schema_version: int = SCHEMA_VERSION
    runs: int = 0
    tag: str = ""
    """Of the latest run, by chance: a journal that was put back from a copy begins another history."""
    pruned: dict[int, int] = {}
    check: int = 0
    """A checksum of all that is above."""

    def encode(self) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self, check=self._checksum()))

    def is_sound(self) -> bool:
        return self.check == self._checksum()

    def _checksum(self) -> int:
        return zlib.crc32(msgspec.json.encode(msgspec.structs.replace(self, check=0)))

    @property
    def epoch(self) -> str:
        """The name of the latest run: it names the journal too."""
        return f"{self.id[:8]}-{self.runs}-{self.tag}"


class Batch(NamedTuple):
    segment: Segment
    entry: BatchEntry
    rows: pa.RecordBatch

    def above(self, offset: int) -> Batch:
        """Without the rows below an offset."""
        return self._replace(rows=self.rows.slice(max(0, offset - self.entry.first_offset)))


def partition_of(space: str, partitions: int) -> int:
    """Which partition a space is in, for good."""
    return zlib.crc32(space.encode()) % partitions


class JournalReader:
    def __init__(self, root: str | Path, filesystem: fs.FileSystem | None = None) -> None:
        """``root`` is the ``journal`` directory, or a URI that ``pyarrow.fs`` understands."""
        if filesystem is None and "://" in str(root):
            filesystem, path = fs.FileSystem.from_uri(str(root))
        else:
            path = str(root)
        self._fs = filesystem or fs.LocalFileSystem()
        self.root = path

    def identity(self) -> Identity:
        file = f"{self.root}/{IDENTITY_FILE}"
        try:
            with self._fs.open_input_stream(file) as stream:
                identity = msgspec.json.decode(stream.read(), type=Identity)
        except FileNotFoundError:
            raise JournalError(f"there is no journal in {self.root}: expected {IDENTITY_FILE}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as flaw:
            raise JournalError(f"{file} cannot be read: {flaw}") from None
        if not identity.is_sound():
            raise JournalError(f"{file} is damaged: its checksum is wrong. Put it back from a copy")
        if identity.schema_version > SCHEMA_VERSION:
            raise JournalError(
                f"{file}: written by a newer mewstream (schema {identity.schema_version}, this reads "
                f"{SCHEMA_VERSION}): update mewstream"
            )
        return identity

    def directory(self, partition: int) -> str:
        return f"{self.root}/p{partition}"

    def segments(self, partition: int) -> list[Segment]:
        return list_segments(self._fs, self.directory(partition))

    def next_offset(self, partition: int) -> int:
        segments = self.segments(partition)
        return segments[-1].next_offset if segments else 0

    # -- by offset --------------------------------------------------------------------------------

    def batches(self, partition: int, start: int = 0, end: int | None = None) -> Iterator[Batch]:
        """Batches that hold offsets from ``start`` up to ``end`` (not included), in order."""
        begin = start
        for attempt in itertools.count():
            try:
                for batch in self._batches_now(partition, start, end):
                    yield batch if start == begin else batch.above(start)
                    start = batch.entry.last_offset + 1
                return
            except FileNotFoundError as gone:
                # A segment was sealed meanwhile: what it held is in another file now.
                if attempt >= ATTEMPTS:
                    raise CorruptJournal(str(gone.filename or self.directory(partition)), start, str(gone)) from None

    def _batches_now(self, partition: int, start: int, end: int | None) -> Iterator[Batch]:
        expected: int | None = None
        for segment in self._segments_from(partition, start):
            if expected is not None and segment.name.first_offset != expected:
                raise CorruptJournal(
                    segment.data_path, expected, f"records {expected} to {segment.name.first_offset - 1} are missing"
                )
            expected = segment.next_offset
            wanted = [
                entry
                for entry in segment.batches
                if entry.last_offset >= start and (end is None or entry.first_offset < end)
            ]
            if wanted:
                with self._fs.open_input_file(segment.data_path) as source:
                    for entry in wanted:
                        yield Batch(segment, entry, read_batch(source, segment, entry))
            if segment.flaw is not None and (end is None or segment.next_offset < end):
                raise CorruptJournal(segment.data_path, segment.next_offset, segment.flaw)

    def entries(self, partition: int, start: int = 0, end: int | None = None) -> Iterator[Entry]:
        for batch in self.batches(partition, start, end):
            for entry in decode(batch.rows):
                if entry.offset >= start and (end is None or entry.offset < end):
                    yield entry

    def _segments_from(self, partition: int, start: int) -> list[Segment]:
        segments = self.segments(partition)
        if segments and start < segments[0].name.first_offset:
            first = segments[0].name.first_offset
            pruned = self.identity().pruned.get(partition, 0)
            if first > pruned:
                raise CorruptJournal(segments[0].data_path, pruned, f"records {pruned} to {first - 1} are missing")
            if start:
                raise PositionGone(f"partition {partition}: offset {start} was pruned, the journal begins at {first}")
        last = segments[-1] if segments else None
        return [
            # An entry that was being written is no damage, and not there yet.
            segment._replace(flaw=None) if segment is last and segment.is_torn else segment
            for segment in segments
            if segment.next_offset > start or segment.flaw is not None
        ]

    # -- by space ---------------------------------------------------------------------------------

    def read(self, space: str, after: int = 0) -> Iterator[Entry]:
        """Records of a space with a ``seq`` above ``after``, in order. Raises
        :class:`PositionGone` where the one after it was pruned: there is never a silent hole."""
        batches = self._batches_of(space, after)
        expected = after + 1 if after else None
        for batch in batches:
            for entry in decode(_rows_of(batch.rows, space, after)):
                if expected is not None and entry.record.seq != expected:
                    where = f"seq {expected} of {space!r}"
                    if entry.record.seq > expected and expected == after + 1:
                        raise PositionGone(f"{where} was pruned: the log goes on at {entry.record.seq}")
                    raise CorruptJournal(batch.segment.data_path, entry.offset, f"{where} is missing")
                expected = entry.record.seq + 1
                yield entry

    def seq_before(self, space: str, micros: int) -> int:
        """The last seq of a space before a time, 0 where there is none."""
        for batch in self._backwards(space):
            times = batch.rows.column("ts").cast(pa.int64())
            before = pc.and_(pc.equal(batch.rows.column("space"), space), pc.less(times, micros))
            seqs = batch.rows.column("seq").filter(before)
            if len(seqs):
                return int(seqs[-1].as_py())
        return 0

    def follow(self, space: str, after: int = 0, *, poll: float = 0.1) -> Iterator[Entry | None]:
        """As :meth:`read`, and then what is written from now on; None whenever there is nothing new,
        so that the caller can stop."""
        while True:
            for entry in self.read(space, after):
                after = entry.record.seq
                yield entry
            yield None
            time.sleep(poll)

    def _batches_of(self, space: str, after: int) -> Iterator[Batch]:
        partition = partition_of(space, self.identity().partitions)
        yield from self.batches(partition, self.start_of(space, after))

    def start_of(self, space: str, after: int) -> int:
        """The offset from which on everything of a space above a position is found; 0 is the beginning.
        It looks from the end backwards to the batch that holds the position: what is asked for is new."""
        for batch in self._backwards(space) if after else ():
            seqs = batch.rows.column("seq").filter(pc.equal(batch.rows.column("space"), space))
            if len(seqs) and seqs[0].as_py() <= after:
                return batch.entry.first_offset
        return 0

    def _backwards(self, space: str) -> Iterator[Batch]:
        """The batches of the partition that a space is in, the newest first."""
        partition = partition_of(space, self.identity().partitions)
        end: int | None = None
        for attempt in itertools.count():
            try:
                for segment in reversed(self._segments_from(partition, 0)):
                    if segment.flaw is not None:
                        raise CorruptJournal(segment.data_path, segment.next_offset, segment.flaw)
                    wanted = [entry for entry in segment.batches if end is None or entry.first_offset < end]
                    if wanted:
                        with self._fs.open_input_file(segment.data_path) as source:
                            for entry in reversed(wanted):
                                yield Batch(segment, entry, read_batch(source, segment, entry))
                                end = entry.first_offset
                return
            except FileNotFoundError as gone:
                if attempt >= ATTEMPTS:
                    raise CorruptJournal(str(gone.filename or self.directory(partition)), end or 0, str(gone)) from None


def _rows_of(rows: pa.RecordBatch, space: str, after: int) -> pa.RecordBatch:
    return rows.filter(pc.and_(pc.equal(rows.column("space"), space), pc.greater(rows.column("seq"), after)))
