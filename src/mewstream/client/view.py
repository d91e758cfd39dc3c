"""What a participant knows of its space: the state in the welcome, and every change since then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from mewstream.client import delegations, events, untrusted
from mewstream.client.errors import refusal
from mewstream.client.mcp import is_notification
from mewstream.client.messages import Message
from mewstream.client.status import status_of
from mewstream.client.stream import Stream
from mewstream.protocol import kinds

T = TypeVar("T")


class Participant(msgspec.Struct, frozen=True):
    """A participant in the space. ``capabilities`` are those at the time of joining."""

    id: str
    capabilities: list[Any] = []


class _LiveMapping(Mapping[str, T]):
    """A view that changes under its reader: iterating gives what was in it at the beginning."""

    def __init__(self) -> None:
        self._by_id: dict[str, T] = {}

    def __getitem__(self, id: str) -> T:
        return self._by_id[id]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._by_id))

    def __len__(self) -> int:
        return len(self._by_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._by_id)})"


class Participants(_LiveMapping[Participant]):
    """The other participants by id, kept up to date as they join and leave."""


class Streams(_LiveMapping[Stream]):
    """The open streams by id, kept up to date. They can be looked up by alias too."""

    def __init__(self) -> None:
        super().__init__()
        self._aliases: dict[str, str] = {}

    def __getitem__(self, name: str) -> Stream:
        return self._by_id[self._aliases.get(name, name)]

    def _add(self, stream: Stream) -> None:
        self._by_id[stream.id] = stream
        if stream.alias is not None:
            self._aliases[stream.alias] = stream.id

    def _remove(self, id: str) -> Stream | None:
        stream = self._by_id.pop(id, None)
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
        """The position of the newest welcome: messages up to there are replayed, and change no state."""
        self.lists_streams = False
        """Whether the gateway lists ``active_streams`` in its welcome."""
        self.lacks_streams = False
        """Whether the welcome had no room for all streams, so that pages of them are still to come."""
        self.lacks_participants = False
        """The same for participants."""
        self.make_stream = make_stream
        self._replayed: dict[str, Stream] = {}
        """Streams that are not open any more and that the replay after a resume may still mention."""
        self._unlisted_streams: set[str] = set()
        """Streams that were open before the welcome and that no page has listed yet."""
        self._unlisted_participants: set[str] = set()
        """The same for participants."""

    # -- the welcome and its pages ------------------------------------------------------------------

    def welcome(self, message: Message, *, is_replay_due: bool = False) -> list[events.Event]:
        """Take over the state in a welcome. Returns what must have happened since the state before it; nothing if
        ``is_replay_due``, for then the messages themselves are replayed."""
        payload = message.payload
        you = untrusted.as_object(payload.get("you"))
        self.me = untrusted.text(you.get("id")) or self.me
        self.capabilities = untrusted.as_list(you.get("capabilities"))
        self.seq = untrusted.number(payload.get("seq")) or message.seq
        self.lacks_participants = untrusted.number(payload.get("participants_total")) is not None
        self.lacks_streams = untrusted.number(payload.get("active_streams_total")) is not None
        self.lists_streams = "active_streams" in payload
        self._unlisted_participants = set(self.participants)
        found = self._list_participants(untrusted.objects(payload.get("participants")), message)
        if self.lists_streams:
            before, self._replayed = dict(self.streams), {}
            self._unlisted_streams = set(before)
            found += self._list_streams(untrusted.objects(payload["active_streams"]), message)
            if is_replay_due:
                self._replayed = {id: stream for id, stream in before.items() if id not in self.streams}
        return [] if is_replay_due else found

    def listed(self, page: Message, *, is_last: bool) -> list[events.Event]:
        """Take over a page of what the welcome had no room for. Returns what must have happened meanwhile."""
        if page.kind == kinds.PARTICIPANT_LISTED:
            self.lacks_participants = not is_last
            return self._list_participants(untrusted.objects(page.payload.get("participants")), page)
        self.lacks_streams = not is_last
        return self._list_streams(untrusted.objects(page.payload.get("streams")), page)

    def _list_participants(self, described: list[dict[str, Any]], message: Message) -> list[events.Event]:
        """Take over participants from a welcome or a page. When nothing is lacking any more, those that were not listed
        are gone. Returns what must have happened."""
        joined: list[events.Event] = []
        for each in described:
            id, capabilities = untrusted.text(each.get("id")), untrusted.as_list(each.get("capabilities"))
            if id:
                self._unlisted_participants.discard(id)
                if id not in self.participants:
                    joined.append(events.Joined(id, capabilities, message=message))
                self.participants._by_id[id] = Participant(id, capabilities)
        gone: list[str] = []
        if not self.lacks_participants:
            gone = [id for id in self.participants if id in self._unlisted_participants]
            self._unlisted_participants = set()
        for id in gone:
            del self.participants._by_id[id]
        return [*(events.Left(id, message=message) for id in gone), *joined]

    def _list_streams(self, described: list[dict[str, Any]], message: Message) -> list[events.Event]:
        """The same for streams."""
        opened: list[events.Event] = []
        for each in described:
            id = untrusted.text(each.get("stream_id"))
            if id:
                is_new = id not in self.streams
                stream = self.stream(each)
                if is_new:
                    opened.append(events.StreamOpened(id, stream.owner, stream, message=message))
        gone: list[str] = []
        if not self.lacks_streams:
            gone = [id for id in self.streams if id in self._unlisted_streams]
            self._unlisted_streams = set()
        return [*(self._end(id, "lost", None, None, message) for id in gone), *opened]

    def stream(self, described: dict[str, Any]) -> Stream:
        """Return the stream that is described. It is the same object for as long as the stream is open."""
        id = described["stream_id"]
        self._unlisted_streams.discard(id)
        stream = self.streams._by_id.get(id) or self._replayed.get(id)
        if stream is None or not stream.is_open:
            stream = self.make_stream(described)
        else:
            stream._describe_again(described)
        if id not in self.streams._by_id:
            self.streams._add(stream)
        return stream

    # -- messages -----------------------------------------------------------------------------------

    def apply(self, message: Message) -> events.Event | None:
        """Follow a message. Returns its event; None if it is malformed. What is replayed after a welcome changes
        nothing, for its outcome is in the welcome."""
        is_replay = message.seq is not None and self.seq is not None and message.seq <= self.seq
        if self._replayed and not is_replay and not self.lacks_streams:
            self._replayed = {}
        handler = _HANDLERS.get(message.kind) if message.is_from_gateway or message.kind in _FROM_ANYONE else None
        if handler is None:
            return events.Received(message.kind, message.sender, message=message)
        return handler(self, message, is_replay)

    def _end(
        self, id: str, how: str, reason: str | None, by: str | None, message: Message | None
    ) -> events.StreamClosed:
        stream = self.streams._remove(id)
        if stream is not None:
            stream._status = how
        return events.StreamClosed(id, how, reason, by, message=message)

    def _presence(self, message: Message, is_replay: bool) -> events.Event | None:
        described = untrusted.as_object(message.payload.get("participant"))
        id, capabilities = untrusted.text(described.get("id")), untrusted.as_list(described.get("capabilities"))
        if not id:
            return None
        match message.payload.get("event"):
            case "join":
                if not is_replay and id != self.me:
                    self.participants._by_id[id] = Participant(id, capabilities)
                    self._set_owner_connected(id, True)
                return events.Joined(id, capabilities, message=message)
            case "leave":
                if not is_replay:
                    self.participants._by_id.pop(id, None)
                    self._set_owner_connected(id, False)
                    for stream in self.streams.values():
                        stream._answered(id)
                return events.Left(id, message=message)
            case "suspended":
                if not is_replay:
                    self._set_owner_connected(id, False)
                return events.Suspended(id, untrusted.text(message.payload.get("until")), message=message)
            case "resumed":
                if not is_replay and id != self.me:
                    self.participants._by_id[id] = Participant(id, capabilities)
                    self._set_owner_connected(id, True)
                return events.Returned(id, message=message)
            case "invited":
                return events.Invited(id, untrusted.text(message.payload.get("by")) or "", message=message)
        return events.Received(message.kind, message.sender, message=message)

    def _set_owner_connected(self, owner: str, is_connected: bool) -> None:
        for stream in self.streams.values():
            if stream.owner == owner:
                stream._update(owner_connected=is_connected)

    def _opened(self, message: Message, is_replay: bool) -> events.Event | None:
        described = untrusted.as_object(message.payload.get("stream", message.payload))
        id = untrusted.text(described.get("stream_id"))
        if not id:
            return None
        if "owner" not in described and len(message.to) == 1:
            described = {**described, "owner": message.to[0]}
        if described.get("reused") is True:
            # Nothing was opened: we were given our own stream again, which the welcome has listed.
            if not is_replay:
                self.stream(described)
            return None
        if is_replay:
            known = self.streams._by_id.get(id) or self._replayed.get(id)
            stream = self._replayed[id] = known or self.make_stream(described)
        else:
            stream = self.stream(described)
        stream._opened_by.update((message.id, *message.correlation_id))
        return events.StreamOpened(id, stream.owner, stream, message=message)

    def _started(self, message: Message, is_replay: bool) -> events.Event:
        id = message.stream_id
        stream = self.streams.get(id)
        if stream is not None and not is_replay:
            stream._started()
        return events.StreamStarted(id, message=message)

    def _closed(self, message: Message, is_replay: bool) -> events.Event:
        id = message.stream_id or self._correlated(message)
        how = _ENDINGS[message.kind]
        reason = untrusted.text(message.payload.get("reason")) or untrusted.text(message.payload.get("message"))
        if is_replay and id not in self._unlisted_streams:
            replayed = self._replayed.pop(id, None)
            if replayed is not None and id not in self.streams:
                replayed._status = how
            return events.StreamClosed(id, how, reason, message.sender, message=message)
        return self._end(id, how, reason, message.sender, message)

    def _correlated(self, message: Message) -> str:
        """Return the id of the stream whose request, or the answer to it, a close refers to; empty if there is none."""
        for id, stream in (self.streams._by_id | self._replayed).items():
            if stream._opened_by.intersection(message.correlation_id):
                return id
        return ""

    def _right(self, message: Message, is_replay: bool) -> events.Event:
        payload = message.payload
        id, participant = message.stream_id, untrusted.text(payload.get("participant_id")) or ""
        given = untrusted.as_object(payload.get("conditions")) or None
        is_pending = payload.get("pending") is True
        stream = self.streams.get(id)
        if stream is not None and not is_replay:
            changes: dict[str, Any] = {key: payload[key] for key in _RIGHTS if key in payload}
            if message.kind in (kinds.WRITE_GRANTED, kinds.WRITE_REVOKED):
                conditions = stream.conditions
                conditions.pop(participant, None)
                if given is not None and message.kind == kinds.WRITE_GRANTED and not is_pending:
                    conditions[participant] = given
                changes["conditions"] = conditions
                waiting = [each for each in stream.pending_writers if each != participant]
                changes["pending_writers"] = [*waiting, participant] if is_pending else waiting
                changes["delegations"] = delegations.changed(stream.delegations, participant, payload)
            stream._update(**changes)
            if message.kind in (kinds.WRITE_GRANTED, kinds.WRITE_DENIED):
                stream._answered(participant)
        by, reason = untrusted.text(payload.get("by")), untrusted.text(payload.get("reason"))
        if message.kind == kinds.WRITE_GRANTED:
            delegate = untrusted.as_object(payload.get("delegate")) or None
            return events.WriteGranted(id, participant, by, reason, given, delegate, is_pending, message=message)
        kind = {
            kinds.WRITE_REVOKED: events.WriteRevoked,
            kinds.WRITE_DENIED: events.WriteDenied,
            kinds.READ_GRANTED: events.ReadGranted,
            kinds.READ_REVOKED: events.ReadRevoked,
        }[message.kind]
        return kind(id, participant, by, reason, message=message)

    def _transferred(self, message: Message, is_replay: bool) -> events.Event:
        payload = message.payload
        id, new_owner = message.stream_id, untrusted.text(payload.get("new_owner")) or ""
        stream = self.streams.get(id)
        if stream is not None and not is_replay:
            conditions = stream.conditions
            conditions.pop(new_owner, None)
            changes = {"owner": new_owner, "owner_connected": True, "conditions": conditions}
            changes["delegations"] = delegations.transferred(stream.delegations, new_owner)
            if "authorized_writers" in payload:
                changes["authorized_writers"] = payload["authorized_writers"]
            stream._update(**changes)
            stream._answered(new_owner)
        previous_owner = untrusted.text(payload.get("previous_owner")) or ""
        by, reason = untrusted.text(payload.get("by")), untrusted.text(payload.get("reason"))
        return events.OwnershipTransferred(id, previous_owner, new_owner, by, reason, message=message)

    def _asked_to_write(self, message: Message, is_replay: bool) -> events.Event:
        id, reason = message.stream_id, untrusted.text(message.payload.get("reason"))
        stream = self.streams.get(id)
        if stream is not None and not is_replay:
            stream._asked(message.sender, reason, message.ts)
        return events.WriteRequested(id, message.sender, reason, message=message)

    def _error(self, message: Message, is_replay: bool) -> events.Event:
        return events.Refused(refusal(message.payload), message=message)

    def _notice(self, message: Message, is_replay: bool) -> events.Event:
        if message.payload.get("notice") == "frames_dropped":
            reason = "the gateway dropped them: this reader was too slow"
            count = untrusted.number(message.payload.get("count"))
            return events.Gap(message.stream_id, count, reason, message=message)
        if message.payload.get("notice") == "token_expiring":
            return events.TokenExpiring(untrusted.text(message.payload.get("expires_at")) or "", message=message)
        return events.Received(message.kind, message.sender, message=message)

    def _chat(self, message: Message, is_replay: bool) -> events.Event:
        return events.Chat(message.sender, untrusted.text(message.payload.get("text")) or "", message=message)

    def _request(self, message: Message, is_replay: bool) -> events.Event:
        method, params = untrusted.text(message.payload.get("method")) or "", message.payload.get("params")
        if message.kind == kinds.MCP_PROPOSAL:
            return events.Proposed(message.id, message.sender, method, params, message.to, message=message)
        if is_notification(method):
            return events.Notified(message.sender, method, params, message.to, message=message)
        return events.Requested(message.sender, method, params, message.to, message=message)

    def _instruction(self, message: Message, is_replay: bool) -> events.Event:
        return events.Instructed(message.sender, message.kind, message.to, message.payload, message=message)

    def _status(self, message: Message, is_replay: bool) -> events.Event:
        return events.StatusReported(message.sender, status_of(message.payload), message=message)

    def _proposal_ended(self, message: Message, is_replay: bool) -> events.Event:
        kind = events.ProposalWithdrawn if message.kind == kinds.MCP_WITHDRAW else events.ProposalDeclined
        reason = untrusted.text(message.payload.get("reason"))
        return kind(next(iter(message.correlation_id), ""), message.sender, reason, message=message)


_RIGHTS = ("authorized_writers", "authorized_readers")
_ENDINGS = {kinds.STREAM_CLOSE: "closed", kinds.STREAM_COMPLETE: "completed", kinds.STREAM_ERROR: "failed"}

#: Kinds that count from any sender: the gateway relays them only from those who may send them.
_FROM_ANYONE = frozenset(
    {
        *(kinds.REQUEST_WRITE, kinds.STREAM_START, kinds.STREAM_CLOSE, kinds.STREAM_COMPLETE, kinds.STREAM_ERROR),
        *(kinds.CHAT, kinds.MCP_REQUEST, kinds.MCP_PROPOSAL, kinds.MCP_WITHDRAW, kinds.MCP_REJECT),
        *(kinds.STATUS, *kinds.INSTRUCTIONS),
    }
)

_HANDLERS: dict[str, Callable[[View, Message, bool], events.Event | None]] = {
    kinds.PRESENCE: View._presence,
    kinds.STREAM_OPEN: View._opened,
    kinds.STREAM_READY: View._opened,
    kinds.STREAM_START: View._started,
    kinds.STREAM_CLOSE: View._closed,
    kinds.STREAM_COMPLETE: View._closed,
    kinds.STREAM_ERROR: View._closed,
    kinds.WRITE_GRANTED: View._right,
    kinds.WRITE_REVOKED: View._right,
    kinds.WRITE_DENIED: View._right,
    kinds.REQUEST_WRITE: View._asked_to_write,
    kinds.READ_GRANTED: View._right,
    kinds.READ_REVOKED: View._right,
    kinds.OWNERSHIP_TRANSFERRED: View._transferred,
    kinds.ERROR: View._error,
    kinds.NOTICE: View._notice,
    kinds.CHAT: View._chat,
    kinds.MCP_REQUEST: View._request,
    kinds.MCP_PROPOSAL: View._request,
    kinds.MCP_WITHDRAW: View._proposal_ended,
    kinds.MCP_REJECT: View._proposal_ended,
    kinds.STATUS: View._status,
    **dict.fromkeys(kinds.INSTRUCTIONS, View._instruction),
}
