"""Pings for silent connections: one timer for all of them, and nothing to do for those that talk."""

from __future__ import annotations

import asyncio

from mewstream.gateway.websocket import WebSocketMember
from mewstream.protocol.close_codes import CloseReason

#: How often in an interval it is looked who is silent: a ping comes that much of an interval late at most.
LOOKS = 8
#: A peer that is behind cannot be pinged. It is given up after so many intervals in which nothing came from it.
STALLED_INTERVALS = 6


class Pings:
    """Whoever was silent for an interval is pinged; whoever then is silent for another one is let go."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, interval: float, pinged_at: dict[WebSocketMember, float]
    ) -> None:
        self._loop = loop
        self._interval = interval
        self._pinged_at = pinged_at
        self._timer = loop.call_later(interval / LOOKS, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._interval / LOOKS, self._look)
        now = self._loop.time()
        latest = now - self._interval
        for peer in [peer for peer in self._pinged_at if peer.heard_at <= latest]:
            self._ask(peer, now)

    def _ask(self, peer: WebSocketMember, now: float) -> None:
        if peer.reading.is_held:
            peer.heard_at = now  # it may be we who do not listen
        elif peer.outbound.is_behind:
            if now - peer.heard_at >= STALLED_INTERVALS * self._interval:
                peer.close(CloseReason.SLOW_CONSUMER)
        elif self._pinged_at[peer] <= peer.heard_at:
            self._pinged_at[peer] = now
            peer.outbound.ping()
        elif now - self._pinged_at[peer] >= self._interval:
            peer.close(CloseReason.PING_TIMEOUT)
