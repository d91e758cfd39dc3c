"""When full segments are sealed: rewriting one takes a core for a while, so it waits until few records are written."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from functools import partial

from mewstream.journal.background import BackgroundThread
from mewstream.journal.local import LocalJournal

SEAL_SECONDS = 1.0
#: With fewer records a second than this, the journal is quiet.
QUIET_RECORDS = 20_000
#: When this many full segments (each of ``segment_bytes``) wait, they are sealed however busy the journal is.
MAX_UNSEALED = 16
#: How often the sealing thread checks whether the journal is quiet again.
GIVE_WAY_SECONDS = 0.1


class Sealer:
    def __init__(self, journal: LocalJournal, thread: BackgroundThread) -> None:
        self._journal = journal
        self._thread = thread
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: list[Future[None]] = []
        self._is_closing = threading.Event()
        thread.run("index old segments", self._index_old_segments)

    def seal_soon(self) -> None:
        """Call this when a segment is full."""
        if self._timer is None:
            self._timer = self._thread.loop.call_later(SEAL_SECONDS, self._seal_if_quiet, self._count_records())

    def _seal_if_quiet(self, records_before: int) -> None:
        self._timer = None
        unsealed = self._count_unsealed()
        is_quiet = self._count_records() - records_before < QUIET_RECORDS * SEAL_SECONDS
        if unsealed and not is_quiet and unsealed < MAX_UNSEALED:
            self.seal_soon()
        else:
            self.seal()

    def seal(self) -> None:
        """Seal every full segment, in the thread."""
        for partition, name in self._journal.segments_to_seal():
            sealing = self._thread.run(
                "seal a segment",
                partial(partition.seal, name, self._give_way),
                retry=lambda partition=partition, name=name: partition.closed.append(name),  # type: ignore[misc]
            )
            self._under_way = [each for each in self._under_way if not each.done()] + [sealing]

    def _give_way(self) -> None:
        """Wait in the sealing thread while many records are written: a small machine needs its cores for those."""
        is_busy = True
        while is_busy and self._count_unsealed() < MAX_UNSEALED and not self._is_closing.is_set():
            records_before = self._count_records()
            self._is_closing.wait(GIVE_WAY_SECONDS)
            is_busy = self._count_records() - records_before >= QUIET_RECORDS * GIVE_WAY_SECONDS

    def _count_unsealed(self) -> int:
        waiting = sum(len(partition.closed) for partition in self._journal.partitions)
        return waiting + sum(not each.done() for each in self._under_way)

    def _count_records(self) -> int:
        return sum(partition.next_offset for partition in self._journal.partitions)

    def _index_old_segments(self) -> None:
        """Segments that an older version sealed do not say where the records of a space are."""
        for partition in self._journal.partitions:
            for name in partition.without_spaces():
                if self._is_closing.is_set():
                    return
                self._give_way()
                partition.index_spaces(name)

    def close(self) -> None:
        """Let the thread finish what it has begun, without giving way any more."""
        self._is_closing.set()
        if self._timer is not None:
            self._timer.cancel()
