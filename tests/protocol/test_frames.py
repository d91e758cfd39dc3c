"""What flows through streams: raw frames and ``stream/data``, under the same rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import SPACE, Space, is_frame

from mewstream.protocol.errors import LimitExceeded, ValidationFailed
from mewstream.protocol.frames import frame, frame_with_position, split_frame
from mewstream.protocol.records import Frame, Refused

NUMBER = {"id": "number", "mime_type": "application/json", "schema": {"type": "number"}}
WORDS = {"id": "words", "mime_type": "text/plain"}


class TestOnTheWire:
    @pytest.mark.parametrize(
        ("message", "stream", "data"),
        [
            (b"#stream-1#hello", "stream-1", b"hello"),
            (b"#stream-1#", "stream-1", b""),
            (b"#stream-1#a#b##", "stream-1", b"a#b##"),
            (b"#stream-1#\xff\x00", "stream-1", b"\xff\x00"),
            ("#pösition#x".encode(), "pösition", b"x"),
            (b"#" + b"i" * 128 + b"#x", "i" * 128, b"x"),
        ],
    )
    def test_split(self, message: bytes, stream: str, data: bytes) -> None:
        """WIRE.md, Streams: the id stands between the first two ``#``; data is opaque and may contain ``#``."""
        id, start = split_frame(message, max_id_bytes=128)
        assert (id, message[start:]) == (stream, data)
        assert frame(id, data) == message

    @pytest.mark.parametrize("message", [b"#", b"#stream-1", b"##data", b"#\xff#data"])
    def test_malformed(self, message: bytes) -> None:
        with pytest.raises(ValidationFailed):
            split_frame(message, max_id_bytes=128)

    def test_a_long_id_names_the_limit(self) -> None:
        """decision 19."""
        with pytest.raises(LimitExceeded) as refused:
            split_frame(b"#" + b"i" * 129 + b"#x", max_id_bytes=128)
        assert refused.value.details["limit"] == "id_bytes"

    def test_with_a_position(self) -> None:
        """decision 24: ``#<stream_id>|<seq>|<writer>#<data>``."""
        assert frame_with_position("stream-1", 42, "bob", b"a#b") == b"#stream-1|42|bob#a#b"


class TestWhoMayWrite:
    def test_the_owner(self) -> None:
        """seed 001, Testing Strategy, integration test 1: owner publishes frame -> accepted."""
        space = Space("alice", "bob")
        accepted = space.frame("alice", space.open("alice"), b"\x00#\xff").one(Frame)
        assert (accepted.sender, accepted.stream_id, accepted.stream_seq) == ("alice", "stream-1", 1)
        assert accepted.data == b"\x00#\xff"

    @pytest.mark.parametrize(("data", "opcode"), [("text", 1), (b"binary", 2)])
    def test_the_opcode_is_kept(self, data: bytes | str, opcode: int) -> None:
        """DESIGN.md, gateway: a text frame leaves as text, a binary frame as binary."""
        space = Space("alice")
        assert space.frame("alice", space.open("alice"), data).one(Frame).opcode == opcode

    def test_frames_reach_everyone_the_sender_too(self) -> None:
        """decision 11: broadcast frames echo to the sender too."""
        space = Space("alice", "bob", "carol")
        accepted = space.frame("alice", space.open("alice")).one(Frame)
        assert accepted.readers is None
        assert accepted.recipients == 3
        assert space.state.recipients(space.state.streams["stream-1"]) == ["alice", "bob", "carol"]

    def test_the_unauthorized(self) -> None:
        """decision 9; seed 000, Security Analysis, threat 1, and Open Questions, 5: error to the sender."""
        space = Space("alice", "bob")
        outcome = space.frame("bob", space.open("alice"), b"secret")
        assert outcome.types == ["Refused"]
        error = outcome.messages[0]
        assert (error["kind"], error["from"], error["to"]) == ("system/error", "system:gateway", ["bob"])
        assert error["payload"]["error"] == "unauthorized_stream_write"
        assert error["payload"]["stream_id"] == "stream-1"
        assert "correlation_id" not in error

    @pytest.mark.parametrize("stream", ["stream-1", "stream-2", "no-such-alias", "#"])
    def test_an_unknown_or_closed_stream(self, stream: str) -> None:
        """decision 9: ``stream_not_found``, also after a close."""
        space = Space("alice")
        space.close("alice", space.open("alice"))
        assert space.frame("alice", stream).error == "stream_not_found"

    def test_before_start(self) -> None:
        """decision 13: frames before ``start`` are ``invalid_operation``; the right is checked first."""
        space = Space("alice", "bob")
        stream = space.announce("alice")
        assert space.frame("alice", stream).error == "invalid_operation"
        assert space.data("alice", stream, 1).error == "invalid_operation"
        assert space.frame("bob", stream).error == "unauthorized_stream_write"
        assert space.data("bob", stream, 1).error == "unauthorized_stream_write"

    def test_a_refused_payload_is_recorded_in_part_only(self) -> None:
        """DESIGN.md, journal: never more than a bounded prefix of a refused payload."""
        space = Space("alice", limits={"refused_excerpt_bytes": 8})
        assert space.frame("alice", "stream-9", b"\xff" + b"y" * 100).one(Refused).excerpt == "�yyyyyyy"
        assert len(space.send("alice", "chat", {"no-text": "y" * 100}).one(Refused).excerpt) == 8

    def test_by_alias_told_under_the_assigned_id(self) -> None:
        """decision 12."""
        space = Space("alice")
        space.open("alice", desired_id="positions")
        assert space.frame("alice", "positions").one(Frame).stream_id == "stream-1"
        assert space.data("alice", "positions", 1).told("stream/data")["stream"]["stream_id"] == "stream-1"

    def test_without_any_capability(self) -> None:
        """decision 2: being a writer authorizes frames and ``stream/data``, whatever one's capabilities say."""
        space = Space("alice", "bob", capabilities={"bob": ["chat"]})
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        assert is_frame(space.frame("bob", stream))
        assert is_frame(space.data("bob", stream, 1))

    def test_frames_are_counted_per_stream(self) -> None:
        space = Space("alice")
        first, second = space.open("alice"), space.open("alice")
        numbers = [space.frame("alice", each).one(Frame).stream_seq for each in (first, second, first)]
        assert numbers == [1, 1, 2]
        assert space.data("alice", first, 1).one(Frame).stream_seq == 3
        assert space.stream(first)["last_seq"] == space.state.seq


