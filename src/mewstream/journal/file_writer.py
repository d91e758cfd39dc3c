"""Writing a partition of files from an event loop: small batches at once, large batches and syncs in threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from mewstream.journal.partition import Partition
from mewstream.journal.settings import JournalSettings
from mewstream.protocol.records import FrameBlock, Record

#: With durability ``none`` and ``flush`` nobody waits for the disk. It is asked to write whenever this much has been
#: written since the last time, so that the sync at the end of a segment does not take long.
WRITE_BACK_BYTES = 4 << 20
#: When this many times ``flush_bytes`` wait for the writing thread, the event loop waits for it too.
MAX_WAITING = 4


@dataclass(frozen=True, slots=True)
class WriterHost:
    """What the writers of one journal share, and whom they report to."""

    loop: asyncio.AbstractEventLoop
    settings: JournalSettings
    write_thread: Executor
    sync_thread: Executor
    on_progress: Callable[[FileWriter], None]
    on_failure: Callable[[BaseException], None]


class FileWriter:
    """The :class:`~mewstream.journal.interface.Writer` of a :class:`Partition`."""

    def __init__(self, partition: Partition, epoch: str, host: WriterHost) -> None:
        self.epoch = epoch
        self.partition = partition
        self.is_paused = False
        """The journal fails or is being closed: nothing is written until that is over."""
        self.is_syncing = False
        self._host = host
        self._flush_bytes = host.settings.flush_bytes
        self._must_sync = host.settings.durability == "fsync"
        self._writing: Future[None] | None = None
        self._is_rolling = False
        """The writing thread begins a new segment; until it has, nothing can be synced."""
        self._is_closed = False

    @property
    def end_offset(self) -> int:
        return self.partition.end_offset

    @property
    def committed_offset(self) -> int:
        return self.partition.synced_offset if self._must_sync else self.partition.next_offset

    @property
    def has_waiting(self) -> bool:
        return self.partition.pending_bytes > 0

    @property
    def must_flush(self) -> bool:
        return self.partition.pending_bytes >= self._flush_bytes

    def append(self, space: str, record: Record | FrameBlock) -> int:
        return self.partition.append(space, self.epoch, record)

    def flush(self, *, urgent: bool) -> None:
        """Few records are written at once. Many take a while to compress and write: unless they are urgent, a thread
        does that, one batch at a time, and what is appended meanwhile waits, up to a limit."""
        if self.is_paused:
            return
        try:
            if urgent or self._should_write_now():
                self.write_waiting()
            else:
                if self._writing is None:
                    self.partition.prepare()
                    self._write_in_thread(self.partition.write)
                return
        except Exception as error:
            self._host.on_failure(error)
        else:
            self._has_written()

    def _should_write_now(self) -> bool:
        if self._writing is not None:
            return self.partition.pending_bytes >= MAX_WAITING * self._flush_bytes
        return not self.partition.must_compress

    def write_waiting(self) -> None:
        """Write everything that waits, on the event loop. Raises whatever goes wrong."""
        if self._writing is not None:
            self._finish_writing()
        self.partition.flush(may_roll=False)

    def close(self) -> None:
        """Write and sync everything. Raises whatever goes wrong. The threads have ended before, but the event loop may
        be told of that only afterwards."""
        self._is_closed = True
        with contextlib.suppress(Exception):
            self._finish_writing()  # what the thread could not write is written below
        self.partition.flush()
        self.partition.sync()
        self.has_synced()

    # -- in the writing thread --------------------------------------------------------------------

    def _write_in_thread(self, task: Callable[[], None]) -> None:
        writing = self._writing = self._host.write_thread.submit(task)
        writing.add_done_callback(lambda _: self._host.loop.call_soon_threadsafe(self._thread_has_written, writing))

    def _thread_has_written(self, writing: Future[None]) -> None:
        if self._writing is not writing:
            return  # a flush, or the close, has waited for it
        try:
            self._finish_writing()
        except Exception as error:
            self._host.on_failure(error)
        else:
            self._has_written()

    def _finish_writing(self) -> None:
        """Wait for the writing thread, if it is at work, and raise what went wrong there."""
        writing, self._writing = self._writing, None
        self._is_rolling = False
        if writing is not None:
            writing.result()
            self.partition.finish()

    def _has_written(self) -> None:
        """Report the progress. If the segment is full, begin a new one, which syncs the old one; otherwise sync if it
        is time for that. If a batch is being written, this is called again after it."""
        partition = self.partition
        if self.is_syncing or self._is_rolling or self.is_paused:
            pass
        elif partition.is_full:
            if self._writing is None:
                self._is_rolling = True
                self._write_in_thread(partition.roll)
        elif partition.unsynced if self._must_sync else partition.unsynced_bytes >= WRITE_BACK_BYTES:
            self._sync_in_thread()
        self._host.on_progress(self)

    # -- in the syncing thread --------------------------------------------------------------------

    def sync(self) -> None:
        """Sync what is written, as the settings demand, and begin a new segment if this one is full. May be called in a
        thread while the writer is paused."""
        if self.partition.is_full:
            self.partition.roll()
        if self._must_sync:
            self.partition.sync()

    def has_synced(self) -> None:
        """Call this after :meth:`sync`."""
        self.partition.synced(self.partition.unsynced)

    def _sync_in_thread(self) -> None:
        self.is_syncing = True
        self.partition.unsynced_bytes = 0
        batches = self.partition.unsynced
        future = self._host.loop.run_in_executor(self._host.sync_thread, self.partition.sync, batches)
        future.add_done_callback(lambda future: self._thread_has_synced(batches, future))

    def _thread_has_synced(self, batches: int, future: asyncio.Future[None]) -> None:
        self.is_syncing = False
        if self._is_closed:
            return  # everything was synced once more
        error = future.exception()
        if error is not None:
            self._host.on_failure(error)
            return
        self.partition.synced(batches)
        self._has_written()
