"""What happens in a space, as types to match on.

    async for event in space.events():
        match event:
            case WriteGranted(stream=stream, participant=participant):
                ...

An event that came as a message has it as ``message``. Those of the connection itself (:class:`Disconnected`,
:class:`Resumed`, and a :class:`Gap` of all streams) have none. ``stream`` is always the id of a stream, and
``participant``, ``sender``, ``by`` and ``owner`` are ids of participants; None if the gateway does not send them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mewstream.client import untrusted
from mewstream.client.messages import Message
from mewstream.client.status import Status
from mewstream.protocol.errors import PeerError

if TYPE_CHECKING:
    from mewstream.client.stream import Stream


#: The longest pause of the protocol, in seconds.
_LONGEST_PAUSE = 7 * 86400.0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened."""

    message: Message | None = None

    @property
    def seq(self) -> int | None:
        """The position in the space; None if the gateway sends no positions."""
        return self.message.seq if self.message is not None else None


class Joined(Event, frozen=True):
    """A participant joined the space."""

    participant: str
    capabilities: list[Any]


class Left(Event, frozen=True):
    """A participant left the space."""

    participant: str


class Suspended(Event, frozen=True):
    """A participant has lost its connection. It keeps its place and its rights ``until`` a time, in the form of RFC
    3339, by which it may come back."""

    participant: str
    until: str | None


class Returned(Event, frozen=True):
    """A participant that was suspended is connected again."""

    participant: str


class Invited(Event, frozen=True):
    """A new participant was invited and may join from now on."""

    participant: str
    by: str


class TokenExpiring(Event, frozen=True):
    """Our token is about to expire, at a time in RFC 3339. If ``token`` of :func:`mewstream.connect` is a function, it
    was asked for a newer one. Otherwise the gateway closes the connection then."""

    expires_at: str


class CapabilitiesChanged(Event, frozen=True):
    """Our own capabilities have changed."""

    capabilities: list[Any]


class StreamOpened(Event, frozen=True):
    """A stream was opened: live, or announced and not yet started. ``handle`` is the object for it."""

    stream: str
    owner: str
    handle: Stream


class StreamStarted(Event, frozen=True):
    """An announced stream is live."""

    stream: str


class StreamClosed(Event, frozen=True):
    """A stream has ended. ``how`` is ``closed``, ``completed``, ``failed``, or ``lost`` if it ended while we were
    not connected."""

    stream: str
    how: str
    reason: str | None = None
    by: str | None = None


class _RightChanged(Event, frozen=True):
    stream: str
    participant: str
    by: str | None
    reason: str | None


class WriteGranted(_RightChanged, frozen=True):
    """A participant may write to a stream, under ``conditions`` if there are any. ``delegate``: it may grant the right
    in turn, as far as ``depth`` and ``max_writers`` in it say."""

    conditions: dict[str, Any] | None = None
    delegate: dict[str, Any] | None = None
    pending: bool = False
    """It is granted when the participant joins."""


class WriteRevoked(_RightChanged, frozen=True):
    """A participant may not write to a stream any more."""


class ReadGranted(_RightChanged, frozen=True):
    """A participant may read a stream."""


class ReadRevoked(_RightChanged, frozen=True):
    """A participant may not read a stream any more."""


class WriteRequested(Event, frozen=True):
    """A participant asks for the right to write. See :meth:`Stream.grant`, :meth:`Stream.hand_over` and
    :meth:`Stream.deny`."""

    stream: str
    participant: str
    reason: str | None


class WriteDenied(_RightChanged, frozen=True):
    """A participant that asked for the right to write does not get it."""


class OwnershipTransferred(Event, frozen=True):
    """A stream has a new owner."""

    stream: str
    previous_owner: str
    new_owner: str
    by: str | None
    reason: str | None


class Chat(Event, frozen=True):
    """Somebody sent a chat message."""

    sender: str
    text: str


class Requested(Event, frozen=True):
    """Somebody sent an MCP request; ``to`` is empty if it is for everyone. What is for us is answered by our tools,
    resources, prompts and :meth:`Space.on_request`."""

    sender: str
    method: str
    params: Any
    to: list[str]


class Notified(Event, frozen=True):
    """Somebody sent an MCP notification, such as ``notifications/resources/updated``."""

    sender: str
    method: str
    params: Any
    to: list[str]


class Proposed(Event, frozen=True):
    """Somebody proposed an MCP request that others may make. See :meth:`Space.fulfil` and :meth:`Space.reject`."""

    proposal: str
    sender: str
    method: str
    params: Any
    to: list[str]


class _ProposalEnded(Event, frozen=True):
    proposal: str
    by: str
    reason: str | None


class ProposalWithdrawn(_ProposalEnded, frozen=True):
    """A participant withdrew its proposal."""


class ProposalDeclined(_ProposalEnded, frozen=True):
    """A participant rejected a proposal."""


class Instructed(Event, frozen=True):
    """Somebody told participants what to do, by ``kind``: ``participant/pause``, ``resume``, ``request-status``,
    ``forget``, ``clear``, ``compact``, ``restart`` or ``shutdown``. ``details`` is all that was said of it. What is for
    us is carried out by :meth:`Space.on_pause` and the like."""

    sender: str
    kind: str
    to: list[str]
    details: dict[str, Any]

    @property
    def reason(self) -> str | None:
        """Why."""
        return untrusted.text(self.details.get("reason"))

    @property
    def seconds(self) -> float | None:
        """How long a pause lasts; None if somebody has to end it."""
        seconds = self.details.get("timeout_seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            return None
        return float(min(max(seconds, 0), _LONGEST_PAUSE))

    @property
    def direction(self) -> Literal["oldest", "newest"]:
        """Which end of the context is to be forgotten."""
        return "newest" if self.details.get("direction") == "newest" else "oldest"

    @property
    def entries(self) -> int | None:
        """How many entries are to be forgotten; None if it is left to us."""
        return untrusted.number(self.details.get("entries"))

    @property
    def target_tokens(self) -> int | None:
        """How many tokens should be left after a compaction."""
        return untrusted.number(self.details.get("target_tokens"))

    @property
    def fields(self) -> list[str]:
        """Which figures of the status are wanted; empty if all are."""
        return untrusted.texts(self.details.get("fields"))


class StatusReported(Event, frozen=True):
    """A participant reported how it is."""

    participant: str
    status: Status


class Received(Event, frozen=True):
    """Any other envelope was received; ``message`` is the whole envelope."""

    kind: str
    sender: str


class Refused(Event, frozen=True):
    """The gateway refused something that nobody waits for, such as a frame."""

    error: PeerError


class Gap(Event, frozen=True):
    """Frames are missing: of one stream, or of all if ``stream`` is None; ``count`` is None if it is unknown."""

    stream: str | None
    count: int | None
    reason: str


class Disconnected(Event, frozen=True):
    """The connection was lost, and the SDK is reconnecting."""

    reason: str


class Resumed(Event, frozen=True):
    """We are connected again. Where ``recovered``, everything that was missed follows in order. ``unconfirmed`` is how
    many of our frames were sent since the last successful :meth:`Space.flush`: the gateway may or may not have them."""

    recovered: bool
    reason: str | None
    unconfirmed: int