class TestStreamData:
    """seed 003, Handshake Sequence, 4 (Data)."""

    def test_is_a_frame_with_everything_filled_in(self) -> None:
        """DESIGN.md, protocol: ``stream/data`` envelopes are frames. seed 003, Implementation Details: the namespace
        is always there, and ``context`` mirrors it. decision 13: a missing namespace is filled in."""
        space = Space("alice", "bob")
        stream = space.announce("alice", start=True, formats=[NUMBER])
        outcome = space.data("alice", stream, 7, 1.5, extra="kept")
        accepted = outcome.one(Frame)
        assert (accepted.kind, accepted.sequence, accepted.format_id) == ("stream/data", 7, "number")
        assert (accepted.recipients, accepted.opcode) == (2, 1)
        told = outcome.messages[0]
        assert told["context"] == f"{SPACE}/{stream}"
        assert told["payload"] == {
            "stream": {"stream_id": stream, "namespace": f"{SPACE}/{stream}"},
            "sequence": 7,
            "content": 1.5,
            "extra": "kept",
        }

    def test_a_context_of_ones_own_stays(self) -> None:
        """seed 003, Implementation Details: ``context`` MAY mirror the namespace."""
        space = Space("alice")
        payload = {"stream_id": space.open("alice"), "sequence": 1, "content": "x"}
        assert space.send("alice", "stream/data", payload, context="mine").messages[0]["context"] == "mine"

    def test_a_null_stream_beside_a_stream_id(self) -> None:
        space = Space("alice")
        payload = {"stream_id": space.open("alice"), "stream": None, "sequence": 1, "content": "x"}
        assert space.send("alice", "stream/data", payload).told("stream/data")["stream"]["stream_id"] == "stream-1"

    @pytest.mark.parametrize(
        "change",
        [
            {"sequence": None},
            {"sequence": "1"},
            {"sequence": 1.0},
            {"sequence": True},
            {"sequence": -1},
            {"sequence": 1 << 63},
            {"content": ...},
            {"format_id": 7},
            {"stream": "stream-1"},
            {"stream": {}},
            {"stream": {"stream_id": 1}},
            {"stream_id": "stream-2"},
            {"stream": {"stream_id": "stream-1", "namespace": "other/stream-1"}},
            {"stream": {"stream_id": "stream-1", "namespace": 7}},
        ],
    )
    def test_shape(self, change: dict[str, Any]) -> None:
        """decision 13: a wrong namespace is refused."""
        space = Space("alice")
        payload = {"stream": {"stream_id": space.open("alice")}, "sequence": 1, "content": "x"} | change
        payload = {key: value for key, value in payload.items() if value is not ...}
        assert space.send("alice", "stream/data", payload).error == "validation_error"

    def test_content_may_be_anything_even_null(self) -> None:
        space = Space("alice")
        assert is_frame(space.data("alice", space.open("alice"), 1, None))

    def test_a_repeated_id_changes_nothing(self) -> None:
        """DESIGN.md, protocol: a client may retry after a reconnect."""
        space = Space("alice")
        payload = {"stream_id": space.open("alice"), "sequence": 1, "content": "x"}
        accepted = space.send("alice", "stream/data", payload, id="d1").one(Frame)
        again = space.send("alice", "stream/data", payload, id="d1")
        assert again.records == []
        assert again.repetition is not None
        assert again.repetition.answer.seq == accepted.seq


