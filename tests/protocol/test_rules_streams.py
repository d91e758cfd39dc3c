"""Opening streams, handing the right to write from one to another, and ending them."""

from __future__ import annotations

from typing import Any

import pytest
from harness import EVERYTHING, SPACE, Outcome, Space, is_frame

from mewstream.protocol.records import (
    EnvelopeAccepted,
    Frame,
    OwnershipTransferred,
    StreamEnded,
    StreamOpened,
    WriteGranted,
    WriteRevoked,
)
from mewstream.protocol.times import SECOND, parse_rfc3339, rfc3339


def three() -> tuple[Space, str]:
    """alice owns ``stream-1``; bob and carol are here too."""
    space = Space("alice", "bob", "carol")
    return space, space.open("alice")


class TestRequest:
    def test_opens_live_at_once(self) -> None:
        """decision 13; WIRE.md, Streams; seed 000, Current Implementation Analysis, Stream Creation."""
        space = Space("alice", "bob")
        outcome = space.send("alice", "stream/request", {"direction": "download", "x-app": [1]}, id="r1")
        assert outcome.types == ["EnvelopeAccepted", "StreamOpened"]
        assert outcome.one(StreamOpened).cause_seq == outcome.one(EnvelopeAccepted).seq
        told = outcome.messages[1]
        assert (told["from"], told["to"], told["correlation_id"]) == ("system:gateway", ["alice"], ["r1"])
        assert (
            told["payload"].items()
            >= {
                "stream_id": "stream-1",
                "namespace": f"{SPACE}/stream-1",
                "owner": "alice",
                "authorized_writers": ["alice"],
                "owner_connected": True,
                "status": "live",
                "encoding": "text",
                "direction": "download",
                "created": rfc3339(space.now),
            }.items()
        )
        assert told["payload"]["x-app"] == [1]
        assert told in space.seen_by("bob")

    def test_ids_are_never_reused(self) -> None:
        """decision 12: ``stream-N`` per space, never reused (seed 003 would allow it)."""
        space = Space("alice")
        assert space.open("alice") == "stream-1"
        space.close("alice", "stream-1")
        assert space.open("alice") == "stream-2"
        assert space.send("alice", "stream/request", {"direction": "sideways"}).error
        assert space.open("alice") == "stream-3"

    @pytest.mark.parametrize(
        "payload",
        [
            {"on_owner_leave": "explode"},
            {"on_slow": "never"},
            {"validate": True},
            {"owner_leave_grace": -1},
            {"owner_leave_grace": "soon"},
            {"owner_leave_grace": True},
            {"owner_leave_grace": 1e9},
            {"auto_grant": "bob"},
            {"auto_grant": [7]},
            {"formats": "json"},
            {"formats": [{"id": 7}]},
        ],
    )
    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    def test_shape(self, kind: str, payload: dict[str, Any]) -> None:
        """decision 15 for the schemas: checked when announced, no remote references."""
        space = Space("alice", capabilities={"alice": []})
        assert space.send("alice", kind, payload).error == "validation_error"

    @pytest.mark.parametrize("direction", ["sideways", "", 7, ["upload"]])
    def test_the_direction_is_upload_or_download(self, direction: Any) -> None:
        """seed 002, Field Definitions."""
        assert Space("alice").send("alice", "stream/request", {"direction": direction}).error == "validation_error"

    @pytest.mark.parametrize("request_", [{}, {"direction": None}])
    def test_there_is_always_a_direction(self, request_: dict[str, Any]) -> None:
        """seed 002, Field Definitions: ``direction`` (string, required): "upload" or "download"."""
        space = Space("alice")
        assert space.stream(space.open("alice", **request_))["direction"] == "upload"

    @pytest.mark.parametrize(
        ("request_", "encoding"),
        [
            ({}, "text"),
            ({"content_type": "text/plain; charset=utf-8"}, "text"),
            ({"content_type": "application/json"}, "text"),
            ({"content_type": "image/png"}, "binary"),
            ({"encoding": "binary"}, "binary"),
            ({"encoding": "utf-8"}, "text"),
        ],
    )
    def test_the_encoding(self, request_: dict[str, Any], encoding: str) -> None:
        """WIRE.md, Streams: ``encoding: "text"|"binary"``."""
        space = Space("alice")
        assert space.stream(space.open("alice", **request_))["encoding"] == encoding

    def test_needs_the_capability(self) -> None:
        space = Space("alice", capabilities={"alice": ["chat"]})
        outcome = space.send("alice", "stream/request", {})
        assert outcome.error == "capability_violation"
        assert outcome.messages[0]["payload"]["attempted_kind"] == "stream/request"
        assert outcome.messages[0]["payload"]["your_capabilities"] == [{"kind": "chat"}]

    @pytest.mark.parametrize(
        ("alias", "expected"),
        [
            ("positions", "positions"),
            ("pösition", "pösition"),
            ("stream-7", None),
            ("a#b", None),
            ("a|b", None),
            ("a/b", None),
            ("", None),
            (" x", None),
            ("x" * 129, None),
            (7, None),
            (None, None),
        ],
    )
    def test_a_desired_id_becomes_an_alias_if_valid(self, alias: Any, expected: str | None) -> None:
        """decision 12; decision 24: no ``|`` and ``#``."""
        space = Space("alice")
        assert space.stream(space.open("alice", desired_id=alias)).get("alias") == expected

    def test_an_alias_is_free_again_after_the_end(self) -> None:
        """decision 12: ``desired_id`` becomes an alias if free."""
        space = Space("alice", "bob")
        first = space.open("alice", desired_id="positions")
        second = space.open("bob", desired_id="positions")
        assert "alias" not in space.stream(second)
        space.close("alice", "positions")
        assert space.frame("alice", "positions").error == "stream_not_found"
        third = space.open("bob", desired_id="positions")
        assert (first, second, third) == ("stream-1", "stream-2", "stream-3")
        assert space.frame("bob", "positions").one(Frame).stream_id == third

    def test_an_alias_stands_for_the_id(self) -> None:
        """decision 12; everyone is told the canonical id."""
        space = Space("alice", "bob")
        space.open("alice", desired_id="positions")
        outcome = space.grant("alice", "positions", "bob")
        assert [each["payload"]["stream_id"] for each in outcome.messages] == ["stream-1", "stream-1"]


