"""Delegation chains over real sockets (decision 1)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support import Client, GatewayProcess, Message, active_stream, joined, running_gateway, space_config

PEOPLE = ("server", "alice", "bob", "carol", "dave")
NOTHING: dict[str, list[Any]] = {each: [] for each in PEOPLE[1:]}
POSITIONS = {"extensions": ["positions"]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(space_config(*PEOPLE, capabilities=NOTHING)) as gateway:
        yield gateway


async def grant(sender: Client, stream: str, participant: str, depth: int = 0, **fields: Any) -> str:
    """Grant and wait for the acknowledgement, or leave the refusal to be received."""
    if depth:
        fields["delegate"] = {"depth": depth, **fields.pop("delegate", {})}
    return await sender.send("stream/grant-write", {"stream_id": stream, "participant_id": participant, **fields})


async def granted(sender: Client, stream: str, participant: str, depth: int = 0, **fields: Any) -> Message:
    return await sender.receive("stream/write-granted", of=await grant(sender, stream, participant, depth, **fields))


async def revoke(sender: Client, stream: str, participant: str) -> str:
    return await sender.send("stream/revoke-write", {"stream_id": stream, "participant_id": participant})


async def chain(server: Client, alice: Client, bob: Client, **fields: Any) -> str:
    """server -> alice -> bob -> carol."""
    stream = await server.open_stream()
    await granted(server, stream, "alice", 2, **fields)
    await granted(alice, stream, "bob", 1)
    await granted(bob, stream, "carol")
    return stream


async def revokes(client: Client, *writers: str) -> list[Message]:
    """The next revokes, which must be of these."""
    found = [await client.receive("stream/write-revoked") for _ in writers]
    assert [each["payload"]["participant_id"] for each in found] == list(writers)
    return found


async def test_a_chain_is_told_as_ordinary_grants_and_shown(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob", "carol") as (server, alice, bob, carol):
        stream = await chain(server, alice, bob)
        told = await carol.receive("stream/write-granted", participant_id="carol")
        assert told["payload"]["authorized_writers"] == ["server", "alice", "bob", "carol"]
        assert (told["payload"]["by"], told["payload"]["parent"]) == ("bob", "bob")
        async with joined(gateway, "dave") as (dave,):
            assert active_stream(dave.welcome, stream)["delegations"] == [
                {"participant_id": "alice", "by": "server", "depth": 2},
                {"participant_id": "bob", "by": "alice", "depth": 1},
                {"participant_id": "carol", "by": "bob", "depth": 0},
            ]
            # The end of a chain, and more than one has.
            await carol.error("unauthorized", of=await grant(carol, stream, "dave"))
            await bob.error("invalid_operation", of=await grant(bob, stream, "dave", 1))
            await alice.error("invalid_operation", of=await grant(alice, stream, "server"))
            await bob.error("unauthorized", of=await revoke(bob, stream, "alice"))
            await bob.error("invalid_operation", of=await grant(bob, stream, "alice"))
            await server.error("invalid_operation", of=await grant(server, stream, "carol"))


async def test_a_revoke_of_a_delegate_while_those_below_write(gateway: GatewayProcess) -> None:
    """No frame of the whole chain has a higher ``seq`` than the revoke at its top."""
    async with (
        joined(gateway, "server", "alice", "bob", "carol") as (server, alice, bob, carol),
        joined(gateway, "dave", **POSITIONS) as (viewer,),
    ):
        stream = await chain(server, alice, bob)
        driving = asyncio.Event()

        async def drive(driver: Client) -> None:
            for number in range(400):
                await driver.frame(stream, f"{driver.participant} {number}")
                if number == 100:
                    driving.set()
                if number % 10 == 0:
                    await asyncio.sleep(0)

        drivers = [asyncio.ensure_future(drive(each)) for each in (alice, bob, carol)]
        await driving.wait()
        id = await revoke(server, stream, "alice")
        await server.receive("stream/write-revoked", of=id)
        await asyncio.gather(*drivers)
        for each in (alice, bob, carol):
            await each.error("unauthorized_stream_write")
            await each.settle()
        await viewer.settle()

        revoked = [each for each in viewer.got if isinstance(each, dict) and each["kind"] == "stream/write-revoked"]
        assert [each["payload"]["participant_id"] for each in revoked] == ["alice", "bob", "carol"]
        assert [each["payload"]["reason"] for each in revoked] == [None, "delegation_ended", "delegation_ended"]
        assert all(each["payload"]["authorized_writers"] == ["server"] for each in revoked)
        assert [each["seq"] for each in revoked] == [revoked[0]["seq"] + distance for distance in range(3)]
        frames = [each.split("#")[1].split("|") for each in viewer.got if isinstance(each, str) and each[0] == "#"]
        assert frames, "they wrote before"
        assert max(int(seq) for _, seq, _ in frames) < revoked[0]["seq"]


async def test_a_leave_in_the_middle(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "carol") as (server, alice, carol):
        async with joined(gateway, "bob") as (bob,):
            stream = await chain(server, alice, bob)
        bobs, carols = await revokes(server, "bob", "carol")
        assert (bobs["payload"]["reason"], carols["payload"]["reason"]) == ("disconnected", "delegation_ended")
        assert carols["payload"]["authorized_writers"] == ["server", "alice"]
        await carol.frame(stream, "too late")
        await carol.error("unauthorized_stream_write")


async def test_an_expiry_at_the_top(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob", "carol") as (server, alice, bob, _):
        until = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
        stream = await chain(server, alice, bob, conditions={"expires_at": until})
        later = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
        id = await grant(alice, stream, "bob", 1, conditions={"expires_at": later})
        await alice.error("invalid_operation", of=id)
        reasons = [each["payload"]["reason"] for each in await revokes(server, "alice", "bob", "carol")]
        assert reasons == ["expired", "delegation_ended", "delegation_ended"]


async def test_frames_are_one_budget_of_the_chain(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob", "carol") as (server, alice, bob, carol):
        stream = await chain(server, alice, bob, conditions={"max_frames": 30})
        for each in (alice, bob, carol):
            for number in range(20):
                await each.frame(stream, str(number))
        reasons = [each["payload"]["reason"] for each in await revokes(server, "alice", "bob", "carol")]
        assert reasons == ["max_frames", "delegation_ended", "delegation_ended"]
        for each in (alice, bob, carol):
            await each.settle()
        await server.settle()
        assert sum(isinstance(each, str) for each in server.got) == 30


async def test_writers_are_counted_over_the_subtree(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob", "carol", "dave") as (server, alice, bob, _, _):
        stream = await chain(server, alice, bob, delegate={"max_writers": 2})
        for sender in (alice, bob):
            refused = await sender.error("limit_exceeded", of=await grant(sender, stream, "dave"))
            assert refused["payload"]["limit"] == "max_writers"
        swapped = await granted(bob, stream, "dave", replaces="carol")
        assert swapped["payload"]["authorized_writers"] == ["server", "alice", "bob", "dave"]


async def test_a_transfer_leaves_the_chain(gateway: GatewayProcess) -> None:
    async with joined(gateway, "server", "alice", "bob", "carol", "dave") as (server, alice, bob, carol, dave):
        stream = await chain(server, alice, bob)
        id = await server.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": "bob"})
        moved = await dave.receive("stream/ownership-transferred", of=id)
        assert moved["payload"]["authorized_writers"] == ["bob", "alice", "carol"]
        await bob.receive("stream/write-revoked", of=await revoke(bob, stream, "alice"))
        await carol.frame(stream, "still here")
        assert await dave.receive_frame(stream) == "still here"


async def test_a_chain_survives_a_killed_gateway() -> None:
    with tempfile.TemporaryDirectory() as name:
        config = space_config(*PEOPLE, capabilities=NOTHING, mewstream={"policies": {"suspend_for": 60}})
        gateway = GatewayProcess(Path(name), config, options=("--data", "data")).start()
        try:
            async with joined(gateway, "server", "alice", "bob", "carol") as (server, alice, bob, carol):
                stream = await chain(server, alice, bob, conditions={"max_frames": 5})
                await carol.frame(stream, "1")
                await server.receive_frame(stream)
                await server.settle()
                await granted(server, await server.open_stream(), "alice")  # a control message: what was before is safe
                assert gateway.process is not None
                gateway.process.kill()
            gateway.process.wait()
            gateway.process.stdout.close()
            gateway.start()
            async with joined(gateway, "server", "carol") as (server, carol):
                shown = active_stream(carol.welcome, stream)
                assert [each["participant_id"] for each in shown["delegations"]] == ["alice", "bob", "carol"]
                assert shown["conditions"]["alice"]["frames_left"] == 4
                await server.receive("stream/write-revoked", of=await revoke(server, stream, "alice"))
                await revokes(server, "bob", "carol")
                await carol.frame(stream, "too late")
                await carol.error("unauthorized_stream_write")
        finally:
            gateway.stop()
