"""What can be asked of a space. ``decide`` turns a command into records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mewstream.protocol.envelope import Envelope
from mewstream.protocol.interest import Interest


class Start(msgspec.Struct, frozen=True):
    """A run of the gateway begins with this secret-free configuration."""

    epoch: str
    config: dict[str, Any]


class Join(msgspec.Struct, frozen=True):
    participant: str
    transport: str
    continues: bool = False
    """The client says that it comes back, and is not started anew."""
    extensions: list[str] | None = None
    """What the client asked for beyond v0.4. None: it sent no extensions."""
    interest: Interest | None = None
    """What it subscribes to as it joins. None: it did not say."""


class Admit(msgspec.Struct, frozen=True):
    """A signed token names a participant. ``capabilities`` None: those that the space gives by itself."""

    participant: str
    capabilities: list[dict[str, Any]] | None
    until: int
    issuer: str | None = None


class EndAdmission(msgspec.Struct, frozen=True):
    """A participant that a signed token had named comes by a token of its own."""

    participant: str


class Disconnect(msgspec.Struct, frozen=True):
    """A connection has ended. ``session`` is that of its join: the close of a connection that was
    replaced takes nothing away from the one that replaced it."""

    participant: str
    session: int
    reason: str = "disconnected"
    is_final: bool = False
    """It was closed, so that the participant leaves at once."""


class Suspend(msgspec.Struct, frozen=True):
    """The gateway itself goes away (drain, restart): rights are kept for a while."""

    participant: str
    reason: str


class Send(msgspec.Struct, frozen=True):
    """An envelope from an identified participant."""

    sender: str
    envelope: Envelope


class SendFrames(msgspec.Struct, frozen=True):
    """Raw frames from an identified participant that arrived together, all for one stream.

    ``stream`` is its id or alias; ``opcode`` 1 is text, 2 is binary. ``id`` is what their sender calls them."""

    sender: str
    stream: str
    data: Sequence[bytes]
    opcode: int
    id: str | None = None


def SendFrame(sender: str, stream: str, data: bytes, opcode: int) -> SendFrames:
    """One raw frame: a block of one."""
    return SendFrames(sender, stream, [data], opcode)


class ReadHistory(msgspec.Struct, frozen=True):
    """A participant reads frames of a stream again. ``from_seq`` is where they begin, and ``to_seq`` where they end;
    None: at the newest frame, and what comes later follows."""

    sender: str
    stream_id: str
    from_seq: int
    to_seq: int | None
    frames: int
    transport: str
    request_id: str | None = None


class Refuse(msgspec.Struct, frozen=True):
    """The gateway itself refused a message (not an envelope, over a limit, a flood summed up)."""

    sender: str
    kind: str
    code: str
    message: str
    http_status: int
    details: dict[str, Any] = {}
    id: str | None = None
    stream_id: str | None = None
    excerpt: bytes = b""
    count: int = 1
    told: int = 0
    ids: list[str] = []


class ReportDrop(msgspec.Struct, frozen=True):
    """A slow reader did not get these frames."""

    participant: str
    stream_id: str
    count: int
    first_seq: int
    last_seq: int
    policy: str


class ClockJump(msgspec.Struct, frozen=True):
    """The clock of the machine was set; see :class:`mewstream.protocol.records.ClockJumped`."""

    by: int
    shift: int
    ahead: int


class Tick(msgspec.Struct, frozen=True):
    """Time has come for what is due first; see ``SpaceState.next_deadline``."""


Command = (
    Start
    | Admit
    | EndAdmission
    | Join
    | Disconnect
    | Suspend
    | Send
    | SendFrames
    | ReadHistory
    | Refuse
    | ReportDrop
    | ClockJump
    | Tick
)