class TestGatewayFields:
    FORGED: dict[str, Any] = {  # noqa: RUF012
        "stream_id": "stream-99",
        "namespace": "other/stream-99",
        "owner": "admin",
        "owner_connected": False,
        "authorized_writers": ["mallory"],
        "authorized_readers": ["mallory"],
        "created": "1999-01-01T00:00:00Z",
        "status": "ended",
        "alias": "forged",
        "last_seq": 10**9,
        "conditions": {"mallory": {}},
    }

    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    def test_a_request_cannot_override_them(self, kind: str) -> None:
        """decision 23; neither in the answer nor in the welcome."""
        space = Space("mallory", "bob")
        outcome = space.send("mallory", kind, self.FORGED | {"description": "kept"})
        told = outcome.messages[1]["payload"]
        told = told.get("stream", told)
        for entry in (told, space.stream("stream-1")):
            assert entry["description"] == "kept"
            assert entry["stream_id"] == "stream-1"
            assert entry["namespace"] == f"{SPACE}/stream-1"
            assert entry["owner"] == "mallory"
            assert entry["owner_connected"] is True
            assert entry["authorized_writers"] == ["mallory"]
            assert entry["created"] == rfc3339(space.now)
            assert entry["status"] in ("live", "ready")
            assert entry["last_seq"] == space.state.seq
            assert not {"alias", "authorized_readers", "conditions"} & entry.keys()

    def test_formats_are_those_that_were_checked(self) -> None:
        """decision 15: known by id and schema hash; decision 23: a forged hash is not kept."""
        space = Space("alice")
        formats = [{"id": "n", "schema": {"type": "number"}, "schema_hash": "forged"}]
        [told] = space.stream(space.open("alice", formats=formats))["formats"]
        assert told["schema_hash"] not in ("forged", None)
        assert "formats" not in space.stream(space.open("alice", formats=[]))


class TestGrant:
    def test_from_the_owner(self) -> None:
        """seed 000, Testing Plan, unit test 1: ``grant-write`` from owner adds to authorized_writers.
        seed 001, Testing Strategy, unit test 1 and integration test 2."""
        space, stream = three()
        outcome = space.send(
            "alice",
            "stream/grant-write",
            {"stream_id": stream, "participant_id": "bob", "reason": "claimed"},
            id="g1",
        )
        assert outcome.kinds == ["stream/grant-write", "stream/write-granted"]
        assert outcome.messages[1]["correlation_id"] == ["g1"]
        assert (
            outcome.told("stream/write-granted").items()
            >= {
                "stream_id": stream,
                "participant_id": "bob",
                "authorized_writers": ["alice", "bob"],
                "reason": "claimed",
            }.items()
        )
        assert outcome.one(WriteGranted).cause_seq == outcome.one(EnvelopeAccepted).seq
        assert space.writers(stream) == ["alice", "bob"]
        assert is_frame(space.frame("bob", stream))
        assert is_frame(space.frame("alice", stream))

    @pytest.mark.parametrize("writer", [False, True])
    def test_from_a_non_owner(self, writer: bool) -> None:
        """seed 000, Testing Plan, unit test 2; seed 001, unit test 4 and ``grant-write``, Error conditions:
        sender not authorized. decision 1: not other writers either."""
        space, stream = three()
        if writer:
            space.grant("alice", stream, "bob")
        outcome = space.grant("bob", stream, "carol")
        assert outcome.types == ["Refused"]
        assert outcome.error == "unauthorized"
        assert outcome.messages[0]["to"] == ["bob"]
        assert outcome.messages[0]["correlation_id"]
        assert "carol" not in space.writers(stream)

    @pytest.mark.parametrize("who", ["nobody", "dave", "system:gateway"])
    def test_to_somebody_absent(self, who: str) -> None:
        """seed 000, Testing Plan, unit test 3, and Edge Case 3: Grant to Disconnected Participant.
        seed 001, unit test 5 and ``grant-write``, Error conditions: participant not in space. decision 4."""
        space = Space("alice", capabilities={"dave": ["chat"]})
        assert space.grant("alice", space.open("alice"), who).error == "participant_not_found"

    def test_on_an_unknown_stream(self) -> None:
        """seed 001, ``grant-write``, Error conditions: stream does not exist."""
        assert Space("alice", "bob").grant("alice", "stream-42", "bob").error == "stream_not_found"

    def test_twice(self) -> None:
        """seed 000, Testing Plan, unit test 4: duplicate grant is an idempotent success. decision 5."""
        space, stream = three()
        space.grant("alice", stream, "bob")
        again = space.grant("alice", stream, "bob")
        assert again.told("stream/write-granted")["authorized_writers"] == ["alice", "bob"]
        assert space.writers(stream) == ["alice", "bob"]

    def test_to_oneself(self) -> None:
        """seed 000, Edge Case 1: Owner Grants Self. decision 5."""
        space, stream = three()
        assert space.grant("alice", stream, "alice").told("stream/write-granted")["authorized_writers"] == ["alice"]

    def test_several_in_a_row(self) -> None:
        """seed 000, Edge Case 7: Multiple Simultaneous Grants."""
        space, stream = three()
        space.grant("alice", stream, "bob")
        space.grant("alice", stream, "carol")
        assert space.writers(stream) == ["alice", "bob", "carol"]

    def test_to_a_suspended_participant(self) -> None:
        """decision 4: a suspended participant counts as present."""
        space, stream = three()
        space.suspend("bob")
        assert space.grant("alice", stream, "bob").error is None
        assert space.transfer("alice", stream, "bob").error is None
        assert space.stream(stream)["owner_connected"] is False

    def test_shows_as_a_capability(self) -> None:
        """decision 2; seed 003, Capability Model: ``stream/write:{streamId}`` is granted dynamically."""
        space, stream = three()
        space.grant("alice", stream, "bob")
        assert f"stream/write:{stream}" in space.capabilities("bob")
        assert f"stream/write:{stream}" in space.capabilities("alice")
        space.revoke("alice", stream, "bob")
        assert f"stream/write:{stream}" not in space.capabilities("bob")
        space.close("alice", stream)
        assert f"stream/write:{stream}" not in space.capabilities("alice")


