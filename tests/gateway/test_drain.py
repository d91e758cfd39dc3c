"""Going away in order: everyone is told to reconnect, and nothing said before is lost (DESIGN, "gateway")."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from support import TIMEOUT, Client, GatewayProcess, joined, running_gateway, space_config

GOING_AWAY, DRAINING = 1001, 4000
NAMES = ("alice", "bob", "carol", "dave", "erin")


def config(drain_seconds: float = 0.2) -> dict[str, Any]:
    return space_config(*NAMES, gateway={"drain_seconds": drain_seconds})


def tell(gateway: GatewayProcess, number: signal.Signals = signal.SIGTERM) -> None:
    assert gateway.process is not None
    gateway.process.send_signal(number)


async def ended(gateway: GatewayProcess) -> int:
    assert gateway.process is not None
    return await asyncio.to_thread(gateway.process.wait, 30)


async def first_done(*waits: Callable[[], Awaitable[Any]]) -> int:
    """The number of the first that ends; the others go on being waited for until the test ends."""
    tasks = [asyncio.ensure_future(wait()) for wait in waits]
    done, pending = await asyncio.wait(tasks, timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
    assert done
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return tasks.index(done.pop())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_everyone_is_told_in_codes_that_it_knows(number: signal.Signals) -> None:
    with running_gateway(config()) as gateway:
        async with joined(gateway, "alice") as (plain,), joined(gateway, "bob", extensions=["positions"]) as (ours,):
            newer = await gateway.join("carol", extensions=[])
            stranger = await Client.connect(gateway.ws_url)
            tell(gateway, number)
            codes = await asyncio.gather(*(each.closed() for each in (plain, ours, newer, stranger)))
            assert codes == [GOING_AWAY, DRAINING, DRAINING, GOING_AWAY]
            assert await ended(gateway) == 0


async def test_nobody_connected() -> None:
    with running_gateway(config(drain_seconds=20)) as gateway:
        tell(gateway)
        assert await ended(gateway) == 0


async def test_what_was_said_before_is_delivered() -> None:
    """``bob`` has not read anything yet when the gateway is told to go."""
    with running_gateway(config()) as gateway:
        async with joined(gateway, "alice", "bob") as (alice, bob):
            stream = await alice.open_stream()
            for number in range(300):
                await alice.send("chat", {"text": str(number)})
                await alice.frame(stream, f"frame {number}")
            await alice.settle()
            tell(gateway)
            assert await bob.closed() == GOING_AWAY
            texts = [each["payload"]["text"] for each in bob.got if isinstance(each, dict) and each["kind"] == "chat"]
            frames = [each.partition(" ")[2] for each in bob.got if isinstance(each, str)]
            complete = texts == frames == [str(number) for number in range(300)]
            assert complete, f"{len(texts)} envelopes and {len(frames)} frames of 300"
            assert await ended(gateway) == 0


async def test_it_is_spread_over_time() -> None:
    """While the first are gone already, the last still work; their peers keep rights and presence."""
    with running_gateway(config(drain_seconds=2.4)) as gateway:
        async with joined(gateway, "alice", "bob", "carol", "dave") as clients:
            stream = await clients[0].open_stream()
            for each in ("bob", "carol", "dave"):
                await clients[0].send("stream/grant-write", {"stream_id": stream, "participant_id": each})
            for client in clients:
                await client.settle()
            tell(gateway)
            gone = await first_done(*(each.connection.wait_closed for each in clients))
            others = [each for number, each in enumerate(clients) if number != gone]

            async def still_works(client: Client) -> bool:
                id = await client.send("chat", {"text": "still here"})
                try:
                    await client.wait_for(lambda each: isinstance(each, dict) and each["id"] == id)
                except Exception:
                    return False
                return True

            assert any(await asyncio.gather(*map(still_works, others)))
            assert [await each.closed() for each in others] == [GOING_AWAY] * 3
            told = [each for client in clients for each in client.got if isinstance(each, dict)]
            leaves = [each for each in told if each["payload"].get("event") == "leave"]
            assert leaves == [], "a drain suspends, it does not revoke"
            assert "stream/write-revoked" not in [each["kind"] for each in told]
            assert await ended(gateway) == 0


async def test_new_connections_are_refused() -> None:
    with running_gateway(config(drain_seconds=2)) as gateway:
        async with joined(gateway, "alice", "bob", "carol") as clients:
            tell(gateway)
            await first_done(*(each.connection.wait_closed for each in clients))
            with pytest.raises(OSError):
                await Client.connect(gateway.ws_url)
            with pytest.raises(aiohttp.ClientConnectionError):
                await gateway.http("GET", "/health")
            await asyncio.gather(*(each.closed() for each in clients))
            assert await ended(gateway) == 0


async def test_who_kept_an_http_connection_is_told_and_does_not_hold_it_up() -> None:
    with running_gateway(config(drain_seconds=2)) as gateway:
        async with joined(gateway, "alice", "bob") as clients, aiohttp.ClientSession() as session:

            async def health() -> Any:
                async with session.get(f"{gateway.url}/health") as response:
                    return json.loads(await response.text())

            assert (await health())["status"] == "ok"
            tell(gateway)
            await first_done(*(each.connection.wait_closed for each in clients))
            assert (await health())["status"] == "draining"
            await asyncio.gather(*(each.closed() for each in clients))
            assert await ended(gateway) == 0


async def test_half_a_request_does_not_hold_it_up() -> None:
    with running_gateway(config()) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost:")
        await writer.drain()
        tell(gateway)
        assert await ended(gateway) == 0
        await reader.read()
        writer.close()


async def test_one_that_does_not_answer_the_close_does_not_hold_it_up() -> None:
    with running_gateway(config()) as gateway:
        async with joined(gateway, "alice") as (alice,):
            alice.connection.transport.pause_reading()
            tell(gateway)
            assert await ended(gateway) == 0
            alice.connection.transport.resume_reading()


async def test_told_twice() -> None:
    with running_gateway(config(drain_seconds=1)) as gateway:
        async with joined(gateway, "alice", "bob") as clients:
            tell(gateway)
            await first_done(*(each.connection.wait_closed for each in clients))
            tell(gateway)
            assert [await each.closed() for each in clients] == [GOING_AWAY] * 2
            assert await ended(gateway) == 0
