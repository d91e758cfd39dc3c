"""Opening, handing over and ending streams. Which event is valid when is in :mod:`transitions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from mewstream.protocol import kinds
from mewstream.protocol import transitions as table
from mewstream.protocol.envelope import Envelope, encode_json
from mewstream.protocol.errors import (
    CapabilityViolation,
    InvalidOperation,
    LimitExceeded,
    ParticipantNotFound,
    PeerError,
    StreamNotFound,
    TargetNotFound,
    Unauthorized,
    UnauthorizedStreamWrite,
    ValidationFailed,
)
from mewstream.protocol.formats import parse_formats
from mewstream.protocol.identifiers import (
    byte_length,
    describe,
    id_list,
    is_valid_alias,
    namespace,
    optional_text,
    required_id,
)
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.policy import OnSlow, OwnerLeave, Validate
from mewstream.protocol.records import (
    OwnershipTransferred,
    ReadGranted,
    ReadRevoked,
    StreamEnded,
    StreamOpened,
    StreamPolicy,
    StreamStarted,
    WriteGranted,
    WriteRevoked,
)
from mewstream.protocol.state import SpaceState, Stream, Timer
from mewstream.protocol.times import SECOND, parse_rfc3339, rfc3339
from mewstream.protocol.transitions import Status, Who

MAX_GRACE_SECONDS = 7 * 86_400


# -- finding a stream and checking a right --------------------------------------------------------


def stream_reference(payload: dict[str, Any], max_bytes: int) -> str | None:
    """The stream that a payload names: ``stream_id``, or ``stream.stream_id`` as announced streams
    do. None where it names none. Two names that differ, or a wrong namespace, are refused."""
    nested = payload.get("stream")
    named = [payload["stream_id"]] if payload.get("stream_id") is not None else []
    if nested is not None:
        if not isinstance(nested, dict):
            raise ValidationFailed(
                f"payload.stream must be an object with a stream_id, got {describe(nested)}", field="stream"
            )
        if nested.get("stream_id") is not None:
            named.append(nested["stream_id"])
    if not named:
        return None
    if any(not isinstance(name, str) or not name or byte_length(name) > max_bytes for name in named):
        raise ValidationFailed("stream_id must be a non-empty string", field="stream_id")
    if len(set(named)) > 1:
        raise ValidationFailed("payload.stream_id and payload.stream.stream_id differ", field="stream_id")
    return str(named[0])


def find_stream(ledger: Ledger, envelope: Envelope) -> Stream:
    """The stream that an envelope is about, or a refusal."""
    state, payload = ledger.state, envelope.payload
    reference = stream_reference(payload, state.limits.id_bytes)
    if reference is None:
        raise ValidationFailed(
            f"{envelope.kind} needs payload.stream_id (or payload.stream.stream_id)", field="stream_id"
        )
    stream = state.find_stream(reference)
    if stream is None:
        raise stream_not_found(reference)
    _check_namespace(state, stream, payload)
    return stream


def stream_not_found(reference: str) -> StreamNotFound:
    return StreamNotFound(f"there is no active stream {reference[:128]!r} in this space", stream_id=reference[:128])


def _check_namespace(state: SpaceState, stream: Stream, payload: dict[str, Any]) -> None:
    nested = payload.get("stream")
    given = nested.get("namespace") if isinstance(nested, dict) else None
    if given is not None and given != namespace(state.id, stream.id):
        raise ValidationFailed(
            f"payload.stream.namespace is wrong: expected {namespace(state.id, stream.id)!r}",
            field="stream.namespace",
            stream_id=stream.id,
        )


def check_transition(state: SpaceState, stream: Stream, event: str, sender: str) -> None:
    """The sender's right, then whether the event is valid now: both from the table."""
    who = table.WHO[event]
    if not _may(state, stream, who, sender):
        refusal: type[PeerError] = UnauthorizedStreamWrite if who is Who.WRITER else Unauthorized
        what = f"write to {stream.id}" if who is Who.WRITER else f"send {event} for {stream.id}"
        raise refusal(f"you may not {what}: that takes {who}", stream_id=stream.id)
    if table.transition(event, stream.status) is None:
        allowed = " or ".join(table.states_allowing(event))
        raise InvalidOperation(
            f"{event} is not valid while {stream.id} is {stream.status}, only while it is {allowed}",
            stream_id=stream.id,
            status=str(stream.status),
        )


