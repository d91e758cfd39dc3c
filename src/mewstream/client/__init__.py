"""The SDK for participants."""

from mewstream.client import events
from mewstream.client.backoff import Backoff
from mewstream.client.connecting import Connecting, connect
from mewstream.client.errors import (
    AnswerLost,
    ConnectError,
    ConnectionClosed,
    FramesUnconfirmed,
    JoinRefused,
    McpError,
    ProposalRejected,
    RequestTimeout,
    SubscriptionEnded,
    UnknownRefusal,
)
from mewstream.client.format import Format
from mewstream.client.frame import Frame
from mewstream.client.messages import Message
from mewstream.client.proposals import Proposal
from mewstream.client.space import Invitation, Space
from mewstream.client.stream import Stream
from mewstream.client.subscription import Events, Subscription
from mewstream.client.view import Participant, Participants, Streams

__all__ = [
    "AnswerLost",
    "Backoff",
    "ConnectError",
    "Connecting",
    "ConnectionClosed",
    "Events",
    "Format",
    "Frame",
    "FramesUnconfirmed",
    "Invitation",
    "JoinRefused",
    "McpError",
    "Message",
    "Participant",
    "Participants",
    "Proposal",
    "ProposalRejected",
    "RequestTimeout",
    "Space",
    "Stream",
    "Streams",
    "Subscription",
    "SubscriptionEnded",
    "UnknownRefusal",
    "connect",
    "events",
]
