"""Interest (decision 27; seed 002, "filtering"; seed 003, "subscribe by format")."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Space, is_frame

from mewstream.protocol.errors import LimitExceeded, ValidationFailed
from mewstream.protocol.fold import fold
from mewstream.protocol.interest import (
    MAX_CHANGES,
    MAX_CHANGES_BYTES,
    MAX_ENDED,
    NOTHING,
    Interest,
    InterestForgotten,
    InterestLog,
    interest_of_join,
    matches,
)
from mewstream.protocol.interest_state import PastInterest, remembered_since
from mewstream.protocol.policy import Limits
from mewstream.protocol.records import Frame, StreamEnded, StreamOpened, Subscribed, Unsubscribed
from mewstream.protocol.render import visible_to
from mewstream.protocol.snapshot import dump, load
from mewstream.protocol.state import SpaceState

POSITION = {"id": "position", "schema": {"type": "object"}}


def scene(*names: str) -> Space:
    """Ann opens streams of these aliases; bob uses interest, and cat is a client of v0.4."""
    space = Space("ann", "cat", capabilities={"bob": ["chat"]})
    space.choose("bob")
    for name in names:
        space.open("ann", desired_id=name)
    return space


class TestRecipients:
    def test_who_subscribes_to_nothing_gets_nothing(self) -> None:
        space = scene("pos")
        assert space.recipients("stream-1") == {"ann", "cat"}
        assert space.frame("ann", "stream-1").one(Frame).recipients == 2

    @pytest.mark.parametrize(
        "wanted",
        [
            {"streams": ["stream-1"]},
            {"streams": ["pos"]},
            {"namespaces": ["seacat/pos"]},
            {"namespaces": ["seacat/stream-1"]},
            {"namespaces": ["seacat/p*"]},
            {"namespaces": ["*/po*s"]},
            {"namespaces": ["*"]},
            {"namespaces": ["nowhere/*"], "streams": ["nothing", "stream-1"]},
        ],
    )
    def test_a_subscription_that_matches(self, wanted: dict[str, Any]) -> None:
        space = scene("pos", "chatter")
        outcome = space.subscribe("bob", **wanted)
        assert outcome.types == ["Subscribed"]
        assert outcome.told("stream/subscribed")["streams"][0] == "stream-1"
        assert "bob" in space.recipients("stream-1")
        assert space.data("ann", "stream-1", 1).one(Frame).recipients == 3, "stream/data are filtered alike"

    @pytest.mark.parametrize(
        "wanted",
        [
            {"streams": ["stream-2", "seacat/pos", "po*", "Pos"]},
            {"namespaces": ["seacat/po", "pos", "other/*", "seacat/pos*s"]},
            {"formats": ["position"]},
        ],
    )
    def test_one_that_does_not(self, wanted: dict[str, Any]) -> None:
        space = scene("pos")
        assert space.subscribe("bob", **wanted).told("stream/subscribed") == {"streams": []}
        assert "bob" not in space.recipients("stream-1")

    def test_formats(self) -> None:
        space = scene("plain")
        stream = space.open("ann", formats=[POSITION])
        assert space.subscribe("bob", formats=["position"]).told("stream/subscribed")["streams"] == [stream]
        assert "bob" in space.recipients(stream) and "bob" not in space.recipients("stream-1")

    @pytest.mark.parametrize("wanted", [{"streams": ["pos"]}, {"namespaces": ["*/pos"]}, {"formats": ["position"]}])
    def test_it_counts_for_streams_that_open_later(self, wanted: dict[str, Any]) -> None:
        space = scene()
        space.subscribe("bob", **wanted)
        stream = space.announce("ann", start=True, desired_id="pos", formats=[POSITION])
        assert "bob" in space.recipients(stream)

    def test_it_is_no_right(self) -> None:
        space = scene()
        stream = space.open("ann", target=["cat"])
        assert space.subscribe("bob", namespaces=["*"]).told("stream/subscribed") == {"streams": []}
        assert space.recipients(stream) == {"cat"}
        space.send("ann", "stream/grant-read", {"stream_id": stream, "participant_id": "bob"})
        assert space.recipients(stream) == {"cat", "bob"}, "it waits for the right"
        space.unsubscribe("bob", namespaces=["*"])
        assert space.recipients(stream) == {"cat"}, "and the right waits for it"

    def test_a_writer_gets_its_own_frames_only_if_it_wants_them(self) -> None:
        space = scene("pos")
        space.grant("ann", "stream-1", "bob")
        assert space.frame("bob", "stream-1").one(Frame).recipients == 2
        space.subscribe("bob", streams=["pos"])
        assert space.frame("bob", "stream-1").one(Frame).recipients == 3


class TestState:
    def test_it_adds_up_and_is_taken_back_one_by_one(self) -> None:
        space = scene("a", "b")
        space.subscribe("bob", streams=["a"])
        space.subscribe("bob", streams=["b"], namespaces=["*/a"])
        assert space.unsubscribe("bob", streams=["a", "b", "unknown"]).told("stream/unsubscribed") == {
            "streams": ["stream-2"]
        }
        assert "bob" in space.recipients("stream-1"), "it is still wanted by its namespace"
        assert "bob" not in space.recipients("stream-2")

    def test_only_the_subscriber_is_told(self) -> None:
        space = scene("a")
        for outcome in (space.subscribe("bob", streams=["a"]), space.unsubscribe("bob", streams=["a"])):
            [record] = outcome.records
            assert isinstance(record, Subscribed | Unsubscribed)
            assert visible_to(record, "bob") and not visible_to(record, "ann")
            assert outcome.messages[0]["to"] == ["bob"]
            assert outcome.messages[0]["correlation_id"] == [record.request_id]

    def test_a_repetition_is_answered_as_before(self) -> None:
        space = scene("a")
        space.subscribe("bob", streams=["a"])
        first = space.records[-1]
        again = space.send("bob", "stream/subscribe", {"streams": ["a"]}, id=first.request_id)  # type: ignore[attr-defined]
        assert again.records == [] and again.repetition is not None
        assert again.repetition.answer.records == [first]

    def test_it_is_kept_while_suspended(self) -> None:
        space = scene("a")
        space.subscribe("bob", streams=["a"])
        space.suspend("bob")
        assert "bob" not in space.recipients("stream-1")
        space.choose("bob")
        assert "bob" in space.recipients("stream-1")

    def test_a_join_that_says_what_it_wants_takes_its_place(self) -> None:
        space = scene("a", "b")
        space.subscribe("bob", streams=["a"])
        space.suspend("bob")
        space.choose("bob", streams=["b"])
        assert "bob" not in space.recipients("stream-1") and "bob" in space.recipients("stream-2")

    @pytest.mark.parametrize("continues", [False, True])
    def test_another_connection_begins_anew_unless_it_continues(self, continues: bool) -> None:
        space = scene("a")
        space.subscribe("bob", streams=["a"])
        space.choose("bob", continues=continues)
        assert ("bob" in space.recipients("stream-1")) is continues

    def test_a_leave_ends_it(self) -> None:
        space = scene("a")
        space.subscribe("bob", streams=["a"])
        space.leave("bob")
        space.choose("bob")
        assert "bob" not in space.recipients("stream-1")

    def test_a_client_without_it_gets_everything(self) -> None:
        space = scene("a")
        space.join("bob")
        assert "bob" in space.recipients("stream-1")
        space.choose("bob")
        assert "bob" not in space.recipients("stream-1")

    def test_it_is_in_snapshots(self) -> None:
        space = scene("a", "b")
        space.subscribe("bob", streams=["a"], namespaces=["*/x*"])
        space.close("ann", "stream-2")
        state = load(dump(space.state))
        assert state == space.state
        assert state.audiences.listeners == {"stream-1": {"bob": 0.0}}
        assert state.used_ids == space.state.used_ids
        assert state.interests["bob"].at(space.state.seq) == Interest({"a": 0.0}, {}, {"*/x*": 0.0})

    def test_the_log_alone_gives_the_state(self) -> None:
        space = scene("a")
        space.subscribe("bob", namespaces=["*"])
        space.open("ann", desired_id="b")
        again = fold("seacat", space.records)
        assert again == space.state and again.audiences.listeners == space.state.audiences.listeners


class TestRefusals:
    @pytest.mark.parametrize(
        "payload",
        [
            {},
            {"streams": []},
            {"streams": "stream-1"},
            {"streams": [1]},
            {"streams": [""]},
            {"formats": {"id": "x"}},
            {"namespaces": [None]},
            {"stream": ["stream-1"]},
        ],
    )
    def test_what_is_no_list_of_names(self, payload: dict[str, Any]) -> None:
        for kind in ("stream/subscribe", "stream/unsubscribe"):
            assert scene().send("bob", kind, payload).error == "validation_error"

    @pytest.mark.parametrize(
        ("payload", "limit"),
        [
            ({"streams": [f"s{n}" for n in range(257)]}, "subscriptions_per_participant"),
            ({"namespaces": [f"*/{n}" for n in range(17)]}, "namespaces_per_participant"),
            ({"streams": ["x" * 129]}, "id_bytes"),
            ({"namespaces": ["x" * 257]}, "id_bytes"),
        ],
    )
    def test_too_much(self, payload: dict[str, Any], limit: str) -> None:
        outcome = scene().send("bob", "stream/subscribe", payload)
        assert (outcome.error, outcome.told("system/error")["limit"]) == ("limit_exceeded", limit)
        with pytest.raises(LimitExceeded):
            interest_of_join(payload, Limits())

    def test_the_sum_is_limited(self) -> None:
        space = scene()
        for part in range(2):
            assert space.subscribe("bob", streams=[f"{part}-{n}" for n in range(128)]).error is None
        assert space.subscribe("bob", streams=["0-0"]).error is None, "it is subscribed to that already"
        assert space.subscribe("bob", formats=["one more"]).error == "limit_exceeded"

    def test_a_client_that_did_not_ask_for_the_extension(self) -> None:
        space = scene("a")
        space.join("bob", extensions=["positions"])
        assert space.subscribe("bob", streams=["a"]).error == "invalid_operation"

    def test_a_client_of_v0_4_is_relayed_as_before(self) -> None:
        space = scene()
        assert space.subscribe("ann", whatever=1).types == ["EnvelopeAccepted"]
        space.join("bob")
        assert space.subscribe("bob", streams=["a"]).error == "capability_violation"

    def test_a_denial_wins(self) -> None:
        space = Space(capabilities={"bob": ["*", "!stream/subscribe"]})
        space.choose("bob")
        assert space.subscribe("bob", streams=["a"]).error == "capability_violation"
        assert space.unsubscribe("bob", streams=["a"]).error is None

    @pytest.mark.parametrize("kind", ["stream/subscribed", "stream/unsubscribed"])
    def test_the_answers_are_reserved(self, kind: str) -> None:
        assert scene().send("bob", kind, {"streams": []}).error == "reserved_kind"

    def test_who_is_paused_may_still_choose(self) -> None:
        space = scene("a")
        space.send("admin", "participant/pause", {}, to=["bob"])
        assert space.subscribe("bob", streams=["a"]).error is None

    def test_a_join_may_say_nothing(self) -> None:
        assert interest_of_join(None, Limits()) is None
        assert interest_of_join({}, Limits()) == NOTHING
        with pytest.raises(ValidationFailed):
            interest_of_join({"streams": 1}, Limits())


class TestGlobs:
    @pytest.mark.parametrize(
        ("glob", "text", "expected"),
        [
            ("a", "a", True),
            ("a", "ab", False),
            ("*", "", True),
            ("a*", "abc", True),
            ("*c", "abc", True),
            ("a*c", "abc", True),
            ("a*b*c", "a.b.c", True),
            ("a*b*c", "a.c.b", False),
            ("ab*bc", "abc", False),
            ("a**c", "ac", True),
            ("a*b*b", "ab", False),
            ("a.c", "abc", False),
            ("[a]", "a", False),
        ],
    )
    def test_stars_alone_are_special(self, glob: str, text: str, expected: bool) -> None:
        assert matches(glob, text) is expected

    def test_a_hostile_one_takes_no_longer(self) -> None:
        """A matcher that tries again would never end with it."""
        assert not matches("*a" * 128 + "b", "seacat/" + "a" * 256)


class TestPast:
    """What a replay knows of interest."""

    def past(self, space: Space, seq: int) -> PastInterest:
        return PastInterest(space.state, "bob", seq)

    def test_what_held_then(self) -> None:
        space = scene("a", "b")
        nothing = space.state.seq
        space.subscribe("bob", streams=["a"])
        one = space.state.seq
        space.unsubscribe("bob", streams=["a"])
        space.subscribe("bob", streams=["b"])
        for seq, wanted in ((0, [True, True]), (nothing, [False, False]), (one, [True, False])):
            past = self.past(space, seq)
            assert [past.wants("stream-1"), past.wants("stream-2")] == wanted
        past = self.past(space, nothing)
        for record in space.records[nothing:]:
            past.follow(record)
        assert [past.wants("stream-1"), past.wants("stream-2")] == [False, True]

    def test_streams_that_have_ended_are_known_by_name(self) -> None:
        space = scene("a")
        space.subscribe("bob", streams=["a"])
        seq = space.state.seq
        space.close("ann", "stream-1")
        assert self.past(space, seq).wants("stream-1")

    def test_streams_that_opened_later(self) -> None:
        space = scene()
        space.subscribe("bob", streams=["a"])
        past = self.past(space, space.state.seq)
        space.open("ann", desired_id="a")
        for record in space.records:
            if isinstance(record, StreamOpened):
                past.follow(record)
        assert past.wants("stream-1")

    def test_the_changes_that_are_remembered_are_bounded(self) -> None:
        log = InterestLog()
        for seq in range(1, 3 * MAX_CHANGES):
            log.change(seq, Interest({"a": 0.0}))
        assert len(log.changes) == MAX_CHANGES
        with pytest.raises(InterestForgotten):
            log.at(log.changes[0].seq - 1)
        big = Interest({f"{n:0100}": 0.0 for n in range(250)})
        for seq in range(1_000, 1_100):
            log.change(seq, big)
        assert log.current == big and sum((each.interest or NOTHING).size for each in log.changes) <= MAX_CHANGES_BYTES

    def test_one_that_is_larger_than_all_of_it_is_kept(self) -> None:
        log = InterestLog()
        huge = Interest({f"{n:0500}": 0.0 for n in range(250)})
        log.change(1, huge)
        assert log.current == huge and log.changes[0].seq == 1

    def test_the_names_that_are_remembered_are_bounded(self) -> None:
        space = scene("first")
        state = space.state
        for _ in range(2):
            space.close("ann", list(state.streams)[-1])
            space.open("ann", desired_id="next")
        opened = state.streams["stream-3"]
        for number in range(MAX_ENDED):
            apply_end(state, opened.id, number)
        assert len(state.ended) == MAX_ENDED
        assert remembered_since(state, "bob") == state.ended_before > 0
        with pytest.raises(InterestForgotten):
            PastInterest(state, "bob", state.ended_before - 1)

    def test_who_never_used_interest_wants_everything(self) -> None:
        space = scene("a")
        assert PastInterest(space.state, "cat", 0).wants("stream-1")
        assert remembered_since(space.state, "cat") == 0


def apply_end(state: SpaceState, stream_id: str, number: int) -> None:
    """The end of one more stream of the same name."""
    from mewstream.protocol.fold import apply

    stream = state.streams[stream_id]
    another = f"stream-{1_000 + number}"
    state.streams[another] = type(stream)(**{name: getattr(stream, name) for name in stream.__struct_fields__})
    state.streams[another].id = another
    apply(state, StreamEnded(state.seq + 1, state.ts, None, another, "closed", "ann"))


def test_a_frame_is_accepted_whoever_listens() -> None:
    space = Space("ann")
    space.choose("ann")
    stream = space.open("ann")
    assert is_frame(space.frame("ann", stream)) and space.records[-1].recipients == 0  # type: ignore[attr-defined]
