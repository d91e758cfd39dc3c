"""Seed 003, stream handshake and namespace: announce -> ready -> start -> data -> complete or error.

Every test talks to one real gateway process over real sockets, each in a space of its own.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from support import Client, GatewayProcess, Message, active_stream, running_gateway, space_config, token_of

TIMEOUT_TESTS = 5
PEOPLE = ("alice", "bob", "carol", "dave")
CAPABILITIES: dict[str, list[Any]] = {
    "manager": [{"kind": "stream/manage"}],
    "streamer": [{"kind": "stream/*"}],
    "requester": [{"kind": "stream/request"}, {"kind": "chat"}],
    "announcer": [{"kind": "stream/announce"}, {"kind": "stream/start"}, {"kind": "stream/data"}],
    "denied": [{"kind": "*"}, {"kind": "!stream/manage"}],
    "overseer": [{"kind": "space/manage-streams"}],
    "chatter": [{"kind": "chat"}],
}

MOVEMENT = json.loads("""
{
  "id": "movement/2d",
  "description": "Normalized XY positions for a multiplayer session",
  "mime_type": "application/json",
  "schema": {
    "type": "object",
    "properties": {
      "entity": { "type": "string" },
      "position": {
        "type": "object",
        "properties": {
          "x": { "type": "number" },
          "y": { "type": "number" }
        }
      },
      "orientation": { "type": "number" }
    },
    "required": ["entity", "position"]
  }
}
""")
STEP = {"entity": "cat", "position": {"x": 0.25, "y": 1}, "orientation": 90}
NOT_A_STEP = {"entity": 7}

SEVERAL = [
    {"id": "audio/opus", "mime_type": "audio/opus", "description": "Opus packets"},
    {"id": "audio/transcript", "mime_type": "text/plain"},
    {"id": "llm/tokens", "mime_type": "application/json", "schema": {"type": "string"}},
    {"id": "metrics/token-count", "mime_type": "application/json", "schema": {"type": "integer", "minimum": 0}},
]


class Room:
    """A space that no other test uses, and everyone who joined it."""

    def __init__(self, gateway: GatewayProcess, space: str) -> None:
        self.gateway = gateway
        self.space = space
        self.clients: list[Client] = []

    async def join(self, participant: str) -> Client:
        client = await Client.connect(f"{self.gateway.ws_url}/ws", max_queue=None)
        client.participant = participant
        # Who comes back must not use the message ids of its first connection again.
        client._counter = 1000 * len(self.clients)
        self.clients.append(client)
        join = {"type": "join", "participantId": participant, "token": token_of(participant), "space": self.space}
        await client.send_raw(json.dumps(join))
        client.welcome = await client.receive("system/welcome")
        return client

    async def all(self, *participants: str) -> list[Client]:
        return [await self.join(participant) for participant in participants]

    def namespace(self, stream: str) -> str:
        return f"{self.space}/{stream}"

    async def close(self) -> None:
        for client in self.clients:
            await client.close()


@pytest.fixture(scope="module")
def spaces(request: pytest.FixtureRequest) -> int:
    """How many spaces of a kind there are: enough for every test of this module, and one that needs two."""
    return 1 + sum(item.path == request.path for item in request.session.items)


@pytest.fixture(scope="module")
def gateway(spaces: int) -> Iterator[GatewayProcess]:
    # The same people in every space: in YAML one anchor, which is read much faster than copies.
    people = space_config(*PEOPLE, *CAPABILITIES, capabilities=CAPABILITIES)["participants"]

    def space(name: str, **policies: Any) -> dict[str, Any]:
        return {
            "space": {"id": name},
            "participants": people,
            "mewstream": {"policies": {"reconnect_grace": 0, **policies}},
        }

    rooms = [space(f"room-{number}") for number in range(spaces)]
    impatient = [space(f"impatient-{number}", start_timeout=0.2) for number in range(TIMEOUT_TESTS)]
    with running_gateway({"spaces": [*rooms, *impatient, space("strict", validate="enforce")]}) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def room_names(spaces: int) -> Iterator[str]:
    return iter([f"room-{number}" for number in range(spaces)])


@pytest.fixture(scope="module")
def impatient_names() -> Iterator[str]:
    return iter([f"impatient-{number}" for number in range(TIMEOUT_TESTS)])


@pytest.fixture
async def room(gateway: GatewayProcess, room_names: Iterator[str]) -> AsyncIterator[Room]:
    room = Room(gateway, next(room_names))
    yield room
    await room.close()


@pytest.fixture
async def impatient(gateway: GatewayProcess, impatient_names: Iterator[str]) -> AsyncIterator[Room]:
    """A space in which an announced stream must be started within 0.2 seconds."""
    room = Room(gateway, next(impatient_names))
    yield room
    await room.close()


@pytest.fixture
async def strict(gateway: GatewayProcess) -> AsyncIterator[Room]:
    """A space whose streams are validated by default. For one test."""
    room = Room(gateway, "strict")
    yield room
    await room.close()


async def announce(client: Client, **payload: Any) -> Message:
    """Announce, and what the gateway says of the stream that is ready."""
    id = await client.send("stream/announce", payload)
    ready = await client.receive("stream/ready", of=id)
    stream: Message = ready["payload"]["stream"]
    return stream


async def start(client: Client, stream: str, **payload: Any) -> Message:
    id = await client.send("stream/start", {"stream": {"stream_id": stream}, **payload})
    return await client.wait_for(lambda message: isinstance(message, dict) and message.get("id") == id)


async def live(client: Client, **payload: Any) -> str:
    """Announce and start: the id of a stream that is live."""
    stream = str((await announce(client, **payload))["stream_id"])
    await start(client, stream)
    return stream


async def data(client: Client, stream: str, sequence: Any, content: Any = None, **payload: Any) -> str:
    """Send `stream/data`; the id of the message."""
    return await client.send(
        "stream/data", {"stream": {"stream_id": stream}, "sequence": sequence, "content": content, **payload}
    )


async def relayed(client: Client, id: str) -> Message:
    """The message of this id, as everyone gets it."""
    message = await client.wait_for(lambda each: isinstance(each, dict) and each.get("id") == id)
    assert isinstance(message, dict)
    return message


async def told_to(clients: list[Client], id: str) -> Message:
    """The message of this id, which everyone must get, and the same."""
    first, *others = [await relayed(client, id) for client in clients]
    assert all(other == first for other in others)
    return first


def kinds_in(messages: list[Message | str | bytes]) -> list[str]:
    return [each["kind"] if isinstance(each, dict) else "frame" for each in messages]


def after_announce(messages: list[Message | str | bytes]) -> list[Message]:
    """The envelopes about streams that have a name."""
    return [
        each
        for each in messages
        if isinstance(each, dict) and each["kind"].startswith("stream/") and each["kind"] != "stream/announce"
    ]


def sequences_in(messages: list[Message | str | bytes]) -> list[tuple[str, int]]:
    return [
        (each["from"], each["payload"]["sequence"])
        for each in messages
        if isinstance(each, dict) and each["kind"] == "stream/data"
    ]


class TestContext:
    async def test_no_races_and_no_name_conflicts(self, room: Room) -> None:
        """seed 003, Context, 1 (Gateway Coordination): several announce at once, each gets an id of its own."""
        clients = await room.all("alice", "bob", "carol")
        ids = {}
        for _ in range(5):
            for client in clients:
                ids[await client.send("stream/announce", {"desired_id": "same"})] = client.participant
        watcher = clients[0]
        owners = {}
        for _ in ids:
            ready = await watcher.receive("stream/ready")
            (request,) = ready["correlation_id"]
            owners[ready["payload"]["stream"]["stream_id"]] = ids[request]
            assert ready["payload"]["stream"]["owner"] == ids[request]
        assert sorted(owners) == sorted(f"stream-{number}" for number in range(1, 16))

    async def test_namespace_consistency(self, room: Room) -> None:
        """seed 003, Context, 2 (Namespace Consistency): observers can filter by the prefix `spaceId/`."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        await data(alice, stream, 1, "x")
        await alice.send("stream/complete", {"stream": {"stream_id": stream}})
        await alice.settle()
        about = after_announce(await bob.settle())
        assert [each["kind"] for each in about] == ["stream/ready", "stream/start", "stream/data", "stream/complete"]
        assert {each["payload"]["stream"]["namespace"] for each in about} == {f"{room.space}/{stream}"}

    async def test_lifecycle_events(self, room: Room) -> None:
        """seed 003, Context, 4 (Lifecycle Events): intent, ready, live, complete, as late joiners see them."""
        alice = await room.join("alice")
        stream = (await announce(alice))["stream_id"]
        assert active_stream((await room.join("bob")).welcome, stream)["status"] == "ready"
        await start(alice, stream)
        assert active_stream((await room.join("carol")).welcome, stream)["status"] == "live"
        await told_to([alice], await alice.send("stream/complete", {"stream": {"stream_id": stream}}))
        assert (await room.join("dave")).welcome["payload"]["active_streams"] == []


