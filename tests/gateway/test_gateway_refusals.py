"""Refusals of a space: recorded, counted in a flood, or counted while nothing can be recorded."""

from __future__ import annotations

import time

import pytest
from doubles import FailingRecorder, FakeMember, ManualLoop, joined, make_space, say, send_frames

from mewstream.gateway import clock as clock_module
from mewstream.gateway.joining import JoinRefused
from mewstream.gateway.refusal_flood import BURST
from mewstream.gateway.space import Space
from mewstream.protocol.records import ClockJumped, Left, Refused
from mewstream.protocol.times import SECOND


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def recorder() -> FailingRecorder:
    return FailingRecorder()


@pytest.fixture
def space(loop: ManualLoop, recorder: FailingRecorder) -> Space:
    return make_space(loop, "ann", "bob", recorder=recorder)


def test_the_first_ones_are_recorded_and_the_rest_counted(space: Space, loop: ManualLoop) -> None:
    ann = joined(space, "ann", positions=True)
    before = space.state.seq
    decisions = [say(space, "ann", "stream/close", stream_id="stream-9") for _ in range(BURST + 20)]
    assert [each.is_recorded for each in decisions] == [True] * BURST + [False] * 20
    assert space.state.seq == before + BURST
    loop.advance()
    errors = [each for each in ann.messages if each["kind"] == "system/error"]
    assert len(errors) == BURST + 20, "each is answered"
    assert sum("seq" in each for each in errors) == BURST, "only a record has a position"
    assert len({each["id"] for each in errors}) == len(errors)


def test_of_frames_only_the_first_is_answered(space: Space, loop: ManualLoop) -> None:
    joined(space, "ann")
    bob = joined(space, "bob")
    say(space, "ann", "stream/request")
    send_frames(space, loop, bob, "stream-1", [b"x"] * 50)
    loop.advance()
    assert bob.kinds.count("system/error") == 1
    loop.advance(2)
    [total] = [each["payload"] for each in bob.messages if "count" in each["payload"]]
    assert (total["error"], total["count"]) == ("unauthorized_stream_write", 49)


class TestWhileTheJournalFails:
    def test_nothing_happens_and_everything_is_answered(
        self, space: Space, loop: ManualLoop, recorder: FailingRecorder
    ) -> None:
        ann = joined(space, "ann")
        say(space, "ann", "stream/request")
        before = space.state.seq
        recorder.failing = True
        decision = say(space, "ann", "chat", text="hello")
        assert not decision.is_recorded and decision.records[0].code == "journal_unavailable"  # type: ignore[attr-defined]
        assert ann.kinds[-1] == "system/error", "at once, past what waits for the journal"
        send_frames(space, loop, ann, "stream-1", [b"x"] * 10)
        assert space.state.seq == before
        refused = space.join(FakeMember("bob"))
        assert isinstance(refused, JoinRefused) and refused.flaw.code == "journal_unavailable"

    def test_questions_are_refused_too(self, space: Space, recorder: FailingRecorder) -> None:
        """An answer would wait in memory for the journal, and questions could be asked without end."""
        ann = joined(space, "ann")
        recorder.failing = True
        for kind in ("stream/list", "participant/list"):
            assert say(space, "ann", kind).records[0].code == "journal_unavailable"  # type: ignore[attr-defined]
        assert ann.kinds == ["system/error", "system/error"]

    def test_one_that_leaves_does_so_at_the_time_of_a_clock_that_was_set(
        self, space: Space, recorder: FailingRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ann = joined(space, "ann")
        recorder.failing = True
        real, before = time.time_ns, space.state.seq
        monkeypatch.setattr(clock_module.time, "time_ns", lambda: real() + 3600 * 10**9)
        space.follow_clock()
        assert space.state.seq == before, "nothing happens because of the clock alone"
        space.leave(ann, is_final=True)
        jumped, left = recent(space, before)
        assert isinstance(jumped, ClockJumped) and isinstance(left, Left)
        assert left.ts - jumped.ts < 60 * SECOND

    def test_they_are_recorded_as_sums_when_it_is_back(
        self, space: Space, loop: ManualLoop, recorder: FailingRecorder
    ) -> None:
        ann = joined(space, "ann")
        recorder.failing = True
        say(space, "ann", "chat", text="hello")
        send_frames(space, loop, ann, "stream-1", [b"x"] * 10)
        recorder.failing = False
        before = space.state.seq
        for each in recorder.recovered:
            each()
        sums = [each for each in recent(space, before) if isinstance(each, Refused)]
        assert sorted((each.kind, each.count, each.told) for each in sums) == [("chat", 1, 1), ("frame", 10, 1)]


def test_one_that_joins_too_often_is_counted(space: Space) -> None:
    with pytest.raises(JoinRefused) as refused:
        for _ in range(200):
            space.check_joins("ann")
    assert refused.value.flaw.code == "limit_exceeded"
    before = space.state.seq
    space.refusals.floods.finish("ann")
    [total] = recent(space, before)
    assert isinstance(total, Refused) and (total.kind, total.count) == ("system/join", 1)


def recent(space: Space, after: int) -> list[object]:
    return list(space.replay._recent.read(after))
