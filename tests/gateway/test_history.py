"""The envelope history for tools of the reference gateway (WIRE, "space.yaml", last paragraph)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from support import TIMEOUT, Client, GatewayProcess, Message, joined, running_gateway, space_config, token_of

HISTORY = ".mew/logs/envelope-history.jsonl"
DECISIONS = ".mew/logs/capability-decisions.jsonl"
KEYS = ["timestamp", "event", "id", "envelope", "participant", "space_id", "direction", "transport", "metadata"]
ON = {"enabled": True, "envelope_history": {"enabled": True}, "capability_decisions": {"enabled": True}}


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(config(gateway_logging=ON)) as gateway:
        yield gateway


def config(**sections: Any) -> dict[str, Any]:
    built = space_config("alice", "bob", "robot", capabilities={"bob": [{"kind": "chat"}]}, **sections)
    built["participants"]["robot"] |= {"auto_connect": True, "output_log": "robot.jsonl"}
    return built


def entries_of(gateway: GatewayProcess, name: str = HISTORY) -> list[Message]:
    path = gateway.directory / name
    if not path.exists():
        return []
    entries = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        assert line == json.dumps(entry, separators=(",", ":"), ensure_ascii=False), "compact"
        entries.append(entry)
    return entries


async def until(gateway: GatewayProcess, accept: Callable[[list[Message]], Any], name: str = HISTORY) -> list[Message]:
    """It is flushed promptly: nobody has to stop the gateway to read it."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            if accept(entries := entries_of(gateway, name)):
                return entries
            await asyncio.sleep(0.01)


async def chat(client: Client, text: str = "hi") -> str:
    id = await client.send("chat", {"text": text})
    await client.receive("chat", text=text)
    return id


