"""Subscribing to streams, and giving subscriptions up. Everyone may, and only who asks is told."""

from __future__ import annotations

from collections.abc import Iterable

from mewstream.protocol import kinds
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import InvalidOperation
from mewstream.protocol.interest import EXTENSION, NOTHING, Interest, check_interest, parse_interest
from mewstream.protocol.interest_state import current_interest, names_of, streams_matching
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.records import Subscribed, Unsubscribed
from mewstream.protocol.state import SpaceState, Stream
from mewstream.protocol.stream_rules import capability_violation, require_capability

#: How many streams an answer names. A subscription covers all that match.
MAX_NAMED = 256


def _subscribe(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state = ledger.state
    given = _given(ledger, sender, envelope)
    if given is not None:
        check_interest((current_interest(state, sender) or NOTHING).with_added(given), state.limits)
        _write(ledger, Subscribed, sender, envelope, given, streams_matching(state, given))


def _unsubscribe(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """What was not subscribed to is given up already: a client that repeats itself has made no mistake."""
    state = ledger.state
    given = _given(ledger, sender, envelope)
    if given is not None:
        left = (current_interest(state, sender) or NOTHING).without(given)
        streams = (stream for stream in streams_matching(state, given) if left.rate(state.id, names_of(stream)) is None)
        _write(ledger, Unsubscribed, sender, envelope, given, streams)


def _given(ledger: Ledger, sender: str, envelope: Envelope) -> Interest | None:
    """The subscriptions in an envelope, or None if its sender means something else by this kind: a client of v0.4 does
    not know it from us, and its envelope is relayed."""
    state = ledger.state
    if not state.knows_extensions(sender):
        require_capability(ledger, sender, envelope)
        ledger.accept(sender, envelope)
        return None
    given = parse_interest(envelope.payload, state.limits)
    if state.capabilities(sender).denies(envelope.kind, envelope.payload):
        raise capability_violation(state, sender, envelope.kind)
    if not state.uses_interest(sender):
        raise InvalidOperation(
            f"you get the frames of every stream that you may read: join with the extension {EXTENSION!r} to choose",
        )
    return given


def _write(
    ledger: Ledger,
    record: type[Subscribed] | type[Unsubscribed],
    sender: str,
    envelope: Envelope,
    given: Interest,
    streams: Iterable[Stream],
) -> None:
    readable = [stream.id for stream in streams if stream.readers is None or sender in stream.readers]
    ledger.write(
        record,
        participant=sender,
        interest=given,
        streams=readable[:MAX_NAMED],
        total=len(readable),
        digest=envelope.digest,
        request_id=envelope.id,
    )


def interest_on_join(state: SpaceState, participant: str, given: Interest | None, *, continues: bool) -> Interest:
    """What a client that uses interest is interested in when it joins: what it says, or what it was interested in
    before its connection was lost, or nothing."""
    if given is not None:
        return given
    present = state.participants.get(participant)
    is_back = present is not None and (continues or not present.connected)
    return (current_interest(state, participant) if is_back else None) or NOTHING


INTEREST_RULES = {kinds.STREAM_SUBSCRIBE: _subscribe, kinds.STREAM_UNSUBSCRIBE: _unsubscribe}
