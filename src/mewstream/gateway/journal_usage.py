"""How much room the journal takes, how much is left, and how far its consumers are behind. A disk may take its time to
say so, and all files of the journal are looked at: this is done in a thread, and not for everyone who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mewstream.gateway.recorder import Recorder
from mewstream.journal.interface import Usage

#: Seconds for which a measurement is good.
FRESH_SECONDS = 10.0


class JournalUsage:
    def __init__(self, recorder: Recorder) -> None:
        self.current: Usage | None = None
        """None if there is no journal, or it is not known."""
        self.consumer_lag: Mapping[str, int] = {}
        """The records that each named consumer has not read, as far as they are committed."""
        self._recorder = recorder
        self._measured_at = -FRESH_SECONDS
        self._lock = asyncio.Lock()

    async def measure(self) -> None:
        """Bring the figures up to date, if they are too old."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if loop.time() - self._measured_at >= FRESH_SECONDS:
                self.current, self.consumer_lag = await asyncio.to_thread(self._ask)
                self._measured_at = loop.time()

    def _ask(self) -> tuple[Usage | None, Mapping[str, int]]:
        return self._recorder.usage(), self._recorder.consumer_lag()
