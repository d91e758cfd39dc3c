"""Log lines that anybody can cause: their number is bounded, and the next line says how many were left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mewstream.io.log_lines import event

log = logging.getLogger("mewstream.gateway")

#: Lines that may come at once, and how many a second after that.
BURST = 20
LINES_PER_SECOND = 1.0


class BoundedLog:
    """``left_out`` completes the message "12 more ... and not logged"."""

    def __init__(self, level: int, left_out: str, now: Callable[[], float] = time.monotonic) -> None:
        self._level = level
        self._left_out = left_out
        self._now = now
        self._at = now()
        self._lines = float(BURST)
        self._unsaid = 0

    def say(self, name: str, text: str, **ids: str | int | None) -> None:
        """Log a line with the event ``name``."""
        now = self._now()
        self._lines = min(BURST, self._lines + (now - self._at) * LINES_PER_SECOND)
        self._at = now
        if self._lines < 1:
            self._unsaid += 1
            return
        self._lines -= 1
        unsaid, self._unsaid = self._unsaid, 0
        more = f" ({unsaid} more {self._left_out} and not logged)" if unsaid else ""
        log.log(self._level, "%s%s", text, more, extra=event(name, **ids))
