"""What participants are told: the welcome, and the message of each record, live and in a replay alike."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from harness import EPOCH, EVERYTHING, NOON, SPACE, Space

from mewstream.protocol import commands
from mewstream.protocol.fold import fold
from mewstream.protocol.records import (
    AnyRecord,
    Frame,
    HistoryRead,
    Record,
    Refused,
    StreamReused,
    Subscribed,
    Unsubscribed,
)
from mewstream.protocol.render import gateway_envelope, needs_extensions, private_to, render, visible_to, with_seq
from mewstream.protocol.times import rfc3339

REQUESTS = {
    "game": {
        "direction": "upload",
        "content_type": "application/x-game-positions",
        "format": "binary-vector3",
        "description": "Player movement updates",
        "metadata": {"update_rate_hz": 60, "coordinate_system": "world-space"},
    },
    "voice": {
        "direction": "upload",
        "content_type": "text/plain",
        "format": "utf8-newline-delimited",
        "description": "Voice chat transcription",
        "metadata": {"language": "en-US", "speaker": "alice"},
    },
    "reasoning": {
        "direction": "upload",
        "content_type": "application/json",
        "format": "jsonl",
        "description": "Chain-of-thought reasoning",
        "expected_size_bytes": 1048576,
    },
    "file": {
        "direction": "download",
        "content_type": "image/png",
        "description": "Screenshot",
        "expected_size_bytes": 524288,
        "metadata": {"filename": "screenshot.png", "checksum_sha256": "abc123..."},
        "x-custom": [1, {"deep": None}],
    },
}


def busy() -> Space:
    """A space in which a bit of everything has happened."""
    space = Space("alice", "bob", "carol", "admin", policies={"on_owner_leave": "close"})
    stream = space.open("alice", auto_grant=["bob"], target=["bob", "carol"])
    space.frame("alice", stream, "hello")
    space.data("bob", stream, 1)
    space.grant("alice", stream, "carol", conditions={"max_frames": 1})
    space.frame("carol", stream)
    space.frame("carol", stream)
    space.send("alice", "stream/revoke-read", {"stream_id": stream, "participant_id": "bob"})
    space.send("alice", "stream/grant-read", {"stream_id": stream, "participant_id": "bob"})
    space.send("carol", "stream/request-write", {"stream_id": stream, "reason": "once more"})
    space.send("alice", "stream/deny-write", {"stream_id": stream, "participant_id": "carol", "reason": "later"})
    space.do(commands.Join("carol", "ws", extensions=["interest"]))
    space.send("carol", "stream/subscribe", {"streams": [stream]})
    space.send("carol", "stream/unsubscribe", {"streams": [stream]})
    space.do(commands.ReadHistory("carol", stream, 1, None, 0, "websocket"))
    space.transfer("alice", stream, "bob")
    space.announce("alice", desired_id="later")
    space.send("alice", "stream/announce", {"desired_id": "later", "if_exists": "reuse"})
    space.send("admin", "space/invite", {"participant_id": "eve", "capabilities": ["chat"]})
    space.send("admin", "capability/grant", {"recipient": "bob", "capabilities": ["x"]}, id="g")
    space.send("admin", "capability/revoke", {"grant_id": "g"})
    space.send("admin", "participant/pause", {}, to=["carol"])
    space.send("carol", "chat", {"text": "hi"})
    space.send("admin", "participant/resume", {}, to=["carol"])
    space.do(commands.ReportDrop("carol", stream, 1, 1, 2, "latest"))
    space.suspend("carol")
    space.do(commands.ClockJump(-5_000_000, 0, 5_000_000))
    space.tick(30)
    space.leave("bob")
    space.tick(60)
    space.send("admin", "space/kick", {"participant_id": "alice"})
    space.send("admin", "participant/shutdown", {}, to=["admin"])
    return space


class TestWelcome:
    """decision 23; WIRE.md, Connecting; seed 002."""

    @pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
    def test_every_field_of_the_request_is_there(self, request_: dict[str, Any]) -> None:
        """seed 002, Testing Strategy, unit test 1: welcome includes active streams; Use Cases."""
        space = Space("alice", capabilities={"bob": ["chat"]})
        opened = space.send("alice", "stream/request", request_).told("stream/open")
        space.tick(5)
        space.join("bob")
        [entry] = space.welcome("bob")["active_streams"]
        assert entry.items() >= request_.items()
        assert entry.items() >= {"stream_id": "stream-1", "owner": "alice", "created": rfc3339(NOON)}.items()
        assert entry == opened, "late joiners see what those saw who were there"

    def test_no_streams(self) -> None:
        """seed 002, Testing Strategy, unit test 2: empty array when no streams."""
        assert Space("alice").welcome("alice")["active_streams"] == []

    def test_who_is_here(self) -> None:
        """WIRE.md, Connecting: ``you``, and the others."""
        space = Space("alice", "bob", capabilities={"alice": ["chat"], "bob": [], "carol": []})
        space.suspend("bob")
        welcome = space.welcome("alice")
        assert welcome["you"] == {"id": "alice", "capabilities": [{"kind": "chat"}]}
        assert welcome["participants"] == [{"id": "bob", "capabilities": []}]
        assert (welcome["epoch"], welcome["seq"]) == (EPOCH, space.state.seq)

    def test_through_the_life_of_a_stream(self) -> None:
        """seed 002, Testing Strategy, integration test, steps 1 to 9; seed 001, integration test 6."""
        space = Space("a", capabilities={"b": ["chat"], "c": ["chat"]})
        stream = space.open("a")
        space.join("b")
        assert [each["stream_id"] for each in space.welcome("b")["active_streams"]] == [stream]
        assert space.frame("a", stream).one(Frame).recipients == 2
        space.grant("a", stream, "b")
        assert space.welcome("b")["active_streams"][0]["authorized_writers"] == ["a", "b"]
        space.close("a", stream)
        space.join("c")
        assert space.welcome("c")["active_streams"] == []

    def test_several_streams(self) -> None:
        """seed 002, Edge Cases: multiple simultaneous streams."""
        space = Space("alice", "bob")
        for owner in ("alice", "bob", "alice"):
            space.open(owner)
        shown = [(each["stream_id"], each["owner"]) for each in space.welcome("bob")["active_streams"]]
        assert shown == [("stream-1", "alice"), ("stream-2", "bob"), ("stream-3", "alice")]

    def test_a_close_around_the_join(self) -> None:
        """seed 002, Edge Cases: stream closes during join handshake. The welcome is the fold at one ``seq``: a close
        before it is in it, a close after it is a message with a higher ``seq``."""
        space = Space("alice", capabilities={"bob": []})
        space.open("alice")
        space.join("bob")
        welcome = space.welcome("bob")
        closing = space.close("alice", "stream-1")
        assert [each["stream_id"] for each in welcome["active_streams"]] == ["stream-1"]
        assert all(each.seq > welcome["seq"] for each in closing.records)
        assert closing.messages[0] in space.seen_by("bob")

    def test_an_owner_that_is_gone(self) -> None:
        """seed 002, Edge Cases: participant disconnects with active stream. decision 7: ``owner_connected``."""
        space = Space("alice", "bob")
        space.open("alice")
        space.leave("alice")
        [entry] = space.welcome("bob")["active_streams"]
        assert (entry["owner"], entry["owner_connected"]) == ("alice", False)


class TestRender:
    def test_the_same_bytes_again_years_later(self) -> None:
        """decision 25: what was missed is sent again as it was sent: a message is a function of its record."""
        space = busy()
        for record, message in space.messages:
            stored = msgspec.json.decode(msgspec.json.encode(record), type=AnyRecord)
            told = render(SPACE, EPOCH, stored)
            assert told is not None
            assert json.loads(told) == message
            assert b'": ' not in told, "JSON is compact"

    def test_every_kind_of_record_was_there(self) -> None:
        """So that the harness has stored and folded each of them."""
        seen = {type(each) for each in busy().records}
        missing = {each.__name__ for each in AnyRecord.__args__ if each not in seen}
        assert missing == {"StreamStarted", "Admitted", "AdmissionEnded", "Uninvited", "Banned", "Unbanned"}

    def test_the_state_is_the_fold_and_nothing_else(self) -> None:
        """DESIGN.md, One idea."""
        space = busy()
        assert fold(SPACE, space.records) == space.state

    @pytest.mark.parametrize("kind", ["stream/open", "stream/write-granted", "system/error", "system/presence"])
    def test_messages_of_the_gateway_have_the_shape_of_an_envelope(self, kind: str) -> None:
        """WIRE.md, Envelopes and Errors."""
        [message, *_] = [each for _, each in busy().messages if each["kind"] == kind]
        assert message["protocol"] == "mew/v0.4"
        assert message["from"] == "system:gateway"
        assert message["id"].startswith("gw-")
        assert message["ts"].endswith("Z")

    def test_ids_of_the_gateway_are_unique(self) -> None:
        ids = [each["id"] for _, each in busy().messages if each["from"] == "system:gateway"]
        assert len(set(ids)) == len(ids)

    def test_a_raw_frame_is_no_json(self) -> None:
        space = Space("alice")
        assert space.frame("alice", space.open("alice")).messages == []

    def test_with_a_position(self) -> None:
        """decision 24: ``seq`` in every envelope for those who asked; all others get plain v0.4."""
        plain = gateway_envelope("system/notice", {"a": 1}, id="x", ts=NOON, to=["bob"], correlation_id="y")
        assert "seq" not in json.loads(plain)
        assert json.loads(with_seq(plain, 42)) == json.loads(plain) | {"seq": 42}
        assert json.loads(plain)["correlation_id"] == ["y"]

    def test_a_forged_position_never_meets_the_real_one(self) -> None:
        """decision 24: the client's own ``seq`` is dropped, so the key is there once."""
        space = Space("alice")
        record = space.raw("alice", b'{"kind":"chat","seq":1,"payload":{"text":"hi"}}').records[0]
        told = with_seq(render(SPACE, EPOCH, record) or b"", record.seq)
        assert told.count(b'"seq"') == 1


