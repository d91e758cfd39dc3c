"""mewstream: a gateway, a journal and a data pipeline for MEW Protocol streams.

The SDK is here at the top; it is loaded when it is first used, so that a gateway or a Spark worker
does not pay for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mewstream.protocol.errors import (
    AlreadyExists,
    CapabilityViolation,
    ConfigError,
    FormatRequired,
    FormatViolation,
    InvalidOperation,
    InvalidRequest,
    JournalUnavailable,
    LimitExceeded,
    MewError,
    ParticipantNotFound,
    PeerError,
    ReservedKind,
    SequenceRegression,
    StreamNotFound,
    TargetNotFound,
    Unauthorized,
    UnauthorizedStreamWrite,
    ValidationFailed,
)

if TYPE_CHECKING:
    from mewstream.client import (
        AnswerLost,
        Backoff,
        ConnectError,
        Connecting,
        ConnectionClosed,
        Events,
        Format,
        Frame,
        FramesUnconfirmed,
        Invitation,
        JoinRefused,
        McpError,
        Message,
        Participant,
        Participants,
        Position,
        Proposal,
        ProposalRejected,
        RequestTimeout,
        Space,
        Stream,
        Streams,
        Subscription,
        SubscriptionEnded,
        UnknownRefusal,
        connect,
        events,
    )
    from mewstream.client.events import (
        CapabilitiesChanged,
        Chat,
        Disconnected,
        Event,
        Gap,
        Invited,
        Joined,
        Left,
        OwnershipTransferred,
        ProposalDeclined,
        ProposalWithdrawn,
        Proposed,
        ReadGranted,
        ReadRevoked,
        Received,
        Refused,
        Requested,
        Resumed,
        StreamClosed,
        StreamOpened,
        StreamStarted,
        WriteGranted,
        WriteRevoked,
    )

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "AnswerLost",
    "Backoff",
    "CapabilitiesChanged",
    "CapabilityViolation",
    "Chat",
    "ConfigError",
    "ConnectError",
    "Connecting",
    "ConnectionClosed",
    "Disconnected",
    "Event",
    "Events",
    "Format",
    "FormatRequired",
    "FormatViolation",
    "Frame",
    "FramesUnconfirmed",
    "Gap",
    "InvalidOperation",
    "InvalidRequest",
    "Invitation",
    "Invited",
    "JoinRefused",
    "Joined",
    "JournalUnavailable",
    "Left",
    "LimitExceeded",
    "McpError",
    "Message",
    "MewError",
    "OwnershipTransferred",
    "Participant",
    "ParticipantNotFound",
    "Participants",
    "PeerError",
    "Position",
    "Proposal",
    "ProposalDeclined",
    "ProposalRejected",
    "ProposalWithdrawn",
    "Proposed",
    "ReadGranted",
    "ReadRevoked",
    "Received",
    "Refused",
    "RequestTimeout",
    "Requested",
    "ReservedKind",
    "Resumed",
    "SequenceRegression",
    "Space",
    "Stream",
    "StreamClosed",
    "StreamNotFound",
    "StreamOpened",
    "StreamStarted",
    "Streams",
    "Subscription",
    "SubscriptionEnded",
    "TargetNotFound",
    "Unauthorized",
    "UnauthorizedStreamWrite",
    "UnknownRefusal",
    "ValidationFailed",
    "WriteGranted",
    "WriteRevoked",
    "__version__",
    "connect",
    "events",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    client = importlib.import_module("mewstream.client")
    return getattr(client, name) if hasattr(client, name) else getattr(client.events, name)


def __dir__() -> list[str]:
    return __all__
