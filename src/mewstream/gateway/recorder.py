"""Group commit, between the spaces and the journal: many records are written together, and what must not happen before
a record is durable waits here.

| durability | a control message is sent | a killed gateway loses | a lost power loses |
|---|---|---|---|
| `none`  | immediately | up to `flush_interval` of everything | what the system had not written |
| `flush` | after the operating system has it | up to `flush_interval` of frames | what the system had not written |
| `fsync` | after the disk has it | up to `flush_interval` of frames | up to `flush_interval` of frames |

Frames that are being written or synced count as not written.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mewstream.gateway.metrics import Metrics
from mewstream.io.log_lines import event
from mewstream.journal.errors import JournalDisplaced
from mewstream.journal.interface import Entry, Journal, States, Usage, Writer
from mewstream.journal.settings import JournalSettings
from mewstream.protocol.records import Frame, FrameBlock, Record

Portions = Iterator[tuple[int, list[Frame]]]
"""Frames of a stream, in portions, each with the ``seq`` up to which the space was read."""

log = logging.getLogger("mewstream.gateway")


class Recorder:
    """The log under a space. This one is for a gateway without a data directory: nothing outlives it."""

    failing = False
    """Nothing can be recorded at the moment, so nothing may happen."""

    def __init__(self) -> None:
        self._epoch = secrets.token_hex(6)

    def epoch(self, space: str) -> str:
        """Return the name of this run of the log of a space."""
        return self._epoch

    def append(self, space: str, record: Record | FrameBlock) -> int:
        """Record something that has happened. Returns the bytes of its detail and its data, or 0 if they were not
        counted. Raises for a record that could never be written."""
        return 0

    def commit(self, space: str, done: Callable[[], None]) -> None:
        """Call ``done`` when everything appended so far is as durable as the settings demand, perhaps immediately."""
        done()

    def read(self, space: str, after: int) -> Iterator[Entry] | None:
        """Return the records above a position, to be read in a thread, or None if there is no journal."""
        return None

    def frames(self, space: str, stream_id: str, after: int, upto: int, *, with_data: bool = True) -> Portions | None:
        """Return the frames of a stream between two positions, to be read in a thread, or None if there is no
        journal. See :meth:`mewstream.journal.interface.Reader.frames`."""
        return None

    def seq_before(self, space: str, micros: int) -> int:
        """Return the last position before a time. A thread may call this."""
        return 0

    def usage(self) -> Usage | None:
        """Return the size of the journal, or None if there is none or it is not known. A thread may call this."""
        return None

    def consumer_lag(self) -> dict[str, int]:
        """Return how many records each named consumer of the journal has not read. A thread may call this."""
        return {}

    def on_recovery(self, action: Callable[[], None]) -> None:
        """Call ``action`` each time that recording works again after it has failed."""

    def close(self) -> None:
        """Commit everything, and close the journal."""


@dataclass(slots=True, eq=False)
class _Lane:
    """One partition: when it is flushed next, and what waits for its records to be committed."""

    writer: Writer
    flush_timer: asyncio.TimerHandle | None = None
    waiting: deque[tuple[int, Callable[[], None], float]] = field(default_factory=deque)
    """What to call once everything below an offset is committed, in the order of the offsets, and since when it
    waits."""


class _LanesBySpace(dict[str, _Lane]):
    """The lane of each space. The spaces of one partition share a lane, which is made for the first of them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.lanes: dict[Writer, _Lane] = {}

    def __missing__(self, space: str) -> _Lane:
        writer = self._journal.writer_of(space)
        lane = self[space] = self.lanes.setdefault(writer, _Lane(writer))
        return lane


