"""Size, shape, capability and right come before what is expensive, and no refusal or list grows without a bound."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import EVERYTHING, Space

from mewstream.protocol import commands, snapshot
from mewstream.protocol.capabilities import MAX_PATTERNS
from mewstream.protocol.records import Joined, Refused, StreamEnded, WriteGranted
from mewstream.protocol.state import MAX_PROJECTIONS

BAD_SCHEMA = {"formats": [{"id": "x", "schema": {"type": "nonsense"}}]}
BAD_PATTERN = {"kind": "k", "payload": {"a": "/(/"}}


class TestOpening:
    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    def test_schemas_are_looked_into_after_the_capability(self, kind: str) -> None:
        assert Space("bob", capabilities={"bob": []}).send("bob", kind, BAD_SCHEMA).error == "capability_violation"
        assert Space("bob").send("bob", kind, BAD_SCHEMA).error == "validation_error"

    @pytest.mark.parametrize("limit", ["streams_per_space", "streams_per_participant"])
    def test_and_after_the_limits(self, limit: str) -> None:
        space = Space("bob", limits={limit: 1})
        space.open("bob")
        assert space.send("bob", "stream/request", BAD_SCHEMA).error == "limit_exceeded"

    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    def test_a_payload_that_is_too_large_is_not_looked_into(self, kind: str) -> None:
        outcome = Space("bob").send("bob", kind, {"direction": "sideways", "scope": 7, "x": "y" * (64 << 10)})
        assert outcome.error == "limit_exceeded"
        assert outcome.one(Refused).details["limit"] == "stream_metadata_bytes"

    @pytest.mark.parametrize(
        "payload", [{"a": [0] * 2_047}, {"a": {str(n): [] for n in range(2_047)}}, {"a": ",[" * 9_000}]
    )
    def test_values_are_counted_and_not_commas(self, payload: dict[str, Any]) -> None:
        limits = {"stream_metadata_values": 2_048}
        assert Space("bob", limits=limits).send("bob", "stream/request", payload).error is None
        outcome = Space("bob", limits=limits).send("bob", "stream/request", payload | {"b": [[]] * 2_048})
        assert outcome.error == "limit_exceeded"
        assert outcome.one(Refused).details["limit"] == "stream_metadata_values"

    def test_those_who_write_from_the_start_are_few(self) -> None:
        """Of each everyone is told with the whole list: a message of 28 KB for 2,000 made 54 MB."""
        names = [f"w-{n}" for n in range(129)]
        outcome = Space("bob").send("bob", "stream/request", {"auto_grant": names})
        assert outcome.one(Refused).details["limit"] == "auto_grants_per_stream"
        assert Space("bob").send("bob", "stream/request", {"auto_grant": names[:128]}).error is None

    def test_a_refusal_names_a_few_of_many_targets(self) -> None:
        outcome = Space("bob").send("bob", "stream/request", {"target": [f"nobody-{n}" for n in range(2_000)]})
        assert outcome.one(Refused).details["targets"] == [f"nobody-{n}" for n in range(16)]
        assert "and 1984 more" in outcome.one(Refused).message


class TestLargePayloads:
    def test_a_small_one_is_looked_into_first(self) -> None:
        assert Space("bob", capabilities={"bob": []}).send("bob", "chat", {"text": 7}).error == "validation_error"

    def test_a_large_one_only_where_something_may_be_sent(self) -> None:
        """It takes 60 ms to decode a megabyte of empty lists."""
        large = {"text": 7, "padding": "x" * (17 << 10)}
        assert Space("bob", capabilities={"bob": []}).send("bob", "chat", large).error == "capability_violation"
        assert Space("bob").send("bob", "chat", large).error == "validation_error"
        # What is always allowed, and what a right decides about.
        assert Space("bob", capabilities={"bob": []}).send("bob", "mcp/response", large).error is None
        space = Space("bob", "alice")
        stream = {"stream": {"stream_id": space.open("alice")}}
        assert space.send("bob", "stream/data", large).error == "validation_error"
        assert space.send("bob", "stream/data", large | {"stream_id": "none"}).error == "stream_not_found"
        assert space.send("bob", "stream/data", large | stream).error == "unauthorized_stream_write"
        assert space.send("alice", "stream/data", large | stream).error == "validation_error"
        assert space.send("alice", "stream/data", large | stream | {"sequence": 1, "content": {}}).error is None

    @pytest.mark.parametrize("kind", ["stream/close", "stream/grant-write", "capability/grant", "space/kick"])
    def test_what_the_gateway_acts_on_is_not_large(self, kind: str) -> None:
        outcome = Space("admin").send("admin", kind, {"reason": "x" * (64 << 10)})
        assert outcome.error == "limit_exceeded"
        assert outcome.one(Refused).details["limit"] == "control_bytes"


class TestCapabilities:
    @pytest.mark.parametrize(
        ("kind", "payload"),
        [
            ("capability/grant", {"recipient": "bob", "capabilities": [BAD_PATTERN]}),
            ("capability/revoke", {"recipient": "bob", "capabilities": [BAD_PATTERN]}),
            ("space/invite", {"participant_id": "eve", "capabilities": [BAD_PATTERN]}),
        ],
    )
    def test_patterns_are_compiled_after_the_capability(self, kind: str, payload: dict[str, Any]) -> None:
        space = Space("bob", "admin")
        assert space.send("bob", kind, payload).error == "capability_violation"
        assert space.send("admin", kind, payload).error == "validation_error"

    @pytest.mark.parametrize("given", [[{"kind": "k", "why": "x" * 8_000}] * 2, ["chat"] * (MAX_PATTERNS + 1)])
    @pytest.mark.parametrize("kind", ["capability/grant", "space/invite"])
    def test_a_list_has_a_size(self, kind: str, given: list[Any]) -> None:
        who = {"recipient": "bob"} if kind == "capability/grant" else {"participant_id": "eve"}
        outcome = Space("bob", "admin").send("admin", kind, {**who, "capabilities": given})
        assert outcome.error == "limit_exceeded"
        assert outcome.one(Refused).details["limit"] == "capability_list_bytes"
        assert outcome.one(Refused).http_status == 413

    def test_all_grants_to_one_count_together(self) -> None:
        space = Space("bob", "admin")
        grant = {"recipient": "bob", "capabilities": [{"kind": "k", "why": "x" * 900}]}
        errors = [space.send("admin", "capability/grant", grant).error for _ in range(10)]
        assert errors == [None] * 8 + ["limit_exceeded"] * 2
        assert len(json.dumps(space.state.capability_list("bob"))) < 9 << 10

    def test_a_refusal_repeats_the_first_of_many(self) -> None:
        held = [{"kind": f"k/{n}"} for n in range(40)]
        refused = Space("bob", capabilities={"bob": held}).send("bob", "chat", {"text": "hi"}).one(Refused)
        assert refused.details["your_capabilities"] == held[:16]
        assert refused.details["your_capabilities_total"] == 40

    def test_and_never_much(self) -> None:
        held = [{"kind": f"k/{n}", "why": "x" * 900} for n in range(8)]
        refused = Space("bob", capabilities={"bob": held}).send("bob", "chat", {"text": "hi"}).one(Refused)
        assert refused.details["your_capabilities"] == held[:2]
        assert refused.details["your_capabilities_total"] == 8
        few = Space("bob", capabilities={"bob": held[:2]}).send("bob", "chat", {"text": "hi"}).one(Refused)
        assert "your_capabilities_total" not in few.details

    def test_what_is_given_is_judged_as_one_question(self) -> None:
        """Each of 200 patterns could take the whole budget of work: 200 times as long, were it not one for all."""
        names = [f"a{number}" for number in range(1_000)]
        held = {"bob": ["space/invite", {"kind": "k", "payload": {"v": names}}]}
        space = Space("bob", capabilities=held, policies={"invites": "held"})
        one = {"kind": "k", "payload": {"v": ["a999"] * 5}}
        assert space.send("bob", "space/invite", {"participant_id": "eve", "capabilities": [one]}).error is None
        many = {"participant_id": "mallory", "capabilities": [one] * 100}
        assert space.send("bob", "space/invite", many).error == "capability_violation"

    def test_a_configuration_that_has_grown_holds_without_the_grants(self) -> None:
        space = Space("bob", "admin", capabilities={"bob": [f"a/{n}" for n in range(100)]})
        grant = {"recipient": "bob", "capabilities": [f"k/{n}" for n in range(100)]}
        granted = space.send("admin", "capability/grant", grant)
        assert granted.error is None
        space.config["participants"]["bob"]["capabilities"] = [{"kind": f"b/{n}"} for n in range(200)]
        space.do(commands.Start("another run", space.config))
        assert space.send("bob", "b/7").error is None
        assert space.send("bob", "k/7").error == "capability_violation"
        revoke = {"recipient": "bob", "capabilities": ["k/*"]}
        assert space.send("admin", "capability/revoke", revoke).error is None
        assert space.state.capability_grants.get("bob", {}) == {}

    def test_true_is_not_one(self) -> None:
        """Somebody who may take nothing of others takes nothing that only Python calls the same."""
        both = [{"kind": "k", "payload": {"x": True}}, {"kind": "k", "payload": {"x": 1}}]
        space = Space("bob", "eve", "admin", capabilities={"eve": ["capability/revoke"]})
        space.send("admin", "capability/grant", {"recipient": "bob", "capabilities": both})
        taking = {"recipient": "bob", "capabilities": both[1:]}
        assert space.send("eve", "capability/revoke", taking).error == "capability_violation"

    def test_a_list_of_an_older_log_that_is_too_large_allows_nothing(self) -> None:
        space = Space("admin", capabilities={"old": ["chat"] * 300})
        space.join("old")
        assert space.send("old", "chat", {"text": "hi"}).error == "capability_violation"

    def test_projections_are_told_up_to_a_bound(self) -> None:
        space = Space("alice", "bob", "admin", limits={"streams_per_participant": 1_000})
        for _ in range(MAX_PROJECTIONS + 10):
            space.grant("alice", space.open("alice"), "bob")
        assert len(space.capabilities("bob")) == 3 + MAX_PROJECTIONS
        space.suspend("bob")
        assert len(space.join("bob").one(Joined).capabilities) == 3 + MAX_PROJECTIONS
        assert len(space.state.rights["bob"].writes) == MAX_PROJECTIONS + 10


class TestIndexes:
    """What is asked for by name is found by name, however many streams there are."""

    def test_standing_grants(self) -> None:
        space = Space("alice", capabilities={"bob": ["chat"], "eve": ["chat"]})
        granted = space.open("alice", auto_grant=["bob", "eve"])
        other = space.open("alice", auto_grant=["bob"])
        assert [each.stream_id for each in space.join("bob").records[1:]] == [granted, other]
        space.revoke("alice", granted, "bob")
        space.leave("bob")
        assert space.join("bob").one(WriteGranted).stream_id == other
        space.close("alice", other)
        assert space.state.standing == {"eve": {granted: None}}
        assert snapshot.load(snapshot.dump(space.state)) == space.state
        space.close("alice", granted)
        assert space.state.standing == {}

    def test_closing_by_correlation(self) -> None:
        # An id that is not remembered any more can be used by another.
        space = Space("alice", "bob", capabilities={"bob": EVERYTHING}, limits={"remembered_ids": 1})
        for owner in ("alice", "bob"):
            assert space.send(owner, "stream/request", {}, id="r1").error is None
            space.send(owner, "chat", {"text": "one more"})
        opened = [message["id"] for _, message in space.messages if message["kind"] == "stream/open"]
        assert snapshot.load(snapshot.dump(space.state)) == space.state
        assert space.send("bob", "stream/close", correlation_id=["r1"]).one(StreamEnded).stream_id == "stream-2"
        assert space.send("bob", "stream/close", correlation_id=[opened[1]]).error == "stream_not_found"
        assert space.send("bob", "stream/close", correlation_id=[opened[0]]).one(StreamEnded).stream_id == "stream-1"
        assert space.state.opened_by == {}
