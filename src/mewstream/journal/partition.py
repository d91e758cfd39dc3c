"""One partition being written: records wait, are written as one batch, and are synced if asked."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from mewstream.journal.errors import CorruptJournal, JournalError
from mewstream.journal.files import FileIdentity, Files
from mewstream.journal.listing import abandoned_in, list_names, list_once
from mewstream.journal.rows import Rows
from mewstream.journal.schema import SCHEMA
from mewstream.journal.sealing import compressed, remove_segment, spaces_in, write_again
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
#: Most columns of many frames are constant: to compress them costs less than to write them.
COMPRESSED_ROWS = 512
#: More become several batches: to encode one takes the time of the loop, where everyone waits for it. And a column of
#: Arrow holds less than 2 GiB, so that a batch of whatever may come together could not be encoded at all.
BATCH_ROWS = 4096
BATCH_BYTES = 16 << 20


@dataclass(slots=True)
class _Write:
    """Rows that have their place in a segment. Where they could not be written, they are written there later."""

    rows: pa.RecordBatch
    last_ts: int
    data: memoryview | None = None
    entry: BatchEntry | None = None


class Partition:
    """The writing end. Not thread-safe but for :meth:`write`, :meth:`sync` and :meth:`seal`, each of which may
    run beside the loop (one call of it at a time): what they touch does not change meanwhile. So may :meth:`roll`,
    while there is neither a write nor a sync."""

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
        """Each becomes a batch; the last one is being filled."""
        self._pending_bytes = 0
        self._prepared: _Write | None = None
        self._synced_commits = synced_commits
        self._unsynced: list[tuple[int, memoryview, BatchEntry]] = []
        self.unsynced_bytes = 0
        """Written since a sync was begun."""
        self._sync_failed = False
        self._data = self._index = -1
        self._place: dict[Path, FileIdentity] = {}
        """Where the open files are, for whoever looks whether they still are there."""
        self._entries = 0
        self._size = 0
        self._first_offset = 0
        self.next_offset = 0
        """Of the next record that will be written; those that wait come after it."""
        self.synced_offset = 0
        """Everything below is on the disk for certain."""
        self.closed: list[SegmentName] = []
        """Full segments that wait to be sealed."""
        directory.mkdir(parents=True, exist_ok=True)
        self._recover(begins_at, is_new)

    # -- writing ----------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        return sum(rows.count for rows in self._pending) + (self._prepared.rows.num_rows if self._prepared else 0)

    @property
    def pending_bytes(self) -> int:
        """Of those that no :meth:`prepare` has taken yet."""
        return self._pending_bytes

    @property
    def fills_a_batch(self) -> bool:
        """So many wait that to compress and write them takes a while."""
        return self._pending[0].count >= COMPRESSED_ROWS

    @property
    def has_full_batch(self) -> bool:
        return self._pending[0].count >= BATCH_ROWS or len(self._pending) > 1

    def append(self, space: str, epoch: str, record: Record) -> int:
        """Returns the bytes of its detail and its data. Raises where it can never be written: nothing has changed."""
        rows = self._rows()
        before = rows.size
        size = rows.append(space, epoch, record)
        self._pending_bytes += rows.size - before
        return size

    def extend(self, space: str, epoch: str, block: FrameBlock, data_bytes: int) -> None:
        rows = self._rows()
        before = rows.size
        rows.extend(space, epoch, block, data_bytes)
        self._pending_bytes += rows.size - before

    def _rows(self) -> Rows:
        rows = self._pending[-1]
        if rows.count >= BATCH_ROWS or rows.size >= BATCH_BYTES:
            rows = Rows()
            self._pending.append(rows)
        return rows

    def flush(self, *, may_roll: bool = True) -> None:
        """Write what waits. After an error it still waits, and nothing of it counts.
        ``may_roll`` False: a sync is under way, so the files must stay open."""
        while self.pending:
            if self.is_full and may_roll and self._prepared is None:
                self.roll()
            self.prepare()
            self.write()
            self.finish()

    @property
    def is_full(self) -> bool:
        """The segment has had enough: the next batch belongs in a new one. An empty one never has."""
        return self._entries > 0 and self._size >= self._segment_bytes

    @property
    def end_offset(self) -> int:
        """Of the record after all that were appended, those that wait included."""
        return self.next_offset + self.pending

    def prepare(self) -> None:
        """Give the first of what waits its place, as one batch; one that could not be written comes before it."""
        rows = self._pending[0]
        if self._prepared is None and rows.count:
            try:
                encoded = rows.encode(self.next_offset)
            except Exception as error:
                last = self.next_offset + rows.count - 1
                raise JournalError(
                    f"{self.directory}: the records for offset {self.next_offset} to {last} cannot be encoded "
                    f"({error!r}). They are refused for good: restart the gateway to go on without them"
                ) from error
            self._prepared = _Write(encoded, rows.last_ts)
            self._pending_bytes -= rows.size
            self._pending.popleft()
            if not self._pending:
                self._pending.append(Rows())

    def write(self) -> None:
        """Write the batch that was prepared."""
        batch = self._prepared
        if batch is None:
            return
        rows = batch.rows
        data = compressed(rows) if rows.num_rows >= COMPRESSED_ROWS else memoryview(rows.serialize())
        entry = entry_for(data, self._size, self.next_offset, rows.num_rows, batch.last_ts)
        # A torn write before this position is simply written over the next time.
        self._files.write_at(self._data, data, self._size)
        if not self._synced_commits:
            self._files.write_at(self._index, entry.encode(), self._entries * ENTRY_BYTES)
        batch.data, batch.entry = data, entry

    def finish(self) -> None:
        """The batch that was prepared has been written: it counts."""
        batch, self._prepared = self._prepared, None
        if batch is None:
            return
        assert batch.data is not None and batch.entry is not None, "finished before it was written"
        if self._synced_commits:
            self._unsynced.append((self._entries, batch.data, batch.entry))
        self._size += batch.entry.length
        self.unsynced_bytes += batch.entry.length
        self._entries += 1
        self.next_offset += batch.rows.num_rows

    def sync(self, batches: int | None = None) -> None:
        """Everything that was flushed is on the disk after this; with ``synced_commits``, so many of the
        batches that were not. An entry in the index makes a batch count, so its data comes first."""
        if self._sync_failed:
            # What a failed sync has done to the pages is unknown, and a second one would not tell.
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
        """How many batches a sync that begins now would make safe."""
        return len(self._unsynced)

    def synced(self, batches: int) -> None:
        """So many batches are safe now."""
        del self._unsynced[:batches]

    def close(self) -> None:
        self._files.close(self._data)
        self._files.close(self._index)

    def roll(self) -> None:
        """The segment is full: go on in a new one. The old one is synced first, so that only the
        last segment can ever have a torn tail. Where that fails, the old one is still in use."""
        self.sync()
        self._unsynced.clear()
        self.unsynced_bytes = 0
        data, index = self._create(self.next_offset)
        self.close()
        self.closed.append(SegmentName(self._first_offset, sealed=False))
        self._use(data, index, self.next_offset)
        self.synced_offset = self.next_offset

    def _begin(self, first_offset: int) -> None:
        self._use(*self._create(first_offset), first_offset)

    def _create(self, first_offset: int) -> tuple[int, int]:
        """An empty segment on disk, as open files of data and index."""
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

    def _use(self, data: int, index: int, first_offset: int) -> None:
        self._data, self._index = data, index
        self._first_offset = first_offset
        self._note_place()
        self._size = len(HEADER)
        self._entries = 0

    def _note_place(self) -> None:
        name = SegmentName(self._first_offset, sealed=False)
        self._place = {
            self.directory / name.data_file: self._files.identity(self._data),
            self.directory / name.index_file: self._files.identity(self._index),
        }

    def displaced(self) -> str | None:
        """What is not in its place any more of the files that are written to; may be asked in a thread."""
        while True:
            place = self._place
            for path, identity in place.items():
                flaw = displacement(self._files, path, identity)
                if flaw is not None and self._place is place:
                    return flaw
            if self._place is place:
                return None

    # -- recovery ---------------------------------------------------------------------------------

    def _recover(self, begins_at: int, is_new: bool) -> None:
        """Find the end of what was committed, cut off what was not, and go on from there.
        ``begins_at`` is the first offset that was not pruned."""
        segments = list_once(_LOCAL, str(self.directory))
        while len(segments) > 1 and segments[1].name.first_offset <= begins_at:
            # A crash fell between deciding to prune this one and removing it.
            remove_segment(self._files, segments.pop(0))
        if segments and segments[0].name.first_offset > begins_at:
            first = segments[0].name.first_offset
            raise CorruptJournal(segments[0].data_path, begins_at, f"records {begins_at} to {first - 1} are missing")
        for abandoned in abandoned_in(segments):
            remove_segment(self._files, abandoned)
            segments.remove(abandoned)
        for before, after in itertools.pairwise(segments):
            if before.flaw is not None:
                raise before.damage()
            if after.name.first_offset != before.next_offset:
                raise CorruptJournal(
                    after.data_path,
                    before.next_offset,
                    f"records {before.next_offset} to {after.name.first_offset - 1} are missing"
                    if after.name.first_offset > before.next_offset
                    else "this segment repeats records of the one before it",
                )
        for segment in segments:
            if segment.name.sealed:
                self._remove_unsealed(segment.name)
        self._remove_leftovers({segment.name for segment in segments})
        if not segments:
            if not is_new:
                raise CorruptJournal(str(self.directory), begins_at, "every segment is missing")
            self._begin(0)
            return
        last = segments[-1]
        if last.name.sealed:
            # A segment is sealed when the next one has been begun.
            raise CorruptJournal(last.data_path, last.next_offset, "the segment after this one is missing")
        has_all_columns = self._reopen(last)
        self.closed = [segment.name for segment in segments[:-1] if not segment.name.sealed]
        if not has_all_columns:
            # An older version wrote it: what is written now has other columns.
            self.roll()

    def _reopen(self, segment: Segment) -> bool:
        """Go on in a segment that was being written. Only what was never committed is cut off. Whether it has the
        columns of this version."""
        if segment.flaw is not None and not segment.is_torn:
            raise segment.damage()
        sound, schema = self._sound_batches(segment)
        batches = segment.batches[:sound]
        self._first_offset = segment.name.first_offset
        self._data = self._files.open(self.directory / segment.name.data_file)
        self._index = self._files.open(self.directory / segment.name.index_file)
        end = batches[-1].position + batches[-1].length if batches else len(HEADER)
        if not batches:
            self._files.write_at(self._data, HEADER, 0)
        torn = self._files.size(self._data) - end
        if torn > 0 or segment.flaw is not None:
            log.warning("%s: cut off %d bytes that were never committed", segment.data_path, max(torn, 0))
        self._files.truncate(self._data, end)
        self._files.truncate(self._index, len(batches) * ENTRY_BYTES)
        self._files.sync(self._data)
        self._files.sync(self._index)
        self._note_place()
        self._size = end
        self._entries = len(batches)
        self.next_offset = batches[-1].last_offset + 1 if batches else segment.name.first_offset
        self.synced_offset = self.next_offset
        return not batches or schema is SCHEMA

    def _sound_batches(self, segment: Segment) -> tuple[int, pa.Schema]:
        """How many batches of the last segment count, and their columns. Without syncing, an index entry can reach
        the disk and its data not when the power fails: then the last batches are bad, and none after them is
        sound. Their bytes are kept aside and the loss is reported. Anything else is damage."""
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
                log.error(
                    "%s; offsets %d to %d are lost, their bytes are kept in %s",
                    flaw,
                    first.first_offset,
                    segment.batches[-1].last_offset,
                    aside,
                )
        return count, schema

    def _remove_unsealed(self, name: SegmentName) -> None:
        unsealed = SegmentName(name.first_offset, sealed=False)
        self._files.remove(self.directory / unsealed.index_file)
        self._files.remove(self.directory / unsealed.data_file)

    def _remove_leftovers(self, names: set[SegmentName]) -> None:
        """Of a crash while a segment was sealed, pruned or a file replaced: data without its index."""
        for file in self.directory.iterdir():
            stem, _, kind = file.name.partition(".")
            sealed = kind in ("sealed.arrow", "sealed.spaces") and stem.isdecimal()
            sealed = sealed and SegmentName(int(stem), sealed=True) not in names
            if sealed or kind.endswith("tmp"):
                self._files.remove(file)

    # -- sealing ----------------------------------------------------------------------------------

    def seal(self, name: SegmentName, give_way: Callable[[], None] = lambda: None) -> None:
        """Rewrite a full segment with large compressed batches. May run in a thread: the segment is
        written no more. A reader sees the old one or the new one, for the new index comes last.
        ``give_way`` is called before each large batch, for it may wait until there is nothing better to do."""
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
        """Sealed segments that do not say what they hold of each space: an older version has sealed them."""
        names = list_names(_LOCAL, str(self.directory))
        return [name for name in names if name.sealed and not (self.directory / name.spaces_file).exists()]

    def index_spaces(self, name: SegmentName) -> None:
        """Write beside a sealed segment what it holds of each space, where an older version did not."""
        segment = read_segment(_LOCAL, str(self.directory), name)
        if segment.flaw is None:
            self._files.replace(self.directory / name.spaces_file, spaces_in(segment).encode())


def displacement(files: Files, path: Path, identity: FileIdentity) -> str | None:
    """Why a name does not lead to a file any more, or None."""
    try:
        return None if files.identity_at(path) == identity else f"{path} is another file now"
    except OSError as error:
        return f"{path}: {error.strerror or error}"
