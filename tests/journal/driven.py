"""A recorder on a journal, without a gateway: what it does when the disk is slow, fails, or loses its power."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from making import abandon

from mewstream.gateway.metrics import Metrics
from mewstream.gateway.recorder import JournalRecorder
from mewstream.journal.files import Files
from mewstream.journal.local import LocalJournal
from mewstream.journal.settings import JournalSettings


class Driven:
    """A recorder on a journal, without a gateway."""

    def __init__(self, data: Path, files: Files | None = None, *, partitions: int = 1, **settings: Any) -> None:
        settings = {"durability": "fsync", "flush_interval": 0.001, "segment_bytes": 8000, **settings}
        self.settings = JournalSettings(partitions=partitions, **settings)
        self.data = data
        self.states: dict[str, Any] = {}
        self.journal = LocalJournal(
            data,
            partitions=partitions,
            segment_bytes=self.settings.segment_bytes,
            synced_commits=self.settings.durability == "fsync",
            files=files,
        )
        self.metrics = Metrics()
        self.recorder = JournalRecorder(
            self.journal,
            self.settings,
            loop=asyncio.get_running_loop(),
            metrics=self.metrics,
            states=lambda: self.states,
        )

    def die(self) -> None:
        """The process is gone. What a thread has begun it may still finish: the disk has it or not."""
        recorder = self.recorder
        recorder._closing = True
        recorder._watch_timer.cancel()
        for lane in recorder._lanes:
            if lane.flush_timer is not None:
                lane.flush_timer.cancel()
        if recorder._retry_timer is not None:
            recorder._retry_timer.cancel()
        recorder.upkeep.close()
        for thread in recorder._threads:
            thread.shutdown(wait=True, cancel_futures=True)
        abandon(self.journal)
        # What still comes back from those threads comes to nobody.
        recorder._synced = recorder._wrote = lambda *_: None  # type: ignore[method-assign]

    @property
    def is_failing(self) -> bool:
        return bool(self.metrics.journal_failing._value.get())
