"""The receiving side of one WebSocket: how much is read at a time, and how fast."""

from __future__ import annotations

import asyncio

from mewstream.io.reading import Reading
from mewstream.protocol.errors import LimitExceeded
from mewstream.protocol.policy import Limits

#: What one reading may bring: while nobody else sends, and while others do, who would wait for it to be worked off.
MANY_BYTES = 64 << 10
FEW_BYTES = 8 << 10
_ALONE_SECONDS = 0.05


class Turns:
    """Who sends: one connection that floods us, or others too."""

    __slots__ = ("_last", "_loop", "_since")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last: object = None
        self._since = 0.0

    def has_read(self, connection: object) -> None:
        if connection is not self._last:
            self._last = connection
            self._since = self._loop.time()

    def is_alone(self, connection: object) -> bool:
        return connection is self._last and self._loop.time() - self._since > _ALONE_SECONDS


class Rate:
    """A token bucket that may be overdrawn: who overdraws waits. It holds a second's worth, or ``burst``."""

    __slots__ = ("_at", "_most", "_tokens", "name", "per_second", "timer")

    def __init__(self, name: str, per_second: float, now: float, *, burst: float | None = None) -> None:
        self.name = name
        self.per_second = per_second
        self.timer: asyncio.TimerHandle | None = None
        self._most = per_second if burst is None else burst
        self._tokens = self._most
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Seconds to wait before the next message; 0 while within the rate."""
        self._refill(now)
        self._tokens -= amount
        return -self._tokens / self.per_second if self._tokens < 0 else 0.0

    def has(self, amount: float, now: float) -> bool:
        return self.wait_for(amount, now) == 0.0

    def wait_for(self, amount: float, now: float) -> float:
        """Seconds until so much may be taken; taking nothing."""
        self._refill(now)
        # What is more than the bucket holds may be taken when it is full.
        missing = min(amount, self._most) - self._tokens
        return max(0.0, missing / self.per_second)

    def _refill(self, now: float) -> None:
        self._tokens = min(self._most, self._tokens + (now - self._at) * self.per_second)
        self._at = now


class ParticipantRates:
    """A token bucket for each participant of a space, which outlives its connections. ``per_second`` 0: no limit."""

    #: Participants whose buckets are kept; more than a space has.
    _MOST = 20_000

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, per_second: float, *, burst: float) -> None:
        self._loop = loop
        self._name = name
        self._per_second = per_second
        self._burst = burst
        self._rates: dict[str, Rate] = {}

    def of(self, participant: str) -> Rate | None:
        if self._per_second <= 0:
            return None
        rate = self._rates.pop(participant, None)
        if rate is None:
            rate = Rate(self._name, self._per_second, self._loop.time(), burst=self._burst)
        self._rates[participant] = rate  # now the newest: the one that was used longest ago is forgotten first
        if len(self._rates) > self._MOST:
            del self._rates[next(iter(self._rates))]
        return rate


class Throttle:
    """The rates of one sender (decision 19). Over a socket reading slows down and nothing is refused:
    what one read brings is bounded. Over HTTP there is nothing to hold up, so the sender is told to
    wait, and is charged for nothing."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, reading: Reading | None, limits: Limits, *, caused: Rate | None
    ) -> None:
        """``caused``: the rate of what the participant causes, by whatever connection."""
        now = loop.time()
        self._loop = loop
        self._reading = reading
        self._caused = caused
        self._envelopes = _rate("envelopes_per_second", limits.envelopes_per_second, now)
        self._frames = _rate("frames_per_second", limits.frames_per_second, now)
        self._bytes = _rate("bytes_per_second", limits.bytes_per_second, now)
        self.watches_frames = self._frames is not None or self._bytes is not None

    def envelope(self, size: int) -> None:
        self._take((self._envelopes, 1), (self._bytes, size), (self._caused, 0))

    def caused(self, size: int) -> None:
        """So much was told because of the last envelope, beyond it."""
        if self._caused is not None:
            self._caused.take(size, self._loop.time())

    def seconds_owed(self) -> float:
        """For how long a sender that has caused too much must wait. One reading may bring hundreds of envelopes, each
        of which causes much: so it is not reading alone that must pause."""
        return 0.0 if self._caused is None else self._caused.wait_for(0, self._loop.time())

    def frame(self, size: int) -> None:
        self._take((self._frames, 1), (self._bytes, size))

    def _take(self, *charges: tuple[Rate | None, float]) -> None:
        now = self._loop.time()
        if self._reading is None:
            for rate, amount in charges:
                if rate is not None and (wait := rate.wait_for(amount, now)):
                    raise LimitExceeded(
                        f"more than {rate.per_second:g} {rate.name.replace('_per_second', '')} per second: "
                        f"try again in {wait:.1f} seconds",
                        limit=rate.name,
                        retry_after=round(wait, 1),
                    )
        for rate, amount in charges:
            if rate is not None and (wait := rate.take(amount, now)) and self._reading is not None:
                self._hold(self._reading, rate, wait)

    def _hold(self, reading: Reading, rate: Rate, wait: float) -> None:
        """Until the newest debt is paid: each one is larger than the one before it."""
        if rate.timer is not None:
            rate.timer.cancel()
        reading.hold(rate)
        rate.timer = self._loop.call_later(wait, reading.release, rate)


def _rate(name: str, per_second: float, now: float) -> Rate | None:
    return Rate(name, per_second, now) if per_second > 0 else None
