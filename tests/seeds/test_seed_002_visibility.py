"""Seed 002, stream visibility on join: who comes late sees the same streams as who came early.

Every test talks to one real gateway process over real sockets, each in a space of its own.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from support import AT_ONCE, Client, GatewayProcess, Message, active_stream, running_gateway, space_config, token_of

PEOPLE = ("alice", "bob", "carol", "dave", "player-1", "agent-1")
RACES = 4
RACERS = tuple(f"racer-{number}" for number in range(24))
REQUIRED = ("stream_id", "owner", "direction", "created")
OPTIONAL = ("expected_size_bytes", "description", "content_type", "format", "metadata")


class Room:
    """A space that no other test uses, and everyone who joined it."""

    def __init__(self, gateway: GatewayProcess, space: str) -> None:
        self.gateway = gateway
        self.space = space
        self.clients: list[Client] = []

    async def join(self, participant: str) -> Client:
        client = await self.connect(participant)
        await client.send_raw(self.join_message(participant))
        client.welcome = await client.receive("system/welcome")
        return client

    async def connect(self, participant: str) -> Client:
        """A connection that has not said yet who it is. It never stops reading, whatever a test leaves unread."""
        client = await Client.connect(f"{self.gateway.ws_url}/ws", max_queue=None)
        client.participant = participant
        self.clients.append(client)
        return client

    def join_message(self, participant: str) -> str:
        return json.dumps(
            {"type": "join", "participantId": participant, "token": token_of(participant), "space": self.space}
        )

    async def close(self) -> None:
        for client in self.clients:
            await client.close()


@pytest.fixture(scope="module")
def spaces(request: pytest.FixtureRequest) -> int:
    """How many spaces there are: one for each test of this module."""
    return sum(item.path == request.path for item in request.session.items)


@pytest.fixture(scope="module")
def gateway(spaces: int) -> Iterator[GatewayProcess]:
    rooms = [space_config(*PEOPLE, space=f"room-{number}", mewstream=AT_ONCE) for number in range(spaces)]
    races = [
        space_config("early", "alice", "bob", *RACERS, space=f"race-{number}", mewstream=AT_ONCE)
        for number in range(RACES)
    ]
    with running_gateway({"spaces": [*rooms, *races]}) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def room_names(spaces: int) -> Iterator[str]:
    return iter([f"room-{number}" for number in range(spaces)])


@pytest.fixture
async def room(gateway: GatewayProcess, room_names: Iterator[str]) -> AsyncIterator[Room]:
    room = Room(gateway, next(room_names))
    yield room
    await room.close()


def streams_in(welcome: Message) -> list[Message]:
    streams = welcome["payload"]["active_streams"]
    assert isinstance(streams, list)
    return streams


def exactly(value: Any) -> str:
    """JSON text in which 1, 1.0 and true are three different things."""
    return json.dumps(value, sort_keys=True)


def frames_in(messages: list[Message | str | bytes]) -> list[str | bytes]:
    return [message for message in messages if not isinstance(message, dict)]


GAME = """
{
  "kind": "stream/request",
  "payload": {
    "direction": "upload",
    "content_type": "application/x-game-positions",
    "format": "binary-vector3",
    "description": "Player movement updates",
    "metadata": {
      "update_rate_hz": 60,
      "coordinate_system": "world-space"
    }
  }
}
"""

GAME_IN_ACTIVE_STREAMS = """
{
  "stream_id": "stream-1",
  "owner": "player-1",
  "direction": "upload",
  "created": "2025-01-23T12:00:00Z",
  "content_type": "application/x-game-positions",
  "format": "binary-vector3",
  "description": "Player movement updates",
  "metadata": {
    "update_rate_hz": 60,
    "coordinate_system": "world-space"
  }
}
"""

VOICE = """
{
  "kind": "stream/request",
  "payload": {
    "direction": "upload",
    "content_type": "text/plain",
    "format": "utf8-newline-delimited",
    "description": "Voice chat transcription",
    "metadata": {
      "language": "en-US",
      "speaker": "alice"
    }
  }
}
"""

REASONING = """
{
  "kind": "stream/request",
  "payload": {
    "direction": "upload",
    "content_type": "application/json",
    "format": "jsonl",
    "description": "Chain-of-thought reasoning",
    "expected_size_bytes": 1048576
  }
}
"""

FILE = """
{
  "kind": "stream/request",
  "payload": {
    "direction": "upload",
    "content_type": "image/png",
    "description": "Screenshot",
    "expected_size_bytes": 524288,
    "metadata": {
      "filename": "screenshot.png",
      "checksum_sha256": "abc123..."
    }
  }
}
"""


class TestMotivation:
    async def test_no_visibility_gap(self, room: Room) -> None:
        """seed 002, Motivation, steps 1-5: the asymmetry between early and late joiners is gone."""
        early = await room.join("carol")
        user_a = await room.join("alice")
        stream = await user_a.open_stream(description="the context")
        opened = await early.receive("stream/open")
        user_b = await room.join("bob")
        await user_a.frame(stream, "data")
        assert await user_b.receive_frame(stream) == "data"
        known = active_stream(user_b.welcome, stream)
        assert known["description"] == opened["payload"]["description"] == "the context"


class TestNonGoals:
    async def test_data_is_not_replayed(self, room: Room) -> None:
        """seed 002, Non-Goals: no replay of stream data to who joins (without `resume`)."""
        alice = await room.join("alice")
        stream = await alice.open_stream()
        await alice.frame(stream, "before")
        assert await alice.receive_frame(stream) == "before"
        bob = await room.join("bob")
        await alice.frame(stream, "after")
        await alice.settle()
        assert frames_in(await bob.settle()) == [f"#{stream}#after"]

    async def test_the_lifecycle_messages_are_what_they_were(self, room: Room) -> None:
        """seed 002, Non-Goals: stream lifecycle messages do not change; a late joiner is sent no `stream/open`."""
        alice = await room.join("alice")
        stream = await alice.open_stream()
        bob = await room.join("bob")
        assert await bob.settle() == []
        await alice.send("stream/close", {"stream_id": stream})
        closed = await bob.receive("stream/close")
        assert (closed["from"], closed["payload"]["stream_id"]) == ("alice", stream)

    async def test_any_type_and_format_will_do(self, room: Room) -> None:
        """seed 002, Non-Goals: the protocol prescribes no stream types or formats."""
        alice = await room.join("alice")
        request = {"direction": "upload", "content_type": "no/such;type=%", "format": "\u2603", "metadata": {}}
        stream = await alice.open_stream(**request)
        bob = await room.join("bob")
        assert active_stream(bob.welcome, stream).items() >= request.items()


class TestUseCases:
    async def test_real_time_game_movement(self, room: Room) -> None:
        """seed 002, Use Cases, Real-time Game Movement: request and `active_streams` as in the text."""
        player = await room.join("player-1")
        await player.send_raw(GAME)
        await player.receive("stream/open")
        late = await room.join("bob")
        (entry,) = streams_in(late.welcome)
        expected = json.loads(GAME_IN_ACTIVE_STREAMS)
        del expected["created"]
        assert {key: entry[key] for key in expected} == expected
        assert dt.datetime.fromisoformat(entry["created"]).tzinfo is not None

    async def test_the_late_joiner_knows(self, room: Room) -> None:
        """seed 002, Use Cases, Real-time Game Movement, "The late joiner knows"; and it can parse the data."""
        player = await room.join("player-1")
        await player.send_raw(GAME)
        await player.receive("stream/open")
        late = await room.join("bob")
        (entry,) = streams_in(late.welcome)
        assert entry["format"] == "binary-vector3"
        assert entry["description"] == "Player movement updates"
        assert entry["metadata"]["update_rate_hz"] == 60
        assert entry["metadata"]["coordinate_system"] == "world-space"
        vector = bytes(range(12))
        await player.frame(entry["stream_id"], vector)
        assert await late.receive_frame(entry["stream_id"]) == vector

    @pytest.mark.parametrize(
        ("text", "owner"),
        [(GAME, "player-1"), (VOICE, "alice"), (REASONING, "agent-1"), (FILE, "alice")],
        ids=["game-movement", "voice-transcription", "reasoning-trace", "file-transfer"],
    )
    async def test_payload_reaches_the_late_joiner_unchanged(self, room: Room, text: str, owner: str) -> None:
        """seed 002, Use Cases: Game Movement, Voice Chat Transcription, AI Reasoning Trace, File Transfer."""
        payload = json.loads(text)["payload"]
        early = await room.join("bob")
        requester = await room.join(owner)
        await requester.send_raw(text)
        opened = await early.receive("stream/open")
        late = await room.join("carol")
        (entry,) = streams_in(late.welcome)
        assert exactly({key: entry[key] for key in payload}) == exactly(payload)
        assert exactly({key: opened["payload"][key] for key in payload}) == exactly(payload)
        assert (entry["stream_id"], entry["owner"]) == ("stream-1", owner)

    async def test_all_four_at_once(self, room: Room) -> None:
        """seed 002, Use Cases: "In all cases, late joiners receive the complete context"."""
        texts = {"player-1": GAME, "alice": VOICE, "agent-1": REASONING, "dave": FILE}
        for owner, text in texts.items():
            client = await room.join(owner)
            await client.send_raw(text)
            await client.receive("stream/open")
        late = await room.join("carol")
        entries = {entry["owner"]: entry for entry in streams_in(late.welcome)}
        assert set(entries) == set(texts)
        for owner, text in texts.items():
            assert entries[owner].items() >= json.loads(text)["payload"].items()


class TestProtocolChanges:
    async def test_welcome_has_the_documented_shape(self, room: Room) -> None:
        """seed 002, Protocol Changes: you, participants and active_streams in one `system/welcome` of mew/v0.4."""
        agent = await room.join("agent-1")
        await agent.send_raw(REASONING)
        await agent.receive("stream/open")
        late = await room.join("bob")
        assert late.got == [late.welcome], "the welcome is the first message"
        assert late.welcome["protocol"] == "mew/v0.4"
        assert late.welcome["from"] == "system:gateway"
        assert late.welcome["to"] == ["bob"]
        payload = late.welcome["payload"]
        assert payload["you"] == {"id": "bob", "capabilities": [{"kind": "*"}]}
        (other,) = payload["participants"]
        assert other["id"] == "agent-1"
        assert {"kind": "*"} in other["capabilities"]
        (entry,) = payload["active_streams"]
        expected = {
            "stream_id": "stream-1",
            "owner": "agent-1",
            "direction": "upload",
            "content_type": "application/json",
            "format": "jsonl",
            "description": "Chain-of-thought reasoning",
            "expected_size_bytes": 1048576,
        }
        assert entry.items() >= expected.items()

    async def test_every_way_to_join_gets_it(self, room: Room) -> None:
        """seed 002, Protocol Changes: `system/welcome` is the same for a `system/join` envelope."""
        alice = await room.join("alice")
        stream = await alice.open_stream(description="seen")
        bob = await room.connect("bob")
        payload = {"participant_id": "bob", "token": token_of("bob"), "space": room.space}
        await bob.send("system/join", payload)
        welcome = await bob.receive("system/welcome")
        assert active_stream(welcome, stream)["description"] == "seen"

    async def test_a_later_welcome_has_it_too(self, room: Room) -> None:
        """seed 002, Protocol Changes; WIRE.md: a capability grant sends a new welcome, with active_streams."""
        alice = await room.join("alice")
        bob = await room.join("bob")
        assert streams_in(bob.welcome) == []
        stream = await alice.open_stream(description="since then")
        await alice.send("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "chat"}]})
        welcome = await bob.receive("system/welcome")
        assert active_stream(welcome, stream)["description"] == "since then"

    async def test_a_stream_requested_over_http_is_seen(self, room: Room) -> None:
        """seed 002, Protocol Changes: however a stream was requested, it is in `active_streams`."""
        await room.join("alice")
        envelope = {"kind": "stream/request", "payload": {"direction": "download", "description": "by POST"}}
        status, answer = await room.gateway.post("alice", envelope, space=room.space)
        assert (status, answer["status"]) == (200, "stream_opened")
        bob = await room.join("bob")
        entry = active_stream(bob.welcome, answer["stream_id"])
        assert (entry["owner"], entry["direction"], entry["description"]) == ("alice", "download", "by POST")


class TestFieldDefinitions:
    async def test_active_streams_is_an_array_even_when_empty(self, room: Room) -> None:
        """seed 002, Field Definitions, `active_streams`: "Empty array if no streams active"."""
        alice = await room.join("alice")
        assert alice.welcome["payload"]["active_streams"] == []

    async def test_required_fields(self, room: Room) -> None:
        """seed 002, Field Definitions: stream_id, owner, direction and created are there, as strings."""
        alice = await room.join("alice")
        stream = await alice.open_stream()
        bob = await room.join("bob")
        (entry,) = streams_in(bob.welcome)
        assert all(isinstance(entry[key], str) and entry[key] for key in REQUIRED)
        assert entry["stream_id"] == stream
        assert entry["owner"] == "alice"

    async def test_stream_id_is_unique(self, room: Room) -> None:
        """seed 002, Field Definitions, `stream_id`: unique, also when two ask at the same moment."""
        alice, bob = await room.join("alice"), await room.join("bob")
        for _ in range(10):
            await alice.send("stream/request", {"direction": "upload"})
            await bob.send("stream/request", {"direction": "upload"})
        await alice.settle()
        await bob.settle()
        carol = await room.join("carol")
        ids = [entry["stream_id"] for entry in streams_in(carol.welcome)]
        assert sorted(ids) == sorted(f"stream-{number}" for number in range(1, 21))

    async def test_created_is_when_the_stream_was_opened(self, room: Room) -> None:
        """seed 002, Field Definitions, `created`: ISO 8601, the time of the opening, the same for everyone later."""
        alice = await room.join("alice")
        id = await alice.send("stream/request", {"direction": "upload"})
        opened = await alice.receive("stream/open", of=id)
        bob = await room.join("bob")
        await alice.frame("stream-1", "time passes")
        await alice.send("stream/grant-write", {"stream_id": "stream-1", "participant_id": "bob"})
        await alice.settle()
        carol = await room.join("carol")
        created = {active_stream(client.welcome, "stream-1")["created"] for client in (bob, carol)}
        assert created == {opened["payload"]["created"]} == {opened["ts"]}
        assert dt.datetime.fromisoformat(created.pop()).utcoffset() == dt.timedelta(0)

    @pytest.mark.parametrize("direction", ["upload", "download"])
    async def test_direction(self, room: Room, direction: str) -> None:
        """seed 002, Field Definitions, `direction`: "upload" or "download"."""
        alice = await room.join("alice")
        stream = await alice.open_stream(direction=direction)
        bob = await room.join("bob")
        assert active_stream(bob.welcome, stream)["direction"] == direction

    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    @pytest.mark.parametrize(
        "payload",
        [{}, {"direction": None}, {"direction": 7}, {"direction": "sideways"}, {"direction": ["upload"]}],
        ids=["missing", "null", "number", "unknown", "list"],
    )
    async def test_direction_is_never_anything_else(self, room: Room, kind: str, payload: Message) -> None:
        """seed 002, Field Definitions, `direction` (string, required): whatever was asked for, refused or valid."""
        alice = await room.join("alice")
        await alice.send(kind, payload)
        await alice.settle()
        bob = await room.join("bob")
        assert [entry["direction"] for entry in streams_in(bob.welcome) if entry["direction"] != "upload"] == []

    async def test_optional_fields_of_the_request(self, room: Room) -> None:
        """seed 002, Field Definitions: the five optional fields, from the original request."""
        alice = await room.join("alice")
        request = {
            "expected_size_bytes": 12,
            "description": "human-readable",
            "content_type": "text/plain",
            "format": "utf8-newline-delimited",
            "metadata": {"arbitrary": {"key": ["value", "pairs"]}},
        }
        assert tuple(request) == OPTIONAL
        stream = await alice.open_stream(**request)
        bob = await room.join("bob")
        assert active_stream(bob.welcome, stream).items() >= request.items()

    async def test_optional_fields_are_not_invented(self, room: Room) -> None:
        """seed 002, Field Definitions: optional fields that the request did not have are absent."""
        alice = await room.join("alice")
        stream = await alice.open_stream()
        bob = await room.join("bob")
        assert set(OPTIONAL).isdisjoint(active_stream(bob.welcome, stream))

    async def test_additive_fields(self, room: Room) -> None:
        """seed 002, Field Definitions, with WIRE.md: namespace, status, writers and owner_connected beside them."""
        alice = await room.join("alice")
        stream = await alice.open_stream()
        bob = await room.join("bob")
        expected = {
            "namespace": f"{room.space}/{stream}",
            "status": "live",
            "authorized_writers": ["alice"],
            "owner_connected": True,
        }
        assert active_stream(bob.welcome, stream).items() >= expected.items()


CUSTOM_VALUES: dict[str, Any] = {
    "nested": {"a": {"b": {"c": [1, [2, [3, {"d": None}]]]}}},
    "unicode": "Zażółć gęślą jaźń \u4f60\u597d \U0001f63a \u202e \u2028 \x00 \x7f",
    "unicode keys": {"ключ": 1, "\U0001f511": 2, "": 3, " ": 4, 'quote"\\': 5},
    "int64": [2**63 - 1, -(2**63), 2**64 - 1],
    "beyond int64": [2**64, -(2**65), 10**60],
    "javascript": [2**53, 2**53 + 1, -(2**53) - 1],
    "floats": [0.1, -0.0, 1.0, 1e300, 5e-324, 1.7976931348623157e308, 3.141592653589793, 1e22, 123456789.123456789],
    "booleans and null": [True, False, None, 0, 1, ""],
    "empty": [{}, [], "", [[]], {"": {}}],
    "null": None,
    "text with frames": "#stream-1#data|x",
    "html": "</script>&amp;<!--",
    "deep": json.loads("[" * 60 + "]" * 60),
    "wide": [{"n": number, "sq": number * number} for number in range(500)],
}

CUSTOM_NAMES = (
    "x-app-field",
    "participantId",
    "requestId",
    "participant_id",
    "request_id",
    "id",
    "kind",
    "from",
    "to",
    "payload",
    "reason",
    "intent",
    "scope",
    "stream",
    "__proto__",
    "constructor",
    "$ref",
    "a.b",
    "mit leerzeichen",
    "\u540d\u524d",
)


class TestMetadataPreservation:
    @pytest.mark.parametrize("name", list(CUSTOM_VALUES))
    async def test_values_of_custom_fields(self, room: Room, name: str) -> None:
        """seed 002, Design Principle: Metadata Preservation, 1 and 3: zero loss, whatever an application invents."""
        request = {"custom": CUSTOM_VALUES[name], "metadata": {"inside": CUSTOM_VALUES[name]}}
        alice = await room.join("alice")
        stream = await alice.open_stream(**request)
        bob = await room.join("bob")
        entry = active_stream(bob.welcome, stream)
        assert exactly({key: entry[key] for key in request}) == exactly(request)

    async def test_names_of_custom_fields(self, room: Room) -> None:
        """seed 002, Field Definitions, "Additional fields from original stream/request are preserved"; also those
        that the example code of Implementation Requirements, Gateway would have swallowed (requestId...)."""
        request = {name: {"value of": name} for name in CUSTOM_NAMES}
        alice = await room.join("alice")
        stream = await alice.open_stream(**request)
        bob = await room.join("bob")
        entry = active_stream(bob.welcome, stream)
        assert {name: entry.get(name) for name in CUSTOM_NAMES} == request

    async def test_same_context_as_the_witnesses(self, room: Room) -> None:
        """seed 002, Design Principle, 1: what a late joiner gets is what witnesses of `stream/open` got."""
        alice = await room.join("alice")
        witness = await room.join("bob")
        await alice.open_stream(
            custom={"x": [1.5, "\u00e9"]}, description="d", target=["bob", "carol"], encoding="binary"
        )
        opened = (await witness.receive("stream/open"))["payload"]
        late = await room.join("carol")
        (entry,) = streams_in(late.welcome)
        assert exactly(entry) == exactly({**opened, "last_seq": entry["last_seq"]})

    async def test_format_discoverability(self, room: Room) -> None:
        """seed 002, Design Principle, 2: how to parse the data is known before the first frame."""
        alice = await room.join("alice")
        text = await alice.open_stream(content_type="text/plain", format="utf8-newline-delimited")
        binary = await alice.open_stream(content_type="application/x-game-positions", format="binary-vector3")
        bob = await room.join("bob")
        found = {
            entry["stream_id"]: (entry["content_type"], entry["format"], entry["encoding"])
            for entry in streams_in(bob.welcome)
        }
        assert found == {
            text: ("text/plain", "utf8-newline-delimited", "text"),
            binary: ("application/x-game-positions", "binary-vector3", "binary"),
        }

    async def test_metadata_outlives_a_transfer(self, room: Room) -> None:
        """seed 002, Design Principle, 1: owner and writers follow the stream, the request's fields stay."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream(custom=[1, 2], description="handed over")
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        id = await alice.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": "bob"})
        await bob.receive("stream/ownership-transferred", of=id)
        carol = await room.join("carol")
        entry = active_stream(carol.welcome, stream)
        assert (entry["owner"], entry["authorized_writers"]) == ("bob", ["bob"])
        assert (entry["custom"], entry["description"]) == ([1, 2], "handed over")

    async def test_writers_in_the_order_that_witnesses_were_told(self, room: Room) -> None:
        """seed 002, Design Principle, 1; Goals, 1: `authorized_writers` of a late joiner is the very list that the
        last message to the others had."""
        alice, bob, carol = [await room.join(name) for name in ("alice", "bob", "carol")]
        await room.join("dave")
        stream = await alice.open_stream()
        for writer in ("bob", "carol"):
            await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": writer})
        handed = {"stream_id": stream, "retain_write": True}
        id = await alice.send("stream/transfer-ownership", {**handed, "new_owner": "carol"})
        await carol.receive("stream/ownership-transferred", of=id)
        id = await carol.send("stream/transfer-ownership", {**handed, "new_owner": "dave"})
        told = await bob.receive("stream/ownership-transferred", of=id)
        late = await room.join("player-1")
        assert active_stream(late.welcome, stream)["authorized_writers"] == told["payload"]["authorized_writers"]

    FORGED: dict[str, Any] = {  # noqa: RUF012
        "stream_id": "stream-99",
        "owner": "bob",
        "authorized_writers": ["bob", "carol"],
        "created": "1999-01-01T00:00:00Z",
        "namespace": "elsewhere/stream-99",
        "status": "ready",
        "owner_connected": False,
        "last_seq": 10**9,
        "authorized_readers": ["bob"],
        "alias": "boss",
        "conditions": {"alice": {"max_frames": 1}},
        "encoding": "smoke-signals",
    }

    @pytest.mark.parametrize("kind", ["stream/request", "stream/announce"])
    async def test_a_request_cannot_pose_as_the_gateway(self, room: Room, kind: str) -> None:
        """seed 002, Implementation Requirements, Gateway (its spread comes last there); decision 23: first."""
        alice = await room.join("alice")
        plain = await alice.send(kind, {"direction": "upload", "mine": 1})
        forged = await alice.send(kind, {"direction": "upload", "mine": 2, **self.FORGED})
        answers = {"stream/request": "stream/open", "stream/announce": "stream/ready"}
        await alice.receive(answers[kind], of=plain)
        told = (await alice.receive(answers[kind], of=forged))["payload"]
        bob = await room.join("bob")
        honest, entry = streams_in(bob.welcome)
        for shown in (told.get("stream", told), entry):
            assert shown["mine"] == 2
            assert shown["stream_id"] == "stream-2"
            assert shown["namespace"] == f"{room.space}/stream-2"
            assert shown["owner"] == "alice"
            assert shown["owner_connected"] is True
            assert shown["authorized_writers"] == ["alice"]
            assert shown["created"] >= honest["created"]
            assert shown["status"] == honest["status"]
            assert shown["encoding"] == honest["encoding"]
            assert shown["last_seq"] < 10**6
            assert {"authorized_readers", "alias", "conditions"}.isdisjoint(shown)

    async def test_forged_fields_give_no_rights(self, room: Room) -> None:
        """seed 002, Implementation Requirements, Gateway; decision 23: nor does the gateway believe them itself."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream(**self.FORGED)
        await bob.frame(stream, "I am an owner")
        assert (await bob.error("unauthorized_stream_write"))["payload"]["stream_id"] == stream
        await bob.frame("stream-99", "or of this")
        await bob.error("stream_not_found")
        assert frames_in(await alice.settle()) == []
        await alice.frame(stream, "mine")
        assert await bob.receive_frame(stream) == "mine"

    async def test_forged_capabilities_of_an_announced_stream(self, room: Room) -> None:
        """seed 002, Design Principle, 1; decision 23: `capabilities` of a ready stream are the gateway's (seed 003),
        so a late joiner is not shown the announcer's own invention in their place."""
        alice = await room.join("alice")
        id = await alice.send("stream/announce", {"capabilities": {"read": "*", "write": "stream/write:stream-99"}})
        ready = (await alice.receive("stream/ready", of=id))["payload"]["stream"]
        bob = await room.join("bob")
        entry = active_stream(bob.welcome, ready["stream_id"])
        assert entry.get("capabilities", ready["capabilities"]) == ready["capabilities"]

    async def test_a_deep_request_does_not_lock_the_space(self) -> None:
        """seed 002, Success Criteria, 1: a request is either refused, or can be shown to everyone who joins.

        A gateway of its own: where this fails, nobody can join the space any more."""
        with running_gateway(space_config("alice", "bob")) as gateway:
            room = Room(gateway, "demo")
            try:
                await self._ask_for_deep_streams_and_join(room)
            finally:
                await room.close()

    @staticmethod
    async def _ask_for_deep_streams_and_join(room: Room) -> None:
        alice = await room.join("alice")
        for depth in range(960, 1001):  # what the usual JSON decoders take is a little below 1000
            nested = "[" * depth + "]" * depth
            await alice.send_raw('{"kind":"stream/request","payload":{"direction":"upload","n":' + nested + "}}")
        await alice.send("chat", {"text": "the end"})
        # Not decoded: Python's own decoder gives up at this depth.
        opened = 0
        while "the end" not in (message := str(await alice.connection.recv())):
            opened += '"kind":"stream/open"' in message
        bob = await room.connect("bob")
        await bob.send_raw(room.join_message("bob"))
        welcome = str(await bob.connection.recv())
        assert '"kind":"system/welcome"' in welcome
        assert welcome.count('"stream_id"') == opened


