"""Reading the control records of a space in order: what must follow, what may happen, and what the log says then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from mewstream.audit import happened
from mewstream.audit.asked import judge
from mewstream.audit.case import DELEGATION, Case
from mewstream.audit.happened import Event
from mewstream.audit.records import ASKED, ControlRecord, Expected, Finding, Refusal, Unjudged, need, rule
from mewstream.audit.refused import refusal
from mewstream.audit.state import SECOND, Ledger, Right, Space, Stream, Timer
from mewstream.protocol import kinds

_DEFAULTS: dict[str, Any] = {
    "auto_grant": [],
    "formats": [],
    "owner_connected": True,
    "resumed": False,
    "replaced": False,
}
#: What the policy of a stream says, in its order, where the journal is older than the last of them.
_FIRST_POLICIES: dict[str, Any] = {
    **dict.fromkeys(("on_owner_leave", "owner_leave_grace", "on_slow", "validate")),
    "history": "joined",
    "idle_timeout": 0.0,
}
#: Fields that are judged elsewhere, or are words.
_NOT_COMPARED = {"record", "seq", "ts", "cause_seq", "welcome_digest"}
_RULES: dict[str, tuple[Callable[[Event], list[Expected]], ...]] = {
    "space-started": (),
    "clock-jumped": (happened.clock,),
    "joined": (happened.join,),
    "left": (happened.leave,),
    "suspended": (happened.suspend,),
    "admitted": (happened.admit,),
    "stream-reused": (happened.reuse,),
    "refused": (refusal,),
    "frames-dropped": (happened.frames_dropped,),
}
_AFTERWARDS: dict[str, tuple[Callable[[Event], list[Expected]], ...]] = {
    "joined": (happened.welcome, happened.standing_grants),
    "left": (happened.revokes_on_leave,),
    "admission-ended": (happened.admission_end,),
}
_CHANGES = {
    *("stream-opened", "stream-started", "stream-ended", "write-granted", "write-revoked", "ownership-transferred"),
    *("read-granted", "read-revoked", "capabilities-granted", "capabilities-revoked", "invited", "paused", "unpaused"),
    *("shut-down", "admission-ended", "write-requested", "write-denied", "uninvited", "banned"),
    "unbanned",
}
#: They may come while something is overdue: at a start, and while the journal cannot be written.
_MAY_PRECEDE_WHAT_IS_DUE = ("space-started", "clock-jumped", "left", "suspended")
_SENDERS = {
    **dict.fromkeys(("joined", "left", "suspended", "admitted", "write-requested"), "participant"),
    **dict.fromkeys(("stream-opened", "stream-reused"), "owner"),
}
NEVER = 1 << 62
#: Deadlines that a jump of the clock does not move, because they were given as a time or are recorded anew.
_AT_A_TIME = ("expiry", "pause_end", "admission", "ban_end", "invitation_end")
_BY_GATEWAY = ("space-started", "clock-jumped", "frames-dropped", "admission-ended")


class SpaceAuditor:
    """Judges the control records of one space, batch by batch. ``carried`` is what the batch before has left.

    ``frames`` says how many frames of this batch were written by a participant on a stream after one seq and before
    another, or to the end."""

    def __init__(self, space: str, carried: bytes | None = None, frames: happened.CountFrames | None = None) -> None:
        self._space = Space(space) if carried is None else msgspec.msgpack.decode(carried, type=Space)
        self._ledger = Ledger(self._space)
        self._frames = frames
        self.findings: list[Finding] = []
        self.judged: Counter[tuple[str, str]] = Counter()
        self.unjudged: Counter[tuple[str, str]] = Counter()

    def carried(self) -> bytes:
        for stream in self._space.streams.values():
            for writer, right in stream.writers.items():
                if right.max_frames is not None:
                    happened.used(self._frames, stream, writer, None)
        return self._ledger.encode()

    @property
    def is_over(self) -> bool:
        """Nobody is here, no stream is open, and nothing is expected: nothing happens until somebody joins."""
        space = self._space
        return not (space.people or space.streams or space.due or space.expected)

    def see(self, record: ControlRecord) -> None:
        """Judge a record that is no frame. They come in the order of their ``seq``."""
        space = self._space
        if record.seq == 1 or space.seq == 0:
            self._ledger = Ledger(Space(space.id, whole=record.seq == 1))
            space = self._space = self._ledger.space
        try:
            if record.ts < space.ts:
                self._find(record, "clock", f"it is {(space.ts - record.ts) / SECOND:g} s earlier than the one before")
            fields = _fields(record)
            self._see(record, fields)
        except Unjudged as reason:
            self.unjudged["record", str(reason)] += 1
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, msgspec.MsgspecError):
            self._find(record, "form", f"{record.record} cannot be read")
        space.seq, space.ts = max(space.seq, record.seq), max(space.ts, record.ts)

    def _find(self, record: ControlRecord, name: str, reason: str) -> None:
        about = record.participant or record.sender
        found = Finding(record.seq, record.ts, name, reason[:500], about, record.stream_id, record.cause_seq)
        self.findings.append(found)
        self._space.doubtful = True

    # -- one record ----------------------------------------------------------------------------

    def _see(self, record: ControlRecord, fields: dict[str, Any]) -> None:
        space, name = self._space, record.record
        if name in _CHANGES or name in _RULES:
            self._judge(record, "form", lambda: form(record, fields))
        meant = [each for each in space.expected if each.is_meant_by(name, fields)]
        is_unknown = name in _CHANGES and "stream_id" in fields and self._ledger.find(fields["stream_id"]) is None
        if not meant and is_unknown and name != "stream-opened" and not space.whole:
            raise Unjudged("the log begins in the middle")
        stream = self._ledger.find(str(fields.get("stream_id")))
        if not meant and stream is not None and stream.delegated and fields.get("reason") == "delegation_ended":
            _follow(self._ledger, record, fields)
            raise Unjudged(DELEGATION)
        if not meant:  # or it is what was expected, about something else
            meant = [each for each in space.expected if (each.record, each.cause_seq) == (name, record.cause_seq)][:1]
            for each in meant:
                self._dispute(each)
                self._dispute(Expected(name, fields))
        if meant:
            for each in space.expected[: space.expected.index(meant[0])]:
                if each.fields.get("stream_id") == meant[0].fields.get("stream_id"):
                    self._dispute(each)  # it should have come before
            space.expected.remove(meant[0])
            self._judge(record, meant[0].rule, lambda: self._compare(record, fields, meant[0]))
        else:
            self._miss(record)
            if record.cause_seq in space.excused:
                space.excused[record.seq] = None
                self.unjudged["change", "what it follows from was not right, or not judged"] += 1
            else:
                space.excused.clear()
                self._unasked(record, fields)
        if name in _CHANGES or name in ("joined", "left", "suspended"):
            space.changed = record.ts
        if name != "envelope":
            _follow(self._ledger, record, fields)
        for check in _AFTERWARDS.get(name, ()):
            self._consequences(record, check, fields)

    def _judge(self, record: ControlRecord, name: str, check: Callable[[], Any]) -> Any:
        """Count what a check says."""
        what = {"envelope": "envelope", "refused": "refusal"}.get(record.record, "change")
        what = "welcome" if name == "welcome" else what
        try:
            said = check()
        except Unjudged as reason:
            self.unjudged[what, str(reason)] += 1
            return None
        except Refusal as wrong:
            self._find(record, name, str(wrong))
            said = None
        if name != "form":
            self.judged[what, name] += 1
        return said

    def _consequences(self, record: ControlRecord, check: Callable[[Event], list[Expected]], fields: Any) -> None:
        event = Event(self._ledger, record, fields)
        for each in self._judge(record, check.__name__, lambda: check(event)) or ():
            each.rule, each.ts, each.cause_seq = check.__name__, record.ts, record.seq
            self._space.expected.append(each)

    def _unasked(self, record: ControlRecord, fields: dict[str, Any]) -> None:
        name, ledger = record.record, self._ledger
        timer = happened.timer_of(name, fields)
        is_idle = name == "stream-ended" and (fields.get("by"), fields.get("reason")) == (kinds.GATEWAY, "idle")
        if timer is None and not is_idle and name not in _MAY_PRECEDE_WHAT_IS_DUE:
            self._overdue(record)
        if name == "envelope":
            self._envelope(record, fields)
        elif name in _RULES:
            for check in _RULES[name]:
                self._consequences(record, check, fields)
        elif timer is not None:
            self._judge(record, timer[0], lambda: self._in_time(record, fields, timer))
        elif name == "admission-ended" and fields["participant"] in self._space.admitted:
            pass  # it has joined by another way, which is not recorded
        elif is_idle:
            event = Event(ledger, record, fields)
            self._judge(record, "idle", lambda: self._compare(record, fields, happened.idle(event)[0]))
        elif name == "write-revoked" and fields.get("reason") == "max_frames":
            event = Event(ledger, record, fields, self._frames)
            self._judge(record, "spent", lambda: self._compare(record, fields, happened.spent(event)[0]))
        elif name in _CHANGES:
            self._judge(record, "nowhere", lambda: self._space.has(False) or nowhere(record))
        else:
            raise Unjudged("the record is not known")

    def _in_time(self, record: ControlRecord, fields: dict[str, Any], timer: Timer) -> None:
        at = self._space.due.get(timer, NEVER)
        self._space.has(at != NEVER)
        need(at <= record.ts, "", f"{record.record}, though nothing was due")
        self._compare(record, fields, happened.BY_TIME[timer[0]](self._ledger, timer))

    def _envelope(self, record: ControlRecord, fields: dict[str, Any]) -> None:
        payload = fields["envelope"].get("payload") or {}
        case = Case(self._ledger, record.ts, record.seq, str(record.sender), str(record.kind), fields["id"], payload)
        case.fields = fields["envelope"]
        self._space.excused[record.seq] = None
        judged_by = ASKED.get(case.kind)
        consequences = self._judge(record, judged_by.__name__ if judged_by else "relay", lambda: accepted(case))
        if consequences is not None:
            self._space.excused.clear()
            self._space.expected += consequences
        if case.kind == kinds.MCP_PROPOSAL:
            self._ledger.propose(fields["id"], case.sender)

    # -- what is missing -----------------------------------------------------------------------

    def _miss(self, record: ControlRecord) -> None:
        """What was expected did not come."""
        for each in self._space.expected:
            about = (each.fields.get("participant"), each.fields.get("stream_id"))
            found = Finding(each.cause_seq or 0, each.ts, each.rule, f"{each.record} is missing", *about)
            self.findings.append(found)
            self._dispute(each)
        self._space.expected.clear()

    def _overdue(self, record: ControlRecord) -> None:
        """The second decision after a deadline, or one that comes a second later, shows that it was missed: time may
        pass a deadline between two looks at the clock."""
        space = self._space
        for who in space.to_suspend:
            self._find(record, "restart", f"{who} was here before the restart, and was not suspended")
        space.to_suspend.clear()
        for timer in self._ledger.overdue(record.ts):
            if timer not in space.passed and record.ts < space.due[timer] + SECOND:
                space.passed[timer] = None
                continue
            missing = happened.BY_TIME[timer[0]](self._ledger, timer)
            late = (record.ts - space.due[timer]) / SECOND
            self._find(record, timer[0], f"{missing.record} for {timer[1]} was due {late:g} s before, and is missing")
            self._dispute(missing)
            self._ledger.set_timer(timer, None)

    def _dispute(self, missing: Expected) -> None:
        """It is not certain whether what a record says has happened."""
        self._space.doubtful = True
        stream = self._ledger.find(missing.fields.get("stream_id") or "")
        if stream is not None and missing.record in ("write-granted", "write-revoked"):
            stream.disputed[str(missing.fields.get("participant"))] = None

    def _compare(self, record: ControlRecord, fields: dict[str, Any], expected: Expected) -> None:
        """Whether a record says what follows, in every field."""
        asked, space = expected.fields, self._space
        need(expected.record == record.record, "", f"{record.record}, and {expected.record} follows")
        if expected.cause_seq is not None:
            in_place = (expected.ts, expected.cause_seq) == (record.ts, record.cause_seq)
            need(in_place, "", f"{record.record} does not follow record {expected.cause_seq} at once")
        stream = self._ledger.find(str(fields.get("stream_id")))
        for key in (fields.keys() | asked.keys()) - _NOT_COMPARED:
            value, right = fields.get(key, _DEFAULTS.get(key)), asked.get(key, _DEFAULTS.get(key))
            if key == "authorized_writers" and stream is not None and stream.delegated:
                continue
            if key == "authorized_writers" and key not in asked and stream is not None:
                right = [*stream.listed(), fields["participant"]]
            if key == "authorized_writers" and stream is not None and stream.disputed:
                value, right = (
                    [each for each in some if each not in stream.disputed] for some in (value or [], right or [])
                )
            if key == "policy" and isinstance(value, dict):
                value = _FIRST_POLICIES | value
            if key == "formats":
                value = [{name: each[name] for name in each if name != "schema_hash"} for each in value or ()]
            if (key == "message" and key not in asked) or (right is None and not space.whole and key in asked):
                continue
            same = value == right and msgspec.json.encode(value) == msgspec.json.encode(right)
            need(same, "", f"{record.record}: {key} is {_short(value)}, expected {_short(right)}")


def _short(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:100]


# -- rules that are about every record ------------------------------------------------------------


@rule("Envelopes")
def accepted(case: Case) -> list[Expected]:
    """An envelope of a kind that only the gateway sends, of an unknown sender, or under an id of the gateway."""
    is_reserved = case.kind in kinds.RESERVED or case.kind.startswith("system/")
    need(not is_reserved, "", f"only the gateway sends {case.kind}")
    need(case.space.has(case.sender in case.space.roster), "", f"{case.sender} is no participant of this space")
    own = not str(case.id).startswith("gw-") or case.id == f"gw-{case.space.epoch}-{case.seq}"
    need(own, "", "its id is one of the gateway")
    return judge(case)


@rule("Rights")
def nowhere(record: ControlRecord) -> None:
    """A change that nobody asked for, and that follows from nothing."""
    need(False, "", f"{record.record} that nobody asked for, and that follows from nothing")


@rule("Resume")
def restart(record: ControlRecord) -> None:
    """Somebody who was here before a restart of the gateway, and was not suspended."""


@rule("Envelopes")
def form(record: ControlRecord, fields: dict[str, Any]) -> None:
    """A record that cannot be read, or whose columns say something else than its detail or its envelope."""
    sender = fields.get(_SENDERS.get(record.record, "by" if "by" in fields else "sender"))
    sender = kinds.GATEWAY if record.record in _BY_GATEWAY else sender
    named = fields.get("new_owner", fields.get("participant"))
    named = None if record.record in ("joined", "left", "suspended", "write-requested") else named
    said = (record.seq, record.ts, record.sender, record.participant, record.stream_id, record.outcome)
    told = (fields["seq"], fields["ts"], sender, named, fields.get("stream_id"), fields.get("code", "accepted"))
    told = (*told[:5], told[5] if record.record == "refused" else "accepted")
    need(said == told, "", "its columns and its detail differ")


def _fields(record: ControlRecord) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(record.detail or "{}")
    if record.record == "envelope":
        envelope = msgspec.json.decode(record.data or b"{}")
        fields = {"id": fields.get("id"), "envelope": envelope}
        same = (envelope.get("kind"), envelope.get("from"), envelope.get("id")) == (
            record.kind,
            record.sender,
            fields["id"],
        )
        if not same:
            raise ValueError
    return {"details": {}, "kind": "", **fields} if record.record == "refused" else fields


def _follow(ledger: Ledger, record: ControlRecord, f: dict[str, Any]) -> None:
    """Change the state as a record says, whether it was right or not."""
    space, who = ledger.space, f.get("participant", "")
    stream = ledger.find(str(f.get("stream_id")))
    if stream is not None and "authorized_writers" in f:
        stream.delegated |= f.get("parent") is not None or f.get("delegate") is not None
        if stream.delegated:  # the list says who is left
            stream.disputed = dict.fromkeys((*stream.writers, *f["authorized_writers"]))
    if stream is not None and record.record in _CHANGES:
        stream.touched = record.ts
    match record.record:
        case "space-started":
            space.epoch, space.config = f["epoch"], f["config"]
            configured = f["config"].get("participants", {})
            space.roster = {}
            space.enrol(*configured, *space.invited, *space.admitted)
            space.to_suspend = dict.fromkeys(space.people)
        case "clock-jumped":
            for timer, at in list(space.due.items()):
                if timer[0] not in _AT_A_TIME and at > record.ts - f.get("shift", 0):
                    ledger.set_timer(timer, at + f.get("shift", 0))
        case "joined":
            ledger.set_timer(("invitation_end", who, ""), None)
            ledger.enter(who, extended=f.get("extensions") is not None)
        case "left":
            ledger.leave(who, record.ts)
        case "suspended" if who in space.people or not space.whole:
            space.people[who] = False
            space.to_suspend.pop(who, None)
            ledger.set_timer(("rejoin", who, ""), f["until"])
        case "capabilities-granted":
            space.grants.setdefault(who, {})[f["grant_id"]] = f["capabilities"]
            space.granters[f["grant_id"]] = f["by"]
        case "capabilities-revoked":
            left = {**space.grants.get(who, {}), **f["remaining"]}
            space.grants[who] = {id: patterns for id, patterns in left.items() if patterns}
        case "invited":
            space.invited[who] = space.roster[who] = f["capabilities"]
            ledger.set_timer(("invitation_end", who, ""), f.get("expires_at"))
        case "uninvited":
            space.invited.pop(who, None)
            space.grants.pop(who, None)
            space.enrol(who)
            ledger.set_timer(("invitation_end", who, ""), None)
        case "banned":
            space.banned[who] = f["until"]
            ledger.set_timer(("ban_end", who, ""), f["until"])
        case "unbanned":
            space.banned.pop(who, None)
            ledger.set_timer(("ban_end", who, ""), None)
        case "admitted":
            space.admitted[who] = f["capabilities"]
            space.enrol(who)
            ledger.set_timer(("admission", who, ""), f["until"])
        case "admission-ended":
            space.admitted.pop(who, None)
            space.enrol(who)
            ledger.set_timer(("admission", who, ""), None)
        case "paused":
            space.paused[who] = (f["until"], f.get("request_id"))
            ledger.set_timer(("pause_end", who, ""), f["until"])
        case "unpaused":
            space.paused.pop(who, None)
            ledger.set_timer(("pause_end", who, ""), None)
        case "shut-down":
            space.shut_down[who] = None
        case "stream-opened" if f["stream_id"] not in space.streams:
            policy, names = f["policy"], [f["request_id"], f"gw-{record.epoch}-{record.seq}"]
            space.opened = max(space.opened + 1, int(f["stream_id"].partition("-")[2] or 0))
            opened = Stream(
                *(
                    f["stream_id"],
                    f["owner"],
                    f["status"],
                    names,
                    policy["on_owner_leave"],
                    policy["owner_leave_grace"],
                ),
                *(f.get("alias"), dict.fromkeys(f.get("auto_grant", ()))),
                formats=[each["id"] for each in f.get("formats", ())],
                enforced=policy["validate"] == "enforce",
                idle=policy.get("idle_timeout", 0.0),
            )
            ledger.open(opened, record.seq, f.get("authorized_readers"), f["authorized_writers"])
            ledger.set_timer(("start_timeout", opened.id, ""), f.get("start_by"))
        case "stream-started" if stream is not None:
            ledger.change(stream, status="live")
            ledger.set_timer(("start_timeout", stream.id, ""), None)
        case "stream-ended" if stream is not None:
            ledger.end(stream)
        case "write-granted" if stream is not None:
            ledger.give(
                stream,
                who,
                Right(record.seq, f.get("expires_at"), f.get("max_frames"), f.get("conditions"), counted=record.seq),
            )
            if f.get("conditions") is not None:
                ledger.end_standing(stream, who)
            ledger.settle(stream, f["authorized_writers"], record.seq)
        case "write-revoked" if stream is not None:
            ledger.take(stream, who)
            if f.get("request_id") is not None:
                ledger.end_standing(stream, who)
            ledger.settle(stream, f["authorized_writers"], record.seq)
        case "write-requested" if stream is not None:
            ledger.ask(stream, who)
        case "write-denied" if stream is not None:
            ledger.answer(stream, who)
        case "ownership-transferred" if stream is not None:
            ledger.change(stream, owner=f["new_owner"])
            ledger.give(stream, f["new_owner"], Right(record.seq))
            if f["previous_owner"] not in f["authorized_writers"]:
                ledger.take(stream, f["previous_owner"])
                ledger.end_standing(stream, f["previous_owner"])
            ledger.settle(stream, f["authorized_writers"], record.seq)
            ledger.set_timer(("owner_left", stream.id, ""), None)
            if f["new_owner"] not in space.people and (space.whole or f["new_owner"] in space.gone):
                ledger.await_owner(stream, record.ts)
        case "read-granted" | "read-revoked" if stream is not None and f.get("authorized_readers") is not None:
            ledger.set_readers(stream, f["authorized_readers"])