class TestRevoke:
    def test_from_the_owner(self) -> None:
        """seed 000, Testing Plan, unit test 5, Edge Case 5: Writer Publishes After Revoke, and Open Questions, 2:
        everyone is told. seed 001, unit test 2 and integration test 3."""
        space, stream = three()
        space.grant("alice", stream, "bob")
        outcome = space.revoke("alice", stream, "bob", reason="enough")
        assert (
            outcome.told("stream/write-revoked").items()
            >= {
                "stream_id": stream,
                "participant_id": "bob",
                "authorized_writers": ["alice"],
                "reason": "enough",
            }.items()
        )
        assert outcome.messages[1] in space.seen_by("bob")
        assert outcome.messages[1] in space.seen_by("carol")
        assert space.frame("bob", stream).error == "unauthorized_stream_write"

    def test_of_the_owner(self) -> None:
        """seed 000, Testing Plan, unit test 6, and Edge Case 2: Owner Revokes Self. decision 5: also by a manager."""
        space, stream = three()
        space.join("admin")
        for sender in ("alice", "admin"):
            assert space.revoke(sender, stream, "alice").error == "invalid_operation"
        assert space.writers(stream) == ["alice"]

    @pytest.mark.parametrize("who", ["carol", "nobody"])
    def test_of_somebody_who_is_no_writer(self, who: str) -> None:
        """seed 000, Testing Plan, unit test 7; seed 001, ``revoke-write``, Error conditions: silent success."""
        space, stream = three()
        outcome = space.revoke("alice", stream, who)
        assert outcome.told("stream/write-revoked")["authorized_writers"] == ["alice"]

    @pytest.mark.parametrize(
        ("sender", "stream", "error"), [("bob", "stream-1", "unauthorized"), ("alice", "stream-2", "stream_not_found")]
    )
    def test_refused(self, sender: str, stream: str, error: str) -> None:
        """seed 001, ``revoke-write``, Error conditions: no such stream; sender not authorized."""
        space, _ = three()
        space.grant("alice", "stream-1", "bob")
        assert space.revoke(sender, stream, "bob").error == error

    def test_means_that_no_later_frame_was_accepted(self) -> None:
        """DESIGN.md, One idea: no accepted frame of that writer has a higher ``seq`` than the revoke."""
        space, stream = three()
        space.grant("alice", stream, "bob")
        space.frame("bob", stream)
        revoked = space.revoke("alice", stream, "bob").one(WriteRevoked)
        space.frame("bob", stream)
        space.data("bob", stream, 1)
        frames = [each for each in space.records if isinstance(each, Frame) and each.sender == "bob"]
        assert all(each.seq < revoked.seq for each in frames)


class TestTransfer:
    def test_from_the_owner(self) -> None:
        """seed 000, Testing Plan, unit test 8; seed 001, unit test 3 and integration tests 4 and 5.
        decision 3: the previous owner loses write; the new owner may grant it back."""
        space, stream = three()
        outcome = space.transfer("alice", stream, "bob", reason="yours")
        assert (
            outcome.told("stream/ownership-transferred").items()
            >= {
                "stream_id": stream,
                "previous_owner": "alice",
                "new_owner": "bob",
                "authorized_writers": ["bob"],
                "reason": "yours",
            }.items()
        )
        assert space.stream(stream)["owner"] == "bob"
        assert is_frame(space.frame("bob", stream))
        assert space.frame("alice", stream).error == "unauthorized_stream_write"
        assert space.grant("alice", stream, "carol").error == "unauthorized"
        assert space.grant("bob", stream, "alice").error is None
        assert is_frame(space.frame("alice", stream))

    def test_retain_write(self) -> None:
        """decision 3: ``retain_write`` keeps the previous owner as an ordinary writer."""
        space, stream = three()
        outcome = space.transfer("alice", stream, "bob", retain_write=True)
        assert outcome.one(OwnershipTransferred).authorized_writers == ["bob", "alice"]
        assert is_frame(space.frame("alice", stream))
        assert space.revoke("bob", stream, "alice").error is None

    @pytest.mark.parametrize(
        ("sender", "stream", "new_owner", "error"),
        [
            ("bob", "stream-1", "bob", "unauthorized"),
            ("alice", "stream-1", "nobody", "participant_not_found"),
            ("alice", "stream-2", "bob", "stream_not_found"),
        ],
    )
    def test_refused(self, sender: str, stream: str, new_owner: str, error: str) -> None:
        """seed 000, Testing Plan, unit tests 9 and 10, and Edge Case 4: Transfer to Disconnected Participant.
        seed 001, ``transfer-ownership``, Error conditions."""
        space, _ = three()
        space.grant("alice", "stream-1", "bob")
        assert space.transfer(sender, stream, new_owner).error == error
        assert space.stream("stream-1")["owner"] == "alice"

    def test_there_and_back(self) -> None:
        """seed 000, Edge Case 6: Ownership Transfer Loop; seed 001, Security Considerations, 4."""
        space, stream = three()
        space.transfer("alice", stream, "bob")
        assert space.transfer("bob", stream, "alice").error is None
        assert space.writers(stream) == ["alice"]

    def test_to_oneself_changes_nothing(self) -> None:
        space, stream = three()
        space.grant("alice", stream, "bob")
        assert space.transfer("alice", stream, "alice").error is None
        assert space.writers(stream) == ["alice", "bob"]

    def test_a_new_owner_needs_no_capability(self) -> None:
        """decision 2: who becomes owner can grant, complete and close."""
        space = Space("alice", "bob", "carol", capabilities={"bob": ["chat"]})
        stream = space.open("alice")
        space.transfer("alice", stream, "bob")
        for outcome in (space.grant("bob", stream, "carol"), space.revoke("bob", stream, "carol")):
            assert outcome.error is None
        assert space.close("bob", stream).error is None

    def test_the_writers_told_are_those_of_the_welcome(self) -> None:
        """seed 001, Extended ``system/welcome``: late joiners see the current authorization state, and the same."""
        space, stream = three()
        space.grant("alice", stream, "bob")
        space.grant("alice", stream, "carol")
        for sender, heir in (("alice", "carol"), ("carol", "bob"), ("bob", "alice")):
            told = space.transfer(sender, stream, heir, retain_write=True).told("stream/ownership-transferred")
            assert told["authorized_writers"] == space.writers(stream)

    def test_an_absent_owner_retains_nothing(self) -> None:
        """decision 6: a writer that is gone has no right; only an owner may be absent (decision 7)."""
        space, stream = three()
        space.join("admin")
        space.leave("alice")
        space.transfer("admin", stream, "bob", retain_write=True)
        assert space.writers(stream) == ["bob"]


