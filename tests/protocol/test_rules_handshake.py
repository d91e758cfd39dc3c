"""announce -> ready -> start -> data -> complete or error: seed 003, under decision 13."""

from __future__ import annotations

from typing import Any

import pytest
from harness import EVERYTHING, NOON, SPACE, Space, is_frame

from mewstream.protocol.records import EnvelopeAccepted, StreamEnded, StreamOpened, StreamStarted
from mewstream.protocol.times import SECOND
from mewstream.protocol.transitions import BY_EVENT_AND_STATE, TRANSITIONS, WHO, Status, Who

MOVEMENT = {
    "id": "movement/2d",
    "description": "Normalized XY positions for a multiplayer session",
    "mime_type": "application/json",
    "schema": {
        "type": "object",
        "properties": {
            "entity": {"type": "string"},
            "position": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
            },
            "orientation": {"type": "number"},
        },
        "required": ["entity", "position"],
    },
}
"""seed 003, Format Descriptors: the example."""


def named(stream: str, **fields: Any) -> dict[str, Any]:
    return {"stream": {"stream_id": stream}, **fields}


class TestTheWholeHandshake:
    def test_from_announce_to_complete(self) -> None:
        """seed 003, Handshake Sequence, steps 1 to 5; Context, 4: Lifecycle Events."""
        space = Space("alice", "bob")
        announced = space.send(
            "alice",
            "stream/announce",
            {"intent": "movement", "formats": [MOVEMENT], "desired_id": "moves", "metadata": {"hz": 60}},
            id="a1",
        )
        assert announced.kinds == ["stream/announce", "stream/ready"]
        ready = announced.messages[1]
        assert (ready["from"], ready["correlation_id"]) == ("system:gateway", ["a1"])
        assert "to" not in ready, "to everyone"
        assert ready in space.seen_by("bob"), "all learn the namespace before data flows"
        stream = ready["payload"]["stream"]
        assert (
            stream.items()
            >= {
                "stream_id": "stream-1",
                "namespace": f"{SPACE}/stream-1",
                "alias": "moves",
                "status": "ready",
                "owner": "alice",
                "intent": "movement",
                "metadata": {"hz": 60},
                "capabilities": {"read": "stream/read:stream-1", "write": "stream/write:stream-1"},
            }.items()
        )
        assert stream["formats"][0].items() >= MOVEMENT.items()
        assert stream["formats"][0]["schema_hash"]

        started = space.send("alice", "stream/start", named("stream-1", start_ts="2026-01-31T12:00:01Z"))
        assert started.types == ["EnvelopeAccepted", "StreamStarted"]
        assert started.kinds == ["stream/start"], "the creator's own envelope tells everyone"
        assert space.stream("stream-1")["status"] == "live"

        position = {"entity": "e1", "position": {"x": 0, "y": 1}}
        data = space.data("alice", "stream-1", 1, position, format_id="movement/2d")
        assert data.told("stream/data")["content"] == position

        completed = space.send("alice", "stream/complete", named("stream-1", reason="done"))
        assert completed.kinds == ["stream/complete"]
        assert completed.one(StreamEnded).how == "completed"
        assert completed.one(StreamEnded).reason == "done"
        assert space.frame("alice", "stream-1").error == "stream_not_found"

    @pytest.mark.parametrize("kind", ["stream/start", "stream/data", "stream/complete", "stream/error"])
    @pytest.mark.parametrize("by", ["stream", "stream_id", "alias", "both"])
    def test_every_envelope_carries_the_namespace(self, kind: str, by: str) -> None:
        """seed 003, Implementation Details: all MUST include ``payload.stream.namespace``, and ``context`` mirrors it.
        decision 13: a missing namespace is filled in."""
        space = Space("alice")
        space.announce("alice", desired_id="moves", start=kind != "stream/start")
        name = "moves" if by == "alias" else "stream-1"
        payload: dict[str, Any] = {"sequence": 1, "content": 1, "code": "x", "message": "y"}
        if by != "stream":
            payload["stream_id"] = name
        if by in ("stream", "both"):
            payload["stream"] = {"stream_id": name, "mine": True}
        told = space.send("alice", kind, payload).messages[0]
        assert told["context"] == f"{SPACE}/stream-1"
        names = {"stream_id": "stream-1", "namespace": f"{SPACE}/stream-1"}
        assert told["payload"]["stream"].items() >= names.items()
        assert told["payload"].get("stream_id", "stream-1") == "stream-1"
        assert ("mine" in told["payload"]["stream"]) is (by in ("stream", "both"))

    @pytest.mark.parametrize("kind", ["stream/start", "stream/complete", "stream/error", "stream/close"])
    def test_a_namespace_is_right_or_refused(self, kind: str) -> None:
        """decision 13: a wrong one is refused."""
        space = Space("alice")
        space.announce("alice", start=kind == "stream/complete")
        fields = {"code": "x", "message": "y"}
        for namespace in ("other/stream-1", "stream-1", f"{SPACE}/stream-2", 7, ["x"]):
            wrong = {"stream": {"stream_id": "stream-1", "namespace": namespace}}
            assert space.send("alice", kind, fields | wrong).error == "validation_error"
        right = {"stream": {"stream_id": "stream-1", "namespace": f"{SPACE}/stream-1"}}
        assert space.send("alice", kind, fields | right).error is None

    @pytest.mark.parametrize("kind", ["stream/start", "stream/complete", "stream/error"])
    def test_a_null_stream_is_an_absent_one(self, kind: str) -> None:
        space = Space("alice")
        space.announce("alice", start=kind == "stream/complete")
        payload = {"stream_id": "stream-1", "stream": None, "code": "x", "message": "y"}
        assert space.send("alice", kind, payload).told(kind)["stream"]["stream_id"] == "stream-1"


