"""The rights to write to a stream, to read it and to own it: how participants and the gateway change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mewstream.protocol import kinds
from mewstream.protocol.delegation import below
from mewstream.protocol.delegation_rules import (
    acting_delegate,
    asked_delegation,
    check_below,
    check_delegated_grant,
    check_parent,
    end_below,
)
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import InvalidOperation, LimitExceeded, ParticipantNotFound, ValidationFailed
from mewstream.protocol.grant_terms import on_disconnect, when_absent
from mewstream.protocol.identifiers import describe, optional_text, required_id
from mewstream.protocol.ledger import Ledger, R
from mewstream.protocol.records import (
    EnvelopeAccepted,
    OwnershipTransferred,
    ReadGranted,
    ReadRevoked,
    StreamEnded,
    WriteGranted,
    WriteRevoked,
)
from mewstream.protocol.state import SpaceState, Stream
from mewstream.protocol.stream_rules import check_ownable, check_transition, name_stream, permitted_stream
from mewstream.protocol.timers import Timer
from mewstream.protocol.times import parse_rfc3339, rfc3339

# -- the right to write --------------------------------------------------------------------------


def _grant_write(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    participant = required_id(payload, "participant_id", max_bytes=state.limits.id_bytes)
    optional_text(payload, "reason")
    expires_at, max_frames, conditions = _conditions(payload.get("conditions"))
    if (kept := on_disconnect(state, sender, payload)) is not None:
        conditions = {**(conditions or {}), "on_disconnect": kept}
    may_wait = when_absent(state, sender, payload)
    delegation = asked_delegation(state, sender, payload["delegate"]) if "delegate" in payload else None
    replaced = _replaced(state, sender, payload) if "replaces" in payload else None
    stream = permitted_stream(ledger, sender, envelope)
    parent = None if sender == stream.owner else acting_delegate(ledger, stream, sender, envelope)
    if replaced is not None:
        _check_replaceable(state, stream, sender, replaced, participant, payload)
        if parent is not None:
            check_below(stream, parent, replaced)
    if participant == stream.owner and (conditions is not None or delegation is not None):
        raise InvalidOperation("the right of an owner has neither conditions nor a delegation", stream_id=stream.id)
    if expires_at is not None and expires_at <= ledger.now:
        raise InvalidOperation("conditions.expires_at has passed already", stream_id=stream.id)
    replaced_below = below(stream, replaced) if replaced is not None else []
    writers = stream.authorized_writers() if replaced is None else _without(stream, [*replaced_below, replaced])
    if participant in writers:
        check_parent(stream, participant, parent)
    if parent is not None:
        check_delegated_grant(
            *(ledger, stream, parent, participant, writers),
            until=expires_at,
            max_frames=max_frames,
            delegation=delegation,
        )
    if participant not in writers:
        _check_writers(state, stream, len(writers) + len(stream.pending.keys() - {participant}))
    # One who keeps a right while it is away may be granted it again. Nobody is replaced by somebody who is absent, and
    # what a chain allows must be known now.
    is_plain = replaced is None and parent is None and delegation is None
    may_wait = may_wait and is_plain and participant in state.roster
    if not may_wait:
        require_present(state, participant)
    is_pending = participant not in writers and not state.is_present(participant)
    accepted = _accept(ledger, sender, envelope, stream)
    if replaced is not None:
        # Before the grant, so that nobody ever drives beside the one who takes over.
        revoked = _record_change(
            *(ledger, accepted, envelope, stream, WriteRevoked),
            participant=replaced,
            authorized_writers=list(writers),
            replaced_by=participant,
        )
        end_below(ledger, stream, replaced_below, revoked)
    ended: list[str] = []
    if participant in writers:
        ended = below(stream, participant, beyond=delegation.depth if delegation is not None else 0)
        writers = [writer for writer in writers if writer not in ended]
    elif not is_pending:
        writers.append(participant)
    granted = _record_change(
        *(ledger, accepted, envelope, stream, WriteGranted),
        participant=participant,
        replaces=replaced,
        pending=is_pending,
        authorized_writers=writers,
        conditions=conditions,
        expires_at=expires_at,
        max_frames=max_frames,
        parent=parent,
        delegate=delegation,
    )
    if ended:
        end_below(ledger, stream, ended, granted)


def _replaced(state: SpaceState, sender: str, payload: dict[str, Any]) -> str | None:
    """The writer in whose place the right is granted."""
    if payload.get("replaces") is None:
        return None
    if not state.knows_extensions(sender) and not isinstance(payload["replaces"], str):
        return None  # it is metadata of the client's own
    return required_id(payload, "replaces", max_bytes=state.limits.id_bytes)


def _check_replaceable(
    state: SpaceState, stream: Stream, sender: str, replaced: str, participant: str, payload: dict[str, Any]
) -> None:
    """What is replaced is revoked, so the sender must be entitled to that too."""
    check_transition(state, stream, kinds.REVOKE_WRITE, sender, payload)
    flaw = None
    if replaced == stream.owner:
        flaw = f"{replaced!r} owns {stream.id} and cannot be replaced: transfer ownership instead"
    elif replaced not in stream.writers:
        flaw = f"{replaced!r} does not write to {stream.id}, so nobody can be granted the right in its place"
    elif replaced == participant:
        flaw = f"{replaced!r} cannot replace itself: grant again without replaces to change the conditions"
    if flaw is not None:
        raise InvalidOperation(flaw, stream_id=stream.id, participant_id=replaced)


def _check_writers(state: SpaceState, stream: Stream, count: int) -> None:
    """``count`` is how many there are, without the one to be added."""
    if count >= state.limits.writers_per_stream:
        raise LimitExceeded(
            f"{stream.id} has its {state.limits.writers_per_stream} writers",
            limit="writers_per_stream",
            stream_id=stream.id,
        )


def _conditions(value: Any) -> tuple[int | None, int | None, dict[str, Any] | None]:
    """``expires_at`` in microseconds, ``max_frames``, and both as they are shown to others."""
    if value is None or value == {}:
        return None, None, None
    if not isinstance(value, dict):
        raise ValidationFailed(f"payload.conditions must be an object, got {describe(value)}", field="conditions")
    unknown = sorted(set(value) - {"expires_at", "max_frames"})
    if unknown:
        # A condition that is not understood must not become a grant without it.
        raise ValidationFailed(
            f"unknown condition {unknown[0][:40]!r}: known are expires_at and max_frames", field="conditions"
        )
    shown: dict[str, Any] = {}
    expires_at = max_frames = None
    if (given := value.get("expires_at")) is not None:
        expires_at = parse_rfc3339(given) if isinstance(given, str) else None
        if expires_at is None:
            raise ValidationFailed(
                f"conditions.expires_at must be an RFC 3339 time, got {describe(given)}", field="conditions"
            )
        shown["expires_at"] = rfc3339(expires_at)
    if (given := value.get("max_frames")) is not None:
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given < 1 << 53:
            raise ValidationFailed(
                f"conditions.max_frames must be a positive whole number, got {describe(given)}",
                field="conditions",
            )
        shown["max_frames"] = max_frames = given
    return expires_at, max_frames, shown or None


def _revoke_write(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    participant = required_id(envelope.payload, "participant_id", max_bytes=ledger.state.limits.id_bytes)
    optional_text(envelope.payload, "reason")
    stream = permitted_stream(ledger, sender, envelope)
    if participant == stream.owner:
        raise InvalidOperation(
            f"{participant!r} owns {stream.id} and cannot lose the right to write: transfer ownership instead",
            stream_id=stream.id,
        )
    # Revoking the right of a participant that has none succeeds, because the outcome is what was asked for.
    if (delegate := acting_delegate(ledger, stream, sender, envelope)) is not None:
        check_below(stream, delegate, participant)
    ended = below(stream, participant)
    writers = _without(stream, [*ended, participant])
    revoked = change_right(
        ledger, sender, envelope, stream, WriteRevoked, participant=participant, authorized_writers=writers
    )
    end_below(ledger, stream, ended, revoked)


def _transfer(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    new_owner = required_id(payload, "new_owner", max_bytes=state.limits.id_bytes)
    optional_text(payload, "reason")
    retain = payload.get("retain_write", False)
    if not isinstance(retain, bool):
        raise ValidationFailed("payload.retain_write must be true or false", field="retain_write")
    stream = permitted_stream(ledger, sender, envelope)
    # A participant that is absent cannot write, so there is nothing to retain.
    retain = retain and state.is_present(stream.owner)
    if new_owner != stream.owner:
        check_ownable(state, new_owner)
        if retain and new_owner not in stream.writers:
            _check_writers(state, stream, len(stream.writers))
    require_present(state, new_owner)
    change_right(
        ledger,
        sender,
        envelope,
        stream,
        OwnershipTransferred,
        previous_owner=stream.owner,
        new_owner=new_owner,
        authorized_writers=_writers_after_transfer(stream, new_owner, retain=retain),
    )


def _writers_after_transfer(stream: Stream, new_owner: str, *, retain: bool) -> list[str]:
    """``retain``: the previous owner stays a writer."""
    others = stream.authorized_writers() if retain else _without(stream, [stream.owner])
    return [new_owner, *(writer for writer in others if writer != new_owner)]


def _grant_read(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state = ledger.state
    participant = required_id(envelope.payload, "participant_id", max_bytes=state.limits.id_bytes)
    optional_text(envelope.payload, "reason")
    stream = permitted_stream(ledger, sender, envelope)
    # Without a set everyone reads already; a grant never takes reading away from the others.
    readers = None if stream.readers is None else list(dict.fromkeys([*stream.readers, participant]))
    if readers is not None and len(readers) > state.limits.readers_per_stream:
        raise LimitExceeded(
            f"{stream.id} has its {state.limits.readers_per_stream} readers",
            limit="readers_per_stream",
            stream_id=stream.id,
        )
    require_present(state, participant)
    change_right(ledger, sender, envelope, stream, ReadGranted, participant=participant, authorized_readers=readers)


def _revoke_read(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    participant = required_id(envelope.payload, "participant_id", max_bytes=ledger.state.limits.id_bytes)
    optional_text(envelope.payload, "reason")
    stream = permitted_stream(ledger, sender, envelope)
    # If everyone reads, a revoke makes a set of all others who are present now.
    readers = ledger.state.participants if stream.readers is None else stream.readers
    others = [reader for reader in readers if reader != participant]
    change_right(ledger, sender, envelope, stream, ReadRevoked, participant=participant, authorized_readers=others)


def change_right(ledger: Ledger, sender: str, envelope: Envelope, stream: Stream, record: type[R], **fields: Any) -> R:
    """Accept an envelope, and record the change of rights that it asks for."""
    return _record_change(ledger, _accept(ledger, sender, envelope, stream), envelope, stream, record, **fields)


def _accept(ledger: Ledger, sender: str, envelope: Envelope, stream: Stream) -> EnvelopeAccepted:
    name_stream(ledger.state.id, envelope, stream, nested=False)
    return ledger.accept(sender, envelope, stream_id=stream.id)


def _record_change(
    ledger: Ledger, accepted: EnvelopeAccepted, envelope: Envelope, stream: Stream, record: type[R], **fields: Any
) -> R:
    return ledger.write(
        record,
        accepted.seq,
        stream_id=stream.id,
        by=accepted.sender,
        reason=envelope.payload.get("reason"),
        request_id=accepted.id,
        **fields,
    )


def require_present(state: SpaceState, participant: str) -> None:
    if participant not in state.participants:
        absent = f"{participant!r} is not connected" if participant in state.roster else f"there is no {participant!r}"
        raise ParticipantNotFound(f"{absent} in this space", participant_id=participant)


def _without(stream: Stream, gone: list[str]) -> list[str]:
    lost = set(gone)
    return [writer for writer in stream.authorized_writers() if writer not in lost]


# -- what the gateway does by itself --------------------------------------------------------------


def grants_on_join(ledger: Ledger, participant: str) -> None:
    """Grants that have waited for this participant, and standing grants of streams that were opened before it came
    (decisions 4 and 18)."""
    most = ledger.state.limits.writers_per_stream
    for stream_id in ledger.state.standing.get(participant, ()):
        stream = ledger.state.streams[stream_id]
        if participant in stream.writers or len(stream.writers) >= most:
            continue
        pending = stream.pending.get(participant)
        if pending is not None and (pending.expires_at is None or ledger.now < pending.expires_at):
            ledger.write(
                WriteGranted,
                ledger.records[0].seq,
                stream_id=stream.id,
                participant=participant,
                authorized_writers=[*stream.authorized_writers(), participant],
                by=pending.by,
                reason=pending.reason,
                conditions=pending.conditions,
                expires_at=pending.expires_at,
                max_frames=pending.max_frames,
            )
        elif participant in stream.auto_grant:
            ledger.write(
                WriteGranted,
                ledger.records[0].seq,
                stream_id=stream.id,
                participant=participant,
                authorized_writers=[*stream.authorized_writers(), participant],
                by=stream.owner,
                reason="auto_grant",
            )


def revoke_on_leave(ledger: Ledger, participant: str, reason: str, cause: int) -> None:
    """Revoke the rights of a writer that has left (decision 6), but for those that outlast a lost connection."""
    for stream in _written_by(ledger.state, participant):
        if reason == "kicked" or stream.writers[participant].on_disconnect in (None, "revoke"):
            write_revoke(ledger, stream, participant, reason, cause)


def revoke_on_suspension(ledger: Ledger, participant: str, reason: str, cause: int) -> None:
    """Revoke the rights that end with the connection."""
    for stream in _written_by(ledger.state, participant):
        if stream.writers[participant].on_disconnect == "revoke":
            write_revoke(ledger, stream, participant, reason, cause)


def _written_by(state: SpaceState, participant: str) -> Iterator[Stream]:
    """The streams that it may write to and does not own."""
    rights = state.rights.get(participant)
    for stream_id in rights.writes if rights is not None else ():
        stream = state.streams[stream_id]
        if stream.owner != participant:
            yield stream


def write_revoke(ledger: Ledger, stream: Stream, participant: str, reason: str, cause: int | None = None) -> None:
    """Record a revoke that no participant has asked for, and what ends with it."""
    ended = below(stream, participant)
    revoked = ledger.write(
        WriteRevoked,
        cause,
        stream_id=stream.id,
        participant=participant,
        authorized_writers=_without(stream, [*ended, participant]),
        by=kinds.GATEWAY,
        reason=reason,
    )
    end_below(ledger, stream, ended, revoked)


def stream_timer_due(ledger: Ledger, timer: Timer) -> None:
    what, stream_id, writer = timer
    stream = ledger.state.streams[stream_id]
    if what == "expire":
        write_revoke(ledger, stream, writer, "expired")
    elif what == "absent":
        write_revoke(ledger, stream, writer, "disconnected")
    elif what == "start":
        seconds = ledger.state.policies.start_timeout
        ledger.write(
            StreamEnded,
            stream_id=stream_id,
            how="failed",
            by=kinds.GATEWAY,
            code="start_timeout",
            message=f"{stream_id} was announced and not started within {seconds:g} seconds",
        )
    elif what == "idle":
        ledger.write(StreamEnded, stream_id=stream_id, how="closed", by=kinds.GATEWAY, reason="idle")
    elif stream.policy.on_owner_leave == "transfer" and (heir := _longest_standing_writer(ledger.state, stream)):
        ledger.write(
            OwnershipTransferred,
            stream_id=stream_id,
            previous_owner=stream.owner,
            new_owner=heir,
            authorized_writers=_writers_after_transfer(stream, heir, retain=False),
            by=kinds.GATEWAY,
            reason="owner_left",
        )
    else:
        ledger.write(StreamEnded, stream_id=stream_id, how="closed", by=kinds.GATEWAY, reason="owner_left")


def _longest_standing_writer(state: SpaceState, stream: Stream) -> str | None:
    connected = [writer for writer in stream.writers if writer != stream.owner and state.is_connected(writer)]
    return min(connected, key=lambda writer: stream.writers[writer].since, default=None)


RIGHT_RULES: dict[str, Callable[[Ledger, str, Envelope], None]] = {
    kinds.GRANT_WRITE: _grant_write,
    kinds.REVOKE_WRITE: _revoke_write,
    kinds.TRANSFER_OWNERSHIP: _transfer,
    kinds.GRANT_READ: _grant_read,
    kinds.REVOKE_READ: _revoke_read,
}
