"""Requests to the gateway and to other participants that have not been answered yet."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass

from mewstream.client import untrusted
from mewstream.client.errors import AnswerLost, refusal
from mewstream.client.mcp import METHOD_NOT_FOUND
from mewstream.client.messages import Message
from mewstream.protocol import kinds
from mewstream.protocol.errors import MewError, ParticipantNotFound

#: Called with the parameters of a progress notification. It must not block.
OnProgress = Callable[[dict[str, object]], None]


@dataclass(slots=True, eq=False)
class _Call:
    body: bytes
    answers: Collection[str]
    """The kinds of messages that answer it; empty if that is our own message, relayed by the gateway."""
    answerers: set[str]
    """Whose answer counts. Everyone sees the id of a request and could answer in another's place."""
    future: asyncio.Future[Message]
    on_progress: OnProgress | None
    is_relayed: bool = False
    """Whether the gateway has passed it on, so that another participant may have answered it."""

    @property
    def is_answered_by_gateway(self) -> bool:
        return not self.answers or self.answerers == {kinds.GATEWAY}

    def fail(self, error: MewError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Calls:
    """Requests by the id of their envelope. The gateway answers a repeated id as before, so a request whose answer was
    lost with a connection is simply sent again."""

    def __init__(self) -> None:
        self._pending: dict[str, _Call] = {}
        self._repeated: frozenset[str] = frozenset()
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def next_id(self) -> str:
        """Return a new id that nobody can guess: the gateway refuses an id that another participant has used."""
        return f"{self._prefix}-{next(self._numbers)}-{secrets.token_hex(4)}"

    def is_own(self, id: str) -> bool:
        """Return whether :meth:`next_id` returned this id."""
        return id.startswith(f"{self._prefix}-")

    def begin(
        self,
        id: str,
        body: bytes,
        answers: Collection[str],
        answerers: Collection[str],
        on_progress: OnProgress | None = None,
    ) -> asyncio.Future[Message]:
        """Expect an answer to the request ``body``, which the caller sends. Returns a future of the answer, which
        gets an exception if the request is refused, or if everyone who could answer has left."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[id] = _Call(body, answers, set(answerers), future, on_progress)
        return future

    def forget(self, id: str) -> None:
        """Forget a request: nobody waits for its answer any longer."""
        self._pending.pop(id, None)

    def received(self, message: Message) -> bool:
        """Hand a message to those whose requests it answers. Returns whether there are any."""
        answered = False
        call = self._pending.get(message.id)
        if call is not None and message.sender in call.answerers and not call.answers:
            self._answer(message.id, message)
            answered = True
        elif call is not None and not message.is_from_gateway:
            call.is_relayed = True
        for id in message.correlation_id:
            call = self._pending.get(id)
            if call is None:
                continue
            if message.kind == kinds.ERROR and message.is_from_gateway:
                self._pending.pop(id).fail(refusal(message.payload))
                answered = True
            elif message.kind in call.answers and message.sender in call.answerers:
                self._answer(id, message)
                answered = True
        return answered

    def _answer(self, id: str, message: Message) -> None:
        """Settle a request. Of several who were asked, those who do not know the method leave it to the others."""
        call = self._pending[id]
        if len(call.answerers) > 1 and _is_not_found(message):
            call.answerers.discard(message.sender)
            return
        del self._pending[id]
        if not call.future.done():
            call.future.set_result(message)

    def progressed(self, sender: str, params: object) -> None:
        """Tell the caller of a request how far it is. Our requests use their own id as the token of their progress."""
        described = untrusted.as_object(params)
        call = self._pending.get(untrusted.text(described.get("progressToken")) or "")
        if call is not None and call.on_progress is not None and sender in call.answerers:
            call.on_progress(described)

    def left(self, participant: str) -> None:
        """Fail the requests that only a participant could have answered who has left now."""
        for id, call in list(self._pending.items()):
            if call.answers and participant in call.answerers:
                call.answerers.discard(participant)
                if not call.answerers:
                    error = ParticipantNotFound(f"{participant} left before it answered")
                    self._pending.pop(id).fail(error)

    def repeat(self) -> list[bytes]:
        """Return all unanswered requests in the order in which they were sent, to be sent again."""
        self._repeated = frozenset(self._pending)
        return [call.body for call in self._pending.values()]

    def answers_repeated(self, message: Message) -> bool:
        """Return whether a message answers a request that was sent twice. Such an answer may come twice too."""
        return message.id in self._repeated or not self._repeated.isdisjoint(message.correlation_id)

    def missed(self) -> None:
        """Fail the requests to participants that were passed on before messages were missed: the answer may be one of
        these, and the gateway would not pass the request on again."""
        for id, call in list(self._pending.items()):
            if call.is_relayed and not call.is_answered_by_gateway:
                self._pending.pop(id).fail(AnswerLost("messages were missed, and the answer may be one of them"))

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


def _is_not_found(answer: Message) -> bool:
    return untrusted.as_object(answer.payload.get("error")).get("code") == METHOD_NOT_FOUND