class TestAnnounce:
    @pytest.mark.parametrize(
        ("capabilities", "allowed"),
        [
            (["stream/manage"], True),
            (["stream/*"], True),
            (EVERYTHING, True),
            (["stream/announce"], False),
            (["stream/request"], False),
            (["space/manage-streams"], False),
            ([], False),
        ],
    )
    def test_needs_stream_manage(self, capabilities: list[str], allowed: bool) -> None:
        """seed 003, Capability Model: the gateway MUST validate ``stream/manage`` (or a broader wildcard).
        decision 1: ``stream/manage`` has the meaning of seed 003 only."""
        outcome = Space("alice", capabilities={"alice": capabilities}).send("alice", "stream/announce", {})
        assert outcome.error == (None if allowed else "capability_violation")
        if not allowed:
            assert outcome.types == ["Refused"]
            payload = outcome.messages[0]["payload"]
            assert (payload["attempted_kind"], payload["required"]) == ("stream/announce", "stream/manage")

    def test_stream_manage_is_no_right_on_the_streams_of_others(self) -> None:
        """decision 1."""
        space = Space("alice", "bob", capabilities={"bob": ["stream/manage"]})
        stream = space.announce("alice", start=True)
        for kind in ("stream/complete", "stream/close"):
            assert space.send("bob", kind, named(stream)).error == "unauthorized"
        own = space.announce("bob", start=True)
        assert space.send("bob", "stream/complete", named(own)).error is None

    @pytest.mark.parametrize(
        "payload",
        [{"intent": 7}, {"scope": "bob"}, {"scope": [7]}, {"formats": {}}, {"formats": [{"description": "no id"}]}],
    )
    def test_shape(self, payload: dict[str, Any]) -> None:
        """seed 003, Handshake Sequence, 1."""
        space = Space("alice", capabilities={"alice": []})
        assert space.send("alice", "stream/announce", payload).error == "validation_error"

    def test_scope_is_an_address(self) -> None:
        """seed 003, Handshake Sequence, 1: participants who should be notified directly. decision 10: no secret."""
        space = Space("alice", "bob", "carol")
        told = space.send("alice", "stream/announce", {"scope": ["bob", "bob"]}).messages[0]
        assert told["to"] == ["bob"]
        assert told in space.seen_by("carol")
        own = space.send("alice", "stream/announce", {"scope": ["bob"]}, to=["carol"]).messages[0]
        assert own["to"] == ["carol"]

    def test_shares_its_numbers_with_requests(self) -> None:
        """decision 12; decision 13: one kind of stream behind both."""
        space = Space("alice")
        assert [space.open("alice"), space.announce("alice"), space.open("alice")] == [
            "stream-1",
            "stream-2",
            "stream-3",
        ]

    def test_the_log_describes_itself(self) -> None:
        """DESIGN.md, protocol: the resolved policy is recorded with each open."""
        space = Space("alice", policies={"on_slow": "latest", "owner_leave_grace": 3})
        opened = space.send("alice", "stream/announce", {"on_owner_leave": "close"}).one(StreamOpened)
        policy = opened.policy
        assert (policy.on_owner_leave, policy.owner_leave_grace, policy.on_slow) == ("close", 3.0, "latest")
        assert policy.validate == "off"
        assert opened.start_by == NOON + 60 * SECOND


