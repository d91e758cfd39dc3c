"""The files of one partition, opened for writing: appended records wait until they are written as a batch."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from mewstream.io.log_lines import event
from mewstream.journal.errors import CorruptJournal, JournalError
from mewstream.journal.files import FileIdentity, Files
from mewstream.journal.listing import abandoned_in, list_names, list_once
from mewstream.journal.rewriting import compressed, remove_segment, spaces_in, write_again
from mewstream.journal.rows import Rows, split
from mewstream.journal.schema import SCHEMA
from mewstream.journal.segments import (
    ENTRY_BYTES,
    HEADER,
    BatchEntry,
    Segment,
    SegmentName,
    entry_for,
    read_batch,
    read_segment,
    schema_of,
)
from mewstream.protocol.records import FrameBlock, Record

log = logging.getLogger("mewstream.journal")

_LOCAL = fs.LocalFileSystem()
#: From this many rows on a batch is compressed. Most columns of many frames are constant, so compressing them costs
#: less than writing them.
COMPRESSED_ROWS = 512
#: More rows or bytes than this become several batches, because encoding one blocks the event loop. Besides, a column of
#: Arrow must be smaller than 2 GiB.
BATCH_ROWS = 4096
BATCH_BYTES = 16 << 20


@dataclass(slots=True)
class _Write:
    """A batch that has its place in a segment. If it cannot be written, it is written to the same place later."""

    rows: pa.RecordBatch
    last_ts: int
    data: memoryview | None = None
    entry: BatchEntry | None = None


class Partition:
    """Not thread-safe, except that :meth:`write`, :meth:`sync` and :meth:`seal` may each run in a thread beside the
    event loop, one call of each at a time, and so may :meth:`roll` while there is neither a write nor a sync."""

    def __init__(
        self,
        directory: Path,
        files: Files,
        *,
        segment_bytes: int,
        begins_at: int = 0,
        is_new: bool = True,
        synced_commits: bool = False,
    ) -> None:
        self.directory = directory
        self._files = files
        self._segment_bytes = segment_bytes
        self._pending: deque[Rows] = deque([Rows()])
        """Each of these becomes a batch; records are appended to the last."""
        self.pending_bytes = 0
        """The bytes that wait, without the batch that was prepared."""
        self._prepared: _Write | None = None
        self._synced_commits = synced_commits
        self._unsynced: list[tuple[int, memoryview, BatchEntry]] = []
        self.unsynced_bytes = 0
        """How much was written since the last sync was begun."""
        self._sync_failed = False
        self._place: dict[Path, FileIdentity] = {}
        """The paths of the open files, for :meth:`displaced`."""
        self.next_offset = 0
        """The offset of the next record that will be written. Records that wait count from there."""
        self.end_offset = 0
        """The offset after the last appended record."""
        self.synced_offset = 0
        """Every record below this offset is known to be on the disk."""
        self.closed: list[SegmentName] = []
        """Full segments that wait to be sealed."""
        directory.mkdir(parents=True, exist_ok=True)
        self._recover(begins_at, is_new)

    # -- writing ----------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """How many records wait, including those of the batch that was prepared."""
        return self.end_offset - self.next_offset

    @property
    def must_compress(self) -> bool:
        """Whether the next batch is large enough to be compressed, which takes a while."""
        return self._pending[0].count >= COMPRESSED_ROWS

    def append(self, space: str, epoch: str, record: Record | FrameBlock) -> int:
        """Add a record, or a block of frames, to what waits. Returns the bytes of its detail and its data. Raises
        :class:`RecordTooLarge` for a record that could never be written; nothing has changed then."""
        size = 0
        parts: Sequence[Record | FrameBlock] = (record,)
        if isinstance(record, FrameBlock) and record.readers is not None:
            parts = split(record, BATCH_BYTES)
        for part in parts:
            rows = self._pending[-1]
            if rows.count >= BATCH_ROWS or rows.size >= BATCH_BYTES:
                rows = Rows()
                self._pending.append(rows)
            count_before, size_before = rows.count, rows.size
            size += rows.append(space, epoch, part)
            self.end_offset += rows.count - count_before
            self.pending_bytes += rows.size - size_before
        return size

    def flush(self, *, may_roll: bool = True) -> None:
        """Write everything that waits. After an error it still waits. ``may_roll=False`` keeps the files of the segment
        open, because a sync may be under way."""
        while self.end_offset > self.next_offset:
            if self.is_full and may_roll and self._prepared is None:
                self.roll()
            self.prepare()
            self.write()
            self.finish()

    def prepare(self) -> None:
        """Encode the first batch that waits, unless an earlier one has still to be written."""
        rows = self._pending[0]
        if self._prepared is None and rows.count:
            try:
                encoded = rows.encode(self.next_offset)
            except Exception as error:
                last = self.next_offset + rows.count - 1
                raise JournalError(
                    f"{self.directory}: the records for offset {self.next_offset} to {last} cannot be encoded "
                    f"({error!r}). They can never be written: restart the gateway to continue without them"
                ) from error
            self._prepared = _Write(encoded, rows.last_ts)
            self.pending_bytes -= rows.size
            self._pending.popleft()
            if not self._pending:
                self._pending.append(Rows())

    def write(self) -> None:
        """Write the prepared batch. It does not count before :meth:`finish`."""
        batch = self._prepared
        if batch is None:
            return
        rows = batch.rows
        data = compressed(rows) if rows.num_rows >= COMPRESSED_ROWS else memoryview(rows.serialize())
        entry = entry_for(data, self._size, self.next_offset, rows.num_rows, batch.last_ts)
        # If this fails half-way, the next attempt overwrites it.
        self._files.write_at(self._data, data, self._size)
        if not self._synced_commits:
            self._files.write_at(self._index, entry.encode(), self._entries * ENTRY_BYTES)
        batch.data, batch.entry = data, entry

    def finish(self) -> None:
        """Count the prepared batch, which has been written."""
        batch, self._prepared = self._prepared, None
        if batch is None:
            return
        assert batch.data is not None and batch.entry is not None, "finished before it was written"
        if self._synced_commits:
            self._unsynced.append((self._entries, batch.data, batch.entry))
        self._size += batch.entry.length
        self.is_full = self._size >= self._segment_bytes
        self.unsynced_bytes += batch.entry.length
        self._entries += 1
        self.next_offset += batch.rows.num_rows

    def sync(self, batches: int | None = None) -> None:
        """Sync everything that was written; with ``synced_commits``, only the first ``batches`` of the unsynced ones.
        An entry in the index makes a batch count, so the data is synced first."""
        if self._sync_failed:
            # A failed sync may have dropped pages, and a second sync would not report that: write them again.
            for _, data, entry in self._unsynced[:batches]:
                self._files.write_at(self._data, data, entry.position)
        self._sync_failed = True
        self._files.sync(self._data)
        for number, _, entry in self._unsynced[:batches]:
            self._files.write_at(self._index, entry.encode(), number * ENTRY_BYTES)
        self._files.sync(self._index)
        self._sync_failed = False

    @property
    def unsynced(self) -> int:
        """The number of batches that are written but not synced, with ``synced_commits``."""
        return len(self._unsynced)

    def synced(self, batches: int) -> None:
        """The first ``batches`` of the unsynced batches are on the disk now."""
        if batches:
            self.synced_offset = self._unsynced[batches - 1][2].last_offset + 1
            del self._unsynced[:batches]

    def close(self) -> None:
        self._files.close(self._data)
        self._files.close(self._index)

    def roll(self) -> None:
        """Begin a new segment. The old one is synced first, so that only the last segment can have a torn tail. If
        anything fails, the old segment stays in use."""
        self.sync()
        self._unsynced.clear()
        self.unsynced_bytes = 0
        data, index = self._create(self.next_offset)
        self.close()
        self.closed.append(SegmentName(self._first_offset, sealed=False))
        self._use(data, index, self.next_offset)
        self.synced_offset = self.next_offset

    def _create(self, first_offset: int) -> tuple[int, int]:
        """Create an empty segment, and return the open files of its data and its index."""
        name = SegmentName(first_offset, sealed=False)
        handles: list[int] = []
        try:
            for file, content in ((name.data_file, HEADER), (name.index_file, b"")):
                handles.append(self._files.open(self.directory / file))
                self._files.truncate(handles[-1], 0)
                self._files.write_at(handles[-1], content, 0)
                self._files.sync(handles[-1])
            self._files.sync_directory(self.directory)
        except Exception:
            for handle in handles:
                self._files.close(handle)
            with contextlib.suppress(OSError):
                self._files.remove(self.directory / name.index_file)
                self._files.remove(self.directory / name.data_file)
            raise
        data, index = handles
        return data, index

    def _use(self, data: int, index: int, first_offset: int, *, size: int = len(HEADER), entries: int = 0) -> None:
        """Write to this segment from now on, which has batches up to ``size`` bytes."""
        self._data, self._index = data, index
        self._first_offset, self._size, self._entries = first_offset, size, entries
        # An empty segment is never full. A full one is left before the next batch is written.
        self.is_full = entries > 0 and size >= self._segment_bytes
        name = SegmentName(first_offset, sealed=False)
        self._place = {
            self.directory / name.data_file: self._files.identity(data),
            self.directory / name.index_file: self._files.identity(index),
        }

    def displaced(self) -> str | None:
        """Return which of the open files is not in its place any more, or None. A thread may call this."""
        place = self._place
        flaws = [displacement(self._files, path, identity) for path, identity in place.items()]
        if self._place is not place:
            return self.displaced()  # a new segment was begun, and the old one may be sealed already
        return next(filter(None, flaws), None)

    # -- recovery ---------------------------------------------------------------------------------

    def _recover(self, begins_at: int, is_new: bool) -> None:
        """Find the end of the committed records, cut off what follows, and continue there. ``begins_at`` is the first
        offset that was not pruned."""
        segments = list_once(_LOCAL, str(self.directory))
        while len(segments) > 1 and segments[1].name.first_offset <= begins_at:
            # A crash came between the decision to prune this segment and its removal.
            remove_segment(self._files, segments.pop(0))
        if segments and segments[0].name.first_offset > begins_at:
            raise segments[0].damage_before(begins_at)
        for abandoned in abandoned_in(segments):
            remove_segment(self._files, abandoned)
            segments.remove(abandoned)
        for before, after in itertools.pairwise(segments):
            if before.flaw is not None:
                raise before.damage()
            if after.name.first_offset != before.next_offset:
                raise after.damage_before(before.next_offset)
        for segment in segments:
            if segment.name.sealed:
                self._remove_unsealed(segment.name)
        self._remove_leftovers({segment.name for segment in segments})
        if not segments:
            if not is_new:
                raise CorruptJournal(str(self.directory), begins_at, "every segment is missing")
            self._use(*self._create(0), 0)
            return
        last = segments[-1]
        if last.name.sealed:
            # A segment is sealed only after the next one has been begun.
            raise CorruptJournal(last.data_path, last.next_offset, "the segment after this one is missing")
        has_all_columns = self._reopen(last)
        self.closed = [segment.name for segment in segments[:-1] if not segment.name.sealed]
        if not has_all_columns:
            # An older version wrote it, with fewer columns than are written now.
            self.roll()

    def _reopen(self, segment: Segment) -> bool:
        """Continue in the segment that was written last, after cutting off what was never committed. Returns whether it
        has the columns of this version."""
        if segment.flaw is not None and not segment.is_torn:
            raise segment.damage()
        sound, schema = self._sound_batches(segment)
        batches = segment.batches[:sound]
        data = self._files.open(self.directory / segment.name.data_file)
        index = self._files.open(self.directory / segment.name.index_file)
        end = batches[-1].position + batches[-1].length if batches else len(HEADER)
        if not batches:
            self._files.write_at(data, HEADER, 0)
        torn = self._files.size(data) - end
        if torn > 0 or segment.flaw is not None:
            log.warning(
                "%s: cut off %d bytes that were never committed",
                segment.data_path,
                max(torn, 0),
                extra=event("journal_tail_cut"),
            )
        for file, size in ((data, end), (index, len(batches) * ENTRY_BYTES)):
            self._files.truncate(file, size)
            self._files.sync(file)
        self._use(data, index, segment.name.first_offset, size=end, entries=len(batches))
        self.next_offset = batches[-1].last_offset + 1 if batches else segment.name.first_offset
        self.synced_offset = self.end_offset = self.next_offset
        return not batches or schema is SCHEMA

    def _sound_batches(self, segment: Segment) -> tuple[int, pa.Schema]:
        """Return how many batches of the last segment are sound, and their columns.

        Without syncs, an index entry can survive a loss of power while its data does not. Then the last batches are
        bad: their bytes are set aside and the loss is reported. A bad batch before a sound one is damage."""
        if not segment.batches:
            return 0, SCHEMA
        with _LOCAL.open_input_file(segment.data_path) as source:
            schema = schema_of(source, segment, segment.batches[0])
            count = len(segment.batches)
            flaw: CorruptJournal | None = None
            while count:
                try:
                    read_batch(source, segment, segment.batches[count - 1], schema)
                    break
                except CorruptJournal as found:
                    flaw = found
                    count -= 1
            if flaw is not None:
                first = segment.batches[count]
                aside = self.directory / f"{segment.name.stem}.{first.first_offset}.bad"
                self._files.replace(aside, source.read_at(source.size() - first.position, first.position))
                lost = f"{first.first_offset} to {segment.batches[-1].last_offset}"
                log.error(
                    "%s; offsets %s are lost, their bytes are kept in %s",
                    flaw,
                    lost,
                    aside,
                    extra=event("journal_records_lost"),
                )
        return count, schema

    def _remove_unsealed(self, name: SegmentName) -> None:
        unsealed = SegmentName(name.first_offset, sealed=False)
        self._files.remove(self.directory / unsealed.index_file)
        self._files.remove(self.directory / unsealed.data_file)

    def _remove_leftovers(self, names: set[SegmentName]) -> None:
        """Remove files that a crash has left while a segment was sealed or pruned, or while a file was replaced."""
        for file in self.directory.iterdir():
            stem, _, kind = file.name.partition(".")
            sealed = kind in ("sealed.arrow", "sealed.spaces") and stem.isdecimal()
            sealed = sealed and SegmentName(int(stem), sealed=True) not in names
            if sealed or kind.endswith("tmp"):
                self._files.remove(file)

    # -- sealing ----------------------------------------------------------------------------------

    def seal(self, name: SegmentName, give_way: Callable[[], None] = lambda: None) -> None:
        """Rewrite a full segment with large compressed batches. A thread may call this, as the segment is complete.
        A reader sees the old one or the new one, because the new index is written last. ``give_way`` is called
        before each batch and may block, to leave the processor to more urgent work."""
        if (self.directory / SegmentName(name.first_offset, sealed=True).index_file).exists():
            return
        segment = read_segment(_LOCAL, str(self.directory), name)
        if segment.flaw is not None and segment.flaw.is_missing:
            return  # pruned meanwhile

        def after_giving_way(rows: pa.RecordBatch) -> pa.RecordBatch:
            give_way()
            return rows

        write_again(self._files, segment, SegmentName(name.first_offset, sealed=True), after_giving_way)
        self._remove_unsealed(name)

    def without_spaces(self) -> list[SegmentName]:
        """Return the segments that were sealed by an older version, which did not index them by space."""
        names = list_names(_LOCAL, str(self.directory))
        return [name for name in names if name.sealed and not (self.directory / name.spaces_file).exists()]

    def index_spaces(self, name: SegmentName) -> None:
        """Write the index by space of a sealed segment that has none."""
        segment = read_segment(_LOCAL, str(self.directory), name)
        if segment.flaw is None:
            self._files.replace(self.directory / name.spaces_file, spaces_in(segment).encode())


def displacement(files: Files, path: Path, identity: FileIdentity) -> str | None:
    """Return why a path does not lead to this file any more, or None."""
    try:
        return None if files.identity_at(path) == identity else f"{path} is another file now"
    except OSError as error:
        return f"{path}: {error.strerror or error}"
