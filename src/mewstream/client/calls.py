"""What we have asked and what has not been answered yet."""

from __future__ import annotations

import asyncio
import itertools
import secrets

from mewstream.client.errors import ConnectionClosed, refusal
from mewstream.client.messages import Message
from mewstream.protocol import kinds


class _Call:
    __slots__ = ("answer", "body", "future")

    def __init__(self, body: bytes, answer: str | None, future: asyncio.Future[Message]) -> None:
        self.body = body
        self.answer = answer
        """The kind of message that answers it; None: our own message, relayed."""
        self.future = future


class Calls:
    """Requests by the id of their envelope. The gateway answers a repeated id as before, so a request
    whose answer was lost with a connection is simply sent again."""

    def __init__(self) -> None:
        self._pending: dict[str, _Call] = {}
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def next_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def begin(self, id: str, body: bytes, answer: str | None) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[id] = _Call(body, answer, future)
        return future

    def forget(self, id: str) -> None:
        self._pending.pop(id, None)

    def received(self, message: Message) -> bool:
        """Whether this answers something that somebody waits for."""
        answered = False
        call = self._pending.get(message.id)
        if call is not None and call.answer is None:
            self._settle(message.id, message)
            answered = True
        for id in message.correlation_id:
            call = self._pending.get(id)
            if call is None:
                continue
            if message.kind == kinds.ERROR and message.is_from_gateway:
                del self._pending[id]
                if not call.future.done():
                    call.future.set_exception(refusal(message.payload))
                answered = True
            elif message.kind == call.answer:
                self._settle(id, message)
                answered = True
        return answered

    def _settle(self, id: str, message: Message) -> None:
        call = self._pending.pop(id)
        if not call.future.done():
            call.future.set_result(message)

    def unanswered(self) -> list[bytes]:
        """In the order in which they were sent."""
        return [call.body for call in self._pending.values()]

    def fail(self, error: ConnectionClosed) -> None:
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if not call.future.done():
                call.future.set_exception(error)
