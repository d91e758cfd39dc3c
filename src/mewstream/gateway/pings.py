"""Pings for silent connections: one timer for all of them, and nothing to do for those that talk."""

from __future__ import annotations

import asyncio

from mewstream.gateway.websocket import WebSocketMember
from mewstream.protocol.close_codes import CloseReason

#: How often in an interval silent connections are looked for: a ping is late by at most that part of it.
CHECKS = 8
#: A peer that is behind cannot be pinged. It is closed after this many intervals in which it has sent nothing.
STALLED_INTERVALS = 6


class Pings:
    """Pings connections that were silent for an interval, and closes those that are silent for another one."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, interval: float, pinged_at: dict[WebSocketMember, float]
    ) -> None:
        self._loop = loop
        self._interval = interval
        self._pinged_at = pinged_at
        self._timer = loop.call_later(interval / CHECKS, self._ping_silent)

    def stop(self) -> None:
        self._timer.cancel()

    def _ping_silent(self) -> None:
        self._timer = self._loop.call_later(self._interval / CHECKS, self._ping_silent)
        now = self._loop.time()
        latest = now - self._interval
        for peer in [peer for peer in self._pinged_at if peer.heard_at <= latest]:
            self._ask(peer, now)

    def _ask(self, peer: WebSocketMember, now: float) -> None:
        if peer.reading.is_held:
            peer.heard_at = now  # we do not read from it, so that it may have sent something
        elif peer.outbound.is_behind:
            if now - peer.heard_at >= STALLED_INTERVALS * self._interval:
                peer.close(CloseReason.SLOW_CONSUMER)
        elif self._pinged_at[peer] <= peer.heard_at:
            self._pinged_at[peer] = now
            peer.outbound.ping()
        elif now - self._pinged_at[peer] >= self._interval:
            peer.close(CloseReason.PING_TIMEOUT)
