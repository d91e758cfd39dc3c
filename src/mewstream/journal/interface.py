"""What the gateway uses of a journal, whatever keeps the records: files on this machine, or another implementation.

A journal has a fixed number of partitions, and every space always belongs to the same one. The gateway asks for the
state of every space (:class:`Recovery`), appends records to the partition of their space (:class:`Writer`), and reads
them back for participants (:class:`Reader`). Snapshots and retention happen in the background: from the moment it is
started, a journal drives its own :class:`SnapshotStore` and its own :class:`Pruning`.

Methods are called on the event loop, except where a docstring says that a thread may call them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from mewstream.protocol.records import Frame, FrameBlock, Record
from mewstream.protocol.state import SpaceState

States = Callable[[], Mapping[str, SpaceState]]
"""Returns the current state of every space in the journal, including spaces that are not configured any more."""


class Entry(NamedTuple):
    """A record with its place in the journal."""

    offset: int
    space: str
    epoch: str
    record: Record
    size: int = 0
    """The bytes of its detail and its data."""


class Usage(NamedTuple):
    """How much room the journal takes, and how much is left for it."""

    bytes: int
    free_bytes: int


class Writer(Protocol):
    """The writing end of one partition.

    Appended records wait in memory until :meth:`flush` is called, which only begins to make them durable. The writer
    reports that through :meth:`Listener.progressed`, and ``committed_offset`` says how far it has come. While the
    journal fails, records wait and a flush does nothing.
    """

    epoch: str
    """Names this run of the partition: records of an earlier or a competing run carry another name."""

    @property
    def end_offset(self) -> int:
        """The offset after the last appended record."""

    @property
    def committed_offset(self) -> int:
        """Every record below this offset is as durable as the settings demand."""

    @property
    def has_waiting(self) -> bool:
        """Whether records wait for a flush."""

    @property
    def must_flush(self) -> bool:
        """Whether enough records wait that a flush should not wait for more of them."""

    def append(self, space: str, record: Record | FrameBlock) -> int:
        """Add a record, or a block of frames, and return the bytes of its detail and its data.

        Raises :class:`~mewstream.journal.errors.RecordTooLarge` for a record that could never be written; nothing has
        been added then."""

    def flush(self, *, urgent: bool) -> None:
        """Begin to write what waits. An urgent flush includes every record appended so far, because somebody waits for
        them to be committed or to be read; otherwise a busy writer may leave some of them for the next flush."""


class Reader(Protocol):
    """Reads committed records. Threads may call it."""

    on_read: Callable[[int], None]
    """Called with the size in bytes of each batch that is read, in whichever thread reads it."""

    def read(self, space: str, after: int) -> Iterator[Entry]:
        """Return the records of a space above a ``seq``, in order, including all that was flushed before this call.

        Raises :class:`~mewstream.journal.errors.PositionGone` if the first of them was pruned, and
        :class:`~mewstream.journal.errors.CorruptJournal` rather than leaving out a record."""

    def frames(
        self, space: str, stream_id: str, after: int, upto: int, *, with_data: bool = True
    ) -> Iterator[tuple[int, list[Frame]]]:
        """Return the frames of a stream above ``after``, in order, in portions with the ``seq`` that is reached: up to
        ``upto``, or all that was flushed before this call. Without ``with_data`` they have only their numbers and
        readers. Raises as :meth:`read` does."""

    def seq_before(self, space: str, micros: int) -> int:
        """Return the last ``seq`` of a space before a time in microseconds, or 0."""


class Recovery(Protocol):
    def recover(self) -> dict[str, SpaceState]:
        """Return the state of every space in the journal: the newest snapshot, and the records after it applied."""


class SnapshotStore(Protocol):
    """Keeps the states of a partition's spaces at one offset, so that a start need not apply the whole log."""

    def snapshot_offsets(self) -> Mapping[int, int]:
        """Return for each partition the offset of its newest usable snapshot, or 0."""

    def prepare_snapshot(self, partition: int, states: Mapping[str, SpaceState]) -> Callable[[], None]:
        """Encode the states of a partition at its ``end_offset``. Calling the result saves the snapshot; a thread may
        do that, once every record below that offset is committed."""


class Pruning(Protocol):
    def prune(self) -> None:
        """Remove the oldest records, as far as the retention settings ask for it. Called in a thread.

        It keeps what a start needs and, up to a limit, what a named consumer has not read."""


class Listener(Protocol):
    """What a journal reports to its user."""

    def progressed(self, writer: Writer) -> None:
        """Some records of this partition were written or committed."""

    def failed(self, error: BaseException) -> None:
        """Something could not be written. The journal tries again by itself; more failures may be reported until it
        has recovered."""

    def recovered(self) -> None:
        """All records that waited when the journal failed are committed, and flushing works again."""


class Journal(Recovery, Protocol):
    @property
    def reader(self) -> Reader: ...

    def writer_of(self, space: str) -> Writer:
        """Return the writer of the partition that a space belongs to: the same object for as long as it is open."""

    def start(self, listener: Listener, states: States) -> None:
        """Begin to write. Call this after :meth:`recover`, and before the first record is appended."""

    def usage(self) -> Usage | None:
        """Return the size of the journal, or None if it cannot be found out. A thread may call this."""

    def consumer_lag(self) -> dict[str, int]:
        """Return for each named consumer how many committed records it has not read. A thread may call this."""

    def close(self) -> None:
        """Commit everything that waits, save a snapshot of it, and let another gateway use the journal."""
