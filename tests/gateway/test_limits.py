"""Every limit over the wire: refusals name the limit, rates slow down before they refuse (DESIGN, decision 19)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

import pytest

from support import AT_ONCE, Client, GatewayProcess, Message, running_gateway, space_config

PEOPLE = ("alice", "bob", "carol")
CHAT = [{"kind": "chat"}]
_numbers = itertools.count()


def envelope(kind: str, payload: Message, **fields: Any) -> Message:
    return {"kind": kind, "payload": payload, **fields}


def invite(participant: str) -> Message:
    return envelope("space/invite", {"participant_id": participant, "capabilities": CHAT})


def about(kind: str, participant: str) -> Message:
    return envelope(kind, {"stream_id": "stream-1", "participant_id": participant})


GRANT = envelope("capability/grant", {"recipient": "bob", "capabilities": CHAT})
REQUEST = envelope("stream/request", {"direction": "upload"})
FORMATS = [{"id": "a"}, {"id": "b"}]

#: limit -> its value, what is within it, and what is one too many (all by alice).
STEPS: dict[str, tuple[int, list[Message], Message]] = {
    "streams_per_participant": (1, [REQUEST], REQUEST),
    "streams_per_space": (2, [REQUEST, REQUEST], REQUEST),
    "writers_per_stream": (2, [REQUEST, about("stream/grant-write", "bob")], about("stream/grant-write", "carol")),
    "readers_per_stream": (
        1,
        [envelope("stream/request", {"target": ["bob"]})],
        about("stream/grant-read", "carol"),
    ),
    "stream_metadata_bytes": (
        100,
        [envelope("stream/request", {"description": "x" * 50})],
        envelope("stream/request", {"description": "x" * 200}),
    ),
    "formats_per_stream": (
        1,
        [envelope("stream/announce", {"formats": FORMATS[:1]})],
        envelope("stream/announce", {"formats": FORMATS}),
    ),
    "schema_bytes": (
        50,
        [envelope("stream/announce", {"formats": [{"id": "a", "schema": {"type": "object"}}]})],
        envelope("stream/announce", {"formats": [{"id": "a", "schema": {"type": "object", "title": "x" * 60}}]}),
    ),
    "capability_grants": (1, [GRANT], GRANT),
    "invitations": (1, [invite("first")], invite("second")),
    "id_bytes": (
        40,
        [envelope("chat", {"text": "hi"}, id="x" * 40)],
        envelope("chat", {"text": "hi"}, id="x" * 41),
    ),
}
SIZES = {"stream_metadata_bytes", "schema_bytes", "id_bytes"}


def limited(space: str, *participants: str, **limits: float) -> dict[str, Any]:
    return space_config(*(participants or PEOPLE), space=space, mewstream={"limits": limits, **AT_ONCE})


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """A space for each limit, so that none is in the way of another."""
    spaces = [
        limited(f"{transport}:{name}", **{name: value})
        for name, (value, _, _) in STEPS.items()
        for transport in ("socket", "http")
    ]
    spaces += [
        limited("full", participants_per_space=2),
        limited("bytes", message_bytes=2_000),
        limited("bytes-of-ids", id_bytes=40),
        limited("envelopes", envelopes_per_second=20),
        limited("frames", frames_per_second=20),
        limited("volume", bytes_per_second=30_000),
        limited("burst-envelopes", envelopes_per_second=5),
        limited("burst-frames", frames_per_second=5),
        limited("http-rate", *PEOPLE, "dave", envelopes_per_second=3),
    ]
    with running_gateway({"spaces": spaces, "gateway": {"drain_seconds": 0.2}}) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def small() -> Iterator[GatewayProcess]:
    """A gateway whose only space takes small messages only."""
    with running_gateway(limited("small", message_bytes=2_000)) as gateway:
        yield gateway


@contextlib.asynccontextmanager
async def joined(gateway: GatewayProcess, space: str, *participants: str) -> AsyncIterator[list[Client]]:
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for participant in participants:
            client = await gateway.join(participant, space=space)
            stack.push_async_callback(client.close)
            client.participant = f"{participant}-{next(_numbers)}"
            clients.append(client)
        yield clients


def is_refused_invitation(message: Any) -> bool:
    """It says the same as the error before it, to those who know only that."""
    return bool(message["kind"] == "space/invite-ack" and message["payload"]["status"] == "error")


def chat_of(size: int) -> str:
    empty = json.dumps({"kind": "chat", "payload": {"text": ""}})
    return json.dumps({"kind": "chat", "payload": {"text": "x" * (size - len(empty))}})


class TestNumbers:
    @pytest.mark.parametrize("limit", STEPS)
    async def test_over_the_socket(self, gateway: GatewayProcess, limit: str) -> None:
        _, within, beyond = STEPS[limit]
        async with joined(gateway, f"socket:{limit}", *PEOPLE) as (alice, *_):
            for each in within:
                await alice.send_raw(json.dumps(each))
            told = await alice.settle()
            assert "system/error" not in [each["kind"] for each in told if isinstance(each, dict)], told
            await alice.send_raw(json.dumps(beyond))
            error = await alice.error("limit_exceeded")
            assert error["payload"]["limit"] == limit
            more = [each for each in await alice.settle() if not is_refused_invitation(each)]
            assert more == [], "nothing came of it"

    @pytest.mark.parametrize("limit", STEPS)
    async def test_over_http(self, gateway: GatewayProcess, limit: str) -> None:
        space = f"http:{limit}"
        _, within, beyond = STEPS[limit]
        async with joined(gateway, space, *PEOPLE):
            for each in within:
                status, answer = await gateway.post("alice", each, space=space)
                assert status == 200, answer
            status, answer = await gateway.post("alice", beyond, space=space)
            assert (answer["payload"]["error"], answer["payload"]["limit"]) == ("limit_exceeded", limit)
            assert status in (413, 429)

    @pytest.mark.parametrize("limit", sorted(SIZES))
    async def test_what_is_too_large_is_413(self, gateway: GatewayProcess, limit: str) -> None:
        """WIRE, "HTTP": 413 too large. Waiting, as 429 asks for, does not make it smaller."""
        status, _ = await gateway.post("alice", STEPS[limit][2], space=f"http:{limit}")
        assert status == 413

    async def test_a_stream_that_ended_makes_room(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "socket:streams_per_participant", "bob") as (bob,):
            for _ in range(3):
                stream = await bob.open_stream()
                await bob.send("stream/request", {})
                await bob.error("limit_exceeded")
                await bob.send("stream/close", {"stream_id": stream})
                await bob.receive("stream/close")

    async def test_ids_are_counted_in_bytes(self, gateway: GatewayProcess) -> None:
        """``policy.Limits.id_bytes``: in UTF-8."""
        async with joined(gateway, "bytes-of-ids", "alice") as (alice,):
            await alice.send("chat", {"text": "within"}, id="é" * 20)
            await alice.receive("chat", text="within")
            await alice.send("chat", {"text": "beyond"}, id="é" * 21)
            error = await alice.error("limit_exceeded", timeout=3)
            assert error["payload"]["limit"] == "id_bytes"

    async def test_a_space_that_is_full(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "full", "alice", "bob") as (alice, bob):
            carol = await Client.connect(gateway.ws_url)
            join = {"type": "join", "participantId": "carol", "space": "full", "token": "token-of-carol"}
            await carol.send_raw(json.dumps(join))
            error = await carol.error("limit_exceeded")
            assert error["payload"]["limit"] == "participants_per_space"
            assert await carol.closed() == 4005
            assert len(carol.got) == 1
            await alice.settle()
            assert "carol" not in json.dumps(alice.got[1:]), "nobody is told of her"
            # Whoever is in may come back, and a place that is given up can be taken.
            again = await gateway.join("bob", space="full")
            assert await bob.closed() == 4502
            await again.close()
            late = await gateway.join("carol", space="full")
            await late.close()


class TestMessageBytes:
    @pytest.mark.parametrize("shape", ["envelope", "frame", "fragments"])
    async def test_a_message_that_is_too_large(self, gateway: GatewayProcess, shape: str) -> None:
        async with joined(gateway, "bytes", "alice", "bob") as (alice, bob):
            await self.exceed(alice, shape)
            left = await bob.receive("system/presence", event="leave")
            assert left["payload"]["participant"]["id"] == "alice"

    @pytest.mark.parametrize("shape", ["envelope", "frame", "fragments"])
    async def test_in_the_space_with_the_largest_limit(self, small: GatewayProcess, shape: str) -> None:
        """The library that parses frames has a limit too; the client must be told all the same."""
        alice = await small.join("alice")
        alice.participant = f"alice-{next(_numbers)}"
        await self.exceed(alice, shape)

    async def exceed(self, alice: Client, shape: str) -> None:
        await alice.send_raw(chat_of(2_000))
        await alice.receive("chat")
        if shape == "envelope":
            await alice.send_raw(chat_of(2_001))
        elif shape == "frame":
            await alice.send_raw(b"#s#" + bytes(1_998))
        else:
            await alice.connection.send([chat_of(2_001)[:1_000], chat_of(2_001)[1_000:]])
        assert await alice.closed() == 1009
        told = [each for each in alice.got if isinstance(each, dict) and each["kind"] == "system/error"]
        assert [each["payload"].get("limit") for each in told] == ["message_bytes"]
        assert "2000" in told[0]["payload"]["message"]


class TestRates:
    """The rate is for a connection: reading from it pauses, and nothing is refused or lost."""

    COUNT = 60

    @pytest.mark.parametrize(("space", "least"), [("envelopes", 2.0), ("volume", 1.0)])
    async def test_envelopes_slow_down(self, gateway: GatewayProcess, space: str, least: float) -> None:
        async with joined(gateway, space, "alice", "bob") as (alice, bob):
            started = await self.time_of(alice, "start")
            for number in range(self.COUNT):
                await alice.send("chat", {"text": str(number), "padding": "x" * 1_000})
            await bob.settle()
            for client in (alice, bob):
                await client.wait_for(lambda each: _is_chat(each, "alice", str(self.COUNT - 1)), timeout=30)
                texts = [each["payload"]["text"] for each in client.got if _is_chat(each, "alice")]
                assert texts == ["start", *(str(number) for number in range(self.COUNT))]
            assert await self.time_of(alice, "end") - started > 0.8 * least
            assert "system/error" not in [each["kind"] for each in alice.got if isinstance(each, dict)]

    @pytest.mark.parametrize(("space", "least"), [("frames", 2.0), ("volume", 1.0)])
    @pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
    async def test_frames_slow_down(self, gateway: GatewayProcess, space: str, least: float, binary: bool) -> None:
        async with joined(gateway, space, "alice", "bob") as (alice, bob):
            stream = await alice.open_stream()
            started = await self.time_of(alice, "start")
            frames = [f"{number:04}" + "x" * 1_000 for number in range(self.COUNT)]
            for frame in frames:
                await alice.frame(stream, frame.encode() if binary else frame)
            for client in (alice, bob):
                got = [await client.receive_frame(stream, timeout=30) for _ in range(self.COUNT)]
                assert [each.decode() if isinstance(each, bytes) else each for each in got] == frames
            assert await self.time_of(alice, "end") - started > 0.8 * least
            assert "system/error" not in [each["kind"] for each in alice.got if isinstance(each, dict)]

    async def time_of(self, client: Client, text: str) -> float:
        """When the gateway took in a chat, by its own clock. At the end of a burst that is not before the
        rate allows for all of it; a slow machine can only make it later."""
        await client.send("chat", {"text": text})
        echo = await client.receive("chat", text=text, timeout=30)
        return datetime.fromisoformat(echo["ts"]).timestamp()

    @pytest.mark.parametrize("what", ["envelopes", "frames"])
    async def test_a_long_burst_of_small_messages_is_not_refused(self, gateway: GatewayProcess, what: str) -> None:
        """Decision 19: rates slow the sender down before anything is refused. A pause must last as long as
        all of what was read is worth, however many messages one read has brought."""
        async with joined(gateway, f"burst-{what}", "alice") as (alice,):
            stream = await alice.open_stream()
            for number in range(1_000):
                if what == "envelopes":
                    await alice.send_raw(f'{{"kind":"chat","payload":{{"text":"{number}"}}}}')
                else:
                    await alice.frame(stream, str(number))
            refused = None
            with contextlib.suppress(AssertionError):
                refused = await alice.receive("system/error", timeout=3)
            alice.connection.transport.abort()
            assert refused is None, refused

    async def test_over_http_the_sender_is_told_to_wait(self, gateway: GatewayProcess) -> None:
        status, answer = await self.post(gateway, "alice")
        for _ in range(50):
            if status != 200:
                break
            status, answer = await self.post(gateway, "alice")
        assert status == 429
        assert answer["kind"] == "system/error"
        payload = answer["payload"]
        assert (payload["error"], payload["limit"]) == ("limit_exceeded", "envelopes_per_second")
        assert payload["retry_after"] > 0
        await asyncio.sleep(payload["retry_after"] + 0.5)
        assert (await self.post(gateway, "alice"))[0] == 200, "who waited as told gets through"

    async def test_the_rate_is_of_one_participant(self, gateway: GatewayProcess) -> None:
        statuses = [(await self.post(gateway, "bob"))[0] for _ in range(20)]
        assert statuses[-1] == 429
        assert (await self.post(gateway, "carol"))[0] == 200

    async def test_who_asks_too_often_is_served_at_the_rate(self, gateway: GatewayProcess) -> None:
        """A refusal must not cost what a message costs, or an impatient client is never served again."""
        statuses = []
        for _ in range(60):
            statuses.append((await self.post(gateway, "dave"))[0])
            await asyncio.sleep(0.05)
        assert set(statuses) <= {200, 429}
        assert statuses[20:].count(200) > 0

    async def post(self, gateway: GatewayProcess, participant: str) -> tuple[int, Message]:
        return await gateway.post(participant, envelope("chat", {"text": "hi"}), space="http-rate")


def _is_chat(message: Any, sender: str, text: str | None = None) -> bool:
    if not isinstance(message, dict) or message["kind"] != "chat" or message["from"] != sender:
        return False
    return text is None or bool(message["payload"]["text"] == text)
