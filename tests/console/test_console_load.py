"""A busy space: 50 streams with 30 frames a second each, and 200 participants. It stays cheap for page and gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psutil
import pytest
from console_page import ConsolePage, console_page
from participants import joined
from playwright.async_api import Browser, expect

from support import GatewayProcess, running_gateway, space_config

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

STREAMS, HZ, PEOPLE = 50, 30, 200
SECONDS = 8.0
ROUNDS = 3
#: The first and the last one may both be in the interval.
MOST_DRAWS = 30 + 1 / SECONDS
MOST_GROWTH = 16 << 20
MOST_COST = 1.5


@contextlib.asynccontextmanager
async def busy_space(gateway: GatewayProcess) -> AsyncIterator[None]:
    async with joined(gateway, "server") as server:
        streams = [await server.open_stream(name=f"stream-of-{number}") for number in range(STREAMS)]

        async def write() -> None:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            place = 0
            while True:
                place += 1
                for stream in streams:
                    await stream.send({"x": place, "y": 0.5})
                await asyncio.sleep(max(0.0, begun + place / HZ - loop.time()))

        writing = asyncio.create_task(write())
        yield
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing


async def cpu_of(gateway: GatewayProcess) -> float:
    """Seconds of the processor that the gateway uses in a while."""
    process = psutil.Process(gateway.pid)
    before = sum(process.cpu_times()[:2])
    await asyncio.sleep(SECONDS)
    return sum(process.cpu_times()[:2]) - before


async def with_reader(gateway: GatewayProcess) -> float:
    async with joined(gateway, "alice") as alice:
        frames = await alice.subscribe()

        async def read() -> None:
            async for _ in frames:
                pass

        reading = asyncio.create_task(read())
        used = await cpu_of(gateway)
        reading.cancel()
        return used


async def draws(console: ConsolePage) -> int:
    return int(await console.page.locator("canvas").first.get_attribute("data-draws") or 0)


async def heap(console: ConsolePage) -> int:
    session = await console.page.context.new_cdp_session(console.page)
    await session.send("HeapProfiler.collectGarbage")
    used: int = (await session.send("Runtime.getHeapUsage"))["usedSize"]
    await session.detach()
    return used


async def test_it_costs_little(browser: Browser) -> None:
    always_here = [f"person-{number}" for number in range(PEOPLE)]
    with running_gateway(space_config("server", "alice", "you", always_here=always_here)) as gateway:
        async with busy_space(gateway):
            alone = reader = watched = 0.0
            for _ in range(ROUNDS):
                alone += await cpu_of(gateway)
                reader += await with_reader(gateway)
                async with console_page(browser, gateway) as console:
                    await console.enter("you")
                    await console.page.get_by_text(f"{PEOPLE + 2} here").wait_for()
                    await asyncio.sleep(1)
                    size, drawn = await heap(console), await draws(console)
                    watched += await cpu_of(gateway)
                    rate = (await draws(console) - drawn) / SECONDS
                    grown = await heap(console) - size
                    await console.go_to("Streams")
                    await expect(console.page.locator(".card-rate b").first).not_to_have_text("0")
                    assert rate <= MOST_DRAWS
                    assert grown <= MOST_GROWTH
            cost = (watched - alone) / (reader - alone)
            told = f"alone {alone:.2f}, reader {reader:.2f}, console {watched:.2f}: {cost:.2f} readers"
            print(f"CPU seconds: {told}; {rate:.1f} draws a second; {grown / 1024:.0f} KiB more after {SECONDS} s")
            assert cost <= MOST_COST, told
