"""Each operation is told once, though two messages tell of most: the request, and what the gateway makes of it."""

from __future__ import annotations

from mewstream.client.events import Event, Received
from mewstream.protocol import kinds

#: Requests that the gateway answers with a message to everyone, which says all that they say and more.
_ANSWERED = frozenset(
    {
        *(kinds.STREAM_REQUEST, kinds.STREAM_ANNOUNCE, kinds.TRANSFER_OWNERSHIP, kinds.INVITE),
        *(kinds.GRANT_WRITE, kinds.REVOKE_WRITE, kinds.GRANT_READ, kinds.REVOKE_READ),
    }
)
#: What says no more than that a message has come.
_ACKNOWLEDGEMENTS = frozenset({kinds.CAPABILITY_GRANT_ACK})


def says_nothing_new(event: Event) -> bool:
    """Whether another event of the space tells the same."""
    return isinstance(event, Received) and event.kind in _ANSWERED | _ACKNOWLEDGEMENTS
