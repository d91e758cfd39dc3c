"""Fair queueing: each turn of the event loop spends at most a slice of time on the messages of participants.

One message may take tens of milliseconds, and one read may bring hundreds. When the slice of a turn is used up, the
rest waits for the next turn, so that frames, timers and other connections are handled in between. Waiting participants
are served in turn, one message each, so that one that sends much delays only itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from mewstream.io.log_lines import event

log = logging.getLogger("mewstream.gateway")

#: Seconds of work in one turn of the event loop. A turn may take longer, because a message is never interrupted.
SLICE = 0.01

Who = tuple[str, str]
"""A participant of a space."""

T = TypeVar("T")


class FairQueue:
    """The queue of one gateway. Ask :meth:`admits` before doing work, and :meth:`put` it here if it is not admitted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Who, deque[Callable[[], None]]] = {}
        """The work of each participant. The first participant is served next."""
        self._has_begun = False
        """Whether this turn of the event loop was begun."""
        self._ends = 0.0
        self.is_over = False
        """Whether the slice of this turn was used up when it was last checked."""

    def admits(self, who: Who) -> bool:
        """Whether work for this participant may be done now: this turn has time, and no earlier work waits."""
        return who not in self._waiting and self.has_time()

    def has_time(self) -> bool:
        """Whether this turn has time left. The first question begins the turn."""
        if not self._has_begun:
            self._has_begun = True
            self.is_over = False
            self._ends = perf_counter() + SLICE
            self._loop.call_soon(self._next_turn)
        elif not self.is_over:
            self.is_over = perf_counter() >= self._ends
        return not self.is_over

    def put(self, who: Who, work: Callable[[], None]) -> None:
        """Do the work in a later turn, after the earlier work of this participant."""
        self._waiting.setdefault(who, deque()).append(work)
        self.has_time()  # begins a turn, which the next one follows

    async def run(self, who: Who, work: Callable[[], T]) -> T:
        """Do the work, at once if possible, and return its result."""
        if self.admits(who):
            return work()
        done: asyncio.Future[T] = self._loop.create_future()

        def finish() -> None:
            if not done.cancelled():
                try:
                    done.set_result(work())
                except Exception as error:
                    done.set_exception(error)

        self.put(who, finish)
        return await done

    def _next_turn(self) -> None:
        self._has_begun = self.is_over = False
        while self._waiting and self.has_time():
            who = next(iter(self._waiting))
            queue = self._waiting.pop(who)
            work = queue.popleft()
            if queue:
                self._waiting[who] = queue
            try:
                work()
            except Exception:
                # A bug in the work for one participant must not keep the others waiting for ever.
                log.exception(
                    "internal error in the work for %s",
                    who[1],
                    extra=event("internal_error", space=who[0], participant=who[1]),
                )
