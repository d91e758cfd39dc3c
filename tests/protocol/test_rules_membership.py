"""Who is in a space, what they may do, and what happens to their streams when they are gone."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from harness import EVERYTHING, NOON, Space, is_frame

from mewstream.protocol import commands
from mewstream.protocol.records import (
    CapabilitiesGranted,
    CapabilitiesRevoked,
    EnvelopeAccepted,
    FramesDropped,
    Invited,
    Joined,
    Left,
    Refused,
    Suspended,
    WriteRevoked,
)
from mewstream.protocol.times import SECOND


class TestJoin:
    def test_the_others_are_told(self) -> None:
        """WIRE.md, Connecting: presence to the others; the joiner's first message is its welcome."""
        space = Space("alice", capabilities={"bob": ["chat"]})
        outcome = space.join("bob")
        assert outcome.one(Joined).capabilities == [{"kind": "chat"}]
        expected = {"event": "join", "participant": {"id": "bob", "capabilities": [{"kind": "chat"}]}}
        assert outcome.told("system/presence") == expected
        assert outcome.messages[0] in space.seen_by("alice")
        assert outcome.messages[0] not in space.seen_by("bob")

    def test_the_same_id_twice(self) -> None:
        """decision 22: the new connection replaces the old, whose close takes nothing away from the new."""
        space = Space("alice", "bob")
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        old = space.session("bob")
        outcome = space.join("bob")
        assert outcome.one(Joined).replaced
        assert outcome.messages == [], "it is no news to the others"
        assert space.leave("bob", session=old).records == []
        assert is_frame(space.frame("bob", stream))
        assert space.leave("bob").types == ["Left", "WriteRevoked"]

    def test_the_space_is_full(self) -> None:
        """decision 19: participants per space; one who is here already takes no more room."""
        space = Space("alice", "bob", limits={"participants_per_space": 2}, capabilities={"carol": []})
        outcome = space.join("carol")
        assert outcome.types == ["Refused"]
        assert outcome.messages[0]["payload"]["limit"] == "participants_per_space"
        assert space.join("bob").error is None
        space.leave("alice")
        assert space.join("carol").error is None

    def test_a_close_after_the_leave_is_no_news(self) -> None:
        space = Space("alice")
        session = space.session("alice")
        space.leave("alice")
        assert space.leave("alice", session=session).records == []


class TestWriterLeaves:
    def test_its_rights_are_revoked_and_everyone_is_told(self) -> None:
        """decision 6; seed 000, Open Questions, 1: Auto-revoke on disconnect, and Security Analysis, threat 5."""
        space = Space("alice", "bob")
        streams = [space.open("alice"), space.open("alice")]
        for stream in streams:
            space.grant("alice", stream, "bob")
        outcome = space.leave("bob")
        assert outcome.types == ["Left", "WriteRevoked", "WriteRevoked"]
        left = outcome.records[0]
        for message, record, stream in zip(outcome.messages[1:], outcome.records[1:], streams, strict=True):
            assert message["payload"].items() >= {"stream_id": stream, "reason": "disconnected"}.items()
            assert record.cause_seq == left.seq
            assert space.writers(stream) == ["alice"]
        assert outcome.messages[0]["payload"] == {"event": "leave", "participant": {"id": "bob"}}
        space.join("bob")
        assert space.frame("bob", streams[0]).error == "unauthorized_stream_write"

    def test_after_the_reconnect_grace(self) -> None:
        """decision 6: after the reconnect grace, if one is set."""
        space = Space("alice", "bob", policies={"reconnect_grace": 5})
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        assert space.leave("bob").types == ["Suspended"]
        assert space.writers(stream) == ["alice", "bob"]
        assert space.tick(4.9).records == []
        assert space.tick(0.1).types == ["Left", "WriteRevoked"]
        assert space.writers(stream) == ["alice"]

    def test_back_within_the_grace(self) -> None:
        """DESIGN.md, gateway: while suspended, rights are kept; a rejoin continues."""
        space = Space("alice", "bob", policies={"reconnect_grace": 5})
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        space.leave("bob")
        space.tick(3)
        outcome = space.join("bob")
        assert outcome.one(Joined).resumed
        assert outcome.messages == [], "it is no news to the others"
        assert space.tick(60).records == []
        assert is_frame(space.frame("bob", stream))


