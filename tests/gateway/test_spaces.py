"""Several spaces in one gateway: the same names in each, and nothing crosses (WIRE, "space.yaml")."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from support import Client, GatewayProcess, running_gateway, space_config, token_of

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["two files", "one file with a list"])
def gateway(request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    """The same participants with the same tokens in both; ``bob`` may less in the south."""
    documents = [
        space_config("alice", "bob", space="north"),
        space_config("alice", "bob", space="south", capabilities={"bob": [{"kind": "chat"}]}),
    ]
    configs = documents if request.param == "two files" else [{"spaces": documents}]
    with running_gateway(*configs) as gateway:
        yield gateway


@contextlib.asynccontextmanager
async def in_both(gateway: GatewayProcess, *participants: str) -> AsyncIterator[list[Client]]:
    """Each participant in the north, then in the south."""
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for participant in participants:
            for space in ("north", "south"):
                client = await gateway.join(participant, space=space)
                stack.push_async_callback(client.close)
                client.participant = f"{participant}-{next(_numbers)}"
                clients.append(client)
        yield clients


async def test_one_participant_is_in_both_at_the_same_time(gateway: GatewayProcess) -> None:
    async with in_both(gateway, "alice") as (north, south):
        assert north.welcome["payload"]["participants"] == south.welcome["payload"]["participants"] == []
        assert await north.settle() == await south.settle() == []


async def test_envelopes_stay_where_they_were_said(gateway: GatewayProcess) -> None:
    async with in_both(gateway, "alice", "bob") as (alice_north, alice_south, bob_north, bob_south):
        await alice_north.send("chat", {"text": "northern"}, to=["bob"])
        assert (await bob_north.receive("chat"))["payload"]["text"] == "northern"
        assert [each for each in await bob_south.settle() if each["kind"] == "chat"] == []
        assert [each for each in await alice_south.settle() if each["kind"] == "chat"] == []


async def test_presence_stays_too(gateway: GatewayProcess) -> None:
    async with in_both(gateway, "alice") as (north, south):
        bob = await gateway.join("bob", space="north")
        await north.receive("system/presence", event="join")
        await bob.close()
        await north.receive("system/presence", event="leave")
        assert await south.settle() == []


async def test_streams_with_the_same_id_are_different_streams(gateway: GatewayProcess) -> None:
    async with in_both(gateway, "alice", "bob") as (alice_north, alice_south, bob_north, bob_south):
        streams = [await each.open_stream() for each in (alice_north, alice_south)]
        assert streams[0] == streams[1], "both spaces count for themselves"
        (stream, _) = streams
        about = {"stream_id": stream, "participant_id": "bob"}
        await alice_north.send("stream/grant-write", about)
        await bob_north.receive("stream/write-granted")
        await bob_north.frame(stream, "northern frame")
        assert await alice_north.receive_frame(stream) == "northern frame"
        await bob_south.frame(stream, "not granted here")
        error = await bob_south.error("unauthorized_stream_write")
        assert error["payload"]["stream_id"] == stream
        told = await alice_south.settle()
        assert not any(isinstance(each, str) for each in told)
        assert "stream/write-granted" not in [each["kind"] for each in told if isinstance(each, dict)]

        await alice_north.send("stream/close", {"stream_id": stream})
        await alice_north.receive("stream/close")
        await alice_south.frame(stream, "lives on")
        assert await bob_south.receive_frame(stream) == "lives on"
        await alice_south.send("stream/close", {"stream_id": stream})
        await alice_south.receive("stream/close")


async def test_capabilities_are_of_a_space(gateway: GatewayProcess) -> None:
    async with in_both(gateway, "bob") as (north, south):
        assert north.welcome["payload"]["you"]["capabilities"] != south.welcome["payload"]["you"]["capabilities"]
        id = await south.send("mcp/request", {"method": "x"})
        await south.error("capability_violation", of=id)
        await north.send("mcp/request", {"method": "x"})
        await north.receive("mcp/request")


async def test_envelope_ids_are_of_a_space(gateway: GatewayProcess) -> None:
    async with in_both(gateway, "alice") as (north, south):
        id = f"shared-{next(_numbers)}"
        await north.send("chat", {"text": "northern"}, id=id)
        await south.send("chat", {"text": "southern"}, id=id)
        assert (await north.receive("chat"))["payload"]["text"] == "northern"
        assert (await south.receive("chat"))["payload"]["text"] == "southern"


async def test_kicked_from_one_is_still_in_the_other(gateway: GatewayProcess) -> None:
    async with in_both(gateway, "alice", "bob") as (alice_north, _, bob_north, bob_south):
        await alice_north.send("space/kick", {"participant_id": "bob"})
        assert await bob_north.closed() == 4501
        assert await bob_south.settle() == []


async def test_an_invitation_is_for_one_space(gateway: GatewayProcess) -> None:
    guest = f"guest-{next(_numbers)}"
    invite = {"kind": "space/invite", "payload": {"participant_id": guest, "capabilities": [{"kind": "chat"}]}}
    status, answer = await gateway.post("alice", invite, space="north")
    assert status == 200
    assert "space=north" in answer["connection_url"]
    for space, code in (("south", 4500), ("north", None)):
        client = await Client.connect(gateway.ws_url)
        join = {"type": "join", "participantId": guest, "space": space, "token": answer["token"]}
        await client.send_raw(json.dumps(join))
        if code is None:
            await client.receive("system/welcome")
        else:
            assert await client.closed() == code
        await client.close()


async def test_polling_and_lists_are_of_a_space(gateway: GatewayProcess) -> None:
    text = f"only north {next(_numbers)}"

    async def polled(space: str) -> str:
        status, answer = await gateway.http("GET", "/participants/bob/messages", "bob", space=space)
        assert status == 200
        return json.dumps(answer)

    async with in_both(gateway, "bob"):
        status, _ = await gateway.post("alice", {"kind": "chat", "payload": {"text": text}}, space="north")
        assert status == 200
        assert text in await polled("north")
        assert text not in await polled("south")
    async with in_both(gateway, "alice") as (_, south):
        await south.close()
        for space, connected in (("north", True), ("south", False)):
            _, answer = await gateway.http("GET", "/participants", "bob", space=space)
            assert _entry(answer, "alice")["connected"] is connected


async def test_limits_and_numbers_are_of_a_space(gateway: GatewayProcess) -> None:
    async with in_both(gateway, "alice") as (north, south):
        before = south.welcome["payload"]["seq"]
        for _ in range(20):
            await north.send("chat", {"text": "counts in the north"})
        await north.settle()
        await south.close()
        again = await gateway.join("alice", space="south")
        assert again.welcome["payload"]["seq"] == before + 2, "a leave and a join"
        await again.close()


async def test_the_space_must_be_named(gateway: GatewayProcess) -> None:
    client = await Client.connect(gateway.ws_url, additional_headers={"Authorization": f"Bearer {token_of('alice')}"})
    await client.send_raw(json.dumps({"type": "join", "participantId": "alice"}))
    assert await client.closed() == 4504


def _entry(answer: Any, participant: str) -> Any:
    (entry,) = [each for each in answer["participants"] if each["id"] == participant]
    return entry
