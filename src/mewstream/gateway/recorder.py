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
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from mewstream.gateway.metrics import Metrics
from mewstream.journal.errors import JournalError
from mewstream.journal.local import LocalJournal
from mewstream.journal.partition import Partition
from mewstream.journal.retention import plan_pruning
from mewstream.journal.schema import Entry
from mewstream.journal.segments import SegmentName
from mewstream.journal.settings import JournalSettings
from mewstream.protocol.records import FrameBlock, Record
from mewstream.protocol.state import SpaceState

log = logging.getLogger("mewstream.gateway")

RETRY_SECONDS = 1.0
RETENTION_SECONDS = 60.0
SEAL_SECONDS = 1.0
#: Fewer records a second are a quiet time.
QUIET_RECORDS = 20_000
#: So many full segments (each of ``segment_bytes``) may wait to be rewritten.
MOST_UNSEALED = 16
#: Where nobody waits for the disk, it is asked to write in such pieces, so that the end of a segment does not wait.
WRITE_BACK_BYTES = 4 << 20
#: So many times ``flush_bytes`` may wait for the thread that writes; then the loop waits too.
MOST_WAITING = 4
#: How often a rewriting of segments looks whether frames flow.
GIVE_WAY_SECONDS = 0.1


class Recorder(Protocol):
    """What a space needs of the log under it."""

    epoch: str
    failing: bool

    def append(self, space: str, record: Record) -> None: ...

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


class NoRecorder:
    """A gateway without a data directory: nothing outlives it."""

    failing = False

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(6)

    def append(self, space: str, record: Record) -> None:
        """There is nothing to write to."""

    def extend(self, space: str, block: FrameBlock, data_bytes: int) -> None:
        """See ``append``."""

    def commit(self, space: str, done: Callable[[], None]) -> None:
        done()

    def history(self, space: str, after: int) -> Iterator[Entry] | None:
        return None

    def seq_before(self, space: str, micros: int) -> int:
        return 0


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


