"""What happens in a space, as types to match on.

    async for event in space.events():
        match event:
            case WriteGranted(stream=stream, participant=participant):
                ...

Every event that a message told of carries it as ``message``; those of the connection itself
(:class:`Disconnected`, :class:`Resumed`, :class:`Gap`) have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mewstream.client.messages import Message
from mewstream.protocol.errors import PeerError

if TYPE_CHECKING:
    from mewstream.client.stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened. ``seq`` is its position in the space, where the gateway tells."""

    message: Message | None = None

    @property
    def seq(self) -> int | None:
        return self.message.seq if self.message is not None else None


@dataclass(frozen=True, slots=True)
class Joined(Event):
    participant: str
    capabilities: list[Any]


@dataclass(frozen=True, slots=True)
class Left(Event):
    participant: str


@dataclass(frozen=True, slots=True)
class Invited(Event):
    participant: str
    by: str


@dataclass(frozen=True, slots=True)
class CapabilitiesChanged(Event):
    """Of our own."""

    capabilities: list[Any]


@dataclass(frozen=True, slots=True)
class StreamOpened(Event):
    """A stream is there: live, or announced and not yet started. ``stream`` is its id, ``handle`` the object."""

    stream: str
    owner: str
    handle: Stream


@dataclass(frozen=True, slots=True)
class StreamStarted(Event):
    stream: str


@dataclass(frozen=True, slots=True)
class StreamClosed(Event):
    """``how`` is ``closed``, ``completed``, ``failed``, or ``lost`` where it ended while we were away."""

    stream: str
    how: str
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class WriteGranted(Event):
    stream: str
    participant: str
    by: str | None
    reason: str | None
    conditions: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class WriteRevoked(Event):
    stream: str
    participant: str
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ReadGranted(Event):
    stream: str
    participant: str
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ReadRevoked(Event):
    stream: str
    participant: str
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class OwnershipTransferred(Event):
    stream: str
    previous_owner: str
    new_owner: str
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Chat(Event):
    sender: str
    text: str


@dataclass(frozen=True, slots=True)
class Requested(Event):
    """Somebody asks for something by MCP; ``to`` is empty where everyone is asked."""

    sender: str
    method: str
    params: Any
    to: list[str]


@dataclass(frozen=True, slots=True)
class Proposed(Event):
    """Somebody who may not do it proposes that another does it. See :meth:`Space.fulfil`."""

    proposal: str
    sender: str
    method: str
    params: Any
    to: list[str]


@dataclass(frozen=True, slots=True)
class ProposalWithdrawn(Event):
    proposal: str
    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class ProposalDeclined(Event):
    proposal: str
    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Received(Event):
    """Any other envelope: ``message`` has it all."""

    kind: str
    sender: str


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """The gateway refused something of ours that nobody waits for, such as a frame."""

    error: PeerError


@dataclass(frozen=True, slots=True)
class Gap(Event):
    """Frames of a stream are missing; None for all streams, or where nobody knows how many."""

    stream: str | None
    count: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """The connection is lost and is being made again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    """Connected again. ``recovered``: everything that was missed has come or is coming, in order.
    ``unconfirmed`` is how many frames of ours were sent since the last :meth:`Space.flush` that
    succeeded: whether the gateway has them is not known."""

    recovered: bool
    reason: str | None
    unconfirmed: int
