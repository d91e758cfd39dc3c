"""What a journal needs beside its writing: snapshots, sealing and pruning, in threads that stand back for the loop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from mewstream.journal.local import LocalJournal
from mewstream.journal.partition import Partition
from mewstream.journal.retention import plan_pruning
from mewstream.journal.segments import SegmentName
from mewstream.journal.settings import JournalSettings

log = logging.getLogger("mewstream.gateway")

RETENTION_SECONDS = 60.0
SEAL_SECONDS = 1.0
#: Fewer records a second are a quiet time.
QUIET_RECORDS = 20_000
#: So many full segments (each of ``segment_bytes``) may wait to be rewritten.
MOST_UNSEALED = 16
#: How often a rewriting of segments looks whether frames flow.
GIVE_WAY_SECONDS = 0.1


class Upkeep:
    def __init__(self, journal: LocalJournal, settings: JournalSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._settings = settings
        self._loop = loop
        self.is_held = False
        """The data directory is not in its place: nothing is done to what is there instead."""
        self._snapshot_thread = ThreadPoolExecutor(1, "journal-snapshot", initializer=_step_back)
        # Both touch full segments, so they must take turns.
        self._seal_and_prune_thread = ThreadPoolExecutor(1, "journal-seal", initializer=_step_back)
        self._retention_timer = loop.call_later(RETENTION_SECONDS, self._retain)
        self._seal_timer: asyncio.TimerHandle | None = None
        self._sealing: list[Future[None]] = []
        self._end = threading.Event()
        self._work(self._seal_and_prune_thread, "index old segments", self._index_old_segments)

    def close(self) -> None:
        """What was begun comes to its end."""
        self._retention_timer.cancel()
        if self._seal_timer is not None:
            self._seal_timer.cancel()
        self._end.set()
        for thread in (self._snapshot_thread, self._seal_and_prune_thread):
            thread.shutdown()

    # -- snapshots --------------------------------------------------------------------------------

    def write_snapshot(self, file: Path, data: bytes) -> None:
        self._work(self._snapshot_thread, "write a snapshot", lambda: self._journal.write_snapshot(file, data))

    # -- sealing ----------------------------------------------------------------------------------

    def seal_soon(self) -> None:
        """A segment is full."""
        if self._seal_timer is None:
            self._seal_timer = self._loop.call_later(SEAL_SECONDS, self._seal_if_quiet, self._recorded())

    def _seal_if_quiet(self, recorded: int) -> None:
        """Rewriting segments takes a core for a while: it waits for a quiet second, unless many wait."""
        self._seal_timer = None
        waiting = self._unsealed()
        is_quiet = self._recorded() - recorded < QUIET_RECORDS * SEAL_SECONDS
        if waiting and not is_quiet and waiting < MOST_UNSEALED:
            self.seal_soon()
        else:
            self.seal()

    def seal(self) -> None:
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
        waiting = sum(len(partition.closed) for partition in self._journal.partitions)
        return waiting + sum(not each.done() for each in self._sealing)

    def _recorded(self) -> int:
        return sum(partition.next_offset for partition in self._journal.partitions)

    def _index_old_segments(self) -> None:
        """Those that an older version sealed do not say where the records of a space are."""
        for partition in self._journal.partitions:
            for name in partition.without_spaces():
                if self._end.is_set():
                    return
                self._give_way()
                partition.index_spaces(name)

    # -- retention --------------------------------------------------------------------------------

    def _retain(self) -> None:
        self._retention_timer = self._loop.call_later(RETENTION_SECONDS, self._retain)
        self._work(self._seal_and_prune_thread, "prune", self._prune)

    def _prune(self) -> None:
        plan = plan_pruning(
            self._journal.root,
            self._settings.retention,
            now=time.time_ns() // 1000,
            partitions=len(self._journal.partitions),
            snapshots=self._journal.snapshot_offsets(synced=True),
        )
        for alarm in plan.alarms:
            log.warning("%s", alarm)
        if plan.segments:
            self._journal.prune(plan)
            log.info("pruned %d segments, %d bytes", len(plan.segments), plan.bytes)

    # -- in the threads ---------------------------------------------------------------------------

    def _work(
        self,
        thread: ThreadPoolExecutor,
        what: str,
        task: Callable[[], None],
        again: Callable[[], None] | None = None,
    ) -> Future[None]:
        """Work that may fail without harm, whatever the reason: it is reported, and done again later."""

        def guarded() -> None:
            try:
                if not self.is_held:
                    task()
                    return
            except Exception as error:
                log.error("could not %s: %s", what, str(error) or repr(error))
            if again is not None:
                self._loop.call_soon_threadsafe(self._loop.call_later, RETENTION_SECONDS, again)

        return thread.submit(guarded)


def _seal_later(partition: Partition, name: SegmentName) -> None:
    partition.closed.append(name)


def _step_back() -> None:
    """Upkeep takes what the loop leaves over. Only Linux has priorities per thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
