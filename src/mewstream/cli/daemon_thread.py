"""Reads and writes that may block for ever, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThread:
    """Calls functions in a daemon thread, which Python does not wait for at exit.

    A pipe that nobody reads, or a terminal at which nobody types, then delays neither Ctrl-C nor the answers to the
    gateway's pings."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="mewstream-blocking").start()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the thread, after the calls before it, and return or raise what it does."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if outcome.done():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)  # type: ignore[arg-type]  # there was no error, so it is a T

        def run() -> None:
            result, error = None, None
            try:
                result = function(*args)
            except Exception as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody awaits the result
                loop.call_soon_threadsafe(settle, result, error)

        self._calls.put(run)
        return await outcome

    def _work(self) -> None:
        while True:
            self._calls.get()()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes without Python's buffers: a buffer locked by a stuck thread could not be flushed at exit."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