class TestManager:
    """decision 1: a holder of ``space/manage-streams``, which lies outside ``stream/*`` on purpose."""

    @pytest.mark.parametrize(
        ("capabilities", "allowed"),
        [(["space/manage-streams"], True), (["space/*"], True), (EVERYTHING, True), (["stream/*"], False)],
    )
    def test_may_do_what_an_owner_may(self, capabilities: list[str], allowed: bool) -> None:
        space = Space("alice", "bob", "boss", capabilities={"boss": capabilities})
        stream = space.open("alice")
        payload = {"stream_id": stream, "participant_id": "bob"}
        outcomes = [
            space.grant("boss", stream, "bob"),
            space.revoke("boss", stream, "bob"),
            space.send("boss", "stream/grant-read", payload),
            space.send("boss", "stream/revoke-read", payload),
            space.transfer("boss", stream, "bob"),
            space.close("boss", stream),
        ]
        assert {each.error for each in outcomes} == {None if allowed else "unauthorized"}

    def test_does_not_write_complete_or_fail(self) -> None:
        """decision 1: ``stream/manage`` and ``complete`` are for one's own."""
        space = Space("alice", "boss", capabilities={"boss": EVERYTHING})
        stream = space.open("alice")
        named = {"stream_id": stream}
        assert space.frame("boss", stream).error == "unauthorized_stream_write"
        assert space.send("boss", "stream/complete", named).error == "unauthorized"
        assert space.send("boss", "stream/error", named | {"code": "x", "message": "y"}).error == "unauthorized"


class TestAbsent:
    def test_somebody_who_is_only_not_connected(self) -> None:
        """It is said whether a name is known at all."""
        space = Space("alice", capabilities={"bob": []})
        stream = space.open("alice")
        texts = [space.grant("alice", stream, who).messages[0]["payload"]["message"] for who in ("bob", "nobody")]
        assert texts == ["'bob' is not connected in this space", "there is no 'nobody' in this space"]


class TestClose:
    def test_everyone_is_told(self) -> None:
        """decision 8; seed 000, Edge Case 8: Stream Close with Active Writers."""
        space, stream = three()
        space.grant("alice", stream, "bob")
        outcome = space.close("alice", stream)
        assert outcome.types == ["EnvelopeAccepted", "StreamEnded"]
        assert outcome.kinds == ["stream/close"]
        assert outcome.messages[0] in space.seen_by("carol")
        assert outcome.one(StreamEnded).how == "closed"
        assert space.welcome("carol")["active_streams"] == []
        for writer in ("alice", "bob"):
            assert space.frame(writer, stream).error == "stream_not_found"

    @pytest.mark.parametrize("by", ["request", "open", "open as text"])
    def test_by_correlation(self, by: str) -> None:
        """decision 8: by ``correlation_id`` to its request or open; everyone is told which stream."""
        space = Space("alice")
        opened = space.send("alice", "stream/request", {}, id="r1").messages[1]
        correlation: Any = ["?", {"request": "r1"}.get(by, opened["id"])]
        outcome = space.send(
            "alice", "stream/close", {}, correlation_id=correlation[1] if by == "open as text" else correlation
        )
        assert outcome.told("stream/close")["stream_id"] == "stream-1"
        assert not space.state.streams

    def test_by_correlation_means_ones_own_request(self) -> None:
        """decision 8; two participants may use the same envelope id, once the first is not remembered any more."""
        space = Space("alice", "bob", limits={"remembered_ids": 1})
        space.send("alice", "stream/request", {}, id="1")
        space.send("alice", "chat", {"text": "the next"})
        space.send("bob", "stream/request", {}, id="1")
        outcome = space.send("bob", "stream/close", {}, correlation_id=["1"])
        assert outcome.error is None
        assert list(space.state.streams) == ["stream-1"]

    @pytest.mark.parametrize(
        ("sender", "payload", "fields", "error"),
        [
            ("bob", {"stream_id": "stream-1"}, {}, "unauthorized"),
            ("bob", {}, {"correlation_id": ["r1"]}, "unauthorized"),
            ("alice", {"stream_id": "stream-2"}, {}, "stream_not_found"),
            ("alice", {}, {"correlation_id": ["r2"]}, "stream_not_found"),
            ("alice", {}, {}, "validation_error"),
            ("alice", {"stream_id": 1}, {}, "validation_error"),
        ],
    )
    def test_refused(self, sender: str, payload: dict[str, Any], fields: dict[str, Any], error: str) -> None:
        """WIRE.md, Where ours must be better: anyone can close any stream."""
        space = Space("alice", "bob")
        space.send("alice", "stream/request", {}, id="r1")
        space.grant("alice", "stream-1", "bob")
        assert space.send(sender, "stream/close", payload, **fields).error == error
        assert space.state.streams

    def test_takes_all_rights_and_timers_with_it(self) -> None:
        space = Space("alice", "bob", policies={"on_owner_leave": "close"})
        stream = space.open("alice", target=["bob"])
        space.grant("alice", stream, "bob", conditions={"expires_at": rfc3339(space.now + SECOND)})
        space.close("alice", stream)
        assert space.state.rights == {}
        assert space.state.next_deadline() is None


