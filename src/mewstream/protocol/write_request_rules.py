"""Asking for the right to write to a stream, and saying no to it. A grant says yes: see :mod:`right_rules`."""

from __future__ import annotations

from collections.abc import Callable

from mewstream.protocol import kinds
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import InvalidOperation, LimitExceeded, ValidationFailed
from mewstream.protocol.identifiers import byte_length, optional_text, required_id
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.records import WriteDenied, WriteRequested
from mewstream.protocol.right_rules import change_right, require_present
from mewstream.protocol.stream_rules import (
    capability_violation,
    check_transition,
    find_stream,
    name_stream,
    permitted_stream,
)

#: Bytes of the reason of a request. Everyone who joins while it is pending is told.
MAX_REASON_BYTES = 1 << 10


def _request_write(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """It takes no capability, but a denial of the kind forbids it (decision 21)."""
    state, payload = ledger.state, envelope.payload
    optional_text(payload, "reason")
    reason = payload.get("reason")
    if reason is not None and byte_length(reason) > MAX_REASON_BYTES:
        raise ValidationFailed(f"payload.reason is longer than {MAX_REASON_BYTES} bytes", field="reason")
    stream = find_stream(state, envelope.kind, payload)
    if state.capabilities(sender).denies(envelope.kind, {**payload, "stream_id": stream.id}):
        raise capability_violation(state, sender, envelope.kind)
    check_transition(state, stream, envelope.kind, sender, payload)
    if sender in stream.writers:
        raise InvalidOperation(f"you may write to {stream.id} already", stream_id=stream.id)
    most = state.limits.write_requests_per_stream
    if sender not in stream.write_requests and len(stream.write_requests) >= most:
        raise LimitExceeded(
            f"{most} participants ask for the right to write to {stream.id}: try again when some have their answer",
            limit="write_requests_per_stream",
            stream_id=stream.id,
        )
    require_present(state, sender)
    name_stream(state.id, envelope, stream, nested=False)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    ledger.write(WriteRequested, accepted.seq, stream_id=stream.id, participant=sender, reason=reason)


def _deny_write(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    participant = required_id(envelope.payload, "participant_id", max_bytes=ledger.state.limits.id_bytes)
    optional_text(envelope.payload, "reason")
    stream = permitted_stream(ledger, sender, envelope)
    if participant not in stream.write_requests:
        raise InvalidOperation(
            f"{participant!r} does not ask for the right to write to {stream.id}, or has its answer",
            stream_id=stream.id,
            participant_id=participant,
        )
    change_right(ledger, sender, envelope, stream, WriteDenied, participant=participant)


WRITE_REQUEST_RULES: dict[str, Callable[[Ledger, str, Envelope], None]] = {
    kinds.REQUEST_WRITE: _request_write,
    kinds.DENY_WRITE: _deny_write,
}
