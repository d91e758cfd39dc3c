"""Which refusals are right: those whose code follows from the state."""

from __future__ import annotations

from typing import Any

import msgspec

from mewstream.audit.asked import judge
from mewstream.audit.case import Case
from mewstream.audit.happened import Event
from mewstream.audit.records import Expected, Refusal, Unjudged, need, rule
from mewstream.audit.state import SECOND, Stream
from mewstream.protocol import kinds

_SUM = "it is a sum, or about more than the state"
_SUMMED_WITHIN = 10 * SECOND
"""A refused frame may be recorded that much later, when the rights have changed."""
_OUTSIDE = ("invalid_request", "journal_unavailable")
#: Fields of a payload whose shape is judged completely.
_FIELDS = (
    *(
        "text",
        "method",
        "reason",
        "direction",
        "intent",
        "target",
        "auto_grant",
        "scope",
        "start_ts",
        "code",
        "message",
    ),
    *("on_owner_leave", "owner_leave_grace", "on_slow", "validate", "participant_id", "new_owner", "retain_write"),
    *("conditions", "recipient", "grant_id", "timeout_seconds", "ban", "expires_in"),
)
_MAY_BE_ABOUT_MORE = (kinds.CAPABILITY_GRANT, kinds.CAPABILITY_REVOKE, kinds.INVITE)
_COUNTED = {
    "participants_per_space": lambda ledger, sender, stream: len(ledger.space.people),
    "streams_per_space": lambda ledger, sender, stream: len(ledger.space.streams),
    "streams_per_participant": lambda ledger, sender, stream: len(ledger.owns.get(sender, ())),
    "writers_per_stream": lambda ledger, sender, stream: len(stream.writers),
    "readers_per_stream": lambda ledger, sender, stream: len(stream.readers or ()),
    "invitations": lambda ledger, sender, stream: len(ledger.space.invited),
    "capability_grants": lambda ledger, sender, stream: sum(map(len, ledger.space.grants.values())),
}


@rule("Error codes")
def refusal(event: Event) -> list[Expected]:
    """A message refused though nothing forbids it, or with another code than follows from the state."""
    fields, (code, kind, details) = event.fields, (event.fields[key] for key in ("code", "kind", "details"))
    is_sum = not fields.get("remember", True) and kind != kinds.JOIN
    if fields.get("count", 1) != 1 or code in _OUTSIDE or (is_sum and kind != "frame"):
        raise Unjudged(_SUM)
    is_reserved = kind in kinds.RESERVED or (kind.startswith("system/") and kind != kinds.JOIN)
    need((code == "reserved_kind") == is_reserved or "expected_from" in details, "", f"{code} for {kind}")
    if "banned_until" in details:
        need(fields["sender"] in event.ledger.space.banned, "", "refused as banned, and it is not")
        return []
    if code == "reserved_kind" or "expected_from" in details:
        return []
    if kind in (kinds.STREAM_SUBSCRIBE, kinds.STREAM_UNSUBSCRIBE):
        raise Unjudged("what participants are interested in is not judged")
    if kind in ("frame", kinds.STREAM_DATA):
        try:
            return _frame(event, code)
        except Refusal:
            if is_sum and event.record.ts < event.ledger.space.changed + _SUMMED_WITHIN:
                raise Unjudged(_SUM) from None
            raise
    try:
        payload = msgspec.json.decode(fields.get("excerpt", ""))
    except (msgspec.MsgspecError, UnicodeError):
        return _by_code(event, code, kind, details)
    if not isinstance(payload, dict):
        return _by_code(event, code, kind, details)
    record = event.record
    case = Case(event.ledger, record.ts, record.seq, fields["sender"], kind, fields.get("id"), payload)
    try:
        judge(case)
    except Unjudged:
        return _by_code(event, code, kind, details)
    except Refusal as right:
        need(right.code == code, "", f"refused with {code}, and {right.code} follows from the state: {right}")
        return []
    is_shape = code == "validation_error" and details.get("field") not in _FIELDS
    is_shape = is_shape or code == "limit_exceeded"
    need(event.ledger.space.has(is_shape), "", f"refused with {code}, though nothing forbids it")
    return _by_code(event, code, kind, details)