class TestOrderOfChecks:
    """DESIGN.md, protocol: shape, stream exists, sender's right, operation valid, other participant present."""

    NOBODY = "nobody"

    @pytest.mark.parametrize(
        ("kind", "key"),
        [("stream/grant-write", "participant_id"), ("stream/transfer-ownership", "new_owner")],
    )
    def test_each_hides_those_behind_it(self, kind: str, key: str) -> None:
        space, stream = three()

        def error(sender: str, stream_id: str, **change: Any) -> str | None:
            return space.send(sender, kind, {"stream_id": stream_id, key: self.NOBODY} | change).error

        assert error("bob", "stream-9", **{key: 7}) == "validation_error"
        assert error("bob", "stream-9") == "stream_not_found"
        assert error("bob", stream) == "unauthorized"
        assert error("alice", stream) == "participant_not_found"

    def test_validity_comes_before_presence(self) -> None:
        space, stream = three()
        past = {"expires_at": rfc3339(space.now)}
        assert space.grant("bob", stream, self.NOBODY, conditions=past).error == "unauthorized"
        assert space.grant("alice", stream, self.NOBODY, conditions=past).error == "invalid_operation"

    @pytest.mark.parametrize(
        ("kind", "payload"),
        [
            ("stream/grant-write", {"participant_id": "bob", "reason": 7}),
            ("stream/grant-write", {"participant_id": ""}),
            ("stream/grant-write", {"participant_id": "bob", "conditions": []}),
            ("stream/grant-write", {"participant_id": "bob", "conditions": {"unknown": 1}}),
            ("stream/grant-write", {"participant_id": "bob", "conditions": {"max_frames": 0}}),
            ("stream/grant-write", {"participant_id": "bob", "conditions": {"max_frames": True}}),
            ("stream/grant-write", {"participant_id": "bob", "conditions": {"expires_at": "soon"}}),
            ("stream/revoke-write", {"participant_id": None}),
            ("stream/transfer-ownership", {"participant_id": "bob"}),
            ("stream/transfer-ownership", {"new_owner": "bob", "retain_write": "yes"}),
            ("stream/grant-read", {}),
            ("stream/revoke-read", {"participant_id": ["bob"]}),
            ("stream/start", {"start_ts": "soon"}),
            ("stream/start", {"stream": "stream-9"}),
            ("stream/error", {"code": "x"}),
            ("stream/error", {"message": "x"}),
            ("stream/error", {"code": "", "message": "x"}),
            ("stream/close", {"reason": 7}),
            ("stream/complete", {"reason": 7}),
            ("stream/error", {"code": "x", "message": "y", "reason": 7}),
        ],
    )
    def test_shape_comes_first(self, kind: str, payload: dict[str, Any]) -> None:
        """seed 003, Implementation Details, for ``stream/error``: ``code`` and ``message`` are mandatory."""
        space, _ = three()
        assert space.send("bob", kind, {"stream_id": "stream-9"} | payload).error == "validation_error"

    @pytest.mark.parametrize(
        "kind",
        [
            "stream/grant-write",
            "stream/revoke-write",
            "stream/transfer-ownership",
            "stream/grant-read",
            "stream/revoke-read",
            "stream/start",
            "stream/complete",
            "stream/error",
        ],
    )
    def test_a_stream_must_be_named(self, kind: str) -> None:
        space, _ = three()
        fields = {"participant_id": "bob", "new_owner": "bob", "code": "x", "message": "y"}
        assert space.send("alice", kind, fields).error == "validation_error"
        assert space.send("alice", kind, fields | {"stream_id": "stream-9"}).error == "stream_not_found"
        two = {"stream_id": "stream-1", "stream": {"stream_id": "stream-2"}}
        assert space.send("alice", kind, fields | two).error == "validation_error"

    def test_nothing_is_accepted_half(self) -> None:
        """A refusal is the only record of what was refused, and everybody else is told nothing."""
        space, stream = three()
        outcome = space.grant("alice", stream, self.NOBODY)
        assert outcome.types == ["Refused"]
        assert outcome.messages[0] not in space.seen_by("bob")


