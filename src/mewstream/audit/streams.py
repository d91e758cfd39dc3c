"""What follows from envelopes that open, start and end streams."""

from __future__ import annotations

import re
from typing import Any

from mewstream.audit.case import ROOM, WEEK, Case, is_name
from mewstream.audit.records import Expected, Refusal, need, rule
from mewstream.audit.state import SECOND, Stream
from mewstream.protocol import kinds
from mewstream.protocol.times import parse_rfc3339

_ASSIGNED = re.compile(r"stream-\d+\Z")


@rule("Streams", kinds.STREAM_REQUEST, kinds.STREAM_ANNOUNCE)
def open_stream(case: Case) -> list[Expected]:
    """A stream opened without the capability or beyond a limit, or with writers, readers, a name, policies, formats
    or a time limit that nobody asked for."""
    space, payload, ledger, by = case.space, case.payload, case.ledger, case.sender
    announced = case.kind == kinds.STREAM_ANNOUNCE
    case.room(case.size() - ROOM, "stream_metadata_bytes")
    if announced:
        case.text("intent")
        case.names("scope")
    need(payload.get("direction") in (None, "upload", "download"), "validation_error", "that is no direction")
    policy = _policy(case)
    target, auto = case.names("target"), case.names("auto_grant")
    formats, (alias, taken, asked) = _formats(payload), _wished_name(case)
    case.capability(kinds.STREAM_MANAGE if announced else kinds.STREAM_REQUEST)
    if taken is not None and asked in ("reuse", "error"):
        raise Refusal("already_exists" if asked == "error" or taken.owner != by else "", "the name is taken")
    replaced = case.managed(taken, kinds.STREAM_CLOSE) if taken is not None and asked == "replace" else None
    case.room(len(space.streams) + (replaced is None), "streams_per_space")
    owned = replaced is not None and replaced.owner == by
    case.room(len(ledger.owns.get(by, ())) + (not owned), "streams_per_participant")
    case.room(len(auto), "auto_grants_per_stream")
    case.room(len(auto) + 1, "writers_per_stream")
    case.room(len(target), "readers_per_stream")
    are_known = all(each in space.roster or each in space.people for each in target)
    need(space.has(are_known), "target_not_found", "a target is not known here")
    timeout = space.setting("policies", "start_timeout") if announced else 0
    members = [each for each in auto if each != by and space.is_present(each)]
    stream_id = f"stream-{space.opened + 1}" if space.opened or space.whole else None
    opened: dict[str, Any] = {
        "stream_id": stream_id,
        "status": "ready" if announced else "live",
        "owner": by,
        "request_id": case.id,
        "request": payload,
        "policy": policy,
        "formats": formats,
        "auto_grant": auto,
        "authorized_writers": [by, *members],
        "authorized_readers": target or None,
        "alias": None if taken is not None and replaced is None else alias,
        "alias_taken_by": taken.id if taken and not replaced and (asked or by in space.extended) else None,
        "owner_connected": space.people.get(by, False),
        "start_by": case.ts + round(timeout * SECOND) if timeout > 0 else None,
    }
    given = {"stream_id": stream_id, "authorized_writers": [by, *members], "by": by, "reason": "auto_grant"}
    cause = case.seq + 1 + (replaced is not None)
    granted = [Expected("write-granted", {"participant": each, **given}, cause_seq=cause) for each in members]
    closed = {"how": "closed", "by": kinds.GATEWAY, "reason": "replaced"}
    ended = [Expected("stream-ended", {"stream_id": replaced.id, **closed})] if replaced is not None else []
    return [*ended, Expected("stream-opened", opened), *granted]


def _wished_name(case: Case) -> tuple[str | None, Stream | None, str | None]:
    """The alias, the stream that has it already, and what is to be done then. Of a client of v0.4 alone, what is not
    known is its own."""
    wished, asked = case.payload.get("desired_id"), case.payload.get("if_exists")
    is_known = asked in (None, "new", "reuse", "replace", "error")
    need(is_known or case.sender not in case.space.extended, "validation_error", "if_exists is not known")
    asked = asked if is_known else None
    is_alias = isinstance(wished, str) and is_name(wished) and "/" not in wished and not _ASSIGNED.match(wished)
    is_alias = is_alias and len(str(wished).encode()) <= case.space.setting("limits", "id_bytes")
    need(is_alias or asked is None, "validation_error", "nothing can have that name")
    taken = case.ledger.find(str(wished)) if is_alias else None
    return (str(wished) if is_alias and (case.space.whole or taken is not None) else None), taken, asked


