"""The timer of a space: it wakes the sequencer when the earliest of its deadlines has come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from mewstream.gateway.recorder import Recorder
from mewstream.protocol.times import SECOND

#: The longest time for which the timer of the event loop is set, in seconds. A later deadline is set again then.
LONGEST_SLEEP = 3600.0
#: The shortest time while the journal cannot be written, in seconds, because what is due has to wait for it.
RETRY_SECONDS = 1.0


class Deadline:
    """The earliest deadline of one space. Its time is that of the space, in microseconds, which ``now`` returns."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now: Callable[[], int], wake: Callable[[], None], recorder: Recorder
    ) -> None:
        self._loop = loop
        self._now = now
        self._wake = wake
        self._recorder = recorder
        self._timer: asyncio.TimerHandle | None = None
        self.due = math.inf

    def set(self, due: int | None) -> None:
        """Wake the space at ``due``; None if nothing falls due."""
        if due == self.due and self._timer is not None:
            return
        if self._timer is not None:
            self.cancel()
        self.due = math.inf if due is None else due
        if due is not None:
            delay = min(max(0.0, (due - self._now()) / SECOND), LONGEST_SLEEP)
            delay = max(delay, RETRY_SECONDS) if self._recorder.failing else delay
            self._timer = self._loop.call_later(delay, self._fired)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        self._wake()
