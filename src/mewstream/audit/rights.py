"""What follows from envelopes about rights on streams: who writes, reads and owns."""

from __future__ import annotations

from mewstream.audit.case import DELEGATION, Case
from mewstream.audit.records import Expected, Unjudged, need, rule
from mewstream.audit.state import BEGINS_LATER, Stream
from mewstream.protocol import kinds
from mewstream.protocol.times import parse_rfc3339, rfc3339


@rule("Conditional grants", kinds.GRANT_WRITE)
def grant_write(case: Case) -> list[Expected]:
    """A right to write given by somebody who may not, to another one or under other conditions than were asked for,
    beyond a limit, or with a wrong list of writers."""
    participant, _ = case.name("participant_id"), case.text("reason")
    if case.payload.get("delegate") is not None:
        raise Unjudged(DELEGATION)
    conditions = case.payload.get("conditions") or {}
    is_known = isinstance(conditions, dict) and not set(conditions) - {"expires_at", "max_frames"}
    need(is_known, "validation_error", "there is a condition that nobody knows")
    at, most = conditions.get("expires_at"), conditions.get("max_frames")
    expires_at = parse_rfc3339(at) if isinstance(at, str) else None
    need((at is None) == (expires_at is None), "validation_error", "expires_at is no time")
    is_count = isinstance(most, int) and not isinstance(most, bool) and 1 <= most < 1 << 53
    need(most is None or is_count, "validation_error", "max_frames is no count")
    shown = {"expires_at": at and rfc3339(expires_at or 0), "max_frames": most}
    shown = {key: value for key, value in shown.items() if value is not None}
    stream = case.managed(case.stream())
    need(not shown or participant != stream.owner, "invalid_operation", "an owner's right has no conditions")
    need(expires_at is None or expires_at > case.ts, "invalid_operation", "it has expired already")
    replaced = _replaced(case, stream, participant)
    writers = [each for each in stream.listed() if each != replaced]
    is_new = participant not in writers
    case.room(len(writers) + is_new, "writers_per_stream")
    case.present(participant)
    told = {"expires_at": expires_at, "max_frames": most, "conditions": shown or None, "participant": participant}
    taken = {"participant": replaced, "replaced_by": participant, "authorized_writers": writers}
    granted = {"replaces": replaced, "authorized_writers": [*writers, *[participant] * is_new], **told}
    return [
        *(case.changes("write-revoked", stream, **taken) if replaced else ()),
        *case.changes("write-granted", stream, **granted),
    ]


def _replaced(case: Case, stream: Stream, participant: str) -> str | None:
    """The writer that loses the right at once. To a client of v0.4 alone the field may be its own."""
    replaced = case.payload.get("replaces")
    if replaced is None or (not isinstance(replaced, str) and case.sender not in case.space.extended):
        return None
    replaced = case.name("replaces")
    possible = replaced in stream.writers and replaced not in (stream.owner, participant)
    need(possible, "invalid_operation", f"{replaced} cannot be replaced")
    return replaced


@rule("Asking for the right to write", kinds.REQUEST_WRITE)
def request_write(case: Case) -> list[Expected]:
    """A request for the right to write of somebody who may write already, is absent, or may not ask; or an answer that
    was not asked for."""
    reason, stream = case.text("reason"), case.stream()
    need(len(reason.encode("utf-8", "surrogatepass")) <= 1024, "validation_error", "the reason is too long")
    denied = case.held().denies(case.kind, {**case.payload, "stream_id": stream.id})
    need(not denied, "capability_violation", "a denial forbids it")
    need(case.sender not in stream.writers, "invalid_operation", f"{case.sender} may write already")
    case.room(len(stream.requests | {case.sender: None}), "write_requests_per_stream")
    case.present(case.sender)
    asked = {"stream_id": stream.id, "participant": case.sender, "reason": case.payload.get("reason")}
    return [Expected("write-requested", asked)]


@rule("Asking for the right to write", kinds.DENY_WRITE)
def deny_write(case: Case) -> list[Expected]:
    """A request for the right to write denied by somebody who may not, or that nobody had made."""
    participant, _, stream = case.name("participant_id"), case.text("reason"), case.managed(case.stream())
    need(participant in stream.requests, "invalid_operation", f"{participant} does not ask for it")
    return case.changes("write-denied", stream, participant=participant)


@rule("Rights", kinds.REVOKE_WRITE)
def revoke_write(case: Case) -> list[Expected]:
    """A right to write revoked by somebody who may not, from another one than was named, or from the owner."""
    participant, _ = case.name("participant_id"), case.text("reason")
    stream = case.managed(case.stream())
    need(participant != stream.owner, "invalid_operation", "an owner keeps the right to write")
    writers = [each for each in stream.listed() if each != participant]
    return case.changes("write-revoked", stream, participant=participant, authorized_writers=writers)


@rule("Rights", kinds.TRANSFER_OWNERSHIP)
def transfer(case: Case) -> list[Expected]:
    """A stream handed over by somebody who may not, or to another one than was named; an owner of before who keeps the
    right to write, though that was not asked for; a wrong list of writers."""
    heir, _, retain = case.name("new_owner"), case.text("reason"), case.payload.get("retain_write", False)
    need(isinstance(retain, bool), "validation_error", "retain_write is neither true nor false")
    stream = case.managed(case.stream())
    retain = retain and case.space.is_present(stream.owner)
    if heir != stream.owner:
        case.room(len(case.ledger.owns.get(heir, ())) + 1, "streams_per_participant")
        case.room(len(stream.writers) + (retain and heir not in stream.writers), "writers_per_stream")
    case.present(heir)
    handed = {"previous_owner": stream.owner, "new_owner": heir}
    writers = after_transfer(stream, heir, retain=retain)
    return case.changes("ownership-transferred", stream, authorized_writers=writers, **handed)


def after_transfer(stream: Stream, heir: str, *, retain: bool) -> list[str]:
    return [heir, *(each for each in stream.listed() if each != heir and (retain or each != stream.owner))]


@rule("Reader sets", kinds.GRANT_READ)
def grant_read(case: Case) -> list[Expected]:
    """A reader added by somebody who may not, or others than the one named."""
    participant, _, stream = case.name("participant_id"), case.text("reason"), case.managed(case.stream())
    readers = None if stream.readers is None else list(stream.readers | {participant: None})
    case.room(len(readers or ()), "readers_per_stream")
    case.present(participant)
    return case.changes("read-granted", stream, participant=participant, authorized_readers=readers)


@rule("Reader sets", kinds.REVOKE_READ)
def revoke_read(case: Case) -> list[Expected]:
    """A reader removed by somebody who may not, or others than the one named."""
    participant, _, stream = case.name("participant_id"), case.text("reason"), case.managed(case.stream())
    if stream.readers is None and not case.space.whole:
        raise Unjudged(BEGINS_LATER)
    before = case.space.people if stream.readers is None else stream.readers
    readers = [each for each in before if each != participant]
    return case.changes("read-revoked", stream, participant=participant, authorized_readers=readers)