class TestWhoSeesWhat:
    """decisions 10 and 25: filtered by who could read at that seq, never a private message of another."""

    def test_frames_by_the_readers_at_that_seq(self) -> None:
        space = Space("alice", "bob", "carol")
        stream = space.open("alice", target=["bob"])
        first = space.frame("alice", stream).records[0]
        space.send("alice", "stream/grant-read", {"stream_id": stream, "participant_id": "carol"})
        space.send("alice", "stream/revoke-read", {"stream_id": stream, "participant_id": "bob"})
        second = space.frame("alice", stream).records[0]
        third = space.data("alice", stream, 1).records[0]
        assert [visible_to(first, each) for each in ("alice", "bob", "carol")] == [False, True, False]
        for later in (second, third):
            assert [visible_to(later, each) for each in ("alice", "bob", "carol")] == [False, False, True]

    def test_private_messages(self) -> None:
        space = busy()
        for record, message in space.messages:
            private = private_to(record)
            answers = (HistoryRead, StreamReused, Subscribed, Unsubscribed)
            is_private = message["kind"] in ("system/error", "system/notice") or isinstance(record, answers)
            assert (private is not None) is is_private
            if private is not None:
                assert message["to"] == [private]
                assert visible_to(record, private)
                assert not visible_to(record, "somebody else")

    @pytest.mark.parametrize(
        ("join", "told"), [("resumed", False), ("replaced", False), ("new", True)], ids=["resumed", "replaced", "new"]
    )
    def test_presence_is_told_once(self, join: str, told: bool) -> None:
        space = Space("alice", capabilities={"bob": []})
        if join != "new":
            space.join("bob")
        if join == "resumed":
            space.suspend("bob")
        joined = space.join("bob")
        assert bool(joined.messages) is (told or join == "resumed")
        assert needs_extensions(joined.records[0]) is (join == "resumed"), "v0.4 knows only joins and leaves"

    def test_errors_carry_their_details(self) -> None:
        """WIRE.md, Errors: ``{error, message, ...}``, correlated where there is an id."""
        space = Space("alice", capabilities={"alice": EVERYTHING})
        error = space.send("alice", "system/error", {}, id="e1").messages[0]
        assert error["correlation_id"] == ["e1"]
        assert error["payload"] == {
            "error": "reserved_kind",
            "message": "system/error is reserved for the gateway",
            "attempted_kind": "system/error",
        }
        refused: list[Record] = [each for each in space.records if isinstance(each, Refused)]
        assert [private_to(each) for each in refused] == ["alice"]
