"""The receiving side of one WebSocket: whole messages out of fragments, reading held when needed."""

from __future__ import annotations

import asyncio
import codecs

from mewstream.protocol import frames
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


class Reading:
    """Reading from one peer, which several reasons may hold up at the same time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._held: set[object] = set()

    def hold(self, why: object) -> None:
        is_first = not self._held
        self._held.add(why)
        if is_first and self._is_tls:
            # We may be in the middle of a read: a TLS transport that is paused there keeps what it has not handed over
            # yet, and after a resume gives it only when the peer sends more.
            self._loop.call_soon(self._follow)
        elif is_first:
            self._follow()

    def release(self, why: object) -> None:
        if why in self._held:
            self._held.discard(why)
            self._follow()

    @property
    def is_held(self) -> bool:
        return bool(self._held)

    def take_turns(self) -> None:
        """There is more to read, and others wait: go on in the next turn of the loop."""
        if not self._is_tls:
            self.hold(self)
            self._loop.call_soon(self.release, self)

    def _follow(self) -> None:
        if self._transport.is_closing():
            return
        if self._held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


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


class Throttle:
    """The rates of one sender (decision 19). Over a socket reading slows down and nothing is refused:
    what one read brings is bounded. Over HTTP there is nothing to hold up, so the sender is told to
    wait, and is charged for nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reading: Reading | None, limits: Limits) -> None:
        now = loop.time()
        self._loop = loop
        self._reading = reading
        self._envelopes = _rate("envelopes_per_second", limits.envelopes_per_second, now)
        self._frames = _rate("frames_per_second", limits.frames_per_second, now)
        self._bytes = _rate("bytes_per_second", limits.bytes_per_second, now)
        self._caused = _rate("caused_bytes_per_second", limits.caused_bytes_per_second, now, burst_seconds=4)
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


def _rate(name: str, per_second: float, now: float, *, burst_seconds: float = 1) -> Rate | None:
    return Rate(name, per_second, now, burst=per_second * burst_seconds) if per_second > 0 else None


class FragmentError(Exception):
    """Fragments came in an order that RFC 6455 (section 5.4) does not allow."""


_Utf8 = codecs.getincrementaldecoder("utf-8")


class Assembler:
    """Puts a fragmented message together, within the limit."""

    __slots__ = ("_checker", "_opcode", "_parts", "_size")

    def __init__(self) -> None:
        self._checker: codecs.IncrementalDecoder | None = None
        self._opcode = 0
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_open(self) -> bool:
        return self._opcode != 0

    def add(self, opcode: int, fin: bool, payload: bytes, max_bytes: int) -> tuple[int, bytes] | None:
        """The whole message and its opcode when this was its last fragment. Text that cannot become UTF-8 any more
        raises UnicodeDecodeError: nobody waits for the rest of it (RFC 6455, 8.1)."""
        if (opcode == 0) != self.is_open:
            raise FragmentError("a continuation of nothing" if opcode == 0 else "a new message inside a fragmented one")
        if opcode:
            self._opcode = opcode
            self._checker = _Utf8() if opcode == frames.TEXT else None
        self._size += len(payload)
        if self._size > max_bytes:
            raise LimitExceeded(f"the message is larger than {max_bytes} bytes", limit="message_bytes")
        if self._checker is not None:
            self._checker.decode(payload, fin)
        self._parts.append(payload)
        # One byte a fragment must not cost an object each.
        if len(self._parts) >= 256:
            self._parts = [b"".join(self._parts)]
        if not fin:
            return None
        message = self._opcode, b"".join(self._parts)
        self._opcode, self._size = 0, 0
        self._checker, self._parts = None, []
        return message
