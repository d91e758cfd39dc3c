"""What follows from an envelope: the records that it must cause, or the code with which it must be refused.

The checks come in the order of the protocol: shape, whether the stream exists, the sender's right, whether the
operation is valid now, whether the other participant is present.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from mewstream.audit.capabilities import MAX_PATTERNS, Held, included, is_ordinary
from mewstream.audit.records import ASKED, Expected, Refusal, Unjudged, need, rule
from mewstream.audit.state import BEGINS_LATER, SECOND, Ledger, Stream
from mewstream.protocol import kinds
from mewstream.protocol.times import parse_rfc3339, rfc3339

WEEK = 7 * 86_400
_ASSIGNED = re.compile(r"stream-\d+\Z")
_MIRRORS = (kinds.WRITE_PROJECTION, kinds.READ_PROJECTION)
DELEGATION = "rights that are passed on are not judged"
_ROOM = 4096
"""How many bytes longer a payload may become when the gateway fills in names."""


class Case:
    """One envelope and the state that it meets. ``fields`` are its other fields, which are not recorded of one that was
    refused."""

    def __init__(
        self, ledger: Ledger, ts: int, seq: int, sender: str, kind: str, id: str | None, payload: dict[str, Any]
    ) -> None:
        self.ledger, self.space = ledger, ledger.space
        self.ts, self.seq, self.sender, self.kind, self.id, self.payload = ts, seq, sender, kind, id, payload
        self.fields: dict[str, Any] | None = None

    def judge(self) -> list[Expected]:
        """What must follow. Raises :class:`Refusal` or :class:`Unjudged`."""
        judged_by = ASKED.get(self.kind, relay)
        if judged_by is not relay and judged_by is not open_stream and self.kind not in _PROPOSALS:
            self.room(self.size() - _ROOM, "control_bytes")
        required = {kinds.CHAT: "text", kinds.MCP_REQUEST: "method"}.get(self.kind)
        if required is not None:
            self.text(required, required=True)
        paused_and_shut_down(self)
        consequences = judged_by(self)
        for each in consequences:
            each.rule, each.ts, each.cause_seq = judged_by.__name__, self.ts, each.cause_seq or self.seq
        return consequences

    # -- what it says --------------------------------------------------------------------------

    def size(self) -> int:
        return len(msgspec.json.encode(self.payload))

    def text(self, key: str, *, required: bool = False) -> str:
        value = self.payload.get(key)
        need(isinstance(value, str) or (value is None and not required), "validation_error", f"{key} is no text")
        return value or ""

    def name(self, key: str) -> str:
        need(self.text(key, required=True) != "", "validation_error", f"{key} names nobody")
        self.room(len(self.payload[key].encode("utf-8", "surrogatepass")), "id_bytes")
        return str(self.payload[key])

    def names(self, key: str) -> list[str]:
        value = self.payload.get(key)
        value = [] if value is None else value
        is_list = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
        need(is_list, "validation_error", f"{key} is not a list of names")
        self.room(max((len(each.encode("utf-8", "surrogatepass")) for each in value), default=0), "id_bytes")
        return list(dict.fromkeys(value))

    def seconds(self, key: str) -> float | None:
        value = self.payload.get(key)
        is_time = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        need(value is None or is_time, "validation_error", f"{key} is no time")
        return value

    def field(self, name: str) -> list[str]:
        """``to`` or ``correlation_id``."""
        if self.fields is None:
            raise Unjudged("of a refused envelope only the payload is recorded")
        return list(dict.fromkeys(self.fields.get(name) or ()))

    def given_patterns(self, given: Any) -> list[dict[str, Any]]:
        is_list = isinstance(given, list) and bool(given) and all(isinstance(each, dict | str) for each in given)
        need(is_list, "validation_error", "capabilities is not a list of patterns")
        return [{"kind": each} if isinstance(each, str) else each for each in given]

    def check_patterns(self, patterns: list[dict[str, Any]], beside: list[Any]) -> None:
        listed = [*beside, *patterns]
        need(len(listed) <= MAX_PATTERNS, "limit_exceeded", "there are too many patterns")
        self.room(len(msgspec.json.encode(listed)), "capability_list_bytes")
        Held(listed)
        mirrored = any(each["kind"].lstrip("!").startswith(_MIRRORS) for each in patterns)
        need(not mirrored, "invalid_operation", "what mirrors a right is no capability")

    # -- what it needs -------------------------------------------------------------------------

    def room(self, count: int, limit: str) -> None:
        need(count <= self.space.setting("limits", limit), "limit_exceeded", f"{limit} is reached")

    def present(self, participant: str) -> None:
        need(self.space.is_present(participant), "participant_not_found", f"{participant} is not here")

    def held(self) -> Held:
        self.space.has(self.sender in self.space.roster)
        return _compiled(msgspec.json.encode(self.space.patterns(self.sender)))

    def capability(self, required: str = "") -> None:
        """The capability for its kind, or another one where no denial forbids the kind."""
        held = self.held()
        allowed = held.allows(required or self.kind, self.payload) and not held.denies(self.kind, self.payload)
        need(self.space.has(allowed), "capability_violation", f"{self.sender} has no capability for it")

    def hold(self, patterns: list[Any]) -> None:
        held = self.held()
        holds = all(each["kind"].startswith("!") or held.holds(each) for each in patterns)
        need(self.space.has(holds), "capability_violation", f"{self.sender} does not hold what it gives or takes")

    def stream(self) -> Stream:
        nested = self.payload.get("stream")
        need(isinstance(nested, dict | None), "validation_error", "stream is no object")
        named = [each.get("stream_id") for each in (self.payload, nested or {}) if each.get("stream_id") is not None]
        is_one = bool(named) and all(isinstance(each, str) and each and each == named[0] for each in named)
        need(is_one, "validation_error", "it does not name one stream")
        stream = self.known_stream(str(named[0]))
        namespace = (nested or {}).get("namespace")
        need(namespace in (None, f"{self.space.id}/{stream.id}"), "validation_error", "the namespace is wrong")
        return stream

    def known_stream(self, reference: str) -> Stream:
        stream = self.ledger.find(reference)
        if stream is None:
            self.space.has(False)
            raise Refusal("stream_not_found", f"there is no stream {reference[:128]}")
        return stream

    def managed(self, stream: Stream, kind: str = "") -> Stream:
        """The sender is the owner, or a holder of ``space/manage-streams`` to whom the kind is not denied."""
        if stream.delegated and self.kind in (kinds.GRANT_WRITE, kinds.REVOKE_WRITE):
            raise Unjudged(DELEGATION)
        if self.sender != stream.owner:
            held, payload = self.held(), {**self.payload, "stream_id": stream.id}
            manages = held.allows(kinds.SPACE_MANAGE_STREAMS, payload) and not held.denies(kind or self.kind, payload)
            need(self.space.has(manages), "unauthorized", f"{self.sender} is not entitled to {stream.id}")
        return stream

    def owned(self, stream: Stream) -> Stream:
        need(stream.owner == self.sender, "unauthorized", f"{self.sender} does not own {stream.id}")
        return stream

    def changes(self, record: str, stream: Stream, **fields: Any) -> list[Expected]:
        by = {"by": self.sender, "reason": self.payload.get("reason"), "request_id": self.id}
        return [Expected(record, {"stream_id": stream.id, **by, **fields})]


@functools.lru_cache(1024)
def _compiled(patterns: bytes) -> Held:
    return Held(msgspec.json.decode(patterns))


# -- every envelope, and proposals ----------------------------------------------------------------


@rule("Paused and shut down")
def paused_and_shut_down(case: Case) -> None:
    """An envelope from a participant that was paused, shut down or banned, and may not send it then."""
    need(case.sender not in case.space.banned, "unauthorized", f"{case.sender} is banned")
    until = case.space.paused.get(case.sender, (0, None))[0]
    shut_down = case.sender in case.space.shut_down and case.kind not in kinds.AFTER_SHUTDOWN
    need(not shut_down, "invalid_operation", f"{case.sender} was shut down")
    paused = (until is None or case.ts < until) and case.kind not in kinds.WHILE_PAUSED
    need(not paused, "invalid_operation", f"{case.sender} is paused")


@rule("Capabilities")
def relay(case: Case) -> list[Expected]:
    """A message that is only relayed (``chat``, ``mcp/*`` and all others) against the capabilities of its sender."""
    if case.kind not in kinds.ALWAYS_ALLOWED:
        case.capability()
    return []


@rule("MCP and proposals", kinds.MCP_WITHDRAW)
def withdraw(case: Case) -> list[Expected]:
    """A proposal withdrawn that is unknown, or not the sender's."""
    proposers = _proposers(case)
    need(None not in proposers, "invalid_operation", "there is no such proposal")
    need(set(proposers) == {case.sender}, "unauthorized", "the proposal is another participant's")
    return []


@rule("MCP and proposals", kinds.MCP_REJECT)
def reject(case: Case) -> list[Expected]:
    """A rejection that names no known proposal."""
    need(any(_proposers(case)), "invalid_operation", "there is no such proposal")
    return []


def _proposers(case: Case) -> list[str | None]:
    need(bool(case.field("correlation_id")), "validation_error", "it names no proposal")
    case.capability()
    proposers = [case.space.proposals.get(each) for each in case.field("correlation_id")]
    case.space.has(None not in proposers)
    return proposers


_PROPOSALS = tuple(ASKED)

# -- capabilities and participants ----------------------------------------------------------------


@rule("Giving and taking capabilities", kinds.CAPABILITY_GRANT)
def capability_grant(case: Case) -> list[Expected]:
    """Capabilities granted that the sender does not hold, that were not asked for, or to somebody who is absent."""
    recipient, grants = case.name("recipient"), case.space.grants
    patterns = case.given_patterns(case.payload.get("capabilities"))
    case.capability()
    case.check_patterns(patterns, case.space.patterns(recipient))
    denial = any(each["kind"].startswith("!") for each in patterns)
    need(not denial, "invalid_operation", "a denial cannot be granted")
    case.hold(patterns)
    need(not any(case.id in each for each in grants.values()), "already_exists", "there is a grant with this id")
    case.room(sum(map(len, grants.values())) + 1, "capability_grants")
    case.present(recipient)
    given = {"grant_id": case.id, "participant": recipient, "capabilities": patterns, "by": case.sender}
    return [Expected("capabilities-granted", given)]


@rule("Giving and taking capabilities", kinds.CAPABILITY_REVOKE)
def capability_revoke(case: Case) -> list[Expected]:
    """Capabilities revoked that the sender may not take, or other ones than were asked for."""
    by_id, grants = case.payload.get("grant_id") is not None, case.space.grants
    recipient = case.name("recipient") if not by_id or case.payload.get("recipient") is not None else None
    remaining: dict[str, list[Any]] = {}
    if by_id:
        grant_id = case.name("grant_id")
        case.capability()
        holders = [who for who, granted in grants.items() if grant_id in granted]
        is_known = case.space.has(bool(holders)) and recipient in (None, holders[0])
        need(is_known, "invalid_operation", "there is no such grant")
        recipient, remaining[grant_id] = holders[0], []
    else:
        revoked = case.given_patterns(case.payload.get("capabilities"))
        case.capability()
        case.check_patterns(revoked, [])
        for id, granted in grants.get(recipient or "", {}).items():
            kept = [each for each in granted if not included(each, revoked)]
            if len(kept) < len(granted):
                remaining[id] = kept
    for id, kept in remaining.items():
        if case.sender not in (recipient, case.space.granters.get(id)):
            case.hold([each for each in grants[recipient or ""][id] if each not in kept])
    return [Expected("capabilities-revoked", {"participant": recipient, "remaining": remaining, "by": case.sender})]


@rule("Giving and taking capabilities", kinds.INVITE)
def invite(case: Case) -> list[Expected]:
    """Somebody invited with capabilities that the inviter may not give or did not name, or under a
    name that is taken."""
    invitee, given = case.name("participant_id"), case.payload.get("capabilities")
    given = case.payload.get("initial_capabilities") if "capabilities" not in case.payload else given
    is_possible = _is_name(invitee) and not any(part in invitee for part in ("/", "\\", ".."))
    is_possible = is_possible and invitee != "gateway" and not invitee.startswith("system:")
    need(is_possible, "validation_error", "nobody can have that name")
    patterns, seconds = (case.space.config or {}).get("default_capabilities", []), case.seconds("expires_in")
    if given is not None:
        patterns = case.given_patterns(given)
    case.capability()
    if given is not None:
        case.check_patterns(patterns, [])
        held = case.space.setting("policies", "invites") == "held"
        case.hold([each for each in patterns if held or not is_ordinary(each)])
    need(invitee not in case.space.roster, "already_exists", "the name is taken")
    case.space.has(False)
    case.room(len(case.space.invited) + 1, "invitations")
    invited = {"participant": invitee, "capabilities": patterns, "by": case.sender, "request_id": case.id}
    return [Expected("invited", {"expires_at": _after(case, seconds), **invited})]


def _after(case: Case, seconds: float | None) -> int | None:
    """The time after so many seconds, which are a week at most."""
    return None if seconds is None else case.ts + round(min(seconds, WEEK) * SECOND)


@rule("Who is in the space", kinds.KICK)
def kick(case: Case) -> list[Expected]:
    """Somebody kicked or banned by a participant that may not, or who was not there, or who did not leave."""
    target, seconds, reason = case.name("participant_id"), case.seconds("ban"), case.payload.get("reason")
    case.capability()
    if seconds is None:
        case.present(target)
        return _leaves(case, target)
    need(case.space.has(target in case.space.roster), "participant_not_found", f"{target} is no participant")
    case.room(len(case.space.banned | {target: 0}), "bans")
    told = {"until": _after(case, seconds), "reason": reason if isinstance(reason, str) else None}
    return [Expected("banned", {"participant": target, "by": case.sender, **told}), *_leaves(case, target)]


def _leaves(case: Case, target: str) -> list[Expected]:
    return [Expected("left", {"participant": target, "reason": "kicked"})] if case.space.is_present(target) else []


@rule("Who is in the space", kinds.UNINVITE)
def uninvite(case: Case) -> list[Expected]:
    """An invitation taken back by a participant that may not, or of one who was not invited, or who did not leave."""
    target = case.name("participant_id")
    case.capability()
    need(case.space.has(target in case.space.invited), "participant_not_found", f"{target} was not invited")
    told = {"participant": target, "by": case.sender, "reason": "withdrawn"}
    return [Expected("uninvited", told), *_leaves(case, target)]


@rule("Who is in the space", kinds.UNBAN)
def unban(case: Case) -> list[Expected]:
    """A ban ended by a participant that may not, or of one who was not banned."""
    target = case.name("participant_id")
    case.capability()
    need(case.space.has(target in case.space.banned), "participant_not_found", f"{target} is not banned")
    return [Expected("unbanned", {"participant": target, "by": case.sender})]


def _targets(case: Case) -> list[str]:
    targets = case.field("to")
    if not targets and case.kind == kinds.RESUME and case.space.is_present(case.sender):
        targets = [case.sender]
    need(bool(targets), "validation_error", "it is addressed to nobody")
    case.capability()
    for target in targets:
        case.present(target)
    return targets


@rule("Paused and shut down", kinds.PAUSE)
def pause(case: Case) -> list[Expected]:
    """A pause by a participant that may not, of others than were named, or for another time."""
    seconds = case.payload.get("timeout_seconds")
    is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
    need(seconds is None or is_time, "validation_error", "timeout_seconds is no time")
    until = None if seconds is None else case.ts + round(min(seconds, WEEK) * SECOND)
    paused = {"until": until, "by": case.sender, "request_id": case.id}
    return [Expected("paused", {"participant": each, **paused}) for each in _targets(case)]


@rule("Paused and shut down", kinds.RESUME)
def resume(case: Case) -> list[Expected]:
    """A pause ended by a participant that may not, or of others than were named, or not ended."""
    targets = [each for each in _targets(case) if each in case.space.paused]
    return [Expected("unpaused", {"participant": each, "by": case.sender}) for each in targets]


@rule("Paused and shut down", kinds.SHUTDOWN)
def shutdown(case: Case) -> list[Expected]:
    """A participant shut down by one that may not, or others than were named."""
    return [Expected("shut-down", {"participant": each, "by": case.sender}) for each in _targets(case)]


# -- the life of a stream -------------------------------------------------------------------------


@rule("Streams", kinds.STREAM_REQUEST, kinds.STREAM_ANNOUNCE)
def open_stream(case: Case) -> list[Expected]:
    """A stream opened without the capability or beyond a limit, or with writers, readers, a name, policies, formats
    or a time limit that nobody asked for."""
    space, payload, ledger, by = case.space, case.payload, case.ledger, case.sender
    announced = case.kind == kinds.STREAM_ANNOUNCE
    case.room(case.size() - _ROOM, "stream_metadata_bytes")
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
    is_alias = isinstance(wished, str) and _is_name(wished) and "/" not in wished and not _ASSIGNED.match(wished)
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
    return policy | {"owner_leave_grace": float(grace), "idle_timeout": float(idle)}


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


def _is_name(text: str) -> bool:
    return bool(text) and text.isprintable() and text == text.strip() and not any(each in text for each in "#|")


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


# -- rights ---------------------------------------------------------------------------------------


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
