"""Names that survive a restart, and streams that nobody uses: decision 12."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from harness import EPOCH, Outcome, Space

from mewstream.protocol import commands
from mewstream.protocol.records import EnvelopeAccepted, StreamEnded, StreamOpened, StreamReused
from mewstream.protocol.snapshot import dump, load
from mewstream.protocol.times import rfc3339

BOTH = pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])


def named(**capabilities: list[Any]) -> tuple[Space, str]:
    """alice owns ``moves``; bob is here too, and mia may manage."""
    space = Space("alice", "bob", "mia", capabilities={"mia": ["stream/*", "space/manage-streams"], **capabilities})
    return space, space.open("alice", desired_id="moves")


def ask(space: Space, who: str, if_exists: Any, kind: str = "stream/request", **fields: Any) -> Outcome:
    return space.send(who, kind, {"desired_id": "moves", "if_exists": if_exists} | fields)


def described(outcome: Outcome) -> dict[str, Any]:
    """What the last message says of its stream."""
    payload = outcome.messages[-1]["payload"]
    found: dict[str, Any] = payload.get("stream", payload)
    return found


@BOTH
@pytest.mark.parametrize("if_exists", ["new", "reuse", "replace", "error"])
def test_a_free_name_is_given(kind: str, if_exists: str) -> None:
    space = Space("alice")
    outcome = ask(space, "alice", if_exists, kind)
    assert outcome.types == ["EnvelopeAccepted", "StreamOpened"]
    assert described(outcome)["alias"] == "moves"
    assert "reused" not in described(outcome)


class TestReuse:
    @BOTH
    def test_the_owner_gets_its_stream_back(self, kind: str) -> None:
        space, stream = named()
        before = dataclasses.replace(space.state, answers={}, seq=0, ts=0)
        shown = space.stream(stream)
        outcome = ask(space, "alice", "reuse", kind, description="another")
        assert outcome.types == ["StreamReused"]
        [told] = outcome.messages
        assert told["kind"] == ("stream/open" if kind == "stream/request" else "stream/ready")
        assert (told["to"], told["correlation_id"]) == (["alice"], [outcome.one(StreamReused).request_id])
        assert described(outcome) == {**shown, "reused": True}
        assert dataclasses.replace(space.state, answers={}, seq=0, ts=0) == before

    def test_nobody_else_is_told(self) -> None:
        space, _ = named()
        [told] = ask(space, "alice", "reuse").messages
        assert told in space.seen_by("alice")
        assert told not in space.seen_by("bob")

    def test_the_stream_of_another(self) -> None:
        space, stream = named()
        for who in ("bob", "mia"):
            outcome = ask(space, who, "reuse")
            assert outcome.error == "already_exists"
            assert outcome.refusal is not None and outcome.refusal.http_status == 409
            assert outcome.refusal.details == {"stream_id": stream, "owner": "alice"}

    def test_after_the_stream_was_transferred_it_is_the_new_owners(self) -> None:
        space, stream = named()
        space.transfer("alice", stream, "bob")
        assert ask(space, "alice", "reuse").error == "already_exists"
        assert described(ask(space, "bob", "reuse"))["stream_id"] == stream

    def test_after_it_has_ended_a_new_one_is_opened(self) -> None:
        space, stream = named()
        space.close("alice", stream)
        outcome = ask(space, "alice", "reuse")
        assert described(outcome)["stream_id"] == "stream-2"
        assert "reused" not in described(outcome)

    def test_a_repeated_request_gets_the_same_answer(self) -> None:
        space, _ = named()
        payload = {"desired_id": "moves", "if_exists": "reuse"}
        first = space.send("alice", "stream/request", payload, id="r")
        again = space.send("alice", "stream/request", payload, id="r")
        assert again.records == []
        assert again.repetition is not None and again.repetition.answer.records == first.records
        # It has reached nobody, so that another may use its id; also after a restart from a snapshot.
        restored = load(dump(space.state))
        assert restored == space.state
        assert "r" not in space.state.used_ids and "r" not in restored.used_ids
        assert space.send("bob", "chat", {"text": "hi"}, id="r").error is None

    def test_a_full_share_of_streams_does_not_matter(self) -> None:
        space = Space("alice", limits={"streams_per_participant": 1, "streams_per_space": 1})
        space.open("alice", desired_id="moves")
        assert ask(space, "alice", "new").error == "limit_exceeded"
        assert ask(space, "alice", "reuse").types == ["StreamReused"]
        assert ask(space, "alice", "replace").types == ["EnvelopeAccepted", "StreamEnded", "StreamOpened"]

    def test_nobody_learns_of_a_stream_without_the_capability(self) -> None:
        space, _ = named(carol=["chat"])
        space.join("carol")
        for if_exists in ("reuse", "replace", "error"):
            assert ask(space, "carol", if_exists).error == "capability_violation"


class TestReplace:
    @BOTH
    @pytest.mark.parametrize("who", ["alice", "mia"])
    def test_the_old_one_is_closed_and_the_new_one_opened_at_one_point(self, kind: str, who: str) -> None:
        space, stream = named()
        outcome = ask(space, who, "replace", kind)
        assert outcome.types == ["EnvelopeAccepted", "StreamEnded", "StreamOpened"]
        assert outcome.kinds[1:] == ["stream/close", "stream/open" if kind == "stream/request" else "stream/ready"]
        closed = outcome.messages[1]
        assert closed["from"] == "system:gateway"
        assert (closed["payload"]["stream_id"], closed["payload"]["reason"]) == (stream, "replaced")
        cause = outcome.one(EnvelopeAccepted).seq
        assert outcome.one(StreamEnded).cause_seq == outcome.one(StreamOpened).cause_seq == cause
        assert described(outcome).items() >= {"stream_id": "stream-2", "alias": "moves", "owner": who}.items()
        assert list(space.state.streams) == ["stream-2"]
        assert space.state.aliases == {"moves": "stream-2"}

    def test_not_the_stream_of_another(self) -> None:
        space, stream = named()
        outcome = ask(space, "bob", "replace")
        assert outcome.error == "unauthorized"
        assert outcome.types == ["Refused"]
        assert list(space.state.streams) == [stream]

    def test_a_manager_that_may_not_close_cannot_replace(self) -> None:
        space, _ = named(mia=["stream/*", "space/manage-streams", "!stream/close"])
        assert ask(space, "mia", "replace").error == "unauthorized"

    def test_a_manager_needs_room_for_a_stream_of_its_own(self) -> None:
        space = Space(
            "alice", "mia", capabilities={"mia": ["*"]}, limits={"streams_per_participant": 1, "streams_per_space": 2}
        )
        space.open("alice", desired_id="moves")
        space.open("mia")
        assert ask(space, "mia", "replace").error == "limit_exceeded"

    def test_what_is_refused_for_another_reason_closes_nothing(self) -> None:
        space, stream = named()
        assert ask(space, "alice", "replace", target=["nobody"]).error == "target_not_found"
        assert list(space.state.streams) == [stream]


class TestNewAndError:
    def test_error(self) -> None:
        space, stream = named()
        for who in ("alice", "bob"):
            outcome = ask(space, who, "error")
            assert outcome.error == "already_exists"
            assert outcome.refusal is not None and outcome.refusal.details == {"stream_id": stream, "owner": "alice"}

    @BOTH
    def test_new_says_who_has_the_name(self, kind: str) -> None:
        space, stream = named()
        outcome = ask(space, "bob", "new", kind)
        assert described(outcome)["alias"] is None
        assert described(outcome)["alias_taken_by"] == stream
        assert space.stream("stream-2").keys().isdisjoint({"alias", "alias_taken_by"})

    def test_a_client_of_v04_that_does_not_ask_is_told_what_it_always_was(self) -> None:
        space, _ = named()
        outcome = space.send("bob", "stream/request", {"desired_id": "moves"})
        assert described(outcome).keys().isdisjoint({"alias", "alias_taken_by", "reused"})

    def test_a_client_that_knows_extensions_is_told_without_asking(self) -> None:
        space, stream = named()
        space.do(commands.Join("bob", "ws", extensions=[]))
        outcome = space.send("bob", "stream/request", {"desired_id": "moves"})
        assert (described(outcome)["alias"], described(outcome)["alias_taken_by"]) == (None, stream)

    @pytest.mark.parametrize("value", ["maybe", "", 7, True, ["reuse"], {}])
    def test_what_we_do_not_know_is_metadata_to_v04_and_a_mistake_otherwise(self, value: Any) -> None:
        space, _ = named()
        outcome = ask(space, "bob", value)
        assert described(outcome)["if_exists"] == value
        assert "alias_taken_by" not in described(outcome)
        space.do(commands.Join("bob", "ws", extensions=["positions"]))
        outcome = ask(space, "bob", value)
        assert outcome.error == "validation_error"
        assert outcome.refusal is not None and outcome.refusal.details == {"field": "if_exists"}

    @pytest.mark.parametrize("name", [None, "", "a#b", "stream-9", 7])
    def test_it_takes_a_name(self, name: Any) -> None:
        outcome = ask(Space("alice"), "alice", "reuse", desired_id=name)
        assert outcome.error == "validation_error"
        assert outcome.refusal is not None and outcome.refusal.details == {"field": "desired_id"}

    def test_a_request_cannot_pretend_the_answer(self) -> None:
        """decision 23."""
        space = Space("alice")
        outcome = space.send("alice", "stream/request", {"reused": True, "alias_taken_by": "stream-7", "alias": "x"})
        assert described(outcome).keys().isdisjoint({"alias", "alias_taken_by", "reused"})


class TestIdle:
    def test_a_stream_without_frames_is_closed(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice", idle_timeout=10)
        assert space.tick(9.9).records == []
        outcome = space.tick(0.1)
        [told] = outcome.messages
        assert (told["kind"], told["from"]) == ("stream/close", "system:gateway")
        assert (told["payload"]["stream_id"], told["payload"]["reason"]) == (stream, "idle")
        assert space.state.streams == {}

    def test_a_frame_or_a_change_begins_the_time_again(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice", idle_timeout=10)
        for use in (
            lambda: space.frame("alice", stream),
            lambda: space.data("alice", stream, 1),
            lambda: space.grant("alice", stream, "bob"),
            lambda: space.transfer("alice", stream, "bob"),
        ):
            space.tick(9)
            use()
            assert space.state.streams[stream].last_ts == space.now
        assert space.state.next_deadline() == space.now + 10_000_000
        assert space.tick(9.9).records == []
        assert space.tick(0.1).types == ["StreamEnded"]

    def test_refused_frames_are_no_use(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice", idle_timeout=10)
        space.tick(9)
        space.frame("bob", stream)
        assert space.tick(1).types == ["StreamEnded"]

    def test_a_stream_has_its_own_or_that_of_its_space(self) -> None:
        space = Space("alice", policies={"idle_timeout": 5})
        space.open("alice", idle_timeout=0)
        space.open("alice", idle_timeout=7)
        of_space = space.open("alice")
        assert space.tick(5).one(StreamEnded).stream_id == of_space
        assert space.tick(2).one(StreamEnded).stream_id == "stream-2"
        assert space.tick(1e6).records == []

    def test_an_announced_stream_is_idle_too(self) -> None:
        space = Space("alice", policies={"start_timeout": 0})
        space.announce("alice", idle_timeout=5)
        assert space.tick(5).one(StreamEnded).reason == "idle"

    def test_the_time_of_a_restart_does_not_count(self) -> None:
        space = Space("alice")
        space.open("alice", idle_timeout=10)
        space.now += 60_000_000
        space.do(commands.Start(EPOCH, space.config))
        assert space.tick(9.9).records == []
        assert space.tick(0.1).types == ["StreamEnded"]

    @pytest.mark.parametrize("value", [-1, "soon", True, 1e9, []])
    def test_what_is_no_time_is_metadata_to_v04_and_a_mistake_otherwise(self, value: Any) -> None:
        space = Space("alice", policies={"idle_timeout": 5})
        assert described(space.send("alice", "stream/request", {"idle_timeout": value}))["idle_timeout"] == value
        assert space.tick(5).one(StreamEnded).reason == "idle"
        space.do(commands.Join("alice", "ws", extensions=[]))
        outcome = space.send("alice", "stream/request", {"idle_timeout": value})
        assert outcome.error == "validation_error"
        assert outcome.refusal is not None and outcome.refusal.details == {"field": "idle_timeout"}

    def test_a_stream_knows_when_it_was_active(self) -> None:
        space = Space("alice")
        stream = space.open("alice")
        space.tick(3)
        space.frame("alice", stream)
        assert rfc3339(space.state.streams[stream].last_ts) == rfc3339(space.now)
