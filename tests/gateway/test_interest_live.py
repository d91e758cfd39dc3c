"""Interest over sockets (decision 27): who gets the frames of what, exactly from where on, and after a loss."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Client, GatewayProcess, Message, joined, running_gateway, space_config, token_of

BOTH = ["interest", "positions"]


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    policies = {"reconnect_grace": 60.0}
    config = space_config("alice", "bob", "carol", "dave", mewstream={"policies": policies})
    with running_gateway(config) as gateway:
        yield gateway


async def subscribe(client: Client, **payload: Any) -> Message:
    id = await client.send("stream/subscribe", payload)
    return await client.receive("stream/subscribed", of=id)


async def unsubscribe(client: Client, **payload: Any) -> Message:
    id = await client.send("stream/unsubscribe", payload)
    return await client.receive("stream/unsubscribed", of=id)


def frames_in(messages: list[Message | str | bytes]) -> list[str]:
    return [each for each in messages if isinstance(each, str)]


def seqs(messages: list[Message | str | bytes], stream: str) -> list[int]:
    """The positions of a stream's frames, in the order in which they came."""
    return [int(each.split("|")[1]) for each in frames_in(messages) if each.startswith(f"#{stream}|")]


class TestChoosing:
    async def test_frames_of_nothing_until_one_subscribes(self, gateway: GatewayProcess) -> None:
        async with (
            joined(gateway, "alice", "carol") as (alice, carol),
            joined(gateway, "bob", extensions=["interest"]) as (bob,),
        ):
            assert bob.welcome["payload"]["interest"] == {"streams": [], "formats": [], "namespaces": []}
            one, two = await alice.open_stream(), await alice.open_stream()
            await alice.frame(one, "first")
            await alice.settle()
            answer = await subscribe(bob, streams=[one])
            assert answer["payload"] == {"streams": [one]} and answer["to"] == ["bob"]
            for stream in (one, two):
                await alice.frame(stream, f"of {stream}")
            await alice.settle()
            assert (await unsubscribe(bob, streams=[one]))["payload"] == {"streams": [one]}
            await alice.frame(one, "last")
            await alice.settle()
            await bob.settle()
            assert frames_in(bob.got) == [f"#{one}#of {one}"]
            await carol.settle()
            assert len(frames_in(carol.got)) == 4, "a client of v0.4 gets everything"
            told = [each for each in carol.got if isinstance(each, dict) and "subscri" in each["kind"]]
            assert told == [], "and hears nothing of it"

    async def test_streams_of_a_format_and_of_a_namespace(self, gateway: GatewayProcess) -> None:
        formats = [{"id": "position", "mime_type": "text/plain"}]
        async with (
            joined(gateway, "alice") as (alice,),
            joined(gateway, "bob", extensions=["interest"], interest={"formats": ["position"]}) as (bob,),
            joined(gateway, "carol", extensions=["interest"], interest={"namespaces": ["demo/boss-*"]}) as (carol,),
        ):
            assert carol.welcome["payload"]["interest"]["namespaces"] == ["demo/boss-*"]
            moving = await alice.open_stream(formats=formats)
            id = await alice.send("stream/announce", {"desired_id": "boss-1"})
            boss = (await alice.receive("stream/ready", of=id))["payload"]["stream"]["stream_id"]
            await alice.send("stream/start", {"stream": {"stream_id": boss}})
            for stream in (moving, boss):
                await alice.frame(stream, "x")
            payload = {"stream": {"stream_id": boss}, "sequence": 1, "content": "y"}
            await alice.send("stream/data", payload)
            await alice.settle()
            for client in (bob, carol):
                await client.settle()
            assert frames_in(bob.got) == [f"#{moving}#x"]
            assert frames_in(carol.got) == [f"#{boss}#x"]
            numbered = [
                sum(isinstance(each, dict) and each["kind"] == "stream/data" for each in client.got)
                for client in (bob, carol)
            ]
            assert numbered == [0, 1]

    async def test_it_shows_nothing_that_one_may_not_read(self, gateway: GatewayProcess) -> None:
        async with (
            joined(gateway, "alice", "carol") as (alice, carol),
            joined(gateway, "bob", extensions=["interest"], interest={"namespaces": ["*"]}) as (bob,),
        ):
            secret = await alice.open_stream(target=["carol"])
            await alice.frame(secret, "secret")
            assert await carol.receive_frame(secret) == "secret"
            await bob.settle()
            assert frames_in(bob.got) == []

    async def test_after_a_token_in_the_header(self, gateway: GatewayProcess) -> None:
        headers = {"Authorization": f"Bearer {token_of('bob')}"}
        bob = await Client.connect(f"{gateway.ws_url}/ws?space=demo", additional_headers=headers)
        bob.participant = "bob"
        async with joined(gateway, "alice") as (alice,):
            await bob.receive("system/welcome")
            stream = await alice.open_stream()
            await alice.frame(stream, "before")
            assert await bob.receive_frame(stream) == "before"
            join = {"participantId": "bob", "extensions": BOTH, "interest": {"streams": ["none"]}}
            await bob.send("system/join", join)
            welcome = await bob.receive("system/welcome")
            assert welcome["payload"]["interest"]["streams"] == ["none"]
            await alice.frame(stream, "not wanted")
            await alice.settle()
            await subscribe(bob, streams=[stream])
            await alice.frame(stream, "wanted")
            message = await bob.wait_for(lambda each: isinstance(each, str))
            assert message.endswith("|alice#wanted")
        await bob.close()


