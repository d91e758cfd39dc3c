"""Random lives of participants against a model: pauses, shutdowns, proposals, ids, and what is granted and revoked.

Streams have a model of their own (``test_authorization_model``); here nobody has one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import NOON, Space
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from mewstream.protocol import snapshot
from mewstream.protocol.times import SECOND

ORDINARY = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
LONG = settings(ORDINARY, max_examples=2_000, stateful_step_count=60)

PEOPLE = ("ann", "ben", "cat", "eve")
"""``eve`` may do less: she grants and revokes what she holds, and neither pauses nor shuts down."""
EVE = ["capability/*", "mcp/*", "x"]
REMEMBERED, OF_ONE, OF_ALL = 4, 2, 5

person = st.sampled_from(PEOPLE)
ids = st.sampled_from([f"id-{number}" for number in range(8)])
kinds = st.sampled_from(("x", "y", "y/1", "mcp/request", "mcp/proposal", "z"))
revoked = st.sampled_from(("x", "y", "y/*", "mcp/*", "*", "z*"))
HELD_BY_EVE = {"x", "mcp/request", "mcp/proposal"}


def covers(pattern: str, kind: str) -> bool:
    return kind.startswith(pattern[:-1]) if pattern.endswith("*") else kind == pattern


class MembershipMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        capabilities = {name: ["*"] for name in PEOPLE} | {"eve": EVE}
        limits = {
            "remembered_ids": REMEMBERED,
            "proposals_per_participant": OF_ONE,
            "proposals_per_space": OF_ALL,
            "capability_grants": 1_000,
        }
        self.space = Space(*PEOPLE, capabilities=capabilities, limits=limits)
        self.paused: dict[str, int | None] = {}
        self.shut_down: set[str] = set()
        self.present = set(PEOPLE)
        self.proposals: list[tuple[str, str]] = []
        self.sent: dict[str, list[tuple[str, str, bool]]] = {name: [] for name in PEOPLE}
        """Of each: (id, content, accepted), the oldest first."""
        self.granted: dict[str, list[tuple[str, str, str]]] = {name: [] for name in PEOPLE}
        """To each: (grant, by, kind)."""
        self.count = 0

    # -- what the model says ------------------------------------------------------------------------

    def expected(self, sender: str, kind: str, id: str, content: str) -> str | None:
        """The refusal, ``again`` for a repetition, or None: before what is special about a kind."""
        for known, what, _ in self.sent[sender]:
            if known == id:
                return "again" if what == content else "invalid_request"
        used = {known for name in PEOPLE if name != sender for known, _, was in self.sent[name] if was}
        if id in used or any(id == known for known, by in self.proposals if by != sender):
            return "invalid_request"
        if sender in self.shut_down and kind not in ("chat/acknowledge", "participant/status"):
            return "invalid_operation"
        until = self.paused.get(sender, 0)
        if (until is None or self.space.now < until) and kind in ("chat", "mcp/proposal", "mcp/reject"):
            return "invalid_operation"
        return None

    def send(
        self, sender: str, kind: str, payload: dict[str, Any], special: str | None = None, **fields: Any
    ) -> tuple[bool, str]:
        """Send, and compare. Whether it was accepted as something new, and its id."""
        self.count += 1
        id = fields.pop("id", None) or f"own-{self.count}"
        content = json.dumps([kind, payload, fields])
        expected = self.expected(sender, kind, id, content)
        outcome = self.space.send(sender, kind, payload, id=id, **fields)
        if expected == "again":
            assert outcome.repetition is not None
            return False, id
        expected = expected or special
        assert outcome.error == expected, (sender, kind, outcome)
        if expected != "invalid_request":
            self.sent[sender] = [*self.sent[sender], (id, content, expected is None)][-REMEMBERED:]
        return expected is None, id

    # -- what happens -------------------------------------------------------------------------------

    @rule(sender=person, id=ids, text=st.sampled_from(("a", "b")))
    def chat(self, sender: str, id: str, text: str) -> None:
        self.send(sender, "chat", {"text": text}, id=id, special=None if sender != "eve" else "capability_violation")

    @rule(sender=person, id=ids)
    def propose(self, sender: str, id: str) -> None:
        accepted, _ = self.send(sender, "mcp/proposal", {"method": "m"}, id=id)
        if accepted and not any(known == id for known, _ in self.proposals):
            self.proposals.append((id, sender))
            own = [each for each in self.proposals if each[1] == sender]
            if len(own) > OF_ONE:
                self.proposals.remove(own[0])
            self.proposals = self.proposals[-OF_ALL:]

    @rule(sender=person, named=st.lists(ids, min_size=1, max_size=2))
    def withdraw(self, sender: str, named: list[str]) -> None:
        proposers = dict(self.proposals)
        special = None
        for id in named:
            if proposers.get(id) != sender:
                special = "unauthorized" if id in proposers else "invalid_operation"
                break
        self.send(sender, "mcp/withdraw", {}, special, correlation_id=named)

    @rule(sender=person, named=st.lists(ids, min_size=1, max_size=2))
    def reject(self, sender: str, named: list[str]) -> None:
        known = any(id in dict(self.proposals) for id in named)
        self.send(sender, "mcp/reject", {}, None if known else "invalid_operation", correlation_id=named)

    @rule(sender=person, who=person, seconds=st.sampled_from((None, 1, 5)))
    def pause(self, sender: str, who: str, seconds: int | None) -> None:
        payload = {} if seconds is None else {"timeout_seconds": seconds}
        if self.acts_on(sender, "participant/pause", payload, who):
            self.paused[who] = None if seconds is None else self.space.now + seconds * SECOND

    @rule(sender=person, who=person)
    def resume(self, sender: str, who: str) -> None:
        if self.acts_on(sender, "participant/resume", {}, who):
            self.paused.pop(who, None)

    @rule(sender=person, who=person)
    def shutdown(self, sender: str, who: str) -> None:
        if self.acts_on(sender, "participant/shutdown", {}, who):
            self.shut_down.add(who)

    def acts_on(self, sender: str, kind: str, payload: dict[str, Any], who: str) -> bool:
        until = self.paused.get(sender, 0)
        special = None
        if kind != "participant/resume" and (until is None or self.space.now < until):
            special = "invalid_operation"
        elif sender == "eve":
            special = "capability_violation"
        elif who not in self.present:
            special = "participant_not_found"
        return self.send(sender, kind, payload, special, to=[who])[0]

    @rule(who=person)
    def come_or_go(self, who: str) -> None:
        if who in self.present:
            self.space.leave(who)
            self.present.remove(who)
        else:
            self.space.join(who)
            self.present.add(who)
            self.shut_down.discard(who)

    @rule(seconds=st.sampled_from((0.5, 1, 4, 10)))
    def wait(self, seconds: float) -> None:
        until = self.space.now + round(seconds * SECOND)
        due = sorted((end, who) for who, end in self.paused.items() if end is not None and end <= until)
        outcome = self.space.tick(seconds)
        assert [message["kind"] for message in outcome.messages] == ["participant/resume"] * len(due)
        assert sorted((message["to"][0]) for message in outcome.messages) == sorted(who for _, who in due)
        assert [record.ts for record in outcome.records] == [end for end, _ in due]
        for _, who in due:
            del self.paused[who]

    @rule(sender=person, who=person, kind=kinds)
    def grant(self, sender: str, who: str, kind: str) -> None:
        special = self.administers(sender)
        if special is None and sender == "eve" and kind not in HELD_BY_EVE and not self.holds("eve", kind):
            special = "capability_violation"
        elif special is None and who not in self.present:
            special = "participant_not_found"
        payload = {"recipient": who, "capabilities": [kind]}
        accepted, id = self.send(sender, "capability/grant", payload, special)
        if accepted:
            self.granted[who].append((id, sender, kind))

    @rule(sender=person, who=person, pattern=revoked)
    def revoke(self, sender: str, who: str, pattern: str) -> None:
        taken = [each for each in self.granted[who] if covers(pattern, each[2])]
        special = self.administers(sender)
        if special is None and sender == "eve" and who != "eve":
            beyond = [kind for _, by, kind in taken if by != "eve"]
            if not all(kind in HELD_BY_EVE or self.holds("eve", kind) for kind in beyond):
                special = "capability_violation"
        payload = {"recipient": who, "capabilities": [pattern]}
        if self.send(sender, "capability/revoke", payload, special)[0]:
            self.granted[who] = [each for each in self.granted[who] if each not in taken]

    def administers(self, sender: str) -> str | None:
        until = self.paused.get(sender, 0)
        return "invalid_operation" if until is None or self.space.now < until else None

    def holds(self, who: str, kind: str) -> bool:
        return any(kind == each for _, _, each in self.granted[who])

    @precondition(lambda self: self.count % 7 == 0)
    @rule()
    def restart(self) -> None:
        """The state is the same after it was written down and read again."""
        loaded = snapshot.load(snapshot.dump(self.space.state))
        assert loaded == self.space.state
        assert loaded.used_ids == self.space.state.used_ids

    def teardown(self) -> None:
        if not hasattr(self, "space"):
            return
        state = self.space.state
        assert list(state.proposals.proposers.items()) == self.proposals
        assert set(state.shut_down) == self.shut_down
        assert {who: pause.until for who, pause in state.paused.items()} == self.paused
        assert self.space.now >= NOON
        for who in PEOPLE:
            own = ["*"] if who != "eve" else EVE
            assert self.space.capabilities(who) == [*own, *(kind for _, _, kind in self.granted[who])]


def test_random_lives_follow_the_model() -> None:
    run_state_machine_as_test(MembershipMachine, settings=ORDINARY)


@pytest.mark.long
def test_many_random_lives_follow_the_model() -> None:
    run_state_machine_as_test(MembershipMachine, settings=LONG)
