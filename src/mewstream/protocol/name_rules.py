"""What it means that the name that a stream is to have is taken (decision 12).

A program that was restarted asks for the name of its stream again and says by ``if_exists`` what it wants.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import AlreadyExists, ValidationFailed
from mewstream.protocol.identifiers import describe, gateway_message_id, is_valid_alias
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.policy import IfExists
from mewstream.protocol.records import StreamReused
from mewstream.protocol.state import SpaceState, Stream

CHOICES: tuple[str, ...] = get_args(IfExists)


class Wish(NamedTuple):
    """The name that a request asks for, and what is to happen if it is taken."""

    alias: str | None
    if_exists: str
    is_answered: bool
    """Whether the requester is told that it did not get the name. A v0.4 client is not, unless it has asked."""


def wished_name(state: SpaceState, sender: str, payload: dict[str, Any]) -> Wish:
    """Raises :class:`ValidationFailed` if the name or ``if_exists`` cannot be meant. Of a v0.4 client, what is not
    known stays metadata."""
    asked, wished = payload.get("if_exists"), payload.get("desired_id")
    knows_extensions = state.knows_extensions(sender)
    if asked is not None and asked not in CHOICES:
        if knows_extensions:
            raise ValidationFailed(
                f"payload.if_exists must be one of {', '.join(CHOICES)}, got {describe(asked)}", field="if_exists"
            )
        asked = None
    is_valid = is_valid_alias(wished, max_bytes=state.limits.id_bytes)
    if asked is not None and not is_valid:
        raise ValidationFailed(
            "payload.if_exists needs payload.desired_id: a name that has no /, # or | and does not look like stream-1, "
            f"got {describe(wished)}",
            field="desired_id",
        )
    return Wish(wished if is_valid else None, asked or "new", asked is not None or knows_extensions)


def name_is_taken(stream: Stream) -> AlreadyExists:
    return AlreadyExists(
        f"the name {stream.alias!r} is that of {stream.id}, which {stream.owner!r} owns: "
        "close that stream first, or ask for another name",
        stream_id=stream.id,
        owner=stream.owner,
    )


def reuse(ledger: Ledger, sender: str, envelope: Envelope, stream: Stream) -> None:
    """Give the owner its open stream back."""
    if stream.owner != sender:
        raise name_is_taken(stream)
    state = ledger.state
    ledger.write(
        StreamReused,
        stream_id=stream.id,
        owner=sender,
        kind=envelope.kind,
        request_id=envelope.id or gateway_message_id(state.epoch, ledger.next_seq),
        digest=envelope.digest,
        described={**state.describe_stream(stream), "reused": True},
    )