class TestOptionsNotChosen:
    async def test_no_data_without_a_handshake(self, room: Room) -> None:
        """seed 003, Options Considered, 1: data for a stream that nobody announced is refused."""
        alice, bob = await room.all("alice", "bob")
        await alice.error("stream_not_found", of=await data(alice, "mine", 1, "x", context="demo/mine"))
        await alice.frame("mine", "x")
        await alice.error("stream_not_found")
        assert await bob.settle() == []

    async def test_ids_are_not_the_participants_choice(self, room: Room) -> None:
        """seed 003, Options Considered, 2: a chosen id is at most an alias; nobody can be spoofed by it."""
        alice, bob = await room.all("alice", "bob")
        first = await announce(alice, desired_id="score")
        second = await announce(bob, desired_id="score", stream_id=first["stream_id"], stream={"stream_id": "stream-1"})
        assert (first["stream_id"], second["stream_id"]) == ("stream-1", "stream-2")
        await bob.error("unauthorized", of=await bob.send("stream/start", {"stream": {"stream_id": "score"}}))


class TestDecision:
    async def test_the_whole_life_with_complete(self, room: Room) -> None:
        """seed 003, Decision; Handshake Sequence, steps 1-5, as one story that ends with `stream/complete`."""
        alice, bob, _ = everyone = await room.all("alice", "bob", "carol")
        # step 1: announce
        wish = {"intent": "multiplayer", "formats": [MOVEMENT], "desired_id": "moves", "scope": ["bob"]}
        id = await alice.send("stream/announce", wish)
        announced = await told_to(everyone, id)
        assert (announced["from"], announced["payload"]) == ("alice", wish)
        # step 2: ready
        ready, *others = [await client.receive("stream/ready", of=id) for client in everyone]
        assert others == [ready, ready]
        stream = ready["payload"]["stream"]["stream_id"]
        names = {"stream_id": stream, "namespace": f"{room.space}/{stream}"}
        # step 3: start
        started = await told_to(everyone, await alice.send("stream/start", {"stream": {"stream_id": stream}}))
        assert started["payload"]["stream"] == names
        # step 4: data
        for sequence in (1, 2):
            told = await told_to(everyone, await data(alice, stream, sequence, STEP, format_id="movement/2d"))
            expected = {"stream": names, "sequence": sequence, "content": STEP, "format_id": "movement/2d"}
            assert told["payload"] == expected
        # step 5: complete
        ended = await told_to(everyone, await alice.send("stream/complete", {"stream": names}))
        assert (ended["from"], ended["payload"]["stream"]) == ("alice", names)
        await alice.error("stream_not_found", of=await data(alice, stream, 3, STEP))
        assert await bob.settle() == []

    async def test_the_whole_life_with_error(self, room: Room) -> None:
        """seed 003, Decision; Handshake Sequence, steps 1-5, as one story that ends with `stream/error`."""
        everyone = await room.all("alice", "bob", "carol")
        alice = everyone[0]
        stream = await live(alice, formats=[MOVEMENT])
        await told_to(everyone, await data(alice, stream, 1, STEP))
        failure = {"stream": {"stream_id": stream}, "code": "sensor_lost", "message": "the cat ran away", "detail": 7}
        told = await told_to(everyone, await alice.send("stream/error", failure))
        names = {"stream_id": stream, "namespace": room.namespace(stream)}
        assert told["payload"] == {**failure, "stream": names}
        await alice.error("stream_not_found", of=await data(alice, stream, 2, STEP))
        assert (await room.join("dave")).welcome["payload"]["active_streams"] == []

    @pytest.mark.parametrize("kind", ["stream/start", "stream/data", "stream/complete", "stream/error"])
    async def test_all_share_a_stream_object(self, room: Room, kind: str) -> None:
        """seed 003, Decision, "All stream envelopes share a payload.stream object": made if need be."""
        alice, bob = await room.all("alice", "bob")
        stream = (await announce(alice))["stream_id"]
        if kind != "stream/start":
            await start(alice, stream)
        payload = {"stream_id": stream, "sequence": 1, "content": "x", "code": "c", "message": "m"}
        told = await told_to([alice, bob], await alice.send(kind, payload))
        assert told["payload"]["stream"] == {"stream_id": stream, "namespace": room.namespace(stream)}
        assert told["payload"].items() >= payload.items()

    @pytest.mark.parametrize("kind", ["stream/start", "stream/data", "stream/complete", "stream/error"])
    @pytest.mark.parametrize(
        "named",
        [{}, {"stream": {}}, {"stream": "stream-1"}, {"stream": {"stream_id": 1}}, {"stream": {"stream_id": ""}}],
        ids=["missing", "empty", "text", "number", "empty-id"],
    )
    async def test_a_stream_must_be_named(self, room: Room, kind: str, named: Message) -> None:
        """seed 003, Decision, "All stream envelopes share a payload.stream object": without one, refused."""
        alice = await room.join("alice")
        await announce(alice)
        payload = {"sequence": 1, "content": "x", "code": "c", "message": "m", **named}
        await alice.error("validation_error", of=await alice.send(kind, payload))

    async def test_two_different_names_are_refused(self, room: Room) -> None:
        """seed 003, Decision, "All stream envelopes share a payload.stream object": it cannot say two things."""
        alice = await room.join("alice")
        one, other = (await announce(alice))["stream_id"], (await announce(alice))["stream_id"]
        id = await alice.send("stream/start", {"stream_id": one, "stream": {"stream_id": other}})
        await alice.error("validation_error", of=id)

    async def test_ready_is_the_gateways(self, room: Room) -> None:
        """seed 003, Decision, `stream/ready` is the gateway's response; decision 21: nobody else can send one."""
        alice, bob = await room.all("alice", "bob")
        stream = (await announce(alice))["stream_id"]
        await bob.settle()
        id = await alice.send("stream/ready", {"stream": {"stream_id": stream}})
        await alice.error("reserved_kind", of=id)
        assert await bob.settle() == []


