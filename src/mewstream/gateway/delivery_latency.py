"""How long messages take from when they are accepted to when they are written to the sockets of their readers.

This is sampled, so that it costs the other messages nothing: from time to time a probe takes the place of the outbox
until the next message comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from mewstream.gateway.broadcast import Broadcast
from mewstream.gateway.fanout import Outbox, Parcel

#: At least so many seconds are between two samples of a space.
SAMPLE_SECONDS = 0.1


class DeliveryLatency:
    """``observe`` is called with the seconds that a message took, which include its wait for the journal."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, broadcast: Broadcast, outbox: Outbox, observe: Callable[[float], None]
    ) -> None:
        self._loop = loop
        self._broadcast = broadcast
        self._outbox = outbox
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None
        self.arm()

    def arm(self) -> None:
        """Measure the next message."""
        self._broadcast.outbox = self

    def add(self, parcel: Parcel) -> None:
        """Pass a message on to the outbox, and measure it."""
        self._broadcast.outbox = self._outbox
        began = time.perf_counter()  # the time of a loop stands still within a turn
        self._outbox.add(parcel)
        # The outbox hands over what it has at the end of this turn of the event loop, before this is called.
        self._loop.call_soon(self._outbox.then, partial(self._delivered, began))

    def _delivered(self, began: float) -> None:
        self._observe(time.perf_counter() - began)
        self._timer = self._loop.call_later(SAMPLE_SECONDS, self.arm)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