def _may(state: SpaceState, stream: Stream, who: Who, sender: str) -> bool:
    if who is Who.WRITER:
        return sender in stream.writers
    if sender == stream.owner:
        return True
    return who is Who.OWNER_OR_MANAGER and state.capabilities(sender).allows(kinds.SPACE_MANAGE_STREAMS, {})


def capability_violation(
    state: SpaceState, sender: str, kind: str, *, required: str | None = None
) -> CapabilityViolation:
    details = {"attempted_kind": kind, "your_capabilities": state.effective_capabilities(sender)}
    if required is not None:
        details["required"] = required
    return CapabilityViolation(f"your capabilities do not allow {required or kind}", **details)


def name_stream(space: str, envelope: Envelope, stream: Stream, *, nested: bool) -> None:
    """Fill in what a sender may leave out, so that everyone is told the same canonical names."""
    payload = envelope.payload
    if nested or stream.announced or isinstance(payload.get("stream"), dict):
        names = {"stream_id": stream.id, "namespace": namespace(space, stream.id)}
        payload["stream"] = {**(payload.get("stream") or {}), **names}
        if envelope.context is None:
            envelope.context = msgspec.Raw(encode_json(names["namespace"]))
    if not nested or "stream_id" in payload:
        payload["stream_id"] = stream.id


# -- opening --------------------------------------------------------------------------------------


