"""The reader sets of frames. A set is written once, by the record that made it; a frame names the seq of that record.

Pruning removes such records while later frames still refer to them. So it leaves a file behind, ``readers-N.json``,
with the sets in force at offset N, where the partition begins now. A frame refers to the set in force at its own
place, so no frame from there on can refer to any other set that was removed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.journal.checked import CheckedFile
from mewstream.journal.errors import CorruptJournal, PositionGone
from mewstream.journal.interface import Entry
from mewstream.journal.schema import decode
from mewstream.journal.segments import read_file
from mewstream.protocol.records import ReadGranted, ReadRevoked, Record, StreamEnded, StreamOpened

if TYPE_CHECKING:
    from mewstream.journal.reader import JournalReader

#: How many names of readers are kept in memory, in all sets together.
MAX_CACHED_NAMES = 200_000

#: The records that make or end a reader set, and the tombstones that may stand where such a record was.
_CHANGES = pa.array(["stream-opened", "read-granted", "read-revoked", "stream-ended", "erased"])

Readers = tuple[str, ...]


def set_made_by(record: Record) -> tuple[str, Readers] | None:
    """Return the stream and the readers if this record made a reader set, or None."""
    if isinstance(record, StreamOpened | ReadGranted | ReadRevoked) and record.authorized_readers is not None:
        return record.stream_id, tuple(record.authorized_readers)
    return None


class SetsInForce(CheckedFile):
    """The reader sets in force at one offset of a partition. ``sets`` has, for each space and stream, the ``seq`` of
    the record that made the set, and the readers."""

    journal: str
    offset: int
    sets: dict[str, dict[str, tuple[int, Readers]]] = msgspec.field(default_factory=dict)

    @staticmethod
    def file_name(offset: int) -> str:
        return f"readers-{offset:020d}.json"

    def apply(self, entry: Entry) -> None:
        """Apply one of the records that :func:`changes_in` yields."""
        record = entry.record
        streams = self.sets.setdefault(entry.space, {})
        if (made := set_made_by(record)) is not None:
            stream_id, readers = made
            streams[stream_id] = record.seq, readers
        elif isinstance(record, StreamOpened | StreamEnded):
            streams.pop(record.stream_id, None)
        elif not isinstance(record, ReadGranted):  # a tombstone: everything before it in the space is erased
            streams.clear()


def changes_in(rows: pa.RecordBatch) -> Iterator[Entry]:
    """Yield the records of a batch that can change a reader set."""
    return decode(rows.filter(pc.is_in(rows.column("record"), _CHANGES)))


class ReaderSets:
    """Looks up the sets that frames refer to. Several threads may use it."""

    def __init__(self, filesystem: fs.FileSystem, reader: JournalReader) -> None:
        self._fs = filesystem
        self._reader = reader
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str, int], Readers] = OrderedDict()
        self._names = 0

    def note(self, space: str, record: Record) -> None:
        """Remember the set that a record made, if it did: the frames after it refer to that set."""
        if (made := set_made_by(record)) is not None:
            self._remember((space, made[0], record.seq), made[1])

    def made_by(self, space: str, stream_id: str, seq: int) -> Readers:
        """Return the readers that a record set for a stream. Raises :class:`CorruptJournal` if they are not known."""
        key = (space, stream_id, seq)
        with self._lock:
            readers = self._known.get(key)
            if readers is not None:
                self._known.move_to_end(key)
                return readers
        readers = self._find(*key)
        self._remember(key, readers)
        return readers

    def _remember(self, key: tuple[str, str, int], readers: Readers) -> None:
        with self._lock:
            if key not in self._known:
                self._known[key] = readers
                self._names += len(readers) + 1
            while self._names > MAX_CACHED_NAMES and len(self._known) > 1:
                _, forgotten = self._known.popitem(last=False)
                self._names -= len(forgotten) + 1

    def _find(self, space: str, stream_id: str, seq: int) -> Readers:
        try:
            entry = next(self._reader.read(space, seq - 1, with_readers=False), None)
        except PositionGone:
            entry = None
        if entry is not None and entry.record.seq == seq:
            made = set_made_by(entry.record)
            if made is not None and made[0] == stream_id:
                return made[1]
        return self._find_carried(space, stream_id, seq)

    def _find_carried(self, space: str, stream_id: str, seq: int) -> Readers:
        """Find a set in the file that pruning has left behind."""
        number = self._reader.partition_of(space)
        directory = self._reader.directory(number)
        what = f"the readers that seq {seq} of {space!r} set for {stream_id} are not known any more"
        for _ in range(2):  # the journal may be pruned again between reading the two files
            offset = self._reader.identity().pruned.get(number, 0)
            file = f"{directory}/{SetsInForce.file_name(offset)}"
            try:
                carried = SetsInForce.parse(read_file(self._fs, file))
            except FileNotFoundError:
                continue
            except ValueError as flaw:
                raise CorruptJournal(file, offset, f"{what}: {flaw}") from None
            made_at, readers = carried.sets.get(space, {}).get(stream_id, (0, ()))
            if made_at == seq:
                return readers
            break
        raise CorruptJournal(directory, offset, what)
