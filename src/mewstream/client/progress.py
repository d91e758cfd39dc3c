"""Telling a caller how far its request is, without keeping the connection waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mewstream.client.user_code import UserCode

if TYPE_CHECKING:
    from types import TracebackType

#: Called with the progress, the total and a message, of which the last two may be None.
OnProgress = Callable[[float, float | None, str | None], Any | Awaitable[Any]]

#: How many reports may wait for a slow function; the oldest are dropped.
_MAX_PENDING = 100

logger = logging.getLogger("mewstream.client")


class Progress:
    """Calls a function for each report within the block, one after the other. What has come before the end of the block
    is reported before the block is left."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._reports: asyncio.Queue[tuple[float, float | None, str | None] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def received(self, params: dict[str, object]) -> None:
        """Take over a report of another participant, which may contain anything."""
        progress, total, message = _number(params.get("progress")), params.get("total"), params.get("message")
        if progress is None:
            return
        if self._reports.qsize() >= _MAX_PENDING:
            self._reports.get_nowait()
        self._reports.put_nowait((progress, _number(total), message if isinstance(message, str) else None))

    async def __aenter__(self) -> Progress:
        if self._on_progress is not None:
            self._task = asyncio.get_running_loop().create_task(self._report(self._on_progress))
        return self

    async def _report(self, on_progress: OnProgress) -> None:
        code = UserCode("mewstream-progress", 1)
        try:
            while (report := await self._reports.get()) is not None:
                try:
                    await code.run(on_progress, *report)
                except Exception:
                    logger.exception("the function for progress failed")
        finally:
            code.end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        if error is not None:
            self._task.cancel()
        else:
            self._reports.put_nowait(None)
        await asyncio.wait([self._task])


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