def _frame(event: Event, code: str) -> list[Expected]:
    space, sender = event.ledger.space, event.fields["sender"]
    stream = event.ledger.find(str(event.fields.get("stream_id")))
    until = space.paused.get(sender, (0, None))[0]
    barred = sender in space.shut_down or until is None or event.record.ts < until
    if code == "validation_error" or (stream is not None and sender in stream.disputed):
        raise Unjudged("the shape of a frame is not recorded")
    if not space.has(stream is not None) or stream is None:
        right = "stream_not_found"
    elif sender not in stream.writers:
        right = "unauthorized_stream_write"
    else:
        right = "invalid_operation" if stream.status != "live" or barred else ""
    if not right and stream is not None:
        _content(event, stream, code)
    need(right == code, "", f"refused with {code}, and {right or 'nothing'} follows from the state")
    return []


def _content(event: Event, stream: Stream, code: str) -> None:
    details = event.fields["details"]
    claims = {
        "format_required": len(stream.formats) > 1,
        "format_violation": bool(stream.formats) and (stream.enforced or details.get("formats") == stream.formats),
        "sequence_regression": event.fields["kind"] == kinds.STREAM_DATA and "last_sequence" in details,
    }
    need(claims.get(code, False), "", f"refused with {code}, which does not follow from the state")
    raise Unjudged("it depends on the content")


def _by_code(event: Event, code: str, kind: str, details: dict[str, Any]) -> list[Expected]:
    """What the code claims, where the payload is not known."""
    ledger, space, sender = event.ledger, event.ledger.space, event.fields["sender"]
    stream = ledger.find(str(details.get("stream_id", event.fields.get("stream_id"))))
    case = Case(ledger, event.record.ts, event.record.seq, sender, kind, None, {})
    match code:
        case "stream_not_found":
            claim = stream is None
        case "unauthorized" if stream is not None and sender == stream.owner:
            claim = False
        case "unauthorized" if stream is not None and kind in (kinds.STREAM_CLOSE, *kinds_of_rights):
            claim = not case.held().allows(kinds.SPACE_MANAGE_STREAMS, None) or case.held().denies(kind, None)
        case "participant_not_found" if "participant_id" in details:
            claim = not space.is_present(details["participant_id"])
        case "target_not_found":
            claim = not any(each in space.roster or each in space.people for each in details.get("targets", ()))
        case "already_exists" if stream is not None and "owner" in details:
            claim = stream.owner == details["owner"]
        case "already_exists" if "participant_id" in details:
            claim = details["participant_id"] in space.roster
        case "capability_violation":
            required = kinds.STREAM_MANAGE if kind == kinds.STREAM_ANNOUNCE else details.get("required", kind)
            claim = not case.held().allows(required, None) or case.held().denies(kind, None)
            if not claim and kind in _MAY_BE_ABOUT_MORE:
                raise Unjudged("the payload of a refused envelope is not known")
        case "invalid_operation" if kind == kinds.STREAM_START and stream is not None:
            claim = stream.status != "ready"
        case "limit_exceeded" if details.get("limit") in _COUNTED and (stream or "stream" not in details["limit"][-6:]):
            claim = _COUNTED[details["limit"]](ledger, sender, stream) >= space.setting("limits", details["limit"])
        case _:
            raise Unjudged("the payload of a refused envelope is not known")
    need(space.has(claim), "", f"refused with {code}, which does not follow from the state")
    return []


kinds_of_rights = (kinds.GRANT_WRITE, kinds.REVOKE_WRITE, kinds.TRANSFER_OWNERSHIP, kinds.GRANT_READ, kinds.REVOKE_READ)
