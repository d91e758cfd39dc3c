"""Random lives of a space against a model of who may do what: DESIGN.md, decisions 1 to 9, 13, 14,
16, 17, 18 and 22.

``MEW_PROFILE=thorough`` gives the ordinary run ten times as many examples; ``-m long`` runs the long one.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model import Fact, Model

from mewstream.protocol import commands, kinds, records
from mewstream.protocol.decide import Decision, decide
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.fold import apply, fold
from mewstream.protocol.interest import parse_interest
from mewstream.protocol.policy import Limits
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import SECOND, rfc3339

_UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}
settings.register_profile("model-ordinary", max_examples=250, stateful_step_count=40, **_UNHURRIED)
settings.register_profile("model-thorough", max_examples=2_500, stateful_step_count=40, **_UNHURRIED)
settings.register_profile("model-long", max_examples=5_000, stateful_step_count=50, **_UNHURRIED)
ORDINARY = settings.get_profile("model-" + os.environ.get("MEW_PROFILE", "ordinary"))
LONG = settings.get_profile("model-long")

SPACE = "home"
OPENERS, CHATTER, REQUESTER, MANAGER, NOBODY = ("ann", "ben", "cat"), "dan", "eve", "mia", "nobody"
PEOPLE = (*OPENERS, CHATTER, REQUESTER, MANAGER)
CAPABILITIES = {
    **{id: ["stream/*", "chat"] for id in OPENERS},
    CHATTER: ["chat"],
    REQUESTER: ["stream/request"],
    MANAGER: ["space/manage-streams", "space/kick"],
}
MAY = {
    **{id: {"request", "announce"} for id in OPENERS},
    CHATTER: set(),
    REQUESTER: {"request"},
    MANAGER: {"manage", "kick"},
}
ALIASES = {"alpha": True, "beta": True, "stream-9": False, "a/b": False, "a#b": False}

person = st.sampled_from(PEOPLE)
anyone = st.sampled_from((*PEOPLE, NOBODY))
whom = st.one_of(st.integers(0, 5), st.integers(0, 5), anyone)
"""A number is one of those who are here."""
which = st.sampled_from((0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, -1))
"""Which stream: of those alive, the last but so many; -1 is one that has ended or never was."""
by = st.sampled_from(("owner", "owner", "owner", "owner", "writer", "manager", "anyone"))
untidy = st.sampled_from((None,) * 6 + ("reason", "reason", "participant", "stream", "namespace"))
naming = st.sampled_from(("flat", "flat", "nested", "both", "alias", "alias"))
flaw = st.sampled_from((None,) * 20 + ("participant", "reason", "stream", "namespace"))
seconds = st.sampled_from((0.0, 1.0, 2.0, 5.0))
wishes = st.sets(
    st.sampled_from(("alpha", "beta", "stream-1", "stream-2", f"{SPACE}/*", f"{SPACE}/a*a", "*/stream-1", "*/none")),
    min_size=1,
    max_size=3,
)


def config(**policies: Any) -> dict[str, Any]:
    participants = {id: {"capabilities": [{"kind": kind} for kind in CAPABILITIES[id]]} for id in PEOPLE}
    return {"participants": participants, "policies": {"reconnect_grace": 0.0, **policies}}


def wished(wishes: set[str]) -> dict[str, list[str]]:
    """A wish with a slash is a glob over namespaces."""
    globs = [each for each in sorted(wishes) if "/" in each]
    return {"streams": [each for each in sorted(wishes) if "/" not in each], "namespaces": globs}


def envelope_command(sender: str, kind: str, payload: dict[str, Any], **fields: Any) -> commands.Send:
    data = msgspec.json.encode({"kind": kind, "payload": payload, **fields})
    return commands.Send(sender, parse_envelope(data, max_id_bytes=128))


def fact(record: records.Record) -> Fact:
    """A record in the words of the model."""
    match record:
        case records.SpaceStarted():
            return ("space-started", record.epoch)
        case records.Joined():
            return (
                "joined",
                record.participant,
                "resumed" if record.resumed else "replaced" if record.replaced else "new",
            )
        case records.Suspended():
            return ("suspended", record.participant, record.until)
        case records.Subscribed():
            return ("subscribed", record.participant)
        case records.Unsubscribed():
            return ("unsubscribed", record.participant)
        case records.Left():
            return ("left", record.participant, record.reason)
        case records.EnvelopeAccepted():
            return ("envelope", record.sender)
        case records.Refused():
            return ("refused", record.sender, record.code)
        case records.StreamOpened():
            writers = set(record.authorized_writers)
            live = record.status == "live"
            return (
                *("opened", record.stream_id, record.owner, live, record.alias, writers),
                record.alias_taken_by,
            )
        case records.StreamReused():
            return ("reused", record.stream_id, record.owner)
        case records.StreamStarted():
            return ("started", record.stream_id)
        case records.StreamEnded():
            return ("ended", record.stream_id, record.how)
        case records.WriteGranted():
            writers = set(record.authorized_writers)
            return ("granted", record.stream_id, record.participant, writers, record.reason)
        case records.WriteRevoked():
            writers = set(record.authorized_writers)
            return ("revoked", record.stream_id, record.participant, writers, record.reason)
        case records.OwnershipTransferred():
            writers = set(record.authorized_writers)
            return ("transferred", record.stream_id, record.previous_owner, record.new_owner, writers, record.reason)
        case records.ReadGranted() | records.ReadRevoked():
            what = "read-granted" if isinstance(record, records.ReadGranted) else "read-revoked"
            return (what, record.stream_id, record.participant, _maybe_set(record.authorized_readers))
        case records.WriteRequested():
            return ("asked", record.stream_id, record.participant, record.reason)
        case records.WriteDenied():
            return ("denied", record.stream_id, record.participant)
        case records.Frame():
            return (
                "frame",
                record.stream_id,
                record.sender,
                record.stream_seq,
                _maybe_set(record.readers),
                record.recipients,
                record.sequence,
                record.gap,
            )
    raise AssertionError(f"the model knows no {type(record).__name__}")


def _maybe_set(names: Any) -> set[str] | None:
    return None if names is None else set(names)


def in_order(facts: list[Fact]) -> list[Fact]:
    """One leave or join touches several streams, in no order that matters: sorted here."""
    first = next((at for at, each in enumerate(facts) if each[0] in ("left", "joined")), len(facts) - 1) + 1
    return facts[:first] + sorted(facts[first:], key=lambda each: int(each[1].partition("-")[2]))


class SpaceMachine(RuleBasedStateMachine):
    """Commands go to ``decide`` and to the model; what follows must be the same."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000 * SECOND
        self.state = SpaceState(SPACE)
        self.log: list[records.Record] = []
        self.epochs = 0
        self.sessions: list[tuple[str, int]] = []
        self.names: list[str] = []
        """Ids of requests and opens."""
        self.gone: list[str] = ["stream-77"]
        self.sent: list[tuple[str, bytes]] = []
        self.counters: Counter[str] = Counter()

    # -- playing a command -------------------------------------------------------------------------

    def decided(self, command: commands.Command) -> Decision:
        """``decide`` changes nothing and, asked again, decides the same."""
        before = repr(self.state)
        decision = decide(self.state, self.now, command)
        # Written down at once: the records of both answers may share what is in the command.
        first = msgspec.json.encode(decision.records)
        again = decide(self.state, self.now, command)
        assert decision == again, "decide gave two answers to one command"
        assert msgspec.json.encode(again.records) == first, "decide gave two answers to one command"
        assert repr(self.state) == before, "decide changed the state"
        return decision

    def play(self, command: commands.Command, expected: list[Fact]) -> list[records.Record]:
        decision = self.decided(command)
        assert decision.repetition is None
        self.fold(decision.records)
        assert in_order([fact(record) for record in decision.records]) == in_order(expected)
        return decision.records

    def fold(self, decided: list[records.Record]) -> None:
        for record in decided:
            assert record.seq == self.state.seq + 1, "seq has a gap"
            assert record.ts >= self.state.ts, "ts went back"
            assert record.ts >= self.now or record.ts == self.state.ts
            assert record.cause_seq is None or 0 < record.cause_seq < record.seq
            alive = dict(self.state.streams)
            apply(self.state, record)
            self.log.append(record)
            for id, stream in alive.items():
                if id not in self.state.streams:
                    self.gone += [id, stream.alias or id]
        self.check_told(decided)

    def check_told(self, decided: list[records.Record]) -> None:
        """What everyone was told last of the writers is what a welcome would say now."""
        told = {record.stream_id: record for record in decided if hasattr(record, "authorized_writers")}
        for id, record in told.items():
            if id in self.state.streams:
                assert record.authorized_writers == self.state.streams[id].authorized_writers()

    def send(self, sender: str, kind: str, payload: dict[str, Any], expected: list[Fact], **fields: Any) -> None:
        self.counters[sender] += 1
        fields.setdefault("id", f"{sender}-{self.counters[sender]}")
        data = msgspec.json.encode({"kind": kind, "payload": payload, **fields})
        self.sent.append((sender, data))
        self.play(commands.Send(sender, parse_envelope(data, max_id_bytes=128)), expected)

    def next_id(self, sender: str) -> str:
        return f"{sender}-{self.counters[sender] + 1}"

    # -- choosing ----------------------------------------------------------------------------------

    def pick(self, which: int) -> str:
        if which < 0:
            # An alias that is free again, or that by now is another's, is a good test.
            return self.gone[-1]
        if not self.model.streams:
            # A life without streams teaches little.
            if not self.model.present("ann"):
                self.join("ann")
            self.request("ann", [])
        alive = list(self.model.streams)
        return alive[-1 - which % len(alive)]

    def resolve(self, who: str | int) -> str:
        here = list(self.model.people)
        return who if isinstance(who, str) else here[who % len(here)] if here else NOBODY

    def stream(self, id: str) -> dict[str, Any] | None:
        return self.model.streams.get(self.model.find(id) or "")

    def actor(self, id: str, by: str, person: str) -> str:
        stream = self.stream(id)
        if by == "manager":
            return MANAGER
        if stream is None or by == "anyone":
            return person
        if by == "owner":
            return str(stream["owner"])
        writers = [each for each in stream["writers"] if each != stream["owner"]]
        return writers[0] if writers else person

    def name(self, id: str, naming: str, flaw: str | None, **fields: Any) -> tuple[dict[str, Any], str | None]:
        """A payload that names a stream in one of the ways there are, and what is wrong with it."""
        alias = self.model.streams[id]["alias"] if id in self.model.streams else None
        reference = alias if naming == "alias" and alias else id
        payload = dict(fields)
        if naming in ("flat", "both", "alias"):
            payload["stream_id"] = reference
        if naming in ("nested", "both"):
            payload["stream"] = {"stream_id": reference}
        if flaw == "namespace":
            payload["stream"] = {"stream_id": reference, "namespace": f"elsewhere/{id}"}
            return payload, "namespace"
        if flaw == "stream":
            payload["stream"] = "stream-1"
        elif flaw == "reason":
            payload["reason"] = 7
        elif flaw == "participant":
            for key in ("participant_id", "new_owner", "sequence"):
                if key in payload:
                    payload[key] = True
                    break
            else:
                return payload, None
        else:
            return payload, None
        return payload, "shape"

    # -- who is here -------------------------------------------------------------------------------

    @initialize(
        here=st.sets(person, min_size=3),
        grace=st.sampled_from((0.0, 0.0, 2.0)),
        start_timeout=st.sampled_from((0.0, 3.0)),
        on_owner_leave=st.sampled_from(("keep", "transfer", "close")),
        owner_leave_grace=seconds,
        streams=st.lists(
            st.tuples(
                st.sampled_from(OPENERS),
                st.booleans(),
                st.lists(anyone, max_size=3),
                st.sampled_from((None, "alpha", "beta")),
            ),
            max_size=3,
        ),
    )
    def begin(
        self,
        here: set[str],
        grace: float,
        start_timeout: float,
        on_owner_leave: str,
        owner_leave_grace: float,
        streams: list[tuple[str, bool, list[str], str | None]],
    ) -> None:
        self.config = config(
            reconnect_grace=grace,
            suspend_for=4.0,
            start_timeout=start_timeout,
            on_owner_leave=on_owner_leave,
            owner_leave_grace=owner_leave_grace,
        )
        self.model = Model(
            MAY,
            space=SPACE,
            reconnect_grace=int(grace * SECOND),
            suspend_for=4 * SECOND,
            start_timeout=int(start_timeout * SECOND),
            on_owner_leave=on_owner_leave,
            owner_leave_grace=int(owner_leave_grace * SECOND),
        )
        self.start()
        for who in sorted(here):
            self.join(who)
        for owner, live, auto, alias in streams:
            self.open(owner, live, None, auto, alias, None, None)

    def start(self) -> None:
        self.epochs += 1
        epoch = f"e{self.epochs}"
        self.play(commands.Start(epoch, self.config), self.model.start(self.now, epoch))

    @rule(who=person, continues=st.booleans(), chooses=st.booleans(), wishes=st.one_of(st.none(), wishes))
    def join(self, who: str, continues: bool = False, chooses: bool = False, wishes: set[str] | None = None) -> None:
        expected = self.model.join(self.now, who, continues=continues, chooses=chooses, wishes=wishes)
        extensions = ["interest", "positions"] if chooses else ["positions"]
        interest = None if wishes is None else parse_interest(wished(wishes), Limits())
        joined, *_ = self.play(commands.Join(who, "websocket", continues, extensions, interest), expected)
        self.sessions.append((who, joined.seq))

    @precondition(lambda self: self.model.people)
    @rule(who=st.integers(0, 5), wishes=wishes, is_more=st.booleans())
    def wish(self, who: int, wishes: set[str], is_more: bool) -> None:
        sender = self.resolve(who)
        if is_more:
            self.send(sender, kinds.STREAM_SUBSCRIBE, wished(wishes), self.model.subscribe(self.now, sender, wishes))
        else:
            expected = self.model.unsubscribe(self.now, sender, wishes)
            self.send(sender, kinds.STREAM_UNSUBSCRIBE, wished(wishes), expected)

    @rule(which=st.integers(0, 9), closed=st.booleans())
    def disconnect(self, which: int, closed: bool) -> None:
        """Of this session or an old one, of somebody here or gone."""
        who, session = self.sessions[-1 - which % len(self.sessions)]
        self._disconnect(who, session, closed)

    @rule(who=person)
    def lose(self, who: str) -> None:
        if self.model.present(who):
            self._disconnect(who, self.model.people[who]["session"])

    def _disconnect(self, who: str, session: int, closed: bool = False) -> None:
        expected = self.model.disconnect(self.now, who, session, closed=closed)
        self.play(commands.Disconnect(who, session, is_final=closed), expected)

    @rule(which=which)
    def lose_owner(self, which: int) -> None:
        self.lose(self.model.streams[self.pick(abs(which))]["owner"])

    @precondition(lambda self: any(each["until"] is not None for each in self.model.people.values()))
    @rule(which=which, continues=st.booleans())
    def come_back(self, which: int, continues: bool) -> None:
        away = [who for who, each in self.model.people.items() if each["until"] is not None]
        self.join(away[which % len(away)], continues)

    @rule(who=person)
    def suspend(self, who: str) -> None:
        self.play(commands.Suspend(who, "draining"), self.model.suspend(self.now, who))

    @rule(sender=person, who=whom)
    def kick(self, sender: str, who: str | int) -> None:
        sender, who = MANAGER if sender in OPENERS else sender, self.resolve(who)
        self.send(sender, kinds.KICK, {"participant_id": who}, self.model.kick(self.now, sender, who))

    @precondition(lambda self: len(self.log) % 7 == 0)
    @rule()
    def restart(self) -> None:
        """A new run of the gateway: everyone who was connected is expected back."""
        self.start()
        for who in PEOPLE:
            self.suspend(who)

    # -- time --------------------------------------------------------------------------------------

    @rule(time=seconds, microseconds=st.sampled_from((-1, 0, 1)))
    def wait(self, time: float, microseconds: int) -> None:
        """Time passes, and nobody has told the space yet. It may also go back a little."""
        self.now += round(time * SECOND) + microseconds

    @rule(time=seconds)
    def wait_and_tick(self, time: float) -> None:
        self.now += round(time * SECOND)
        self.tick()

    @rule()
    def until_next_deadline(self) -> None:
        deadline = self.state.next_deadline()
        if deadline is not None and deadline > self.now:
            self.now = deadline - 1
            due_before = self.model.due()[0][0]
            assert due_before == deadline
            if self.state.ts < deadline:
                self.play(commands.Tick(), [])
            self.now = deadline
            self.tick()

    def tick(self) -> None:
        while self.play(commands.Tick(), self.model.tick(self.now)):
            pass
        deadline = self.state.next_deadline()
        assert deadline is None or deadline > max(self.now, self.state.ts)

    # -- streams -----------------------------------------------------------------------------------

    @rule(
        sender=person,
        live=st.booleans(),
        readers=st.one_of(st.none(), st.none(), st.lists(person, max_size=3), st.just(["ann", NOBODY])),
        auto=st.lists(anyone, max_size=3),
        alias=st.sampled_from((None, *ALIASES)),
        on_owner_leave=st.sampled_from((None, "keep", "transfer", "close")),
        owner_leave_grace=st.one_of(st.none(), seconds),
        if_exists=st.sampled_from((None, None, "new", "reuse", "replace", "error")),
        idle_timeout=st.sampled_from((None, None, 0.0, 2.0)),
    )
    def open(
        self,
        sender: str,
        live: bool,
        readers: list[str] | None,
        auto: list[str],
        alias: str | None,
        on_owner_leave: str | None,
        owner_leave_grace: float | None,
        if_exists: str | None = None,
        idle_timeout: float | None = None,
    ) -> None:
        if not self.model.present(sender):
            self.join(sender)
        id = self.next_id(sender)
        expected = self.model.open(
            self.now,
            sender,
            request_id=id,
            live=live,
            target=readers or [],
            auto=auto,
            alias=alias if alias is not None and ALIASES[alias] else None,
            on_owner_leave=on_owner_leave,
            owner_leave_grace=None if owner_leave_grace is None else int(owner_leave_grace * SECOND),
            known=set(PEOPLE),
            if_exists=if_exists,
            idle_timeout=None if idle_timeout is None else int(idle_timeout * SECOND),
        )
        payload = {
            "target": readers,
            "auto_grant": auto,
            "desired_id": alias,
            "on_owner_leave": on_owner_leave,
            "owner_leave_grace": owner_leave_grace,
            "if_exists": if_exists,
            "idle_timeout": idle_timeout,
            # Poses that must not be believed (decision 23).
            "owner": NOBODY,
            "reused": True,
            "authorized_writers": [NOBODY],
        }
        payload = {key: value for key, value in payload.items() if value is not None}
        self.send(sender, kinds.STREAM_REQUEST if live else kinds.STREAM_ANNOUNCE, payload, expected)
        if isinstance(opened := self.log[-1 - sum(each[0] == "granted" for each in expected)], records.StreamOpened):
            self.names += [id, f"gw-{self.state.epoch}-{opened.seq}"]

    @precondition(lambda self: self.named())
    @rule(which=which, by=by, person=person, if_exists=st.sampled_from(("new", "reuse", "replace", "error")))
    def ask_for_a_taken_name(self, which: int, by: str, person: str, if_exists: str) -> None:
        named = self.named()
        id = named[which % len(named)]
        self.open(self.actor(id, by, person), True, None, [], self.model.streams[id]["alias"], None, None, if_exists)

    def named(self) -> list[str]:
        return [id for id, stream in self.model.streams.items() if stream["alias"] is not None]

    @rule(sender=st.sampled_from(OPENERS), auto=st.lists(person, max_size=2))
    def request(self, sender: str, auto: list[str]) -> None:
        self.open(sender, True, None, auto, None, None, None)

    @precondition(lambda self: self.ready())
    @rule(which=which)
    def begin_announced(self, which: int) -> None:
        ready = self.ready()
        id = ready[which % len(ready)]
        sender = self.model.streams[id]["owner"]
        payload = {"stream": {"stream_id": id, "namespace": f"{SPACE}/{id}"}}
        self.send(sender, kinds.STREAM_START, payload, self.model.begin(self.now, sender, id))

    def ready(self) -> list[str]:
        return [id for id, stream in self.model.streams.items() if not stream["live"]]

    @rule(which=which, by=by, person=person, naming=naming, flaw=flaw)
    def begin_stream(self, which: int, by: str, person: str, naming: str, flaw: str | None) -> None:
        flaw = None if flaw == "reason" else flaw
        id = self.pick(which)
        sender = self.actor(id, by, person)
        payload, flaw = self.name(id, naming, flaw)
        expected = self.model.begin(self.now, sender, id, flaw=flaw)
        self.send(sender, kinds.STREAM_START, payload, expected)

    @rule(
        which=which,
        by=by,
        person=person,
        naming=naming,
        flaw=untidy,
        how=st.sampled_from(("closed", "completed", "failed")),
    )
    def end_stream(self, which: int, by: str, person: str, naming: str, flaw: str | None, how: str) -> None:
        id = self.pick(which)
        sender = self.actor(id, by, person)
        failure = {"code": "broken", "message": "it broke"} if how == "failed" else {}
        payload, flaw = self.name(id, naming, flaw, **failure)
        kind = {"closed": kinds.STREAM_CLOSE, "completed": kinds.STREAM_COMPLETE, "failed": kinds.STREAM_ERROR}[how]
        self.send(sender, kind, payload, self.model.end(self.now, sender, id, how, flaw=flaw))

    @rule(which=st.integers(0, 7), by=by, person=person)
    def close_by_correlation(self, which: int, by: str, person: str) -> None:
        name = self.names[-1 - which % len(self.names)] if self.names else "never-heard-of"
        found = self.model.correlated(name)
        sender = self.actor(found[0] if found else "", by, person)
        expected = self.model.close_by_correlation(self.now, sender, name)
        self.send(sender, kinds.STREAM_CLOSE, {}, expected, correlation_id=name if which % 2 else [name])

    # -- rights ------------------------------------------------------------------------------------

    @rule(
        which=which,
        by=by,
        person=person,
        naming=naming,
        flaw=flaw,
        who=whom,
        lasts=st.sampled_from((None, None, -1.0, 0.0, 1.0, 2.0)),
        max_frames=st.sampled_from((None, None, 1, 2)),
    )
    def grant(
        self,
        which: int,
        by: str,
        person: str,
        naming: str,
        flaw: str | None,
        who: str | int,
        lasts: float | None,
        max_frames: int | None,
        replaces: str | None = None,
        depth: int = 0,
        most: int | None = None,
        *,
        sender: str | None = None,
    ) -> None:
        id = self.pick(which)
        sender, who = sender or self.actor(id, by, person), self.resolve(who)
        expires_at = None if lasts is None else self.now + int(lasts * SECOND)
        conditions = {
            "expires_at": None if expires_at is None else rfc3339(expires_at),
            "max_frames": max_frames,
        }
        fields = {"conditions": conditions, "replaces": replaces}
        if depth:
            fields["delegate"] = {"depth": depth, "max_writers": most}
        payload, flaw = self.name(id, naming, flaw, participant_id=who, **fields)
        expected = self.model.grant(
            *(self.now, sender, id, who),
            expires_at=expires_at,
            max_frames=max_frames,
            replaces=replaces,
            depth=depth,
            most=most if depth else None,
            flaw=flaw,
        )
        self.send(sender, kinds.GRANT_WRITE, payload, expected)

    @rule(which=which, who=person)
    def plain_grant(self, which: int, who: str) -> None:
        self.grant(which, "owner", who, "flat", None, who, None, None)

    @rule(which=which, who=st.integers(0, 5), lasts=st.sampled_from((None, 1.0, 2.0)), max_frames=st.integers(1, 3))
    def lend(self, which: int, who: int, lasts: float | None, max_frames: int) -> None:
        """A right with conditions, to somebody who is here."""
        self.grant(which, "owner", "ann", "flat", None, who, lasts, None if max_frames == 3 else max_frames)

    @rule(
        which=which,
        by=by,
        person=person,
        who=whom,
        replaced=st.one_of(st.integers(0, 3), st.integers(0, 3), anyone),
        max_frames=st.sampled_from((None, None, 2)),
    )
    def hand_over(
        self, which: int, by: str, person: str, who: str | int, replaced: str | int, max_frames: int | None
    ) -> None:
        """A grant in the place of a writer; a number is one of those there are."""
        id = self.pick(which)
        stream = self.stream(id)
        if isinstance(replaced, int):
            writers = list(stream["writers"]) if stream is not None else [NOBODY]
            replaced = writers[-1 - replaced % len(writers)]
        self.grant(which, by, person, "flat", None, who, None, max_frames, replaced)

    @rule(
        which=which,
        by=st.sampled_from(("owner", "owner", "owner", "manager", "writer")),
        person=person,
        who=whom,
        lasts=st.sampled_from((None, None, 2.0, 5.0)),
        max_frames=st.sampled_from((None, None, 3, 5)),
        depth=st.integers(0, 3),
        most=st.sampled_from((None, 1, 2, 3)),
    )
    def delegate(
        self,
        which: int,
        by: str,
        person: str,
        who: str | int,
        lasts: float | None,
        max_frames: int | None,
        depth: int,
        most: int | None,
    ) -> None:
        """A right that may be passed on, perhaps to somebody who has one already, with more or less depth."""
        self.grant(which, by, person, "flat", None, who, lasts, max_frames, None, depth, most)

    def delegates(self) -> list[tuple[str, str]]:
        return [
            (id, writer)
            for id, stream in self.model.streams.items()
            for writer, right in stream["writers"].items()
            if right["depth"]
        ]

    @precondition(lambda self: self.delegates())
    @rule(
        which=which,
        who=whom,
        lasts=st.sampled_from((None, None, None, 1.0, 3.0)),
        max_frames=st.sampled_from((None, None, None, 1, 2, 4)),
        depth=st.integers(0, 2),
        most=st.sampled_from((None, None, 1, 2)),
        replaced=st.sampled_from((None, None, None, 0, 1, 2)),
        pause=st.sampled_from((0.0, 0.0, 0.0, 1.0, 3.0)),
    )
    def pass_on(
        self,
        which: int,
        who: str | int,
        lasts: float | None,
        max_frames: int | None,
        depth: int,
        most: int | None,
        replaced: int | None,
        pause: float,
    ) -> None:
        """A delegate grants, perhaps more than it may, perhaps after its own right has run out."""
        delegates = self.delegates()
        id, sender = delegates[which % len(delegates)]
        self.now += round(pause * SECOND)
        writers = list(self.model.streams[id]["writers"])
        replaces = None if replaced is None else writers[-1 - replaced % len(writers)]
        at = list(reversed(self.model.streams)).index(id)
        self.grant(
            *(at, "delegate", sender, "flat", None, who, lasts, max_frames, replaces, depth, most), sender=sender
        )

    @precondition(lambda self: self.delegates())
    @rule(which=which, victim=st.integers(0, 4), by_delegate=st.booleans())
    def cut(self, which: int, victim: int, by_delegate: bool) -> None:
        """A revoke somewhere in a chain, by the owner or by the delegate at its top."""
        delegates = self.delegates()
        id, delegate = delegates[which % len(delegates)]
        stream = self.model.streams[id]
        sender = delegate if by_delegate else stream["owner"]
        writers = list(stream["writers"])
        who = writers[-1 - victim % len(writers)]
        payload = {"stream_id": id, "participant_id": who}
        self.send(sender, kinds.REVOKE_WRITE, payload, self.model.revoke(self.now, sender, id, who))

    @rule(which=which, by=by, person=person, naming=naming, flaw=flaw, reason=st.sampled_from((None, "my turn")))
    def ask(self, which: int, by: str, person: str, naming: str, flaw: str | None, reason: str | None) -> None:
        flaw = None if flaw == "participant" else flaw
        id = self.pick(which)
        sender = self.actor(id, by, person)
        payload, flaw = self.name(id, naming, flaw, reason=reason)
        self.send(sender, kinds.REQUEST_WRITE, payload, self.model.ask(self.now, sender, id, reason, flaw=flaw))

    @rule(which=which, by=by, person=person, naming=naming, flaw=flaw, who=whom)
    def deny(self, which: int, by: str, person: str, naming: str, flaw: str | None, who: str | int) -> None:
        """Of those who ask, if there are any and a number says which."""
        id = self.pick(which)
        stream = self.stream(id)
        wishes = list(stream["wishes"]) if stream is not None else []
        who = wishes[who % len(wishes)] if isinstance(who, int) and wishes else self.resolve(who)
        sender = self.actor(id, by, person)
        payload, flaw = self.name(id, naming, flaw, participant_id=who)
        self.send(sender, kinds.DENY_WRITE, payload, self.model.deny(self.now, sender, id, who, flaw=flaw))

    @precondition(lambda self: self.lent())
    @rule(which=which, raw=st.booleans(), pause=st.sampled_from((0.0, 0.5, 1.0, 2.0)), sequence=st.integers(0, 6))
    def spend(self, which: int, raw: bool, pause: float, sequence: int) -> None:
        """A frame under such a right, perhaps after it has run out; nobody ticks before it."""
        lent = self.lent()
        id, sender = lent[which % len(lent)]
        self.now += round(pause * SECOND)
        expected = self.model.frame(self.now, sender, id, sequence=None if raw else sequence)
        if raw:
            self.play(commands.SendFrame(sender, id, b"spent", 1), expected)
        else:
            self.send(sender, kinds.STREAM_DATA, {"stream_id": id, "sequence": sequence, "content": None}, expected)

    def lent(self) -> list[tuple[str, str]]:
        return [
            (id, writer)
            for id, stream in self.model.streams.items()
            for writer, right in stream["writers"].items()
            if right["expires_at"] is not None or right["frames_left"] is not None
        ]

    @rule(which=which, by=by, person=person, naming=naming, flaw=flaw, who=whom)
    def revoke(self, which: int, by: str, person: str, naming: str, flaw: str | None, who: str | int) -> None:
        id = self.pick(which)
        sender, who = self.actor(id, by, person), self.resolve(who)
        payload, flaw = self.name(id, naming, flaw, participant_id=who)
        self.send(sender, kinds.REVOKE_WRITE, payload, self.model.revoke(self.now, sender, id, who, flaw=flaw))

    @rule(which=which, by=by, person=person, naming=naming, flaw=flaw, who=whom, retain=st.booleans())
    def transfer(
        self, which: int, by: str, person: str, naming: str, flaw: str | None, who: str | int, retain: bool
    ) -> None:
        id = self.pick(which)
        sender, who = self.actor(id, by, person), self.resolve(who)
        payload, flaw = self.name(id, naming, flaw, new_owner=who, retain_write=retain)
        expected = self.model.transfer(self.now, sender, id, who, retain=retain, flaw=flaw)
        self.send(sender, kinds.TRANSFER_OWNERSHIP, payload, expected)

    @precondition(lambda self: self.orphans())
    @rule(which=which, who=whom, retain=st.booleans())
    def rescue(self, which: int, who: str | int, retain: bool) -> None:
        """The owner is gone; whoever holds ``space/manage-streams`` gives the stream to another."""
        orphans = self.orphans()
        id = orphans[which % len(orphans)]
        at = list(reversed(self.model.streams)).index(id)
        self.transfer(at, "manager", MANAGER, "flat", None, who, retain)

    def orphans(self) -> list[str]:
        return [id for id, stream in self.model.streams.items() if not self.model.present(stream["owner"])]

    @rule(which=which, by=by, person=person, naming=naming, flaw=flaw, who=whom, allow=st.booleans())
    def read(
        self, which: int, by: str, person: str, naming: str, flaw: str | None, who: str | int, allow: bool
    ) -> None:
        id = self.pick(which)
        sender, who = self.actor(id, by, person), self.resolve(who)
        payload, flaw = self.name(id, naming, flaw, participant_id=who)
        expected = self.model.read(self.now, sender, id, who, allow=allow, flaw=flaw)
        self.send(sender, kinds.GRANT_READ if allow else kinds.REVOKE_READ, payload, expected)

    # -- what flows --------------------------------------------------------------------------------

    @rule(
        which=which,
        by=st.sampled_from(("owner", "writer", "writer", "anyone")),
        person=person,
        flaw=flaw,
        pause=st.sampled_from((0, 0, 0, 1, 2)),
    )
    def frame(self, which: int, by: str, person: str, flaw: str | None, pause: int) -> None:
        """With a pause before it that nobody ticks: a right that has run out is found out here."""
        id = self.pick(which)
        sender = self.actor(id, by, person)
        self.now += pause * SECOND
        alias = self.model.streams[id]["alias"] if id in self.model.streams else None
        command = commands.SendFrame(sender, alias or id, b"\x00data", 2)
        self.play(command, self.model.frame(self.now, sender, id))

    @rule(which=which, who=person)
    def frames_of_everyone(self, which: int, who: str) -> None:
        """Who is accepted is exactly who is a writer, and it is the model that says who is."""
        id = self.pick(which)
        for sender in PEOPLE:
            self.play(commands.SendFrame(sender, id, b"", 1), self.model.frame(self.now, sender, id))

    @rule(
        which=which,
        by=st.sampled_from(("owner", "writer", "writer", "anyone")),
        person=person,
        naming=naming,
        flaw=flaw,
        sequence=st.integers(0, 6),
    )
    def data(self, which: int, by: str, person: str, naming: str, flaw: str | None, sequence: int) -> None:
        flaw = None if flaw == "reason" else flaw
        id = self.pick(which)
        sender = self.actor(id, by, person)
        if not self.model.present(sender):
            return
        payload, flaw = self.name(id, naming, flaw, sequence=sequence, content={"any": "thing"})
        expected = self.model.frame(self.now, sender, id, sequence=sequence, flaw=flaw)
        self.send(sender, kinds.STREAM_DATA, payload, expected)

    # -- the same again ----------------------------------------------------------------------------

    @rule(which=st.integers(0, 20), other=st.booleans())
    def repeat(self, which: int, other: bool) -> None:
        """An envelope id that comes again changes nothing; with another content it is refused."""
        if not self.sent:
            return
        sender, data = self.sent[-1 - which % len(self.sent)]
        if other:
            fields = msgspec.json.decode(data)
            fields["payload"] = {**fields["payload"], "once": "more"}
            command = commands.Send(sender, parse_envelope(msgspec.json.encode(fields), max_id_bytes=128))
            self.play(command, self.model.refuse(self.now, sender, "invalid_request"))
            return
        decision = self.decided(commands.Send(sender, parse_envelope(data, max_id_bytes=128)))
        assert decision.records == []
        assert decision.repetition is not None
        answer = decision.repetition.answer
        assert all(record in self.log for record in answer.records)
        answered = self.log[answer.seq - 1]
        if isinstance(answered, records.StreamReused):
            assert answered.owner == sender
            return
        if isinstance(answered, records.Subscribed | records.Unsubscribed):
            assert answered.participant == sender
            return
        assert isinstance(answered, records.EnvelopeAccepted | records.Refused | records.Frame)
        assert answered.sender == sender

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def same_streams(self) -> None:
        if not self.log:
            return
        state, model = self.state, self.model
        assert list(state.streams) == list(model.streams)
        shown = {each["stream_id"]: each for each in state.welcome("ann")["active_streams"]}
        assert list(shown) == list(model.streams)
        for id, expected in model.streams.items():
            stream, described = state.streams[id], shown[id]
            writers = described["authorized_writers"]
            assert writers == list(expected["writers"])
            assert stream.owner == described["owner"] == writers[0] == expected["owner"]
            assert set(writers) == set(stream.writers) == set(expected["writers"])
            assert _maybe_set(stream.readers) == expected["readers"]
            assert _maybe_set(described.get("authorized_readers")) == expected["readers"]
            assert stream.status == described["status"] == ("live" if expected["live"] else "ready")
            assert "reused" not in described
            assert stream.alias == described.get("alias") == expected["alias"]
            assert described["owner_connected"] == model.connected(expected["owner"])
            assert set(stream.auto_grant) == expected["auto"]
            assert set(state.recipients(stream)) == model.recipients(id)
            assert state.recipient_count(stream) == len(model.recipients(id))
            for writer, right in expected["writers"].items():
                assert stream.writers[writer].expires_at == right["expires_at"]
                assert stream.writers[writer].frames_left == right["frames_left"]
                assert stream.writers[writer].parent == right["parent"]
                held = stream.writers[writer].delegate
                assert (held.depth, held.max_writers) == (right["depth"], right["most"]) if held else not right["depth"]
                conditions = described.get("conditions", {}).get(writer, {})
                assert conditions.get("frames_left") == right["frames_left"]
                assert ("expires_at" in conditions) == (right["expires_at"] is not None)
            assert all(model.present(each) for each in writers[1:])
            assert described.get("write_requests", []) == [
                {"participant_id": who, "reason": wish["reason"], "ts": rfc3339(wish["ts"])}
                for who, wish in expected["wishes"].items()
            ]
            assert all(model.present(each) and each not in writers for each in expected["wishes"])

    @invariant()
    def same_people_and_deadlines(self) -> None:
        if not self.log:
            return
        state, model = self.state, self.model
        assert list(state.participants) == list(model.people)
        for who, present in state.participants.items():
            assert present.session == model.people[who]["session"]
            assert present.counting_since == model.people[who]["counts"]
            assert present.connected == model.connected(who)
        assert state.connected == sum(map(model.connected, model.people))
        assert sorted((due, timer) for timer, due in state.timers.items()) == model.due()
        assert state.next_deadline() == min((due for due, _ in model.due()), default=None)
        assert (state.seq, state.ts) == (model.seq, model.ts)

    @invariant()
    def projections_follow_the_sets(self) -> None:
        """``stream/write:{id}`` and ``stream/read:{id}`` mirror the sets and are nothing else (decision 2)."""
        if not self.log:
            return
        for who in PEOPLE:
            shown = [each["kind"] for each in self.state.effective_capabilities(who)]
            writes = {id for id, each in self.model.streams.items() if who in each["writers"]}
            reads = {id for id, each in self.model.streams.items() if who in (each["readers"] or ())}
            projected = {f"stream/write:{id}" for id in writes} | {f"stream/read:{id}" for id in reads}
            assert sorted(shown) == sorted([*CAPABILITIES[who], *projected])
            owned = {id for id, each in self.model.streams.items() if each["owner"] == who}
            rights = self.state.rights.get(who)
            assert set(rights.owns if rights else ()) == owned
            asked = {id for id, each in self.model.streams.items() if who in each["wishes"]}
            assert set(rights.asks if rights else ()) == asked
            assert rights is None or rights.owns or rights.writes or rights.reads or rights.asks, (
                "an entry is left over"
            )

    def teardown(self) -> None:
        assert fold(SPACE, self.log) == self.state


