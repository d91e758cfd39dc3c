"""A recorder on a journal, without a gateway: what it does when the disk is slow, fails, or loses its power."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from making import SPACE, Script, abandon, open_journal

from mewstream.gateway.metrics import Metrics
from mewstream.gateway.recorder import JournalRecorder
from mewstream.journal.file_journal import FileJournal
from mewstream.journal.files import Files
from mewstream.journal.settings import JournalSettings
from mewstream.protocol.records import Record


class Driven:
    """A recorder on a journal, without a gateway."""

    def __init__(self, data: Path, files: Files | None = None, *, partitions: int = 1, **settings: Any) -> None:
        settings = {"durability": "fsync", "flush_interval": 0.001, "segment_bytes": 8000, **settings}
        self.settings = JournalSettings(partitions=partitions, **settings)
        self.data = data
        self.states: dict[str, Any] = {}
        self.running = FileJournal(data, self.settings, files)
        self.journal = self.running.local
        self.metrics = Metrics()
        self.recorder = JournalRecorder(
            self.running,
            self.settings,
            loop=asyncio.get_running_loop(),
            metrics=self.metrics,
            states=lambda: self.states,
        )

    def die(self) -> None:
        """The process is gone. What a thread has begun it may still finish: the disk has it or not."""
        running = self.running
        self.recorder._is_closing = running._is_closing = True
        for lane in self.recorder._lanes.values():
            self.recorder._stop_timer(lane)
        running._stop_background_work()
        for thread in (running._write_thread, running._sync_thread, running._watch_thread):
            thread.shutdown(wait=True, cancel_futures=True)
        abandon(self.journal)
        # What still comes back from those threads comes to nobody.
        for writer in running.writers:
            writer._thread_has_synced = writer._thread_has_written = lambda *_: None  # type: ignore[method-assign]

    def flush(self) -> None:
        """Write everything that waits."""
        for writer in self.running.writers:
            writer.flush(urgent=True)

    @property
    def is_failing(self) -> bool:
        return bool(self.metrics.journal_failing._value.get())


class Sent:
    """What a space has recorded so far."""

    def __init__(self, driven: Driven) -> None:
        self.driven = driven
        self.script = Script().begin()
        for record in self.script.records:
            driven.recorder.append(SPACE, record)
        driven.recorder.commit(SPACE, lambda: None)

    def frames(self, count: int) -> None:
        for number in range(count):
            self._append(self.script.frame("ann", "stream-1", b"%d" % number))

    def control(self, done: Any) -> None:
        self._append(self.script.send("ann", "chat", text="x"))
        self.driven.recorder.commit(SPACE, done)

    def _append(self, records: list[Record]) -> None:
        for record in records:
            self.driven.recorder.append(SPACE, record)

    def check(self, data: Path) -> None:
        self.driven.die()
        journal = open_journal(data)
        try:
            assert [entry.record for entry in journal.read(SPACE, 0)] == self.script.records
        finally:
            journal.close()
