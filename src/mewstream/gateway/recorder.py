"""Group commit, between the spaces and the journal: many records are written together, and whoever must not go on
before a record is durable waits here.

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
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from mewstream.gateway.metrics import Metrics
from mewstream.journal.errors import JournalDisplaced
from mewstream.journal.interface import Entry, Journal, States, Writer
from mewstream.journal.settings import JournalSettings
from mewstream.protocol.records import FrameBlock, Record

log = logging.getLogger("mewstream.gateway")


class Recorder(Protocol):
    """What a space needs of the log under it."""

    epoch: str
    failing: bool
    """Nothing can be recorded at the moment, so nothing may happen."""

    def append(self, space: str, record: Record | FrameBlock) -> int:
        """Record something that has happened. Returns the bytes of its detail and its data, or 0 if they were not
        counted. Raises for a record that could never be written."""

    def commit(self, space: str, done: Callable[[], None]) -> None:
        """Call ``done`` when everything appended so far is as durable as the settings demand, perhaps at once."""

    def history(self, space: str, after: int) -> Iterator[Entry] | None:
        """Return the records above a position, to be read in a thread, or None if there is no journal."""

    def seq_before(self, space: str, micros: int) -> int:
        """Return the last position before a time. A thread may call this."""

    def on_recovery(self, action: Callable[[], None]) -> None:
        """Call ``action`` each time that recording works again after it has failed."""


class NoRecorder:
    """For a gateway without a data directory: nothing outlives it."""

    failing = False

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(6)

    def append(self, space: str, record: Record | FrameBlock) -> int:
        return 0

    def commit(self, space: str, done: Callable[[], None]) -> None:
        done()

    def history(self, space: str, after: int) -> Iterator[Entry] | None:
        return None

    def seq_before(self, space: str, micros: int) -> int:
        return 0

    def on_recovery(self, action: Callable[[], None]) -> None:
        """It never fails."""


class _Lane:
    """One partition: when it is flushed next, and what waits for its records to be committed."""

    __slots__ = ("flush_timer", "waiting", "writer")

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.flush_timer: asyncio.TimerHandle | None = None
        self.waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """What to call once everything below an offset is committed, in the order of the offsets."""


class JournalRecorder:
    """Records of a partition are flushed together: ``flush_interval`` after the first of them, as soon as they fill a
    batch, or at once when something waits for them. The same object listens to the journal."""

    def __init__(
        self,
        journal: Journal,
        settings: JournalSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        states: States,
    ) -> None:
        self.failing = False
        self._journal = journal
        self._settings = settings
        self._loop = loop
        self._metrics = metrics
        self._recovery_actions: list[Callable[[], None]] = []
        self._is_closing = False
        journal.reader.on_read = metrics.history_read
        journal.start(self, states)
        self.epoch = journal.writers[0].epoch
        self._lanes = {writer: _Lane(writer) for writer in journal.writers}
        self._lane_of: dict[str, _Lane] = {}

    # -- what spaces call -------------------------------------------------------------------------

    def append(self, space: str, record: Record | FrameBlock) -> int:
        if self._is_closing:
            return 0  # a participant that leaves after the end was suspended before it
        lane = self._lane_of.get(space) or self._find_lane(space)
        writer = lane.writer
        size = writer.append(space, record)
        if lane.flush_timer is None:
            if not self.failing:
                self._flush_later(lane)
        elif writer.has_full_batch:
            self._flush(lane, urgent=False)
        return size

    def commit(self, space: str, done: Callable[[], None]) -> None:
        if self._settings.durability == "none" or self._is_closing:
            done()
            return
        lane = self._find_lane(space)
        offset = lane.writer.end_offset
        if offset <= lane.writer.committed_offset and not self.failing:
            done()
            return
        lane.waiting.append((offset, done))
        self._flush(lane, urgent=True)

    def history(self, space: str, after: int) -> Iterator[Entry] | None:
        self._flush(self._find_lane(space), urgent=True)
        return self._journal.reader.read(space, after)

    def seq_before(self, space: str, micros: int) -> int:
        return self._journal.reader.seq_before(space, micros)

    def on_recovery(self, action: Callable[[], None]) -> None:
        self._recovery_actions.append(action)

    def close(self) -> None:
        """Commit everything, and close the journal."""
        self._is_closing = True
        for lane in self._lanes.values():
            self._stop_timer(lane)
        self._journal.close()

    # -- flushing ---------------------------------------------------------------------------------

    def _find_lane(self, space: str) -> _Lane:
        lane = self._lane_of.get(space)
        if lane is None:
            lane = self._lane_of[space] = self._lanes[self._journal.writer_of(space)]
        return lane

    def _flush(self, lane: _Lane, *, urgent: bool) -> None:
        if not self.failing:
            lane.writer.flush(urgent=urgent)
            if not lane.writer.has_waiting:
                self._stop_timer(lane)

    def _flush_later(self, lane: _Lane) -> None:
        lane.flush_timer = self._loop.call_later(self._settings.flush_interval, self._flush_due, lane)

    def _flush_due(self, lane: _Lane) -> None:
        lane.flush_timer = None
        self._flush(lane, urgent=False)

    def _stop_timer(self, lane: _Lane) -> None:
        if lane.flush_timer is not None:
            lane.flush_timer.cancel()
            lane.flush_timer = None

    def _continue(self, lane: _Lane) -> None:
        """Let go what waited for records that are committed now."""
        committed = lane.writer.committed_offset
        while lane.waiting and lane.waiting[0][0] <= committed:
            lane.waiting.popleft()[1]()

    # -- what the journal reports -----------------------------------------------------------------

    def progressed(self, writer: Writer) -> None:
        lane = self._lanes[writer]
        self._continue(lane)
        if not lane.writer.has_waiting or self.failing or self._is_closing:
            return
        if lane.writer.has_full_batch:
            self._flush(lane, urgent=False)
        elif lane.flush_timer is None:
            self._flush_later(lane)  # perhaps nothing is appended any more that would set the timer

    def failed(self, error: BaseException) -> None:
        if isinstance(error, JournalDisplaced):
            log.error("%s", error)
        elif not self.failing:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            text = "the journal cannot be written (%s): new messages are refused until it can"
            log.error(text, reason, exc_info=None if isinstance(error, OSError | MemoryError) else error)
        self.failing = True
        self._metrics.journal_failing.set(1)

    def recovered(self) -> None:
        self.failing = False
        self._metrics.journal_failing.set(0)
        log.warning("the journal can be written again")
        for lane in self._lanes.values():
            self._continue(lane)
            self._flush(lane, urgent=True)  # participants may have left meanwhile
        for action in self._recovery_actions:
            if not self.failing:
                action()
