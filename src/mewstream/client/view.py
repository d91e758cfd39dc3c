"""What a participant knows of its space: the welcome, and then a fold over what the gateway tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from mewstream.client import events, loose
from mewstream.client.errors import refusal
from mewstream.client.messages import Message
from mewstream.client.stream import Stream
from mewstream.protocol import kinds


class Participant(msgspec.Struct, frozen=True):
    """Somebody who is here. ``capabilities`` are those at the time of joining."""

    id: str
    capabilities: list[Any] = []


class Participants(Mapping[str, Participant]):
    """The others who are here, by id. It follows their coming and going."""

    def __init__(self) -> None:
        self._present: dict[str, Participant] = {}

    def __getitem__(self, id: str) -> Participant:
        return self._present[id]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._present))

    def __len__(self) -> int:
        return len(self._present)

    def __repr__(self) -> str:
        return f"Participants({', '.join(self._present)})"


class Streams(Mapping[str, Stream]):
    """The streams that are open, by id; an alias finds them too."""

    def __init__(self) -> None:
        self._open: dict[str, Stream] = {}
        self._aliases: dict[str, str] = {}

    def __getitem__(self, name: str) -> Stream:
        return self._open[self._aliases.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def __repr__(self) -> str:
        return f"Streams({', '.join(self._open)})"

    def _add(self, stream: Stream) -> None:
        self._open[stream.id] = stream
        if stream.alias is not None:
            self._aliases[stream.alias] = stream.id

    def _remove(self, id: str) -> Stream | None:
        stream = self._open.pop(id, None)
        if stream is not None and stream.alias is not None and self._aliases.get(stream.alias) == id:
            del self._aliases[stream.alias]
        return stream


class View:
    """Participants, streams and our own capabilities."""

    def __init__(self, me: str, make_stream: Callable[[dict[str, Any]], Stream]) -> None:
        self.me = me
        self.capabilities: list[Any] = []
        self.participants = Participants()
        self.streams = Streams()
        self.seq: int | None = None
        self.tells_streams = False
        """Whether the gateway's welcome has ``active_streams``."""
        self._make_stream = make_stream
        self._past: dict[str, Stream] = {}
        """Streams that ended while we were away, until what was missed has told how."""
        self.lacks_streams = False
        """There are more than the welcome had room for: they are listed, page by page."""
        self.lacks_participants = False
        self._unlisted: set[str] = set()
        """Streams that we knew before the welcome, and that no page has listed yet."""
        self._unmet: set[str] = set()
        """Participants, in the same way."""

    def welcome(self, message: Message, *, is_told_more: bool = False) -> list[events.Event]:
        """The state at one position. The answer is what must have happened since the state before it,
        unless ``is_told_more``: the messages that say so are still to come."""
        payload = message.payload
        you = loose.as_object(payload.get("you"))
        self.me = loose.text(you.get("id")) or self.me
        self.capabilities = loose.as_list(you.get("capabilities"))
        self.seq = loose.number(payload.get("seq")) or message.seq
        self.lacks_participants = loose.number(payload.get("participants_total")) is not None
        self.lacks_streams = loose.number(payload.get("active_streams_total")) is not None
        found = self._meet(loose.objects(payload.get("participants")), message)
        self.tells_streams = "active_streams" in payload
        if self.tells_streams:
            found += self._find_streams(loose.objects(payload["active_streams"]), message, is_told_more)
        return [] if is_told_more else found

    def _meet(self, described: list[dict[str, Any]], message: Message) -> list[events.Event]:
        before = self.participants._present
        present = {
            id: Participant(id, loose.as_list(each.get("capabilities")))
            for each in described
            if (id := loose.text(each.get("id")))
        }
        gone = {id: participant for id, participant in before.items() if id not in present}
        found: list[events.Event] = []
        if self.lacks_participants:
            self._unmet = set(gone)  # perhaps a page will tell of them
            self.participants._present = present | gone
        else:
            self.participants._present = present
            found += [events.Left(id, message=message) for id in gone]
        for id, participant in present.items():
            if id not in before:
                found.append(events.Joined(id, participant.capabilities, message=message))
        return found

    def _find_streams(
        self, described: list[dict[str, Any]], message: Message, is_told_more: bool
    ) -> list[events.Event]:
        found: list[events.Event] = []
        open_now = {id: each for each in described if (id := loose.text(each.get("stream_id")))}
        self._past = {}
        self._unlisted = {id for id in self.streams if id not in open_now} if self.lacks_streams else set()
        for id in self.streams:
            if id not in open_now and id not in self._unlisted:
                self._past[id] = self.streams[id]
                found.append(self._end(id, "lost", None, None, message))
        if not is_told_more:
            self._past = {}
        for id, each in open_now.items():
            is_new = id not in self.streams
            stream = self.stream(each)
            if is_new:
                found.append(events.StreamOpened(id, stream.owner, stream, message=message))
        return found

    def listed(self, page: Message, *, is_last: bool) -> list[events.Event]:
        """A page of what the welcome had no room for. With the last one it is known who and what is gone."""
        if page.kind == kinds.PARTICIPANT_LISTED:
            return self._meet_more(loose.objects(page.payload.get("participants")), page, is_last)
        found: list[events.Event] = []
        for each in loose.objects(page.payload.get("streams")):
            id = loose.text(each.get("stream_id"))
            if id:
                is_new = id not in self.streams
                stream = self.stream(each)
                if is_new:
                    found.append(events.StreamOpened(id, stream.owner, stream, message=page))
        if is_last:
            self.lacks_streams = False
            gone, self._unlisted = self._unlisted, set()
            found += [self._end(id, "lost", None, None, page) for id in gone if id in self.streams]
        return found

    def _meet_more(self, described: list[dict[str, Any]], page: Message, is_last: bool) -> list[events.Event]:
        found: list[events.Event] = []
        present = self.participants._present
        for each in described:
            id, capabilities = loose.text(each.get("id")), loose.as_list(each.get("capabilities"))
            if id:
                self._unmet.discard(id)
                if id not in present:
                    found.append(events.Joined(id, capabilities, message=page))
                present[id] = Participant(id, capabilities)
        if is_last:
            self.lacks_participants = False
            gone, self._unmet = self._unmet, set()
            found += [events.Left(id, message=page) for id in gone if present.pop(id, None) is not None]
        return found

    def stream(self, described: dict[str, Any]) -> Stream:
        """The stream of a description; the same object for as long as it is open."""
        id = described["stream_id"]
        self._unlisted.discard(id)
        known = self.streams._open.get(id)
        if known is not None:
            known._describe_again(described)
            return known
        stream = self._past.get(id)
        if stream is not None and stream.is_open:  # what was missed has told of it before the page that lists it
            stream._describe_again(described)
        else:
            stream = self._make_stream(described)
        self.streams._add(stream)
        return stream

    def apply(self, message: Message) -> events.Event | None:
        """What a message tells. What the welcome has told already changes nothing any more."""
        is_history = message.seq is not None and self.seq is not None and message.seq <= self.seq
        if self._past and not is_history and not self.lacks_streams:
            self._past = {}
        teller = _TELLERS.get(message.kind) if message.is_from_gateway or message.kind in _OF_ANYONE else None
        if teller is None:
            return events.Received(message.kind, message.sender, message=message)
        return teller(self, message, is_history)

    def _end(
        self, id: str, how: str, reason: str | None, by: str | None, message: Message | None
    ) -> events.StreamClosed:
        stream = self.streams._remove(id)
        if stream is not None:
            stream._ended(how)
        return events.StreamClosed(id, how, reason, by, message=message)

    # -- one method for each kind -------------------------------------------------------------------

    def _presence(self, message: Message, is_history: bool) -> events.Event | None:
        who = loose.as_object(message.payload.get("participant"))
        id, capabilities = loose.text(who.get("id")), loose.as_list(who.get("capabilities"))
        if not id:
            return None
        match message.payload.get("event"):
            case "join":
                if not is_history and id != self.me:
                    self.participants._present[id] = Participant(id, capabilities)
                    self._owner_is_here(id, True)
                return events.Joined(id, capabilities, message=message)
            case "leave":
                if not is_history:
                    self.participants._present.pop(id, None)
                    self._owner_is_here(id, False)
                return events.Left(id, message=message)
            case "invited":
                return events.Invited(id, loose.text(message.payload.get("by")) or "", message=message)
        return events.Received(message.kind, message.sender, message=message)

    def _owner_is_here(self, owner: str, is_here: bool) -> None:
        for stream in self.streams.values():
            if stream.owner == owner:
                stream._update(owner_connected=is_here)

    def _opened(self, message: Message, is_history: bool) -> events.Event | None:
        described = loose.as_object(message.payload.get("stream", message.payload))
        id = loose.text(described.get("stream_id"))
        if not id:
            return None
        if "owner" not in described and len(message.to) == 1:
            described = {**described, "owner": message.to[0]}
        if is_history:
            known = self.streams._open.get(id) or self._past.get(id)
            stream = self._past[id] = known or self._make_stream(described)
        else:
            stream = self.stream(described)
        stream._opened_by.update((message.id, *message.correlation_id))
        return events.StreamOpened(id, stream.owner, stream, message=message)

    def _started(self, message: Message, is_history: bool) -> events.Event:
        id = message.stream_id
        stream = self.streams.get(id)
        if stream is not None and not is_history:
            stream._started()
        return events.StreamStarted(id, message=message)

    def _closed(self, message: Message, is_history: bool) -> events.Event:
        id = message.stream_id or self._correlated(message)
        how = _ENDINGS[message.kind]
        reason = loose.text(message.payload.get("reason")) or loose.text(message.payload.get("message"))
        if is_history and id not in self._unlisted:
            past = self._past.pop(id, None)
            if past is not None and id not in self.streams:
                past._ended(how)
            return events.StreamClosed(id, how, reason, message.sender, message=message)
        return self._end(id, how, reason, message.sender, message)

    def _correlated(self, message: Message) -> str:
        """A close that names its stream by the request that opened it, or by the answer to that."""
        for id, stream in (self.streams._open | self._past).items():
            if stream._opened_by.intersection(message.correlation_id):
                return id
        return ""

    def _right(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        id, participant = message.stream_id, loose.text(payload.get("participant_id")) or ""
        given = loose.as_object(payload.get("conditions")) or None
        stream = self.streams.get(id)
        if stream is not None and not is_history:
            told: dict[str, Any] = {key: payload[key] for key in _RIGHTS if key in payload}
            if message.kind in (kinds.WRITE_GRANTED, kinds.WRITE_REVOKED):
                conditions = stream.conditions
                conditions.pop(participant, None)
                if given is not None and message.kind == kinds.WRITE_GRANTED:
                    conditions[participant] = given
                told["conditions"] = conditions
            stream._update(**told)
        by, reason = loose.text(payload.get("by")), loose.text(payload.get("reason"))
        if message.kind == kinds.WRITE_GRANTED:
            return events.WriteGranted(id, participant, by, reason, given, message=message)
        kind = {
            kinds.WRITE_REVOKED: events.WriteRevoked,
            kinds.READ_GRANTED: events.ReadGranted,
            kinds.READ_REVOKED: events.ReadRevoked,
        }[message.kind]
        return kind(id, participant, by, reason, message=message)

    def _transferred(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        id, new_owner = message.stream_id, loose.text(payload.get("new_owner")) or ""
        stream = self.streams.get(id)
        if stream is not None and not is_history:
            conditions = stream.conditions
            conditions.pop(new_owner, None)
            told = {"owner": new_owner, "owner_connected": True, "conditions": conditions}
            if "authorized_writers" in payload:
                told["authorized_writers"] = payload["authorized_writers"]
            stream._update(**told)
        return events.OwnershipTransferred(
            id,
            loose.text(payload.get("previous_owner")) or "",
            new_owner,
            loose.text(payload.get("by")),
            loose.text(payload.get("reason")),
            message=message,
        )

    def _error(self, message: Message, is_history: bool) -> events.Event:
        return events.Refused(refusal(message.payload), message=message)

    def _notice(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        if payload.get("notice") == "frames_dropped":
            return events.Gap(
                message.stream_id,
                loose.number(payload.get("count")),
                "the gateway dropped them: this reader was too slow",
                message=message,
            )
        return events.Received(message.kind, message.sender, message=message)

    def _chat(self, message: Message, is_history: bool) -> events.Event:
        return events.Chat(message.sender, loose.text(message.payload.get("text")) or "", message=message)

    def _request(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        method = loose.text(payload.get("method")) or ""
        return events.Requested(message.sender, method, payload.get("params"), message.to, message=message)

    def _proposal(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        method = loose.text(payload.get("method")) or ""
        return events.Proposed(message.id, message.sender, method, payload.get("params"), message.to, message=message)

    def _withdrawn(self, message: Message, is_history: bool) -> events.Event:
        proposal = next(iter(message.correlation_id), "")
        return events.ProposalWithdrawn(
            proposal, message.sender, loose.text(message.payload.get("reason")), message=message
        )

    def _declined(self, message: Message, is_history: bool) -> events.Event:
        proposal = next(iter(message.correlation_id), "")
        return events.ProposalDeclined(
            proposal, message.sender, loose.text(message.payload.get("reason")), message=message
        )


_RIGHTS = ("authorized_writers", "authorized_readers")
_ENDINGS = {
    kinds.STREAM_CLOSE: "closed",
    kinds.STREAM_COMPLETE: "completed",
    kinds.STREAM_ERROR: "failed",
}

#: The gateway relays these only from those who may send them.
_OF_ANYONE = frozenset(
    {
        *(kinds.STREAM_START, kinds.STREAM_CLOSE, kinds.STREAM_COMPLETE, kinds.STREAM_ERROR),
        *(kinds.CHAT, kinds.MCP_REQUEST, kinds.MCP_PROPOSAL, kinds.MCP_WITHDRAW, kinds.MCP_REJECT),
    }
)

_TELLERS: dict[str, Callable[[View, Message, bool], events.Event | None]] = {
    kinds.PRESENCE: View._presence,
    kinds.STREAM_OPEN: View._opened,
    kinds.STREAM_READY: View._opened,
    kinds.STREAM_START: View._started,
    kinds.STREAM_CLOSE: View._closed,
    kinds.STREAM_COMPLETE: View._closed,
    kinds.STREAM_ERROR: View._closed,
    kinds.WRITE_GRANTED: View._right,
    kinds.WRITE_REVOKED: View._right,
    kinds.READ_GRANTED: View._right,
    kinds.READ_REVOKED: View._right,
    kinds.OWNERSHIP_TRANSFERRED: View._transferred,
    kinds.ERROR: View._error,
    kinds.NOTICE: View._notice,
    kinds.CHAT: View._chat,
    kinds.MCP_REQUEST: View._request,
    kinds.MCP_PROPOSAL: View._proposal,
    kinds.MCP_WITHDRAW: View._withdrawn,
    kinds.MCP_REJECT: View._declined,
}
