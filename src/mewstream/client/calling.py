"""MCP between participants: what others offer is called, and what one may not call is proposed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import msgspec

from mewstream.client import content, listing, messages, untrusted
from mewstream.client.errors import McpError, RequestTimeout, ToolError
from mewstream.client.events import Proposed
from mewstream.client.mcp import CANCELLED, result_of
from mewstream.client.messages import without_none
from mewstream.client.progress import OnProgress, Progress
from mewstream.client.proposals import Proposal
from mewstream.client.requests import Requests
from mewstream.client.signature import Result
from mewstream.protocol import kinds
from mewstream.protocol.errors import CapabilityViolation

T = TypeVar("T")


class Calling(Requests):
    """The part of a :class:`Space` that asks others by MCP."""

    # -- requests -----------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        to: str | Sequence[str],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        or_propose: bool = True,
    ) -> Any:
        """Send an MCP request to another participant, or to several of whom the first answer counts. Returns the
        result.

        ``on_progress`` is called with the progress, the total and a message (None if they are not known) whenever the
        other side reports how far it is. A request that our capabilities do not allow is proposed instead, unless
        ``or_propose`` is false: somebody who may make it then decides. If we stop waiting, the other side is told.

        Raises :class:`McpError` if the answer is an error, :class:`ParticipantNotFound` if nobody who was asked is
        present or stays until it has answered, :class:`RequestTimeout` if no answer comes within ``timeout``
        seconds, :class:`ProposalRejected`, and what every request raises.
        """
        deadline = asyncio.get_running_loop().time() + self._seconds(timeout)
        try:
            return await self._request(method, params, to, timeout, on_progress)
        except CapabilityViolation as violation:
            if not or_propose:
                raise
            try:
                proposal = await self.propose(method, params, to=to)
            except CapabilityViolation:
                raise violation from None
        return await self._settled(proposal, max(deadline - asyncio.get_running_loop().time(), 0))

    async def _request(
        self,
        method: str,
        params: Any,
        to: str | Sequence[str],
        timeout: float | None,
        on_progress: OnProgress | None,
        *,
        fulfils: str | None = None,
    ) -> Any:
        id = self._inbox.calls.next_id()
        async with Progress(on_progress) as progress:
            if on_progress is not None:
                meta = untrusted.as_object(untrusted.as_object(params).get("_meta"))
                params = {**(params or {}), "_meta": {**meta, "progressToken": id}}
            try:
                answer = await self._ask(
                    kinds.MCP_REQUEST,
                    without_none(method=method, params=params),
                    to=to,
                    answers=(kinds.MCP_RESPONSE,),
                    correlation_id=fulfils,
                    timeout=timeout,
                    id=id,
                    on_progress=progress.received if on_progress is not None else None,
                )
            except (asyncio.CancelledError, RequestTimeout) as end:
                reason = "it took too long" if isinstance(end, RequestTimeout) else "nobody waits for it any longer"
                told = {"requestId": id, "reason": reason}
                self._inbox.notifications.send(CANCELLED, told, messages.names(to) or [], about=id)
                raise
        return result_of(answer)

    async def _settled(self, proposal: Proposal, seconds: float) -> Any:
        """Return the result of a proposal, and withdraw it if nobody waits for it any longer."""
        try:
            return await proposal.result(timeout=seconds)
        except (asyncio.CancelledError, RequestTimeout):
            self._inbox.notifications.withdraw(proposal.id)
            raise

    # -- what others offer --------------------------------------------------------------------------

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        to: str,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        or_propose: bool = True,
    ) -> dict[str, Any]: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        to: str,
        type: type[T],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        or_propose: bool = True,
    ) -> T: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        to: str,
        type: Any = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        or_propose: bool = True,
    ) -> Any:
        """Call a tool of another participant. Returns its MCP result, with ``content`` and perhaps
        ``structuredContent``; if the tool failed, ``isError`` is true. With a ``type`` (any that msgspec knows), it
        returns what the tool returned as that type, and raises :class:`ToolError` if the tool failed or returned
        something else. Otherwise it waits and raises as :meth:`request` does."""
        result = await self.request(
            "tools/call",
            {"name": name, "arguments": dict(arguments or {})},
            to=to,
            timeout=timeout,
            on_progress=on_progress,
            or_propose=or_propose,
        )
        if not isinstance(result, dict):
            raise McpError(f"{to} answered a call of {name} with something that is no result of a tool")
        return result if type is None else _typed(name, result, type)

    async def list_tools(self, participant: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the tools of another participant, as MCP describes them. Raises as :meth:`request` does."""
        return await self._list("tools/list", "tools", participant, timeout)

    async def list_resources(self, participant: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the resources of another participant, as MCP describes them. Raises as :meth:`request` does."""
        return await self._list("resources/list", "resources", participant, timeout)

    async def list_resource_templates(self, participant: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the templates for URIs of resources of another participant. Raises as :meth:`request` does."""
        return await self._list("resources/templates/list", "resourceTemplates", participant, timeout)

    async def list_prompts(self, participant: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the prompts of another participant, as MCP describes them. Raises as :meth:`request` does."""
        return await self._list("prompts/list", "prompts", participant, timeout)

    async def _list(self, method: str, key: str, participant: str, timeout: float | None) -> list[dict[str, Any]]:
        return await listing.collect(key, lambda params: self.request(method, params, to=participant, timeout=timeout))

    async def read_resource(self, uri: str, *, to: str, timeout: float | None = None) -> list[dict[str, Any]]:
        """Read a resource of another participant. Returns its contents, each with ``uri`` and ``text`` or ``blob``.
        Raises as :meth:`request` does."""
        result = await self.request("resources/read", {"uri": uri}, to=to, timeout=timeout)
        return untrusted.objects(untrusted.as_object(result).get("contents"))

    async def subscribe_resource(self, uri: str, *, to: str, timeout: float | None = None) -> None:
        """Ask another participant to tell us when a resource changes, which then is a :class:`Notified` event with
        the method ``notifications/resources/updated``. Raises as :meth:`request` does."""
        await self.request("resources/subscribe", {"uri": uri}, to=to, timeout=timeout)

    async def unsubscribe_resource(self, uri: str, *, to: str, timeout: float | None = None) -> None:
        """End what :meth:`subscribe_resource` began. Raises as :meth:`request` does."""
        await self.request("resources/unsubscribe", {"uri": uri}, to=to, timeout=timeout)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, to: str, timeout: float | None = None
    ) -> list[dict[str, Any]]:
        """Get a prompt of another participant. Returns its messages, each with ``role`` and ``content``. Raises as
        :meth:`request` does."""
        params = {"name": name, "arguments": dict(arguments or {})}
        result = await self.request("prompts/get", params, to=to, timeout=timeout)
        return untrusted.objects(untrusted.as_object(result).get("messages"))

    # -- proposals ----------------------------------------------------------------------------------

    async def propose(self, method: str, params: Any = None, *, to: str | Sequence[str] | None = None) -> Proposal:
        """Propose a request that we may not make ourselves. Returns a :class:`Proposal`, whose result can be awaited.
        Raises what every request raises."""
        payload = without_none(method=method, params=params)
        addressed = messages.names(to) or []
        present = [each for each in addressed if each == self.participant or each in self._inbox.view.participants]
        id = self._inbox.calls.next_id()
        proposal = self._inbox.proposals.add(id, self, addressed, present)
        try:
            await self._call(kinds.MCP_PROPOSAL, payload, to=to, id=id)
        except (asyncio.CancelledError, RequestTimeout):
            self._inbox.notifications.withdraw(id)  # it may have been made, and nobody waits for it
            raise
        return proposal

    async def fulfil(
        self, proposal: Proposed, *, to: str | Sequence[str] | None = None, timeout: float | None = None
    ) -> Any:
        """Make the request that another participant has proposed. Returns and raises as :meth:`request` does, and never
        proposes; raises ValueError if neither ``to`` nor the proposal names a participant who is to carry it out."""
        target = to or proposal.to
        if not target:
            raise ValueError("the proposal does not say who is to carry it out: give to=")
        return await self._request(proposal.method, proposal.params, target, timeout, None, fulfils=proposal.proposal)

    async def reject(self, proposal: Proposed | str, *, reason: str | None = None) -> None:
        """Reject a proposal of another participant, by its event or id. Raises what every request raises."""
        await self._about(kinds.MCP_REJECT, proposal if isinstance(proposal, str) else proposal.proposal, reason)

    async def _about(self, kind: str, proposal: str, reason: str | None) -> None:
        await self._call(kind, {"reason": reason} if reason else {}, correlation_id=proposal)


def _typed(name: str, result: dict[str, Any], type: Any) -> Any:
    """Return what a tool returned as a type. Raises :class:`ToolError`."""
    text = content.text_of(result)
    if result.get("isError") is True:
        raise ToolError(text or f"{name} failed", result=result)
    if type is str and "structuredContent" not in result:
        return text
    expected = Result.of(f"the tool {name}", type)
    try:
        found = result["structuredContent"] if "structuredContent" in result else msgspec.json.decode(text)
        return msgspec.convert(found, type) if expected is None else expected.value(found)
    except (msgspec.DecodeError, TypeError) as flaw:
        raise ToolError(f"{name} returned something else than expected: {flaw}", result=result) from None
