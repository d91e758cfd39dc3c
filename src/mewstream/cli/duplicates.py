"""Events that repeat what another event says.

Most operations cause two messages: the request, which is relayed, and the answer of the gateway. People should see one.
"""

from __future__ import annotations

from mewstream.client.events import Event, Received
from mewstream.protocol import kinds

#: Requests that the gateway answers with a message to everyone. The answer contains all of the request, and more.
_ANSWERED = frozenset(
    {
        *(kinds.STREAM_REQUEST, kinds.STREAM_ANNOUNCE, kinds.TRANSFER_OWNERSHIP, kinds.INVITE),
        *(kinds.GRANT_WRITE, kinds.REVOKE_WRITE, kinds.GRANT_READ, kinds.REVOKE_READ),
    }
)
#: Messages that only say that another message was received.
_ACKNOWLEDGEMENTS = frozenset({kinds.CAPABILITY_GRANT_ACK})


def is_duplicate(event: Event) -> bool:
    """Whether another event of the space says the same."""
    return isinstance(event, Received) and event.kind in _ANSWERED | _ACKNOWLEDGEMENTS
