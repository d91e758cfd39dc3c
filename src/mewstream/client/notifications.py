"""What is sent without waiting for an answer, and without a word if it is refused: MCP notifications to other
participants, and the withdrawal of a proposal that nobody waits for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from mewstream.client import messages
from mewstream.client.messages import Message
from mewstream.protocol import kinds
from mewstream.protocol.errors import CapabilityViolation

#: How many messages are remembered, so that their refusals are recognised; the oldest are forgotten.
_REMEMBERED = 1000


class Notifications:
    """``post`` sends an envelope and returns whether there was room for it. What was refused for want of a capability
    is not tried again until our capabilities change."""

    def __init__(self, next_id: Callable[[], str], post: Callable[[bytes], bool]) -> None:
        self._next_id = next_id
        self._post = post
        self._sent: OrderedDict[str, str] = OrderedDict()
        """What may still be refused: the method or the kind, by the id of the message."""
        self._forbidden: set[str] = set()

    def send(self, method: str, params: dict[str, Any], to: Sequence[str], *, about: str | None = None) -> None:
        """Send a notification; ``about`` is the id of the request that it concerns."""
        if to:
            self._send(method, kinds.MCP_REQUEST, {"method": method, "params": params}, list(to), about)

    def withdraw(self, proposal: str) -> None:
        """Withdraw a proposal."""
        self._send(kinds.MCP_WITHDRAW, kinds.MCP_WITHDRAW, {"reason": "no_longer_needed"}, None, proposal)

    def _send(self, what: str, kind: str, payload: dict[str, Any], to: list[str] | None, about: str | None) -> None:
        if what in self._forbidden:
            return
        id = self._next_id()
        correlation_id = None if about is None else [about]
        if self._post(messages.encode(kind, payload, id=id, to=to, correlation_id=correlation_id)):
            self._sent[id] = what
            if len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)

    def refused(self, refusal: Message) -> bool:
        """Return whether a refusal is about one of these messages."""
        found = [self._sent.pop(id) for id in refusal.correlation_id if id in self._sent]
        if found and refusal.payload.get("error") == CapabilityViolation.code:
            self._forbidden.update(found)
        return bool(found)

    def capabilities_changed(self) -> None:
        self._forbidden.clear()
