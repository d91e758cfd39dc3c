"""MCP between participants, without ``async``: what others offer, and proposals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from mewstream.client import calling
from mewstream.client import space as client
from mewstream.client.events import Proposed
from mewstream.client.progress import OnProgress
from mewstream.client.proposals import Proposal as AsyncProposal
from mewstream.sync.event_loop import EventLoop, documented_as

T = TypeVar("T")


@documented_as(AsyncProposal)
class Proposal:
    """A proposal, as :class:`mewstream.client.proposals.Proposal`."""

    def __init__(self, loop: EventLoop, proposal: AsyncProposal) -> None:
        self._loop = loop
        self._proposal = proposal
        self.id = proposal.id

    @property
    def is_settled(self) -> bool:
        return self._proposal.is_settled

    def result(self, *, timeout: float | None = None) -> Any:
        return self._loop.run(self._proposal.result(timeout=timeout))

    def withdraw(self, *, reason: str | None = None) -> None:
        self._loop.run(self._proposal.withdraw(reason=reason))


@documented_as(calling.Calling)
class Calling:
    """The part of a space that asks others by MCP."""

    _loop: EventLoop
    _space: client.Space

    def request(
        self,
        method: str,
        params: Any = None,
        *,
        to: str | Sequence[str],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        or_propose: bool = True,
    ) -> Any:
        return self._loop.run(
            self._space.request(method, params, to=to, timeout=timeout, on_progress=on_progress, or_propose=or_propose)
        )

    @overload
    def call_tool(
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
    def call_tool(
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

    def call_tool(
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
        return self._loop.run(
            self._space.call_tool(
                name,
                arguments,
                to=to,
                type=type,
                timeout=timeout,
                on_progress=on_progress,
                or_propose=or_propose,
            )
        )

    def list_tools(self, participant: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        return self._loop.run(self._space.list_tools(participant, timeout=timeout))

    def list_resources(self, participant: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        return self._loop.run(self._space.list_resources(participant, timeout=timeout))

    def list_resource_templates(self, participant: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        return self._loop.run(self._space.list_resource_templates(participant, timeout=timeout))

    def list_prompts(self, participant: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        return self._loop.run(self._space.list_prompts(participant, timeout=timeout))

    def read_resource(self, uri: str, *, to: str, timeout: float | None = None) -> list[dict[str, Any]]:
        return self._loop.run(self._space.read_resource(uri, to=to, timeout=timeout))

    def subscribe_resource(self, uri: str, *, to: str, timeout: float | None = None) -> None:
        self._loop.run(self._space.subscribe_resource(uri, to=to, timeout=timeout))

    def unsubscribe_resource(self, uri: str, *, to: str, timeout: float | None = None) -> None:
        self._loop.run(self._space.unsubscribe_resource(uri, to=to, timeout=timeout))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, to: str, timeout: float | None = None
    ) -> list[dict[str, Any]]:
        return self._loop.run(self._space.get_prompt(name, arguments, to=to, timeout=timeout))

    def propose(self, method: str, params: Any = None, *, to: str | Sequence[str] | None = None) -> Proposal:
        return Proposal(self._loop, self._loop.run(self._space.propose(method, params, to=to)))

    def fulfil(self, proposal: Proposed, *, to: str | Sequence[str] | None = None, timeout: float | None = None) -> Any:
        return self._loop.run(self._space.fulfil(proposal, to=to, timeout=timeout))

    def reject(self, proposal: Proposed | str, *, reason: str | None = None) -> None:
        self._loop.run(self._space.reject(proposal, reason=reason))
