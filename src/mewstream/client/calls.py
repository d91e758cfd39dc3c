"""What we have asked and what has not been answered yet."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Collection

from mewstream.client.errors import refusal
from mewstream.client.messages import Message
from mewstream.protocol import kinds
from mewstream.protocol.errors import MewError


class _Call:
    __slots__ = ("answer", "answerers", "body", "future")

    def __init__(
        self, body: bytes, answer: str | None, answerers: Collection[str], future: asyncio.Future[Message]
    ) -> None:
        self.body = body
        self.answer = answer
        """The kind of message that answers it; None: our own message, relayed."""
        self.answerers = answerers
        """Whose answer counts: everyone sees the id of a request, and could answer in another's place."""
        self.future = future


class Calls:
    """Requests by the id of their envelope. The gateway answers a repeated id as before, so a request
    whose answer was lost with a connection is simply sent again."""

    def __init__(self) -> None:
        self._pending: dict[str, _Call] = {}
        self._repeated: frozenset[str] = frozenset()
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def next_id(self) -> str:
        """One that nobody can guess from those before it: an id that another has used is refused."""
        return f"{self._prefix}-{next(self._numbers)}-{secrets.token_hex(4)}"

    def has_made(self, id: str) -> bool:
        """Whether an id is one of ours."""
        return id.startswith(f"{self._prefix}-")

    def begin(self, id: str, body: bytes, answer: str | None, answerers: Collection[str]) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[id] = _Call(body, answer, answerers, future)
        return future

    def forget(self, id: str) -> None:
        self._pending.pop(id, None)

    def received(self, message: Message) -> bool:
        """Whether this answers something that somebody waits for."""
        answered = False
        call = self._pending.get(message.id)
        if call is not None and call.answer is None and message.sender in call.answerers:
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
            elif message.kind == call.answer and message.sender in call.answerers:
                self._settle(id, message)
                answered = True
        return answered

    def _settle(self, id: str, message: Message) -> None:
        call = self._pending.pop(id)
        if not call.future.done():
            call.future.set_result(message)

    def repeat(self) -> list[bytes]:
        """What has not been answered, in the order in which it was sent, to be sent again."""
        self._repeated = frozenset(self._pending)
        return [call.body for call in self._pending.values()]

    def is_about_repeated(self, message: Message) -> bool:
        """A request that was sent again is answered again, though the first answer may have come too."""
        return message.id in self._repeated or not self._repeated.isdisjoint(message.correlation_id)

    def fail_largest(self, error: MewError, *, larger_than: int) -> bool:
        """The one whose message is the largest, if it is larger. Whether there was one."""
        id, call = max(self._pending.items(), key=lambda each: len(each[1].body), default=("", None))
        if call is None or len(call.body) <= larger_than:
            return False
        del self._pending[id]
        if not call.future.done():
            call.future.set_exception(error)
        return True

    def fail(self, error: Callable[[], MewError], *, larger_than: int = -1) -> None:
        """All that wait, or those whose message is larger. Each gets an exception of its own."""
        for id, call in list(self._pending.items()):
            if len(call.body) > larger_than:
                del self._pending[id]
                if not call.future.done():
                    call.future.set_exception(error())
