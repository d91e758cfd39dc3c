"""A flood of the same refusal is summed up: the first is reported, the rest are counted.

Keyed by connection, stream and code, and by the version of the stream's rights, so that the first
refusal after every change of rights is reported at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mewstream.protocol.commands import Refuse
from mewstream.protocol.records import Refused

WINDOW = 1.0
MAX_KEYS = 64

_Key = tuple[str, str, int]


class _Window:
    __slots__ = ("count", "last", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.count = 0
        self.last: Refused | None = None


class RefusalFlood:
    """The refusals of frames of one connection. ``report`` records a sum."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[Refuse], object]) -> None:
        self._loop = loop
        self._report = report
        self._windows: dict[_Key, _Window] = {}
        self._evicted: list[_Window] = []

    def is_first(self, refused: Refused, version: int) -> bool:
        """Whether this refusal is to be reported by itself; if not, it has been counted. ``version`` 0:
        there is no such stream. When many are named, those share a place: their number is the
        sender's choice."""
        key = (refused.stream_id or "", refused.code, version)
        if not version and key not in self._windows and len(self._windows) >= MAX_KEYS // 2:
            key = ("", refused.code, 0)
        window = self._windows.get(key)
        if window is not None:
            window.count += 1
            window.last = refused
            return False
        if len(self._windows) >= MAX_KEYS:
            self._evict(next(iter(self._windows)))
        self._windows[key] = _Window(self._loop.call_later(WINDOW, self._due, key))
        return True

    def finish(self) -> None:
        """The connection ends: nothing that was counted is forgotten."""
        for key in list(self._windows):
            self._evict(key)
        self._report_evicted()

    def _due(self, key: _Key) -> None:
        window = self._windows[key]
        if not window.count:
            del self._windows[key]
            return
        self._sum_up(window)
        window.timer = self._loop.call_later(WINDOW, self._due, key)

    def _evict(self, key: _Key) -> None:
        """Not reported at once: a refusal is being decided, and a report would take its place in the log."""
        window = self._windows.pop(key)
        window.timer.cancel()
        self._evicted.append(window)
        self._loop.call_soon(self._report_evicted)

    def _report_evicted(self) -> None:
        evicted, self._evicted = self._evicted, []
        for window in evicted:
            self._sum_up(window)

    def _sum_up(self, window: _Window) -> None:
        last, count = window.last, window.count
        window.last, window.count = None, 0
        if last is None:
            return
        self._report(
            Refuse(
                sender=last.sender,
                kind=last.kind,
                code=last.code,
                message=f"{last.message} ({count} frames since the last report)",
                http_status=last.http_status,
                details=last.details,
                stream_id=last.stream_id,
                excerpt=last.excerpt.encode(),
                count=count,
            )
        )
