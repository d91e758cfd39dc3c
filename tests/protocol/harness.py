"""A space without a server: commands go through ``decide``, ``apply`` and ``render``, at once.

Every step checks what must hold for any command whatsoever: ``decide`` changed nothing, the records
are numbered without a gap in time that never runs back, they survive the journal, and a replica that
sees nothing but the stored records has the same state.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from mewstream.protocol import commands
from mewstream.protocol.decide import Repetition, decide
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.fold import apply
from mewstream.protocol.interest import EVERY_FRAME, Interest
from mewstream.protocol.interest_state import current_interest, names_of
from mewstream.protocol.records import AnyRecord, Frame, Record, Refused
from mewstream.protocol.render import render, visible_to
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import SECOND, parse_rfc3339

R = TypeVar("R", bound=Record)

SPACE = "seacat"
EPOCH = "e1"
NOON = parse_rfc3339("2026-01-31T12:00:00Z") or 0
#: Enough to chat and to open streams, and nothing that makes a manager: `*` would cover `space/manage-streams`.
ORDINARY = ["chat", "mcp/*", "stream/*"]
EVERYTHING = ["*"]


class Outcome(NamedTuple):
    """What followed from a command: the records, and what they tell."""

    records: list[Record]
    messages: list[dict[str, Any]]
    repetition: Repetition | None = None

    @property
    def refusal(self) -> Refused | None:
        return next((each for each in self.records if isinstance(each, Refused)), None)

    @property
    def error(self) -> str | None:
        """The wire code of the refusal; None where everything was accepted."""
        return self.refusal.code if self.refusal else None

    @property
    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.messages]

    @property
    def types(self) -> list[str]:
        return [type(each).__name__ for each in self.records]

    def one(self, record: type[R]) -> R:
        [found] = [each for each in self.records if isinstance(each, record)]
        return found

    def told(self, kind: str) -> dict[str, Any]:
        """The payload of the one message of this kind."""
        [found] = [each for each in self.messages if each["kind"] == kind]
        payload: dict[str, Any] = found["payload"]
        return payload


class Space:
    """``present`` have joined; those in ``capabilities`` may, with these capabilities instead of the ordinary ones.

    ``admin`` is known everywhere, and may do everything.
    """

    def __init__(
        self,
        *present: str,
        capabilities: dict[str, list[Any]] | None = None,
        limits: dict[str, Any] | None = None,
        policies: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        self.now = NOON
        self.state = SpaceState(SPACE)
        self.replica = SpaceState(SPACE)
        self.records: list[Record] = []
        self.messages: list[tuple[Record, dict[str, Any]]] = []
        self._ids = 0
        known = dict.fromkeys(present, ORDINARY) | {"admin": EVERYTHING} | (capabilities or {})
        self.config = {
            "participants": {id: {"capabilities": _patterns(given)} for id, given in known.items()},
            "limits": limits or {},
            "policies": {"reconnect_grace": 0, **(policies or {})},
            **config,
        }
        self.do(commands.Start(EPOCH, self.config))
        for each in present:
            self.join(each)

    # -- commands -----------------------------------------------------------------------------

    def do(self, command: commands.Command) -> Outcome:
        before = copy.deepcopy(dataclasses.replace(self.state, compiled={}))
        decision = decide(self.state, self.now, command)
        assert self.state == before, "decide changed the state"
        messages = []
        for record in decision.records:
            assert record.seq == self.state.seq + 1
            assert record.ts >= self.state.ts
            assert record.cause_seq is None or record.cause_seq < record.seq
            apply(self.state, record)
            stored = msgspec.json.decode(msgspec.json.encode(record), type=AnyRecord)
            assert stored == record, "a record did not survive the journal"
            apply(self.replica, stored)
            self.records.append(record)
            told = render(SPACE, self.state.epoch, record)
            if told is not None:
                messages.append(json.loads(told))
                self.messages.append((record, messages[-1]))
        assert self.replica == self.state, "the log does not describe the state"
        self._check_books()
        return Outcome(decision.records, messages, decision.repetition)

    def join(self, participant: str, **fields: Any) -> Outcome:
        """``fields`` are those of the command."""
        return self.do(commands.Join(participant, "ws", **fields))

    def choose(self, participant: str, *, continues: bool = False, **interest: Iterable[str]) -> Outcome:
        """Join as a client that uses interest, and says what it wants if it wants something."""
        given = Interest(**{field: dict.fromkeys(texts, EVERY_FRAME) for field, texts in interest.items()})
        return self.join(participant, extensions=["interest"], interest=given or None, continues=continues)

    def subscribe(self, participant: str, **payload: Any) -> Outcome:
        return self.send(participant, "stream/subscribe", payload)

    def unsubscribe(self, participant: str, **payload: Any) -> Outcome:
        return self.send(participant, "stream/unsubscribe", payload)

    def recipients(self, stream_id: str) -> set[str]:
        return set(self.state.recipients(self.state.streams[stream_id]))

    def leave(self, participant: str, *, session: int | None = None) -> Outcome:
        """The connection of a participant (or that of an earlier ``session``) closes."""
        if session is None:
            session = self.session(participant)
        return self.do(commands.Disconnect(participant, session))

    def suspend(self, participant: str) -> Outcome:
        return self.do(commands.Suspend(participant, "drain"))

    def send(self, sender: str, kind: str, payload: dict[str, Any] | None = None, **fields: Any) -> Outcome:
        """An envelope; ``fields`` are its other fields (``from_`` for ``from``), ``id=None`` leaves the id out."""
        self._ids += 1
        fields.setdefault("id", f"m{self._ids}")
        if "from_" in fields:
            fields["from"] = fields.pop("from_")
        envelope = {"kind": kind, "payload": payload or {}} | fields
        return self.raw(sender, json.dumps({key: each for key, each in envelope.items() if each is not None}).encode())

    def raw(self, sender: str, message: bytes) -> Outcome:
        return self.do(commands.Send(sender, parse_envelope(message, max_id_bytes=self.state.limits.id_bytes)))

    def frame(self, sender: str, stream: str, data: bytes | str = b"x", *, opcode: int | None = None) -> Outcome:
        """A raw frame: text where ``data`` is a ``str``."""
        if opcode is None:
            opcode = 1 if isinstance(data, str) else 2
        return self.do(commands.SendFrame(sender, stream, data.encode() if isinstance(data, str) else data, opcode))

    def tick(self, seconds: float = 0) -> Outcome:
        """Time passes, and everything that falls due meanwhile happens at its own time."""
        until = self.now + round(seconds * SECOND)
        records: list[Record] = []
        messages: list[dict[str, Any]] = []
        while (due := self.state.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            outcome = self.do(commands.Tick())
            assert outcome.records, "something is due and nothing happened"
            records += outcome.records
            messages += outcome.messages
        self.now = until
        return Outcome(records, messages)

    # -- shorthands ---------------------------------------------------------------------------

    def open(self, owner: str, /, **payload: Any) -> str:
        """A live stream by ``stream/request``; its id."""
        return self._opened(self.send(owner, "stream/request", payload), "stream/open")

    def announce(self, owner: str, /, *, start: bool = False, **payload: Any) -> str:
        """A stream by ``stream/announce``, started or not; its id."""
        id = self._opened(self.send(owner, "stream/announce", payload), "stream/ready")
        if start:
            assert self.send(owner, "stream/start", {"stream": {"stream_id": id}}).error is None
        return id

    def grant(self, sender: str, stream: str, participant: str, **fields: Any) -> Outcome:
        return self.send(sender, "stream/grant-write", {"stream_id": stream, "participant_id": participant} | fields)

    def revoke(self, sender: str, stream: str, participant: str, **fields: Any) -> Outcome:
        return self.send(sender, "stream/revoke-write", {"stream_id": stream, "participant_id": participant} | fields)

    def transfer(self, sender: str, stream: str, new_owner: str, **fields: Any) -> Outcome:
        return self.send(sender, "stream/transfer-ownership", {"stream_id": stream, "new_owner": new_owner} | fields)

    def close(self, sender: str, stream: str) -> Outcome:
        return self.send(sender, "stream/close", {"stream_id": stream})

    def data(self, sender: str, stream: str, sequence: int, content: Any = "x", **fields: Any) -> Outcome:
        payload = {"stream": {"stream_id": stream}, "sequence": sequence, "content": content}
        return self.send(sender, "stream/data", payload | fields)

    # -- what can be seen ---------------------------------------------------------------------

    def session(self, participant: str) -> int:
        return self.state.participants[participant].session

    def welcome(self, participant: str) -> dict[str, Any]:
        """The payload of the welcome that this participant would get now, as JSON carries it."""
        decoded: dict[str, Any] = json.loads(msgspec.json.encode(self.state.welcome(participant)))
        return decoded

    def stream(self, stream_id: str) -> dict[str, Any]:
        """The stream's entry in ``active_streams``."""
        [found] = [each for each in self.welcome("?")["active_streams"] if each["stream_id"] == stream_id]
        entry: dict[str, Any] = found
        return entry

    def writers(self, stream_id: str) -> list[str]:
        writers: list[str] = self.stream(stream_id)["authorized_writers"]
        return writers

    def seen_by(self, participant: str) -> list[dict[str, Any]]:
        return [message for record, message in self.messages if visible_to(record, participant)]

    def capabilities(self, participant: str) -> list[str]:
        """The kinds in the effective capabilities, as the welcome tells them."""
        return [each["kind"] for each in self.welcome(participant)["you"]["capabilities"]]

    # -- inside -------------------------------------------------------------------------------

    def _opened(self, outcome: Outcome, kind: str) -> str:
        assert outcome.error is None, outcome.refusal
        payload = outcome.told(kind)
        return str(payload.get("stream", payload)["stream_id"])

    def _check_books(self) -> None:
        """What the state keeps twice for speed says the same twice."""
        state = self.state
        assert state.connected == sum(each.connected for each in state.participants.values())
        for participant, rights in state.rights.items():
            streams = state.streams.values()
            assert set(rights.owns) == {each.id for each in streams if each.owner == participant}
            assert set(rights.writes) == {each.id for each in streams if participant in each.writers}
            assert set(rights.asks) == {each.id for each in streams if participant in each.write_requests}
            assert set(rights.reads) == {each.id for each in streams if participant in (each.readers or ())}
        choosing = {
            who: interest
            for who, each in state.participants.items()
            if each.connected and (interest := current_interest(state, who)) is not None
        }
        assert state.audiences.choosing == choosing
        assert set(choosing) == {each for each in state.participants if state.is_connected(each)} & {
            each for each in state.participants if state.uses_interest(each)
        }
        for stream in state.streams.values():
            rates = {who: interest.rate(SPACE, names_of(stream)) for who, interest in choosing.items()}
            listening = {who: rate for who, rate in rates.items() if rate is not None}
            assert state.audiences.listeners.get(stream.id, {}) == listening
            assert state.recipient_count(stream) == len(state.recipients(stream))
            assert stream.owner in stream.writers
            assert all(writer in state.rights for writer in stream.writers)
            for right in stream.writers.values():
                above = stream.writers[right.parent].delegate if right.parent is not None else None
                assert right.parent is None or above is not None, "what is below ends with what is above"
                assert right.delegate is None or above is None or right.delegate.depth < above.depth


def is_frame(outcome: Outcome) -> bool:
    """Whether a frame was accepted."""
    return any(isinstance(each, Frame) for each in outcome.records)


def _patterns(given: list[Any]) -> list[dict[str, Any]]:
    return [{"kind": each} if isinstance(each, str) else each for each in given]
