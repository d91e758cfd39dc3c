"""The receiving side of one WebSocket: how much is read at a time, and how fast."""

from __future__ import annotations

import asyncio

from mewstream.io.reading import Reading
from mewstream.protocol.errors import LimitExceeded
from mewstream.protocol.policy import Limits

#: Bytes of one read: while no other connection sends, and while others would have to wait for them.
MANY_BYTES = 64 << 10
FEW_BYTES = 8 << 10
_ALONE_SECONDS = 0.05


class Turns:
    """Knows whether one connection alone has been sending for a while."""

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
    """A rate limiter: a token bucket that may be overdrawn, after which its user must wait. It holds ``burst`` tokens,
    by default those of a second."""

    __slots__ = ("_at", "_most", "_tokens", "name", "per_second", "timer")

    def __init__(self, name: str, per_second: float, now: float, *, burst: float | None = None) -> None:
        self.name = name
        self.per_second = per_second
        self.timer: asyncio.TimerHandle | None = None
        self._most = per_second if burst is None else burst
        self._tokens = self._most
        self._at = now

    def wait_for(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken. Nothing is taken."""
        self._tokens = min(self._most, self._tokens + (now - self._at) * self.per_second)
        self._at = now
        # An amount larger than the bucket may be taken when it is full.
        missing = min(amount, self._most) - self._tokens
        return max(0.0, missing / self.per_second)

    def take(self, amount: float, now: float) -> float:
        """Take tokens. Returns the seconds to wait before the next message, 0 while within the rate."""
        self.wait_for(0, now)  # to fill it up
        self._tokens -= amount
        return max(0.0, -self._tokens / self.per_second)

    def exceeded(self, what: str, wait: float) -> LimitExceeded:
        """The refusal of somebody who must wait. ``what`` says what was too much."""
        text = f"{what}: try again in {wait:.1f} seconds"
        return LimitExceeded(text, limit=self.name, retry_after=round(wait, 1))


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
    """The rate limits of one sender (decision 19). Over a socket nothing is refused: reading pauses until the sender is
    within the rate again. Over HTTP there is no reading to pause, so the sender is refused with the time to wait, and
    nothing is charged."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, reading: Reading | None, limits: Limits, *, caused: Rate | None
    ) -> None:
        """``caused`` is the rate of what the participant causes, by all of its connections."""
        now = loop.time()
        self._loop = loop
        self._reading = reading
        self._caused = caused
        self._envelopes = _rate("envelopes_per_second", limits.envelopes_per_second, now)
        self._frames = _rate("frames_per_second", limits.frames_per_second, now)
        self._bytes = _rate("bytes_per_second", limits.bytes_per_second, now)
        self.watches_frames = self._frames is not None or self._bytes is not None

    def caused(self, size: int) -> None:
        """Charge for the messages that the last envelope caused, beyond itself."""
        if self._caused is not None:
            self._caused.take(size, self._loop.time())

    def seconds_owed(self) -> float:
        """Seconds that a sender that has caused too much must wait. Pausing reading is not enough, because one read may
        bring hundreds of envelopes that each cause much."""
        return 0.0 if self._caused is None else self._caused.wait_for(0, self._loop.time())

    def charge(self, size: int, *, frames: int = 0) -> None:
        """Charge for an envelope, or for a number of frames, of ``size`` bytes in all."""
        charges = [(self._envelopes, 1), (self._bytes, size), (self._caused, 0)]
        if frames:
            charges = [(self._frames, frames), (self._bytes, size)]
        now = self._loop.time()
        if self._reading is None:
            for rate, amount in charges:
                if rate is not None and (wait := rate.wait_for(amount, now)):
                    what = rate.name.removesuffix("_per_second")
                    raise rate.exceeded(f"more than {rate.per_second:g} {what} per second", wait)
        for rate, amount in charges:
            if rate is not None and (wait := rate.take(amount, now)) and self._reading is not None:
                self._hold(self._reading, rate, wait)

    def _hold(self, reading: Reading, rate: Rate, wait: float) -> None:
        """Hold reading until the newest debt is paid, which is larger than any before."""
        if rate.timer is not None:
            rate.timer.cancel()
        reading.hold(rate)
        rate.timer = self._loop.call_later(wait, reading.release, rate)


def _rate(name: str, per_second: float, now: float) -> Rate | None:
    return Rate(name, per_second, now) if per_second > 0 else None
