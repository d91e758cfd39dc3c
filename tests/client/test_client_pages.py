"""What a welcome has no room for, the SDK asks for by itself: everything is there when one is in, and stays right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sdk_helping import enter, eventually, until, wire_to

import mewstream
from support import GatewayProcess, joined, running_gateway, space_config

STREAMS = 700
PEOPLE = tuple(f"p{number:02}" for number in range(60))


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    limits = {"welcome_bytes": 4_000, "streams_per_participant": 2_000}
    config = space_config("ann", "bob", "cy", *PEOPLE, gateway={"drain_seconds": 0}, mewstream={"limits": limits})
    with running_gateway(config) as running:
        yield running


async def test_all_streams_and_participants_are_known(gateway: GatewayProcess) -> None:
    async with joined(gateway, *PEOPLE), enter(gateway, "ann") as ann:
        opened = [await ann.open_stream(description="x" * 700, name=f"name-{n}") for n in range(STREAMS)]
        async with enter(gateway, "bob") as bob:
            assert list(bob.streams) == [each.id for each in opened]
            assert set(bob.participants) == {*PEOPLE, "ann"}
            assert bob.streams["name-699"].owner == "ann"
            # The last of them works as the first does.
            frames = await bob.subscribe("name-699")
            await opened[-1].send("hello")
            assert (await anext(frames)).data == b"hello"
            # A welcome that comes again is completed again, and nothing was lost or new.
            news = bob.events()
            grant = {"recipient": "bob", "capabilities": [{"kind": "x/y"}]}
            await ann.send("capability/grant", grant)
            await until(news, mewstream.CapabilitiesChanged)
            await eventually(lambda: not bob._view.lacks_streams and not bob._view.lacks_participants)
            assert list(bob.streams) == [each.id for each in opened]
            assert len(bob.participants) == 61
            await ann.chat("the end")
            told = []
            async for event in news:
                told.append(type(event).__name__)
                if isinstance(event, mewstream.Chat):
                    break
            assert {"Joined", "Left", "StreamOpened", "StreamClosed"}.isdisjoint(told)
        for each in opened:
            await each.close()


@pytest.mark.parametrize("is_recovered", [True, False])
async def test_after_a_reconnect(gateway: GatewayProcess, is_recovered: bool) -> None:
    """What ended and what was opened while we were away is known, by the messages that were missed or by the pages."""
    async with wire_to(gateway) as wire, joined(gateway, *PEOPLE[:40]) as people, enter(gateway, "ann") as ann:
        opened = [await ann.open_stream(description="x" * 700) for _ in range(50)]
        async with enter(gateway, "cy", url=wire.url) as cy:
            held = [cy.streams[each.id] for each in opened]
            events = cy.events()
            wire.is_shut = True
            wire.cut()
            await until(events, mewstream.Disconnected)
            if not is_recovered:
                # Early: an attempt that is under way has its position already, and must fail before the wire is open.
                cy._link.epoch = "another"
            for each in opened[20:30]:
                await each.close()
            new = [await ann.open_stream(description="x" * 700) for _ in range(10)]
            await people[-1].close()
            wire.is_shut = False
            back = await until(events, mewstream.Resumed)
            assert back.recovered is is_recovered
            await eventually(lambda: not cy._view.lacks_streams and not cy._view.lacks_participants)
            expected = [each.id for each in (*opened[:20], *opened[30:], *new)]
            assert sorted(cy.streams) == sorted(expected)
            assert set(cy.participants) == {*PEOPLE[:39], "ann"}
            assert [each.is_open for each in held] == [True] * 20 + [False] * 10 + [True] * 20
            assert all(cy.streams[each.id] is before for each, before in zip(opened[:20], held, strict=False))
        for each in (*opened[:20], *opened[30:], *new):
            await each.close()
