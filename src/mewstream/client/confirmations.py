"""Which of the frames that we sent the gateway has recorded, as far as we know.

A ping that asks for it is answered when everything before it is recorded; the answer to a later ping
answers for the earlier ones too.
"""

from __future__ import annotations

import asyncio

from mewstream.client.errors import FramesUnconfirmed
from mewstream.protocol.frames import RECORDED_PING

#: What every gateway takes, so that it is not what was too large.
SMALL_BYTES = 64 << 10


class Tally:
    """The frames of one stream, or of all."""

    __slots__ = ("confirmed", "largest", "sent", "unsure", "why")

    def __init__(self) -> None:
        self.sent = self.confirmed = 0
        self.unsure = 0
        """Sent on a connection that was lost before they were confirmed, and not reported yet."""
        self.largest = 0
        """Bytes of the largest message among those that are not confirmed; 0 where all are small."""
        self.why = ""
        """Why the connection was lost."""

    def report(self) -> None:
        """Say once what is unsure."""
        unsure, self.unsure = self.unsure, 0
        if unsure:
            raise FramesUnconfirmed(unsure, reason=self.why)


class Confirmations:
    def __init__(self) -> None:
        self.total = Tally()
        self._open: set[Tally] = set()
        """Those with frames that are not confirmed yet."""
        self._waiting: dict[int, tuple[asyncio.Future[bool], dict[Tally, int]]] = {}
        self._pings = 0

    def sent(self, tally: Tally, size: int) -> None:
        tally.sent += 1
        self.total.sent += 1
        self._open.add(tally)
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
        """A new ping; the answer is whether it came before the connection was lost."""
        self._pings += 1
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        marks = {tally: tally.sent for tally in (self.total, *self._open)}
        self._waiting[self._pings] = (done, marks)
        return done

    def forget(self, done: asyncio.Future[bool]) -> None:
        self._waiting = {number: each for number, each in self._waiting.items() if each[0] is not done}

    def pong(self, payload: bytes) -> None:
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
                    self._open.discard(tally)
            if not done.done():
                done.set_result(True)

    def lost(self, why: str) -> int:
        """The connection is gone. How many frames nobody knows of."""
        unconfirmed = self.total.sent - self.total.confirmed
        largest = max((tally.largest for tally in self._open), default=0)
        if largest:
            why += f"; the largest of them had {largest} bytes, which may be more than the gateway takes"
        for tally in {self.total, *self._open}:
            tally.unsure += tally.sent - tally.confirmed
            tally.confirmed = tally.sent
            tally.largest = 0
            tally.why = why
        self._open.clear()
        waiting, self._waiting = self._waiting, {}
        for done, _ in waiting.values():
            if not done.done():
                done.set_result(False)
        return unconfirmed
