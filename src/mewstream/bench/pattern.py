"""The frames of one writer as a repeating pattern of bytes, and a reader that compares with it.

All frames have the same size and a number. So every byte that a gateway must send is known before the run, and a chunk
of any length is checked for completeness, order and content by one comparison in C. When something else arrives (a
ping, a presence message, another framing), a reader parses single messages until the bytes match the pattern again.
"""

from __future__ import annotations

from mewstream.bench import wire
from mewstream.bench.errors import CheckFailed, Overloaded
from mewstream.bench.peer import describe_close

#: Width of the numbers, which start again after a period.
DIGITS = 10
_PERIOD_BYTES = 8 << 20
_SEQUENCE = b"%010d"


class Pattern:
    """The frames of one writer on one stream: a period of numbered frames, which is repeated."""

    def __init__(self, stream: str, size: int, *, opcode: int = wire.TEXT) -> None:
        self.stream = stream
        self.opcode = opcode
        self._prefix = b"#%b#" % stream.encode()
        self._padding = b"x" * (size - DIGITS)
        body_size = len(self._prefix) + size
        self.period = max(1024, _PERIOD_BYTES // body_size)
        bodies = [self.body(number) for number in range(self.period)]
        head = wire.client_message(opcode, bodies[0])[: -len(bodies[0])]
        self.sent = _joined(head, bodies)
        """The period as the writer sends it."""
        self.sent_size = len(head) + body_size
        self._received: dict[int, tuple[bytes, int]] = {}

    def body(self, number: int) -> bytes:
        """The message of the frame with a number."""
        return self._prefix + _SEQUENCE % (number % self.period) + self._padding

    def received(self, opcode: int) -> tuple[bytes, int]:
        """The period as a reader gets it, and the size of one frame. Some gateways turn text into binary."""
        if opcode not in self._received:
            bodies = [self.body(number) for number in range(self.period)]
            head = wire.server_header(opcode, len(bodies[0]))
            self._received[opcode] = _joined(head, bodies), len(head) + len(bodies[0])
        return self._received[opcode]


def _joined(head: bytes, bodies: list[bytes]) -> bytes:
    return head + head.join(bodies)


class PatternReader:
    """Checks that one reader gets a pattern."""

    def __init__(self, participant: str, pattern: Pattern) -> None:
        self.participant = participant
        self.opcode = pattern.opcode
        """The period as the gateway sends it."""
        self.replies: list[bytes] = []
        """Pongs to be sent."""
        self._pattern = pattern
        self._bytes, self._size = pattern.received(pattern.opcode)
        self._periods = 0
        self._at = 0
        """The position of the next expected byte in the period."""
        self._messages: wire.Messages | None = None
        """Set while single messages are parsed; ``_at`` is then the start of a frame."""

    @property
    def frames(self) -> int:
        """The number of complete frames, all as expected."""
        return self._periods * self._pattern.period + self._at // self._size

    def feed(self, data: memoryview, now: int) -> None:
        """Check received bytes. Raises CheckFailed if they are not what the writer sent."""
        if self._messages is None and self._fits(data):
            return
        if self._messages is None:
            begun = self._at % self._size
            self._messages = wire.Messages(self._bytes[self._at - begun : self._at])
            self._at -= begun
        self._messages.feed(data)
        self._look_closely()

    def _fits(self, data: bytes | memoryview) -> bool:
        size = len(data)
        room = len(self._bytes) - self._at
        if size < room:
            if not self._bytes.startswith(data, self._at):
                return False
            self._at += size
            return True
        if not self._bytes.startswith(data[:room], self._at):
            return False
        periods, rest = divmod(size - room, len(self._bytes))
        start = room
        for _ in range(periods):
            if not self._bytes.startswith(data[start : start + len(self._bytes)]):
                return False
            start += len(self._bytes)
        if not self._bytes.startswith(data[start:]):
            return False
        self._periods += periods + 1
        self._at = rest
        return True

    def _look_closely(self) -> None:
        messages = self._messages
        assert messages is not None
        while taken := messages.take(1):
            (opcode, payload) = taken[0]
            if payload[:1] == b"#" and opcode in (wire.TEXT, wire.BINARY):
                self._take_frame(opcode, payload)
            elif opcode == wire.PING:
                self.replies.append(wire.client_message(wire.PONG, payload))
            elif opcode == wire.CLOSE:
                raise Overloaded(
                    f"{self.participant} was disconnected after {self.frames} frames: {describe_close(payload)}"
                )
            elif b'"frames_dropped"' in payload:
                raise Overloaded(f"{self.participant}: the gateway dropped frames, because this reader was too slow")
            # The rest may match the pattern again.
            if messages.is_between and self._fits(messages.unread):
                self._messages = None
                return

    def _take_frame(self, opcode: int, payload: bytes) -> None:
        number = self._at // self._size
        if payload != self._pattern.body(number):
            raise CheckFailed(_describe(self.participant, self.frames, self._pattern, payload))
        if opcode != self.opcode:
            self.opcode = opcode
            self._bytes, self._size = self._pattern.received(opcode)
        number += 1
        if number == self._pattern.period:
            number = 0
            self._periods += 1
        self._at = number * self._size


def _describe(participant: str, frames: int, pattern: Pattern, payload: bytes) -> str:
    prefix = len(pattern.stream) + 2
    expected = frames % pattern.period
    try:
        got = int(payload[prefix : prefix + DIGITS])
    except ValueError:
        got = -1
    if got < 0 or payload != pattern.body(got):
        return f"{participant}: frame {frames} came changed: {payload[:60]!r}"
    if got > expected:
        return f"{participant}: frame {expected} is missing or out of order, got {got}"
    return f"{participant}: frame {got} came again or out of order, expected {expected}"
