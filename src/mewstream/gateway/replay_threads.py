"""Threads that read the journal for participants: a bounded number, and one read of each participant at a time.

Participants that resume, that poll, and that read the history of a stream have threads of their own, so that a resume
waits for other resumes only, however much is polled or read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Reader = tuple[str, str]
"""A space and a participant of it."""

#: How many threads. They share one interpreter with the event loop: more would take its time and win nothing.
RESUMING = 2
POLLING = 1
READING = 1


class Lane:
    """A pool of threads. The reads of one participant are done one after another, those of others in between."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int, name: str) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(threads, name)
        self._turns: dict[Reader, tuple[asyncio.Lock, int]] = {}
        """For each reader a lock, and how many of its reads wait for the lock or hold it."""

    async def run(self, reader: Reader, task: Callable[[], T]) -> T:
        """Run a task in a thread, after those that the same reader has asked for before, and return its result."""
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


class ReplayThreads:
    """The threads of one gateway."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.resuming = Lane(loop, RESUMING, "replay-resume")
        self.polling = Lane(loop, POLLING, "replay-poll")
        self.reading = Lane(loop, READING, "replay-read")

    def close(self) -> None:
        self.resuming.close()
        self.reading.close()
        self.polling.close()
