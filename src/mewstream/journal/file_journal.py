"""The journal on local files, as a gateway runs it: it writes, recovers from failures, and watches its directory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from mewstream.io.log_lines import event
from mewstream.journal.background import BackgroundThread
from mewstream.journal.erase import refuse_half_erased
from mewstream.journal.errors import JournalDisplaced, JournalError
from mewstream.journal.file_writer import FileWriter, WriterHost
from mewstream.journal.files import Files
from mewstream.journal.interface import Listener, States, Usage
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import partition_of
from mewstream.journal.retention import consumers, plan_pruning
from mewstream.journal.sealer import Sealer
from mewstream.journal.settings import JournalSettings
from mewstream.journal.upkeep import PruneSchedule, SnapshotSchedule
from mewstream.protocol.state import SpaceState

log = logging.getLogger("mewstream.journal")

RETRY_SECONDS = 1.0
#: An error that the disk did not cause is unlikely to go away by itself, so the delay doubles up to this.
MAX_RETRY_SECONDS = 60.0
#: How often the journal checks that the data directory is still in its place.
WATCH_SECONDS = 1.0


class FileJournal:
    """Implements :class:`~mewstream.journal.interface.Journal` with a :class:`LocalJournal`."""

    def __init__(self, data: Path, settings: JournalSettings, files: Files | None = None) -> None:
        self.local = LocalJournal(
            data,
            partitions=settings.partitions,
            segment_bytes=settings.segment_bytes,
            synced_commits=settings.durability == "fsync",
            files=files,
        )
        self.reader = self.local.reader
        self.writers: list[FileWriter] = []
        self._settings = settings

    def recover(self) -> dict[str, SpaceState]:
        refuse_half_erased(self.local.root)
        return self.local.recover()

    def start(self, listener: Listener, states: States) -> None:
        self._listener = listener
        loop = self._loop = asyncio.get_running_loop()
        # Each kind of work has a thread, so that none waits for work that can wait longer.
        self._write_thread = ThreadPoolExecutor(1, "journal-write")
        self._sync_thread = ThreadPoolExecutor(1, "journal-sync")
        self._watch_thread = ThreadPoolExecutor(1, "journal-watch")
        self._snapshot_thread = BackgroundThread("journal-snapshot", loop)
        # Sealing and pruning both touch full segments, so they must take turns.
        self._segment_thread = BackgroundThread("journal-seal", loop)
        host = WriterHost(loop, self._settings, self._write_thread, self._sync_thread, self._progressed, self._failed)
        self.writers = [FileWriter(partition, self.local.epoch, host) for partition in self.local.partitions]
        self._numbers = {writer: number for number, writer in enumerate(self.writers)}
        self.snapshots = SnapshotSchedule(
            self.local, self.writers, states, self._snapshot_thread, every=self._settings.snapshot_every
        )
        self.sealer = Sealer(self.local, self._segment_thread)
        self._pruning = PruneSchedule(self, self._segment_thread)
        self._is_failing = False
        self._is_closing = False
        self._retry_timer: asyncio.TimerHandle | None = None
        self._retry_seconds = RETRY_SECONDS
        self._is_displaced = False
        self._watch_timer = loop.call_later(WATCH_SECONDS, self._watch)
        self._watching: Future[str | None] | None = None

    def writer_of(self, space: str) -> FileWriter:
        return self.writers[partition_of(space, len(self.writers))]

    def _progressed(self, writer: FileWriter) -> None:
        if writer.partition.closed:
            self.sealer.seal_soon()
        self.snapshots.progressed(self._numbers[writer])
        self._listener.progressed(writer)

    def prune(self) -> None:
        """See :class:`~mewstream.journal.interface.Pruning`."""
        plan = plan_pruning(
            self.local.root,
            self._settings.retention,
            now=time.time_ns() // 1000,
            partitions=len(self.local.partitions),
            snapshots=self.local.snapshot_offsets(synced=True),
        )
        for alarm in plan.alarms:
            log.warning("%s", alarm, extra=event("consumer_behind"))
        if plan.segments:
            self.local.prune(plan)
            log.info("pruned %d segments, %d bytes", len(plan.segments), plan.bytes, extra=event("journal_pruned"))

    def usage(self) -> Usage | None:
        """See :class:`~mewstream.journal.interface.Journal`."""
        try:
            return Usage(_size_below(self.local.root), shutil.disk_usage(self.local.root).free)
        except OSError:
            return None

    def consumer_lag(self) -> dict[str, int]:
        """See :class:`~mewstream.journal.interface.Journal`."""
        try:
            named = consumers(self.local.root)
        except (JournalError, OSError):
            return {}  # retention says what is wrong with them
        ends = {number: partition.next_offset for number, partition in enumerate(self.local.partitions)}
        begins = self.local.identity.pruned
        return {
            name: sum(
                max(end - max(consumer.offsets.get(number, 0), begins.get(number, 0)), 0)
                for number, end in ends.items()
            )
            for name, consumer in named.items()
        }

    # -- failing and recovering -------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        """Stop writing, and try again later. Whatever goes wrong on the way to the disk is a failure of the journal."""
        if not self._is_failing:
            self._is_failing = True
            self._retry_seconds = RETRY_SECONDS
            for writer in self.writers:
                writer.is_paused = True
        elif not isinstance(error, OSError | MemoryError | JournalDisplaced):
            self._retry_seconds = min(2 * self._retry_seconds, MAX_RETRY_SECONDS)
        self._retry_later(self._retry_seconds)
        self._listener.failed(error)

    def _retry_later(self, seconds: float) -> None:
        if not self._is_closing and self._retry_timer is None:
            self._retry_timer = self._loop.call_later(seconds, self._retry)

    def _retry(self) -> None:
        """Write everything that waits. The journal has recovered when all of it is committed."""
        self._retry_timer = None
        if self._is_displaced or any(writer.is_syncing for writer in self.writers):
            self._retry_later(RETRY_SECONDS)
            return
        try:
            for writer in self.writers:
                writer.write_waiting()
        except Exception as error:
            self._failed(error)
            return
        self._loop.run_in_executor(self._sync_thread, self._sync_all).add_done_callback(self._retried)

    def _sync_all(self) -> None:
        for writer in self.writers:
            writer.sync()

    def _retried(self, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._failed(error)
            return
        for writer in self.writers:
            writer.has_synced()
        if self._is_displaced:
            self._retry_later(RETRY_SECONDS)
            return
        self._is_failing = False
        for writer in self.writers:
            writer.is_paused = False
        self._listener.recovered()

    # -- the data directory -----------------------------------------------------------------------

    def _watch(self) -> None:
        """Check regularly that the data directory is in its place. One that was removed or replaced can still be
        written to, but what is written could never be read."""
        self._watch_timer = self._loop.call_later(WATCH_SECONDS, self._watch)
        if self._watching is None or self._watching.done():
            watching = self._watching = self._watch_thread.submit(self.local.displaced)
            watching.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._watched, watching.result()))

    def _watched(self, displaced: str | None) -> None:
        is_displaced = displaced is not None
        if self._is_closing or is_displaced == self._is_displaced:
            return
        self._is_displaced = is_displaced
        # Whatever is in its place now must not be touched.
        self._snapshot_thread.is_held = self._segment_thread.is_held = is_displaced
        if displaced is None:
            log.warning("the data directory is in its place again", extra=event("data_directory_back"))
        else:
            self._failed(JournalDisplaced(displaced))

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        if not self.writers:  # it was not started
            self.local.close()
            return
        self._is_closing = True
        self._stop_background_work()
        for thread in (self._write_thread, self._sync_thread, self._watch_thread):
            thread.shutdown()
        displaced = self.local.displaced()
        if displaced is not None:
            # What is written now would be lost, or would damage the files that are in its place.
            log.error("the end of the journal could not be written: %s", displaced, extra=event("journal_end_lost"))
            self.local.release()
            return
        try:
            for number, writer in enumerate(self.writers):
                writer.close()
                self._listener.progressed(writer)
                self.snapshots.save_last(number)
        except Exception as error:
            log.error(
                "the end of the journal could not be written: %s",
                str(error) or repr(error),
                extra=event("journal_end_lost"),
            )
        self.local.close()

    def _stop_background_work(self) -> None:
        """From now on only :meth:`close` writes records. Snapshots and sealings that were begun are finished."""
        for writer in self.writers:
            writer.is_paused = True
        self._watch_timer.cancel()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._pruning.close()
        self.sealer.close()
        self.snapshots.close()
        self._snapshot_thread.close()
        self._segment_thread.close()


def _size_below(directory: Path) -> int:
    """The bytes of all files below a directory. Files may come and go meanwhile."""
    total = 0
    for file in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total
