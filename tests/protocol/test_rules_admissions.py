"""What a signed token gives, and when it ends (decision 30)."""

from __future__ import annotations

from typing import Any

from harness import EPOCH, Outcome, Space, is_frame

from mewstream.protocol import commands
from mewstream.protocol.records import AdmissionEnded, Admitted, Joined, Left
from mewstream.protocol.snapshot import dump, load
from mewstream.protocol.times import SECOND

CHAT = [{"kind": "chat"}]


def admit(space: Space, who: str, seconds: float = 60, capabilities: list[dict[str, Any]] | None = None) -> Outcome:
    return space.do(commands.Admit(who, capabilities, space.now + round(seconds * SECOND), "issuer"))


def test_whoever_it_names_may_do_what_it_says_until_it_ends() -> None:
    space = Space("alice")
    admitted = admit(space, "guest", capabilities=CHAT).one(Admitted)
    assert (admitted.capabilities, admitted.issuer) == (CHAT, "issuer")
    assert space.join("guest").one(Joined).capabilities == CHAT
    assert space.send("guest", "chat", {"text": "hi"}).error is None
    assert space.tick(59).records == []
    ended = space.tick(1)
    assert ended.types == ["AdmissionEnded", "Left"]
    assert ended.one(Left).reason == "token_expired"
    assert ended.one(Left).cause_seq == ended.one(AdmissionEnded).seq
    assert space.send("guest", "chat", {"text": "hi"}).error == "capability_violation"


def test_its_rights_on_streams_end_with_it() -> None:
    space = Space("alice")
    stream = space.open("alice")
    admit(space, "guest")
    space.join("guest")
    space.grant("alice", stream, "guest")
    assert is_frame(space.frame("guest", stream))
    assert space.tick(60).types == ["AdmissionEnded", "Left", "WriteRevoked"]
    assert not is_frame(space.frame("guest", stream))


def test_without_capabilities_it_gives_what_the_space_gives() -> None:
    space = Space("alice", capabilities={"bob": ["x/y"]}, default_capabilities=CHAT)
    assert admit(space, "guest").one(Admitted).capabilities == CHAT
    assert admit(space, "bob").one(Admitted).capabilities == [{"kind": "x/y"}]


def test_the_same_again_is_nothing_new_and_a_longer_one_replaces_it() -> None:
    space = Space("alice")
    admit(space, "guest", 60)
    assert admit(space, "guest", 60).records == []
    space.join("guest")
    assert admit(space, "guest", 120).types == ["Admitted"]
    assert space.tick(119).records == []
    assert space.tick(1).types == ["AdmissionEnded", "Left"]


def test_a_participant_of_the_configuration_has_its_own_back() -> None:
    space = Space("alice", capabilities={"bob": ["x/y"]})
    admit(space, "bob", capabilities=CHAT)
    assert space.join("bob").one(Joined).capabilities == CHAT
    assert space.do(commands.EndAdmission("bob")).one(AdmissionEnded).reason == "replaced"
    assert space.join("bob").one(Joined).capabilities == [{"kind": "x/y"}]
    assert space.tick(100).records == []
    assert space.do(commands.EndAdmission("bob")).records == []


def test_a_clock_that_is_set_does_not_move_its_end() -> None:
    space = Space("alice")
    admit(space, "guest", 60)
    space.now += 3600 * SECOND
    space.do(commands.ClockJump(3600 * SECOND, 3600 * SECOND, 0))
    assert space.tick().types == ["AdmissionEnded"]


def test_a_restart_and_a_snapshot_keep_it() -> None:
    space = Space("alice")
    admit(space, "guest", 60, CHAT)
    restored = load(dump(space.state))
    assert restored.admitted == space.state.admitted
    assert restored.timers == space.state.timers
    space.do(commands.Start(EPOCH + "2", space.config))
    assert space.join("guest").one(Joined).capabilities == CHAT
    assert space.tick(60).types == ["AdmissionEnded", "Left"]


def test_there_are_only_so_many() -> None:
    space = Space("alice", limits={"admissions": 2})
    admit(space, "one")
    admit(space, "two", 30)
    refused = admit(space, "three")
    assert refused.error == "limit_exceeded"
    assert admit(space, "one", 120).types == ["Admitted"]
    space.tick(30)
    assert admit(space, "three").types == ["Admitted"]
