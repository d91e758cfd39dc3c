"""An event loop in a thread, and the documentation that the twins share with the originals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from mewstream.client.link import closed_here

T = TypeVar("T")
C = TypeVar("C", bound=type)


def documented_as(original: type) -> Callable[[C], C]:
    """Give the members of a class the documentation of those with the same name in ``original``."""

    def document(twin: C) -> C:
        for name, member in vars(twin).items():
            if not name.startswith("_") and member.__doc__ is None:
                member.__doc__ = getattr(original, name).__doc__
        return twin

    return document


class EventLoop:
    """An event loop in a thread, for as long as a space is open."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._serve, name="mewstream-sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            # Nobody in another thread may be left waiting for ever.
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and wait for its result. An interrupt cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this would wait for itself: in async code use mewstream.connect, not mewstream.sync")
        with self._lock:
            if self._is_stopping:
                work.close()
                raise closed_here()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise closed_here() from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        async def work() -> T:
            return function()

        return self.run(work())

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def stop(self) -> None:
        with self._lock:
            if not self._is_stopping:
                self._is_stopping = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
