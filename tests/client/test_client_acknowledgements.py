"""Whoever is granted capabilities acknowledges it, once (spec 3.6.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sdk_helping import Script, enter, eventually, scripted, until, wire_to

import mewstream
import mewstream.sync
from mewstream import events
from support import Client, GatewayProcess, joined, running_gateway, space_config, token_of

ACK = "capability/grant-ack"


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """Whoever loses its connection has time to come back. ``bob`` may do nothing by himself."""
    config = space_config(
        "ann", "bob", "cy", capabilities={"bob": []}, mewstream={"policies": {"reconnect_grace": "1m"}}
    )
    with running_gateway(config) as running:
        yield running


async def grant(ann: Client, recipient: str = "bob") -> str:
    return await ann.send("capability/grant", {"recipient": recipient, "capabilities": [{"kind": "chat"}]})


async def acknowledgements(ann: Client) -> list[Any]:
    """All that have come so far."""
    await ann.settle()
    return [each for each in ann.got if isinstance(each, dict) and each["kind"] == ACK]


async def test_a_grant_is_acknowledged_to_whoever_gave_it(gateway: GatewayProcess) -> None:
    async with enter(gateway, "bob"), enter(gateway, "cy"), joined(gateway, "ann") as (ann,):
        id = await grant(ann)
        ack = await ann.receive(ACK, of=id)
        assert (ack["from"], ack["to"], ack["correlation_id"], ack["payload"]) == (
            "bob",
            ["ann"],
            [id],
            {"status": "accepted"},
        )
        await ann.send("capability/revoke", {"recipient": "bob", "grant_id": id})
        other = await grant(ann, "cy")
        assert (await ann.receive(ACK, of=other))["from"] == "cy"
        assert len(await acknowledgements(ann)) == 2, "neither a revocation nor what another was granted"


async def test_without_async_too(gateway: GatewayProcess) -> None:
    bob = await asyncio.to_thread(mewstream.sync.connect, gateway.ws_url, participant="bob", token=token_of("bob"))
    try:
        async with joined(gateway, "ann") as (ann,):
            id = await grant(ann)
            assert (await ann.receive(ACK, of=id))["from"] == "bob"
    finally:
        await asyncio.to_thread(bob.close)


async def test_a_grant_that_came_while_we_were_away_is_acknowledged_once(gateway: GatewayProcess) -> None:
    async with (
        wire_to(gateway) as wire,
        enter(gateway, "bob", url=wire.url) as bob,
        joined(gateway, "ann") as (ann,),
    ):
        news = bob.events()
        wire.is_shut = True
        wire.cut()
        await until(news, events.Disconnected)
        id = await grant(ann)
        await ann.receive("capability/grant")
        wire.is_shut = False
        await until(news, events.Resumed, recovered=True)
        await ann.receive(ACK, of=id)
        # What is past is not acknowledged again, however often we come back.
        wire.cut()
        await until(news, events.Resumed, recovered=True)
        await bob.flush()
        assert [each["correlation_id"] for each in await acknowledgements(ann)] == [[id]]


async def test_an_acknowledgement_that_was_lost_is_sent_again_and_counts_once(gateway: GatewayProcess) -> None:
    async with (
        wire_to(gateway) as wire,
        enter(gateway, "bob", url=wire.url) as bob,
        joined(gateway, "ann") as (ann,),
    ):
        news = bob.events()
        wire.is_deaf = True
        id = await grant(ann)
        await until(news, events.CapabilitiesChanged)
        await eventually(lambda: bob._calls._pending)
        wire.cut()
        wire.is_deaf = False
        await until(news, events.Resumed, recovered=True)
        await ann.receive(ACK, of=id)
        wire.cut()
        await until(news, events.Resumed, recovered=True)
        await bob.flush()
        assert [each["correlation_id"] for each in await acknowledgements(ann)] == [[id]]


async def test_a_gateway_that_relays_a_repetition_gets_one_acknowledgement() -> None:
    heard: list[Any] = []

    async def act(script: Script) -> None:
        await script.welcome()
        for _ in range(2):
            await script.tell(
                "capability/grant", {"recipient": "bob", "capabilities": [{"kind": "x"}]}, **{"from": "ann", "id": "g"}
            )
        heard.append(await script.relay())
        heard.append(await script.relay())

    async with scripted(act) as url, mewstream.connect(url, participant="bob", token="x") as bob:
        await eventually(lambda: heard)
        await bob.chat("after it")
    assert [each["kind"] for each in heard] == [ACK, "chat"]


async def test_a_gateway_that_refuses_it_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The reference's wants a capability for it."""

    async def act(script: Script) -> None:
        await script.welcome()
        await script.tell("capability/grant", {"recipient": "bob", "capabilities": []}, **{"from": "ann", "id": "g"})
        ack = await script.hear_kind(ACK)
        await script.tell("system/error", {"error": "capability_violation"}, correlation_id=[ack["id"]])
        refused.set()
        await script.relay()

    refused = asyncio.Event()
    async with scripted(act) as url, mewstream.connect(url, participant="bob", token="x") as bob:
        news = bob.events()
        await refused.wait()
        await bob.chat("I am well")
        assert not [each for each in [await news.receive(5) for _ in range(news.pending)] if _is_refusal(each)]
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def _is_refusal(event: mewstream.Event) -> bool:
    return isinstance(event, events.Refused)