class TestRefusals:
    @pytest.mark.parametrize(
        ("payload", "code"),
        [
            ({}, "validation_error"),
            ({"streams": "all"}, "validation_error"),
            ({"namespaces": ["*a" * 200]}, "limit_exceeded"),
            ({"streams": [str(n) for n in range(300)]}, "limit_exceeded"),
        ],
    )
    async def test_what_is_no_subscription(self, gateway: GatewayProcess, payload: Message, code: str) -> None:
        async with joined(gateway, "bob", extensions=["interest"]) as (bob,):
            id = await bob.send("stream/subscribe", payload)
            await bob.error(code, of=id)

    @pytest.mark.parametrize("interest", [[], "x", {"streams": 1}, {"namespaces": ["x"] * 2 + [""]}])
    async def test_a_join_that_is_malformed(self, gateway: GatewayProcess, interest: Any) -> None:
        client = await Client.connect(f"{gateway.ws_url}/ws")
        join = {"type": "join", "participantId": "bob", "token": token_of("bob")}
        await client.send_raw(json.dumps({**join, "extensions": ["interest"], "interest": interest}))
        await client.error("validation_error")
        assert await client.closed() == 4503

    async def test_without_the_extension_the_field_means_nothing(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "bob", extensions=["positions"], interest="whatever") as (bob,):
            id = await bob.send("stream/subscribe", {"streams": ["x"]})
            await bob.error("invalid_operation", of=id)

    async def test_a_client_of_v0_4_may_use_the_kind_for_itself(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice", "carol") as (alice, carol):
            await alice.send("stream/subscribe", {"to_what": "ever"})
            assert (await carol.receive("stream/subscribe"))["payload"] == {"to_what": "ever"}


class TestUnderLoad:
    async def test_no_frame_is_missing_or_twice_while_interest_changes(self, gateway: GatewayProcess) -> None:
        """A reader of everything says what the log has; the answers say where the interest began and ended."""
        async with (
            joined(gateway, "alice", "carol") as (alice, carol),
            joined(gateway, "dave", extensions=["positions"]) as (dave,),
            joined(gateway, "bob", extensions=BOTH) as (bob,),
        ):
            streams = [await alice.open_stream(), await carol.open_stream()]
            done = asyncio.Event()

            async def write(writer: Client, stream: str) -> None:
                for number in itertools.count():
                    await writer.frame(stream, str(number))
                    if number % 50 == 0:
                        await writer.settle()
                        if done.is_set():
                            return

            async def choose() -> dict[str, list[tuple[int, int]]]:
                wanted: dict[str, list[tuple[int, int]]] = {stream: [] for stream in streams}
                for turn in range(60):
                    stream = streams[turn % 3 % 2]
                    how = {"streams": [stream]} if turn % 2 else {"namespaces": [f"*/{stream}"]}
                    begin = (await subscribe(bob, **how))["seq"]
                    if turn % 4 == 0:
                        await bob.wait_for(lambda each: isinstance(each, str))
                    end = (await unsubscribe(bob, **how))["seq"]
                    wanted[stream].append((begin, end))
                done.set()
                return wanted

            _, _, wanted = await asyncio.gather(write(alice, streams[0]), write(carol, streams[1]), choose())
            for client in (bob, dave):
                await client.settle()
            for stream in streams:
                log, got = seqs(dave.got, stream), seqs(bob.got, stream)
                assert log == sorted(set(log)) and len(log) > 100
                due = [seq for seq in log if any(begin < seq < end for begin, end in wanted[stream])]
                assert got == due
            assert seqs(bob.got, streams[0]), "it was interested for long enough to see something"


class TestComingBack:
    async def test_what_was_missed_is_what_was_wanted(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "alice") as (alice,):
            one, two = await alice.open_stream(desired_id="one"), await alice.open_stream()
            bob = await gateway.join("bob", extensions=BOTH)
            await subscribe(bob, streams=[one])
            await alice.frame(one, "seen")
            await bob.wait_for(lambda each: isinstance(each, str))
            position = {"epoch": bob.welcome["payload"]["epoch"], "seq": seqs(bob.got, one)[-1]}
            bob.connection.transport.abort()
            for stream in (one, two):
                await alice.frame(stream, "missed")
            await alice.settle()
            async with joined(gateway, "bob", extensions=BOTH, resume=position, interest={"streams": [two]}) as (bob,):
                assert bob.welcome["payload"]["resume"]["recovered"]
                await alice.frame(one, "not wanted now")
                await alice.frame(two, "live")
                await alice.settle()
                await bob.settle()
                got = [(each.split("|")[0][1:], each.rpartition("#")[2]) for each in frames_in(bob.got)]
                assert got == [(one, "missed"), (two, "live")]

    async def test_the_pages_over_http_obey_it_too(self, gateway: GatewayProcess) -> None:
        async with (
            joined(gateway, "alice") as (alice,),
            joined(gateway, "dave", extensions=BOTH) as (dave,),
        ):
            one, two = await alice.open_stream(), await alice.open_stream()
            begin = (await subscribe(dave, streams=[one]))["seq"]
            for stream in (one, two):
                await alice.frame(stream, "x")
            await alice.settle()
            status, posted = await gateway.post("dave", {"kind": "stream/subscribe", "payload": {"streams": [two]}})
            assert (status, posted["status"], posted["streams"]) == (200, "subscribed", [two])
            await alice.frame(two, "y")
            await alice.settle()
            _, page = await gateway.http("GET", "/participants/dave/messages", "dave", params={"since": str(begin)})
            frames = [(each["stream_id"], each["data"]) for each in page["messages"] if each["kind"] == "frame"]
            assert frames == [(one, "x"), (two, "y")]


async def test_it_survives_a_crash(tmp_path: Path) -> None:
    config = space_config("alice", "bob")
    options = ("--data", str(tmp_path / "data"))
    gateway = GatewayProcess(tmp_path, config, options=options).start()
    alice, bob = await gateway.join("alice"), await gateway.join("bob", extensions=BOTH)
    one, two = await alice.open_stream(), await alice.open_stream()
    await subscribe(bob, streams=[one])
    assert gateway.process is not None
    gateway.process.kill()
    gateway.process.wait(timeout=30)
    gateway.process.stdout.close()
    gateway.start()
    try:
        async with joined(gateway, "alice") as (alice,), joined(gateway, "bob", extensions=BOTH) as (bob,):
            assert bob.welcome["payload"]["interest"]["streams"] == [one]
            for stream in (two, one):
                await alice.frame(stream, "x")
            await alice.settle()
            await bob.settle()
            assert (len(seqs(bob.got, one)), len(seqs(bob.got, two))) == (1, 0)
    finally:
        gateway.stop()