class TestBackwardCompatibility:
    async def test_existing_fields_are_not_broken(self, room: Room) -> None:
        """seed 002, Backward Compatibility, For Older Clients: you and participants are the same with streams."""
        alice = await room.join("alice")
        without = await room.join("bob")
        await alice.open_stream(target=["carol"])
        await without.close()
        await alice.receive("system/presence", event="leave")
        with_streams = await room.join("bob")
        first, second = without.welcome["payload"], with_streams.welcome["payload"]
        assert first["you"] == second["you"]
        assert [each["id"] for each in first["participants"]] == [each["id"] for each in second["participants"]]
        assert set(first) == set(second)

    async def test_a_client_that_ignores_the_field_works(self, room: Room) -> None:
        """seed 002, Backward Compatibility, For Older Clients: "Stream data frames work the same way"."""
        alice = await room.join("alice")
        stream = await alice.open_stream(content_type="text/plain")
        old = await room.join("bob")
        del old.welcome["payload"]["active_streams"]
        await alice.frame(stream, "text # with hashes")
        await alice.frame(stream, b"\x00\xff#")
        assert await old.next() == f"#{stream}#text # with hashes"
        assert await old.next() == f"#{stream}#".encode() + b"\x00\xff#"
        await old.send("chat", {"text": "hello"})
        assert (await alice.receive("chat"))["from"] == "bob"

    async def test_feature_detection_by_presence(self, room: Room) -> None:
        """seed 002, Backward Compatibility, For Newer Clients: the field says that the gateway has the feature, so
        it is there with and without streams."""
        alice = await room.join("alice")
        assert "active_streams" in alice.welcome["payload"]
        await alice.open_stream()
        bob = await room.join("bob")
        assert "active_streams" in bob.welcome["payload"]

    async def test_protocol_version_is_the_same(self, room: Room) -> None:
        """seed 002, Backward Compatibility, Protocol Version: "Remains mew/v0.4"."""
        alice = await room.join("alice")
        id = await alice.send("stream/request", {"direction": "upload"}, protocol="mew/v0.4")
        await alice.receive("stream/open", of=id)
        bob = await room.join("bob")
        assert {each["protocol"] for each in (*alice.got, *bob.got) if isinstance(each, dict)} == {"mew/v0.4"}

    async def test_a_new_client_at_an_old_gateway(self) -> None:
        """seed 002, Backward Compatibility, For Newer Clients, Older Gateways; Unit Tests, "Client: Handle missing
        active_streams gracefully": the plain client and its fold meet a welcome without the field."""

        async def old_gateway(connection: ServerConnection) -> None:
            await connection.recv()
            welcome = {"you": {"id": "bob", "capabilities": []}, "participants": [{"id": "alice", "capabilities": []}]}
            await connection.send(json.dumps({"kind": "system/welcome", "payload": welcome}))
            await connection.send("#stream-1#of a stream it does not know")
            opened = {"stream_id": "stream-2", "owner": "alice", "authorized_writers": ["alice"], "status": "live"}
            await connection.send(json.dumps({"kind": "stream/open", "payload": opened}))
            await connection.wait_closed()

        async with serve(old_gateway, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = await Client.connect(f"ws://127.0.0.1:{port}")
            try:
                await client.send_raw('{"type":"join"}')
                table = StreamTable("bob", await client.receive("system/welcome"))
                assert table.view() == {}
                table.tell(await client.next())
                table.tell(await client.next())
                assert table.view() == {"stream-2": ("alice", ["alice"], "live", True)}
            finally:
                await client.close()


class TestUnitTests:
    async def test_welcome_includes_active_streams(self, room: Room) -> None:
        """seed 002, Unit Tests, "Gateway: Verify welcome includes active streams"."""
        alice = await room.join("alice")
        streams = [await alice.open_stream(number=number) for number in range(3)]
        bob = await room.join("bob")
        assert {entry["stream_id"]: entry["number"] for entry in streams_in(bob.welcome)} == dict(
            zip(streams, range(3), strict=True)
        )

    async def test_empty_array_when_no_streams(self, room: Room) -> None:
        """seed 002, Unit Tests, "Gateway: Verify empty array when no streams": before the first, after the last."""
        alice = await room.join("alice")
        assert streams_in(alice.welcome) == []
        stream = await alice.open_stream()
        await alice.send("stream/close", {"stream_id": stream})
        await alice.settle()
        bob = await room.join("bob")
        assert bob.welcome["payload"]["active_streams"] == []

    async def test_client_processes_active_streams(self, room: Room) -> None:
        """seed 002, Unit Tests, "Client: Process active_streams correctly": its fold goes on from the welcome."""
        alice = await room.join("alice")
        first = await alice.open_stream()
        bob = await room.join("bob")
        table = StreamTable("bob", bob.welcome)
        assert table.view() == {first: ("alice", ["alice"], "live", True)}
        second = await alice.open_stream()
        await alice.send("stream/grant-write", {"stream_id": second, "participant_id": "bob"})
        await alice.send("stream/close", {"stream_id": first})
        await alice.settle()
        for message in await bob.settle():
            table.tell(message)
        assert table.view() == {second: ("alice", ["alice", "bob"], "live", True)}


class TestIntegrationTests:
    async def test_steps_1_to_9(self, room: Room) -> None:
        """seed 002, Testing Strategy, Integration Tests, steps 1-9."""
        # step 1: start space, user A joins
        witness = await room.join("dave")
        user_a = await room.join("alice")
        assert streams_in(user_a.welcome) == []
        # step 2: user A requests stream
        request = {"direction": "upload", "description": "step 2", "metadata": {"rate": 60}, "x": [1, 2.5]}
        id = await user_a.send("stream/request", request)
        # step 3: verify stream/open broadcast
        opened = await user_a.receive("stream/open", of=id)
        assert await witness.receive("stream/open", of=id) == opened
        assert opened["from"] == "system:gateway"
        assert opened["to"] == ["alice"]
        assert opened["payload"].items() >= {**request, "owner": "alice", "authorized_writers": ["alice"]}.items()
        stream = opened["payload"]["stream_id"]
        # step 4: user B joins
        user_b = await room.join("bob")
        # step 5: verify user B's welcome includes active stream
        (entry,) = streams_in(user_b.welcome)
        assert entry.items() >= {**request, "stream_id": stream, "owner": "alice"}.items()
        assert entry["created"] == opened["payload"]["created"]
        # step 6: user B receives stream data
        await user_a.frame(stream, "text")
        await user_a.frame(stream, b"\x00binary")
        assert await user_b.receive_frame(stream) == "text"
        assert await user_b.receive_frame(stream) == b"\x00binary"
        # step 7: stream closes
        await user_a.send("stream/close", {"stream_id": stream})
        closed = await user_b.receive("stream/close")
        assert closed["payload"]["stream_id"] == stream
        # step 8: user C joins
        user_c = await room.join("carol")
        # step 9: verify user C's welcome has no active streams
        assert user_c.welcome["payload"]["active_streams"] == []


class TestMultipleSimultaneousStreams:
    async def test_of_one_and_of_several_owners(self, room: Room) -> None:
        """seed 002, Edge Cases, "Multiple simultaneous streams": each with its own owner and fields."""
        clients = {name: await room.join(name) for name in ("alice", "bob", "carol")}
        expected = {}
        for number in range(30):
            owner = ("alice", "bob", "carol")[number % 3]
            stream = await clients[owner].open_stream(description=f"number {number}", n=number)
            expected[stream] = (owner, f"number {number}", number)
        late = await room.join("dave")
        shown = {
            each["stream_id"]: (each["owner"], each["description"], each["n"]) for each in streams_in(late.welcome)
        }
        assert shown == expected

    async def test_data_of_each_can_be_told_apart(self, room: Room) -> None:
        """seed 002, Edge Cases, "Multiple simultaneous streams": frames go by the ids of the welcome."""
        alice, bob = await room.join("alice"), await room.join("bob")
        owners = {await alice.open_stream(): alice, await bob.open_stream(): bob, await alice.open_stream(): alice}
        late = await room.join("carol")
        for entry in streams_in(late.welcome):
            await owners[entry["stream_id"]].frame(entry["stream_id"], f"of {entry['owner']}")
        await alice.settle()
        await bob.settle()
        expected = {f"#{entry['stream_id']}#of {entry['owner']}" for entry in streams_in(late.welcome)}
        assert len(expected) == 3
        assert set(frames_in(await late.settle())) == expected

    async def test_one_of_them_closes(self, room: Room) -> None:
        """seed 002, Edge Cases, "Multiple simultaneous streams": closing one takes away that one only."""
        alice = await room.join("alice")
        streams = [await alice.open_stream() for _ in range(3)]
        await alice.send("stream/close", {"stream_id": streams[1]})
        await alice.settle()
        late = await room.join("bob")
        assert [each["stream_id"] for each in streams_in(late.welcome)] == [streams[0], streams[2]]

    async def test_requested_at_the_same_time(self, room: Room) -> None:
        """seed 002, Edge Cases, "Multiple simultaneous streams": pipelined by several at once."""
        clients = [await room.join(name) for name in ("alice", "bob", "carol")]

        async def request(client: Client) -> None:
            for number in range(15):
                await client.send("stream/request", {"direction": "upload", "mine": [client.participant, number]})
            await client.settle()

        await asyncio.gather(*map(request, clients))
        late = await room.join("dave")
        shown = [tuple(each["mine"]) for each in streams_in(late.welcome)]
        assert sorted(shown) == sorted((client.participant, number) for client in clients for number in range(15))
        assert all(each["owner"] == each["mine"][0] for each in streams_in(late.welcome))


class StreamTable:
    """What a client knows of the streams: its welcome, and then every message, folded."""

    def __init__(self, me: str, welcome: Message) -> None:
        payload = welcome["payload"]
        self.present = {me, *(each["id"] for each in payload["participants"])}
        self.streams: dict[str, Message] = {}
        for entry in payload.get("active_streams", ()):
            self._open(entry)
            assert entry["owner_connected"] == (entry["owner"] in self.present), entry

    def _open(self, entry: Message) -> None:
        assert entry["stream_id"] not in self.streams, f"told twice: {entry}"
        self.streams[entry["stream_id"]] = {
            "owner": entry["owner"],
            "writers": sorted(entry["authorized_writers"]),
            "status": entry["status"],
        }

    def tell(self, message: Message | str | bytes) -> None:
        if not isinstance(message, dict):
            return
        payload = message["payload"]
        named = payload.get("stream", payload)
        match message["kind"]:
            case "system/presence":
                (self.present.add if payload["event"] == "join" else self.present.discard)(payload["participant"]["id"])
            case "stream/open" | "stream/ready":
                self._open(named)
            case "stream/start":
                self.streams[named["stream_id"]]["status"] = "live"
            case "stream/write-granted" | "stream/write-revoked":
                self.streams[payload["stream_id"]]["writers"] = sorted(payload["authorized_writers"])
            case "stream/ownership-transferred":
                stream = self.streams[payload["stream_id"]]
                assert stream["owner"] == payload["previous_owner"], message
                stream.update(owner=payload["new_owner"], writers=sorted(payload["authorized_writers"]))
            case "stream/close" | "stream/complete" | "stream/error":
                del self.streams[named["stream_id"]]

    def view(self) -> dict[str, tuple[str, list[str], str, bool]]:
        """stream -> (owner, writers, status, whether the owner is connected)."""
        return {
            id: (stream["owner"], stream["writers"], stream["status"], stream["owner"] in self.present)
            for id, stream in self.streams.items()
        }


Step = Callable[[], Awaitable[Any]]


class TestStreamClosesDuringJoinHandshake:
    async def test_between_connecting_and_joining(self, room: Room) -> None:
        """seed 002, Edge Cases, "Stream closes during join handshake": connected, not joined, the stream ends."""
        alice = await room.join("alice")
        stream = await alice.open_stream()
        kept = await alice.open_stream()
        bob = await room.connect("bob")
        await alice.send("stream/close", {"stream_id": stream})
        await alice.settle()
        await bob.send_raw(room.join_message("bob"))
        welcome = await bob.receive("system/welcome")
        assert [entry["stream_id"] for entry in streams_in(welcome)] == [kept]
        assert await bob.settle() == []

    async def test_right_after_the_welcome(self, room: Room) -> None:
        """seed 002, Edge Cases, "Stream closes during join handshake": in the welcome, then told of its end."""
        alice = await room.join("alice")
        stream = await alice.open_stream()
        bob = await room.connect("bob")
        await bob.send_raw(room.join_message("bob"))
        await alice.receive("system/presence", event="join")
        await alice.send("stream/close", {"stream_id": stream})
        welcome = await bob.receive("system/welcome")
        assert active_stream(welcome, stream)["owner"] == "alice"
        assert (await bob.receive("stream/close"))["payload"]["stream_id"] == stream

    async def test_either_in_the_welcome_or_never(self, room: Room) -> None:
        """seed 002, Edge Cases, "Stream closes during join handshake": join and close at the same moment, many
        times; whoever was shown the stream is told that it closed, and nobody else is."""
        alice = await room.join("alice")
        for _ in range(20):
            stream = await alice.open_stream()
            joiners = [await room.connect(name) for name in ("bob", "carol", "dave")]
            await asyncio.gather(
                joiners[0].send_raw(room.join_message("bob")),
                joiners[1].send_raw(room.join_message("carol")),
                alice.send("stream/close", {"stream_id": stream}),
                joiners[2].send_raw(room.join_message("dave")),
            )
            await alice.settle()
            for joiner in joiners:
                welcome = await joiner.receive("system/welcome")
                shown = [entry["stream_id"] for entry in streams_in(welcome)]
                closed = [
                    each["payload"]["stream_id"]
                    for each in await joiner.settle()
                    if isinstance(each, dict) and each["kind"] == "stream/close"
                ]
                assert shown == closed
                assert shown in ([], [stream])
                await joiner.close()

    @pytest.mark.parametrize("number", range(RACES))
    async def test_no_hole_and_no_overlap(self, gateway: GatewayProcess, number: int) -> None:
        """seed 002, Edge Cases, "Stream closes during join handshake", and "Participant disconnects with active
        stream"; Goals, 1: joins race opens, grants, transfers, closes and disconnects, all pipelined. For each
        joiner: its welcome is what an early joiner had folded at that very moment, and it got exactly the
        messages after that, so both fold to the same table (id, owner, writers, status)."""
        random_order = random.Random(number)
        room = Room(gateway, f"race-{number}")
        try:
            await self._race(room, random_order)
        finally:
            await room.close()

    async def _race(self, room: Room, order: random.Random) -> None:
        early, alice, bob = [await room.join(name) for name in ("early", "alice", "bob")]
        assert early.welcome["payload"]["active_streams"] == []
        staying: list[Client] = []
        names: list[str] = []
        waiting = list(RACERS)
        for round in range(4):
            scripts: list[list[Step]] = []
            for number in range(8):
                names.append(f"race-{round}-{number}")
                scripts.append(self._life_of_a_stream(names[-1], alice, bob, order))
            for name in order.sample(names, 4):
                closer = order.choice((alice, bob))
                scripts.append([lambda closer=closer, name=name: closer.send("stream/close", {"stream_id": name})])
            newcomers = [await room.connect(waiting.pop()) for _ in range(6)]
            for index, client in enumerate(newcomers):
                scripts.append(self._life_of_a_joiner(room, client, gone=index == 0))
            staying += newcomers[1:]
            await self._interleave(scripts, order)
            # Everything that was sent in this round has happened; what it made is there in the next.
            await early.receive("system/presence", event="leave", participant={"id": newcomers[0].participant})
            for client in (alice, bob, *newcomers[1:]):
                await client.settle()

        end = await alice.send("chat", {"text": "the end"})
        logs = {}
        for client in (early, *staying):
            if not _is_there(client, end):
                await client.wait_for(lambda message: isinstance(message, dict) and message.get("id") == end)
            logs[client.participant] = _public(client)
        last = await room.join(waiting.pop() if waiting else RACERS[-1])

        reference = _public(early)
        final = _folded("early", early.welcome, reference).view()
        shown = StreamTable(last.participant, last.welcome)
        shown.present.discard(last.participant)
        assert {id: view[:3] for id, view in shown.view().items()} == {id: view[:3] for id, view in final.items()}
        assert final, "some streams are left"
        met: set[str] = set()
        for client in staying:
            welcome, log = client.got[0], logs[client.participant]
            assert isinstance(welcome, dict)
            assert welcome["kind"] == "system/welcome"
            here = _joined_at(reference, client.participant)
            before = _folded("early", early.welcome, reference[: here + 1]).view()
            table = StreamTable(client.participant, welcome)
            assert table.view() == before, "the welcome is the fold at that moment"
            assert log == reference[here + 1 :], "no hole and no overlap"
            met |= table.streams.keys()
            for message in log:
                table.tell(message)
            assert table.view() == final, "early and late have the same table"
        assert met - final.keys(), "somebody was shown a stream that ended later"

    @staticmethod
    def _life_of_a_stream(name: str, alice: Client, bob: Client, order: random.Random) -> list[Step]:
        """By its alias, so that nobody has to wait for an answer."""
        first, second = order.sample((alice, bob), 2)
        racers = order.sample(RACERS, 3)
        about: Message = {"direction": "upload", "desired_id": name}
        stream = {"stream_id": name}

        def send(client: Client, kind: str, payload: Message) -> Step:
            return lambda: client.send(kind, payload)

        script: list[Step] = []
        if order.random() < 0.3:
            script.append(send(first, "stream/announce", about))
            script.append(send(first, "stream/start", {"stream": stream}))
        else:
            script.append(send(first, "stream/request", {**about, "auto_grant": racers[:2]}))
        changes: list[Step] = [
            send(first, "stream/grant-write", {**stream, "participant_id": second.participant}),
            send(second, "stream/revoke-write", {**stream, "participant_id": racers[0]}),
            send(first, "stream/grant-write", {**stream, "participant_id": racers[2]}),
            send(first, "stream/transfer-ownership", {**stream, "new_owner": second.participant}),
            send(second, "stream/transfer-ownership", {**stream, "new_owner": racers[1], "retain_write": True}),
            lambda: first.frame(name, "a frame"),
            lambda: second.frame(name, b"another"),
        ]
        script += order.sample(changes, 4)
        ending = order.random()
        if ending < 0.3:
            script.append(send(second, "stream/close", stream))
        elif ending < 0.4:
            script.append(send(first, "stream/complete", {"stream": stream}))
        elif ending < 0.5:
            script.append(send(first, "stream/error", {"stream": stream, "code": "x", "message": "failed"}))
        return script

    @staticmethod
    def _life_of_a_joiner(room: Room, client: Client, *, gone: bool) -> list[Step]:
        async def vanish() -> None:
            await client.receive("system/welcome")
            client.connection.transport.abort()

        script: list[Step] = [
            lambda: client.send_raw(room.join_message(client.participant)),
            lambda: client.send("stream/request", {"direction": "upload", "of": client.participant}),
        ]
        return [*script, vanish] if gone else script

    @staticmethod
    async def _interleave(scripts: list[list[Step]], order: random.Random) -> None:
        while scripts:
            script = order.choice(scripts)
            await script.pop(0)()
            if not script:
                scripts.remove(script)
            if order.random() < 0.5:
                await asyncio.sleep(0)


def _is_there(client: Client, id: str) -> bool:
    return any(isinstance(each, dict) and each.get("id") == id for each in client.got)


def _public(client: Client) -> list[Message | str | bytes]:
    """What everyone was told: without the welcome and the errors to one."""
    private = ("system/welcome", "system/error")
    return [each for each in client.got if not isinstance(each, dict) or each["kind"] not in private]


def _joined_at(log: list[Message | str | bytes], participant: str) -> int:
    (index,) = [
        index
        for index, each in enumerate(log)
        if isinstance(each, dict)
        and each["kind"] == "system/presence"
        and each["payload"]["event"] == "join"
        and each["payload"]["participant"]["id"] == participant
    ]
    return index


def _folded(me: str, welcome: Message, log: list[Message | str | bytes]) -> StreamTable:
    table = StreamTable(me, welcome)
    for message in log:
        table.tell(message)
    return table


class TestParticipantDisconnectsWithActiveStream:
    async def test_the_owner(self, room: Room) -> None:
        """seed 002, Edge Cases, "Participant disconnects with active stream"; decision 7: kept, and marked."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream(description="kept")
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await alice.settle()
        alice.connection.transport.abort()
        await bob.receive("system/presence", event="leave")
        carol = await room.join("carol")
        entry = active_stream(carol.welcome, stream)
        assert entry["owner_connected"] is False
        assert (entry["owner"], entry["description"]) == ("alice", "kept")
        assert entry["authorized_writers"] == ["alice", "bob"]
        assert "alice" not in [each["id"] for each in carol.welcome["payload"]["participants"]]
        await bob.frame(stream, "others go on")
        assert await carol.receive_frame(stream) == "others go on"

    async def test_the_owner_comes_back(self, room: Room) -> None:
        """seed 002, Edge Cases, "Participant disconnects with active stream"; decision 7: and still owns."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream()
        await alice.close()
        await bob.receive("system/presence", event="leave")
        again = await room.join("alice")
        assert active_stream(again.welcome, stream).items() >= {"owner": "alice", "owner_connected": True}.items()
        await again.frame(stream, "back")
        assert await bob.receive_frame(stream) == "back"
        carol = await room.join("carol")
        assert active_stream(carol.welcome, stream)["owner_connected"] is True

    async def test_a_writer(self, room: Room) -> None:
        """seed 002, Edge Cases, "Participant disconnects with active stream"; decision 6: the right is gone."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream()
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await bob.receive("stream/write-granted")
        bob.connection.transport.abort()
        revoked = await alice.receive("stream/write-revoked")
        assert revoked["payload"].items() >= {"participant_id": "bob", "reason": "disconnected"}.items()
        carol = await room.join("carol")
        assert active_stream(carol.welcome, stream)["authorized_writers"] == ["alice"]

    async def test_the_policy_close(self, room: Room) -> None:
        """seed 002, Edge Cases, "Participant disconnects with active stream"; decision 7, `close`."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream(on_owner_leave="close", owner_leave_grace=0)
        await alice.close()
        closed = await bob.receive("stream/close")
        assert closed["from"] == "system:gateway"
        assert closed["payload"].items() >= {"stream_id": stream, "reason": "owner_left"}.items()
        carol = await room.join("carol")
        assert streams_in(carol.welcome) == []

    async def test_the_policy_transfer(self, room: Room) -> None:
        """seed 002, Edge Cases, "Participant disconnects with active stream"; decision 7, `transfer`."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream(on_owner_leave="transfer", owner_leave_grace=0)
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await alice.settle()
        await alice.close()
        moved = await bob.receive("stream/ownership-transferred")
        assert moved["payload"].items() >= {"previous_owner": "alice", "new_owner": "bob"}.items()
        carol = await room.join("carol")
        entry = active_stream(carol.welcome, stream)
        assert (entry["owner"], entry["authorized_writers"], entry["owner_connected"]) == ("bob", ["bob"], True)

    async def test_everyone_leaves(self, room: Room) -> None:
        """seed 002, Edge Cases, "Participant disconnects with active stream": nobody is left, the stream is."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream(custom=1)
        await alice.close()
        await bob.receive("system/presence", event="leave")
        await bob.close()
        carol = await room.join("carol")
        entry = active_stream(carol.welcome, stream)
        assert (entry["owner"], entry["owner_connected"], entry["custom"]) == ("alice", False, 1)


class TestSuccessCriteria:
    async def test_complete_state(self, room: Room) -> None:
        """seed 002, Success Criteria, 1; Goals, 1: every kind of stream and right is in one welcome."""
        alice = await room.join("alice")
        await room.join("bob")
        shared = await alice.open_stream(description="shared")
        await alice.send("stream/grant-write", {"stream_id": shared, "participant_id": "bob"})
        conditions = {"max_frames": 3}
        handed = await alice.open_stream(description="handed")
        await alice.send("stream/transfer-ownership", {"stream_id": handed, "new_owner": "bob"})
        bounded = await alice.open_stream(description="bounded", target=["bob"])
        grant = {"stream_id": bounded, "participant_id": "bob", "conditions": conditions}
        await alice.send("stream/grant-write", grant)
        await alice.send("stream/announce", {"intent": "announced", "formats": [{"id": "f"}]})
        gone = await alice.open_stream()
        await alice.send("stream/close", {"stream_id": gone})
        await alice.settle()
        carol = await room.join("carol")
        entries = {entry["stream_id"]: entry for entry in streams_in(carol.welcome)}
        assert set(entries) == {shared, handed, bounded, "stream-4"}
        assert entries[shared]["authorized_writers"] == ["alice", "bob"]
        assert (entries[handed]["owner"], entries[handed]["authorized_writers"]) == ("bob", ["bob"])
        assert entries[bounded]["authorized_readers"] == ["bob"]
        assert entries[bounded]["conditions"]["bob"].items() >= conditions.items()
        assert (entries["stream-4"]["status"], entries["stream-4"]["intent"]) == ("ready", "announced")

    async def test_rights_in_the_welcome_are_the_rights_in_force(self, room: Room) -> None:
        """seed 002, Success Criteria, 1 and 2: who is shown as a writer can write, who is not cannot."""
        alice, bob = await room.join("alice"), await room.join("bob")
        stream = await alice.open_stream()
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await alice.settle()
        carol = await room.join("carol")
        assert active_stream(carol.welcome, stream)["authorized_writers"] == ["alice", "bob"]
        await carol.frame(stream, "not shown")
        await carol.error("unauthorized_stream_write")
        await bob.frame(stream, "shown")
        assert await carol.receive_frame(stream) == "shown"
        assert f"#{stream}#not shown" not in await alice.settle()
