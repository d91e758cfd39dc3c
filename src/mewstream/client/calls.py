"""Requests to the gateway and to other participants that have not been answered yet."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass

from mewstream.client.errors import refusal
from mewstream.client.messages import Message
from mewstream.protocol import kinds
from mewstream.protocol.errors import MewError


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    body: bytes
    answer: str | None
    """The kind of message that answers it; None where that is our own message, relayed by the gateway."""
    answerers: Collection[str]
    """Whose answer counts. Everyone sees the id of a request and could answer in another's place."""
    future: asyncio.Future[Message]

    def fail(self, error: MewError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Calls:
    """Requests by the id of their envelope. The gateway answers a repeated id as before, so a request
    whose answer was lost with a connection is simply sent again."""

    def __init__(self) -> None:
        self._pending: dict[str, _Call] = {}
        self._repeated: frozenset[str] = frozenset()
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def next_id(self) -> str:
        """A new id, which nobody can guess from those before it: the gateway refuses an id that another has used."""
        return f"{self._prefix}-{next(self._numbers)}-{secrets.token_hex(4)}"

    def is_own(self, id: str) -> bool:
        """Whether :meth:`next_id` has made this id."""
        return id.startswith(f"{self._prefix}-")

    def begin(self, id: str, body: bytes, answer: str | None, answerers: Collection[str]) -> asyncio.Future[Message]:
        """Expect an answer to the request ``body``, which the caller sends. Returns a future of the answer, which
        gets an exception where the request is refused."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[id] = _Call(body, answer, answerers, future)
        return future

    def forget(self, id: str) -> None:
        """Nobody waits for this answer any longer."""
        self._pending.pop(id, None)

    def received(self, message: Message) -> bool:
        """Hand a message to those whose requests it answers. Returns whether there are any."""
        answered = False
        call = self._pending.get(message.id)
        if call is not None and call.answer is None and message.sender in call.answerers:
            self._answer(message.id, message)
            answered = True
        for id in message.correlation_id:
            call = self._pending.get(id)
            if call is None:
                continue
            if message.kind == kinds.ERROR and message.is_from_gateway:
                self._pending.pop(id).fail(refusal(message.payload))
                answered = True
            elif message.kind == call.answer and message.sender in call.answerers:
                self._answer(id, message)
                answered = True
        return answered

    def _answer(self, id: str, message: Message) -> None:
        call = self._pending.pop(id)
        if not call.future.done():
            call.future.set_result(message)

    def repeat(self) -> list[bytes]:
        """All unanswered requests in the order in which they were sent, to be sent again."""
        self._repeated = frozenset(self._pending)
        return [call.body for call in self._pending.values()]

    def answers_repeated(self, message: Message) -> bool:
        """Whether a message answers a request that was sent twice. Such an answer may come twice too."""
        return message.id in self._repeated or not self._repeated.isdisjoint(message.correlation_id)

    def fail_largest(self, error: MewError, *, larger_than: int) -> bool:
        """Fail the request with the largest body, if it is larger than ``larger_than`` bytes. Returns whether it is."""
        id, call = max(self._pending.items(), key=lambda each: len(each[1].body), default=("", None))
        if call is None or len(call.body) <= larger_than:
            return False
        self._pending.pop(id).fail(error)
        return True

    def fail(self, error: Callable[[], MewError], *, larger_than: int = -1) -> None:
        """Fail all requests with a body of more than ``larger_than`` bytes, each with an exception of its own."""
        for id, call in list(self._pending.items()):
            if len(call.body) > larger_than:
                self._pending.pop(id).fail(error())