class TestStates:
    """decision 13: which event is valid when."""

    @pytest.mark.parametrize(
        ("kind", "ready", "live"),
        [
            ("stream/start", None, "invalid_operation"),
            ("stream/data", "invalid_operation", None),
            ("stream/complete", "invalid_operation", None),
            ("stream/error", None, None),
            ("stream/close", None, None),
            ("stream/grant-write", None, None),
            ("stream/revoke-write", None, None),
            ("stream/transfer-ownership", None, None),
            ("stream/grant-read", None, None),
            ("stream/revoke-read", None, None),
        ],
    )
    def test_by_the_owner(self, kind: str, ready: str | None, live: str | None) -> None:
        for start, error in ((False, ready), (True, live)):
            space = Space("alice", "bob")
            fields = {"participant_id": "bob", "new_owner": "bob", "code": "x", "message": "y"}
            payload = named(space.announce("alice", start=start), sequence=1, content=1, **fields)
            assert space.send("alice", kind, payload).error == error

    @pytest.mark.parametrize("kind", ["stream/start", "stream/complete", "stream/error", "stream/close"])
    @pytest.mark.parametrize("start", [True, False])
    def test_by_another_the_right_is_checked_before_the_state(self, kind: str, start: bool) -> None:
        """DESIGN.md, protocol: sender's right, then operation valid."""
        space = Space("alice", "bob")
        stream = space.announce("alice", start=start, auto_grant=["bob"])
        assert space.send("bob", kind, named(stream, code="x", message="y")).error == "unauthorized"

    def test_a_requested_stream_is_live_and_may_be_completed(self) -> None:
        """decision 13: ``close`` ends any of them; both are told as what they are."""
        space = Space("alice")
        assert space.send("alice", "stream/start", named(space.open("alice"))).error == "invalid_operation"
        assert space.send("alice", "stream/complete", named("stream-1")).kinds == ["stream/complete"]
        assert space.send("alice", "stream/close", named(space.announce("alice"))).kinds == ["stream/close"]

    @pytest.mark.parametrize("kind", ["stream/complete", "stream/close", "stream/error", "stream/start"])
    def test_after_the_end(self, kind: str) -> None:
        space = Space("alice")
        stream = space.announce("alice", start=True)
        space.send("alice", "stream/complete", named(stream))
        assert space.send("alice", kind, named(stream, code="x", message="y")).error == "stream_not_found"

    def test_a_new_owner_starts(self) -> None:
        """decision 2: being owner authorizes the kinds that go with it."""
        space = Space("alice", "bob", capabilities={"bob": ["chat"]})
        stream = space.announce("alice")
        space.transfer("alice", stream, "bob")
        assert space.send("alice", "stream/start", named(stream)).error == "unauthorized"
        started = space.send("bob", "stream/start", named(stream))
        assert started.one(StreamStarted).cause_seq == started.one(EnvelopeAccepted).seq
        assert is_frame(space.data("bob", stream, 1))

    def test_the_table_has_a_row_for_each_event_and_state(self) -> None:
        """DESIGN.md, protocol: one table of transitions; who may does not depend on the state."""
        assert len({(each.source, each.event) for each in TRANSITIONS}) == len(TRANSITIONS)
        assert all(WHO[each.event] is each.who for each in TRANSITIONS)
        assert ("stream/start", Status.LIVE) not in BY_EVENT_AND_STATE
        assert not any(each.source is Status.ENDED for each in TRANSITIONS)
        assert all(each.refusal for each in TRANSITIONS if each.who is not Who.GATEWAY)


class TestError:
    def test_is_the_failure_of_a_stream(self) -> None:
        """seed 003, Handshake Sequence, 5, and Implementation Details: mandatory ``code`` and ``message``."""
        space = Space("alice", "bob")
        stream = space.announce("alice", start=True)
        outcome = space.send("alice", "stream/error", named(stream, code="encoder_crashed", message="sorry"))
        assert outcome.kinds == ["stream/error"]
        ended = outcome.one(StreamEnded)
        assert (ended.how, ended.code, ended.message, ended.by) == ("failed", "encoder_crashed", "sorry", "alice")
        assert space.welcome("bob")["active_streams"] == []


class TestStartTimeout:
    """decision 13: announced but never started within a configurable time."""

    def test_fails_the_stream(self) -> None:
        space = Space("alice", "bob", policies={"start_timeout": 5})
        space.announce("alice", desired_id="moves")
        assert space.tick(4.9).records == []
        outcome = space.tick(0.1)
        told = outcome.messages[0]
        assert (told["kind"], told["from"], told["context"]) == ("stream/error", "system:gateway", f"{SPACE}/stream-1")
        assert told["payload"]["code"] == "start_timeout"
        assert told["payload"]["message"]
        assert told["payload"]["stream"] == {"stream_id": "stream-1", "namespace": f"{SPACE}/stream-1"}
        assert told in space.seen_by("bob")
        assert space.send("alice", "stream/start", named("stream-1")).error == "stream_not_found"
        assert space.stream(space.announce("alice", desired_id="moves"))["alias"] == "moves"

    def test_a_start_in_time(self) -> None:
        space = Space("alice", policies={"start_timeout": 5})
        space.announce("alice", start=True)
        assert space.tick(60).records == []

    def test_zero_is_no_limit(self) -> None:
        space = Space("alice", policies={"start_timeout": 0})
        space.announce("alice")
        assert space.state.next_deadline() is None

    def test_a_request_has_none(self) -> None:
        space = Space("alice")
        space.open("alice")
        assert space.state.next_deadline() is None