class TestSuspension:
    """DESIGN.md, gateway: a session can be suspended until T; drain suspends, it does not revoke."""

    def test_frames_are_not_delivered(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice")
        assert space.suspend("bob").one(Suspended).until == space.now + 30 * SECOND
        assert space.frame("alice", stream).records[0].recipients == 1  # type: ignore[attr-defined]
        space.tick(20)
        assert space.suspend("bob").one(Suspended).until == space.now + 30 * SECOND, "a restart gives time anew"

    def test_becomes_an_ordinary_leave(self) -> None:
        space = Space("alice", "bob", policies={"suspend_for": 7})
        space.suspend("bob")
        outcome = space.tick(7)
        assert outcome.one(Left).ts == NOON + 7 * SECOND
        assert outcome.told("system/presence")["event"] == "leave"

    @pytest.mark.parametrize("grace", [0, 5])
    def test_the_close_of_a_suspended_connection_changes_nothing(self, grace: float) -> None:
        """Drain on SIGTERM suspends, it does not revoke."""
        space = Space("alice", "bob", policies={"reconnect_grace": grace})
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        space.suspend("bob")
        space.leave("bob")
        assert space.writers(stream) == ["alice", "bob"]
        assert space.state.connected == 1
        assert space.state.next_deadline() == NOON + 30 * SECOND

    def test_survives_a_restart(self) -> None:
        """DESIGN.md, One idea: a restart is the same fold: streams and rights survive."""
        space = Space("alice", "bob")
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        space.do(commands.Start("e2", space.config))
        for each in ("alice", "bob"):
            space.suspend(each)
            space.join(each)
        assert is_frame(space.frame("bob", stream))
        assert space.open("alice") == "stream-2"


class TestOwnerLeaves:
    """decision 7; seed 001, Motivation, Use Case 3; seed 002, Edge Cases: disconnect with active stream."""

    def test_keep_is_the_default(self) -> None:
        """The owner may come back and still owns; the others go on writing."""
        space = Space("alice", "bob")
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        assert space.leave("alice").types == ["Left"]
        assert space.stream(stream)["owner_connected"] is False
        assert space.tick(86_400).records == []
        assert space.writers(stream) == ["alice", "bob"]
        assert is_frame(space.frame("bob", stream))
        space.join("alice")
        assert space.stream(stream)["owner_connected"] is True
        assert is_frame(space.frame("alice", stream))

    def test_nothing_is_ever_stuck(self) -> None:
        """``space/manage-streams`` may transfer or close the stream of an absent owner."""
        space = Space("alice", "bob", "admin")
        first, second = space.open("alice"), space.open("alice")
        space.leave("alice")
        assert space.transfer("admin", first, "bob").error is None
        assert is_frame(space.frame("bob", first))
        assert space.close("admin", second).error is None
        space.join("alice")
        assert space.frame("alice", first).error == "unauthorized_stream_write"

    @pytest.mark.parametrize("per_stream", [True, False])
    def test_close_after_the_grace(self, per_stream: bool) -> None:
        policy = {"on_owner_leave": "close", "owner_leave_grace": 20}
        space = Space("alice", "bob", policies=None if per_stream else policy)
        stream = space.open("alice", **(policy if per_stream else {}))
        space.grant("alice", stream, "bob")
        space.leave("alice")
        assert space.tick(19.9).records == []
        outcome = space.tick(0.1)
        assert outcome.told("stream/close").items() >= {"stream_id": stream, "reason": "owner_left"}.items()
        assert outcome.messages[0]["from"] == "system:gateway"
        assert space.frame("bob", stream).error == "stream_not_found"

    def test_transfer_to_the_longest_standing_connected_writer(self) -> None:
        space = Space("alice", "bob", "carol", "dave", policies={"on_owner_leave": "transfer"})
        stream = space.open("alice")
        for writer in ("dave", "carol", "bob"):
            space.grant("alice", stream, writer)
        space.grant("alice", stream, "dave", conditions={"max_frames": 9})
        space.suspend("dave")
        space.leave("alice")
        outcome = space.tick(10)
        assert (
            outcome.told("stream/ownership-transferred").items()
            >= {
                "previous_owner": "alice",
                "new_owner": "carol",
                "reason": "owner_left",
                "authorized_writers": ["carol", "dave", "bob"],
            }.items()
        )
        space.join("alice")
        assert space.frame("alice", stream).error == "unauthorized_stream_write"

    def test_the_heir_is_an_owner_like_any_other(self) -> None:
        space = Space("alice", "bob", policies={"on_owner_leave": "transfer"})
        stream = space.open("alice")
        space.grant("alice", stream, "bob", conditions={"max_frames": 1})
        space.leave("alice")
        space.tick(10)
        assert all(is_frame(space.frame("bob", stream)) for _ in range(3))
        space.leave("bob")
        assert space.tick(10).kinds == ["stream/close"]

    def test_transfer_without_a_writer_closes(self) -> None:
        space = Space("alice", "bob", policies={"on_owner_leave": "transfer"})
        space.open("alice")
        space.leave("alice")
        assert space.tick(10).kinds == ["stream/close"]

    @pytest.mark.parametrize("policy", ["transfer", "close"])
    def test_the_owner_returns_in_time(self, policy: str) -> None:
        space = Space("alice", "bob", policies={"on_owner_leave": policy})
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        space.leave("alice")
        space.tick(9)
        space.join("alice")
        assert space.tick(60).records == []
        assert space.stream(stream)["owner"] == "alice"
        assert is_frame(space.frame("alice", stream))

    def test_the_grace_begins_with_the_leave_not_the_suspension(self) -> None:
        space = Space("alice", policies={"on_owner_leave": "close", "reconnect_grace": 5, "owner_leave_grace": 10})
        space.open("alice")
        space.leave("alice")
        assert space.tick(14.9).types == ["Left"]
        assert space.tick(0.1).types == ["StreamEnded"]

    def test_a_transfer_away_in_time(self) -> None:
        space = Space("alice", "bob", "admin", policies={"on_owner_leave": "close"})
        stream = space.open("alice")
        space.leave("alice")
        space.transfer("admin", stream, "bob")
        assert space.tick(60).records == []


class TestIdentity:
    @pytest.mark.parametrize("claimed", ["bob", "system:gateway", "Alice", ""])
    def test_a_wrong_from(self, claimed: str) -> None:
        """decision 20; seed 000, Security Properties: participants cannot spoof ``from``."""
        space = Space("alice", "bob")
        outcome = space.send("alice", "chat", {"text": "hi"}, from_=claimed)
        assert outcome.types == ["Refused"]
        assert outcome.error == "unauthorized"
        assert space.send("alice", "chat", {"text": "hi"}, from_="alice").messages[0]["from"] == "alice"

    @pytest.mark.parametrize(
        "kind",
        [
            "system/welcome",
            "system/presence",
            "system/error",
            "system/anything",
            "stream/open",
            "stream/ready",
            "stream/write-granted",
            "stream/write-revoked",
            "stream/read-granted",
            "stream/read-revoked",
            "stream/ownership-transferred",
            "space/invite-ack",
        ],
    )
    def test_reserved_kinds(self, kind: str) -> None:
        """decision 21; seed 000, Security Properties: only the gateway can send ``system/*``."""
        outcome = Space("admin").send("admin", kind, {"stream_id": "stream-1"})
        assert outcome.error == "reserved_kind"
        assert outcome.messages[0]["payload"]["attempted_kind"] == kind

    def test_to_is_an_address_and_no_secret(self) -> None:
        """decision 10: every envelope reaches everyone; the gateway's own private messages go to one."""
        space = Space("alice", "bob", "carol")
        chat = space.send("alice", "chat", {"text": "hi"}, to=["bob"]).messages[0]
        assert chat["to"] == ["bob"]
        error = space.send("alice", "chat", {}).messages[0]
        for each in ("alice", "bob", "carol"):
            assert chat in space.seen_by(each)
            assert (error in space.seen_by(each)) is (each == "alice")

    @pytest.mark.parametrize(
        ("kind", "error"),
        [
            ("chat", "capability_violation"),
            ("stream/request", "capability_violation"),
            ("unknown/kind", "capability_violation"),
            ("mcp/response", None),
        ],
    )
    def test_without_capabilities(self, kind: str, error: str | None) -> None:
        """WIRE.md, Connecting: every participant may always send ``mcp/response``."""
        space = Space("alice", capabilities={"alice": []})
        assert space.send("alice", kind, {"text": "hi"}).error == error


class TestRepeatedId:
    """DESIGN.md, protocol: a repeated envelope id is answered as before and changes nothing."""

    @pytest.mark.parametrize(
        ("kind", "payload", "answers"),
        [
            ("chat", {"text": "hi"}, []),
            ("stream/request", {"description": "x"}, ["StreamOpened"]),
            ("stream/announce", {}, ["StreamOpened"]),
            ("stream/grant-write", {"stream_id": "stream-1", "participant_id": "bob"}, ["WriteGranted"]),
            ("stream/revoke-write", {"stream_id": "stream-1", "participant_id": "bob"}, ["WriteRevoked"]),
            ("stream/transfer-ownership", {"stream_id": "stream-1", "new_owner": "bob"}, ["OwnershipTransferred"]),
            ("stream/grant-read", {"stream_id": "stream-1", "participant_id": "bob"}, ["ReadGranted"]),
            ("stream/revoke-read", {"stream_id": "stream-1", "participant_id": "bob"}, ["ReadRevoked"]),
            ("stream/close", {"stream_id": "stream-1"}, []),
            ("space/invite", {"participant_id": "eve"}, ["Invited"]),
            ("stream/grant-write", {"stream_id": "stream-1", "participant_id": "nobody"}, ["Refused"]),
            ("system/welcome", {}, ["Refused"]),
        ],
    )
    def test_is_answered_as_before(self, kind: str, payload: dict[str, Any], answers: list[str]) -> None:
        space = Space("alice", "bob", capabilities={"alice": EVERYTHING})
        space.open("alice")
        first = space.send("alice", kind, payload, id="same")
        space.leave("alice")
        space.join("alice")
        again = space.send("alice", kind, payload, id="same")
        assert again.records == []
        assert again.repetition is not None
        assert again.repetition.answer.seq == first.records[0].seq
        assert [type(each).__name__ for each in again.repetition.answer.records] == answers
        assert all(each in first.records for each in again.repetition.answer.records)

    def test_white_space_is_no_other_content(self) -> None:
        space = Space("alice")
        space.raw("alice", b'{"id":"same","kind":"chat","payload":{"text":"hi"}}')
        assert space.raw("alice", b'{ "kind":"chat", "id":"same", "payload": { "text" : "hi" } }').repetition

    def test_other_content_under_the_same_id(self) -> None:
        space = Space("alice")
        first = space.send("alice", "chat", {"text": "hi"}, id="same")
        for kind, payload in (("chat", {"text": "ho"}), ("mcp/response", {"text": "hi"})):
            assert space.send("alice", kind, payload, id="same").error == "invalid_request"
        again = space.send("alice", "chat", {"text": "hi"}, id="same")
        assert again.repetition is not None, "a clash does not overwrite the answer"
        assert again.repetition.answer.seq == first.records[0].seq

    @pytest.mark.parametrize(
        ("kind", "first", "second"),
        [
            ("stream/close", {"correlation_id": ["r1"]}, {"correlation_id": ["r2"]}),
            ("participant/pause", {"to": ["alice"]}, {"to": ["bob"]}),
        ],
    )
    def test_other_addressees_are_other_content(self, kind: str, first: Any, second: Any) -> None:
        space = Space("alice", "bob", "admin")
        for id in ("r1", "r2"):
            space.send("admin", "stream/request", {}, id=id)
        assert space.send("admin", kind, {}, id="same", **first).error is None
        assert space.send("admin", kind, {}, id="same", **second).error == "invalid_request"

    @pytest.mark.parametrize("text", ["hi", "ho"])
    def test_an_id_that_another_has_used(self, text: str) -> None:
        """WIRE.md, Rules of the spec: refused while it is remembered."""
        space = Space("alice", "bob", limits={"remembered_ids": 2})
        space.send("alice", "chat", {"text": "hi"}, id="same")
        assert space.send("bob", "chat", {"text": text}, id="same").error == "invalid_request"
        assert space.send("alice", "chat", {"text": "hi"}, id="same").repetition, "it is still hers"
        for id in ("a", "b"):
            space.send("alice", "chat", {"text": id}, id=id)
        assert space.send("bob", "chat", {"text": text}, id="same").types == ["EnvelopeAccepted"]

    def test_an_id_of_a_message_that_reached_nobody(self) -> None:
        space = Space("alice", "bob")
        assert space.send("alice", "chat", {}, id="same").error == "validation_error"
        assert space.send("bob", "chat", {"text": "hi"}, id="same").types == ["EnvelopeAccepted"]

    def test_of_data(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice")
        payload = {"stream": {"stream_id": stream}, "sequence": 1, "content": 1}
        assert is_frame(space.send("alice", "stream/data", payload, id="d1"))
        assert space.send("bob", "chat", {"text": "hi"}, id="d1").error == "invalid_request"

    @pytest.mark.parametrize("id", ["gw-e1-2", "gw-", "gw-e9-1000"])
    def test_ids_of_the_gateway(self, id: str) -> None:
        """They name messages that come from it, or will."""
        assert Space("alice").send("alice", "chat", {"text": "hi"}, id=id).error == "invalid_request"

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ({"context": "a"}, {"context": "b"}),
            ({"context": "a"}, {}),
            ({"x-trace": 1}, {"x-trace": 2}),
            ({"x-trace": 1}, {}),
        ],
    )
    def test_whatever_is_relayed_is_content(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        space = Space("alice")
        space.send("alice", "chat", {"text": "hi"}, id="same", **first)
        assert space.send("alice", "chat", {"text": "hi"}, id="same", **second).error == "invalid_request"
        assert space.send("alice", "chat", {"text": "hi"}, id="same", ts="2026-01-31T12:00:01Z", **first).repetition

    @pytest.mark.parametrize("fields", [{}, {"to": ["bob"]}])
    def test_what_the_gateway_fills_in_is_none(self, fields: dict[str, Any]) -> None:
        """An announcement is addressed to its ``scope`` where it has no ``to``, and gets the namespace as context."""
        space = Space("alice", "bob")
        announced = {"scope": ["bob"], "intent": "soon"}
        first = space.send("alice", "stream/announce", announced, id="same", **fields)
        assert first.messages[0]["to"] == ["bob"]
        again = space.send("alice", "stream/announce", announced, id="same", **fields)
        assert again.repetition is not None
        assert again.repetition.answer.records == [first.records[1]]
        started = {"stream": {"stream_id": "stream-1"}}
        assert space.send("alice", "stream/start", started, id="s1").error is None
        assert space.send("alice", "stream/start", started, id="s1").repetition

    def test_within_a_bounded_window(self) -> None:
        space = Space("alice", limits={"remembered_ids": 2})
        for id in ("a", "b", "c"):
            space.send("alice", "chat", {"text": id}, id=id)
        assert space.send("alice", "chat", {"text": "c"}, id="c").repetition
        assert space.send("alice", "chat", {"text": "b"}, id="b").repetition
        assert space.send("alice", "chat", {"text": "a"}, id="a").types == ["EnvelopeAccepted"]

    def test_without_an_id_nothing_repeats(self) -> None:
        space = Space("alice")
        for _ in range(2):
            assert space.send("alice", "chat", {"text": "hi"}, id=None).types == ["EnvelopeAccepted"]


class TestCapabilities:
    """WIRE.md, Envelopes: ``capability/grant|revoke``."""

    def grant(self, space: Space, sender: str, recipient: str, *capabilities: Any, **fields: Any) -> Any:
        payload = {"recipient": recipient, "capabilities": list(capabilities)}
        return space.send(sender, "capability/grant", payload, **fields)

    def test_grant_and_revoke_by_id(self) -> None:
        """The grant id is the envelope id."""
        space = Space("admin", "bob", capabilities={"bob": []})
        assert space.send("bob", "chat", {"text": "hi"}).error == "capability_violation"
        granted = self.grant(space, "admin", "bob", {"kind": "chat"}, "mcp/*", id="g1")
        assert granted.types == ["EnvelopeAccepted", "CapabilitiesGranted"]
        assert granted.one(CapabilitiesGranted).grant_id == "g1"
        assert space.capabilities("bob") == ["chat", "mcp/*"]
        assert space.send("bob", "chat", {"text": "hi"}).error is None
        assert space.send("admin", "capability/revoke", {"grant_id": "g1"}).error is None
        assert space.capabilities("bob") == []
        assert space.send("bob", "chat", {"text": "hi"}).error == "capability_violation"

    def test_revoke_by_capabilities_leaves_the_rest(self) -> None:
        space = Space("admin", "bob", capabilities={"bob": ["x"]})
        self.grant(space, "admin", "bob", "chat", "mcp/*", id="g1")
        payload = {"recipient": "bob", "capabilities": ["chat"]}
        outcome = space.send("admin", "capability/revoke", payload)
        assert outcome.one(CapabilitiesRevoked).remaining == {"g1": [{"kind": "mcp/*"}]}
        assert space.capabilities("bob") == ["x", "mcp/*"]

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ("chat", None),
            ({"kind": "mcp/request", "payload": {"method": "tools/*"}}, None),
            ("mcp/request", "capability_violation"),
            ("mcp/*", "capability_violation"),
            ("stream/request", "capability_violation"),
            ("*", "capability_violation"),
        ],
    )
    def test_nobody_gives_what_they_do_not_hold(self, given: Any, error: str | None) -> None:
        held = ["capability/grant", "chat", {"kind": "mcp/request", "payload": {"method": "tools/*"}}]
        space = Space("alice", "bob", capabilities={"alice": held, "bob": []})
        assert self.grant(space, "alice", "bob", given).error == error

    def test_a_right_on_a_stream_is_not_to_be_given_this_way(self) -> None:
        """decision 2: ``stream/write:{id}`` is a projection, never a second source."""
        space = Space("admin", "bob")
        stream = space.open("admin")
        for pattern in (f"stream/write:{stream}", "stream/read:*", f"!stream/write:{stream}"):
            assert self.grant(space, "admin", "bob", pattern).error == "invalid_operation"

    def test_nor_by_an_invitation(self) -> None:
        """decision 2."""
        space = Space("admin")
        invitation = {"participant_id": "eve", "capabilities": [f"stream/write:{space.open('admin')}"]}
        assert space.send("admin", "space/invite", invitation).error == "invalid_operation"

    @pytest.mark.parametrize(
        ("sender", "payload", "error"),
        [
            ("bob", {"recipient": "bob", "capabilities": [7]}, "validation_error"),
            ("bob", {"recipient": "bob", "capabilities": []}, "validation_error"),
            ("bob", {"recipient": "bob"}, "validation_error"),
            ("bob", {"capabilities": ["chat"]}, "validation_error"),
            ("bob", {"recipient": "x", "capabilities": ["chat"]}, "capability_violation"),
            ("admin", {"recipient": "x", "capabilities": ["chat"]}, "participant_not_found"),
        ],
    )
    def test_refused(self, sender: str, payload: dict[str, Any], error: str) -> None:
        """DESIGN.md, protocol: the order of checks."""
        assert Space("admin", "bob").send(sender, "capability/grant", payload).error == error

    @pytest.mark.parametrize(
        ("sender", "payload", "error"),
        [
            ("bob", {"grant_id": 7}, "validation_error"),
            ("bob", {}, "validation_error"),
            ("bob", {"grant_id": "g9"}, "capability_violation"),
            ("admin", {"grant_id": "g9"}, "invalid_operation"),
            ("admin", {"recipient": "bob"}, "validation_error"),
            ("admin", {"recipient": 7, "capabilities": ["chat"]}, "validation_error"),
            ("admin", {"recipient": 7, "grant_id": "g9"}, "validation_error"),
            ("admin", {"recipient": "bob", "capabilities": []}, "validation_error"),
            ("admin", {"recipient": "bob", "capabilities": ["stream/write:stream-1"]}, "invalid_operation"),
        ],
    )
    def test_revoke_refused(self, sender: str, payload: dict[str, Any], error: str) -> None:
        assert Space("admin", "bob").send(sender, "capability/revoke", payload).error == error

    def test_a_limit(self) -> None:
        """decision 19."""
        space = Space("admin", "bob", limits={"capability_grants": 1})
        self.grant(space, "admin", "bob", "x")
        assert self.grant(space, "admin", "bob", "y").messages[0]["payload"]["limit"] == "capability_grants"

    def test_grants_cannot_silence_the_recipient(self) -> None:
        space = Space("admin", "bob")
        for letter in "ab":
            self.grant(space, "admin", "bob", *(f"{letter}/{number}" for number in range(200)))
        assert space.send("bob", "chat", {"text": "hi"}).error is None

    def test_a_grant_of_another_does_not_replace_it(self) -> None:
        space = Space("admin", "boss", "bob", capabilities={"boss": EVERYTHING, "bob": []})
        self.grant(space, "admin", "bob", "chat", id="1")
        payload = {"recipient": "bob", "capabilities": ["mcp/*"]}
        assert space.send("boss", "capability/grant", payload, id="1").error == "invalid_request"
        for _ in range(space.state.limits.remembered_ids):
            space.send("admin", "chat", {"text": "the id is forgotten, and the grant is not"})
        outcome = space.send("boss", "capability/grant", payload, id="1")
        assert outcome.error == "already_exists", "the id of a grant is its handle in the whole space"
        assert outcome.one(Refused).http_status == 409
        assert space.capabilities("bob") == ["chat"]

    def test_grants_survive_a_reconnect(self) -> None:
        space = Space("admin", "bob", capabilities={"bob": []})
        self.grant(space, "admin", "bob", "chat")
        space.leave("bob")
        assert space.join("bob").one(Joined).capabilities == [{"kind": "chat"}]