class JournalRecorder(Recorder):
    """Records of a partition are flushed together: ``flush_interval`` after the first of them, as soon as they fill a
    batch, or immediately if something waits for them. The same object listens to the journal."""

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
        self._lane_of = _LanesBySpace(journal)
        self._lanes = self._lane_of.lanes

    # -- what spaces call -------------------------------------------------------------------------

    def epoch(self, space: str) -> str:
        return self._lane_of[space].writer.epoch

    def append(self, space: str, record: Record | FrameBlock) -> int:
        if self._is_closing:
            return 0  # a participant that leaves after the end was suspended before it
        lane = self._lane_of[space]
        writer = lane.writer
        size = writer.append(space, record)
        if lane.flush_timer is None:
            if not self.failing:
                self._flush_later(lane)
        elif writer.must_flush:
            self._flush(lane, urgent=False)
        return size

    def commit(self, space: str, done: Callable[[], None]) -> None:
        if self._settings.durability == "none" or self._is_closing:
            done()
            return
        lane = self._lane_of[space]
        offset = lane.writer.end_offset
        if offset <= lane.writer.committed_offset and not self.failing:
            done()
            return
        lane.waiting.append((offset, done, time.perf_counter()))
        self._flush(lane, urgent=True)

    def read(self, space: str, after: int) -> Iterator[Entry] | None:
        self._flush(self._lane_of[space], urgent=True)
        return self._journal.reader.read(space, after)

    def frames(self, space: str, stream_id: str, after: int, upto: int, *, with_data: bool = True) -> Portions | None:
        self._flush(self._lane_of[space], urgent=True)
        return self._journal.reader.frames(space, stream_id, after, upto, with_data=with_data)

    def seq_before(self, space: str, micros: int) -> int:
        return self._journal.reader.seq_before(space, micros)

    def usage(self) -> Usage | None:
        return self._journal.usage()

    def consumer_lag(self) -> dict[str, int]:
        return self._journal.consumer_lag()

    def on_recovery(self, action: Callable[[], None]) -> None:
        self._recovery_actions.append(action)

    def close(self) -> None:
        self._is_closing = True
        for lane in self._lanes.values():
            if lane.flush_timer is not None:
                lane.flush_timer.cancel()
        self._journal.close()

    # -- flushing ---------------------------------------------------------------------------------

    def _flush(self, lane: _Lane, *, urgent: bool) -> None:
        if not self.failing:
            lane.writer.flush(urgent=urgent)
            if lane.flush_timer is not None and not lane.writer.has_waiting:
                lane.flush_timer.cancel()
                lane.flush_timer = None

    def _flush_later(self, lane: _Lane) -> None:
        lane.flush_timer = self._loop.call_later(self._settings.flush_interval, self._flush_due, lane)

    def _flush_due(self, lane: _Lane) -> None:
        lane.flush_timer = None
        self._flush(lane, urgent=False)

    def _call_waiting(self, lane: _Lane) -> None:
        """Call what waited for records that are committed now."""
        committed = lane.writer.committed_offset
        while lane.waiting and lane.waiting[0][0] <= committed:
            _, done, since = lane.waiting.popleft()
            self._metrics.commit_latency.observe(time.perf_counter() - since)
            done()

    # -- what the journal reports -----------------------------------------------------------------

    def progressed(self, writer: Writer) -> None:
        lane = self._lanes.get(writer)
        if lane is None:
            return  # nothing was recorded in this partition
        self._call_waiting(lane)
        if not writer.has_waiting or self.failing or self._is_closing:
            return
        if writer.must_flush:
            self._flush(lane, urgent=False)
        elif lane.flush_timer is None:
            self._flush_later(lane)  # perhaps nothing is appended any more that would set the timer

    def failed(self, error: BaseException) -> None:
        if isinstance(error, JournalDisplaced):
            log.error("%s", error, extra=event("journal_failed"))
        elif not self.failing:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            text = "the journal cannot be written (%s): new messages are refused until it can"
            log.error(
                text,
                reason,
                exc_info=None if isinstance(error, OSError | MemoryError) else error,
                extra=event("journal_failed"),
            )
        self.failing = True
        self._metrics.journal_failing.set(1)

    def recovered(self) -> None:
        self.failing = False
        self._metrics.journal_failing.set(0)
        log.warning("the journal can be written again", extra=event("journal_recovered"))
        for lane in list(self._lanes.values()):
            self._call_waiting(lane)
            self._flush(lane, urgent=True)  # participants may have left meanwhile
        for action in self._recovery_actions:
            if not self.failing:
                action()