class TestAnnounce:
    async def test_is_broadcast_unchanged(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1 (Announce): "from creator -> broadcast", with every field it had."""
        everyone = await room.all("alice", "bob", "carol")
        wish = {
            "intent": "i",
            "formats": SEVERAL,
            "desired_id": "d",
            "scope": ["carol"],
            "x-custom": {"n": [1.5, None]},
        }
        id = await everyone[0].send("stream/announce", wish)
        told = await told_to(everyone, id)
        assert (told["from"], told["payload"]) == ("alice", wish)

    async def test_everything_is_optional(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1 (Announce): no intent, no desired_id, no scope, no formats."""
        alice = await room.join("alice")
        stream = await announce(alice)
        assert {"intent", "desired_id", "scope", "alias", "formats"}.isdisjoint(stream)
        assert stream["status"] == "ready"

    async def test_intent(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1, `payload.intent` (optional string): shown by ready and to late joiners."""
        alice = await room.join("alice")
        stream = await announce(alice, intent="LLM tokens for the summary")
        bob = await room.join("bob")
        assert stream["intent"] == "LLM tokens for the summary"
        assert active_stream(bob.welcome, stream["stream_id"])["intent"] == "LLM tokens for the summary"

    @pytest.mark.parametrize(
        "payload",
        [
            {"intent": 7},
            {"intent": ["x"]},
            {"formats": "movement/2d"},
            {"formats": {"id": "movement/2d"}},
            {"formats": ["movement/2d"]},
            {"formats": [{}]},
            {"formats": [{"id": ""}]},
            {"formats": [{"id": 7}]},
            {"formats": [{"id": "a"}, {"id": "a"}]},
            {"formats": [{"id": "a", "mime_type": 7}]},
            {"formats": [{"id": "a", "description": []}]},
            {"scope": "bob"},
            {"scope": [7]},
            {"scope": {"bob": True}},
        ],
        ids=lambda payload: json.dumps(payload),
    )
    async def test_wrong_shapes_are_refused(self, room: Room, payload: Message) -> None:
        """seed 003, Handshake Sequence, 1 (Announce), the types of its fields: no stream comes of a wrong one."""
        alice, bob = await room.all("alice", "bob")
        error = await alice.error("validation_error", of=await alice.send("stream/announce", payload))
        assert error["to"] == ["alice"]
        assert await bob.settle() == []
        assert (await announce(alice))["stream_id"] == "stream-1"

    async def test_scope_is_notified_directly(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1, `payload.scope`: addressed to them; everyone gets it all the same."""
        everyone = await room.all("alice", "bob", "carol", "dave")
        id = await everyone[0].send("stream/announce", {"scope": ["bob", "carol"]})
        told = await told_to(everyone, id)
        assert told["to"] == ["bob", "carol"]
        readies = [await client.receive("stream/ready", of=id) for client in everyone]
        assert all(ready["payload"]["stream"]["scope"] == ["bob", "carol"] for ready in readies)

    async def test_scope_does_not_limit_who_reads(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1, `payload.scope`; decision 10: an address, not a secret."""
        alice, bob, carol = await room.all("alice", "bob", "carol")
        stream = await live(alice, scope=["bob"])
        id = await data(alice, stream, 1, "for all")
        assert (await relayed(bob, id)) == (await relayed(carol, id))

    async def test_an_explicit_address_is_kept(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1, `payload.scope`: `to` of the envelope, where given, is not overwritten."""
        alice, bob = await room.all("alice", "bob")
        id = await alice.send("stream/announce", {"scope": ["bob"]}, to=["alice"])
        assert (await relayed(bob, id))["to"] == ["alice"]

    async def test_a_retry_opens_no_second_stream(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1 and 2; DESIGN, protocol: a repeated envelope id is answered as before."""
        alice, bob = await room.all("alice", "bob")
        ids = [await alice.send("stream/announce", {"intent": "once"}, id="retry-1") for _ in range(2)]
        first = await alice.receive("stream/ready", of=ids[0])
        again = await alice.receive("stream/ready", of=ids[1])
        assert first == again
        assert kinds_in(await bob.settle()) == ["stream/announce", "stream/ready"]


class TestDesiredId:
    async def test_becomes_an_alias(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1, `payload.desired_id`: a human-friendly alias beside the canonical id."""
        alice = await room.join("alice")
        stream = await announce(alice, desired_id="player-movement")
        assert (stream["stream_id"], stream["alias"]) == ("stream-1", "player-movement")
        assert stream["namespace"] == room.namespace("stream-1")
        bob = await room.join("bob")
        assert active_stream(bob.welcome, "stream-1")["alias"] == "player-movement"

    async def test_stands_for_the_id_everywhere(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1, `payload.desired_id`; decision 12: everyone is told the canonical id."""
        alice, bob = everyone = await room.all("alice", "bob")
        stream = (await announce(alice, desired_id="moves"))["stream_id"]
        names = {"stream_id": stream, "namespace": room.namespace(stream)}
        alias = {"stream_id": "moves"}
        told = await told_to(everyone, await alice.send("stream/start", {"stream": alias}))
        assert told["payload"]["stream"] == names
        await alice.send("stream/grant-write", {"stream_id": "moves", "participant_id": "bob"})
        assert (await bob.receive("stream/write-granted"))["payload"]["stream_id"] == stream
        told = await told_to(everyone, await data(bob, "moves", 1, "by alias"))
        assert told["payload"]["stream"] == names
        await bob.frame("moves", "raw")
        assert await alice.receive_frame(stream) == "raw"
        told = await told_to(everyone, await alice.send("stream/complete", {"stream": alias}))
        assert told["payload"]["stream"] == names

    async def test_a_taken_one_is_not_given_twice(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1, `payload.desired_id` is a hint: taken, so no alias; the stream works."""
        alice, bob = await room.all("alice", "bob")
        first = await announce(alice, desired_id="moves")
        second = await announce(bob, desired_id="moves")
        assert first["alias"] == "moves"
        assert "alias" not in second
        assert second["desired_id"] == "moves"
        await start(bob, second["stream_id"])
        id = await data(bob, second["stream_id"], 1, "works")
        assert (await relayed(alice, id))["payload"]["stream"]["stream_id"] == second["stream_id"]
        await bob.error("unauthorized_stream_write", of=await data(bob, "moves", 2, "not mine"))

    @pytest.mark.parametrize(
        "wish",
        ["", "a#b", "a|b", "a/b", " a", "a\n", "stream-7", "x" * 500, 7, None, ["a"], {"a": 1}, True],
        ids=lambda wish: repr(wish)[:20],
    )
    async def test_an_invalid_one_is_ignored(self, room: Room, wish: Any) -> None:
        """seed 003, Handshake Sequence, 1, `payload.desired_id` is a hint: invalid, so no alias; the stream works."""
        alice, bob = await room.all("alice", "bob")
        stream = await announce(alice, desired_id=wish)
        assert stream["stream_id"] == "stream-1"
        assert "alias" not in stream
        await start(alice, "stream-1")
        await alice.frame("stream-1", "works")
        assert await bob.receive_frame("stream-1") == "works"

    async def test_is_free_again_after_the_end(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 1, `payload.desired_id`; decision 12: "if valid and free"."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, desired_id="moves")
        await alice.send("stream/complete", {"stream": {"stream_id": stream}})
        await alice.settle()
        await alice.error("stream_not_found", of=await data(alice, "moves", 1, "x"))
        again = await announce(bob, desired_id="moves")
        assert (again["alias"], again["stream_id"]) == ("moves", "stream-2")


class TestReady:
    async def test_comes_from_the_gateway_to_everyone(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 2 (Ready): from `system:gateway`, broadcast, correlated to the announce."""
        everyone = await room.all("alice", "bob", "carol")
        id = await everyone[0].send("stream/announce", {})
        first, *others = [await client.receive("stream/ready") for client in everyone]
        assert others == [first, first]
        assert (first["from"], first["correlation_id"]) == ("system:gateway", [id])

    async def test_stream_id_and_namespace(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 2: gateway-assigned unique `stream_id`, namespace `${spaceId}/${streamId}`."""
        alice = await room.join("alice")
        streams = [await announce(alice) for _ in range(3)]
        assert [stream["stream_id"] for stream in streams] == ["stream-1", "stream-2", "stream-3"]
        assert [stream["namespace"] for stream in streams] == [f"{room.space}/stream-{n}" for n in (1, 2, 3)]

    async def test_ids_of_two_spaces_have_different_namespaces(
        self, room: Room, gateway: GatewayProcess, room_names: Iterator[str]
    ) -> None:
        """seed 003, Handshake Sequence, 2: the namespace keeps the streams of two spaces apart."""
        other = Room(gateway, next(room_names))
        try:
            here, there = await announce(await room.join("alice")), await announce(await other.join("alice"))
        finally:
            await other.close()
        assert here["stream_id"] == there["stream_id"] == "stream-1"
        assert (here["namespace"], there["namespace"]) == (f"{room.space}/stream-1", f"{other.space}/stream-1")

    async def test_echoes_formats_and_metadata(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 2: "Echoes formats and metadata"."""
        alice = await room.join("alice")
        wish = {"intent": "i", "description": "d", "metadata": {"rate": 60}, "x": [1, 2.5, None, "\u00e9"]}
        stream = await announce(alice, formats=SEVERAL, **wish)
        assert stream.items() >= wish.items()
        assert [{**echoed, **sent} for echoed, sent in zip(stream["formats"], SEVERAL, strict=True)] == stream[
            "formats"
        ]

    async def test_read_and_write_tokens(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 2, `payload.stream.capabilities` (read/write tokens)."""
        alice = await room.join("alice")
        stream = await announce(alice, capabilities={"write": "stream/write:stream-99"})
        assert stream["capabilities"] == {"read": "stream/read:stream-1", "write": "stream/write:stream-1"}

    async def test_metadata_tracked_by_the_gateway(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 2; Implementation Details: owner, writers, status and time of creation."""
        alice = await room.join("alice")
        id = await alice.send("stream/announce", {"owner": "bob", "status": "live", "created": "never"})
        ready = await alice.receive("stream/ready", of=id)
        expected = {"owner": "alice", "owner_connected": True, "authorized_writers": ["alice"], "status": "ready"}
        assert ready["payload"]["stream"].items() >= expected.items()
        assert dt.datetime.fromisoformat(ready["payload"]["stream"]["created"]).tzinfo is not None

    async def test_comes_before_the_data_flows(self, room: Room) -> None:
        """seed 003, Implementation Details: everyone learns the namespace before data flows, even if pipelined."""
        alice, bob = await room.all("alice", "bob")
        await alice.send("stream/announce", {"desired_id": "fast"})
        await alice.send("stream/start", {"stream": {"stream_id": "fast"}})
        await data(alice, "fast", 1, "x")
        await alice.frame("fast", "y")
        await alice.settle()
        expected = ["stream/announce", "stream/ready", "stream/start", "stream/data", "frame"]
        assert kinds_in(await bob.settle())[:5] == expected


class TestStart:
    async def test_asserts_that_the_stream_is_live(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3 (Start): from the creator, broadcast, references the `stream_id`."""
        everyone = await room.all("alice", "bob", "carol")
        stream = (await announce(everyone[0]))["stream_id"]
        told = await told_to(everyone, await everyone[0].send("stream/start", {"stream": {"stream_id": stream}}))
        assert told["from"] == "alice"
        assert told["payload"]["stream"]["stream_id"] == stream
        late = await room.join("dave")
        assert active_stream(late.welcome, stream)["status"] == "live"

    async def test_start_ts(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3: "MAY include payload.start_ts", relayed as it was."""
        alice, bob = await room.all("alice", "bob")
        stream = (await announce(alice))["stream_id"]
        await start(alice, stream, start_ts="2025-09-17T10:00:00.123456Z")
        assert (await bob.receive("stream/start"))["payload"]["start_ts"] == "2025-09-17T10:00:00.123456Z"

    @pytest.mark.parametrize("start_ts", ["soon", 7, {}, ""])
    async def test_start_ts_must_be_a_time(self, room: Room, start_ts: Any) -> None:
        """seed 003, Handshake Sequence, 3, `payload.start_ts` "for precise activation timing"."""
        alice = await room.join("alice")
        stream = (await announce(alice))["stream_id"]
        id = await alice.send("stream/start", {"stream": {"stream_id": stream}, "start_ts": start_ts})
        await alice.error("validation_error", of=id)
        await start(alice, stream)

    async def test_only_the_creator(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3 (from creator): another one, even a writer or a manager, cannot."""
        alice, bob, overseer = await room.all("alice", "bob", "overseer")
        stream = (await announce(alice))["stream_id"]
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await bob.receive("stream/write-granted")
        for other in (bob, overseer):
            id = await other.send("stream/start", {"stream": {"stream_id": stream}})
            await other.error("unauthorized", of=id)
        assert "stream/start" not in kinds_in(await alice.settle())

    async def test_once(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3: a stream that is live cannot be started; nor can a requested one."""
        alice = await room.join("alice")
        announced, requested = await live(alice), await alice.open_stream()
        for stream in (announced, requested):
            id = await alice.send("stream/start", {"stream": {"stream_id": stream}})
            await alice.error("invalid_operation", of=id)

    async def test_unknown_stream(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3: there must be such a stream."""
        alice = await room.join("alice")
        error = await alice.error(
            "stream_not_found", of=await alice.send("stream/start", {"stream": {"stream_id": "stream-9"}})
        )
        assert error["payload"]["stream_id"] == "stream-9"

    async def test_nothing_flows_before(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3 and 4; decision 13: data or frames before `start` are refused."""
        alice, bob = await room.all("alice", "bob")
        stream = (await announce(alice))["stream_id"]
        await bob.settle()
        error = await alice.error("invalid_operation", of=await data(alice, stream, 1, "early"))
        assert error["payload"]["stream_id"] == stream
        await alice.frame(stream, "early")
        await alice.error("invalid_operation")
        await alice.frame(stream, b"early")
        assert await bob.settle() == []
        await start(alice, stream)
        await relayed(bob, await data(alice, stream, 1, "in time"))
        await alice.frame(stream, "in time")
        assert await bob.receive_frame(stream) == "in time"

    async def test_a_granted_writer_waits_too(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3 and 4; decision 13: the right is there, the stream is not live."""
        alice, bob, carol = await room.all("alice", "bob", "carol")
        stream = (await announce(alice))["stream_id"]
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await bob.receive("stream/write-granted")
        await bob.error("invalid_operation", of=await data(bob, stream, 1, "early"))
        await carol.error("unauthorized_stream_write", of=await data(carol, stream, 1, "never"))
        await start(alice, stream)
        await relayed(carol, await data(bob, stream, 1, "now"))

    async def test_after_a_transfer_the_new_owner_starts(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3; decision 2: who becomes owner has what goes with it."""
        alice, chatter = await room.all("alice", "chatter")
        stream = (await announce(alice))["stream_id"]
        await alice.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": "chatter"})
        await chatter.receive("stream/ownership-transferred")
        id = await alice.send("stream/start", {"stream": {"stream_id": stream}})
        await alice.error("unauthorized", of=id)
        await start(chatter, stream)
        await relayed(alice, await data(chatter, stream, 1, "x"))

    async def test_the_creator_may_come_back_to_start(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 3; decision 7: an announced stream survives a disconnect of its owner."""
        alice, bob = await room.all("alice", "bob")
        stream = (await announce(alice))["stream_id"]
        alice.connection.transport.abort()
        await bob.receive("system/presence", event="leave")
        again = await room.join("alice")
        assert active_stream(again.welcome, stream)["status"] == "ready"
        await start(again, stream)
        await bob.receive("stream/start")


class TestStartTimeout:
    async def test_fails_the_stream(self, impatient: Room) -> None:
        """seed 003, Handshake Sequence, 3 and 5 (Gateway reports stream failure); decision 13, `start_timeout`."""
        everyone = await impatient.all("alice", "bob", "carol")
        alice = everyone[0]
        stream = (await announce(alice, desired_id="never"))["stream_id"]
        first, *others = [await client.receive("stream/error") for client in everyone]
        assert others == [first, first]
        assert first["from"] == "system:gateway"
        assert first["context"] == impatient.namespace(stream)
        assert first["payload"]["code"] == "start_timeout"
        assert first["payload"]["message"]
        assert first["payload"]["stream"] == {"stream_id": stream, "namespace": impatient.namespace(stream)}

    async def test_the_stream_is_gone(self, impatient: Room) -> None:
        """seed 003, Handshake Sequence, 5; decision 13: after `start_timeout` there is no such stream."""
        alice = await impatient.join("alice")
        stream = (await announce(alice, desired_id="never"))["stream_id"]
        await alice.receive("stream/error")
        bob = await impatient.join("bob")
        assert bob.welcome["payload"]["active_streams"] == []
        for name in (stream, "never"):
            id = await alice.send("stream/start", {"stream": {"stream_id": name}})
            await alice.error("stream_not_found", of=id)
        again = await announce(alice, desired_id="never")
        assert (again["stream_id"], again["alias"]) == ("stream-2", "never")

    async def test_started_streams_are_left_alone(self, impatient: Room) -> None:
        """seed 003, Handshake Sequence, 3; decision 13: only what was never started fails; requests never do."""
        alice, bob = await impatient.all("alice", "bob")
        requested = await alice.open_stream()
        # Pipelined, by the alias, so that the start is in time on any machine.
        await alice.send("stream/announce", {"desired_id": "started"})
        await alice.send("stream/start", {"stream": {"stream_id": "started"}})
        await alice.send("stream/announce", {"desired_id": "late"})
        failed = await bob.receive("stream/error")
        assert failed["payload"]["stream"]["stream_id"] == "stream-3"
        await alice.frame(requested, "still here")
        await relayed(bob, await data(alice, "started", 1, "still here"))
        assert "stream/error" not in kinds_in(await bob.settle())

    async def test_ended_streams_are_left_alone(self, impatient: Room) -> None:
        """seed 003, Handshake Sequence, 5; decision 13: a stream that was closed before is not failed as well."""
        alice, bob = await impatient.all("alice", "bob")
        await alice.send("stream/announce", {"desired_id": "withdrawn"})
        await alice.send("stream/close", {"stream_id": "withdrawn"})
        await alice.send("stream/announce", {"desired_id": "late"})
        failed = await bob.receive("stream/error")
        assert failed["payload"]["stream"]["stream_id"] == "stream-2"
        errors = [each for each in bob.got if isinstance(each, dict) and each["kind"] == "stream/error"]
        assert errors == [failed]

    async def test_the_owners_absence_does_not_stop_the_clock(self, impatient: Room) -> None:
        """seed 003, Handshake Sequence, 3; decision 13: announced, then gone: the stream does not linger."""
        alice, bob = await impatient.all("alice", "bob")
        stream = (await announce(alice))["stream_id"]
        await alice.close()
        failed = await bob.receive("stream/error")
        assert (failed["payload"]["code"], failed["payload"]["stream"]["stream_id"]) == ("start_timeout", stream)


class TestData:
    async def test_reaches_everyone(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4 (Data): broadcast, the writer included, with every field."""
        everyone = await room.all("alice", "bob", "carol")
        stream = await live(everyone[0], formats=[MOVEMENT])
        id = await data(everyone[0], stream, 1, STEP, format_id="movement/2d", extra={"kept": True})
        told = await told_to(everyone, id)
        assert told["from"] == "alice"
        assert told["payload"]["stream"]["stream_id"] == stream
        assert (told["payload"]["sequence"], told["payload"]["format_id"]) == (1, "movement/2d")
        assert (told["payload"]["content"], told["payload"]["extra"]) == (STEP, {"kept": True})

    @pytest.mark.parametrize(
        "content",
        ["text", "", 7, 1.5, 2**70, None, True, [], {}, [1, {"a": ["\u00e9\U0001f63a"]}]],
        ids=lambda content: repr(content)[:20],
    )
    async def test_content_is_whatever_it_is(self, room: Room, content: Any) -> None:
        """seed 003, Handshake Sequence, 4, `payload.content` holds the actual sample or chunk."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        told = await relayed(bob, await data(alice, stream, 1, content))
        assert json.dumps(told["payload"]["content"]) == json.dumps(content)

    async def test_content_is_needed(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4, `payload.content`: data without content is refused."""
        alice = await room.join("alice")
        stream = await live(alice)
        id = await alice.send("stream/data", {"stream": {"stream_id": stream}, "sequence": 1})
        await alice.error("validation_error", of=id)

    @pytest.mark.parametrize(
        "sequence", [None, "1", 1.5, -1, True, [1], {}, 2**63], ids=lambda sequence: repr(sequence)[:20]
    )
    async def test_sequence_must_be_an_integer(self, room: Room, sequence: Any) -> None:
        """seed 003, Handshake Sequence, 4: "Must carry ... payload.sequence (monotonic integer)"."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        await alice.error("validation_error", of=await data(alice, stream, sequence, "x"))
        assert "stream/data" not in kinds_in(await bob.settle())

    async def test_sequence_must_be_there(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4: "Must carry ... payload.sequence"."""
        alice = await room.join("alice")
        stream = await live(alice)
        id = await alice.send("stream/data", {"stream": {"stream_id": stream}, "content": "x"})
        await alice.error("validation_error", of=id)

    async def test_authorized_writers(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4: "creator or authorized writers", and nobody else."""
        alice, bob, carol = await room.all("alice", "bob", "carol")
        stream = await live(alice)
        error = await bob.error("unauthorized_stream_write", of=await data(bob, stream, 1, "not yet"))
        assert error["payload"]["stream_id"] == stream
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await bob.receive("stream/write-granted")
        await relayed(carol, await data(bob, stream, 1, "now"))
        await alice.send("stream/revoke-write", {"stream_id": stream, "participant_id": "bob"})
        await bob.receive("stream/write-revoked")
        await bob.error("unauthorized_stream_write", of=await data(bob, stream, 2, "no more"))
        await relayed(carol, await data(alice, stream, 1, "the creator"))
        assert sequences_in(carol.got) == [("bob", 1), ("alice", 1)]

    async def test_readers(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4; decision 16: data are frames, a reader set holds for them too."""
        alice, bob, carol = await room.all("alice", "bob", "carol")
        stream = await live(alice, target=["bob"])
        await relayed(bob, await data(alice, stream, 1, "for bob"))
        assert "stream/data" not in kinds_in(await carol.settle())

    async def test_on_a_requested_stream(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4; decision 13: one kind of stream behind `request` and `announce`."""
        alice, bob = await room.all("alice", "bob")
        stream = await alice.open_stream()
        told = await relayed(bob, await data(alice, stream, 1, "x"))
        assert told["payload"]["stream"]["namespace"] == room.namespace(stream)

    async def test_raw_frames_on_an_announced_stream(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4; decision 13: raw frames flow through it too, in order with the data."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        await data(alice, stream, 1, "first")
        await alice.frame(stream, "second")
        await alice.frame(stream, b"third")
        await data(alice, stream, 2, "fourth")
        await alice.settle()
        flowed = [each for each in await bob.settle() if not isinstance(each, dict) or each["kind"] == "stream/data"]
        assert kinds_in(flowed) == ["stream/data", "frame", "frame", "stream/data"]
        assert flowed[1:3] == [f"#{stream}#second", f"#{stream}#third".encode()]


class TestSequence:
    async def test_a_repeat_or_step_back_is_refused(self, room: Room) -> None:
        """seed 003, Implementation Details, monotonic sequence numbers; decision 14: `sequence_regression`."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        await relayed(bob, await data(alice, stream, 5, "x"))
        for sequence in (5, 4, 0):
            await alice.error("sequence_regression", of=await data(alice, stream, sequence, "again"))
        await relayed(bob, await data(alice, stream, 6, "y"))
        assert sequences_in(bob.got) == [("alice", 5), ("alice", 6)]

    async def test_a_gap_is_accepted(self, room: Room) -> None:
        """seed 003, Implementation Details, "gaps imply loss and allow consumers to detect drops": not refused."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        for sequence in (0, 1, 7, 2**53, 2**63 - 1):
            await relayed(bob, await data(alice, stream, sequence, "x"))
        assert [sequence for _, sequence in sequences_in(bob.got)] == [0, 1, 7, 2**53, 2**63 - 1]

    async def test_a_refused_message_does_not_count(self, room: Room) -> None:
        """seed 003, Implementation Details, monotonic sequence numbers: what was refused took no number."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=[MOVEMENT], validate="enforce")
        await alice.error("format_violation", of=await data(alice, stream, 9, NOT_A_STEP))
        await relayed(bob, await data(alice, stream, 1, STEP))

    async def test_each_writer_counts_for_itself(self, room: Room) -> None:
        """seed 003, Implementation Details, "creator-assigned"; decision 14: per stream and writer."""
        alice, bob = await room.all("alice", "bob")
        one, other = await live(alice), await live(alice)
        await alice.send("stream/grant-write", {"stream_id": one, "participant_id": "bob"})
        await bob.receive("stream/write-granted")
        await relayed(bob, await data(alice, one, 10, "x"))
        await relayed(alice, await data(bob, one, 1, "y"))
        await relayed(bob, await data(alice, other, 1, "z"))
        await bob.error("sequence_regression", of=await data(bob, one, 1, "y"))
        await alice.error("sequence_regression", of=await data(alice, one, 10, "x"))

    async def test_a_grant_in_between_does_not_start_anew(self, room: Room) -> None:
        """seed 003, Implementation Details; decision 14: per session, so a revoke and grant go on counting."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        grant = {"stream_id": stream, "participant_id": "bob"}
        await alice.send("stream/grant-write", grant)
        await bob.receive("stream/write-granted")
        await relayed(alice, await data(bob, stream, 3, "x"))
        await alice.send("stream/revoke-write", grant)
        await alice.send("stream/grant-write", grant)
        await bob.receive("stream/write-granted")
        await bob.error("sequence_regression", of=await data(bob, stream, 3, "x"))
        await relayed(alice, await data(bob, stream, 4, "y"))

    async def test_a_new_session_starts_anew(self, room: Room) -> None:
        """seed 003, Implementation Details; decision 14: monotonic per stream, writer and writer's session."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        await relayed(bob, await data(alice, stream, 100, "x"))
        await alice.close()
        await bob.receive("system/presence", event="leave")
        again = await room.join("alice")
        await relayed(bob, await data(again, stream, 1, "y"))
        await again.error("sequence_regression", of=await data(again, stream, 1, "y"))


class TestCompleteAndError:
    async def test_complete_signals_a_normal_end(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 5 (Complete): broadcast, from the creator; the stream is gone."""
        everyone = await room.all("alice", "bob")
        alice, bob = everyone
        stream = await live(alice, desired_id="moves")
        payload = {"stream": {"stream_id": stream}, "reason": "match over", "total": 12}
        told = await told_to(everyone, await alice.send("stream/complete", payload))
        assert told["payload"].items() >= {"reason": "match over", "total": 12}.items()
        for kind in ("stream/complete", "stream/start", "stream/close"):
            id = await alice.send(kind, {"stream": {"stream_id": stream}})
            await alice.error("stream_not_found", of=id)
        await alice.frame(stream, "x")
        await alice.error("stream_not_found")
        assert await bob.settle() == []

    async def test_complete_only_by_the_creator(self, room: Room) -> None:
        """seed 003, Decision, `stream/complete` - "Creator indicates"; decision 1: `stream/manage` is for one's own."""
        alice, bob, manager, overseer = await room.all("alice", "bob", "manager", "overseer")
        stream = await live(alice)
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await bob.receive("stream/write-granted")
        for other in (bob, manager, overseer):
            id = await other.send("stream/complete", {"stream": {"stream_id": stream}})
            await other.error("unauthorized", of=id)
        assert "stream/complete" not in kinds_in(await alice.settle())
        await relayed(bob, await data(alice, stream, 1, "still live"))

    async def test_complete_needs_a_live_stream(self, room: Room) -> None:
        """seed 003, Context, 4 (intent, ready, live, complete): what never was live cannot be complete."""
        alice = await room.join("alice")
        stream = (await announce(alice))["stream_id"]
        id = await alice.send("stream/complete", {"stream": {"stream_id": stream}})
        await alice.error("invalid_operation", of=id)
        await start(alice, stream)

    @pytest.mark.parametrize("started", [True, False], ids=["live", "ready"])
    async def test_error_signals_a_failure(self, room: Room, started: bool) -> None:
        """seed 003, Handshake Sequence, 5 (Error): broadcast; a creator may give up before or after the start."""
        everyone = await room.all("alice", "bob", "carol")
        alice = everyone[0]
        stream = await live(alice) if started else (await announce(alice))["stream_id"]
        failure = {"stream": {"stream_id": stream}, "code": "no_microphone", "message": "unplugged"}
        told = await told_to(everyone, await alice.send("stream/error", failure))
        assert (told["from"], told["payload"]["code"], told["payload"]["message"]) == (
            "alice",
            "no_microphone",
            "unplugged",
        )
        assert (await room.join("dave")).welcome["payload"]["active_streams"] == []

    @pytest.mark.parametrize(
        "flawed",
        [
            {"message": "m"},
            {"code": "c"},
            {},
            {"code": "", "message": "m"},
            {"code": "c", "message": ""},
            {"code": 7, "message": "m"},
            {"code": "c", "message": {"text": "m"}},
            {"code": None, "message": "m"},
        ],
        ids=lambda flawed: json.dumps(flawed),
    )
    async def test_error_needs_code_and_message(self, room: Room, flawed: Message) -> None:
        """seed 003, Implementation Details: "stream/error payloads include a mandatory code and message"."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        await bob.settle()
        id = await alice.send("stream/error", {"stream": {"stream_id": stream}, **flawed})
        await alice.error("validation_error", of=id)
        assert await bob.settle() == []
        await relayed(bob, await data(alice, stream, 1, "not failed"))

    async def test_error_only_by_the_creator(self, room: Room) -> None:
        """seed 003, Decision, `stream/error` - "Gateway or creator reports stream failure": nobody else."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        failure = {"stream": {"stream_id": stream}, "code": "c", "message": "m"}
        await bob.error("unauthorized", of=await bob.send("stream/error", failure))
        await relayed(bob, await data(alice, stream, 1, "not failed"))

    async def test_close_ends_an_announced_stream(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 5; decision 13: `close` ends any of them, told as what it is."""
        alice, bob = await room.all("alice", "bob")
        ready, started = (await announce(alice))["stream_id"], await live(alice)
        for stream in (ready, started):
            told = await told_to([alice, bob], await alice.send("stream/close", {"stream_id": stream}))
            assert (told["kind"], told["payload"]["stream_id"]) == ("stream/close", stream)
        assert (await room.join("carol")).welcome["payload"]["active_streams"] == []

    async def test_a_manager_may_close_it(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 5; decision 1: a holder of `space/manage-streams` may close."""
        alice, overseer = await room.all("alice", "overseer")
        stream = await live(alice)
        told = await told_to([alice], await overseer.send("stream/close", {"stream_id": stream}))
        assert told["from"] == "overseer"


class TestFormatDescriptors:
    async def test_movement_2d_verbatim(self, room: Room) -> None:
        """seed 003, Format Descriptors: the descriptor of the text, in ready and to late joiners."""
        alice = await room.join("alice")
        stream = await announce(alice, formats=[MOVEMENT])
        bob = await room.join("bob")
        for shown in (stream, active_stream(bob.welcome, stream["stream_id"])):
            (descriptor,) = shown["formats"]
            assert {key: descriptor[key] for key in MOVEMENT} == MOVEMENT

    async def test_known_by_id_and_schema_hash(self, room: Room) -> None:
        """seed 003, Format Descriptors; decision 15: the same schema has the same hash, however it is written."""
        alice = await room.join("alice")
        reordered = dict(reversed(MOVEMENT["schema"].items()))
        first = (await announce(alice, formats=[MOVEMENT]))["formats"][0]
        second = (await announce(alice, formats=[{**MOVEMENT, "schema": reordered}]))["formats"][0]
        other = await announce(alice, formats=[{**MOVEMENT, "schema": {}, "schema_hash": first["schema_hash"]}])
        canonical = json.dumps(MOVEMENT["schema"], sort_keys=True, separators=(",", ":"))
        assert first["schema_hash"] == second["schema_hash"] == hashlib.sha256(canonical.encode()).hexdigest()
        assert other["formats"][0]["schema_hash"] != first["schema_hash"]

    async def test_multiple_formats(self, room: Room) -> None:
        """seed 003, Format Descriptors: "Implementations may advertise multiple formats", and each can be used."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=SEVERAL)
        samples = {"audio/opus": "T3B1cw==", "audio/transcript": "hi", "llm/tokens": "tok", "metrics/token-count": 3}
        for sequence, (format_id, content) in enumerate(samples.items()):
            told = await relayed(bob, await data(alice, stream, sequence, content, format_id=format_id))
            assert told["payload"]["format_id"] == format_id
        late = await room.join("carol")
        assert [each["id"] for each in active_stream(late.welcome, stream)["formats"]] == list(samples)

    async def test_with_several_a_format_is_required(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4, `payload.format_id`; decision 13: `format_required`, raw frames too."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=SEVERAL)
        await bob.settle()
        error = await alice.error("format_required", of=await data(alice, stream, 1, "which?"))
        assert error["payload"]["stream_id"] == stream
        await alice.frame(stream, "which?")
        await alice.error("format_required")
        assert await bob.settle() == []

    async def test_with_one_the_format_is_known(self, room: Room) -> None:
        """seed 003, Handshake Sequence, 4; decision 13: raw frames and data on a stream with one format have it."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=[MOVEMENT])
        await relayed(bob, await data(alice, stream, 1, STEP))
        await alice.frame(stream, json.dumps(STEP))
        assert await bob.receive_frame(stream) == json.dumps(STEP)

    @pytest.mark.parametrize("formats", [[MOVEMENT], SEVERAL], ids=["one", "several"])
    async def test_format_id_must_be_announced(self, room: Room, formats: list[Message]) -> None:
        """seed 003, Handshake Sequence, 4: "payload.format_id points to one of the announced formats"."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=formats)
        await alice.error("format_violation", of=await data(alice, stream, 1, STEP, format_id="video/h264"))
        await alice.error("validation_error", of=await data(alice, stream, 1, STEP, format_id=7))
        assert "stream/data" not in kinds_in(await bob.settle())

    async def test_off_by_default(self, room: Room) -> None:
        """seed 003, Format Descriptors; decision 15: `validate: off` is the default, the gateway is transparent."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=[MOVEMENT])
        told = await relayed(bob, await data(alice, stream, 1, NOT_A_STEP))
        assert told["payload"]["content"] == NOT_A_STEP
        await alice.frame(stream, "{not even JSON")
        assert await bob.receive_frame(stream) == "{not even JSON"

    async def test_enforced(self, room: Room) -> None:
        """seed 003, Format Descriptors; decision 15, `validate: enforce`: `format_violation`, and nobody gets it."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=[MOVEMENT], validate="enforce")
        await bob.settle()
        error = await alice.error("format_violation", of=await data(alice, stream, 1, NOT_A_STEP))
        assert error["payload"].items() >= {"stream_id": stream, "format_id": "movement/2d"}.items()
        assert await bob.settle() == []
        await relayed(bob, await data(alice, stream, 1, STEP, format_id="movement/2d"))

    @pytest.mark.parametrize("flawed", [json.dumps(NOT_A_STEP), "{not JSON", b"\xff\xfe", ""], ids=repr)
    async def test_enforced_on_raw_frames(self, room: Room, flawed: str | bytes) -> None:
        """seed 003, Format Descriptors; decisions 13 and 15: raw frames on a stream with one format have it."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=[MOVEMENT], validate="enforce")
        await bob.settle()
        await alice.frame(stream, flawed)
        assert (await alice.error("format_violation"))["payload"]["stream_id"] == stream
        assert await bob.settle() == []
        await alice.frame(stream, json.dumps(STEP).encode())
        assert await bob.receive_frame(stream) == json.dumps(STEP).encode()

    async def test_enforced_for_each_of_several(self, room: Room) -> None:
        """seed 003, Format Descriptors; decision 15: content is judged by the format that it names."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice, formats=SEVERAL, validate="enforce")
        await relayed(bob, await data(alice, stream, 1, "tok", format_id="llm/tokens"))
        await relayed(bob, await data(alice, stream, 2, 3, format_id="metrics/token-count"))
        await alice.error("format_violation", of=await data(alice, stream, 3, 3, format_id="llm/tokens"))
        await alice.error("format_violation", of=await data(alice, stream, 3, -1, format_id="metrics/token-count"))

    async def test_enforced_by_the_space(self, strict: Room) -> None:
        """seed 003, Format Descriptors; decision 15: a space may set `validate`, a stream may set its own."""
        alice, bob = await strict.all("alice", "bob")
        stream = await live(alice, formats=[MOVEMENT])
        await alice.error("format_violation", of=await data(alice, stream, 1, NOT_A_STEP))
        lenient = await live(alice, formats=[MOVEMENT], validate="off")
        await relayed(bob, await data(alice, lenient, 1, NOT_A_STEP))

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "nonsense"},
            {"type": "object", "required": "entity"},
            {"$ref": "https://example.com/schema.json"},
            {"$ref": "#/nowhere"},
            {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
            {"pattern": "(a+)+\\1$"},
            {"pattern": "["},
            {"$schema": "http://json-schema.org/draft-04/schema#"},
            "not a schema",
            [1],
        ],
        ids=lambda schema: json.dumps(schema)[:50],
    )
    async def test_bad_schemas_are_refused_at_announce(self, room: Room, schema: Any) -> None:
        """seed 003, Format Descriptors; decision 15: JSON Schema 2020-12, checked at announce."""
        alice, bob = await room.all("alice", "bob")
        id = await alice.send("stream/announce", {"formats": [{**MOVEMENT, "schema": schema}]})
        await alice.error("validation_error", of=id)
        assert await bob.settle() == []

    async def test_sizes_are_capped(self, room: Room) -> None:
        """seed 003, Format Descriptors; decision 15: size-capped, with the limit named."""
        alice = await room.join("alice")
        large = {**MOVEMENT, "schema": {"description": "x" * 40_000}}
        error = await alice.error("limit_exceeded", of=await alice.send("stream/announce", {"formats": [large]}))
        assert error["payload"]["limit"] == "schema_bytes"
        many = [{"id": f"f-{number}"} for number in range(100)]
        error = await alice.error("limit_exceeded", of=await alice.send("stream/announce", {"formats": many}))
        assert error["payload"]["limit"] == "formats_per_stream"


class TestCapabilityModel:
    @pytest.mark.parametrize("participant", ["manager", "streamer", "alice"])
    async def test_who_may_announce(self, room: Room, participant: str) -> None:
        """seed 003, Capability Model: `stream/manage` "(or a broader wildcard)": exact, `stream/*` and `*`."""
        client = await room.join(participant)
        assert (await announce(client))["owner"] == participant

    @pytest.mark.parametrize("participant", ["requester", "announcer", "denied", "overseer", "chatter"])
    async def test_who_may_not(self, room: Room, participant: str) -> None:
        """seed 003, Capability Model: the gateway MUST validate `stream/manage` before it replies with ready.

        Neither `stream/request` nor `stream/announce` alone is enough, nor `*` with `!stream/manage`."""
        client, bob = await room.all(participant, "bob")
        id = await client.send("stream/announce", {"formats": [MOVEMENT]})
        error = await client.error("capability_violation", of=id)
        assert error["payload"]["attempted_kind"] == "stream/announce"
        assert error["payload"]["your_capabilities"] == CAPABILITIES[participant]
        assert error["to"] == [participant]
        assert await bob.settle() == []
        assert (await room.join("carol")).welcome["payload"]["active_streams"] == []

    async def test_manage_alone_is_enough_for_the_whole_life(self, room: Room) -> None:
        """seed 003, Capability Model, `stream/manage` - "Can announce or complete streams"; decision 2: in between,
        being the owner is what counts."""
        manager, bob = await room.all("manager", "bob")
        stream = await live(manager, formats=[MOVEMENT])
        await relayed(bob, await data(manager, stream, 1, STEP))
        await manager.frame(stream, json.dumps(STEP))
        await manager.send("stream/complete", {"stream": {"stream_id": stream}})
        await bob.receive("stream/complete")
        failing = await live(manager)
        await manager.send("stream/error", {"stream": {"stream_id": failing}, "code": "c", "message": "m"})
        await bob.receive("stream/error")

    async def test_manage_does_not_allow_a_request(self, room: Room) -> None:
        """seed 003, Capability Model; decision 1: `stream/manage` has the meaning of this seed only."""
        manager = await room.join("manager")
        await manager.error("capability_violation", of=await manager.send("stream/request", {"direction": "upload"}))

    async def test_manage_gives_nothing_on_streams_of_others(self, room: Room) -> None:
        """seed 003, Capability Model; decision 1: it may not start, grant, transfer, close or end another's."""
        alice, manager = await room.all("alice", "manager")
        stream = (await announce(alice))["stream_id"]
        about = {"stream": {"stream_id": stream}}
        attempts = {
            "stream/start": about,
            "stream/complete": about,
            "stream/error": {**about, "code": "c", "message": "m"},
            "stream/close": {"stream_id": stream},
            "stream/grant-write": {"stream_id": stream, "participant_id": "manager"},
            "stream/transfer-ownership": {"stream_id": stream, "new_owner": "manager"},
        }
        for kind, payload in attempts.items():
            await manager.error("unauthorized", of=await manager.send(kind, payload))
        await start(alice, stream)

    async def test_manage_can_be_granted(self, room: Room) -> None:
        """seed 003, Capability Model: `stream/manage` given at run time counts from then on."""
        alice, chatter = await room.all("alice", "chatter")
        await chatter.error("capability_violation", of=await chatter.send("stream/announce", {}))
        await alice.send("capability/grant", {"recipient": "chatter", "capabilities": [{"kind": "stream/manage"}]})
        await chatter.receive("system/welcome")
        assert (await announce(chatter))["owner"] == "chatter"

    async def test_completing_needs_no_capability_of_an_owner(self, room: Room) -> None:
        """seed 003, Capability Model; decision 2: who became owner by a transfer can complete."""
        alice, chatter = await room.all("alice", "chatter")
        stream = await live(alice)
        await alice.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": "chatter"})
        await chatter.receive("stream/ownership-transferred")
        id = await alice.send("stream/complete", {"stream": {"stream_id": stream}})
        await alice.error("unauthorized", of=id)
        told = await told_to([alice], await chatter.send("stream/complete", {"stream": {"stream_id": stream}}))
        assert told["from"] == "chatter"

    async def test_additional_writers(self, room: Room) -> None:
        """seed 003, Capability Model, `stream/write:{streamId}` - granted dynamically after ready: even somebody who
        has no stream capability can write then, by data and by frames."""
        alice, chatter, bob = await room.all("alice", "chatter", "bob")
        stream = await live(alice)
        await chatter.error("unauthorized_stream_write", of=await data(chatter, stream, 1, "x"))
        id = await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "chatter"})
        granted = await bob.receive("stream/write-granted", of=id)
        assert granted["payload"]["authorized_writers"] == ["alice", "chatter"]
        await chatter.receive("stream/write-granted", of=id)
        await relayed(bob, await data(chatter, stream, 1, "x"))
        await chatter.frame(stream, "y")
        assert await bob.receive_frame(stream) == "y"

    async def test_auto_grant(self, room: Room) -> None:
        """seed 003, Capability Model, "if the gateway wishes to authorize additional writers"; decision 18."""
        alice, bob = await room.all("alice", "bob")
        stream = await announce(alice, auto_grant=["bob", "chatter"])
        assert stream["authorized_writers"] == ["alice", "bob"]
        await start(alice, stream["stream_id"])
        await relayed(alice, await data(bob, stream["stream_id"], 1, "x"))
        chatter = await room.join("chatter")
        await chatter.receive("stream/write-granted")
        await relayed(alice, await data(chatter, stream["stream_id"], 1, "y"))

    async def test_write_is_projected_into_capabilities(self, room: Room) -> None:
        """seed 003, Capability Model, `stream/write:{streamId}`; decision 2: in welcome lists, after a grant, for the
        writer and for others who see it; gone with the right."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        token = {"kind": f"stream/write:{stream}"}
        assert token not in bob.welcome["payload"]["you"]["capabilities"]
        await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
        await bob.receive("stream/write-granted")
        carol = await room.join("carol")
        shown = {each["id"]: each["capabilities"] for each in carol.welcome["payload"]["participants"]}
        assert token in shown["alice"]
        assert token in shown["bob"]
        # A new connection of bob's takes over his session, so his right and its projection stay.
        again = await room.join("bob")
        assert token in again.welcome["payload"]["you"]["capabilities"]
        await alice.send("stream/revoke-write", {"stream_id": stream, "participant_id": "bob"})
        await again.receive("stream/write-revoked")
        dave = await room.join("dave")
        shown = {each["id"]: each["capabilities"] for each in dave.welcome["payload"]["participants"]}
        assert token in shown["alice"]
        assert token not in shown["bob"]

    async def test_read_is_projected_into_capabilities(self, room: Room) -> None:
        """seed 003, Capability Model, `stream/read:{streamId}` - optional: projected where there is a reader set."""
        alice, _ = await room.all("alice", "bob")
        stream = (await announce(alice, target=["bob"]))["stream_id"]
        open_to_all = (await announce(alice))["stream_id"]
        carol = await room.join("carol")
        shown = {each["id"]: each["capabilities"] for each in carol.welcome["payload"]["participants"]}
        assert {"kind": f"stream/read:{stream}"} in shown["bob"]
        assert {"kind": f"stream/read:{stream}"} not in carol.welcome["payload"]["you"]["capabilities"]
        assert {"kind": f"stream/read:{open_to_all}"} not in shown["bob"]

    async def test_default_broadcast_remains_visible(self, room: Room) -> None:
        """seed 003, Capability Model, `stream/read:{streamId}`: without a gate, everyone reads, whatever they hold."""
        alice, chatter = await room.all("alice", "chatter")
        stream = await live(alice)
        await relayed(chatter, await data(alice, stream, 1, "x"))
        await alice.frame(stream, "y")
        assert await chatter.receive_frame(stream) == "y"

    @pytest.mark.parametrize("kind", ["stream/write:stream-1", "stream/read:stream-1"])
    async def test_tokens_are_no_second_source(self, room: Room, kind: str) -> None:
        """seed 003, Capability Model; decision 2: a token cannot be granted as a capability, nor does one count."""
        alice, bob = await room.all("alice", "bob")
        assert await live(alice) == "stream-1"
        id = await alice.send("capability/grant", {"recipient": "bob", "capabilities": [{"kind": kind}]})
        await alice.error("invalid_operation", of=id)
        await bob.error("unauthorized_stream_write", of=await data(bob, "stream-1", 1, "x"))

    async def test_checked_over_http_too(self, room: Room) -> None:
        """seed 003, Capability Model, "The gateway MUST validate": the same rules for a POST."""
        await room.all("manager", "requester")
        envelope = {"kind": "stream/announce", "payload": {"intent": "by POST"}}
        status, answer = await room.gateway.post("manager", envelope, space=room.space)
        assert (status, answer["status"], answer["stream_id"]) == (200, "stream_opened", "stream-1")
        status, answer = await room.gateway.post("requester", envelope, space=room.space)
        assert status == 403
        assert "capability_violation" in json.dumps(answer)


def payload_for(kind: str, stream: Message) -> Message:
    """A payload that would be accepted, for each kind that names a stream."""
    return {"stream": stream, "sequence": 1, "content": "x", "code": "c", "message": "m"} | (
        {"start_ts": "2025-09-17T10:00:00Z"} if kind == "stream/start" else {}
    )


class TestImplementationDetails:
    async def test_streams_are_tracked(self, room: Room) -> None:
        """seed 003, Implementation Details: creator, namespace, formats and status, shown to late joiners."""
        alice = await room.join("alice")
        stream = (await announce(alice, formats=[MOVEMENT], intent="tracked", desired_id="t"))["stream_id"]
        bob = await room.join("bob")
        await start(alice, stream)
        carol = await room.join("carol")
        for client, status in ((bob, "ready"), (carol, "live")):
            entry = active_stream(client.welcome, stream)
            expected = {
                "owner": "alice",
                "namespace": room.namespace(stream),
                "status": status,
                "intent": "tracked",
                "alias": "t",
            }
            assert entry.items() >= expected.items()
            assert [each["id"] for each in entry["formats"]] == ["movement/2d"]

    async def test_late_joiners_see_what_ready_said(self, room: Room) -> None:
        """seed 003, Implementation Details, "all participants learn the namespace"; seed 002, zero information loss:
        a late joiner has every field that `stream/ready` had."""
        alice = await room.join("alice")
        ready = await announce(alice, formats=SEVERAL, intent="i", desired_id="d", scope=["bob"], x=[1.5])
        bob = await room.join("bob")
        entry = active_stream(bob.welcome, ready["stream_id"])
        for moving in ("last_seq", "capabilities"):  # the tokens are in the capability lists, as projections
            ready.pop(moving, None)
            entry.pop(moving, None)
        assert entry == ready

    @pytest.mark.parametrize("kind", ["stream/start", "stream/data", "stream/complete", "stream/error"])
    async def test_a_wrong_namespace_is_refused(self, room: Room, kind: str) -> None:
        """seed 003, Implementation Details, namespace in all envelopes; decision 13: "a wrong one refused"."""
        alice, bob = await room.all("alice", "bob")
        stream = (await announce(alice))["stream_id"]
        if kind != "stream/start":
            await start(alice, stream)
        await bob.settle()
        for wrong in ("elsewhere/stream-1", stream, f"{room.space}/stream-2", "", 7, f"{room.space}/{stream}/"):
            payload = payload_for(kind, {"stream_id": stream, "namespace": wrong})
            await alice.error("validation_error", of=await alice.send(kind, payload))
        assert await bob.settle() == []
        payload = payload_for(kind, {"stream_id": stream, "namespace": room.namespace(stream)})
        told = await told_to([alice, bob], await alice.send(kind, payload))
        assert told["payload"] == payload

    @pytest.mark.parametrize("kind", ["stream/start", "stream/data", "stream/complete", "stream/error"])
    async def test_a_missing_namespace_is_filled_in(self, room: Room, kind: str) -> None:
        """seed 003, Implementation Details, "MUST include payload.stream.namespace"; decision 13: filled in."""
        alice, bob = await room.all("alice", "bob")
        stream = (await announce(alice))["stream_id"]
        if kind != "stream/start":
            await start(alice, stream)
        payload = payload_for(kind, {"stream_id": stream, "mine": 1})
        told = await told_to([alice, bob], await alice.send(kind, payload))
        names = {"stream_id": stream, "namespace": room.namespace(stream), "mine": 1}
        assert told["payload"] == {**payload, "stream": names}

    async def test_context_mirrors_the_namespace(self, room: Room) -> None:
        """seed 003, Implementation Details: "The context field MAY mirror the namespace": on every one from ready."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        await data(alice, stream, 1, "x")
        await alice.send("stream/complete", {"stream": {"stream_id": stream}})
        failing = await live(alice)
        await alice.send("stream/error", {"stream": {"stream_id": failing}, "code": "c", "message": "m"})
        await alice.settle()
        about = after_announce(await bob.settle())
        assert len(about) == 7
        for each in about:
            assert each["context"] == each["payload"]["stream"]["namespace"]

    async def test_a_context_of_ones_own_is_kept(self, room: Room) -> None:
        """seed 003, Implementation Details: "MAY mirror": what the sender set is not overwritten."""
        alice, bob = await room.all("alice", "bob")
        stream = await live(alice)
        payload = {"stream": {"stream_id": stream}, "sequence": 1, "content": "x"}
        id = await alice.send("stream/data", payload, context="my/own")
        assert (await relayed(bob, id))["context"] == "my/own"

    async def test_ids_are_never_reused(self, room: Room) -> None:
        """seed 003, Implementation Details, "may recycle IDs"; decision 12: it does not, however a stream ended."""
        alice = await room.join("alice")
        endings = {
            "stream/complete": {},
            "stream/error": {"code": "c", "message": "m"},
            "stream/close": {},
        }
        seen = []
        for kind, payload in endings.items():
            stream = await live(alice)
            seen.append(stream)
            await told_to([alice], await alice.send(kind, {"stream": {"stream_id": stream}, **payload}))
        seen.append(await alice.open_stream())
        seen.append((await announce(alice))["stream_id"])
        assert seen == ["stream-1", "stream-2", "stream-3", "stream-4", "stream-5"]
        bob = await room.join("bob")
        assert [each["stream_id"] for each in bob.welcome["payload"]["active_streams"]] == ["stream-4", "stream-5"]


class TestConsequences:
    async def test_consumers_can_choose_by_format(self, room: Room) -> None:
        """seed 003, Consequences, Positive: consumers know format ids upfront and on every piece of data."""
        alice, bob = await room.all("alice", "bob")
        stream = await announce(alice, formats=SEVERAL)
        wanted = [each["id"] for each in stream["formats"] if each["mime_type"] == "text/plain"]
        await start(alice, stream["stream_id"])
        for sequence, each in enumerate(SEVERAL):
            content: Any = 1 if each["id"] == "metrics/token-count" else each["id"]
            await data(alice, stream["stream_id"], sequence, content, format_id=each["id"])
        await alice.settle()
        got = [
            each["payload"]["content"]
            for each in await bob.settle()
            if isinstance(each, dict) and each["kind"] == "stream/data" and each["payload"]["format_id"] in wanted
        ]
        assert got == ["audio/transcript"]

    async def test_quotas_hold_before_a_stream_is_active(self, room: Room) -> None:
        """seed 003, Consequences, Positive: "enforcement of quotas"; decision 19: the limit is named."""
        alice = await room.join("alice")
        for _ in range(257):
            await alice.send("stream/announce", {})
        error = await alice.error("limit_exceeded")
        assert error["payload"]["limit"] == "streams_per_participant"
        bob = await room.join("bob")
        assert len(bob.welcome["payload"]["active_streams"]) == 256