def _step_back() -> None:
    """Upkeep takes what the loop leaves over. Only Linux has priorities per thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _seal_later(partition: Partition, name: SegmentName) -> None:
    partition.closed.append(name)


class JournalRecorder:
    """Writes to a :class:`LocalJournal` from the event loop; syncs, seals and prunes beside it."""

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
        self._snapshot_thread = ThreadPoolExecutor(1, "journal-snapshot", initializer=_step_back)
        # Both touch full segments, so they must take turns.
        self._seal_and_prune_thread = ThreadPoolExecutor(1, "journal-seal", initializer=_step_back)
        self._threads = (self._write_thread, self._sync_thread, self._snapshot_thread, self._seal_and_prune_thread)
        self._retry_timer: asyncio.TimerHandle | None = None
        self._retention_timer = loop.call_later(RETENTION_SECONDS, self._retain)
        self._seal_timer: asyncio.TimerHandle | None = None
        self._sealing: list[Future[None]] = []
        self._closing = False
        self._end = threading.Event()

    # -- appending and committing -----------------------------------------------------------------

    def append(self, space: str, record: Record) -> None:
        if self._closing:
            return  # whoever leaves after the end was suspended before it
        lane = self._lane_of.get(space) or self._lane(space)
        lane.partition.append(space, self.epoch, record)
        self._appended(lane)

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
            lane.partition.prepare()
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
            except OSError as error:
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
        except OSError as error:
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
        if lane.partition.closed and self._seal_timer is None:
            self._seal_timer = self._loop.call_later(SEAL_SECONDS, self._seal_if_quiet, self._recorded())
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
        if not self.failing:
            self.failing = True
            self._metrics.journal_failing.set(1)
            reason = getattr(error, "strerror", None) or error
            log.error("the journal cannot be written (%s): new messages are refused until it can", reason)
        if not self._closing and self._retry_timer is None:
            self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        """The journal is well again when all that waits is as safe as was asked for."""
        self._retry_timer = None
        if any(lane.syncing for lane in self._lanes):
            self._retry_timer = self._loop.call_later(RETRY_SECONDS, self._retry)
            return
        try:
            for lane in self._lanes:
                if not self._settle(lane):
                    return
                lane.partition.flush(may_roll=False)
        except OSError as error:
            self._fail(error)
            return
        if self._settings.durability == "fsync":
            self._loop.run_in_executor(self._sync_thread, self._sync_all).add_done_callback(self._retried)
        else:
            self._recovered()

    def _sync_all(self) -> None:
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

    # -- beside the loop --------------------------------------------------------------------------

    def _take_snapshot(self, lane: _Lane) -> None:
        if not self._closing:
            lane.snapshot_at = lane.partition.end_offset
            lane.snapshot = self._journal.encode_snapshot(lane.number, self._states())
            self._keep_snapshot(lane)

    def _keep_snapshot(self, lane: _Lane) -> None:
        """Write the snapshot that was taken, when all the records that it knows of are written."""
        if lane.snapshot is not None and lane.partition.next_offset >= lane.snapshot_at:
            (file, data), lane.snapshot = lane.snapshot, None
            self._work(self._snapshot_thread, "write a snapshot", lambda: self._journal.write_snapshot(file, data))

    def _recorded(self) -> int:
        return sum(lane.partition.next_offset for lane in self._lanes)

    def _seal_if_quiet(self, recorded: int) -> None:
        """Rewriting segments takes a core for a while: it waits for a quiet second, unless many wait."""
        self._seal_timer = None
        waiting = self._unsealed()
        is_quiet = self._recorded() - recorded < QUIET_RECORDS * SEAL_SECONDS
        if waiting and not is_quiet and waiting < MOST_UNSEALED:
            self._seal_timer = self._loop.call_later(SEAL_SECONDS, self._seal_if_quiet, self._recorded())
        else:
            self._seal()

    def _seal(self) -> None:
        for partition, name in self._journal.segments_to_seal():
            sealing = self._work(
                self._seal_and_prune_thread,
                "seal a segment",
                partial(partition.seal, name, self._give_way),
                again=partial(_seal_later, partition, name),
            )
            self._sealing = [each for each in self._sealing if not each.done()] + [sealing]

    def _give_way(self) -> None:
        """Called in the thread that seals: both cores of a small machine may be needed for frames now."""
        flowing = True
        while flowing and self._unsealed() < MOST_UNSEALED and not self._end.is_set():
            recorded = self._recorded()
            self._end.wait(GIVE_WAY_SECONDS)
            flowing = self._recorded() - recorded >= QUIET_RECORDS * GIVE_WAY_SECONDS

    def _unsealed(self) -> int:
        waiting = sum(len(lane.partition.closed) for lane in self._lanes)
        return waiting + sum(not each.done() for each in self._sealing)

    def _retain(self) -> None:
        self._retention_timer = self._loop.call_later(RETENTION_SECONDS, self._retain)
        self._work(self._seal_and_prune_thread, "prune", self._prune)

    def _prune(self) -> None:
        plan = plan_pruning(
            self._journal.root,
            self._settings.retention,
            now=time.time_ns() // 1000,
            partitions=len(self._lanes),
            snapshots=self._journal.snapshot_offsets(synced=True),
        )
        for alarm in plan.alarms:
            log.warning("%s", alarm)
        if plan.segments:
            self._journal.prune(plan)
            log.info("pruned %d segments, %d bytes", len(plan.segments), plan.bytes)

    def _work(
        self,
        thread: ThreadPoolExecutor,
        what: str,
        task: Callable[[], None],
        again: Callable[[], None] | None = None,
    ) -> Future[None]:
        """Upkeep that may fail without harm: it is reported, and done again later."""

        def guarded() -> None:
            try:
                task()
            except (OSError, JournalError) as error:
                log.error("could not %s: %s", what, error)
                if again is not None:
                    self._loop.call_soon_threadsafe(self._loop.call_later, RETENTION_SECONDS, again)

        return thread.submit(guarded)

    def close(self) -> None:
        """Everything on disk, a snapshot of everything, and the directory free for another."""
        self._closing = True
        self._retention_timer.cancel()
        if self._seal_timer is not None:
            self._seal_timer.cancel()
        for lane in self._lanes:
            self._stop_timer(lane)
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._end.set()
        for thread in self._threads:
            thread.shutdown()
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
        except OSError as error:
            log.error("the end of the journal could not be written: %s", error)
        self._journal.close()
