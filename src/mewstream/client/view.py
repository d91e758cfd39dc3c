"""What a participant knows of its space: the welcome, and then a fold over what the gateway tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from mewstream.client import events
from mewstream.client.errors import refusal
from mewstream.client.messages import Message
from mewstream.client.stream import Stream
from mewstream.protocol import kinds


class Participant(msgspec.Struct, frozen=True):
    """Somebody who is here."""

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
        if stream is not None and stream.alias is not None:
            self._aliases.pop(stream.alias, None)
        return stream


class View:
    """Participants, streams and our own capabilities."""

    def __init__(self, me: str, make_stream: Callable[[dict[str, Any]], Stream]) -> None:
        self.me = me
        self.capabilities: list[Any] = []
        self.participants = Participants()
        self.streams = Streams()
        self.epoch: str | None = None
        self.seq: int | None = None
        self.tells_streams = False
        """Whether the gateway's welcome has ``active_streams``."""
        self._make_stream = make_stream

    def welcome(self, message: Message) -> list[events.Event]:
        """The state at one position. Streams that we knew and that are gone have ended meanwhile."""
        payload = message.payload
        you = _dict(payload.get("you"))
        self.me = str(you.get("id") or self.me)
        self.capabilities = list(you.get("capabilities") or ())
        self.participants._present = {
            str(each["id"]): Participant(str(each["id"]), list(each.get("capabilities") or ()))
            for each in payload.get("participants") or ()
            if isinstance(each, dict) and "id" in each
        }
        epoch = payload.get("epoch")
        self.epoch = str(epoch) if epoch is not None else None
        seq = payload.get("seq", message.seq)
        self.seq = seq if isinstance(seq, int) else None
        self.tells_streams = "active_streams" in payload
        found: list[events.Event] = []
        if self.tells_streams:
            described = {
                str(each["stream_id"]): each for each in payload["active_streams"] or () if "stream_id" in each
            }
            for id in self.streams:
                if id not in described:
                    found.append(self._end(id, "lost", None, None, message))
            for each in described.values():
                self.stream(each)
        return found

    def stream(self, described: dict[str, Any]) -> Stream:
        """The stream of a description; the same object for as long as it is open."""
        known = self.streams.get(str(described["stream_id"]))
        if known is not None:
            known._describe_again(described)
            return known
        stream = self._make_stream(described)
        self.streams._add(stream)
        return stream

    def apply(self, message: Message) -> events.Event | None:
        """What a message tells. What the welcome has told already changes nothing any more."""
        is_history = message.seq is not None and self.seq is not None and message.seq <= self.seq
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
        who = _dict(message.payload.get("participant"))
        id, capabilities = str(who.get("id", "")), list(who.get("capabilities") or ())
        match message.payload.get("event"):
            case "join":
                if not is_history and id != self.me:
                    self.participants._present[id] = Participant(id, capabilities)
                return events.Joined(id, capabilities, message=message)
            case "leave":
                if not is_history:
                    self.participants._present.pop(id, None)
                return events.Left(id, message=message)
            case "invited":
                return events.Invited(id, str(message.payload.get("by", "")), message=message)
        return events.Received(message.kind, message.sender, message=message)

    def _opened(self, message: Message, is_history: bool) -> events.Event | None:
        described = _dict(message.payload.get("stream", message.payload))
        if "stream_id" not in described:
            return None
        if is_history:
            id = str(described["stream_id"])
            stream = self.streams.get(id) or self._make_stream(described)
        else:
            stream = self.stream(described)
            stream._opened_by.update((message.id, *message.correlation_id))
        return events.StreamOpened(stream.id, stream.owner, stream, message=message)

    def _started(self, message: Message, is_history: bool) -> events.Event:
        id = message.stream_id
        stream = self.streams.get(id)
        if stream is not None and not is_history:
            stream._started()
        return events.StreamStarted(id, message=message)

    def _closed(self, message: Message, is_history: bool) -> events.Event:
        id = message.stream_id or self._correlated(message)
        how = _ENDINGS[message.kind]
        reason = message.payload.get("reason") or message.payload.get("message")
        if is_history:
            return events.StreamClosed(id, how, reason, message.sender, message=message)
        return self._end(id, how, reason, message.sender, message)

    def _correlated(self, message: Message) -> str:
        """A close that names its stream by the request that opened it, or by the answer to that."""
        for id, stream in self.streams._open.items():
            if stream._opened_by.intersection(message.correlation_id):
                return id
        return ""

    def _right(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        id, participant = message.stream_id, str(payload.get("participant_id", ""))
        stream = self.streams.get(id)
        if stream is not None and not is_history:
            told: dict[str, Any] = {key: payload[key] for key in _RIGHTS if key in payload}
            if message.kind in (kinds.WRITE_GRANTED, kinds.WRITE_REVOKED):
                conditions = stream.conditions
                conditions.pop(participant, None)
                if payload.get("conditions"):
                    conditions[participant] = payload["conditions"]
                told["conditions"] = conditions
            stream._update(**told)
        by, reason = payload.get("by"), payload.get("reason")
        if message.kind == kinds.WRITE_GRANTED:
            return events.WriteGranted(id, participant, by, reason, payload.get("conditions"), message=message)
        kind = {
            kinds.WRITE_REVOKED: events.WriteRevoked,
            kinds.READ_GRANTED: events.ReadGranted,
            kinds.READ_REVOKED: events.ReadRevoked,
        }[message.kind]
        return kind(id, participant, by, reason, message=message)

    def _transferred(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        id, new_owner = message.stream_id, str(payload.get("new_owner", ""))
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
            str(payload.get("previous_owner", "")),
            new_owner,
            payload.get("by"),
            payload.get("reason"),
            message=message,
        )

    def _error(self, message: Message, is_history: bool) -> events.Event:
        return events.Refused(refusal(message.payload), message=message)

    def _notice(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        if payload.get("notice") == "frames_dropped":
            count = payload.get("count")
            return events.Gap(
                message.stream_id, count, "the gateway dropped them: this reader was too slow", message=message
            )
        return events.Received(message.kind, message.sender, message=message)

    def _chat(self, message: Message, is_history: bool) -> events.Event:
        return events.Chat(message.sender, str(message.payload.get("text", "")), message=message)

    def _request(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        method = str(payload.get("method", ""))
        return events.Requested(message.sender, method, payload.get("params"), message.to, message=message)

    def _proposal(self, message: Message, is_history: bool) -> events.Event:
        payload = message.payload
        method = str(payload.get("method", ""))
        return events.Proposed(message.id, message.sender, method, payload.get("params"), message.to, message=message)

    def _withdrawn(self, message: Message, is_history: bool) -> events.Event:
        proposal = next(iter(message.correlation_id), "")
        return events.ProposalWithdrawn(proposal, message.sender, message.payload.get("reason"), message=message)

    def _declined(self, message: Message, is_history: bool) -> events.Event:
        proposal = next(iter(message.correlation_id), "")
        return events.ProposalDeclined(proposal, message.sender, message.payload.get("reason"), message=message)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
