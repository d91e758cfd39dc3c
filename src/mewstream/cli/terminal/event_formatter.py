"""Describing events in words for people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from mewstream.cli.duplicates import is_duplicate
from mewstream.cli.terminal.lines import Line, Piece, as_json, as_text, listed, short
from mewstream.client import events
from mewstream.client.frame import Frame
from mewstream.client.messages import Message
from mewstream.client.stream import Stream
from mewstream.protocol import kinds

_PAYLOAD_CHARACTERS = 200
#: The verb for each kind that controls other participants.
_CONTROLS = {
    kinds.PAUSE: ("warn", " pauses "),
    kinds.RESUME: ("good", " resumes "),
    kinds.SHUTDOWN: ("bad", " shuts down "),
    kinds.RESTART: ("warn", " restarts "),
    kinds.CLEAR: ("warn", " clears the memory of "),
    kinds.FORGET: ("warn", " shortens the memory of "),
    kinds.COMPACT: ("warn", " compacts the memory of "),
    kinds.REQUEST_STATUS: ("dim", " asks for the status of "),
}


def stamped(*pieces: Piece, ts: str | None = None) -> Line:
    """Return a line that begins with the time of day."""
    return [("time", f"{_local_time(ts)} "), *pieces]


def _local_time(ts: str | None) -> str:
    try:
        moment = datetime.fromisoformat(ts).astimezone() if ts else datetime.now().astimezone()
    except (ValueError, OverflowError):
        moment = datetime.now().astimezone()
    return moment.strftime("%H:%M:%S")


class EventFormatter:
    """Describes events, and each operation only once unless ``shows_all`` is true.

    ``has_asked`` says whether the message with an id is a request of this terminal, whose answer is shown as the result
    of a command."""

    def __init__(
        self, me: str, *, has_asked: Callable[[str], bool] = lambda id: False, shows_all: bool = False
    ) -> None:
        self._me = me
        self._has_asked = has_asked
        self._shows_all = shows_all
        self._kicked: set[str] = set()
        self._expects_own_change = False

    def who(self, name: str | None) -> Piece:
        if name == self._me:
            return "me", name
        return "who", name or "somebody"

    def line(self, event: events.Event, *, number: int | None = None) -> Line | None:
        """Return the line for an event; None if another line says the same. ``number`` is the number of a proposal."""
        if self._is_shown_otherwise(event) and not self._shows_all:
            return None
        pieces = self._pieces(event, number)
        ts = event.message.ts if event.message is not None else None
        return stamped(*pieces, ts=ts) if pieces else None

    def _is_shown_otherwise(self, event: events.Event) -> bool:
        """Return whether another line, before or after this one, says the same."""
        match event:
            case events.Received(kind=kinds.KICK, message=message) if message is not None:
                self._kicked.add(str(message.payload.get("participant_id")))
            case events.Left(participant=who) if who in self._kicked:
                self._kicked.discard(who)
                return True
            case events.Received(kind=kinds.CAPABILITY_GRANT | kinds.CAPABILITY_REVOKE, message=message):
                self._expects_own_change = message is not None and message.payload.get("recipient") == self._me
            case events.CapabilitiesChanged() if self._expects_own_change:
                self._expects_own_change = False
                return True
            case events.Requested(sender=self._me, message=message) if message is not None:
                return self._has_asked(message.id)
            case events.Notified():
                return True  # what it is about is shown: a call, or a list that somebody asks for
            case events.Received(kind=kinds.MCP_RESPONSE, message=message) if message is not None:
                return any(map(self._has_asked, message.correlation_id))
        return is_duplicate(event)

    def _pieces(self, event: events.Event, number: int | None) -> Line:
        match event:
            case events.Chat():
                return self._chat(event)
            case events.Joined(participant=who):
                return [("good", "+ "), self.who(who), ("dim", " joined")]
            case events.Left(participant=who):
                return [("warn", "- "), self.who(who), ("dim", " left")]
            case events.Suspended(participant=who):
                return [("warn", "~ "), self.who(who), ("dim", " has lost its connection")]
            case events.Returned(participant=who):
                return [("good", "~ "), self.who(who), ("dim", " is connected again")]
            case events.Invited(participant=who, by=by):
                return [self.who(by), ("plain", " invited "), self.who(who)]
            case events.CapabilitiesChanged(capabilities=capabilities):
                return [("warn", "you may now do: "), ("plain", summary(capabilities))]
            case events.Requested() | events.Proposed():
                return self._asked(event, number)
            case events.ProposalWithdrawn(by=by, reason=reason):
                return [self.who(by), ("plain", f" withdrew proposal {_number(number)}"), *_because(reason)]
            case events.ProposalDeclined(by=by, reason=reason):
                return [self.who(by), ("plain", f" rejected proposal {_number(number)}"), *_because(reason)]
            case events.Refused(error=error):
                return [("bad", f"refused: {error.message}"), ("dim", f" ({error.code})")]
            case events.Received(message=message) | events.Notified(message=message) if message is not None:
                return self._received(message)
            case events.Instructed(message=message) | events.StatusReported(message=message) if message is not None:
                return self._received(message)
            case events.Gap(stream=stream, count=count, reason=reason):
                many = f"{count} frames" if count is not None else "frames"
                where = f" of {stream}" if stream is not None else ""
                return [("warn", f"{many}{where} are missing: {reason}")]
            case events.Disconnected(reason=reason):
                return [("bad", "connection lost, trying again"), *_because(reason)]
            case events.Resumed():
                return self._resumed(event)
        return self._of_a_stream(event)

    def _chat(self, event: events.Chat) -> Line:
        to = [each for each in event.message.to if each] if event.message is not None else []
        addressed: Line = [("dim", f" to {listed(to)}")] if to else []
        return [self.who(event.sender), *addressed, ("dim", ": "), ("plain", event.text)]

    def _asked(self, event: events.Requested | events.Proposed, number: int | None) -> Line:
        params = "" if event.params is None else f" {short(as_json(event.params), _PAYLOAD_CHARACTERS)}"
        what = ("plain", f"{event.method}{params}")
        if isinstance(event, events.Requested):
            return [self.who(event.sender), ("dim", f" asks {_everyone(event.to)}: "), what]
        asked: Line = [("ask", f"proposal {_number(number)} "), ("plain", "by "), self.who(event.sender)]
        asked += [("plain", f" to {listed(event.to)}: ") if event.to else ("plain", ": "), what]
        if number is not None:
            asked.append(("dim", f"  (/approve {number} or /reject {number})"))
        return asked

    def _of_a_stream(self, event: events.Event) -> Line:
        match event:
            case events.StreamOpened(stream=id, owner=owner, handle=stream):
                opened = (
                    "announced" if event.message is not None and event.message.kind == kinds.STREAM_READY else "opened"
                )
                return [self.who(owner), ("plain", f" {opened} "), *named(id, stream), *self._described(stream)]
            case events.StreamStarted(stream=id):
                return [("stream", id), ("good", " is live")]
            case events.StreamClosed(stream=id, how=how, reason=reason, by=by):
                ended = "ended while we were away" if how == "lost" else how
                return [("stream", id or "a stream"), ("warn", f" {ended}"), *self._by(by), *_because(reason)]
            case events.WriteGranted(stream=id, participant=who, by=by, reason=reason, conditions=conditions):
                return [
                    *(self.who(who), ("good", " may write to "), ("stream", id)),
                    *(("dim", terms(conditions)), *self._by(by), *_because(reason)),
                ]
            case events.WriteRevoked(stream=id, participant=who, by=by, reason=reason):
                return [self.who(who), ("warn", " may not write to "), ("stream", id), *self._by(by), *_because(reason)]
            case events.WriteRequested(stream=id, participant=who, reason=reason):
                asks = [self.who(who), ("ask", " asks to write to "), ("stream", id), *_because(reason)]
                return [*asks, ("dim", f"  (/grant {id} {who}, /hand-over {id} {who} or /deny {id} {who})")]
            case events.WriteDenied(stream=id, participant=who, by=by, reason=reason):
                return [
                    *(self.who(who), ("warn", " does not get to write to "), ("stream", id)),
                    *(*self._by(by), *_because(reason)),
                ]
            case events.ReadGranted(stream=id, participant=who, by=by, reason=reason):
                return [self.who(who), ("good", " may read "), ("stream", id), *self._by(by), *_because(reason)]
            case events.ReadRevoked(stream=id, participant=who, by=by, reason=reason):
                return [self.who(who), ("warn", " may not read "), ("stream", id), *self._by(by), *_because(reason)]
            case events.OwnershipTransferred(stream=id, previous_owner=before, new_owner=owner, by=by, reason=reason):
                return [
                    *(("stream", id), ("good", " now belongs to "), self.who(owner)),
                    *(("dim", f", before to {before}"), *self._by(by), *_because(reason)),
                ]
        return []

    def _received(self, message: Message) -> Line:
        payload = message.payload
        if message.kind == kinds.KICK:
            kicked = str(payload.get("participant_id", "somebody"))
            return [self.who(message.sender), ("warn", " kicked "), self.who(kicked), *_because(payload.get("reason"))]
        if message.kind in (kinds.CAPABILITY_GRANT, kinds.CAPABILITY_REVOKE) and not self._shows_all:
            return self._capabilities(message)
        if message.kind in _CONTROLS and message.to and not self._shows_all:
            return self._controlled(message)
        told = short(as_json(payload), _PAYLOAD_CHARACTERS)
        if message.kind == kinds.MCP_RESPONSE:
            return [self.who(message.sender), ("dim", f" answers {_everyone(message.to)}: {told}")]
        return [self.who(message.sender), ("dim", f" {message.kind} {told}")]

    def _controlled(self, message: Message) -> Line:
        payload = message.payload
        whom = [piece for name in message.to for piece in (("dim", ", "), self.who(name))][1:]
        if message.kind == kinds.RESUME and message.is_from_gateway:
            return [("plain", "the pause of "), *whom, ("plain", " is over")]
        style, verb = _CONTROLS[message.kind]
        seconds = payload.get("timeout_seconds")
        span = f" for {seconds:g} seconds" if isinstance(seconds, int | float) else ""
        return [self.who(message.sender), (style, verb), *whom, ("plain", span), *_because(payload.get("reason"))]

    def _capabilities(self, message: Message) -> Line:
        payload = message.payload
        style, verb = ("good", " lets ") if message.kind == kinds.CAPABILITY_GRANT else ("warn", " takes from ")
        patterns = payload.get("capabilities")
        what = summary(patterns) if isinstance(patterns, list) else f"what was granted as {payload.get('grant_id')}"
        recipient = str(payload.get("recipient", "somebody"))
        return [
            *(self.who(message.sender), (style, verb), self.who(recipient), ("plain", f": {what}")),
            *_because(payload.get("reason")),
        ]

    def _resumed(self, event: events.Resumed) -> Line:
        line: Line = [("good", "connected again")]
        if event.recovered:
            line.append(("dim", ", nothing was missed"))
        else:
            line += [("warn", ", but something may have been missed"), *_because(event.reason)]
        if event.unconfirmed:
            line.append(("warn", f"; {event.unconfirmed} frames of ours may be lost"))
        return line

    def withdrawn_by_another(self, by: str, number: int) -> Line:
        return stamped(self.who(by), ("bad", f" cannot withdraw proposal {number} of another: it stays open"))

    def frame(self, frame: Frame, *, skipped: int = 0) -> Line:
        """Return the line for a watched frame. ``skipped`` frames before it arrived too fast to be shown."""
        missing: Line = [("dim", f"[{skipped} more] ")] if skipped else []
        if frame.gap:
            missing.append(("warn", f"[{frame.gap} missing] "))
        by: Line = [("dim", " "), self.who(frame.writer)] if frame.writer else []
        number = f" #{frame.sequence}" if frame.sequence is not None else ""
        data = as_text(frame.data, is_text=frame.is_text)
        return stamped(*missing, ("stream", frame.stream), *by, ("dim", f"{number} | "), ("plain", data))

    def _described(self, stream: Stream) -> Line:
        line: Line = [("plain", f": {stream.description}")] if stream.description else []
        if stream.status == "ready":
            how = f": /start {stream.alias or stream.id} makes it live" if stream.owner == self._me else ""
            line.append(("dim", f" (not started{how})"))
        return line

    def _by(self, who: str | None) -> Line:
        return [("dim", " by "), self.who(who)] if who else []


def _because(reason: Any) -> Line:
    return [("dim", f" ({reason})")] if reason else []


def _number(number: int | None) -> str:
    return "of before" if number is None else str(number)


def _everyone(to: list[str]) -> str:
    return listed(to) if to else "everyone"


def named(id: str, stream: Stream) -> Line:
    return [("stream", id), ("dim", f" ({stream.alias})" if stream.alias else "")]


def terms(conditions: dict[str, Any] | None) -> str:
    """Return the conditions of a grant, in words."""
    parts = []
    if conditions and conditions.get("expires_at"):
        parts.append(f"until {conditions['expires_at']}")
    if conditions and conditions.get("max_frames") is not None:
        parts.append(f"for {conditions['max_frames']} frames")
    return f" {', '.join(parts)}" if parts else ""


def summary(capabilities: list[Any]) -> str:
    """Return the kinds in a list of capabilities, without duplicates."""
    found = [str(each.get("kind", "?")) if isinstance(each, dict) else str(each) for each in capabilities]
    return short(", ".join(dict.fromkeys(found)) or "nothing", _PAYLOAD_CHARACTERS)
