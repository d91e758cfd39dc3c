"""What the gateway may do by itself: joins and leaves, what falls due, and what follows from both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mewstream.audit.records import ControlRecord, Expected, Refusal, Unjudged, need, rule
from mewstream.audit.rights import after_transfer
from mewstream.audit.state import SECOND, Ledger, Stream, Timer
from mewstream.protocol import kinds

MAX_PROJECTIONS = 256


CountFrames = Callable[[str, str, int, int | None], int]


class Event(NamedTuple):
    """A record that no envelope has asked for, and the state that it meets."""

    ledger: Ledger
    record: ControlRecord
    fields: dict[str, Any]
    frames: CountFrames | None = None

    @property
    def participant(self) -> str:
        return str(self.fields["participant"])


# -- runs, time, participants ---------------------------------------------------------------------


@rule("When the owner leaves")
def clock(event: Event) -> list[Expected]:
    """The time of a space that runs back; a jump of the clock that moves deadlines without cause, or pauses that it
    does not move."""
    space, by, shift = event.ledger.space, event.fields["by"], event.fields.get("shift", 0)
    passed = event.record.ts - space.ts
    need(0 <= shift <= max(by, 0) and shift <= passed + SECOND, "", f"it moves deadlines by {shift} without cause")
    before = event.record.ts - shift
    moved = [(who, until, id) for who, (until, id) in space.paused.items() if shift and until and until > before]
    by_gateway = {"by": kinds.GATEWAY}
    return [
        Expected("paused", {"participant": who, "until": until + shift, "request_id": id, **by_gateway})
        for who, until, id in moved
    ]


@rule("Who is in the space")
def join(event: Event) -> list[Expected]:
    """Somebody who may not join, or beyond the limit, or as another connection than it is, or with other capabilities
    than it has."""
    space, fields, who = event.ledger.space, event.fields, event.participant
    need(space.has(who in space.roster), "", f"{who} is no participant of this space")
    need(who not in space.banned, "", f"{who} is banned")
    room = len(space.people) < space.setting("limits", "participants_per_space")
    need(who in space.people or room, "", "participants_per_space is reached")
    was = {"resumed": space.people.get(who) is False, "replaced": space.people.get(who) is True}
    space.has(who in space.people or who in space.gone)
    wrong = [key for key, value in was.items() if fields.get(key, False) != value]
    need(not wrong, "", f"{', '.join(wrong)} is not as {who} was here before")
    need(not fields.get("continues") or who in space.people, "", f"{who} continues a session that is over")
    listed, own = fields["capabilities"], space.patterns(who)
    mirrored = {kinds.WRITE_PROJECTION + each for each in event.ledger.writes.get(who, ())}
    mirrored |= {kinds.READ_PROJECTION + each for each in event.ledger.reads.get(who, ())}
    shown = [each["kind"] for each in listed[len(own) :]]
    complete = len(shown) == len(set(shown)) == min(len(mirrored), MAX_PROJECTIONS) and mirrored.issuperset(shown)
    is_told = any(event.ledger.space.streams[each].disputed for each in event.ledger.writes.get(who, ())) or complete
    need(space.has(listed[: len(own)] == own and is_told), "", f"{who} is told other capabilities than it has")
    return []


@rule("The welcome")
def welcome(event: Event) -> list[Expected]:
    """A participant that is told of other participants, streams, owners, writers, readers, states or conditions than
    there are: the digest of its welcome is not that of the state."""
    space, told = event.ledger.space, event.fields.get("welcome_digest")
    if told is None and not space.tells:
        raise Unjudged("its digest is not recorded")
    need(told is not None, "", "its digest is missing")
    space.tells = True
    right, doubtful = event.ledger.welcome_digest == told, space.doubtful
    event.ledger.welcome_digest, space.doubtful = str(told), False
    if not space.whole or (doubtful and not right):
        raise Unjudged("there was a finding before" if space.whole else "the log begins in the middle")
    need(right, "", "the welcome does not describe the state")
    return []


@rule("auto_grant")
def standing_grants(event: Event) -> list[Expected]:
    """A standing grant that a join did not carry out, or carried out otherwise."""
    ledger, who = event.ledger, event.participant
    most = ledger.space.setting("limits", "writers_per_stream")
    streams = [ledger.space.streams[each] for each in ledger.standing.get(who, ())]
    return [
        Expected("write-granted", {"stream_id": each.id, "participant": who, "by": each.owner, "reason": "auto_grant"})
        for each in streams
        if who not in each.writers and len(each.writers) < most
    ]


@rule("Who is in the space")
def leave(event: Event) -> list[Expected]:
    """Somebody leaves who was not here, or was kicked by nobody, or is suspended and may still come back."""
    space, who, reason = event.ledger.space, event.participant, event.fields["reason"]
    need(space.is_present(who), "", f"{who} was not here")
    need(reason not in ("kicked", "token_expired"), "", f"{who} left as {reason}, and nothing of the sort happened")
    until = space.due.get(("rejoin", who, ""))
    need(until is None or until <= event.record.ts, "", f"{who} may still come back")
    return []


@rule("Signed tokens")
def admit(event: Event) -> list[Expected]:
    """A signed token used beyond the limit."""
    space = event.ledger.space
    room = len(space.admitted) < space.setting("limits", "admissions")
    need(event.participant in space.admitted or room, "", "admissions is reached")
    return []


@rule("Signed tokens")
def admission_end(event: Event) -> list[Expected]:
    """Somebody who did not leave at the end of its signed token."""
    who, ended = event.participant, event.fields["reason"] == "expired"
    here = ended and event.ledger.space.is_present(who)
    return [Expected("left", {"participant": who, "reason": "token_expired"})] if here else []


@rule("Rights")
def revokes_on_leave(event: Event) -> list[Expected]:
    """A right to write that somebody who left did not lose."""
    who, reason = event.participant, event.fields["reason"]
    streams = [event.ledger.space.streams[each] for each in event.ledger.writes.get(who, ())]
    return [_revoke(each, who, reason) for each in streams if each.owner != who]


def _revoke(stream: Stream, writer: str, reason: str) -> Expected:
    writers = [each for each in stream.listed() if each != writer]
    told = {"authorized_writers": writers, "by": kinds.GATEWAY, "reason": reason}
    return Expected("write-revoked", {"stream_id": stream.id, "participant": writer, **told})


@rule("Who is in the space")
def suspend(event: Event) -> list[Expected]:
    """Somebody suspended who was not here, or for another time than the policies say."""
    space, who, until = event.ledger.space, event.participant, event.fields["until"]
    need(space.is_present(who), "", f"{who} was not here")
    times = [event.record.ts + round(space.setting("policies", key) * SECOND) for key in _GRACES]
    earlier = space.due.get(("rejoin", who, ""), 0)
    need(until in [max(each, earlier) for each in times], "", f"{who} is expected back until another time")
    return []


_GRACES = ("reconnect_grace", "suspend_for")


@rule("Frames")
def frames_dropped(event: Event) -> list[Expected]:
    """Missed frames that cannot have been missed: more than there were, or later than now."""
    first, last, count = (event.fields[key] for key in ("first_seq", "last_seq", "count"))
    need(0 < first <= last < event.record.seq and 0 < count <= last - first + 1, "", "there were no such frames")
    return []


# -- what falls due -------------------------------------------------------------------------------


@rule("Conditional grants")
def expiry(ledger: Ledger, timer: Timer) -> Expected:
    """A right that was not revoked when it expired, or was revoked as expired and was not."""
    return _revoke(ledger.space.streams[timer[1]], timer[2], "expired")


@rule("Conditional grants")
def spent(event: Event) -> list[Expected]:
    """A right that was revoked as used up, and had no such condition, or not so many frames."""
    stream = event.ledger.space.streams.get(event.fields["stream_id"])
    right = stream.writers.get(event.participant) if stream is not None else None
    if stream is None or right is None or right.max_frames is None:
        raise Refusal("", f"{event.participant} had no right that frames use up")
    count = used(event.frames, stream, event.participant, event.record.seq)
    need(count in (None, right.max_frames), "", f"it was good for {right.max_frames} frames, and {count} were written")
    return [_revoke(stream, event.participant, "max_frames")]


def used(frames: CountFrames | None, stream: Stream, writer: str, before: int | None) -> int | None:
    """How many frames were written under a right that frames use up. None if nobody counts them, or
    if those below it use it up too."""
    if frames is None or stream.delegated:
        return None
    right = stream.writers[writer]
    right.used += frames(stream.id, writer, right.counted, before)
    right.counted = before or right.counted
    return right.used


@rule("Open by handshake: stream/announce")
def start_timeout(ledger: Ledger, timer: Timer) -> Expected:
    """An announced stream that was not ended though it was not started in time, or was ended too early."""
    told = {"how": "failed", "by": kinds.GATEWAY, "code": "start_timeout"}
    return Expected("stream-ended", {"stream_id": timer[1], **told})


@rule("When the owner leaves")
def owner_left(ledger: Ledger, timer: Timer) -> Expected:
    """A stream whose owner is gone that was not transferred or closed in time, or too early, or to the wrong heir."""
    space, stream = ledger.space, ledger.space.streams[timer[1]]
    told = {"stream_id": stream.id, "by": kinds.GATEWAY, "reason": "owner_left"}
    heirs = [each for each in stream.writers if each != stream.owner and space.is_present(each) and space.people[each]]
    if stream.on_owner_leave == "close" or not heirs:
        return Expected("stream-ended", {"how": "closed", **told})
    heir = min(heirs, key=lambda each: stream.writers[each].since)
    handed = {"previous_owner": stream.owner, "new_owner": heir}
    writers = after_transfer(stream, heir, retain=False)
    return Expected("ownership-transferred", {"authorized_writers": writers, **handed, **told})


@rule("Paused and shut down")
def pause_end(ledger: Ledger, timer: Timer) -> Expected:
    """A pause that did not end in time, or ended too early."""
    id = ledger.space.paused[timer[1]][1]
    return Expected("unpaused", {"participant": timer[1], "by": kinds.GATEWAY, "request_id": id})


@rule("Rights")
def rejoin(ledger: Ledger, timer: Timer) -> Expected:
    """Somebody who was suspended, did not come back in time, and did not leave."""
    return Expected("left", {"participant": timer[1], "reason": "disconnected"})


@rule("Signed tokens")
def admission(ledger: Ledger, timer: Timer) -> Expected:
    """A signed token that did not end in time, or was taken for ended too early."""
    return Expected("admission-ended", {"participant": timer[1], "reason": "expired"})


@rule("Who is in the space")
def ban_end(ledger: Ledger, timer: Timer) -> Expected:
    """A ban that did not end in time, or ended too early."""
    return Expected("unbanned", {"participant": timer[1], "by": kinds.GATEWAY})


@rule("Invitations")
def invitation_end(ledger: Ledger, timer: Timer) -> Expected:
    """An invitation that did not end in time, or ended too early."""
    return Expected("uninvited", {"participant": timer[1], "by": kinds.GATEWAY, "reason": "expired"})


@rule("Ending")
def idle(event: Event) -> list[Expected]:
    """A stream closed as idle that has no such time limit, or was changed within it."""
    stream = event.ledger.space.streams.get(event.fields["stream_id"])
    if stream is None or not stream.idle or event.record.ts < stream.touched + round(stream.idle * SECOND):
        raise Refusal("", "the stream was not idle for as long as it may be")
    return [Expected("stream-ended", {"stream_id": stream.id, "how": "closed", "by": kinds.GATEWAY, "reason": "idle"})]


@rule("Names")
def reuse(event: Event) -> list[Expected]:
    """A stream given back to somebody who does not own it."""
    stream = event.ledger.space.streams.get(event.fields["stream_id"])
    owner = stream.owner if stream is not None else None
    need(owner == event.fields["owner"], "", f"the stream is {owner}'s")
    return []


BY_TIME = {
    each.__name__: each
    for each in (admission, ban_end, invitation_end, expiry, start_timeout, owner_left, pause_end, rejoin)
}


def timer_of(record: str, fields: dict[str, Any]) -> Timer | None:
    """By which timer the gateway may have written a record."""
    stream, participant = str(fields.get("stream_id")), str(fields.get("participant"))
    if record == "admission-ended" and fields.get("reason") == "expired":
        return "admission", participant, ""
    if fields.get("by") != kinds.GATEWAY:
        return None
    match record, fields.get("code"), fields.get("reason"):
        case "write-revoked", _, "expired":
            return "expiry", stream, participant
        case "stream-ended", "start_timeout", _:
            return "start_timeout", stream, ""
        case (("stream-ended" | "ownership-transferred"), _, "owner_left"):
            return "owner_left", stream, ""
        case "unbanned", _, _:
            return "ban_end", participant, ""
        case "uninvited", _, "expired":
            return "invitation_end", participant, ""
        case "unpaused", _, _:
            return "pause_end", participant, ""
    return None