def _policy(case: Case) -> dict[str, Any]:
    policy = {}
    for key in ("on_owner_leave", "owner_leave_grace", "on_slow", "validate"):
        given = case.payload.get(key)
        policy[key] = case.space.setting("policies", key) if given is None else given
        if key != "owner_leave_grace":
            need(policy[key] in _CHOICES[key], "validation_error", f"that is no {key}")
    grace = policy["owner_leave_grace"]
    is_time = isinstance(grace, int | float) and not isinstance(grace, bool) and 0 <= grace <= WEEK
    need(is_time, "validation_error", "owner_leave_grace is no time")
    idle = case.payload.get("idle_timeout")
    is_time = isinstance(idle, int | float) and not isinstance(idle, bool) and 0 <= idle <= WEEK
    wrong = idle is not None and not is_time
    need(not wrong or case.sender not in case.space.extended, "validation_error", "idle_timeout is no time")
    idle = case.space.setting("policies", "idle_timeout") if idle is None or wrong else idle
    history = case.payload.get("history")
    wrong = history is not None and history not in ("none", "joined", "all")
    need(not wrong or case.sender not in case.space.extended, "validation_error", "that is no history")
    history = case.space.setting("policies", "history") if history is None or wrong else history
    return policy | {"owner_leave_grace": float(grace), "history": history, "idle_timeout": float(idle)}


_CHOICES = {
    "on_owner_leave": ("keep", "transfer", "close"),
    "on_slow": ("drop-oldest", "latest", "disconnect"),
    "validate": ("off", "enforce"),
}


def _formats(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """As they were asked for. Whether their schemas may be used, and their hashes, are not judged here."""
    formats = payload.get("formats") or []
    is_list = isinstance(formats, list) and all(isinstance(each, dict) for each in formats)
    need(is_list, "validation_error", "formats is not a list of descriptors")
    return [{key: value for key, value in each.items() if key != "schema_hash"} for each in formats]


@rule("Open by handshake: stream/announce", kinds.STREAM_START)
def start_stream(case: Case) -> list[Expected]:
    """A stream started by somebody else than its owner, or that was not ready."""
    since = case.payload.get("start_ts")
    is_time = isinstance(since, str) and parse_rfc3339(since) is not None
    need(since is None or is_time, "validation_error", "start_ts is no time")
    stream = case.owned(case.stream())
    need(stream.status == "ready", "invalid_operation", f"{stream.id} is {stream.status}")
    return [Expected("stream-started", {"stream_id": stream.id, "by": case.sender})]


@rule("Ending", kinds.STREAM_COMPLETE, kinds.STREAM_ERROR, kinds.STREAM_CLOSE)
def end_stream(case: Case) -> list[Expected]:
    """A stream closed, completed or failed by somebody who may not, or another one than was named."""
    how = {kinds.STREAM_CLOSE: "closed", kinds.STREAM_COMPLETE: "completed"}.get(case.kind, "failed")
    keys = ("code", "message") if how == "failed" else ()
    for key in keys:
        need(case.text(key, required=True) != "", "validation_error", f"{key} is empty")
    case.text("reason")
    named = case.payload.get("stream_id") is not None or case.payload.get("stream") is not None
    stream = case.stream() if named or how != "closed" else _correlated(case)
    (case.managed if how == "closed" else case.owned)(stream)
    need(how != "completed" or stream.status == "live", "invalid_operation", f"{stream.id} is {stream.status}")
    told = {key: case.payload.get(key) for key in ("reason", *keys)}
    return [Expected("stream-ended", {"stream_id": stream.id, "how": how, "by": case.sender, **told})]


def _correlated(case: Case) -> Stream:
    named = case.field("correlation_id")
    need(bool(named), "validation_error", "it does not name a stream")
    found = [case.known_stream(id) for each in named for id in case.ledger.named.get(each, ())]
    found = found or [case.known_stream(named[0])]
    return max(found, key=lambda each: (each.names[1] in named, each.owner == case.sender))