class TestSequence:
    """decision 14; seed 003, Implementation Details: monotonic integers, gaps imply loss."""

    @pytest.mark.parametrize(
        ("before", "sequence", "error", "gap"),
        [
            ([], 0, None, 0),
            ([], 41, None, 0),
            ([1], 2, None, 0),
            ([1], 5, None, 3),
            ([1, 2], 2, "sequence_regression", None),
            ([1, 2], 1, "sequence_regression", None),
            ([0], 0, "sequence_regression", None),
        ],
    )
    def test_rules(self, before: list[int], sequence: int, error: str | None, gap: int | None) -> None:
        space = Space("alice")
        stream = space.open("alice")
        for each in before:
            space.data("alice", stream, each)
        outcome = space.data("alice", stream, sequence)
        assert outcome.error == error
        if gap is not None:
            assert outcome.one(Frame).gap == gap
        else:
            assert outcome.messages[0]["payload"]["stream_id"] == stream

    def test_per_stream_and_per_writer(self) -> None:
        space = Space("alice", "bob")
        first, second = space.open("alice"), space.open("alice")
        space.grant("alice", first, "bob")
        space.data("alice", first, 10)
        assert space.data("alice", second, 1).error is None
        assert space.data("bob", first, 1).error is None

    def test_a_new_session_begins_anew(self) -> None:
        space = Space("alice")
        stream = space.open("alice")
        space.data("alice", stream, 10)
        space.leave("alice")
        space.join("alice")
        assert space.data("alice", stream, 1).one(Frame).gap == 0
        assert space.data("alice", stream, 1).error == "sequence_regression"

    def test_outlives_a_revoke_in_the_same_session(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice")
        space.grant("alice", stream, "bob")
        space.data("bob", stream, 10)
        space.revoke("alice", stream, "bob")
        space.grant("alice", stream, "bob")
        assert space.data("bob", stream, 10).error == "sequence_regression"

    def test_a_refused_one_does_not_count(self) -> None:
        space = Space("alice")
        stream = space.announce("alice", start=True, formats=[NUMBER], validate="enforce")
        assert space.data("alice", stream, 5, "no number").error == "format_violation"
        assert space.data("alice", stream, 1, 1).error is None

    def test_raw_frames_have_none(self) -> None:
        space = Space("alice")
        stream = space.open("alice")
        space.data("alice", stream, 1)
        assert space.frame("alice", stream).one(Frame).sequence is None
        assert space.data("alice", stream, 2).one(Frame).gap == 0


class TestFormats:
    """decisions 13 and 15; seed 003, Format Descriptors."""

    def test_raw_frames_of_a_stream_with_one_format_have_it(self) -> None:
        """decision 13."""
        space = Space("alice")
        assert space.frame("alice", space.announce("alice", start=True, formats=[NUMBER])).one(Frame).format_id == (
            "number"
        )

    def test_raw_frames_of_a_stream_with_several_are_refused(self) -> None:
        """decision 13: ``format_required``."""
        space = Space("alice")
        stream = space.announce("alice", start=True, formats=[NUMBER, WORDS])
        outcome = space.frame("alice", stream)
        assert outcome.error == "format_required"
        assert outcome.messages[0]["payload"]["formats"] == ["number", "words"]

    @pytest.mark.parametrize(
        ("formats", "format_id", "error"),
        [
            ([], None, None),
            ([NUMBER], None, None),
            ([NUMBER], "number", None),
            ([NUMBER], "unknown", "format_violation"),
            ([NUMBER, WORDS], "words", None),
            ([NUMBER, WORDS], None, "format_required"),
            ([NUMBER, WORDS], "unknown", "format_violation"),
        ],
    )
    def test_the_format_of_stream_data(self, formats: list[Any], format_id: str | None, error: str | None) -> None:
        """seed 003, Handshake Sequence, 4: ``format_id`` points to one of the announced formats."""
        space = Space("alice")
        stream = space.announce("alice", start=True, formats=formats)
        fields = {} if format_id is None else {"format_id": format_id}
        assert space.data("alice", stream, 1, "not a number", **fields).error == error

    @pytest.mark.parametrize(("content", "error"), [(1.5, None), ("one", "format_violation")])
    @pytest.mark.parametrize("raw", [True, False])
    def test_enforce(self, content: Any, error: str | None, raw: bool) -> None:
        """decision 15: ``validate: enforce``."""
        space = Space("alice")
        stream = space.announce("alice", start=True, formats=[NUMBER], validate="enforce")
        outcome = space.frame("alice", stream, json.dumps(content)) if raw else space.data("alice", stream, 1, content)
        assert outcome.error == error
        if error:
            assert outcome.messages[0]["payload"]["format_id"] == "number"
            assert outcome.messages[0]["payload"]["problems"]

    @pytest.mark.parametrize("validate", [None, "off"])
    def test_off_is_the_default(self, validate: str | None) -> None:
        """decision 15: the gateway stays byte-transparent."""
        space = Space("alice")
        stream = space.announce("alice", start=True, formats=[NUMBER], validate=validate)
        assert space.frame("alice", stream, b"\xff").one(Frame).data == b"\xff"

    def test_the_space_sets_the_default(self) -> None:
        space = Space("alice", policies={"validate": "enforce"})
        assert space.frame("alice", space.open("alice", formats=[NUMBER]), "x").error == "format_violation"
        assert is_frame(space.frame("alice", space.open("alice", formats=[NUMBER], validate="off"), "x"))
