"""The timer of a space: it wakes the sequencer when the earliest of its deadlines has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mewstream.protocol.times import SECOND

#: Seconds for which the event loop's timer is set at most. A deadline that is years away is looked at again meanwhile.
LONGEST_SLEEP = 3600.0
#: Seconds to wait at least while nothing can be recorded: what is due has to wait for the journal.
RETRY_SECONDS = 1.0


class Deadline:
    """The earliest deadline of one space. Its time is that of the space, in microseconds, which ``now`` returns."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], int], wake: Callable[[], None]) -> None:
        self._loop = loop
        self._now = now
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._due: int | None = None

    def has_come(self, now: int) -> bool:
        return self._due is not None and now >= self._due

    def set(self, due: int | None, *, is_failing: bool = False) -> None:
        """Wake the space at ``due``; None where nothing falls due. ``is_failing``: the journal cannot be written, so
        that nothing would happen at once."""
        if due == self._due and (self._timer is not None or due is None):
            return
        self.cancel()
        self._due = due
        if due is not None:
            delay = min(max(0.0, (due - self._now()) / SECOND), LONGEST_SLEEP)
            self._timer = self._loop.call_later(max(delay, RETRY_SECONDS) if is_failing else delay, self._fired)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        self._wake()
