"""Snapshots and retention of a running journal, in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from mewstream.io.log_lines import event
from mewstream.journal.background import BackgroundThread
from mewstream.journal.interface import Pruning, SnapshotStore, States, Writer

log = logging.getLogger("mewstream.journal")

PRUNE_SECONDS = 60.0


class SnapshotSchedule:
    """Takes a snapshot of a partition whenever ``every`` records were committed since the last one.

    The states are encoded on the event loop, between two records, and saved in a thread as soon as all records that
    they include are committed: a snapshot must never be ahead of its log.
    """

    def __init__(
        self,
        store: SnapshotStore,
        writers: Sequence[Writer],
        states: States,
        thread: BackgroundThread,
        *,
        every: int,
    ) -> None:
        self._store = store
        self._writers = writers
        self._states = states
        self._every = every
        self._thread = thread
        self._offsets = dict(store.snapshot_offsets())
        self._prepared: dict[int, Callable[[], None]] = {}
        self._is_closed = False

    def progressed(self, partition: int) -> None:
        """Records of a partition were committed."""
        committed = self._writers[partition].committed_offset
        if committed - self._offsets[partition] >= self._every:
            self._offsets[partition] = committed
            # Not now: a record may have been appended that its space has yet to apply.
            self._thread.loop.call_soon(self._take, partition)
        if partition in self._prepared:
            self._save_if_committed(partition)

    def _take(self, partition: int) -> None:
        if self._is_closed:
            return
        self._offsets[partition] = self._writers[partition].end_offset
        try:
            self._prepared[partition] = self._store.prepare_snapshot(partition, self._states())
            self._save_if_committed(partition)
        except Exception:
            log.exception("could not take a snapshot", extra=event("journal_upkeep_failed"))

    def _save_if_committed(self, partition: int) -> None:
        if self._writers[partition].committed_offset >= self._offsets[partition]:
            self._thread.run("write a snapshot", self._prepared.pop(partition))

    def close(self) -> None:
        """Take no more snapshots by itself."""
        self._is_closed = True

    def save_last(self, partition: int) -> None:
        """Save the final state of a partition that is completely committed, unless the newest snapshot has it."""
        is_newer = self._writers[partition].committed_offset > self._offsets[partition]
        if is_newer or not self._store.snapshot_offsets()[partition]:
            self._store.prepare_snapshot(partition, self._states())()


class PruneSchedule:
    """Prunes the journal once a minute."""

    def __init__(self, pruning: Pruning, thread: BackgroundThread) -> None:
        self._pruning = pruning
        self._thread = thread
        self._timer = thread.loop.call_later(PRUNE_SECONDS, self._prune)

    def _prune(self) -> None:
        self._timer = self._thread.loop.call_later(PRUNE_SECONDS, self._prune)
        self._thread.run("prune", self._pruning.prune)

    def close(self) -> None:
        self._timer.cancel()
