"""Opening, starting and ending streams. Which event is valid when is in :mod:`transitions`; who may
write and read is in :mod:`right_rules`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from mewstream.protocol import kinds
from mewstream.protocol import transitions as table
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import (
    BY_CODE,
    CapabilityViolation,
    InvalidOperation,
    LimitExceeded,
    StreamNotFound,
    TargetNotFound,
    ValidationFailed,
)
from mewstream.protocol.formats import check_descriptors, parse_formats
from mewstream.protocol.identifiers import byte_length, describe, id_list, optional_text, stream_names
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.name_rules import name_is_taken, reuse, wished_name
from mewstream.protocol.policy import Limits, OnSlow, OwnerLeave, Validate
from mewstream.protocol.records import (
    StreamEnded,
    StreamOpened,
    StreamPolicy,
    StreamStarted,
    WriteGranted,
)
from mewstream.protocol.state import SpaceState, Stream
from mewstream.protocol.times import SECOND, parse_rfc3339
from mewstream.protocol.transitions import Status, Who

MAX_GRACE_SECONDS = 7 * 86_400
MAX_NAMED_TARGETS = 16


# -- finding a stream and checking a right --------------------------------------------------------


def stream_reference(payload: dict[str, Any], max_bytes: int) -> str | None:
    """The stream that a payload names: ``stream_id``, or ``stream.stream_id`` as announced streams
    do. None if it names none. Raises :class:`ValidationFailed` if it names two different ones."""
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


def find_stream(state: SpaceState, kind: str, payload: dict[str, Any]) -> Stream:
    """The stream that a payload names. Raises the refusal for an envelope of this kind that names none."""
    reference = stream_reference(payload, state.limits.id_bytes)
    if reference is None:
        raise ValidationFailed(f"{kind} needs payload.stream_id (or payload.stream.stream_id)", field="stream_id")
    stream = state.find_stream(reference)
    if stream is None:
        raise stream_not_found(reference)
    namespace = stream_names(state.id, stream.id)["namespace"]
    if (payload.get("stream") or {}).get("namespace") not in (None, namespace):
        raise ValidationFailed(
            f"payload.stream.namespace is wrong: expected {namespace!r}",
            field="stream.namespace",
            stream_id=stream.id,
        )
    return stream


def stream_not_found(reference: str) -> StreamNotFound:
    return StreamNotFound(f"there is no active stream {reference[:128]!r} in this space", stream_id=reference[:128])


def permitted_stream(ledger: Ledger, sender: str, envelope: Envelope) -> Stream:
    """The stream that an envelope is about, if its sender may cause this event now."""
    stream = find_stream(ledger.state, envelope.kind, envelope.payload)
    check_transition(ledger.state, stream, envelope.kind, sender, envelope.payload)
    return stream


def check_transition(
    state: SpaceState, stream: Stream, event: str, sender: str, payload: dict[str, Any] | None = None
) -> None:
    """Check the sender's right, then whether the event is valid now. Raises what the table says.

    A right on the stream stands above all capabilities (decision 2)."""
    who = table.WHO[event]
    if not _may(state, stream, event, sender, who, payload or {}):
        what = f"write to {stream.id}" if who is Who.WRITER else f"send {event} for {stream.id}"
        raise BY_CODE[table.REFUSAL[event]](f"you may not {what}: that takes {who}", stream_id=stream.id)
    if (event, stream.status) not in table.BY_EVENT_AND_STATE:
        allowed = " or ".join(table.states_allowing(event))
        raise InvalidOperation(
            f"{event} is not valid while {stream.id} is {stream.status}, only while it is {allowed}",
            stream_id=stream.id,
            status=str(stream.status),
        )


def _may(state: SpaceState, stream: Stream, event: str, sender: str, who: Who, payload: dict[str, Any]) -> bool:
    match who:
        case Who.ANYONE:
            return True
        case Who.WRITER:
            return sender in stream.writers
        case Who.OWNER_OR_MANAGER:
            return sender == stream.owner or manages(state, stream, event, sender, payload)
        case Who.GRANTER:
            return (
                sender == stream.owner
                or manages(state, stream, event, sender, payload)
                or _delegates(state, stream, event, sender, payload)
            )
    return sender == stream.owner


def _delegates(state: SpaceState, stream: Stream, event: str, sender: str, payload: dict[str, Any]) -> bool:
    """Whether the sender's right may be passed on, and no denial of the kind forbids it."""
    right = stream.writers.get(sender)
    judged = {**payload, "stream_id": stream.id}
    return right is not None and right.delegate is not None and not state.capabilities(sender).denies(event, judged)


