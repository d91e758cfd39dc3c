"""Participants without a socket: what they would receive is appended to a file (WIRE, "space.yaml")."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import TIMEOUT, GatewayProcess, Message, joined, running_gateway, space_config


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    """``robot`` is always there, ``mute`` as well but without a file, ``visitor`` comes with its first POST."""
    config = space_config("alice", "bob", "robot", "mute", "visitor")
    config["participants"]["robot"] |= {"auto_connect": True, "output_log": "logs/robot.jsonl"}
    config["participants"]["mute"] |= {"auto_connect": True}
    config["participants"]["visitor"] |= {"output_log": "visitor.jsonl"}
    with running_gateway(config) as gateway:
        yield gateway


def robot_log(gateway: GatewayProcess) -> Path:
    return gateway.directory / "logs" / "robot.jsonl"


def visitor_log(gateway: GatewayProcess) -> Path:
    return gateway.directory / "visitor.jsonl"


def lines_of(path: Path) -> list[Message]:
    if not path.exists():
        return []
    text = path.read_text()
    assert not text or text.endswith("\n"), "whole lines only"
    lines = [json.loads(line) for line in text.splitlines()]
    for line, decoded in zip(text.splitlines(), lines, strict=True):
        assert line == json.dumps(decoded, separators=(",", ":"), ensure_ascii=False), "compact"
    return lines


async def until(path: Path, accept: Callable[[list[Message]], Any]) -> list[Message]:
    async with asyncio.timeout(TIMEOUT):
        while True:
            if accept(lines := lines_of(path)):
                return lines
            await asyncio.sleep(0.01)


def texts(lines: list[Message]) -> list[str]:
    return [each["payload"]["text"] for each in lines if each["kind"] == "chat"]


async def test_who_auto_connects_is_present_from_the_start(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as (alice,):
        present = [each["id"] for each in alice.welcome["payload"]["participants"]]
        assert sorted(present) == ["mute", "robot"]
    (welcome,) = (await until(robot_log(gateway), len))[:1]
    assert welcome["kind"] == "system/welcome"
    assert welcome["to"] == ["robot"]
    assert welcome["payload"]["you"]["id"] == "robot"
    _, answer = await gateway.http("GET", "/participants", "alice")
    connected = {each["id"] for each in answer["participants"] if each["connected"]}
    assert connected == {"mute", "robot"}
    assert (await gateway.http("GET", "/health"))[1]["clients"] == 2


async def test_the_log_is_what_a_socket_would_have_got(gateway: GatewayProcess) -> None:
    async with joined(gateway, "bob") as (bob,):
        async with joined(gateway, "alice") as (alice,):
            stream = await alice.open_stream(description="x")
            await alice.send("chat", {"text": "héllo"}, to=["bob"])
            await alice.send("chat", {})
            await alice.error("validation_error")
            await alice.send("stream/close", {"stream_id": stream})
            await alice.receive("stream/close")
        await bob.receive("system/presence", event="leave")
        marker = await bob.send("chat", {"text": "end"})
        await bob.receive("chat", text="end")
        lines = await until(robot_log(gateway), lambda lines: any(each.get("id") == marker for each in lines))
        seen_by_bob = bob.got[1:]
        assert lines[-len(seen_by_bob) :] == seen_by_bob
        assert "system/error" not in [each["kind"] for each in lines], "that was private to alice"


async def test_frames_are_lines_with_text_or_base64(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as (alice,):
        stream = await alice.open_stream()
        await alice.frame(stream, "text #with# hashes, é and \n a line")
        await alice.frame(stream, b"\x00\xff#\n")
        await alice.frame(stream, "")
        data = {"stream": {"stream_id": stream}, "sequence": 1, "content": {"a": [1]}}
        await alice.send("stream/data", data)
        await alice.receive("stream/data")
    lines = await until(robot_log(gateway), lambda lines: any(each["kind"] == "stream/data" for each in lines))
    frames = [each for each in lines if each["kind"] == "frame"]
    assert [each["stream_id"] for each in frames] == [stream] * 3
    assert [each["from"] for each in frames] == ["alice"] * 3
    assert frames[0]["data"] == "text #with# hashes, é and \n a line"
    assert base64.b64decode(frames[1]["data_base64"]) == b"\x00\xff#\n"
    assert frames[2]["data"] == ""
    (envelope,) = [each for each in lines if each["kind"] == "stream/data"]
    assert envelope["payload"]["content"] == {"a": [1]}


async def test_frames_of_a_targeted_stream_are_for_its_readers(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as (alice,):
        for target in ("bob", "robot"):
            stream = await alice.open_stream(target=[target])
            await alice.frame(stream, f"for {target}")
        await alice.send("chat", {"text": "end"})
        await alice.receive("chat", text="end")
    lines = await until(robot_log(gateway), texts)
    assert [each["data"] for each in lines if each["kind"] == "frame"] == ["for robot"]


@pytest.mark.parametrize("how", ["truncate", "remove", "replace"])
async def test_the_file_may_change_from_outside(gateway: GatewayProcess, how: str) -> None:
    path = robot_log(gateway)
    async with joined(gateway, "alice") as (alice,):
        await alice.send("chat", {"text": "before"})
        await until(path, lambda lines: "before" in texts(lines))
        if how == "truncate":
            with path.open("r+") as file:
                file.truncate(0)
        elif how == "remove":
            path.unlink()
        else:
            path.rename(path.with_suffix(".1"))
        await alice.send("chat", {"text": "after"})
        lines = await until(path, texts)
        assert texts(lines) == ["after"]
        assert b"\0" not in path.read_bytes()


async def test_one_with_only_an_output_log_comes_with_its_first_post(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as (alice,):
        assert "visitor" not in [each["id"] for each in alice.welcome["payload"]["participants"]]
        assert not visitor_log(gateway).exists()
        status, _ = await gateway.post("visitor", {"kind": "chat", "payload": {"text": "here I am"}})
        assert status == 200
        presence = await alice.receive("system/presence")
        assert presence["payload"]["event"] == "join"
        assert presence["payload"]["participant"]["id"] == "visitor"
        assert (await alice.receive("chat"))["from"] == "visitor", "after the presence"

        await gateway.post("visitor", {"kind": "chat", "payload": {"text": "again"}})
        await alice.send("chat", {"text": "hello visitor"})
        lines = await until(visitor_log(gateway), lambda lines: "hello visitor" in texts(lines))
        assert [each["kind"] for each in lines] == ["system/welcome", "chat", "chat", "chat"]
        assert lines[0]["to"] == ["visitor"]
        assert texts(lines) == ["here I am", "again", "hello visitor"], "the own as well: an echo"


async def test_a_participant_of_a_log_has_rights_like_any_other(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as (alice,):
        stream = await alice.open_stream()
        id = await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "robot"})
        await alice.receive("stream/write-granted", of=id)
        data = {"stream": {"stream_id": stream}, "sequence": 1, "content": 5}
        status, _ = await gateway.post("robot", {"kind": "stream/data", "payload": data})
        assert status == 200
        assert (await alice.receive("stream/data"))["from"] == "robot"
        status, _ = await gateway.post("mute", {"kind": "chat", "payload": {"text": "without a file"}})
        assert status == 200
        assert (await alice.receive("chat"))["from"] == "mute"


async def test_a_refusal_is_told_in_the_log_too(gateway: GatewayProcess) -> None:
    status, answer = await gateway.post("robot", {"kind": "chat", "payload": {}})
    assert status == 400
    lines = await until(robot_log(gateway), lambda lines: lines[-1:] and lines[-1]["kind"] == "system/error")
    assert lines[-1]["payload"] == answer["payload"]


async def test_a_socket_takes_over_and_the_log_goes_on_after_it(gateway: GatewayProcess) -> None:
    path = robot_log(gateway)
    async with joined(gateway, "alice") as (alice,):
        stream = await alice.open_stream()
        id = await alice.send("stream/grant-write", {"stream_id": stream, "participant_id": "robot"})
        await alice.receive("stream/write-granted", of=id)
        await until(path, lambda lines: lines[-1]["kind"] == "stream/write-granted")

        robot = await gateway.join("robot")
        before = lines_of(path)
        await alice.send("chat", {"text": "by socket"})
        assert (await robot.receive("chat"))["payload"]["text"] == "by socket"
        await robot.frame(stream, "robot writes")
        assert await alice.receive_frame(stream) == "robot writes"
        assert lines_of(path) == before, "the log has stopped"

        await robot.close()
        await alice.send("chat", {"text": "by log again"})
        lines = await until(path, lambda lines: "by log again" in texts(lines))
        assert [each["kind"] for each in lines[len(before) :]] == ["system/welcome", "chat"]
        assert {"kind": f"stream/write:{stream}"} in lines[len(before)]["payload"]["you"]["capabilities"]
        await alice.receive("chat", text="by log again")
        assert "system/presence" not in [each["kind"] for each in alice.got if isinstance(each, dict)]
        assert "stream/write-revoked" not in [each["kind"] for each in alice.got if isinstance(each, dict)]


async def test_without_auto_connect_the_end_of_the_socket_is_a_leave(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as (alice,):
        await gateway.post("visitor", {"kind": "chat", "payload": {"text": "by log"}})
        visitor = await gateway.join("visitor")
        await visitor.close()
        left = await alice.receive("system/presence", event="leave")
        assert left["payload"]["participant"] == {"id": "visitor"}
        before = lines_of(visitor_log(gateway))
        await alice.send("chat", {"text": "nobody reads this"})
        await alice.receive("chat", text="nobody reads this")
        assert lines_of(visitor_log(gateway)) == before
        # And it may come back in the same way.
        await gateway.post("visitor", {"kind": "chat", "payload": {"text": "back"}})
        await alice.receive("system/presence", event="join")
        lines = await until(visitor_log(gateway), lambda lines: "back" in texts(lines))
        assert [each["kind"] for each in lines[len(before) :]] == ["system/welcome", "chat"]


async def test_one_that_was_kicked_gets_nothing_more(gateway: GatewayProcess) -> None:
    async with joined(gateway, "alice") as (alice,):
        await alice.send("space/kick", {"participant_id": "robot"})
        await alice.receive("system/presence", event="leave")
        before = await until(robot_log(gateway), lambda lines: lines[-1]["kind"] == "space/kick")
        await alice.send("chat", {"text": "after the kick"})
        await alice.receive("chat")
        assert lines_of(robot_log(gateway)) == before


async def test_a_file_that_cannot_be_written_disturbs_nobody(gateway: GatewayProcess) -> None:
    path = visitor_log(gateway)
    path.mkdir()
    async with joined(gateway, "alice") as (alice,):
        for number in range(3):
            status, _ = await gateway.post("visitor", {"kind": "chat", "payload": {"text": str(number)}})
            assert status == 200
            await alice.receive("chat", text=str(number))
        assert gateway.log.read_text().count("cannot write") == 1, "it is said once"
        path.rmdir()
        await alice.send("chat", {"text": "writable again"})
        await until(path, lambda lines: texts(lines)[-1:] == ["writable again"])


@pytest.mark.parametrize("name", [".mew/space.yaml", "space.yaml"])
async def test_its_path_starts_at_the_workspace_wherever_the_gateway_is_started(tmp_path: Path, name: str) -> None:
    workspace, elsewhere = tmp_path / "workspace", tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = workspace / name
    file.parent.mkdir(parents=True)
    config = space_config("alice", "robot")
    config["participants"]["robot"] |= {"auto_connect": True, "output_log": "logs/robot.jsonl"}
    file.write_text(yaml.safe_dump(config))
    gateway = GatewayProcess(elsewhere, options=("--config", f"../workspace/{name}")).start()
    try:
        async with joined(gateway, "alice") as (alice,):
            await alice.send("chat", {"text": "hello robot"})
            await until(workspace / "logs" / "robot.jsonl", lambda lines: texts(lines) == ["hello robot"])
    finally:
        gateway.stop()
    assert [each.name for each in elsewhere.iterdir()] == ["gateway.log"]
