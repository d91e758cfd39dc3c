"""Subscriptions that begin with history: ``subscribe(since=...)`` and ``subscribe(last=...)``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sdk_helping import enter, eventually, wire_to

from mewstream import Subscription, Unauthorized
from mewstream.sync import connect as connect_sync
from support import GatewayProcess, running_gateway, space_config, token_of


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with a journal."""
    options = ("--data", str(tmp_path_factory.mktemp("data") / "data"))
    with running_gateway(space_config("ann", "bob", "cy"), options=options) as running:
        yield running


async def numbers(subscription: Subscription, count: int) -> list[int]:
    return [int((await subscription.receive(20)).data) for _ in range(count)]


async def test_since_and_last(kept: GatewayProcess) -> None:
    async with enter(kept, "ann") as ann, enter(kept, "bob") as bob, ann.open_stream(name="numbers") as stream:
        for number in range(10):
            await stream.send(f"{number}")
        await stream.flush()
        middle = datetime.now(UTC)
        for number in range(10, 20):
            await stream.send(f"{number}", confirm=True)
        await bob.stream("numbers")
        everything = bob.subscribe("numbers", since="start")
        frames = [await everything.receive(5) for _ in range(20)]
        assert [int(each.data) for each in frames] == list(range(20))
        assert all(each.gap == 0 and each.writer == "ann" for each in frames)
        fifth = frames[5].seq
        assert await numbers(bob.subscribe(stream.id, since=fifth), 15) == list(range(5, 20))
        assert await numbers(bob.subscribe(stream.id, since=middle), 10) == list(range(10, 20))
        last = bob.subscribe(stream.id, last=3)
        assert await numbers(last, 3) == [17, 18, 19]
        usual = bob.subscribe(stream.id)
        await stream.send("20")
        assert await numbers(last, 1) == [20]
        assert await numbers(everything, 1) == [20]
        assert await numbers(usual, 1) == [20]
        assert usual.pending == 0


async def test_history_does_not_move_the_position(kept: GatewayProcess) -> None:
    async with enter(kept, "ann") as ann, enter(kept, "bob") as bob, ann.open_stream() as stream:
        for number in range(100):
            await stream.send(f"{number}")
        await stream.flush()
        other = await ann.open_stream()
        elsewhere = await bob.subscribe()
        await other.send("x", confirm=True)
        while (await elsewhere.receive(5)).stream != other.id:
            pass
        positions = [bob.position]
        subscription = bob.subscribe(stream.id, since="start")
        for number in range(100):
            assert await numbers(subscription, 1) == [number]
            positions.append(bob.position)
            await other.send("x")
        seqs = [each.seq for each in positions if each is not None]
        assert len(seqs) == 101
        assert seqs == sorted(seqs)
        assert seqs[0] > 100


async def test_the_whole_stream_even_if_it_ends_meanwhile(kept: GatewayProcess) -> None:
    async with enter(kept, "ann") as ann, enter(kept, "bob") as bob:
        stream = await ann.open_stream()
        for number in range(5_000):
            await stream.send(f"{number}")
        await stream.flush()
        await bob.stream(stream.id)
        subscription = bob.subscribe(stream.id, since="start")
        first = await numbers(subscription, 1)
        for number in range(5_000, 5_100):
            await stream.send(f"{number}")
        await stream.close()
        rest = [int(frame.data) async for frame in subscription]
        assert first + rest == list(range(5_100))


async def test_across_lost_connections(kept: GatewayProcess) -> None:
    """Each frame once and in order, however often the connection is cut in the middle of the history."""
    async with wire_to(kept) as wire, enter(kept, "ann") as ann, enter(kept, "bob", url=wire.url) as bob:
        stream = await ann.open_stream()
        written = 0

        async def flow() -> None:
            nonlocal written
            while written < 30_000:
                await stream.send(f"{written}")
                written += 1
                if written % 500 == 0:
                    await asyncio.sleep(0.02)

        flowing = asyncio.create_task(flow())
        await eventually(lambda: written > 5_000 and stream.id in bob.streams)
        subscription = bob.subscribe(stream.id, since="start", max_pending=1_000)
        for place in range(6):
            assert await numbers(subscription, 4_000) == list(range(place * 4_000, (place + 1) * 4_000))
            wire.cut()
        await flowing
        assert await numbers(subscription, 6_000) == list(range(24_000, 30_000))


async def test_refused(kept: GatewayProcess) -> None:
    async with enter(kept, "ann") as ann, enter(kept, "bob") as bob, ann.open_stream(history="none") as stream:
        await bob.stream(stream.id)
        with pytest.raises(Unauthorized):
            await bob.subscribe(stream.id, since="start").receive(5)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"since": 1, "last": 1}, TypeError), ({"last": 0}, ValueError), ({"since": datetime(2026, 1, 1)}, ValueError)],
)
async def test_what_does_not_go(kept: GatewayProcess, options: dict[str, Any], error: type[Exception]) -> None:
    async with enter(kept, "ann") as ann, ann.open_stream() as stream:
        with pytest.raises(error):
            ann.subscribe(stream, **options)
        with pytest.raises(TypeError):
            ann.subscribe(since="start")


def test_the_synchronous_twin(kept: GatewayProcess, tmp_path: Path) -> None:
    with connect_sync(kept.ws_url, participant="ann", token=token_of("ann")) as ann, ann.open_stream() as stream:
        stream.send({"n": 1}, numbered=True)
        stream.send("b", confirm=True)
        subscription = stream.subscribe(since="start")
        assert [subscription.receive(5).text for _ in "12"] == ['{"n":1}', "b"]
        assert ann.subscribe(stream, last=1).receive(5).text == "b"
