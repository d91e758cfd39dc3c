"""Proposals of ours that others may fulfil, reject, or leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mewstream.client.errors import ConnectionClosed, ProposalRejected
from mewstream.client.messages import Message
from mewstream.protocol import kinds

if TYPE_CHECKING:
    from mewstream.client.space import Space


class Proposal:
    """A request that we have proposed. Somebody who may make it fulfils it, or rejects it."""

    def __init__(self, id: str, space: Space) -> None:
        self.id = id
        self._space = space
        self._outcome: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        # Nobody has to wait for the outcome.
        self._outcome.add_done_callback(lambda outcome: outcome.cancelled() or outcome.exception())

    @property
    def is_settled(self) -> bool:
        return self._outcome.done()

    async def result(self, *, timeout: float | None = None) -> Any:
        """Wait for the result. Raises :class:`ProposalRejected`, or the error of whoever carried it out."""
        from mewstream.client.space import result_of

        async with asyncio.timeout(timeout):
            return result_of(await asyncio.shield(self._outcome))

    async def withdraw(self, *, reason: str | None = None) -> None:
        """Take it back."""
        self._space._proposals.forget(self.id)
        await self._space._about(kinds.MCP_WITHDRAW, self.id, reason)
        if not self._outcome.done():
            self._outcome.cancel()

    def _settle(self, response: Message) -> None:
        if not self._outcome.done():
            self._outcome.set_result(response)

    def _fail(self, error: Exception) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)


class Proposals:
    """Those that wait for an outcome, and the requests by which others fulfil them."""

    def __init__(self) -> None:
        self._open: dict[str, Proposal] = {}
        self._requests: dict[str, str] = {}

    def add(self, id: str, space: Space) -> Proposal:
        proposal = self._open[id] = Proposal(id, space)
        return proposal

    def forget(self, id: str) -> None:
        self._open.pop(id, None)
        self._requests = {request: known for request, known in self._requests.items() if known != id}

    def received(self, message: Message) -> None:
        if not self._open or not message.correlation_id:
            return
        for id in message.correlation_id:
            if message.kind == kinds.MCP_REQUEST and id in self._open:
                self._requests[message.id] = id
            elif message.kind == kinds.MCP_RESPONSE:
                proposal = self._open.get(self._requests.get(id, id))
                if proposal is not None:
                    proposal._settle(message)
                    self.forget(proposal.id)
            elif message.kind == kinds.MCP_REJECT and id in self._open:
                reason = message.payload.get("reason") or "no reason was given"
                text = f"{message.sender} rejected the proposal: {reason}"
                self._open[id]._fail(ProposalRejected(text, by=message.sender))
                self.forget(id)

    def fail(self, error: ConnectionClosed) -> None:
        for proposal in self._open.values():
            proposal._fail(error)
        self._open.clear()