def test_random_lives_follow_the_model() -> None:
    run_state_machine_as_test(SpaceMachine, settings=ORDINARY)


@pytest.mark.long
def test_many_long_random_lives_follow_the_model() -> None:
    run_state_machine_as_test(SpaceMachine, settings=LONG)


# -- nothing a peer sends is an exception ---------------------------------------------------------

_odd = st.sampled_from(
    (None, True, 0, -1, 1.5, 1e300, 2**70, "", "x", "stream-1", "ann", "#|", "x" * 200, [], ["ann"], [1], {}, {"a": 1})
)
_times = st.sampled_from(
    ("2030-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "1969-12-31T23:59:59.9999999Z")
)
_payloads = st.fixed_dictionaries(
    {},
    optional={
        "stream_id": st.one_of(st.just("stream-1"), st.just("stream-2"), _odd),
        "stream": st.one_of(
            _odd,
            st.fixed_dictionaries({}, optional={"stream_id": st.one_of(st.just("stream-1"), _odd), "namespace": _odd}),
        ),
        "participant_id": st.one_of(st.just("ben"), _odd),
        "replaces": st.one_of(st.just("ben"), _odd),
        "delegate": st.one_of(_odd, st.fixed_dictionaries({}, optional={"depth": _odd, "max_writers": _odd})),
        "new_owner": st.one_of(st.just("ben"), _odd),
        "retain_write": _odd,
        "reason": _odd,
        "conditions": st.one_of(
            _odd, st.fixed_dictionaries({}, optional={"expires_at": st.one_of(_times, _odd), "max_frames": _odd})
        ),
        "target": _odd,
        "auto_grant": _odd,
        "scope": _odd,
        "desired_id": _odd,
        "formats": _odd,
        "direction": _odd,
        "intent": _odd,
        "on_owner_leave": _odd,
        "owner_leave_grace": _odd,
        "validate": _odd,
        "start_ts": st.one_of(_times, _odd),
        "code": _odd,
        "message": _odd,
        "sequence": _odd,
        "content": _odd,
        "format_id": _odd,
        "content_type": _odd,
        "encoding": _odd,
    },
)
_stream_kinds = st.sampled_from(
    (
        kinds.STREAM_REQUEST,
        kinds.STREAM_ANNOUNCE,
        kinds.STREAM_START,
        kinds.STREAM_DATA,
        kinds.STREAM_COMPLETE,
        kinds.STREAM_ERROR,
        kinds.STREAM_CLOSE,
        kinds.GRANT_WRITE,
        kinds.REVOKE_WRITE,
        kinds.TRANSFER_OWNERSHIP,
        kinds.GRANT_READ,
        kinds.REVOKE_READ,
        kinds.REQUEST_WRITE,
        kinds.DENY_WRITE,
    )
)


class Scene:
    """A started space, for tests that tell one story."""

    def __init__(self, *here: str, **policies: Any) -> None:
        self.state = SpaceState(SPACE)
        self.now = 1_700_000_000 * SECOND
        self.count = 0
        self.log: list[records.Record] = []
        self.do(commands.Start("e1", config(**policies)))
        self.sessions = {who: self.do(commands.Join(who, "websocket"))[0].seq for who in here}

    def do(self, command: commands.Command) -> list[records.Record]:
        decided = decide(self.state, self.now, command).records
        for record in decided:
            apply(self.state, record)
        self.log += decided
        return decided

    def send(self, sender: str, kind: str, payload: dict[str, Any], **fields: Any) -> list[records.Record]:
        self.count += 1
        return self.do(envelope_command(sender, kind, payload, **{"id": f"m{self.count}", **fields}))

    def frame(self, sender: str, stream: str = "stream-1") -> list[records.Record]:
        return self.do(commands.SendFrame(sender, stream, b"data", 1))


def codes(decided: list[records.Record]) -> list[str]:
    return [record.code for record in decided if isinstance(record, records.Refused)]


@settings(max_examples=1_000, deadline=None)
@given(kind=_stream_kinds, payload=_payloads, sender=st.sampled_from(("ann", "ben", "mia")))
@example(kind=kinds.STREAM_START, payload={"stream_id": "stream-2", "stream": {}}, sender="ann")
def test_no_payload_makes_decide_raise(kind: str, payload: dict[str, Any], sender: str) -> None:
    """A refusal is an outcome, not an exception; and what was accepted can be told and folded."""
    scene = Scene("ann", "ben", "mia")
    scene.send("ann", kinds.STREAM_REQUEST, {})
    scene.send("ann", kinds.STREAM_ANNOUNCE, {})
    before = repr(scene.state)
    decided = scene.send(sender, kind, payload)
    assert decided
    if codes(decided):
        assert len(decided) == 1
        assert repr(scene.state.streams) in before
    replayed = fold(SPACE, msgspec.json.decode(msgspec.json.encode(scene.log), type=list[records.AnyRecord]))
    assert replayed == scene.state


# -- stories the machine may tell too seldom ------------------------------------------------------


class TestStories:
    def test_a_revoke_of_an_expired_right_precedes_the_refusal(self) -> None:
        """Decision 17: judged by the frame's own time, also when nobody ticked."""
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {})
        until = rfc3339(scene.now + SECOND)
        scene.send(
            "ann",
            kinds.GRANT_WRITE,
            {"stream_id": "stream-1", "participant_id": "ben", "conditions": {"expires_at": until}},
        )
        scene.now += SECOND - 1
        assert [type(each) for each in scene.frame("ben")] == [records.Frame]
        scene.now += 1
        revoked, refused = scene.frame("ben")
        assert (type(revoked), revoked.reason, revoked.ts) == (records.WriteRevoked, "expired", scene.now)
        assert (refused.code, refused.seq) == ("unauthorized_stream_write", revoked.seq + 1)
        assert [type(each) for each in scene.frame("ben")] == [records.Refused]
        assert scene.do(commands.Tick()) == []

    def test_the_last_frame_of_a_bounded_right_is_followed_by_its_revoke(self) -> None:
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {})
        grant = {"stream_id": "stream-1", "participant_id": "ben", "conditions": {"max_frames": 2}}
        scene.send("ann", kinds.GRANT_WRITE, grant)
        assert [type(each) for each in scene.frame("ben")] == [records.Frame]
        last, revoked = scene.frame("ben")
        assert (revoked.reason, revoked.cause_seq) == ("max_frames", last.seq)
        assert codes(scene.frame("ben")) == ["unauthorized_stream_write"]

    def test_the_close_of_a_replaced_connection_takes_nothing_away(self) -> None:
        """Decision 22."""
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {"auto_grant": ["ben"]})
        (joined,) = scene.do(commands.Join("ben", "websocket"))
        assert joined.replaced
        assert scene.do(commands.Disconnect("ben", scene.sessions["ben"])) == []
        assert [type(each) for each in scene.frame("ben")] == [records.Frame]

    def test_an_explicit_revoke_ends_a_standing_grant_and_a_lost_connection_does_not(self) -> None:
        """Decision 18."""
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {"auto_grant": ["ben", "cat"]})
        scene.do(commands.Disconnect("ben", scene.sessions["ben"]))
        assert codes(scene.frame("ben")) == ["unauthorized_stream_write"]
        assert [type(each) for each in scene.do(commands.Join("ben", "websocket"))][1:] == [records.WriteGranted]
        scene.send("ann", kinds.REVOKE_WRITE, {"stream_id": "stream-1", "participant_id": "ben"})
        scene.send("ann", kinds.REVOKE_WRITE, {"stream_id": "stream-1", "participant_id": "cat"})
        for who in ("ben", "cat"):
            assert [type(each) for each in scene.do(commands.Join(who, "websocket"))] == [records.Joined]

    def test_only_a_connected_writer_inherits(self) -> None:
        """Decision 7: the longest-standing *connected* writer; a suspended one is present, no more."""
        scene = Scene("ann", "ben", "cat", reconnect_grace=60.0)
        request = {"auto_grant": ["ben", "cat"], "on_owner_leave": "transfer", "owner_leave_grace": 1}
        scene.send("ann", kinds.STREAM_REQUEST, request)
        scene.do(commands.Disconnect("ann", scene.sessions["ann"]))
        scene.now += 30 * SECOND
        scene.do(commands.Disconnect("ben", scene.sessions["ben"]))
        scene.now += 30 * SECOND
        assert [type(each) for each in scene.do(commands.Tick())] == [records.Left]
        scene.now += SECOND
        (transferred,) = scene.do(commands.Tick())
        assert (transferred.new_owner, transferred.authorized_writers) == ("cat", ["cat", "ben"])

    def test_the_alias_of_an_ended_stream_is_free(self) -> None:
        """Decision 12: an alias, where it is valid and free."""
        scene = Scene("ann", "ben")
        for owner in ("ann", "ben"):
            assert codes(scene.frame(owner, "pose")) == ["stream_not_found"]
            scene.send(owner, kinds.STREAM_REQUEST, {"desired_id": "pose"})
            assert [type(each) for each in scene.frame(owner, "pose")] == [records.Frame]
            scene.send(owner, kinds.STREAM_CLOSE, {"stream_id": "pose"})
        assert codes(scene.send("ann", kinds.STREAM_CLOSE, {"stream_id": "pose"})) == ["stream_not_found"]

    def test_conditions_end_a_standing_grant(self) -> None:
        """Decisions 17 and 18: a spent right must not come back without conditions by a reconnect."""
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {"auto_grant": ["ben"]})
        grant = {"stream_id": "stream-1", "participant_id": "ben", "conditions": {"max_frames": 1}}
        scene.send("ann", kinds.GRANT_WRITE, grant)
        scene.frame("ben")
        assert [type(each) for each in scene.do(commands.Join("ben", "websocket"))] == [records.Joined]

    def test_a_former_owner_does_not_get_its_right_back_by_a_reconnect(self) -> None:
        """Decision 3: it is the new owner who may grant it back."""
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {"auto_grant": ["ann"]})
        scene.send("ann", kinds.TRANSFER_OWNERSHIP, {"stream_id": "stream-1", "new_owner": "ben"})
        assert [type(each) for each in scene.do(commands.Join("ann", "websocket"))] == [records.Joined]

    def test_time_that_goes_back_does_not_revive_a_right(self) -> None:
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {})
        until = rfc3339(scene.now + SECOND)
        grant = {"stream_id": "stream-1", "participant_id": "ben", "conditions": {"expires_at": until}}
        scene.send("ann", kinds.GRANT_WRITE, grant)
        scene.now += SECOND
        scene.frame("ann")
        scene.now -= SECOND
        assert codes(scene.frame("ben")) == ["unauthorized_stream_write"]