class TestInvite:
    """WIRE.md, Envelopes: ``space/invite``."""

    def test_makes_a_participant(self) -> None:
        space = Space("admin", "bob")
        outcome = space.send("admin", "space/invite", {"participant_id": "eve", "capabilities": ["chat"]}, id="i1")
        assert outcome.types == ["EnvelopeAccepted", "Invited"]
        assert outcome.one(Invited).request_id == "i1"
        presence = outcome.messages[1]
        assert presence["payload"]["event"] == "invited"
        assert presence["payload"]["participant"] == {"id": "eve", "capabilities": [{"kind": "chat"}]}
        assert presence in space.seen_by("bob")
        assert presence not in space.seen_by("admin"), "the inviter gets its ack instead"
        space.join("eve")
        assert space.capabilities("eve") == ["chat"]

    def test_no_token_anywhere(self) -> None:
        """decision 20: never in the journal."""
        space = Space("admin", "bob")
        space.send("admin", "space/invite", {"participant_id": "eve"})
        told = [message for _, message in space.messages]
        assert b"token" not in msgspec.json.encode([space.records, told])

    def test_default_capabilities(self) -> None:
        space = Space("admin", default_capabilities=[{"kind": "chat"}])
        space.send("admin", "space/invite", {"participant_id": "eve"})
        assert space.capabilities("eve") == ["chat"]

    def test_outlives_a_restart(self) -> None:
        space = Space("admin")
        space.send("admin", "space/invite", {"participant_id": "eve", "capabilities": ["chat"]})
        space.do(commands.Start("e2", space.config))
        assert space.capabilities("eve") == ["chat"]

    @pytest.mark.parametrize("who", ["admin", "bob", "carol", "eve"])
    def test_already_exists(self, who: str) -> None:
        """WIRE.md, HTTP: 409 already exists."""
        space = Space("admin", "bob", capabilities={"carol": []})
        space.send("admin", "space/invite", {"participant_id": "eve"})
        outcome = space.send("admin", "space/invite", {"participant_id": who})
        assert outcome.error == "already_exists"
        assert outcome.one(Refused).http_status == 409
        assert outcome.messages[0]["payload"]["participant_id"] == who

    @pytest.mark.parametrize(
        ("sender", "payload", "error"),
        [
            ("bob", {}, "validation_error"),
            ("bob", {"participant_id": "a#b"}, "validation_error"),
            ("bob", {"participant_id": "a|b"}, "validation_error"),
            ("bob", {"participant_id": "system:gateway"}, "validation_error"),
            ("bob", {"participant_id": "eve", "capabilities": [7]}, "validation_error"),
            ("bob", {"participant_id": "eve"}, "capability_violation"),
            ("bob", {"participant_id": "a/b"}, "validation_error"),
            ("bob", {"participant_id": "..\\a"}, "validation_error"),
            ("bob", {"participant_id": "a\x07"}, "validation_error"),
            ("alice", {"participant_id": "x" * 129}, "limit_exceeded"),
        ],
    )
    def test_refused(self, sender: str, payload: dict[str, Any], error: str) -> None:
        """decision 24: ``|`` and ``#`` are not allowed in ids."""
        space = Space("alice", "bob", capabilities={"alice": ["space/invite", "chat"]})
        assert space.send(sender, "space/invite", payload).error == error

    def test_a_limit(self) -> None:
        """decision 19."""
        space = Space("admin", limits={"invitations": 1})
        space.send("admin", "space/invite", {"participant_id": "eve"})
        outcome = space.send("admin", "space/invite", {"participant_id": "mallory"})
        assert outcome.messages[0]["payload"]["limit"] == "invitations"


