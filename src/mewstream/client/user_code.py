"""Running the functions that a program gives us: async ones as tasks, plain ones in threads of their own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any


class UserCode:
    """Threads that are started when they are needed. They are not those of :func:`asyncio.to_thread`: functions that
    hang must not keep anything else of the program waiting."""

    def __init__(self, name: str, max_threads: int) -> None:
        self._name = name
        self._max_threads = max_threads
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., Any], /, *args: Any, **arguments: Any) -> Any:
        """Call a function and return its result. If we are cancelled, so is an async function; a thread goes on, and
        its result is dropped."""
        if _is_async(function):
            return await function(*args, **arguments)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._max_threads, thread_name_prefix=self._name)
        call = partial(contextvars.copy_context().run, function, *args, **arguments)
        result = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        return await result if inspect.isawaitable(result) else result

    def end(self) -> None:
        """Start nothing more. Threads that run are left to themselves."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
