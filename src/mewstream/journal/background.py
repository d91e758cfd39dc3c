"""A thread for work that can wait: it takes the processor time that the event loop leaves over."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from mewstream.io.log_lines import event

log = logging.getLogger("mewstream.journal")

#: Seconds after which work that failed is offered again.
RETRY_SECONDS = 60.0


class BackgroundThread:
    """Runs tasks one after another. A failure is logged and does no harm, and the task can be repeated later."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._executor = ThreadPoolExecutor(1, name, initializer=_lower_priority)
        self.is_held = False
        """While this is set, tasks are not run, as if they had failed."""

    def run(self, what: str, task: Callable[[], None], retry: Callable[[], None] | None = None) -> Future[None]:
        """Run a task; ``what`` completes the message "could not ...". If it fails, ``retry`` is called on the event
        loop after :data:`RETRY_SECONDS`."""

        def guarded() -> None:
            try:
                if not self.is_held:
                    task()
                    return
            except Exception as error:
                log.error("could not %s: %s", what, str(error) or repr(error), extra=event("journal_upkeep_failed"))
            if retry is not None:
                self.loop.call_soon_threadsafe(self.loop.call_later, RETRY_SECONDS, retry)

        return self._executor.submit(guarded)

    def close(self) -> None:
        """Wait until every task has been run."""
        self._executor.shutdown()


def _lower_priority() -> None:
    if sys.platform == "linux":  # no other system has priorities per thread
        thread = threading.get_native_id()
        # Relative to the gateway's own: without privileges, a thread cannot be given a higher priority than it has.
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + 10))
