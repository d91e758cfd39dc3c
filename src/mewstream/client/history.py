"""Subscriptions that begin with the history of a stream.

The gateway sends the history between live messages of other streams, and after a lost connection it is read again from
the first frame that is missing. So a reading knows the position of its last frame, and takes only what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from mewstream.client import untrusted
from mewstream.client.errors import refusal
from mewstream.client.messages import Message
from mewstream.client.queue import FrameQueue
from mewstream.client.routes import Reading, Routes
from mewstream.protocol import kinds

COMPLETE = "history_complete"

Since = str | int | datetime


def start_of(since: Since | None, last: int | None) -> Any:
    """Return ``from`` of a ``stream/read``. Raises ValueError and TypeError for what it cannot be."""
    if since is not None and last is not None:
        raise TypeError("since and last do not go together: the one says where to begin, the other how much")
    if last is not None:
        if last < 1:
            raise ValueError(f"last is {last}: expected the number of frames to begin with")
        return {"last": last}
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise ValueError("since has no time zone: use datetime.now(UTC) - timedelta(...)")
        return since.isoformat()
    return since


class Histories:
    """The readings of a space, by the ids of their requests."""

    def __init__(self, routes: Routes, post: Callable[[str, Any], str]) -> None:
        self._routes = routes
        self._post = post
        self._asked: dict[str, Reading] = {}

    def begin(self, queue: FrameQueue, stream: str, start: Any) -> Callable[[], None]:
        """Read a stream from ``start`` on. Returns a function that ends the subscription."""
        reading = Reading(queue, stream, start)
        self._routes.add_reading(reading)
        self._ask(reading)

        def detach() -> None:
            self._forget(reading)
            queue.end()

        return detach

    def _ask(self, reading: Reading) -> None:
        start = reading.start if not reading.after else reading.after + 1
        self._asked[self._post(kinds.STREAM_READ, {"stream_id": reading.stream, "from": start})] = reading

    def _forget(self, reading: Reading) -> None:
        self._asked = {id: each for id, each in self._asked.items() if each is not reading}
        self._routes.remove_reading(reading)

    def reconnected(self) -> None:
        """Ask again for what did not come over the last connection."""
        self._asked.clear()
        for reading in self._routes.readings():
            reading.has_begun = reading.is_live = False
            self._ask(reading)

    def received(self, message: Message) -> bool:
        """Handle an answer to a read. Returns whether it was one."""
        if not message.is_from_gateway:
            return False
        reading = next((self._asked[id] for id in message.correlation_id if id in self._asked), None)
        if reading is None:
            return False
        if message.kind == kinds.STREAM_HISTORY:
            reading.has_begun = True
            self._routes.history_begins(reading, untrusted.number(message.payload.get("to_seq")) or 0)
        elif message.kind == kinds.NOTICE and message.payload.get("notice") == COMPLETE:
            reading.is_live = True
            if reading.has_ended:
                self._forget(reading)
                reading.queue.end()
        elif message.kind == kinds.ERROR:
            self._forget(reading)
            reading.queue.end(None if reading.has_ended else refusal(message.payload))
        else:
            return False
        return True
