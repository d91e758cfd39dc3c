"""Handing over and asking, over real sockets (decision 31)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Client, GatewayProcess, active_stream, joined, running_gateway, space_config

PEOPLE = ("server", "alice", "bob", "carol")
NOTHING: dict[str, list[Any]] = {"alice": [], "bob": [], "carol": [{"kind": "!stream/request-write"}]}
POSITIONS = {"extensions": ["positions"]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(space_config(*PEOPLE, capabilities=NOTHING)) as gateway:
        yield gateway


async def grant(sender: Client, stream: str, participant: str, **fields: Any) -> str:
    return await sender.send("stream/grant-write", {"stream_id": stream, "participant_id": participant, **fields})


async def opened_for(server: Client, *writers: str) -> str:
    stream = await server.open_stream()
    for writer in writers:
        await server.receive("stream/write-granted", of=await grant(server, stream, writer))
    return stream


def rights_told(client: Client) -> list[tuple[str, str, list[str]]]:
    return [
        (each["kind"], each["payload"]["participant_id"], each["payload"]["authorized_writers"])
        for each in client.got
        if isinstance(each, dict) and each["kind"] in ("stream/write-granted", "stream/write-revoked")
    ]


async def test_a_hand_over_while_both_write_leaves_no_moment_with_both_or_none(gateway: GatewayProcess) -> None:
    async with (
        joined(gateway, "server", "alice", "bob") as (server, alice, bob),
        joined(gateway, "carol", **POSITIONS) as (viewer,),
    ):
        stream = await opened_for(server, "alice")

        async def drive(driver: Client) -> None:
            for number in range(300):
                await driver.frame(stream, f"{driver.participant} {number}")
                if number % 20 == 0:
                    await asyncio.sleep(0)

        driving = [asyncio.ensure_future(drive(driver)) for driver in (alice, bob)]
        here, there = "alice", "bob"
        for _ in range(20):
            await server.receive("stream/write-granted", of=await grant(server, stream, there, replaces=here))
            here, there = there, here
        await asyncio.gather(*driving)
        for each in (alice, bob, viewer):
            await each.settle()

        may_write = "alice"
        frames, changes = 0, []
        for each in viewer.got:
            if isinstance(each, str) and each.startswith(f"#{stream}|"):
                _, _, writer = each.split("#")[1].split("|")
                assert writer == may_write
                frames += 1
            elif isinstance(each, dict) and each["kind"] == "stream/write-revoked":
                assert each["payload"]["participant_id"] == may_write
                changes.append(each)
            elif isinstance(each, dict) and each["kind"] == "stream/write-granted" and changes:
                assert each["seq"] == changes[-1]["seq"] + 1, "nothing stands between the revoke and the grant"
                may_write = each["payload"]["participant_id"]
        assert frames >= 1
        assert len(changes) == 20


async def test_both_are_told_correlated_and_a_failure_changes_nothing(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob") as (server, alice, bob):
        stream = await opened_for(server, "alice")
        await bob.settle()
        bob.got.clear()
        for replaces in ("server", "bob", "nobody"):
            id = await grant(server, stream, "bob", replaces=replaces)
            await server.error("invalid_operation", of=id)
        await server.error("participant_not_found", of=await grant(server, stream, "carol", replaces="alice"))
        await alice.error("unauthorized", of=await grant(alice, stream, "bob", replaces="alice"))
        await bob.settle()
        assert rights_told(bob) == []
        id = await grant(server, stream, "bob", replaces="alice", reason="your turn")
        revoked = await bob.receive("stream/write-revoked", of=id, participant_id="alice", replaced_by="bob")
        granted = await bob.receive("stream/write-granted", of=id, participant_id="bob", replaces="alice")
        assert revoked["payload"]["authorized_writers"] == ["server"]
        assert granted["payload"]["authorized_writers"] == ["server", "bob"]
        await alice.frame(stream, "too late")
        await alice.error("unauthorized_stream_write")


async def test_two_who_hand_over_at_once_leave_one_driver(gateway: GatewayProcess) -> None:
    """The second finds that who it wants to replace does not write any more."""
    async with joined(gateway, "server", "alice", "bob") as (server, _, bob):
        stream = await opened_for(server, "alice")
        first = await grant(server, stream, "bob", replaces="alice")
        second = await grant(server, stream, "bob", replaces="alice")
        await server.receive("stream/write-granted", of=first)
        await server.error("invalid_operation", of=second)
        assert (await bob.receive("stream/write-granted", of=first))["payload"]["authorized_writers"] == [
            "server",
            "bob",
        ]


async def test_by_http_the_answer_is_the_grant(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob") as (server, _, bob):
        stream = await opened_for(server, "alice")
        payload = {"stream_id": stream, "participant_id": "bob", "replaces": "alice"}
        status, answer = await gateway.post("server", {"kind": "stream/grant-write", "id": "swap", "payload": payload})
        expected = {"id": "swap", "status": "granted", "stream_id": stream, "authorized_writers": ["server", "bob"]}
        assert (status, answer) == (200, expected)
        await bob.receive("stream/write-granted", of="swap")


async def test_asking_is_told_to_everyone_and_shown_to_who_comes_later(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob") as (server, alice, bob):
        stream = await opened_for(server)
        await alice.send("stream/request-write", {"stream_id": stream, "reason": "my turn"})
        asked = await bob.receive("stream/request-write", stream_id=stream, reason="my turn")
        assert asked["from"] == "alice"
        async with joined(gateway, "carol") as (carol,):
            [wish] = active_stream(carol.welcome, stream)["write_requests"]
            assert wish.pop("ts")
            assert wish == {"participant_id": "alice", "reason": "my turn"}
            await carol.error(
                "capability_violation", of=await carol.send("stream/request-write", {"stream_id": stream})
            )
        id = await server.send(
            "stream/deny-write", {"stream_id": stream, "participant_id": "alice", "reason": "not now"}
        )
        denied = await bob.receive("stream/write-denied", of=id)
        assert denied["payload"]["participant_id"] == "alice"
        assert (denied["payload"]["reason"], denied["payload"]["by"]) == ("not now", "server")
        again = await server.send("stream/deny-write", {"stream_id": stream, "participant_id": "alice"})
        await server.error("invalid_operation", of=again)
        await bob.error(
            "unauthorized", of=await bob.send("stream/deny-write", {"stream_id": stream, "participant_id": "a"})
        )


async def test_a_grant_answers_and_a_leave_ends_it(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob") as (server, alice, bob):
        stream = await opened_for(server)
        for each in (alice, bob):
            await each.send("stream/request-write", {"stream_id": stream})
            await server.receive("stream/request-write")
        await server.receive("stream/write-granted", of=await grant(server, stream, "alice"))
        await alice.error("invalid_operation", of=await alice.send("stream/request-write", {"stream_id": stream}))
        async with joined(gateway, "carol") as (carol,):
            [wish] = active_stream(carol.welcome, stream)["write_requests"]
            assert wish["participant_id"] == "bob"
        await bob.close()
        await server.wait_for(lambda each: _left(each, "bob"))
        async with joined(gateway, "carol") as (carol,):
            assert "write_requests" not in active_stream(carol.welcome, stream)


def _left(message: Any, participant: str) -> bool:
    return (
        isinstance(message, dict)
        and message["kind"] == "system/presence"
        and message["payload"] == {"event": "leave", "participant": {"id": participant}}
    )


async def test_nobody_can_pose_as_the_gateway_that_denies(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server") as (server,):
        await server.error("reserved_kind", of=await server.send("stream/write-denied", {"stream_id": "stream-1"}))


async def test_wishes_and_hand_overs_survive_a_killed_gateway() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        config = space_config(*PEOPLE, mewstream={"policies": {"suspend_for": 60}})
        gateway = GatewayProcess(directory, config, options=("--data", "data")).start()
        try:
            async with joined(gateway, "server", "alice", "bob", "carol") as (server, _, bob, _):
                stream = await opened_for(server, "alice")
                await bob.send("stream/request-write", {"stream_id": stream, "reason": "soon"})
                await server.receive("stream/request-write")
                await server.receive("stream/write-granted", of=await grant(server, stream, "carol", replaces="alice"))
                assert gateway.process is not None
                gateway.process.kill()
            gateway.process.wait()
            gateway.process.stdout.close()
            gateway.start()
            async with joined(gateway, "bob") as (bob,):
                shown = active_stream(bob.welcome, stream)
                assert shown["authorized_writers"] == ["server", "carol"]
                assert [(each["participant_id"], each["reason"]) for each in shown["write_requests"]] == [
                    ("bob", "soon")
                ]
        finally:
            gateway.stop()
