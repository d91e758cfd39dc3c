"""Our proposals, which other participants may fulfil or reject."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from mewstream.client.errors import ConnectionClosed, ProposalRejected, RequestTimeout
from mewstream.client.mcp import result_of
from mewstream.client.messages import Message
from mewstream.protocol import kinds
from mewstream.protocol.errors import ParticipantNotFound

if TYPE_CHECKING:
    from mewstream.client.calling import Calling

#: How many requests that claim to fulfil our proposals are remembered; the oldest are forgotten.
_MAX_REQUESTS = 1000


class Proposal:
    """A request that we have proposed. A participant who may make that request fulfils the proposal or rejects it."""

    def __init__(self, id: str, space: Calling, to: Collection[str], present: Collection[str]) -> None:
        self.id = id
        self._space = space
        self._to = frozenset(to)
        self._present = set(present)
        """Those for whom it is meant and who have not left."""
        self._outcome: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        # Nobody has to wait for the outcome.
        self._outcome.add_done_callback(lambda outcome: outcome.cancelled() or outcome.exception())

    @property
    def is_settled(self) -> bool:
        """Whether it was fulfilled, rejected or withdrawn."""
        return self._outcome.done()

    async def result(self, *, timeout: float | None = None) -> Any:
        """Wait for the result and return it. Raises :class:`ProposalRejected`, :class:`McpError` if carrying it out
        failed, :class:`ParticipantNotFound` if those for whom it is meant have left, :class:`RequestTimeout` after
        ``timeout`` seconds, and :class:`ConnectionClosed`."""
        try:
            async with asyncio.timeout(timeout):
                return result_of(await asyncio.shield(self._outcome))
        except TimeoutError:
            raise RequestTimeout(f"nobody fulfilled or rejected the proposal within {timeout:g} seconds") from None

    async def withdraw(self, *, reason: str | None = None) -> None:
        """Withdraw it: :meth:`result` raises :class:`ProposalRejected`. Raises what every request raises."""
        await self._space._about(kinds.MCP_WITHDRAW, self.id, reason)
        self._fail(ProposalRejected("the proposal was withdrawn", by=self._space.participant))

    def _settle(self, response: Message) -> None:
        if not self._outcome.done():
            self._outcome.set_result(response)

    def _fail(self, error: Exception) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)


class _Fulfilment(NamedTuple):
    proposal: str
    to: frozenset[str]


class Proposals:
    """The proposals that a program still refers to, and the requests by which others fulfil them."""

    def __init__(self) -> None:
        self._open: WeakValueDictionary[str, Proposal] = WeakValueDictionary()
        self._requests: OrderedDict[str, _Fulfilment] = OrderedDict()

    def add(self, id: str, space: Calling, to: Collection[str], present: Collection[str]) -> Proposal:
        """Follow the proposal with this id, which is meant for ``to``; some of these are not ``present``."""
        proposal = self._open[id] = Proposal(id, space, to, present)
        return proposal

    def received(self, message: Message) -> None:
        """Settle the proposals that a message fulfils or rejects."""
        if not self._open or not message.correlation_id:
            return
        for id in message.correlation_id:
            if message.kind == kinds.MCP_REQUEST:
                self._fulfilling(id, message)
            elif message.kind == kinds.MCP_RESPONSE:
                self._answered(id, message)
            elif message.kind == kinds.MCP_REJECT:
                proposal = self._open.get(id)
                if proposal is not None:
                    reason = message.payload.get("reason") or "no reason was given"
                    text = f"{message.sender} rejected the proposal: {reason}"
                    proposal._fail(ProposalRejected(text, by=message.sender))

    def _fulfilling(self, id: str, request: Message) -> None:
        """Note a request that fulfils a proposal. If the proposal is meant for somebody, nobody else can answer it."""
        proposal = self._open.get(id)
        if proposal is None:
            return
        asked = frozenset(request.to) & proposal._to if proposal._to else frozenset(request.to)
        self._requests[request.id] = _Fulfilment(id, asked)
        if len(self._requests) > _MAX_REQUESTS:
            self._requests.popitem(last=False)

    def left(self, participant: str) -> None:
        """Fail the proposals that were meant only for those who have left, the last of them now."""
        for proposal in list(self._open.values()):
            if participant in proposal._present:
                proposal._present.discard(participant)
                if not proposal._present:
                    proposal._fail(ParticipantNotFound(f"{participant} left before the proposal was fulfilled"))

    def _answered(self, id: str, response: Message) -> None:
        """Settle the proposal by an answer, which counts only from those who were asked: anybody could send one."""
        fulfilment = self._requests.get(id)
        if fulfilment is not None and response.sender in fulfilment.to:
            proposal = self._open.get(fulfilment.proposal)
            del self._requests[id]
        else:
            proposal = self._open.get(id)
            if proposal is not None and response.sender not in proposal._to:
                return
        if proposal is not None:
            proposal._settle(response)

    def fail(self, error: ConnectionClosed) -> None:
        """Fail every proposal, because the space has ended."""
        for proposal in list(self._open.values()):
            proposal._fail(error.again())