class TestKick:
    """WIRE.md, Envelopes: ``space/kick`` disconnects."""

    @pytest.mark.parametrize("suspended", [False, True])
    def test_revokes_with_its_reason(self, suspended: bool) -> None:
        """WIRE.md, Streams: revoke reasons the gateway itself gives."""
        space = Space("admin", "alice", "bob")
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        if suspended:
            space.suspend("bob")
        outcome = space.send("admin", "space/kick", {"participant_id": "bob"})
        assert outcome.types == ["EnvelopeAccepted", "Left", "WriteRevoked"]
        assert outcome.one(Left).reason == "kicked"
        assert outcome.one(Left).cause_seq == outcome.one(EnvelopeAccepted).seq
        assert outcome.one(WriteRevoked).reason == "kicked"
        assert not space.state.is_present("bob")
        assert space.state.next_deadline() is None

    def test_an_owner(self) -> None:
        """decision 7: an owner who is kicked has left."""
        space = Space("admin", "alice", policies={"on_owner_leave": "close"})
        space.open("alice")
        space.send("admin", "space/kick", {"participant_id": "alice"})
        assert space.tick(10).kinds == ["stream/close"]

    @pytest.mark.parametrize(
        ("sender", "payload", "error"),
        [
            ("bob", {}, "validation_error"),
            ("bob", {"participant_id": "nobody"}, "capability_violation"),
            ("admin", {"participant_id": "nobody"}, "participant_not_found"),
        ],
    )
    def test_refused(self, sender: str, payload: dict[str, Any], error: str) -> None:
        assert Space("admin", "bob").send(sender, "space/kick", payload).error == error


