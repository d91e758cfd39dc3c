"""The SDK for participants."""

from mewstream.client import events
from mewstream.client.backoff import Backoff
from mewstream.client.errors import (
    ConnectError,
    ConnectionClosed,
    FramesUnconfirmed,
    JoinRefused,
    McpError,
    ProposalRejected,
    RequestTimeout,
)
from mewstream.client.frame import Frame
from mewstream.client.messages import Message
from mewstream.client.proposals import Proposal
from mewstream.client.space import Connecting, Invitation, Space, connect
from mewstream.client.stream import Format, Stream
from mewstream.client.subscription import Events, Subscription
from mewstream.client.view import Participant, Participants, Streams

__all__ = [
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
    "connect",
    "events",
]
