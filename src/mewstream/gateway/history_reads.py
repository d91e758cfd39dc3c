"""Reading the journal for participants, beside the loop: bounded in all, and one read of each participant at a time.

Those who come back and those who poll have lanes of their own, so that however much is polled, a resume waits for
other resumes only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Reader = tuple[str, str]
"""A space and a participant of it."""

#: Threads of each lane. They share one interpreter with the loop: more would take its time and win nothing.
RESUMING = 2
POLLING = 1


class Lane:
    """So many reads at a time. Whoever asks for several has them done one after another, while others take turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int, name: str) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(threads, name)
        self._turns: dict[Reader, tuple[asyncio.Lock, int]] = {}
        """For each reader its turn, and how many wait for it or have it."""

    async def run(self, reader: Reader, task: Callable[[], T]) -> T:
        """Do it in a thread, when it is this reader's turn."""
        turn, count = self._turns.get(reader) or (asyncio.Lock(), 0)
        self._turns[reader] = turn, count + 1
        try:
            async with turn:
                return await self._loop.run_in_executor(self._threads, task)
        finally:
            _, count = self._turns.pop(reader)
            if count > 1:
                self._turns[reader] = turn, count - 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class HistoryReads:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.resuming = Lane(loop, RESUMING, "history-resume")
        self.polling = Lane(loop, POLLING, "history-poll")

    def close(self) -> None:
        self.resuming.close()
        self.polling.close()
