"""Which of our frames the gateway has confirmed as recorded.

The gateway answers a :data:`RECORDED_PING` when everything sent before it is recorded. The answer to a later ping
answers for the earlier ones too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mewstream.client.errors import FramesUnconfirmed
from mewstream.protocol.frames import RECORDED_PING

#: Every gateway accepts messages of this size, so a smaller one is never what was too large.
SMALL_BYTES = 64 << 10


@dataclass(slots=True, eq=False)
class Tally:
    """Counts the frames of one stream, or of all."""

    sent: int = 0
    confirmed: int = 0
    unsure: int = 0
    """How many were sent on a connection that was lost before it confirmed them, and are not reported yet."""
    largest: int = 0
    """The size of the largest unconfirmed message; 0 where all are at most ``SMALL_BYTES``."""
    why: str = ""
    """Why that connection was lost."""

    def report(self) -> None:
        """Raise :class:`FramesUnconfirmed` where frames are unsure, once for each."""
        unsure, self.unsure = self.unsure, 0
        if unsure:
            raise FramesUnconfirmed(unsure, reason=self.why)


class Confirmations:
    """The tallies of a link, and the pings that are not answered yet."""

    def __init__(self) -> None:
        self.total = Tally()
        self._unconfirmed: set[Tally] = set()
        """Tallies with frames that are not confirmed yet."""
        self._waiting: dict[int, tuple[asyncio.Future[bool], dict[Tally, int]]] = {}
        self._pings = 0

    def sent(self, tally: Tally, size: int) -> None:
        """Count a frame of ``size`` bytes."""
        tally.sent += 1
        self.total.sent += 1
        self._unconfirmed.add(tally)
        if size > SMALL_BYTES:
            tally.largest = max(tally.largest, size)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    @property
    def ping(self) -> bytes:
        """The payload of the newest ping."""
        return RECORDED_PING + b"%d" % self._pings

    def begin(self) -> asyncio.Future[bool]:
        """Expect the answer to a new ping, whose payload is :attr:`ping`. Returns a future that tells whether it came
        before the connection was lost."""
        self._pings += 1
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        marks = {tally: tally.sent for tally in (self.total, *self._unconfirmed)}
        self._waiting[self._pings] = (done, marks)
        return done

    def forget(self, done: asyncio.Future[bool]) -> None:
        """Nobody waits for this answer any longer."""
        self._waiting = {number: each for number, each in self._waiting.items() if each[0] is not done}

    def pong(self, payload: bytes) -> None:
        """Confirm everything that was sent before the ping with this payload."""
        digits = payload[len(RECORDED_PING) :]
        if not payload.startswith(RECORDED_PING) or not digits.isdigit():
            return
        answered = int(digits)
        for number in [each for each in self._waiting if each <= answered]:
            done, marks = self._waiting.pop(number)
            for tally, mark in marks.items():
                tally.confirmed = max(tally.confirmed, mark)
                if tally.confirmed == tally.sent:
                    tally.largest = 0
                    self._unconfirmed.discard(tally)
            if not done.done():
                done.set_result(True)

    def lost(self, why: str) -> int:
        """The connection is gone, for the reason ``why``. Returns how many frames it leaves unconfirmed."""
        unconfirmed = self.total.sent - self.total.confirmed
        largest = max((tally.largest for tally in self._unconfirmed), default=0)
        if largest:
            why += f"; the largest of them had {largest} bytes, which may be more than the gateway takes"
        for tally in {self.total, *self._unconfirmed}:
            tally.unsure += tally.sent - tally.confirmed
            tally.confirmed = tally.sent
            tally.largest = 0
            tally.why = why
        self._unconfirmed.clear()
        waiting, self._waiting = self._waiting, {}
        for done, _ in waiting.values():
            if not done.done():
                done.set_result(False)
        return unconfirmed