def manages(state: SpaceState, stream: Stream, event: str, sender: str, payload: dict[str, Any]) -> bool:
    """Whether a capability lets the sender manage this stream of another, and no denial of the kind forbids it."""
    held = state.capabilities(sender)
    # By its id, however the message names it: what is denied for one stream is denied under its alias too.
    judged = {**payload, "stream_id": stream.id}
    return held.allows(kinds.SPACE_MANAGE_STREAMS, judged) and not held.denies(event, judged)


def require_capability(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    capabilities = ledger.state.capabilities(sender)
    kind = envelope.kind
    # Asking for the decoded payload makes the relayed one the very one that was judged.
    payload = envelope.payload if capabilities.judges_payload(kind) else None
    if kind not in kinds.ALWAYS_ALLOWED and not capabilities.allows(kind, payload):
        raise capability_violation(ledger.state, sender, kind)


def capability_violation(
    state: SpaceState, sender: str, kind: str, *, required: str | None = None
) -> CapabilityViolation:
    """``required`` is the capability that this kind takes, if it has another name."""
    details: dict[str, Any] = {"attempted_kind": kind, **state.repeated_capabilities(sender)}
    what = kind
    if required not in (None, kind):
        details["required"] = required
        what = f"{required}, which {kind} takes"
    return CapabilityViolation(
        f"your capabilities do not allow {what}: it can be granted by capability/grant, or given in space.yaml",
        **details,
    )


def name_stream(space: str, envelope: Envelope, stream: Stream, *, nested: bool) -> None:
    """Fill in what a sender may leave out, so that everyone is told the same canonical names."""
    payload = envelope.payload
    if nested or stream.announced or isinstance(payload.get("stream"), dict):
        names = stream_names(space, stream.id)
        payload["stream"] = {**(payload.get("stream") or {}), **names}
        if envelope.context is None:
            envelope.context = names["namespace"]
    if not nested or "stream_id" in payload:
        payload["stream_id"] = stream.id


# -- opening --------------------------------------------------------------------------------------


def _check_size(limits: Limits, envelope: Envelope) -> None:
    raw = envelope.payload_raw
    if len(raw) > limits.stream_metadata_bytes:
        raise LimitExceeded(
            f"the payload of {envelope.kind} is larger than {limits.stream_metadata_bytes} bytes",
            limit="stream_metadata_bytes",
        )
    most = limits.stream_metadata_values
    # Commas and brackets are an upper bound of the values, which can be had without decoding them.
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > most and _values_in(envelope.payload) > most:
        raise LimitExceeded(
            f"the payload of {envelope.kind} holds more than {most} values", limit="stream_metadata_values"
        )


def _values_in(payload: dict[str, Any]) -> int:
    count, pending = 0, [*payload.values()]
    while pending:
        count += len(pending)
        pending = [
            item
            for value in pending
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
    return count


def _open(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, limits = ledger.state, ledger.state.limits
    _check_size(limits, envelope)
    payload = envelope.payload
    required = envelope.kind
    if envelope.kind == kinds.STREAM_ANNOUNCE:
        required = kinds.STREAM_MANAGE
        optional_text(payload, "intent")
        scope = id_list(payload, "scope", max_bytes=limits.id_bytes)
        if scope and envelope.to is None:
            envelope.to = scope  # those who should be notified directly; everyone else gets it too
    status = table.BY_EVENT_AND_STATE[envelope.kind, Status.NONE].target
    direction = payload.get("direction")
    if direction not in (None, "upload", "download"):
        raise ValidationFailed(
            f"payload.direction must be upload or download, got {describe(direction)}", field="direction"
        )
    policy = _stream_policy(state, sender, payload)
    wish = wished_name(state, sender, payload)
    target = id_list(payload, "target", max_bytes=limits.id_bytes)
    auto_grant = id_list(payload, "auto_grant", max_bytes=limits.id_bytes) or []
    check_descriptors(payload.get("formats"), limits=limits)
    held = state.capabilities(sender)
    if held.denies(envelope.kind, payload):
        raise capability_violation(state, sender, envelope.kind)
    if not held.allows(required, payload):
        raise capability_violation(state, sender, envelope.kind, required=required)
    taken = state.find_stream(wish.alias) if wish.alias is not None else None
    if taken is not None and wish.if_exists == "reuse":
        reuse(ledger, sender, envelope, taken)
        return
    replaced = None
    if taken is not None and wish.if_exists == "replace":
        check_transition(state, taken, kinds.STREAM_CLOSE, sender, payload)
        replaced = taken
    elif taken is not None and wish.if_exists == "error":
        raise name_is_taken(taken)
    _check_opening_limits(state, sender, target, auto_grant, replaced)
    unknown = [each for each in target or () if each not in state.roster and not state.is_present(each)]
    if unknown:
        raise _target_not_found(unknown)
    # This takes longest, because schemas are analysed and compiled, so it comes last.
    formats = parse_formats(payload.get("formats"), limits=limits)

    is_free = taken is None or replaced is not None
    members = [each for each in auto_grant if each != sender and state.is_present(each)]
    timeout = state.policies.start_timeout if status is Status.READY else 0
    accepted = ledger.accept(sender, envelope)
    if replaced is not None:
        ledger.write(
            StreamEnded, accepted.seq, stream_id=replaced.id, how="closed", by=kinds.GATEWAY, reason="replaced"
        )
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
        alias=wish.alias if is_free else None,
        alias_taken_by=taken.id if taken is not None and not is_free and wish.is_answered else None,
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


def _target_not_found(unknown: list[str]) -> TargetNotFound:
    """Thousands may be unknown: a refusal names the first ones."""
    named = unknown[:MAX_NAMED_TARGETS]
    more = f" and {len(unknown) - len(named)} more" if len(unknown) > len(named) else ""
    return TargetNotFound(f"nobody is known here as {', '.join(named)}{more}", targets=named)


def _check_opening_limits(
    state: SpaceState, sender: str, target: list[str] | None, auto_grant: list[str], replaced: Stream | None
) -> None:
    """``replaced`` is a stream that ends as the new one opens."""
    limits = state.limits
    if replaced is None and len(state.streams) >= limits.streams_per_space:
        raise LimitExceeded(f"this space has its {limits.streams_per_space} streams", limit="streams_per_space")
    if replaced is None or replaced.owner != sender:
        check_ownable(state, sender)
    if len(auto_grant) > limits.auto_grants_per_stream:
        raise LimitExceeded(
            f"payload.auto_grant names more than {limits.auto_grants_per_stream} writers: grant the others one by one",
            limit="auto_grants_per_stream",
        )
    if len(auto_grant) >= limits.writers_per_stream:
        raise LimitExceeded("payload.auto_grant names too many writers", limit="writers_per_stream")
    if target is not None and len(target) > limits.readers_per_stream:
        raise LimitExceeded("payload.target names too many readers", limit="readers_per_stream")


def check_ownable(state: SpaceState, participant: str) -> None:
    rights = state.rights.get(participant)
    if rights is not None and len(rights.owns) >= state.limits.streams_per_participant:
        raise LimitExceeded(
            f"{participant!r} owns its {state.limits.streams_per_participant} streams",
            limit="streams_per_participant",
        )


def _stream_policy(state: SpaceState, sender: str, payload: dict[str, Any]) -> StreamPolicy:
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

    def seconds(key: str, default: float, *, is_new: bool = False) -> float:
        value = payload.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_GRACE_SECONDS:
            if is_new and not state.knows_extensions(sender):
                return default
            raise ValidationFailed(f"payload.{key} must be seconds from 0 to {MAX_GRACE_SECONDS}", field=key)
        return float(value)

    return StreamPolicy(
        on_owner_leave=choice("on_owner_leave", get_args(OwnerLeave), defaults.on_owner_leave),
        owner_leave_grace=seconds("owner_leave_grace", defaults.owner_leave_grace),
        on_slow=choice("on_slow", get_args(OnSlow), defaults.on_slow),
        validate=choice("validate", get_args(Validate), defaults.validate),
        idle_timeout=seconds("idle_timeout", defaults.idle_timeout, is_new=True),
    )


# -- starting and ending --------------------------------------------------------------------------


def _start(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    start_ts = envelope.payload.get("start_ts")
    if start_ts is not None and (not isinstance(start_ts, str) or parse_rfc3339(start_ts) is None):
        raise ValidationFailed("payload.start_ts must be an RFC 3339 time", field="start_ts")
    stream = permitted_stream(ledger, sender, envelope)
    name_stream(ledger.state.id, envelope, stream, nested=True)
    accepted = ledger.accept(sender, envelope, stream_id=stream.id)
    ledger.write(StreamStarted, accepted.seq, stream_id=stream.id, by=sender)


def _complete(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    optional_text(envelope.payload, "reason")
    _end(ledger, sender, envelope, permitted_stream(ledger, sender, envelope), "completed")


def _fail(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    for key in ("code", "message"):
        value = envelope.payload.get(key)
        if not isinstance(value, str) or not value:
            raise ValidationFailed(
                f"stream/error needs payload.{key}, a non-empty string, got {describe(value)}", field=key
            )
    optional_text(envelope.payload, "reason")
    _end(ledger, sender, envelope, permitted_stream(ledger, sender, envelope), "failed")


def _close(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state = ledger.state
    optional_text(envelope.payload, "reason")
    if stream_reference(envelope.payload, state.limits.id_bytes) is not None:
        stream = permitted_stream(ledger, sender, envelope)
    else:
        stream = _stream_by_correlation(state, sender, envelope)
        check_transition(state, stream, envelope.kind, sender, envelope.payload)
    _end(ledger, sender, envelope, stream, "closed")


def _stream_by_correlation(state: SpaceState, sender: str, envelope: Envelope) -> Stream:
    """A close may name the request or the open message instead of the stream (decision 8). Ids of
    requests are their senders' choice: one's own stream is meant before another's."""
    correlated = set(envelope.correlation_id or ())
    if not correlated:
        raise ValidationFailed(
            "stream/close needs payload.stream_id, or a correlation_id to the request or the open",
            field="stream_id",
        )
    matching = [state.streams[id] for each in correlated for id in state.opened_by.get(each, ())]
    if not matching:
        raise stream_not_found(min(correlated))
    return max(matching, key=lambda stream: (stream.open_id in correlated, stream.owner == sender))


def _end(ledger: Ledger, sender: str, envelope: Envelope, stream: Stream, how: str) -> None:
    payload = envelope.payload
    name_stream(ledger.state.id, envelope, stream, nested=how != "closed")
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


STREAM_RULES: dict[str, Callable[[Ledger, str, Envelope], None]] = {
    kinds.STREAM_REQUEST: _open,
    kinds.STREAM_ANNOUNCE: _open,
    kinds.STREAM_START: _start,
    kinds.STREAM_COMPLETE: _complete,
    kinds.STREAM_ERROR: _fail,
    kinds.STREAM_CLOSE: _close,
}
