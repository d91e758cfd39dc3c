"""What peers ask for is worked off in turns of the event loop, each of which has a slice of time for it.

One message may take tens of milliseconds, and one reading may bring hundreds. When the slice of a turn is used up, the
rest waits for the next one, so that frames, timers and other connections come in between. Of those who wait each
participant is served in turn, one message at a time: whoever asks for much waits for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

log = logging.getLogger("mewstream.gateway")

#: Seconds of one turn of the loop. What is begun is finished: a turn may take as much longer as one message takes.
SLICE = 0.01

Who = tuple[str, str]
"""A participant of a space."""

T = TypeVar("T")


class FairQueue:
    """Of one gateway. Whoever has work to do asks :meth:`admits` first, and puts it here where the answer is no."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Who, deque[Callable[[], None]]] = {}
        """The first is the next to be served."""
        self._has_begun = False
        """Something was done in this turn already."""
        self._ends = 0.0
        self.is_over = False
        """The slice of this turn is used up, as far as anybody has looked."""

    def admits(self, who: Who) -> bool:
        """Whether something may be done for this participant now, and nothing of it waits."""
        return who not in self._waiting and self.has_time()

    def has_time(self) -> bool:
        """Whether this turn has time left."""
        if not self._has_begun:
            self._begin()
        elif not self.is_over:
            self.is_over = perf_counter() >= self._ends
        return not self.is_over

    def put(self, who: Who, work: Callable[[], None]) -> None:
        """Do it in a later turn, after all that this participant has put here before."""
        self._waiting.setdefault(who, deque()).append(work)
        if not self._has_begun:
            self._begin()

    async def run(self, who: Who, work: Callable[[], T]) -> T:
        """The result of some work, which is done at once where that is possible."""
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

    def _begin(self) -> None:
        self._has_begun = True
        self.is_over = False
        self._ends = perf_counter() + SLICE
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._has_begun = self.is_over = False
        if not self._waiting:
            return
        self._begin()
        while self._waiting and self.has_time():
            who = next(iter(self._waiting))
            queue = self._waiting.pop(who)
            work = queue.popleft()
            if queue:
                self._waiting[who] = queue
            try:
                work()
            except Exception:
                # An error of our own in the work for one must not keep the others waiting for ever.
                log.exception("an error of our own in the work for %s", who[1])
