"""The frames of several writers, each stamped with its sending time, and readers that check them.

A gateway sends the frames of a space to all readers in one order. So a frame is parsed only for the first reader of a
process that gets it (is it complete, and the next of its writer?); the other readers compare their bytes with it, in C.
If a gateway has no such order, or sends one reader something else in between, that reader parses every message.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence

from mewstream.bench import wire
from mewstream.bench.errors import CheckFailed, Overloaded
from mewstream.bench.peer import describe_close

_TAIL = b"%04d%010d%016x"
_TAIL_BYTES = 30
MIN_SIZE = 32
_KEEP_BYTES = 4 << 20
#: Of the frames that were received at once, this many are timed and represent the others.
_TIMED = 4
_MICROSECOND = 1000


class Stamped:
    """The frames of several writers, each on its own stream, all of the same size."""

    def __init__(
        self, streams: Sequence[str], size: int, *, opcode: int = wire.TEXT, received: int | None = None
    ) -> None:
        """``received`` is the opcode on arrival, if the gateway changes it."""
        # Frames with longer ids get less padding, so that all have the same size.
        longest = max(len(stream.encode()) for stream in streams)
        self.body_size = longest + 2 + size
        self.heads = [
            (prefix := b"#%b#" % stream.encode()) + b"x" * (self.body_size - _TAIL_BYTES - len(prefix))
            for stream in streams
        ]
        self.opcode = opcode if received is None else received
        self._client_header = wire.client_message(opcode, bytes(self.body_size))[: -self.body_size]
        self.server_header = wire.server_header(self.opcode, self.body_size)
        self.size = len(self.server_header) + self.body_size
        self.fields = struct.Struct(f"{len(self.server_header)}s{self.body_size - _TAIL_BYTES}s4s10s16s")
        self._sent = [self._client_header + head for head in self.heads]

    def message(self, writer: int, number: int, now: int) -> bytes:
        """A frame as its writer sends it."""
        return self._sent[writer] + _TAIL % (writer, number, now)


class _Deviation(Exception):
    """Something other than a frame of the common order, perhaps a message for one reader only."""


class SharedOrder:
    """The frames in the order of the gateway, as far as a reader still needs them."""

    def __init__(self, frames: Stamped) -> None:
        self.frames = frames
        self.data = bytearray()
        self.start = 0
        """The position of the first byte that is kept, which is the start of a frame."""
        self.looked_at = 0
        """The position up to which frames have been parsed."""
        self.counts = [0] * len(frames.heads)
        """The number of frames of each writer up to that position."""
        self._counts_at_start = list(self.counts)
        self.readers: set[OrderReader] = set()

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def extend(self, data: memoryview) -> None:
        """Append bytes that no reader had before. Raises _Deviation if they are not frames."""
        before = len(self.data)
        self.data += data
        whole = (self.end - self.looked_at) // self.frames.size * self.frames.size
        begin = self.looked_at - self.start
        counts = list(self.counts)
        try:
            _advance(self.frames, bytes(self.data[begin : begin + whole]), counts)
        except _Deviation:
            del self.data[before:]
            raise
        self.looked_at += whole
        self.counts = counts

    def counts_at(self, position: int) -> list[int]:
        """The number of frames of each writer before a position, which is the start of a frame."""
        counts = list(self._counts_at_start)
        _advance(self.frames, bytes(self.data[: position - self.start]), counts)
        return counts

    def forget(self) -> None:
        """Drop the bytes that every reader has received."""
        if len(self.data) < _KEEP_BYTES:
            return
        size = self.frames.size
        position = min((reader.position for reader in self.readers), default=self.end) // size * size
        if position > self.start:
            self._counts_at_start = self.counts_at(position)
            del self.data[: position - self.start]
            self.start = position


def _advance(frames: Stamped, data: bytes, counts: list[int]) -> None:
    header, heads = frames.server_header, frames.heads
    try:
        for got, head, writer_digits, number, _ in frames.fields.iter_unpack(data):
            writer = int(writer_digits)
            if got != header or head != heads[writer]:
                raise _Deviation
            if int(number) != counts[writer]:
                raise _Deviation
            counts[writer] += 1
    except (ValueError, IndexError):
        raise _Deviation from None


class OrderReader:
    """Checks the frames of one reader and measures their latency."""

    def __init__(self, participant: str, shared: SharedOrder) -> None:
        self.participant = participant
        self.opcode = shared.frames.opcode
        self.replies: list[bytes] = []
        self.latencies: Counter[int] = Counter()
        """Latency in microseconds -> number of frames."""
        self.position = 0
        self._frames = shared.frames
        self._shared: SharedOrder | None = shared
        self._messages = wire.Messages()
        self._counts: list[int] = []
        shared.readers.add(self)

    @property
    def frames(self) -> int:
        return self.position // self._frames.size if self._shared is not None else sum(self._counts)

    def feed(self, data: memoryview, now: int) -> None:
        """Check bytes that were received at a time. Raises CheckFailed if they are not what the writers sent."""
        shared = self._shared
        if shared is not None:
            if self._fits(shared, data):
                self._time(shared, len(data), now)
                self.position += len(data)
                shared.forget()
                return
            begun = self.position % self._frames.size
            boundary = self.position - begun
            self._counts = shared.counts_at(boundary)
            start = boundary - shared.start
            self._messages.feed(bytes(shared.data[start : start + begun]))
            shared.readers.discard(self)
            self._shared = None
        self._messages.feed(data)
        self._look_closely(now)

    def _fits(self, shared: SharedOrder, data: memoryview) -> bool:
        known = min(len(data), shared.end - self.position)
        if not shared.data.startswith(data[:known], self.position - shared.start):
            return False
        if known < len(data):
            try:
                shared.extend(data[known:])
            except _Deviation:
                return False
        return True

    def _time(self, shared: SharedOrder, received: int, now: int) -> None:
        """Measure the latency of the frames that these bytes complete, by a sample that includes the oldest."""
        size = self._frames.size
        first = self.position // size
        count = (self.position + received) // size - first
        if count <= 0:
            return
        data, latencies = shared.data, self.latencies
        stamp = first * size - shared.start + size
        timed = min(count, _TIMED)
        for part in range(timed):
            begin = count * part // timed
            weight = count * (part + 1) // timed - begin
            at = stamp + begin * size
            latencies[(now - int(data[at - 16 : at], 16)) // _MICROSECOND] += weight

    def _look_closely(self, now: int) -> None:
        for opcode, payload in self._messages.take():
            if payload[:1] == b"#" and opcode in (wire.TEXT, wire.BINARY):
                self.opcode = opcode
                self._take_frame(payload, now)
            elif opcode == wire.PING:
                self.replies.append(wire.client_message(wire.PONG, payload))
            elif opcode == wire.CLOSE:
                raise Overloaded(
                    f"{self.participant} was disconnected after {self.frames} frames: {describe_close(payload)}"
                )
            elif b'"frames_dropped"' in payload:
                raise Overloaded(f"{self.participant}: the gateway dropped frames, because this reader was too slow")

    def _take_frame(self, payload: bytes, now: int) -> None:
        head, tail = payload[:-_TAIL_BYTES], payload[-_TAIL_BYTES:]
        try:
            writer, number, stamp = int(tail[:4]), int(tail[4:14]), int(tail[14:], 16)
            changed = head != self._frames.heads[writer]
        except (ValueError, IndexError):
            changed = True
        if changed:
            raise CheckFailed(f"{self.participant}: frame {self.frames} came changed: {payload[:60]!r}")
        expected = self._counts[writer]
        if number > expected:
            raise CheckFailed(
                f"{self.participant}: frame {expected} of writer {writer} is missing or out of order, got {number}"
            )
        if number < expected:
            raise CheckFailed(
                f"{self.participant}: frame {number} of writer {writer} came again or out of order, expected {expected}"
            )
        self._counts[writer] += 1
        self.latencies[(now - stamp) // _MICROSECOND] += 1


def percentile(latencies: Counter[int], share: float) -> float:
    """The latency in milliseconds within which this share of the frames arrived."""
    wanted = share * latencies.total()
    seen = 0
    for micros, count in sorted(latencies.items()):
        seen += count
        if seen >= wanted:
            return micros / 1000
    return 0.0