class TestTime:
    def test_never_runs_back(self) -> None:
        """DESIGN.md, journal: ``ts`` never decreases within a space, whatever the clock says."""
        space = Space("alice")
        before = space.send("alice", "chat", {"text": "hi"}).records[0].ts
        space.now -= 3600 * SECOND
        outcome = space.send("alice", "chat", {"text": "ho"})
        assert outcome.records[0].ts == before
        assert outcome.messages[0]["ts"] == space.messages[-2][1]["ts"]

    def test_conditions_are_judged_by_the_time_of_the_log(self) -> None:
        """decision 17: against the ``ts`` of the frame's own record, so a clock that steps back revives nothing."""
        space = Space("alice", "bob")
        stream = space.open("alice")
        space.grant("alice", stream, "bob", conditions={"expires_at": "2026-01-31T12:00:10Z"})
        space.now += 10 * SECOND
        space.send("alice", "chat", {"text": "the log has seen 12:00:10"})
        space.now -= 10 * SECOND
        assert space.frame("bob", stream).types == ["WriteRevoked", "Refused"]

    def test_one_thing_at_a_time_the_earliest_first(self) -> None:
        space = Space("alice", "bob", "carol")
        stream = space.open("alice")
        space.grant("alice", stream, "bob", conditions={"expires_at": "2026-01-31T12:00:20Z"})
        space.grant("alice", stream, "carol", conditions={"expires_at": "2026-01-31T12:00:10Z"})
        revoked = [each for each in space.tick(30).records if isinstance(each, WriteRevoked)]
        assert [each.participant for each in revoked] == ["carol", "bob"]
        assert [each.ts - NOON for each in revoked] == [10 * SECOND, 20 * SECOND]

    def test_a_tick_before_anything_is_due(self) -> None:
        assert Space("alice").do(commands.Tick()).records == []


