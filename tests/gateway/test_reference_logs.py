"""The envelope history for tools of the reference gateway (WIRE, "space.yaml", last paragraph)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    assert rejected["metadata"]["error"] == rejected["metadata"]["reason"] == "capability_violation"
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


@pytest.mark.parametrize("name", [".mew/space.yaml", "space.yaml"])
async def test_the_files_are_below_the_workspace_wherever_the_gateway_is_started(tmp_path: Path, name: str) -> None:
    workspace, elsewhere = tmp_path / "workspace", tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = workspace / name
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(space_config("alice", gateway_logging=ON)))
    gateway = GatewayProcess(elsewhere, options=("--config", str(file))).start()
    try:
        async with joined(gateway, "alice") as (alice,):
            id = await chat(alice)
    finally:
        gateway.stop()
    assert [each.name for each in elsewhere.iterdir()] == ["gateway.log"]
    assert id in (workspace / HISTORY).read_text()
    assert id in (workspace / DECISIONS).read_text()


async def test_each_space_logs_below_its_own_workspace(tmp_path: Path) -> None:
    """Those that share a workspace share the files."""
    files = [
        tmp_path / "lobby" / ".mew" / "space.yaml",
        tmp_path / "arena" / "space.yaml",
        tmp_path / "arena" / "2.yaml",
    ]
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(space_config("alice", space=f"space-{number}", gateway_logging=ON)))
    options = [word for file in files for word in ("--config", str(file))]
    gateway = GatewayProcess(tmp_path, options=tuple(options)).start()
    try:
        for number in range(3):
            async with joined(gateway, "alice", space=f"space-{number}") as (alice,):
                await chat(alice)
    finally:
        gateway.stop()
    assert not (tmp_path / ".mew").exists()
    for name in (HISTORY, DECISIONS):
        logged = {
            directory: {json.loads(line)["space_id"] for line in (tmp_path / directory / name).read_text().splitlines()}
            for directory in ("lobby", "arena")
        }
        assert logged == {"lobby": {"space-0"}, "arena": {"space-1", "space-2"}}


# -- capability decisions -------------------------------------------------------------------------


DECISION_KEYS = [
    *("timestamp", "event", "envelope_id", "participant", "space_id", "result", "required_capability"),
    *("matched_capability", "matched_source", "granted_capabilities", "metadata"),
]


@contextlib.contextmanager
def judged(ours: dict[str, Any] | None = None, **capabilities: list[Any]) -> Iterator[GatewayProcess]:
    """``alice`` may do everything, the others what is said."""
    built = space_config("alice", *capabilities, capabilities=capabilities, gateway_logging=ON, mewstream=ours or {})
    with running_gateway(built) as gateway:
        yield gateway


async def decisions_about(gateway: GatewayProcess, *ids: str) -> list[Message]:
    """Of these envelopes, when the last of them is in the file."""

    def found(entries: list[Message]) -> list[Message]:
        return [each for each in entries if each.get("envelope_id") in ids]

    entries = await until(gateway, lambda each: found(each) and found(each)[-1]["envelope_id"] == ids[-1], DECISIONS)
    for entry in entries:
        assert list(entry) == [key for key in DECISION_KEYS if key in entry], "in this order"
        assert entry["event"] == "capability_check"
        assert entry["space_id"] == "demo"
        assert datetime.fromisoformat(entry["timestamp"]).tzinfo is not None
    return found(entries)


def told(entry: Message) -> tuple[Any, ...]:
    return entry["result"], entry["required_capability"], entry.get("matched_capability"), entry.get("matched_source")


async def test_a_check_says_what_was_required_and_what_matched() -> None:
    tools = {"kind": "mcp/*", "payload": {"method": "tools/*"}}
    with judged(bob=[{"kind": "chat"}, tools]) as gateway:
        async with joined(gateway, "bob") as (bob,):
            chatted = await chat(bob)
            allowed = await bob.send("mcp/request", {"method": "tools/list"}, correlation_id=["p-1"])
            refused = await bob.send("mcp/request", {"method": "prompts/list"})
            await bob.error("capability_violation", of=refused)
        entries = await decisions_about(gateway, chatted, allowed, refused)
    assert [told(each) for each in entries] == [
        ("allowed", "chat", {"kind": "chat"}, "static"),
        ("allowed", "mcp/request", tools, "static"),
        ("denied", "mcp/request", None, None),
    ]
    assert list(entries[0]) == DECISION_KEYS
    for entry in entries:
        assert entry["participant"] == "bob"
        assert entry["granted_capabilities"] == [{"kind": "chat"}, tools]
        assert entry["metadata"]["source"] == entry["metadata"]["transport"] == "websocket"
    assert "correlation_id" not in entries[0]["metadata"]
    assert entries[1]["metadata"]["correlation_id"] == ["p-1"]


async def test_what_was_granted_at_run_time_is_dynamic() -> None:
    with judged(bob=[{"kind": "chat"}]) as gateway:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            grant = {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]}
            granted = await alice.send("capability/grant", grant)
            await bob.receive("capability/grant")
            asked = await bob.send("mcp/request", {"method": "x"})
            await alice.receive("mcp/request")
        entries = await decisions_about(gateway, granted, asked)
    assert [told(each) for each in entries] == [
        ("allowed", "capability/grant", {"kind": "*"}, "static"),
        ("allowed", "mcp/request", {"kind": "mcp/request"}, "dynamic"),
    ]
    assert entries[1]["granted_capabilities"] == [{"kind": "chat"}, {"kind": "mcp/request"}]


async def test_what_needs_no_capability_is_implicit() -> None:
    with judged(bob=[]) as gateway:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            answered = await bob.send("mcp/response", {"result": 1}, correlation_id=["r-1"])
            acknowledged = await bob.send("capability/grant-ack", {"status": "accepted"}, correlation_id=["g-1"])
            stream = await alice.open_stream()
            given = await alice.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": "bob"})
            await bob.receive("stream/ownership-transferred")
            granted = await bob.send("stream/grant-write", {"stream_id": stream, "participant_id": "alice"})
            await alice.receive("stream/write-granted")
            closed = await bob.send("stream/close", {"stream_id": stream})
            await alice.receive("stream/close")
        entries = await decisions_about(gateway, answered, acknowledged, given, granted, closed)
    assert [told(each) for each in entries] == [
        ("allowed", "mcp/response", {"kind": "mcp/response"}, "implicit"),
        ("allowed", "capability/grant-ack", {"kind": "capability/grant-ack"}, "implicit"),
        *(
            ("allowed", kind, {"kind": kind, "payload": {"stream_id": stream}}, "implicit")
            for kind in ("stream/transfer-ownership", "stream/grant-write", "stream/close")
        ),
    ]
    assert entries[0]["granted_capabilities"] == []


async def test_a_check_of_another_kind_than_the_message() -> None:
    announcing, managing = [{"kind": "stream/manage"}], [{"kind": "space/manage-streams"}]
    with judged(bob=announcing, manager=managing, guest=[{"kind": "chat"}]) as gateway:
        async with joined(gateway, "bob", "manager", "guest") as (bob, manager, guest):
            announced = await bob.send("stream/announce", {"intent": "test"})
            ready = await bob.receive("stream/ready")
            stream = ready["payload"]["stream"]["stream_id"]
            refused = await guest.send("stream/announce", {"intent": "test"})
            await guest.error("capability_violation", of=refused)
            taken = await guest.send("stream/close", {"stream_id": stream})
            await guest.error("unauthorized", of=taken)
            started = await guest.send("stream/start", {"stream": {"stream_id": stream}})
            await guest.error("unauthorized", of=started)
            closed = await manager.send("stream/close", {"stream_id": stream})
            await bob.receive("stream/close")
        entries = await decisions_about(gateway, announced, refused, taken, started, closed)
    assert [(each["participant"], *told(each)) for each in entries] == [
        ("bob", "allowed", "stream/manage", {"kind": "stream/manage"}, "static"),
        ("guest", "denied", "stream/manage", None, None),
        ("guest", "denied", "space/manage-streams", None, None),
        ("guest", "denied", "stream/start", None, None),
        ("manager", "allowed", "space/manage-streams", {"kind": "space/manage-streams"}, "static"),
    ]


async def test_one_who_gives_what_it_does_not_hold_may_grant_and_is_refused() -> None:
    with judged(bob=[{"kind": "capability/*"}]) as gateway:
        async with joined(gateway, "alice", "bob") as (_, bob):
            grant = {"recipient": "alice", "capabilities": [{"kind": "space/kick"}]}
            refused = await bob.send("capability/grant", grant)
            await bob.error("capability_violation", of=refused)
        entries = await decisions_about(gateway, refused)
    assert [told(each) for each in entries] == [
        ("allowed", "capability/grant", {"kind": "capability/*"}, "static"),
        ("denied", "space/kick", None, None),
    ]


async def test_a_refusal_for_another_reason_is_no_denial() -> None:
    """Checks come in an order: where the other participant is absent, the capability was there."""
    with judged(bob=[{"kind": "space/kick"}]) as gateway:
        async with joined(gateway, "bob") as (bob,):
            absent = await bob.send("space/kick", {"participant_id": "alice"})
            await bob.error("participant_not_found", of=absent)
            malformed = await bob.send("space/kick", {})
            await bob.error("validation_error", of=malformed)
            forged = await bob.send("system/welcome", {})
            await bob.error("reserved_kind", of=forged)
            last = await bob.send("mcp/response", {})
            await bob.receive("mcp/response")
        entries = await decisions_about(gateway, absent, malformed, forged, last)
    assert [(each["envelope_id"], *told(each)[:2]) for each in entries] == [
        (absent, "allowed", "space/kick"),
        (last, "allowed", "mcp/response"),
    ]


async def test_denials_managers_and_proposals() -> None:
    """A denial is told under the name of the kind, and what one manages by the pattern that allows it."""
    only = {"kind": "space/manage-streams", "payload": {"stream_id": "stream-1"}}
    own = [
        {"kind": kind} for kind in ("stream/manage", "!stream/announce", "space/invite", "mcp/withdraw", "mcp/proposal")
    ]
    with judged(bob=[*own, only]) as gateway:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            await alice.open_stream()
            announced = await bob.send("stream/announce", {})
            await bob.error("capability_violation", of=announced)
            closed = await bob.send("stream/close", {"stream_id": "stream-1"})
            await bob.receive("stream/close")
            invited = await bob.send("space/invite", {"participant_id": "alice"})
            await bob.error("already_exists", of=invited)
            proposal = await alice.send("mcp/proposal", {"method": "x"})
            await bob.receive("mcp/proposal")
            withdrawn = await bob.send("mcp/withdraw", {}, correlation_id=[proposal])
            await bob.error("unauthorized", of=withdrawn)
        entries = await decisions_about(gateway, announced, closed, invited, withdrawn)
    assert [told(each) for each in entries] == [
        ("denied", "stream/announce", None, None),
        ("allowed", "space/manage-streams", only, "static"),
        ("allowed", "space/invite", {"kind": "space/invite"}, "static"),
        ("allowed", "mcp/withdraw", {"kind": "mcp/withdraw"}, "static"),
    ]


async def test_over_http_the_source_is_the_api() -> None:
    with judged() as gateway:
        await gateway.post("alice", {"id": "posted", "kind": "chat", "payload": {"text": "hi"}})
        (entry,) = await decisions_about(gateway, "posted")
    assert entry["metadata"] == {"source": "http_api", "transport": "http"}


async def test_frames_are_not_among_the_decisions() -> None:
    with judged(bob=[{"kind": "chat"}]) as gateway:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            stream = await alice.open_stream()
            await alice.frame(stream, "x")
            data = {"stream": {"stream_id": stream}, "sequence": 1, "content": 1}
            await alice.send("stream/data", data)
            await bob.frame(stream, "y")
            await bob.error("unauthorized_stream_write")
            refused = await bob.send("stream/data", data)
            await bob.error("unauthorized_stream_write", of=refused)
            await chat(bob)
        entries = await until(gateway, lambda each: each and each[-1]["required_capability"] == "chat", DECISIONS)
    assert [each["required_capability"] for each in entries] == ["stream/request", "chat"]


async def test_an_entry_is_bounded_however_long_the_lists_are() -> None:
    """Whoever grants chooses how long a list is, and it would be repeated for every message."""
    many = [{"kind": "chat", "payload": {"text": f"{number}-{'x' * 400}"}} for number in range(60)]
    with judged({"limits": {"capability_list_bytes": "64KiB"}}, bob=[*many, {"kind": "mcp/*"}]) as gateway:
        async with joined(gateway, "bob") as (bob,):
            correlated = [f"c-{number}" for number in range(1000)]
            id = await bob.send("mcp/request", {"method": "x"}, correlation_id=correlated)
            await bob.receive("mcp/request")
        (entry,) = await decisions_about(gateway, id)
    assert len(json.dumps(entry)) < 8192
    assert entry["granted_capabilities"] == many[: len(entry["granted_capabilities"])]
    assert told(entry) == ("allowed", "mcp/request", {"kind": "mcp/*"}, "static")


def _has_chat_of(participant: str) -> Callable[[list[Message]], bool]:
    """Everything up to the last chat of somebody is in the file."""

    def accept(entries: list[Message]) -> bool:
        chats = [each for each in entries if each["event"] == "received" and each["envelope"]["kind"] == "chat"]
        return bool(chats) and chats[-1]["participant"] == participant

    return accept
