"""The sequencer of a space, without sockets and without a journal."""

from __future__ import annotations

import json

import pytest
from doubles import FakeMember, ManualLoop, joined, make_space, say, send_frames

from mewstream.gateway.joining import JoinRefused
from mewstream.gateway.outbound import Drop
from mewstream.gateway.space import GRANTS_PER_JOIN, JOIN_BURST, Newcomer, Space
from mewstream.protocol import commands
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.policy import Limits
from mewstream.protocol.records import FrameBlock, Record
from mewstream.protocol.snapshot import dump, load


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def space(loop: ManualLoop) -> Space:
    return make_space(loop, "ann", "bob", "cy")


def recent(space: Space, after: int) -> list[Record]:
    return list(space.replay._recent.read(after))


class TestJoining:
    def test_the_welcome_comes_first_and_others_are_told(self, space: Space, loop: ManualLoop) -> None:
        ann = joined(space, "ann")
        bob = joined(space, "bob")
        loop.advance()
        assert ann.kinds == ["system/welcome", "system/presence"]
        assert bob.kinds == ["system/welcome"]
        assert bob.messages[0]["payload"]["seq"] == bob.session == space.state.seq

    def test_a_space_that_is_full(self, loop: ManualLoop) -> None:
        space = make_space(loop, "ann", "bob", limits=Limits(participants_per_space=1))
        joined(space, "ann")
        refused = space.join(FakeMember("bob"))
        assert refused is not None and refused.reason is CloseReason.SPACE_FULL
        assert len(space.members) == 1

    def test_standing_grants_count_as_joins(self, space: Space) -> None:
        """Each is recorded and told to everyone when its participant comes."""
        joined(space, "ann")
        for _ in range(GRANTS_PER_JOIN * 9):
            say(space, "ann", "stream/request", auto_grant=["bob"])
        for participant, joins in (("cy", JOIN_BURST), ("bob", JOIN_BURST // 10)):
            for _ in range(joins):
                space.check_joins(participant)
            with pytest.raises(JoinRefused):
                space.check_joins(participant)

    @pytest.mark.parametrize("is_reconnect", [False, True])
    def test_a_second_connection_replaces_the_first(self, space: Space, is_reconnect: bool) -> None:
        first = joined(space, "ann")
        second = joined(space, "ann", is_reconnect=is_reconnect)
        expected = CloseReason.REPLACED_BY_RECONNECT if is_reconnect else CloseReason.REPLACED
        assert first.closed is expected and second.closed is None
        space.leave(first)
        assert space.state.is_connected("ann"), "the first one took nothing with it"

    def test_the_log_says_what_a_client_knows(self, space: Space) -> None:
        """The latest join counts: another client may take over, which knows less."""
        joined(space, "ann", positions=True)
        assert space.state.participants["ann"].extensions == ["positions"]
        assert load(dump(space.state)).participants["ann"].extensions == ["positions"]
        joined(space, "ann")
        assert space.state.participants["ann"].extensions is None

    def test_positions_that_are_asked_for_later(self, space: Space, loop: ManualLoop) -> None:
        ann = joined(space, "ann")
        ann.extensions = ["positions"]
        space.change_extensions(Newcomer(ann))
        say(space, "ann", "chat", text="hello")
        loop.advance()
        assert ann.kinds == ["system/welcome", "system/welcome", "chat"]
        assert ann.messages[-1]["seq"] == space.state.seq
        assert space.state.participants["ann"].extensions == ["positions"]
        space.leave(ann)
        assert not space.state.is_present("ann"), "it is the connection of its latest join"


class TestLeaving:
    def test_others_are_told(self, space: Space, loop: ManualLoop) -> None:
        ann, bob = joined(space, "ann"), joined(space, "bob")
        space.leave(bob)
        loop.advance()
        assert ann.messages[-1]["payload"] == {"event": "leave", "participant": {"id": "bob"}}

    def test_an_heir_takes_its_place(self, space: Space) -> None:
        ann, heir = joined(space, "ann"), FakeMember("ann")
        space.leave(ann, heir=heir)
        assert space.members.get("ann") is heir and space.state.is_connected("ann")

    def test_one_that_is_removed_is_closed(self, space: Space) -> None:
        joined(space, "ann")
        bob = joined(space, "bob")
        say(space, "ann", "space/kick", participant_id="bob")
        assert bob.closed is CloseReason.KICKED and space.members.get("bob") is None
        assert not space.frames(bob, "stream-1", [b"x"], 1) and not space.state.is_present("bob")


class TestFrames:
    def test_one_block_for_everyone(self, space: Space, loop: ManualLoop) -> None:
        ann, bob = joined(space, "ann"), joined(space, "bob", positions=True)
        say(space, "ann", "stream/request", desired_id="pose")
        seq = space.state.seq
        assert space.frames(ann, "pose", [b"one", b"two"], 1) == ()
        loop.advance()
        assert ann.frames == [b"#stream-1#one", b"#stream-1#two"], "by its id, whatever it was called"
        assert bob.frames == [b"#stream-1|%d|ann#one" % (seq + 1), b"#stream-1|%d|ann#two" % (seq + 2)]
        assert ann.sent.endswith(b"\x81\x0d#stream-1#one\x81\x0d#stream-1#two")
        assert space.state.streams["stream-1"].frames == 2

    def test_for_readers_alone(self, space: Space, loop: ManualLoop) -> None:
        ann, bob, cy = (joined(space, each) for each in ("ann", "bob", "cy"))
        say(space, "ann", "stream/request", target=["bob"])
        space.frames(ann, "stream-1", [b"psst"], 1)
        loop.advance()
        assert (ann.frames, bob.frames, cy.frames) == ([], [b"#stream-1#psst"], [])

    def test_the_last_one_that_is_allowed(self, space: Space, loop: ManualLoop) -> None:
        ann, bob = joined(space, "ann"), joined(space, "bob")
        say(space, "ann", "stream/request")
        conditions = {"max_frames": 2}
        say(space, "ann", "stream/grant-write", stream_id="stream-1", participant_id="bob", conditions=conditions)
        send_frames(space, loop, bob, "stream-1", [b"%d" % number for number in range(5)])
        loop.advance()
        assert ann.frames == [b"#stream-1#0", b"#stream-1#1"]
        assert ann.kinds[-1] == "stream/write-revoked" and bob.kinds[-1] == "system/error"

    def test_the_rest_waits_when_the_turn_is_over(self, space: Space) -> None:
        ann = joined(space, "ann")
        formats = [{"id": "number", "schema": {"type": "number"}}]
        say(space, "ann", "stream/request", formats=formats, validate="enforce")
        before = space.state.seq
        space._work.has_time()
        space._work._ends = 0.0  # its time is used up as soon as somebody looks
        left = space.frames(ann, "stream-1", [b"1", b"2", b"3"], 1)
        assert left == [b"2", b"3"] and space.state.seq == before + 1

    def test_of_a_stranger_and_of_one_that_is_gone(self, space: Space) -> None:
        ann, bob = joined(space, "ann"), joined(space, "bob")
        say(space, "ann", "stream/request")
        space.leave(bob)
        before = space.state.seq
        assert space.frames(bob, "stream-1", [b"late"], 1) == () and space.state.seq == before
        space.frames(ann, "stream-1", [b"x"], 1)
        assert isinstance(space.handle(commands.SendFrames("ann", "stream-1", [b"y"], 1)).written[0], FrameBlock)


class TestTime:
    def test_a_deadline_wakes_the_space(self, space: Space, loop: ManualLoop) -> None:
        joined(space, "ann")
        bob = joined(space, "bob")
        message = {"kind": "participant/pause", "to": ["bob"], "payload": {"timeout_seconds": 0.001}}
        space.envelope("ann", parse_envelope(json.dumps(message).encode(), max_id_bytes=128))
        assert space.state.paused
        for _ in range(10_000):
            loop.advance(0.001)
            if not space.state.paused:
                break
        loop.advance()
        assert bob.kinds[-1] == "participant/resume"


def test_dropped_frames_are_recorded_and_told(space: Space, loop: ManualLoop) -> None:
    ann = joined(space, "ann")
    drops = {"stream-1": Drop(3, 4, 9, "latest")}
    space.report_drops("ann", drops)
    loop.advance()
    assert not drops
    assert ann.messages[-1]["payload"]["count"] == 3


def test_an_id_that_comes_again_is_answered_again(space: Space, loop: ManualLoop) -> None:
    ann, bob = joined(space, "ann"), joined(space, "bob")
    for _ in range(2):
        request = parse_envelope(b'{"id":"m1","kind":"stream/request","payload":{}}', max_id_bytes=128)
        space.envelope("ann", request)
    loop.advance()
    assert ann.kinds.count("stream/open") == 2 and bob.kinds.count("stream/open") == 1
    assert len(space.state.streams) == 1
    repeated = [body for body in ann.bodies if b'"stream/open"' in body][-1]
    assert space.broadcast.caused_bytes == len(repeated), "its sender has caused the answer"


def test_what_a_participant_causes_counts_for_all_its_connections(space: Space) -> None:
    first, second, of_bob = (space.throttle(each, None) for each in ("ann", "ann", "bob"))
    first.caused(100 << 30)
    assert first.seconds_owed() == second.seconds_owed() == space.throttle("ann", None).seconds_owed() > 0
    assert of_bob.seconds_owed() == 0


def test_a_record_that_does_not_follow_is_an_error_of_ours(space: Space) -> None:
    joined(space, "ann")
    [record] = recent(space, space.state.seq - 1)
    with pytest.raises(RuntimeError, match="cannot follow"):
        space._commit([record])