class TestGatewayReports:
    def test_a_refusal_of_its_own(self) -> None:
        """decision 9: a flood of the same is summarised with a count."""
        space = Space("alice", limits={"refused_excerpt_bytes": 4})
        outcome = space.do(
            commands.Refuse(
                "alice", "frame", "stream_not_found", "no", 404, {"stream_id": "x"}, excerpt=b"123456", count=7
            )
        )
        assert outcome.one(Refused).excerpt == "1234"
        error = {"error": "stream_not_found", "message": "no", "stream_id": "x", "count": 7}
        assert outcome.told("system/error") == error

    def test_a_drop(self) -> None:
        """WIRE.md, Streams: ``system/notice`` to a client whose frames were dropped."""
        space = Space("alice", "bob")
        space.open("alice")
        outcome = space.do(commands.ReportDrop("bob", "stream-1", 3, 10, 14, "drop-oldest"))
        assert outcome.one(FramesDropped).count == 3
        expected = {"notice": "frames_dropped", "stream_id": "stream-1", "count": 3}
        assert outcome.told("system/notice").items() >= expected.items()
        assert outcome.messages[0]["to"] == ["bob"]
        assert outcome.messages[0] not in space.seen_by("alice")

    def test_the_configuration_is_in_the_log(self) -> None:
        """DESIGN.md, protocol: a later reader needs no config file to judge what happened."""
        space = Space("alice", limits={"id_bytes": 64}, policies={"start_timeout": 5})
        config = json.loads(msgspec.json.encode(space.records[0]))["config"]
        assert config["limits"] == {"id_bytes": 64}
        assert space.state.policies.start_timeout == 5
