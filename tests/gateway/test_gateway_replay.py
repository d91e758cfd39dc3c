"""What is sent again to a participant that resumes or polls; see also tests/journal/test_resume.py, over sockets."""

from __future__ import annotations

import json

import pytest
from doubles import FakeMember, ManualLoop, joined, make_space, say

from mewstream.gateway.replay import (
    CHUNK_MESSAGES,
    Backlog,
    Epochs,
    Replayed,
    ResumeRefused,
    Viewer,
    chunks,
    replay_record,
    resume_after,
)
from mewstream.gateway.space import Space
from mewstream.protocol.interest_state import PastInterest
from mewstream.protocol.policy import Limits
from mewstream.protocol.position import Position
from mewstream.protocol.records import EnvelopeAccepted, Frame, Refused
from mewstream.protocol.state import SpaceState


def space_at(seq: int, **epochs: int) -> SpaceState:
    state = SpaceState("demo", seq=seq, epochs=epochs, first_joins={"ann": 5}, limits=Limits(resume_records=50))
    state.epoch = list(epochs)[-1]
    return state


class TestPositions:
    state = space_at(100, old=1, new=60)

    @pytest.mark.parametrize(("epoch", "seq", "after"), [("new", 90, 90), ("new", 100, 100), ("old", 59, 59)])
    def test_a_valid_one(self, epoch: str, seq: int, after: int) -> None:
        assert resume_after(self.state, "ann", Position(epoch, seq)) == after

    def test_nothing_from_before_the_first_join(self) -> None:
        assert resume_after(space_at(30, only=1), "ann", Position("only", 1)) == 5

    @pytest.mark.parametrize(
        ("participant", "epoch", "seq", "reason"),
        [
            ("ann", "another", 90, "another journal"),
            ("ann", "old", 60, "ends at 59"),
            ("ann", "new", 101, "ends at 100"),
            ("bob", "new", 90, "not been in this space"),
            ("ann", "old", 20, "80 records were missed, at most 50"),
        ],
    )
    def test_one_that_is_not(self, participant: str, epoch: str, seq: int, reason: str) -> None:
        with pytest.raises(ResumeRefused, match=reason):
            resume_after(self.state, participant, Position(epoch, seq))


def test_the_run_that_wrote_a_record() -> None:
    epochs = Epochs(space_at(100, old=1, new=60))
    assert [epochs.at(seq) for seq in (1, 59, 60, 100)] == ["old", "old", "new", "new"]


def viewer(participant: str) -> Viewer:
    return Viewer(participant, PastInterest(SpaceState("demo"), participant, 0))


class TestMessages:
    epochs = Epochs(space_at(100, only=1))

    def test_a_frame_has_its_position(self) -> None:
        frame = Frame(7, 7, None, "stream-1", "bob", 1, 2, 1, b"\x00x")
        assert replay_record("demo", self.epochs, frame, viewer("ann")) == Replayed(7, 2, b"#stream-1|7|bob#\x00x")

    def test_an_envelope_has_its_position(self) -> None:
        record = EnvelopeAccepted(8, 8, None, "bob", "chat", "m", 0, b'{"id":"m"}')
        assert replay_record("demo", self.epochs, record, viewer("ann")) == Replayed(8, 1, b'{"seq":8,"id":"m"}')

    def test_what_was_for_others_is_left_out(self) -> None:
        private = Refused(9, 9, None, sender="bob", kind="chat", code="c", message="no", http_status=400)
        assert replay_record("demo", self.epochs, private, viewer("ann")) is None
        assert replay_record("demo", self.epochs, private, viewer("bob")) is not None
        ann, bob = viewer("ann"), viewer("bob")
        for readers, sees in ((("bob",), False), (("bob", "ann"), True), (("cy", "bob"), False)):
            frame = Frame(7, 7, None, "stream-1", "bob", 1, 2, 1, b"", readers=readers)
            for _ in range(2):
                assert (ann.sees(frame), bob.sees(frame)) == (sees, True)


def test_many_messages_are_framed_in_chunks() -> None:
    messages = [Replayed(seq, 1, b"%d" % seq) for seq in range(1, CHUNK_MESSAGES + 11)]
    first, second = chunks(messages)
    assert (first[1], second[1]) == (CHUNK_MESSAGES, CHUNK_MESSAGES + 10)
    assert first[0].startswith(b"\x81\x011\x81\x012") and second[0].endswith(b"\x81\x03%d" % (CHUNK_MESSAGES + 10))


class TestInASpace:
    @pytest.fixture
    def space(self) -> Space:
        self.loop = ManualLoop()
        return make_space(self.loop, "ann", "bob")

    async def come_back(self, space: Space, seq: int, epoch: str | None = None) -> FakeMember:
        resume = Position(epoch or space.state.epoch, seq)
        backlog = await space.replay.backlog("ann", resume, lambda: True)
        again = FakeMember("ann", positions=True, is_reconnect=True)
        assert space.join(again, backlog) is None
        self.loop.advance()
        return again

    async def test_what_was_missed_follows_the_welcome(self, space: Space) -> None:
        ann, bob = joined(space, "ann", positions=True), joined(space, "bob")
        say(space, "bob", "stream/request")
        seen = space.state.seq
        space.leave(ann)
        space.frames(bob, "stream-1", [b"one", b"two"], 1)
        say(space, "bob", "chat", text="while you were away")
        again = await self.come_back(space, seen)
        welcome, replayed = again.parcels
        resume = json.loads(again.bodies[0])["payload"]["resume"]
        assert resume == {"recovered": True, "from_seq": seen + 1, "to_seq": space.state.seq}
        assert b"|bob#one" in replayed.bodies[0] and b"|bob#two" in replayed.bodies[0]
        assert replayed.bodies[0].index(b"#two") < replayed.bodies[0].index(b"while you were away")
        assert welcome.seq == space.state.seq

    async def test_a_position_that_is_not_valid_is_explained_in_the_welcome(self, space: Space) -> None:
        ann = joined(space, "ann")
        space.leave(ann)
        again = await self.come_back(space, 1, epoch="another")
        assert again.messages[0]["payload"]["resume"]["recovered"] is False
        assert len(again.messages) == 1

    def test_a_backlog_that_memory_has_outgrown(self, space: Space) -> None:
        too_late = space.replay.complete("ann", Backlog(-5, -5, []))
        assert isinstance(too_late, ResumeRefused) and "moved on" in too_late.reason