def _request(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    _open(ledger, sender, envelope, Status.LIVE)


def _announce(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    optional_text(envelope.payload, "intent")
    scope = id_list(envelope.payload, "scope", max_bytes=ledger.state.limits.id_bytes)
    if scope and envelope.to is None:
        # Those who should be notified directly: an address, everyone gets it all the same.
        envelope.to = scope
    _open(ledger, sender, envelope, Status.READY)


def _open(ledger: Ledger, sender: str, envelope: Envelope, status: Status) -> None:
    state, limits, payload = ledger.state, ledger.state.limits, envelope.payload
    direction = payload.get("direction")
    if direction not in (None, "upload", "download"):
        raise ValidationFailed(
            f"payload.direction must be upload or download, got {describe(direction)}", field="direction"
        )
    policy = _stream_policy(state, payload)
    target = id_list(payload, "target", max_bytes=limits.id_bytes)
    auto_grant = id_list(payload, "auto_grant", max_bytes=limits.id_bytes) or []
    formats = parse_formats(payload.get("formats"), limits=limits)
    if len(envelope.payload_raw) > limits.stream_metadata_bytes:
        raise LimitExceeded(
            f"the payload of {envelope.kind} is larger than {limits.stream_metadata_bytes} bytes",
            limit="stream_metadata_bytes",
        )
    required = kinds.STREAM_REQUEST if status is Status.LIVE else kinds.STREAM_MANAGE
    if not state.capabilities(sender).allows(required, payload):
        raise capability_violation(
            state, sender, envelope.kind, required=None if required == envelope.kind else required
        )
    _check_opening_limits(state, sender, target, auto_grant)
    unknown = [each for each in target or () if each not in state.roster and not state.is_present(each)]
    if unknown:
        raise TargetNotFound(f"nobody is known here as {', '.join(unknown)}", targets=unknown)

    wished = payload.get("desired_id")
    alias = wished if is_valid_alias(wished, max_bytes=limits.id_bytes) else None
    if alias in state.aliases:
        alias = None
    members = [each for each in auto_grant if each != sender and state.is_present(each)]
    timeout = state.policies.start_timeout if status is Status.READY else 0
    accepted = ledger.accept(sender, envelope)
    opened = ledger.write(
        StreamOpened,
        accepted.seq,
        stream_id=f"stream-{state.stream_counter + 1}",
        status=str(status),
        owner=sender,
        request_id=accepted.id,
        request=payload,
        policy=policy,
        authorized_writers=[sender, *members],
        authorized_readers=target or None,
        auto_grant=auto_grant,
        alias=alias,
        formats=formats,
        start_by=ledger.now + round(timeout * SECOND) if timeout > 0 else None,
        owner_connected=state.is_connected(sender),
    )
    for member in members:
        ledger.write(
            WriteGranted,
            opened.seq,
            stream_id=opened.stream_id,
            participant=member,
            authorized_writers=opened.authorized_writers,
            by=sender,
            reason="auto_grant",
        )


def _check_opening_limits(state: SpaceState, sender: str, target: list[str] | None, auto_grant: list[str]) -> None:
    limits = state.limits
    if len(state.streams) >= limits.streams_per_space:
        raise LimitExceeded(f"this space has its {limits.streams_per_space} streams", limit="streams_per_space")
    _check_ownable(state, sender)
    if len(auto_grant) >= limits.writers_per_stream:
        raise LimitExceeded("payload.auto_grant names too many writers", limit="writers_per_stream")
    if target is not None and len(target) > limits.readers_per_stream:
        raise LimitExceeded("payload.target names too many readers", limit="readers_per_stream")


def _check_ownable(state: SpaceState, participant: str) -> None:
    rights = state.rights.get(participant)
    if rights is not None and len(rights.owns) >= state.limits.streams_per_participant:
        raise LimitExceeded(
            f"{participant!r} owns its {state.limits.streams_per_participant} streams",
            limit="streams_per_participant",
        )


def _stream_policy(state: SpaceState, payload: dict[str, Any]) -> StreamPolicy:
    """The space's policies, where the stream does not set its own."""
    defaults = state.policies

    def choice(key: str, choices: tuple[str, ...], default: str) -> str:
        value = payload.get(key)
        if value is None:
            return default
        if value not in choices:
            raise ValidationFailed(
                f"payload.{key} must be one of {', '.join(choices)}, got {describe(value)}", field=key
            )
        return str(value)

    grace = payload.get("owner_leave_grace")
    grace = defaults.owner_leave_grace if grace is None else grace
    if isinstance(grace, bool) or not isinstance(grace, int | float) or not 0 <= grace <= MAX_GRACE_SECONDS:
        raise ValidationFailed(
            f"payload.owner_leave_grace must be seconds from 0 to {MAX_GRACE_SECONDS}",
            field="owner_leave_grace",
        )
    return StreamPolicy(
        on_owner_leave=choice("on_owner_leave", get_args(OwnerLeave), defaults.on_owner_leave),
        owner_leave_grace=float(grace),
        on_slow=choice("on_slow", get_args(OnSlow), defaults.on_slow),
        validate=choice("validate", get_args(Validate), defaults.validate),
    )


# -- starting and ending --------------------------------------------------------------------------


def _start(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    start_ts = envelope.payload.get("start_ts")
    if start_ts is not None and (not isinstance(start_ts, str) or parse_rfc3339(start_ts) is None):
        raise ValidationFailed("payload.start_ts must be an RFC 3339 time", field="start_ts")
    stream = find_stream(ledger, envelope)
    check_transition(ledger.state, stream, envelope.kind, sender)
    name_stream(ledger.state.id, envelope, stream, nested=True)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    ledger.write(StreamStarted, accepted.seq, stream_id=stream.id, by=sender)


def _complete(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    optional_text(envelope.payload, "reason")
    stream = find_stream(ledger, envelope)
    _end(ledger, sender, envelope, stream, "completed", nested=True)


def _fail(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    for key in ("code", "message"):
        value = envelope.payload.get(key)
        if not isinstance(value, str) or not value:
            raise ValidationFailed(
                f"stream/error needs payload.{key}, a non-empty string, got {describe(value)}", field=key
            )
    optional_text(envelope.payload, "reason")
    stream = find_stream(ledger, envelope)
    _end(ledger, sender, envelope, stream, "failed", nested=True)


def _close(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state = ledger.state
    optional_text(envelope.payload, "reason")
    if stream_reference(envelope.payload, state.limits.id_bytes) is not None:
        stream = find_stream(ledger, envelope)
    else:
        stream = _stream_by_correlation(state, sender, envelope)
    _end(ledger, sender, envelope, stream, "closed", nested=False)


def _stream_by_correlation(state: SpaceState, sender: str, envelope: Envelope) -> Stream:
    """A close may name the request or the open message instead of the stream (decision 8). Ids of
    requests are their senders' choice: one's own stream is meant before another's."""
    correlated = set(envelope.correlation_id or ())
    if not correlated:
        raise ValidationFailed(
            "stream/close needs payload.stream_id, or a correlation_id to the request or the open",
            field="stream_id",
        )
    matching = [
        stream for stream in state.streams.values() if stream.request_id in correlated or stream.open_id in correlated
    ]
    if not matching:
        raise stream_not_found(min(correlated))
    return max(matching, key=lambda stream: (stream.open_id in correlated, stream.owner == sender))


def _end(ledger: Ledger, sender: str, envelope: Envelope, stream: Stream, how: str, *, nested: bool) -> None:
    payload = envelope.payload
    check_transition(ledger.state, stream, envelope.kind, sender)
    name_stream(ledger.state.id, envelope, stream, nested=nested)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    ledger.write(
        StreamEnded,
        accepted.seq,
        stream_id=stream.id,
        how=how,
        by=sender,
        code=payload.get("code") if how == "failed" else None,
        message=payload.get("message") if how == "failed" else None,
        reason=payload.get("reason"),
    )


# -- rights ---------------------------------------------------------------------------------------


def _grant_write(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    participant, reason = _who_and_why(state, payload, "participant_id")
    expires_at, max_frames, conditions = _conditions(payload.get("conditions"))
    stream = find_stream(ledger, envelope)
    check_transition(state, stream, envelope.kind, sender)
    if participant == stream.owner and conditions is not None:
        raise InvalidOperation("the right of an owner cannot be conditional", stream_id=stream.id)
    if expires_at is not None and expires_at <= ledger.now:
        raise InvalidOperation("conditions.expires_at has passed already", stream_id=stream.id)
    if participant not in stream.writers:
        _check_writers(state, stream)
    _require_present(state, participant)
    name_stream(state.id, envelope, stream, nested=False)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    writers = stream.authorized_writers()
    ledger.write(
        WriteGranted,
        accepted.seq,
        stream_id=stream.id,
        participant=participant,
        authorized_writers=writers if participant in stream.writers else [*writers, participant],
        by=sender,
        reason=reason,
        conditions=conditions,
        expires_at=expires_at,
        max_frames=max_frames,
        request_id=accepted.id,
    )


def _check_writers(state: SpaceState, stream: Stream) -> None:
    if len(stream.writers) >= state.limits.writers_per_stream:
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
    state, payload = ledger.state, envelope.payload
    participant, reason = _who_and_why(state, payload, "participant_id")
    stream = find_stream(ledger, envelope)
    check_transition(state, stream, envelope.kind, sender)
    if participant == stream.owner:
        raise InvalidOperation(
            f"{participant!r} owns {stream.id} and cannot lose the right to write: transfer ownership instead",
            stream_id=stream.id,
        )
    name_stream(state.id, envelope, stream, nested=False)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    # Revoking from somebody who is no writer succeeds: what was asked for holds.
    ledger.write(
        WriteRevoked,
        accepted.seq,
        stream_id=stream.id,
        participant=participant,
        authorized_writers=_without(stream, participant),
        by=sender,
        reason=reason,
        request_id=accepted.id,
    )


def _transfer(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    new_owner, reason = _who_and_why(state, payload, "new_owner")
    retain = payload.get("retain_write", False)
    if not isinstance(retain, bool):
        raise ValidationFailed("payload.retain_write must be true or false", field="retain_write")
    stream = find_stream(ledger, envelope)
    check_transition(state, stream, envelope.kind, sender)
    # Who is not here cannot write, so there is nothing to retain.
    retain = retain and state.is_present(stream.owner)
    if new_owner != stream.owner:
        _check_ownable(state, new_owner)
        if retain and new_owner not in stream.writers:
            _check_writers(state, stream)
    _require_present(state, new_owner)
    name_stream(state.id, envelope, stream, nested=False)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    _write_transfer(
        ledger,
        accepted.seq,
        stream,
        new_owner,
        by=sender,
        reason=reason,
        retain=retain,
        request_id=accepted.id,
    )


def _write_transfer(
    ledger: Ledger,
    cause: int | None,
    stream: Stream,
    new_owner: str,
    *,
    by: str,
    reason: str | None,
    retain: bool = False,
    request_id: str | None = None,
) -> None:
    loses = set() if retain else {stream.owner}
    others = [writer for writer in stream.authorized_writers() if writer != new_owner and writer not in loses]
    ledger.write(
        OwnershipTransferred,
        cause,
        stream_id=stream.id,
        previous_owner=stream.owner,
        new_owner=new_owner,
        authorized_writers=[new_owner, *others],
        by=by,
        reason=reason,
        request_id=request_id,
    )


def _grant_read(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    participant, reason = _who_and_why(state, payload, "participant_id")
    stream = find_stream(ledger, envelope)
    check_transition(state, stream, envelope.kind, sender)
    readers = None if stream.readers is None else list(dict.fromkeys([*stream.readers, participant]))
    if readers is not None and len(readers) > state.limits.readers_per_stream:
        raise LimitExceeded(
            f"{stream.id} has its {state.limits.readers_per_stream} readers",
            limit="readers_per_stream",
            stream_id=stream.id,
        )
    _require_present(state, participant)
    name_stream(state.id, envelope, stream, nested=False)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    # Without a set everyone reads already; a grant never takes reading away from the others.
    ledger.write(
        ReadGranted,
        accepted.seq,
        stream_id=stream.id,
        participant=participant,
        authorized_readers=readers,
        by=sender,
        reason=reason,
        request_id=accepted.id,
    )


def _revoke_read(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    participant, reason = _who_and_why(state, payload, "participant_id")
    stream = find_stream(ledger, envelope)
    check_transition(state, stream, envelope.kind, sender)
    # Where everyone reads, taking one out makes a set of the others who are here now.
    readers = list(state.participants) if stream.readers is None else list(stream.readers)
    name_stream(state.id, envelope, stream, nested=False)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    ledger.write(
        ReadRevoked,
        accepted.seq,
        stream_id=stream.id,
        participant=participant,
        authorized_readers=[reader for reader in readers if reader != participant],
        by=sender,
        reason=reason,
        request_id=accepted.id,
    )


def _who_and_why(state: SpaceState, payload: dict[str, Any], key: str) -> tuple[str, str | None]:
    return required_id(payload, key, max_bytes=state.limits.id_bytes), optional_text(payload, "reason")


def _require_present(state: SpaceState, participant: str) -> None:
    if not state.is_present(participant):
        raise ParticipantNotFound(f"{participant!r} is not in this space", participant_id=participant)


def _without(stream: Stream, participant: str) -> list[str]:
    return [writer for writer in stream.authorized_writers() if writer != participant]


# -- what the gateway does by itself --------------------------------------------------------------


def auto_grants_on_join(ledger: Ledger, participant: str) -> None:
    """Standing grants of streams that were opened before this participant came (decision 18)."""
    most = ledger.state.limits.writers_per_stream
    for stream in ledger.state.streams.values():
        if participant in stream.auto_grant and participant not in stream.writers and len(stream.writers) < most:
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
    """A writer that is gone loses its right, and everyone is told (decision 6)."""
    rights = ledger.state.rights.get(participant)
    for stream_id in rights.writes if rights is not None else ():
        stream = ledger.state.streams[stream_id]
        if stream.owner != participant:
            write_revoke(ledger, stream, participant, reason, cause)


def write_revoke(ledger: Ledger, stream: Stream, participant: str, reason: str, cause: int | None = None) -> None:
    """A revoke of the gateway's own: no request answers for it."""
    ledger.write(
        WriteRevoked,
        cause,
        stream_id=stream.id,
        participant=participant,
        authorized_writers=_without(stream, participant),
        by=kinds.GATEWAY,
        reason=reason,
    )


def stream_timer_due(ledger: Ledger, timer: Timer) -> None:
    what, stream_id, writer = timer
    stream = ledger.state.streams[stream_id]
    if what == "expire":
        write_revoke(ledger, stream, writer, "expired")
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
    elif stream.policy.on_owner_leave == "transfer" and (heir := _longest_standing_writer(ledger.state, stream)):
        _write_transfer(ledger, None, stream, heir, by=kinds.GATEWAY, reason="owner_left")
    else:
        ledger.write(StreamEnded, stream_id=stream_id, how="closed", by=kinds.GATEWAY, reason="owner_left")


def _longest_standing_writer(state: SpaceState, stream: Stream) -> str | None:
    connected = [writer for writer in stream.writers if writer != stream.owner and state.is_connected(writer)]
    return min(connected, key=lambda writer: stream.writers[writer].since, default=None)


STREAM_RULES: dict[str, Callable[[Ledger, str, Envelope], None]] = {
    kinds.STREAM_REQUEST: _request,
    kinds.STREAM_ANNOUNCE: _announce,
    kinds.STREAM_START: _start,
    kinds.STREAM_COMPLETE: _complete,
    kinds.STREAM_ERROR: _fail,
    kinds.STREAM_CLOSE: _close,
    kinds.GRANT_WRITE: _grant_write,
    kinds.REVOKE_WRITE: _revoke_write,
    kinds.TRANSFER_OWNERSHIP: _transfer,
    kinds.GRANT_READ: _grant_read,
    kinds.REVOKE_READ: _revoke_read,
}