async def test_it_is_off_by_default(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENVELOPE_HISTORY", raising=False)
    with running_gateway(config()) as gateway:
        async with joined(gateway, "alice") as (alice,):
            await chat(alice)
        assert not (gateway.directory / ".mew").exists()


async def test_the_environment_turns_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVELOPE_HISTORY", "true")
    with running_gateway(config()) as gateway:
        async with joined(gateway, "alice") as (alice,):
            id = await chat(alice)
        await until(gateway, lambda entries: any(each["id"] == id for each in entries))
        assert not (gateway.directory / DECISIONS).exists()


async def test_one_received_and_one_delivered_per_recipient(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice", "bob") as (alice, bob):
        id = await chat(alice, "héllo")
        echo = bob_got = await bob.receive("chat")
        await chat(bob, "end")
    entries = [each for each in await until(gateway, _has_chat_of("bob")) if each["id"] == id]
    assert all(list(each) == KEYS for each in entries), "in this order"
    received = [each for each in entries if each["event"] == "received"]
    delivered = [each for each in entries if each["event"] == "delivered"]
    assert len(received) + len(delivered) == len(entries)
    assert [each["participant"] for each in received] == ["alice"]
    assert sorted(each["participant"] for each in delivered) == ["alice", "bob", "robot"]
    for entry in entries:
        assert entry["envelope"] == echo == bob_got
        assert entry["space_id"] == "demo"
        assert datetime.fromisoformat(entry["timestamp"]).tzinfo is not None
        assert isinstance(entry["metadata"], dict)
    assert {each["direction"] for each in received} == {"inbound"}
    assert {each["direction"] for each in delivered} == {"outbound"}
    transports = {each["participant"]: each["transport"] for each in delivered}
    assert transports["alice"] == transports["bob"] == received[0]["transport"] == "websocket"
    assert transports["robot"] != "websocket"


async def test_a_message_is_received_before_it_is_delivered(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as (alice,):
        id = await chat(alice)
    entries = await until(gateway, lambda entries: sum(each["id"] == id for each in entries) == 3)
    assert [each["event"] for each in entries if each["id"] == id] == ["received", "delivered", "delivered"]


async def test_what_was_refused_is_rejected(gateway: GatewayProcess) -> None:
    async with joined(gateway, "bob") as (bob,):
        id = await bob.send("mcp/request", {"method": "x"})
        await bob.error("capability_violation", of=id)
    entries = await until(gateway, lambda entries: any(each["event"] == "rejected" for each in entries))
    (rejected,) = [each for each in entries if each["event"] == "rejected"]
    assert list(rejected) == KEYS
    assert (rejected["id"], rejected["participant"], rejected["direction"]) == (id, "bob", "inbound")
    assert rejected["metadata"]["error"] == "capability_violation"
    told = [each for each in entries if each["event"] == "delivered" and each["envelope"]["kind"] == "system/error"]
    assert [each["participant"] for each in told] == ["bob"]


async def test_the_gateways_own_messages_are_delivered(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice", "bob") as (alice, bob):
        await alice.open_stream()
        await bob.receive("stream/open")
        await chat(alice)
    entries = await until(gateway, _has_chat_of("alice"))
    delivered = {(each["participant"], each["envelope"]["kind"]) for each in entries if each["event"] == "delivered"}
    assert {(who, "stream/open") for who in ("alice", "bob", "robot")} <= delivered
    assert {(who, "system/welcome") for who in ("alice", "bob", "robot")} <= delivered
    assert ("alice", "system/presence") in delivered
    received = [each["envelope"]["kind"] for each in entries if each["event"] == "received"]
    assert set(received) == {"stream/request", "chat"}


async def test_frames_are_not_in_it(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice", "bob") as (alice, bob):
        stream = await alice.open_stream()
        await alice.frame(stream, "frame-text-xyz")
        await alice.frame(stream, b"frame-bytes-xyz")
        await alice.send("stream/data", {"stream": {"stream_id": stream}, "sequence": 1, "content": "data-xyz"})
        await bob.frame(stream, "refused-xyz")
        await bob.error("unauthorized_stream_write")
        await alice.receive("stream/data")
        await chat(alice, "end")
        await chat(bob, "end of bob")
    await until(gateway, _has_chat_of("bob"))
    assert "-xyz" not in (gateway.directory / HISTORY).read_text()


async def test_over_http_the_transport_is_http(gateway: GatewayProcess) -> None:
    status, _ = await gateway.post("bob", {"id": "posted", "kind": "chat", "payload": {"text": "hi"}})
    assert status == 200
    entries = await until(gateway, lambda entries: any(each["event"] == "received" for each in entries))
    assert [each["transport"] for each in entries if each["event"] == "received"] == ["http"]


async def test_also_when_the_sender_has_a_socket(gateway: GatewayProcess) -> None:
    async with joined(gateway, "bob") as (bob,):
        await gateway.post("bob", {"id": "posted", "kind": "chat", "payload": {"text": "hi"}})
        await bob.receive("chat")
    entries = await until(gateway, lambda entries: any(each["event"] == "received" for each in entries))
    assert [each["transport"] for each in entries if each["event"] == "received"] == ["http"]


async def test_no_token_is_in_it(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice", "bob") as (alice, bob):
        tokens = []
        for guest in ("guest", "guest-2"):
            id = await alice.send("space/invite", {"participant_id": guest, "capabilities": [{"kind": "chat"}]})
            tokens.append((await alice.receive("space/invite-ack", of=id))["payload"]["token"])
        await alice.send("space/invite", {"participant_id": "guest-2", "capabilities": [{"kind": "chat"}]}, id=id)
        again = await alice.receive("space/invite-ack", of=id)
        tokens.append(again["payload"]["token"])
        invite = {"kind": "space/invite", "payload": {"participant_id": "guest-3"}}
        _, answer = await gateway.post("alice", invite)
        tokens.append(answer["token"])
        # A client that joins again says its token once more.
        join = {"type": "join", "participantId": "alice", "token": token_of("alice")}
        await alice.send_raw(json.dumps(join))
        await alice.send_raw(json.dumps({"kind": "system/join", "payload": {**join, "extensions": 5}}))
        guest = await Client.connect(gateway.ws_url, additional_headers={"Authorization": f"Bearer {tokens[0]}"})
        await guest.receive("system/welcome")
        await guest.close()
        await chat(bob, "end")
    entries = await until(gateway, _has_chat_of("bob"))
    invites = [each for each in entries if each["event"] == "received" and each["envelope"]["kind"] == "space/invite"]
    assert len(invites) == 3
    for name in (HISTORY, DECISIONS, "gateway.log", "robot.jsonl"):
        text = (gateway.directory / name).read_text()
        assert not [token for token in tokens if token in text], name
        assert "token-of-" not in text, name


async def test_capability_decisions(gateway: GatewayProcess) -> None:
    async with joined(gateway, "bob") as (bob,):
        await chat(bob)
        id = await bob.send("mcp/request", {"method": "x"})
        await bob.error("capability_violation", of=id)
    decisions = await until(gateway, lambda entries: len(entries) >= 2, DECISIONS)
    assert [(each["participant"], each["kind"], each["decision"]) for each in decisions] == [
        ("bob", "chat", "allowed"),
        ("bob", "mcp/request", "denied"),
    ]
    assert decisions[1]["error"] == "capability_violation"
    assert {each["space_id"] for each in decisions} == {"demo"}


async def test_the_file_may_be_rotated(gateway: GatewayProcess) -> None:
    path = gateway.directory / HISTORY
    async with joined(gateway, "alice") as (alice,):
        first = await chat(alice, "first")
        await until(gateway, lambda entries: any(each["id"] == first for each in entries))
        path.rename(path.with_suffix(".1"))
        second = await chat(alice, "second")
        entries = await until(gateway, lambda entries: any(each["id"] == second for each in entries))
        assert all(each["id"] != first for each in entries)


@pytest.mark.parametrize(
    ("logging", "files"),
    [
        ({"enabled": False, "envelope_history": {"enabled": True}}, []),
        (
            {"enabled": True, "envelope_history": {"enabled": False}, "capability_decisions": {"enabled": True}},
            [DECISIONS],
        ),
    ],
)
async def test_each_has_its_own_switch(logging: dict[str, Any], files: list[str]) -> None:
    with running_gateway(config(gateway_logging=logging)) as gateway:
        async with joined(gateway, "alice") as (alice,):
            await chat(alice)
        gateway.stop()
        assert [name for name in (HISTORY, DECISIONS) if (gateway.directory / name).exists()] == files


def _has_chat_of(participant: str) -> Callable[[list[Message]], bool]:
    """Everything up to the last chat of somebody is in the file."""

    def accept(entries: list[Message]) -> bool:
        chats = [each for each in entries if each["event"] == "received" and each["envelope"]["kind"] == "chat"]
        return bool(chats) and chats[-1]["participant"] == participant

    return accept