# -- what was wrong once ---------------------------------------------------------------------------


class TestDeviations:
    @pytest.mark.parametrize("grace", [0.0, 5.0])
    def test_a_suspended_session_that_loses_its_connection_stays_suspended(self, grace: float) -> None:
        """DESIGN.md, gateway: "Drain on SIGTERM suspends, it does not revoke"; sockets close after it."""
        scene = Scene("ann", "ben", reconnect_grace=grace)
        scene.send("ann", kinds.STREAM_REQUEST, {"auto_grant": ["ben"]})
        scene.do(commands.Suspend("ben", "draining"))
        assert scene.do(commands.Disconnect("ben", scene.sessions["ben"])) == []
        assert scene.state.connected == 1
        assert set(scene.state.streams["stream-1"].writers) == {"ann", "ben"}

    def test_retain_write_does_not_make_a_writer_of_one_who_is_gone(self) -> None:
        """Decision 6: a writer that is gone has no right; only an owner's place is kept (7)."""
        scene = Scene("ann", "ben", "mia")
        scene.send("ann", kinds.STREAM_REQUEST, {})
        scene.do(commands.Disconnect("ann", scene.sessions["ann"]))
        transfer = {"stream_id": "stream-1", "new_owner": "ben", "retain_write": True}
        scene.send("mia", kinds.TRANSFER_OWNERSHIP, transfer)
        assert scene.state.streams["stream-1"].authorized_writers() == ["ben"]

    def test_a_close_by_correlation_means_the_senders_own_request(self) -> None:
        """Decision 8: two requests may have the same id, once the first is not remembered any more."""
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {}, id="1")
        for _ in range(scene.state.limits.remembered_ids):
            scene.send("ann", kinds.MCP_RESPONSE, {})
        scene.send("ben", kinds.STREAM_REQUEST, {}, id="1")
        assert codes(scene.send("ben", kinds.STREAM_CLOSE, {}, correlation_id=["1"])) == []
        assert list(scene.state.streams) == ["stream-1"]

    @pytest.mark.parametrize("kind", [kinds.STREAM_CLOSE, kinds.STREAM_COMPLETE, kinds.STREAM_ERROR])
    def test_the_shape_of_a_reason_is_checked_before_the_stream_is_looked_for(self, kind: str) -> None:
        scene = Scene("ann")
        payload = {"stream_id": "stream-9", "reason": 7, "code": "c", "message": "m"}
        assert codes(scene.send("ann", kind, payload)) == ["validation_error"]

    def test_a_right_that_has_run_out_is_no_right_before_the_start_either(self) -> None:
        """Checks: the sender's right comes before whether the operation is valid (and decision 17)."""
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_ANNOUNCE, {})
        until = rfc3339(scene.now + SECOND)
        grant = {"stream_id": "stream-1", "participant_id": "ben", "conditions": {"expires_at": until}}
        scene.send("ann", kinds.GRANT_WRITE, grant)
        scene.now += SECOND
        assert [type(each) for each in scene.frame("ben")] == [records.WriteRevoked, records.Refused]
        assert scene.log[-1].code == "unauthorized_stream_write"

    def test_a_transfer_tells_the_writers_in_the_order_of_the_welcome(self) -> None:
        scene = Scene("ann", "ben", "cat")
        scene.send("ann", kinds.STREAM_REQUEST, {"auto_grant": ["ben", "cat"]})
        for sender, new_owner in (("ann", "cat"), ("cat", "ann")):
            transfer = {"stream_id": "stream-1", "new_owner": new_owner, "retain_write": True}
            told = scene.send(sender, kinds.TRANSFER_OWNERSHIP, transfer)[-1]
        assert told.authorized_writers == scene.state.welcome("ann")["active_streams"][0]["authorized_writers"]

    @pytest.mark.parametrize("kind", [kinds.STREAM_START, kinds.STREAM_COMPLETE, kinds.STREAM_DATA, kinds.STREAM_ERROR])
    def test_stream_null_counts_as_left_out(self, kind: str) -> None:
        scene = Scene("ann")
        scene.send("ann", kinds.STREAM_ANNOUNCE if kind == kinds.STREAM_START else kinds.STREAM_REQUEST, {})
        fields = {"sequence": 1, "content": 1, "code": "c", "message": "m"}
        assert codes(scene.send("ann", kind, {"stream_id": "stream-1", "stream": None, **fields})) == []

    @pytest.mark.parametrize("time", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
    def test_an_expiry_outside_the_calendar_is_refused(self, time: str) -> None:
        scene = Scene("ann", "ben")
        scene.send("ann", kinds.STREAM_REQUEST, {})
        grant = {"stream_id": "stream-1", "participant_id": "ben", "conditions": {"expires_at": time}}
        assert codes(scene.send("ann", kinds.GRANT_WRITE, grant)) in (["validation_error"], ["invalid_operation"])
