"""Between the spaces and the journal: group commit, durability, and what happens when a disk fails.

| durability | a control message is told to anyone | a killed gateway loses | a lost power loses |
|---|---|---|---|
| `none`  | at once | up to `flush_interval` of everything | what the system had not written |
| `flush` | after the operating system has it | up to `flush_interval` of frames | what the system had not written |
| `fsync` | after the disk has it | up to `flush_interval` of frames | up to `flush_interval` of frames |

Frames that are being written or synced count as not written.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from mewstream.gateway.metrics import Metrics
from mewstream.gateway.upkeep import Upkeep
from mewstream.journal.local import LocalJournal
from mewstream.journal.partition import Partition
from mewstream.journal.schema import Entry
from mewstream.journal.settings import JournalSettings
from mewstream.protocol.records import FrameBlock, Record
from mewstream.protocol.state import SpaceState

log = logging.getLogger("mewstream.gateway")

RETRY_SECONDS = 1.0
#: What is no error of a disk will hardly go away: it is tried again ever more seldom, up to this.
LONGEST_RETRY_SECONDS = 60.0
#: How often it is looked whether the data directory is still in its place.
WATCH_SECONDS = 1.0
#: Where nobody waits for the disk, it is asked to write in such pieces, so that the end of a segment does not wait.
WRITE_BACK_BYTES = 4 << 20
#: So many times ``flush_bytes`` may wait for the thread that writes; then the loop waits too.
MOST_WAITING = 4


class Recorder(Protocol):
    """What a space needs of the log under it."""

    epoch: str
    failing: bool

    def append(self, space: str, record: Record) -> int:
        """Returns the bytes of its JSON and its data; 0 where nobody knows. Raises where it can never be recorded."""
        ...

    def extend(self, space: str, block: FrameBlock, data_bytes: int) -> None: ...

    def commit(self, space: str, done: Callable[[], None]) -> None:
        """Call ``done`` when everything appended so far is as safe as was asked for."""
        ...

    def history(self, space: str, after: int) -> Iterator[Entry] | None:
        """Records above a position, for reading in a thread; None where there is no journal."""
        ...

    def seq_before(self, space: str, micros: int) -> int:
        """The last position before a time; may be asked in a thread."""
        ...

    def on_recovery(self, action: Callable[[], None]) -> None:
        """Call ``action`` each time that what could not be recorded can be recorded again."""
        ...


class NoRecorder:
    """A gateway without a data directory: nothing outlives it."""

    failing = False

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(6)

    def append(self, space: str, record: Record) -> int:
        """There is nothing to write to."""
        return 0

    def extend(self, space: str, block: FrameBlock, data_bytes: int) -> None:
        """See ``append``."""

    def commit(self, space: str, done: Callable[[], None]) -> None:
        done()

    def history(self, space: str, after: int) -> Iterator[Entry] | None:
        return None

    def seq_before(self, space: str, micros: int) -> int:
        return 0

    def on_recovery(self, action: Callable[[], None]) -> None:
        """It never fails."""


class _Lane:
    """One partition: what is being written or synced of it, and who waits for that."""

    __slots__ = (
        "flush_timer",
        "number",
        "partition",
        "rolling",
        "snapshot",
        "snapshot_at",
        "syncing",
        "unsynced",
        "unwritten",
        "writing",
    )

    def __init__(self, number: int, partition: Partition, snapshot_at: int) -> None:
        self.number = number
        self.partition = partition
        self.flush_timer: asyncio.TimerHandle | None = None
        self.unwritten: list[Callable[[], None]] = []
        self.unsynced: list[Callable[[], None]] = []
        self.writing: Future[None] | None = None
        self.rolling = False
        """That is what the thread does: until then nothing can be synced."""
        self.syncing = False
        self.snapshot: tuple[Path, bytes] | None = None
        """Waits until its records are written, up to ``snapshot_at``."""
        self.snapshot_at = snapshot_at


class JournalRecorder:
    """Writes to a :class:`LocalJournal` from the event loop, and syncs beside it. Whatever goes wrong on the way to the
    disk is a failure of the journal: what waits still waits, and what cannot be recorded is refused."""

    def __init__(
        self,
        journal: LocalJournal,
        settings: JournalSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        states: Callable[[], Mapping[str, SpaceState]],
    ) -> None:
        self.epoch = journal.epoch
        self.failing = False
        self._journal = journal
        self._settings = settings
        self._loop = loop
        self._metrics = metrics
        self._states = states
        snapshots = journal.snapshot_offsets()
        self._lanes = [
            _Lane(number, partition, snapshots[number]) for number, partition in enumerate(journal.partitions)
        ]
        self._lane_of: dict[str, _Lane] = {}
        self._by_partition = {id(lane.partition): lane for lane in self._lanes}
        # One for each, so that none waits for what can wait longer.
        self._write_thread = ThreadPoolExecutor(1, "journal-write")
        self._sync_thread = ThreadPoolExecutor(1, "journal-sync")
        self._watch_thread = ThreadPoolExecutor(1, "journal-watch")
        self._threads = (self._write_thread, self._sync_thread, self._watch_thread)
        self.upkeep = Upkeep(journal, settings, loop)
        self._recovery: list[Callable[[], None]] = []
        self._retry_timer: asyncio.TimerHandle | None = None
        self._retry_seconds = RETRY_SECONDS
        self._displaced: str | None = None
        """What is not in its place, of the data directory."""
        self._watch_timer = loop.call_later(WATCH_SECONDS, self._watch)
        self._looking: Future[str | None] | None = None
        self._closing = False
        journal.reader.on_read = metrics.history_read

    # -- appending and committing -----------------------------------------------------------------

    def append(self, space: str, record: Record) -> int:
        if self._closing:
            return 0  # whoever leaves after the end was suspended before it
        lane = self._lane_of.get(space) or self._lane(space)
        size = lane.partition.append(space, self.epoch, record)
        self._appended(lane)
        return size

    def extend(self, space: str, block: FrameBlock, data_bytes: int) -> None:
        if not self._closing:
            lane = self._lane(space)
            lane.partition.extend(space, self.epoch, block, data_bytes)
            self._appended(lane)

    def _appended(self, lane: _Lane) -> None:
        if lane.flush_timer is None and not self.failing:
            self._flush_later(lane)
        elif lane.partition.has_full_batch or lane.partition.pending_bytes >= self._settings.flush_bytes:
            self._flush_beside(lane)

    def commit(self, space: str, done: Callable[[], None]) -> None:
        if self._settings.durability == "none" or self._closing:
            done()
            return
        lane = self._lane(space)
        lane.unwritten.append(done)
        self._flush(lane)

    def history(self, space: str, after: int) -> Iterator[Entry] | None:
        self._flush(self._lane(space))
        return self._journal.reader.read(space, after)

    def seq_before(self, space: str, micros: int) -> int:
        return self._journal.reader.seq_before(space, micros)

    def on_recovery(self, action: Callable[[], None]) -> None:
        self._recovery.append(action)

    def _lane(self, space: str) -> _Lane:
        lane = self._lane_of.get(space)
        if lane is None:
            lane = self._lane_of[space] = self._by_partition[id(self._journal.partition(space))]
        return lane

    # -- writing ----------------------------------------------------------------------------------

    def _flush_later(self, lane: _Lane) -> None:
        lane.flush_timer = self._loop.call_later(self._settings.flush_interval, self._flush_due, lane)

    def _flush_due(self, lane: _Lane) -> None:
        lane.flush_timer = None
        self._flush_beside(lane)

    def _flush_beside(self, lane: _Lane) -> None:
        """Write frames for which nobody waits. Many take a while: they are written in a thread, one
        batch at a time, and those that come meanwhile wait, up to a bound."""
        if self.failing or not lane.partition.fills_a_batch:
            self._flush(lane)
        elif lane.writing is None:
            self._stop_timer(lane)
            try:
                lane.partition.prepare()
            except Exception as error:
                self._fail(error)
            else:
                self._write(lane, lane.partition.write)
        elif lane.partition.pending_bytes >= MOST_WAITING * self._settings.flush_bytes:
            self._flush(lane)
        elif lane.flush_timer is None:
            self._flush_later(lane)

    def _write(self, lane: _Lane, task: Callable[[], None]) -> None:
        """Have it done in the thread that writes."""
        writing = lane.writing = self._write_thread.submit(task)
        writing.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._wrote, lane, writing))

    def _wrote(self, lane: _Lane, writing: Future[None]) -> None:
        if lane.writing is not writing:
            return  # somebody waited for it
        if self._settle(lane):
            self._after_writing(lane)
            if lane.partition.has_full_batch or lane.partition.pending_bytes >= self._settings.flush_bytes:
                self._flush_beside(lane)
            elif lane.partition.pending and lane.flush_timer is None and not self.failing:
                self._flush_later(lane)  # perhaps nothing comes after it

    def _settle(self, lane: _Lane) -> bool:
        """Wait until the thread has done what it was given, and count it. False where it could not."""
        writing, lane.writing = lane.writing, None
        lane.rolling = False
        if writing is not None:
            try:
                writing.result()
            except Exception as error:
                self._fail(error)
                return False
            lane.partition.finish()
        return True

    def _flush(self, lane: _Lane) -> None:
        """Write everything that waits. Whoever waits for the writing alone is told at once."""
        if self.failing:
            return
        self._stop_timer(lane)
        try:
            if not self._settle(lane):
                return
            lane.partition.flush(may_roll=False)
        except Exception as error:
            self._fail(error)
            return
        waiting, lane.unwritten = lane.unwritten, []
        if self._settings.durability == "fsync":
            lane.unsynced += waiting
        else:
            for done in waiting:
                done()
        self._after_writing(lane)

    def _stop_timer(self, lane: _Lane) -> None:
        if lane.flush_timer is not None:
            lane.flush_timer.cancel()
            lane.flush_timer = None

    def _after_writing(self, lane: _Lane) -> None:
        self._sync(lane)
        if lane.partition.closed:
            self.upkeep.seal_soon()
        if lane.partition.next_offset - lane.snapshot_at >= self._settings.snapshot_every:
            # Not now: a record may have been appended that its space has yet to apply.
            lane.snapshot_at = lane.partition.next_offset
            self._loop.call_soon(self._take_snapshot, lane)
        self._keep_snapshot(lane)

    # -- syncing ----------------------------------------------------------------------------------

    def _sync(self, lane: _Lane) -> None:
        if lane.syncing or lane.rolling or self._closing:
            return
        if lane.partition.is_full:
            # To go on in a new segment is to sync the old one. A write that is under way comes here again.
            if lane.writing is None and not self.failing:
                lane.rolling = True
                self._write(lane, lane.partition.roll)
            return
        if not self._must_sync(lane):
            return
        lane.syncing = True
        lane.partition.unsynced_bytes = 0
        waiting, lane.unsynced = lane.unsynced, []
        batches = lane.partition.unsynced
        future = self._loop.run_in_executor(self._sync_thread, lane.partition.sync, batches)
        future.add_done_callback(lambda future: self._synced(lane, batches, waiting, future))

    def _must_sync(self, lane: _Lane) -> bool:
        if self._settings.durability == "fsync":
            # For frames alone too: what is not synced does not count.
            return bool(lane.unsynced or lane.partition.unsynced)
        return lane.partition.unsynced_bytes >= WRITE_BACK_BYTES

    def _synced(
        self, lane: _Lane, batches: int, waiting: list[Callable[[], None]], future: asyncio.Future[None]
    ) -> None:
        lane.syncing = False
        error = future.exception()
        if error is not None:
            lane.unsynced = waiting + lane.unsynced
            self._fail(error)
            return
        lane.partition.synced(batches)
        for done in waiting:
            done()
        self._sync(lane)

    # -- failing and recovering -------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        is_ours = not isinstance(error, OSError | MemoryError)
        if not self.failing:
            self.failing = True
            self._metrics.journal_failing.set(1)
            self._retry_seconds = RETRY_SECONDS
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            text = "the journal cannot be written (%s): new messages are refused until it can"
            log.error(text, reason, exc_info=error if is_ours else None)
        elif is_ours:
            self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)
        if not self._closing and self._retry_timer is None:
            self._retry_timer = self._loop.call_later(self._retry_seconds, self._retry)

    # -- the data directory -----------------------------------------------------------------------

    def _watch(self) -> None:
        """A directory that was removed or replaced can still be written to, and nobody would ever see that again."""
        self._watch_timer = self._loop.call_later(WATCH_SECONDS, self._watch)
        if self._looking is None or self._looking.done():
            looking = self._looking = self._watch_thread.submit(self._journal.displaced)
            looking.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._watched, looking.result()))

    def _watched(self, displaced: str | None) -> None:
        if self._closing or displaced == self._displaced:
            return
        was, self._displaced = self._displaced, displaced
        self.upkeep.is_held = displaced is not None
        if displaced is None:
            log.warning("the data directory is in its place again")
        elif was is None:
            self._fail_displaced(displaced)

    def _fail_displaced(self, displaced: str) -> None:
        log.error(
            "the data directory was removed or replaced while the gateway runs (%s): new messages are refused, and "
            "what was recorded within the last moments is lost unless it comes back. Put the same directory back, and "
            "everything goes on; else stop the gateway, put the directory back from a copy, and start it",
            displaced,
        )
        if not self.failing:
            self.failing = True
            self._metrics.journal_failing.set(1)
        if self._retry_timer is None:
            self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry)

    # -- recovering -------------------------------------------------------------------------------

    def _retry(self) -> None:
        """The journal is well again when all that waits is as safe as was asked for."""
        self._retry_timer = None
        if self._displaced is not None or any(lane.syncing for lane in self._lanes):
            self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry)
            return
        try:
            for lane in self._lanes:
                if not self._settle(lane):
                    return
                lane.partition.flush(may_roll=False)
        except Exception as error:
            self._fail(error)
            return
        full = [lane.partition for lane in self._lanes if lane.partition.is_full]
        if full or self._settings.durability == "fsync":
            self._loop.run_in_executor(self._sync_thread, self._sync_all, full).add_done_callback(self._retried)
        else:
            self._recovered()

    def _sync_all(self, full: list[Partition]) -> None:
        """In a thread, while nothing is written. A full segment must be left for a new one, or it would fail again."""
        for partition in full:
            partition.roll()
        if self._settings.durability == "fsync":
            for lane in self._lanes:
                lane.partition.sync()

    def _retried(self, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._fail(error)
        else:
            for lane in self._lanes:
                lane.partition.synced(lane.partition.unsynced)
            self._recovered()

    def _recovered(self) -> None:
        self.failing = False
        self._metrics.journal_failing.set(0)
        log.warning("the journal can be written again")
        for lane in self._lanes:
            waiting, lane.unsynced = lane.unsynced, []
            for done in waiting:
                done()
            self._flush(lane)  # some may have left since
        for action in self._recovery:
            if not self.failing:
                action()

    # -- snapshots --------------------------------------------------------------------------------

    def _take_snapshot(self, lane: _Lane) -> None:
        if self._closing:
            return
        lane.snapshot_at = lane.partition.end_offset
        try:
            lane.snapshot = self._journal.encode_snapshot(lane.number, self._states())
        except Exception:
            log.exception("could not take a snapshot")
        self._keep_snapshot(lane)

    def _keep_snapshot(self, lane: _Lane) -> None:
        """Write the snapshot that was taken, when all the records that it knows of are written."""
        if lane.snapshot is not None and lane.partition.next_offset >= lane.snapshot_at:
            snapshot, lane.snapshot = lane.snapshot, None
            self.upkeep.write_snapshot(*snapshot)

    def close(self) -> None:
        """Everything on disk, a snapshot of everything, and the directory free for another."""
        self._closing = True
        self._watch_timer.cancel()
        for lane in self._lanes:
            self._stop_timer(lane)
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self.upkeep.close()
        for thread in self._threads:
            thread.shutdown()
        displaced = self._journal.displaced()
        if displaced is not None:
            # To write there would only look as if it were recorded, or spoil what is there instead.
            log.error("the end of the journal could not be written: %s", displaced)
            self._journal.release()
            return
        try:
            for lane in self._lanes:
                self._settle(lane)
                lane.partition.flush()
                lane.partition.sync()
                waiting, lane.unwritten, lane.unsynced = lane.unsynced + lane.unwritten, [], []
                for done in waiting:
                    done()
                if lane.partition.next_offset > lane.snapshot_at or not self._journal.snapshot_offsets()[lane.number]:
                    self._journal.write_snapshot(*self._journal.encode_snapshot(lane.number, self._states()))
        except Exception as error:
            log.error("the end of the journal could not be written: %s", str(error) or repr(error))
        self._journal.close()
