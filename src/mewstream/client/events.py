"""What happens in a space, as types to match on.

    async for event in space.events():
        match event:
            case WriteGranted(stream=stream, participant=participant):
                ...

An event that came as a message has it as ``message``. Those of the connection itself (:class:`Disconnected`,
:class:`Resumed`, and a :class:`Gap` of all streams) have none. ``stream`` is always the id of a stream, and
``participant``, ``sender``, ``by`` and ``owner`` are ids of participants; None where the gateway does not say.
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
    """Something happened."""

    message: Message | None = None

    @property
    def seq(self) -> int | None:
        """The position in the space; None where the gateway sends no positions."""
        return self.message.seq if self.message is not None else None


@dataclass(frozen=True, slots=True)
class Joined(Event):
    """A participant came into the space."""

    participant: str
    capabilities: list[Any]


@dataclass(frozen=True, slots=True)
class Left(Event):
    """A participant left the space."""

    participant: str


@dataclass(frozen=True, slots=True)
class Invited(Event):
    """Somebody new was invited, who may join from now on."""

    participant: str
    by: str


@dataclass(frozen=True, slots=True)
class CapabilitiesChanged(Event):
    """Our own capabilities are different now."""

    capabilities: list[Any]


@dataclass(frozen=True, slots=True)
class StreamOpened(Event):
    """A stream was opened: live, or announced and not yet started. ``handle`` is the object for it."""

    stream: str
    owner: str
    handle: Stream


@dataclass(frozen=True, slots=True)
class StreamStarted(Event):
    """An announced stream is live."""

    stream: str


@dataclass(frozen=True, slots=True)
class StreamClosed(Event):
    """A stream has ended. ``how`` is ``closed``, ``completed``, ``failed``, or ``lost`` where it ended while we were
    not connected."""

    stream: str
    how: str
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class _RightChanged(Event):
    stream: str
    participant: str
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class WriteGranted(_RightChanged):
    """A participant may write to a stream, under ``conditions`` where there are any."""

    conditions: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class WriteRevoked(_RightChanged):
    """A participant may not write to a stream any more."""


@dataclass(frozen=True, slots=True)
class ReadGranted(_RightChanged):
    """A participant may read a stream."""


@dataclass(frozen=True, slots=True)
class ReadRevoked(_RightChanged):
    """A participant may not read a stream any more."""


@dataclass(frozen=True, slots=True)
class OwnershipTransferred(Event):
    """A stream has a new owner."""

    stream: str
    previous_owner: str
    new_owner: str
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Chat(Event):
    """Somebody sent a chat message."""

    sender: str
    text: str


@dataclass(frozen=True, slots=True)
class Requested(Event):
    """Somebody sent an MCP request; ``to`` is empty where it is for everyone. See :meth:`Space.respond`."""

    sender: str
    method: str
    params: Any
    to: list[str]


@dataclass(frozen=True, slots=True)
class Proposed(Event):
    """Somebody proposed an MCP request that others may make. See :meth:`Space.fulfil` and :meth:`Space.reject`."""

    proposal: str
    sender: str
    method: str
    params: Any
    to: list[str]


@dataclass(frozen=True, slots=True)
class _ProposalEnded(Event):
    proposal: str
    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class ProposalWithdrawn(_ProposalEnded):
    """A participant took its proposal back."""


@dataclass(frozen=True, slots=True)
class ProposalDeclined(_ProposalEnded):
    """A participant rejected a proposal."""


@dataclass(frozen=True, slots=True)
class Received(Event):
    """Any other envelope came; ``message`` has all of it."""

    kind: str
    sender: str


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """The gateway refused something that nobody waits for, such as a frame."""

    error: PeerError


@dataclass(frozen=True, slots=True)
class Gap(Event):
    """Frames are missing: of one stream, or of all where ``stream`` is None; ``count`` is None where it is unknown."""

    stream: str | None
    count: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """The connection was lost and is being made again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    """We are connected again. Where ``recovered``, everything that was missed follows in order. ``unconfirmed`` is how
    many of our frames were sent since the last successful :meth:`Space.flush`: the gateway may or may not have them."""

    recovered: bool
    reason: str | None
    unconfirmed: int
