"""Log lines about pages and tokens that were refused. Anybody can cause them, so their number is bounded."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("mewstream.gateway")

#: Lines that may come at once, and how many a second after that.
BURST = 20
LINES_PER_SECOND = 1.0
#: How much of an origin is quoted. Those of browsers are shorter.
_ORIGIN_CHARACTERS = 100


class RefusedVisitors:
    """Says who was not let in, and how many more of them there were than lines."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._at = now()
        self._lines = float(BURST)
        self._unsaid = 0

    def page(self, origin: str, address: str) -> None:
        shown = "".join(char if char.isascii() and char.isprintable() else "?" for char in origin[:_ORIGIN_CHARACTERS])
        self._say(f"refused a page of {shown}{_from(address)}: see gateway.allowed_origins")

    def token(self, address: str, *, space: str | None, participant: str | None) -> None:
        """``space`` and ``participant`` must be known names. Anything else may be a token in the wrong place."""
        who = f" of {participant}" if participant is not None else ""
        where = f" in {space}" if space is not None else ""
        self._say(f"refused a token{who}{where}{_from(address)}: it is unknown, malformed, or belongs to another")

    def _say(self, text: str) -> None:
        now = self._now()
        self._lines = min(BURST, self._lines + (now - self._at) * LINES_PER_SECOND)
        self._at = now
        if self._lines < 1:
            self._unsaid += 1
            return
        self._lines -= 1
        unsaid, self._unsaid = self._unsaid, 0
        log.info("%s%s", text, f" ({unsaid} more were refused and not logged)" if unsaid else "")


def _from(address: str) -> str:
    return f", from {address}" if address else ""
