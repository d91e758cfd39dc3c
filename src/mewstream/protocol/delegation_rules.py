"""What a delegate may do, and what ends with its right. The chains themselves are in :mod:`delegation`."""

from __future__ import annotations

from typing import Any

from mewstream.protocol import kinds
from mewstream.protocol.delegation import Delegation, below, chain, expires_at, frames_left, spent
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import InvalidOperation, LimitExceeded, Unauthorized, ValidationFailed
from mewstream.protocol.identifiers import describe
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.records import WriteGranted, WriteRevoked
from mewstream.protocol.state import SpaceState, Stream
from mewstream.protocol.stream_rules import manages


def asked_delegation(state: SpaceState, sender: str, value: Any) -> Delegation | None:
    """``delegate`` of a grant. What a v0.4 client means by it, if it is none of ours, is not looked at."""
    if value is None:
        return None
    try:
        delegation = _delegation(value)
    except ValidationFailed:
        if not state.knows_extensions(sender):
            return None
        raise
    if delegation.depth > state.limits.delegation_depth:
        raise LimitExceeded(
            f"delegate.depth is {delegation.depth}, expected at most {state.limits.delegation_depth}",
            limit="delegation_depth",
        )
    return delegation


def _delegation(value: Any) -> Delegation:
    if not isinstance(value, dict):
        raise ValidationFailed(f"payload.delegate must be an object, got {describe(value)}", field="delegate")
    unknown = sorted(set(value) - {"depth", "max_writers"})
    if unknown:
        # A bound that is not understood must not become a delegation without it.
        raise ValidationFailed(
            f"unknown field {unknown[0][:40]!r} of delegate: known are depth and max_writers", field="delegate"
        )
    for key in value:
        given = value[key]
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or not 1 <= given < 1 << 53):
            raise ValidationFailed(
                f"delegate.{key} must be a positive whole number, got {describe(given)}", field="delegate"
            )
    depth = value.get("depth")
    return Delegation(1 if depth is None else depth, value.get("max_writers"))


def acting_delegate(ledger: Ledger, stream: Stream, sender: str, envelope: Envelope) -> str | None:
    """The sender, if it is only as a delegate that it may grant and revoke. None for the owner and for managers."""
    if sender == stream.owner or manages(ledger.state, stream, envelope.kind, sender, envelope.payload):
        return None
    if spent(stream, sender, ledger.now) is not None:
        raise Unauthorized(f"your right on {stream.id} has ended", stream_id=stream.id)
    return sender


def check_below(stream: Stream, delegate: str, participant: str) -> None:
    if participant not in below(stream, delegate):
        raise Unauthorized(
            f"{participant!r} does not hold the right to write to {stream.id} from you, so you may not revoke it",
            stream_id=stream.id,
            participant_id=participant,
        )


def check_delegated_grant(
    ledger: Ledger,
    stream: Stream,
    delegate: str,
    participant: str,
    writers: list[str],
    *,
    until: int | None,
    max_frames: int | None,
    delegation: Delegation | None,
) -> None:
    """A delegate grants no more than it has. ``writers`` are those who are left when a replaced one is gone."""
    held = stream.writers[delegate].delegate
    assert held is not None
    flaw = None
    own_until, own_frames = expires_at(stream, delegate), frames_left(stream, delegate)
    if until is not None and own_until is not None and until > own_until:
        flaw = "your own right ends before conditions.expires_at"
    elif max_frames is not None and own_frames is not None and max_frames > own_frames:
        flaw = f"conditions.max_frames is {max_frames}, and you have {own_frames} frames left"
    elif delegation is not None and delegation.depth >= held.depth:
        flaw = f"delegate.depth is {delegation.depth}, and yours is {held.depth}: it has to be smaller"
    elif delegation is not None and held.max_writers is not None and (delegation.max_writers or 0) > held.max_writers:
        flaw = f"delegate.max_writers is {delegation.max_writers}, and you may have {held.max_writers}"
    if flaw is not None:
        raise InvalidOperation(f"you cannot grant more than you have: {flaw}", stream_id=stream.id)
    if participant in writers:
        return
    for holder, right in chain(stream, delegate):
        most = right.delegate.max_writers if right.delegate is not None else None
        if most is not None and len(set(below(stream, holder)).intersection(writers)) >= most:
            whose = "you have" if holder == delegate else f"{holder!r} has"
            raise LimitExceeded(
                f"{whose} the {most} writers below that the grant allows", limit="max_writers", stream_id=stream.id
            )


def check_parent(stream: Stream, participant: str, parent: str | None) -> None:
    """Only who has granted a right grants it again: its conditions are not another's to replace."""
    other = stream.writers[participant].parent
    if other != parent:
        raise InvalidOperation(
            f"{participant!r} holds the right from {other or 'the owner or a manager'}: it has to be revoked first",
            stream_id=stream.id,
            participant_id=participant,
        )


def end_below(ledger: Ledger, stream: Stream, ended: list[str], cause: WriteRevoked | WriteGranted) -> None:
    """Tell who has lost the right with the record before, whose ``authorized_writers`` they are not among."""
    for writer in ended:
        ledger.write(
            WriteRevoked,
            cause.seq,
            stream_id=stream.id,
            participant=writer,
            authorized_writers=cause.authorized_writers,
            by=kinds.GATEWAY,
            reason="delegation_ended",
        )
