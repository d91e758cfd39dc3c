"""Which capability let a message through, or was missing: the entries of ``capability-decisions.jsonl``, which tools of
the reference gateway read.

Everything is told from the record of the message and the state that it was judged by: nothing here is asked while a
message is judged. Frames and ``stream/data`` are judged by the right to write alone, and are not in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from mewstream.protocol import kinds
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import (
    AlreadyExists,
    CapabilityViolation,
    ParticipantNotFound,
    TargetNotFound,
    Unauthorized,
)
from mewstream.protocol.records import EnvelopeAccepted, Refused
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import rfc3339
from mewstream.protocol.transitions import WHO, Who

#: What one entry repeats of lists whose length others choose; the rest is left out.
GRANTED_BYTES = 4096
MATCHED_BYTES = 4096
CORRELATED = 16
KIND_CHARACTERS = 256

#: A message of this kind needs a capability of another name.
_REQUIRED = {kinds.STREAM_ANNOUNCE: kinds.STREAM_MANAGE}
#: Refusals that come after the check, which was then passed (DESIGN, the order of checks).
_AFTER_THE_CHECK = frozenset({ParticipantNotFound.code, TargetNotFound.code, AlreadyExists.code})
_SOURCES = {"http": "http_api"}

Source = Literal["static", "dynamic", "implicit"]


class Check(NamedTuple):
    """One question, and its answer. ``matched`` is the pattern that allowed it, where that is known."""

    required: str
    is_allowed: bool
    matched: dict[str, Any] | None = None
    source: Source | None = None
    """``static``: by configuration or invitation; ``dynamic``: granted; ``implicit``: no capability is needed."""


class _Judged(msgspec.Struct):
    """What a check looks at, and what its entry repeats."""

    payload: Any = None
    correlation_id: list[str] = []


def decision_entries(state: SpaceState, record: EnvelopeAccepted | Refused, transport: str) -> Iterator[dict[str, Any]]:
    """The entries for one message, in the order of the checks. ``state`` is the one that it was judged by."""
    envelope = _Judged()
    if isinstance(record, EnvelopeAccepted):
        envelope = msgspec.json.decode(record.data, type=_Judged)
        checks = [_accepted(state, record, envelope.payload)]
    else:
        checks = _refused(state, record)
    if not checks:
        return
    granted = list(_within(state.capability_list(record.sender), GRANTED_BYTES))
    metadata: dict[str, Any] = {"source": _SOURCES.get(transport, transport), "transport": transport}
    if envelope.correlation_id:
        metadata["correlation_id"] = envelope.correlation_id[:CORRELATED]
    for check in checks:
        entry = {
            "timestamp": rfc3339(record.ts),
            "event": "capability_check",
            "envelope_id": record.id,
            "participant": record.sender,
            "space_id": state.id,
            "result": "allowed" if check.is_allowed else "denied",
            "required_capability": check.required[:KIND_CHARACTERS],
            "matched_capability": check.matched,
            "matched_source": check.source,
            "granted_capabilities": granted,
            "metadata": metadata,
        }
        yield {key: value for key, value in entry.items() if value is not None}


def _accepted(state: SpaceState, record: EnvelopeAccepted, payload: Any) -> Check:
    if record.stream_id is not None:
        return _by_right(state, record.sender, record.kind, record.stream_id, payload)
    return _by_capability(state, record.sender, record.kind, payload)


def _refused(state: SpaceState, record: Refused) -> list[Check]:
    kind = record.kind
    if kind in ("", "frame", kinds.STREAM_DATA):
        return []  # without a kind: it could not be read, or it is a sum of several
    if record.code == CapabilityViolation.code:
        attempted = str(record.details.get("attempted_kind", kind))
        missing = Check(str(record.details.get("required", attempted)), False)
        # Where another kind was attempted, the message itself was allowed, and gave away what its sender does not hold.
        return [missing] if attempted == kind else [_passed(state, record), missing]
    if record.code == Unauthorized.code and record.stream_id is not None:
        may_manage = WHO.get(kind) is Who.OWNER_OR_MANAGER
        return [Check(kinds.SPACE_MANAGE_STREAMS if may_manage else kind, False)]
    if record.code == Unauthorized.code and kind == kinds.MCP_WITHDRAW and "expected_from" not in record.details:
        return [_passed(state, record)]  # it may withdraw proposals, and not those of others
    if record.code in _AFTER_THE_CHECK:
        return [_passed(state, record)]
    return []


def _passed(state: SpaceState, record: Refused) -> Check:
    """The check of a message that was refused for another reason. Its payload is not kept."""
    kind = record.kind
    if record.stream_id is not None:
        return _by_right(state, record.sender, kind, record.stream_id, None)
    required = _REQUIRED.get(kind, kind)
    if kind in WHO and kind not in (kinds.STREAM_REQUEST, kinds.STREAM_ANNOUNCE):
        return Check(required, True)  # by a right on a stream, and nobody knows which
    if state.capabilities(record.sender).judges_payload(required):
        return Check(required, True)
    return _by_capability(state, record.sender, kind, None)


def _by_right(state: SpaceState, sender: str, kind: str, stream_id: str, payload: Any) -> Check:
    """The owner needs no capability; whoever manages the streams of others does."""
    stream = state.streams.get(stream_id)
    if stream is not None and stream.owner != sender:
        judged = {**(payload or {}), "stream_id": stream_id}
        found = _matching(state, sender, kinds.SPACE_MANAGE_STREAMS, judged)
        if found is not None:
            return found
    return Check(kind, True, {"kind": kind, "payload": {"stream_id": stream_id}}, "implicit")


def _by_capability(state: SpaceState, sender: str, kind: str, payload: Any) -> Check:
    found = None
    if kind not in kinds.ALWAYS_ALLOWED:
        found = _matching(state, sender, _REQUIRED.get(kind, kind), payload)
    return found or Check(kind, True, {"kind": kind}, "implicit")


def _matching(state: SpaceState, sender: str, required: str, payload: Any) -> Check | None:
    place = state.capabilities(sender).permitting(required, payload)
    if place is None:
        return None
    pattern = state.capability_list(sender)[place]
    matched = pattern if len(encode_json(pattern)) <= MATCHED_BYTES else None
    source: Source = "static" if place < len(state.roster.get(sender, ())) else "dynamic"
    return Check(required, True, matched, source)


def _within(patterns: list[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    for pattern in patterns:
        most -= len(encode_json(pattern))
        if most < 0:
            return
        yield pattern