class TestConditions:
    """decision 17; seed 000, Future Extensions, 2: Conditional Grants."""

    def granted(self, **conditions: Any) -> tuple[Space, str, Outcome]:
        space, stream = three()
        if "expires_in" in conditions:
            conditions["expires_at"] = rfc3339(space.now + round(conditions.pop("expires_in") * SECOND))
        return space, stream, space.grant("alice", stream, "bob", conditions=conditions)

    def test_are_shown(self) -> None:
        """WIRE.md, Streams: ``conditions?`` (per writer)."""
        space, stream, outcome = self.granted(expires_in=60, max_frames=3)
        shown = {"expires_at": rfc3339(space.now + 60 * SECOND), "max_frames": 3}
        assert outcome.told("stream/write-granted")["conditions"] == shown
        assert space.stream(stream)["conditions"]["bob"].items() >= shown.items()
        space.frame("bob", stream)
        assert space.stream(stream)["conditions"]["bob"]["frames_left"] == 2

    def test_max_frames(self) -> None:
        """The last frame is accepted; the revoke follows it, and precedes the refusal in the log."""
        space, stream, _ = self.granted(max_frames=2)
        assert space.frame("bob", stream).types == ["Frame"]
        last = space.data("bob", stream, 1)
        assert last.types == ["Frame", "WriteRevoked"]
        assert last.told("stream/write-revoked")["reason"] == "max_frames"
        assert last.one(WriteRevoked).cause_seq == last.one(Frame).seq
        assert space.frame("bob", stream).error == "unauthorized_stream_write"
        assert space.writers(stream) == ["alice"]

    def test_refused_frames_do_not_count(self) -> None:
        space, stream, _ = self.granted(max_frames=1)
        space.send("bob", "stream/data", {"stream_id": stream, "sequence": -1, "content": 1})
        assert is_frame(space.frame("bob", stream))

    def test_expiry_by_time(self) -> None:
        space, stream, _ = self.granted(expires_in=60)
        assert space.tick(59.999999).records == []
        due = space.tick(0.000001)
        assert due.told("stream/write-revoked").items() >= {"participant_id": "bob", "reason": "expired"}.items()
        assert space.state.next_deadline() is None
        assert space.frame("bob", stream).types == ["Refused"]

    @pytest.mark.parametrize("raw", [True, False])
    @pytest.mark.parametrize(("micros", "accepted"), [(-1, True), (0, False), (1, False)])
    def test_expiry_is_judged_at_the_frames_own_time(self, micros: int, accepted: bool, raw: bool) -> None:
        """A frame exactly at ``expires_at`` is refused, though the timer has not been heard; the revoke precedes."""
        space, stream, _ = self.granted(expires_in=60)
        space.now += 60 * SECOND + micros
        outcome = space.frame("bob", stream) if raw else space.data("bob", stream, 1)
        assert outcome.types == (["Frame"] if accepted else ["WriteRevoked", "Refused"])
        if not accepted:
            assert outcome.error == "unauthorized_stream_write"
            assert outcome.told("stream/write-revoked")["reason"] == "expired"
            assert space.frame("bob", stream).types == ["Refused"]

    @pytest.mark.parametrize("again", [{}, {"max_frames": 5}, {"expires_in": 120}])
    def test_a_repeated_grant_replaces_them(self, again: dict[str, Any]) -> None:
        """decision 5."""
        space, stream, _ = self.granted(expires_in=60, max_frames=1)
        if "expires_in" in again:
            again = {"expires_at": rfc3339(space.now + 120 * SECOND)}
        space.grant("alice", stream, "bob", conditions=again)
        assert not any(isinstance(each, WriteRevoked) for each in space.tick(61).records)
        assert space.frame("bob", stream).types == ["Frame"]
        assert space.frame("bob", stream).types == ["Frame"]

    def test_a_transfer_clears_them(self) -> None:
        """decision 5: a transfer clears those of the new owner."""
        space, stream, _ = self.granted(expires_in=60, max_frames=1)
        space.transfer("alice", stream, "bob")
        assert space.tick(61).records == []
        assert space.frame("bob", stream).types == ["Frame"]
        assert space.frame("bob", stream).types == ["Frame"]
        assert "conditions" not in space.stream(stream)

    def test_not_for_the_owner(self) -> None:
        space, stream = three()
        assert space.grant("alice", stream, "alice", conditions={"max_frames": 1}).error == "invalid_operation"

    def test_not_in_the_past(self) -> None:
        space, stream, _ = self.granted()
        for past in (space.now, space.now - SECOND):
            outcome = space.grant("alice", stream, "bob", conditions={"expires_at": rfc3339(past)})
            assert outcome.error == "invalid_operation"

    @pytest.mark.parametrize("far", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-01:00"])
    def test_in_the_far_future(self, far: str) -> None:
        _, _, outcome = self.granted(expires_at=far)
        assert outcome.error in (None, "validation_error")


class TestReaders:
    """decision 16; WIRE.md, Streams, ``target``; seed 000, Future Extensions, 1; seed 003, Capability Model."""

    def test_no_set_means_everyone(self) -> None:
        space, stream = three()
        assert "authorized_readers" not in space.stream(stream)
        assert space.stream(space.open("alice", target=[])).get("authorized_readers") is None

    def test_a_target_is_the_initial_set(self) -> None:
        space, _ = three()
        stream = space.open("alice", target=["bob", "carol", "bob"])
        assert space.stream(stream)["authorized_readers"] == ["bob", "carol"], "a duplicate counts once"
        assert space.stream(stream)["target"] == ["bob", "carol", "bob"]
        assert space.frame("alice", stream).one(Frame).readers == ("bob", "carol")
        assert f"stream/read:{stream}" in space.capabilities("bob")
        assert f"stream/read:{stream}" not in space.capabilities("alice")

    def test_only_connected_targets_receive(self) -> None:
        space = Space("alice", "bob", capabilities={"dave": ["chat"]})
        stream = space.open("alice", target=["bob", "dave"])
        assert space.frame("alice", stream).one(Frame).recipients == 1
        space.join("dave")
        assert space.frame("alice", stream).one(Frame).recipients == 2
        space.suspend("bob")
        assert space.frame("alice", stream).one(Frame).recipients == 1

    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    def test_an_unknown_target(self, kind: str) -> None:
        space, _ = three()
        outcome = space.send("alice", kind, {"target": ["bob", "x", "y", "x"]})
        assert outcome.error == "target_not_found"
        assert outcome.messages[0]["payload"]["targets"] == ["x", "y"]

    @pytest.mark.parametrize("target", ["bob", [7], [["bob"]], {"bob": 1}, [""], True])
    def test_not_a_list_of_strings(self, target: Any) -> None:
        space, _ = three()
        assert space.send("alice", "stream/request", {"target": target}).error == "validation_error"

    def test_granting_and_revoking(self) -> None:
        space, _ = three()
        stream = space.open("alice", target=["bob"])
        named = {"stream_id": stream, "participant_id": "carol", "reason": "why"}
        granted = space.send("alice", "stream/grant-read", named, id="g1")
        assert granted.messages[1]["correlation_id"] == ["g1"]
        assert granted.told("stream/read-granted").items() >= (named | {"authorized_readers": ["bob", "carol"]}).items()
        space.send("alice", "stream/grant-read", named)
        assert space.stream(stream)["authorized_readers"] == ["bob", "carol"], "twice counts once"
        named["participant_id"] = "bob"
        revoked = space.send("alice", "stream/revoke-read", named)
        assert revoked.told("stream/read-revoked").items() >= (named | {"authorized_readers": ["carol"]}).items()
        assert space.frame("alice", stream).one(Frame).readers == ("carol",)

    def test_a_grant_never_takes_reading_away(self) -> None:
        """Without a set everyone reads, and goes on reading."""
        space, stream = three()
        outcome = space.send("alice", "stream/grant-read", {"stream_id": stream, "participant_id": "bob"})
        assert "authorized_readers" not in outcome.told("stream/read-granted")
        assert space.frame("alice", stream).one(Frame).readers is None

    def test_revoking_from_everyone_leaves_the_others(self) -> None:
        space, stream = three()
        space.send("alice", "stream/revoke-read", {"stream_id": stream, "participant_id": "bob"})
        assert space.stream(stream)["authorized_readers"] == ["alice", "carol"]

    def test_the_last_reader(self) -> None:
        """An empty set is a set: nobody reads."""
        space, _ = three()
        stream = space.open("alice", target=["bob"])
        space.send("alice", "stream/revoke-read", {"stream_id": stream, "participant_id": "bob"})
        assert space.stream(stream)["authorized_readers"] == []
        assert space.frame("alice", stream).one(Frame).recipients == 0

    @pytest.mark.parametrize(
        ("sender", "participant", "error"), [("bob", "bob", "unauthorized"), ("alice", "x", "participant_not_found")]
    )
    def test_refused(self, sender: str, participant: str, error: str) -> None:
        space, stream = three()
        payload = {"stream_id": stream, "participant_id": participant}
        assert space.send(sender, "stream/grant-read", payload).error == error

    def test_a_reader_that_comes_back_still_reads(self) -> None:
        space, _ = three()
        stream = space.open("alice", target=["bob"])
        space.leave("bob")
        space.join("bob")
        assert space.frame("alice", stream).one(Frame).recipients == 1


class TestAutoGrant:
    """decision 18; seed 000, Future Extensions, 3: Stream Templates."""

    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    def test_those_present_at_open_the_others_when_they_join(self, kind: str) -> None:
        space = Space("alice", "bob", capabilities={"dave": ["chat"]})
        outcome = space.send("alice", kind, {"auto_grant": ["bob", "dave", "alice", "bob"], "template": "team"})
        assert outcome.types == ["EnvelopeAccepted", "StreamOpened", "WriteGranted"]
        assert outcome.told("stream/write-granted")["participant_id"] == "bob"
        assert outcome.one(StreamOpened).authorized_writers == ["alice", "bob"]
        joined = space.join("dave")
        assert joined.types == ["Joined", "WriteGranted"]
        assert joined.one(WriteGranted).cause_seq == joined.records[0].seq
        assert space.writers("stream-1") == ["alice", "bob", "dave"]
        assert space.stream("stream-1")["template"] == "team"

    def test_outlives_a_leave(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice", auto_grant=["bob"])
        space.leave("bob")
        assert space.writers(stream) == ["alice"]
        space.join("bob")
        assert space.writers(stream) == ["alice", "bob"]

    def test_an_explicit_revoke_ends_it(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice", auto_grant=["bob"])
        space.revoke("alice", stream, "bob")
        space.leave("bob")
        assert space.join("bob").types == ["Joined"]

    def test_an_explicit_revoke_ends_it_for_the_absent_too(self) -> None:
        space = Space("alice", capabilities={"dave": ["chat"]})
        stream = space.open("alice", auto_grant=["dave"])
        space.revoke("alice", stream, "dave")
        assert space.join("dave").types == ["Joined"]


class TestLimits:
    """decision 19: ``limit_exceeded`` that names the limit; seed 000, Security Analysis, threat 4."""

    @pytest.mark.parametrize(
        ("limits", "payload"),
        [
            ({"streams_per_space": 1}, {}),
            ({"streams_per_participant": 1}, {}),
            ({"writers_per_stream": 2}, {"auto_grant": ["bob", "carol"]}),
            ({"readers_per_stream": 1}, {"target": ["bob", "carol"]}),
            ({"stream_metadata_bytes": 64}, {"description": "x" * 64}),
            ({"formats_per_stream": 1}, {"formats": [{"id": "a"}, {"id": "b"}]}),
            ({"schema_bytes": 64}, {"formats": [{"id": "a", "schema": {"title": "x" * 64}}]}),
            ({"id_bytes": 16}, {"target": ["x" * 17]}),
        ],
    )
    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    def test_on_opening(self, limits: dict[str, int], payload: dict[str, Any], kind: str) -> None:
        space = Space("alice", "bob", "carol", limits=limits)
        space.open("alice")
        outcome = space.send("alice", kind, payload)
        assert outcome.error == "limit_exceeded"
        assert outcome.messages[0]["payload"]["limit"] == next(iter(limits))

    @pytest.mark.parametrize(
        ("limits", "payload", "status"),
        [
            ({"streams_per_participant": 1}, {}, 429),
            ({"stream_metadata_bytes": 64}, {"description": "x" * 64}, 413),
            ({"schema_bytes": 64}, {"formats": [{"id": "a", "schema": {"title": "x" * 64}}]}, 413),
        ],
    )
    def test_the_http_status(self, limits: dict[str, int], payload: dict[str, Any], status: int) -> None:
        """WIRE.md, HTTP: 413 too large."""
        space = Space("alice", limits=limits)
        space.open("alice")
        refusal = space.send("alice", "stream/request", payload).refusal
        assert refusal is not None
        assert refusal.http_status == status

    def test_closing_makes_room(self) -> None:
        space = Space("alice", limits={"streams_per_participant": 1, "streams_per_space": 1})
        space.close("alice", space.open("alice"))
        assert space.open("alice") == "stream-2"

    def test_writers(self) -> None:
        """seed 000, Open Questions, 3: Maximum number of authorized writers."""
        space = Space("alice", "bob", "carol", limits={"writers_per_stream": 2})
        stream = space.open("alice")
        assert space.grant("alice", stream, "bob").error is None
        assert space.grant("alice", stream, "bob").error is None, "one who writes already takes no more room"
        outcome = space.grant("alice", stream, "carol")
        assert outcome.messages[0]["payload"]["limit"] == "writers_per_stream"

    @pytest.mark.parametrize("how", ["transfer", "auto_grant"])
    def test_writers_by_another_way(self, how: str) -> None:
        space = Space("alice", "bob", "carol", limits={"writers_per_stream": 2}, capabilities={"dave": ["chat"]})
        stream = space.open("alice", auto_grant=["dave"])
        space.grant("alice", stream, "bob")
        if how == "transfer":
            space.transfer("alice", stream, "carol", retain_write=True)
        else:
            space.join("dave")
        assert len(space.writers(stream)) == 2

    def test_readers(self) -> None:
        space = Space("alice", "bob", "carol", limits={"readers_per_stream": 1})
        stream = space.open("alice", target=["bob"])
        outcome = space.send("alice", "stream/grant-read", {"stream_id": stream, "participant_id": "carol"})
        assert outcome.messages[0]["payload"]["limit"] == "readers_per_stream"

    def test_owned_by_transfer(self) -> None:
        space = Space("alice", "bob", limits={"streams_per_participant": 1})
        stream = space.open("alice")
        space.open("bob")
        outcome = space.transfer("alice", stream, "bob")
        assert outcome.messages[0]["payload"]["limit"] == "streams_per_participant"

    def test_ids_in_payloads(self) -> None:
        space, stream = three()
        outcome = space.grant("alice", stream, "x" * 129)
        assert outcome.messages[0]["payload"]["limit"] == "id_bytes"


class TestScenarios:
    def test_seed_000(self) -> None:
        """seed 000, Testing Plan, Integration Tests: the test sequence, steps 1 to 14."""
        space = Space("stream-owner", capabilities={"stream-writer": ["chat"], "verifier": ["chat"]})
        stream = space.open("stream-owner", direction="upload", description="Test stream", content_type="text/plain")
        assert is_frame(space.frame("stream-owner", stream, "Frame from owner"))
        space.join("stream-writer")
        assert space.welcome("stream-writer")["active_streams"][0]["authorized_writers"] == ["stream-owner"]
        assert space.frame("stream-writer", stream).error == "unauthorized_stream_write"
        space.grant("stream-owner", stream, "stream-writer")
        assert is_frame(space.frame("stream-writer", stream))
        space.join("verifier")
        both = ["stream-owner", "stream-writer"]
        assert space.welcome("verifier")["active_streams"][0]["authorized_writers"] == both
        space.revoke("stream-owner", stream, "stream-writer")
        assert space.frame("stream-writer", stream).error == "unauthorized_stream_write"
        space.transfer("stream-owner", stream, "stream-writer")
        assert is_frame(space.frame("stream-writer", stream))
        assert space.frame("stream-owner", stream).error == "unauthorized_stream_write"

    def test_seed_001(self) -> None:
        """seed 001, Testing Strategy, E2E: Character Control Delegation, steps 1 to 12."""
        space = Space("character-server", capabilities={each: ["mcp/*"] for each in ("player1", "player2", "ai")})
        stream = space.open("character-server", metadata={"character_id": "character-player1"})
        space.join("player1")
        assert space.welcome("player1")["active_streams"][0]["owner"] == "character-server"
        assert space.send("player1", "mcp/request", {"method": "tools/call"}).error is None
        space.grant("character-server", stream, "player1", reason="Player claimed character control")
        assert is_frame(space.frame("player1", stream))
        space.join("player2")
        [entry] = space.welcome("player2")["active_streams"]
        assert entry["authorized_writers"] == ["character-server", "player1"]
        assert entry["metadata"] == {"character_id": "character-player1"}
        assert space.frame("player2", stream).error == "unauthorized_stream_write"
        space.leave("player1")
        assert space.revoke("character-server", stream, "player1").error is None
        space.join("ai")
        space.transfer("character-server", stream, "ai")
        assert is_frame(space.frame("ai", stream))

    def test_expiry_is_a_time_on_the_wire(self) -> None:
        """seed 000, Future Extensions, 2: ``expires_at`` in any zone is shown in UTC."""
        space, stream = three()
        given = "2026-01-31T14:00:00+01:00"
        told = space.grant("alice", stream, "bob", conditions={"expires_at": given}).told("stream/write-granted")
        assert told["conditions"]["expires_at"] == rfc3339(parse_rfc3339(given) or 0)
