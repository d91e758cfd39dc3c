"""A connection that is lost, and one that is closed: decision 6."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import mewstream
from mewstream import Returned, Suspended, WriteGranted
from support import Client, GatewayProcess, active_stream, running_gateway, space_config, token_of

#: A client that knows more than v0.4.
KNOWS = {"extensions": []}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """With the grace that is the default."""
    with running_gateway(space_config("ann", "bob", "cy", "dee")) as running:
        yield running


@pytest.fixture(scope="module")
def hasty() -> Iterator[GatewayProcess]:
    config = space_config("ann", "bob", "cy", mewstream={"policies": {"reconnect_grace": 0.3}})
    with running_gateway(config) as running:
        yield running


@contextlib.asynccontextmanager
async def scene(gateway: GatewayProcess) -> AsyncIterator[tuple[Client, Client, Client, str]]:
    """ann owns a stream and knows extensions; bob is a writer; cy knows v0.4 alone."""
    ann, bob, cy = await gateway.join("ann", **KNOWS), await gateway.join("bob"), await gateway.join("cy")
    stream = await ann.open_stream()
    await ann.send("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
    await bob.receive("stream/write-granted")
    await cy.receive("stream/write-granted")
    try:
        yield ann, bob, cy, stream
    finally:
        for client in (ann, bob, cy):
            await client.close()


def presence(client: Client, of: str) -> list[str]:
    """What it was told of somebody, apart from joins."""
    told: list[dict[str, Any]] = [each for each in client.got if isinstance(each, dict)]
    events = [each["payload"] for each in told if each["kind"] == "system/presence"]
    return [each["event"] for each in events if each["participant"]["id"] == of and each["event"] != "join"]


async def test_a_close_is_a_leave_at_once(gateway: GatewayProcess) -> None:
    async with scene(gateway) as (ann, bob, cy, stream):
        await bob.close()
        revoked = await ann.receive("stream/write-revoked", stream_id=stream)
        assert (revoked["payload"]["participant_id"], revoked["payload"]["reason"]) == ("bob", "disconnected")
        await cy.receive("stream/write-revoked")
        assert presence(ann, "bob") == presence(cy, "bob") == ["leave"]
        # So that somebody else can take over without waiting.
        id = await ann.send("stream/grant-write", {"stream_id": stream, "participant_id": "cy"})
        granted = await ann.receive("stream/write-granted", of=id)
        assert granted["payload"]["authorized_writers"] == ["ann", "cy"]


async def test_a_kick_is_a_leave_at_once(gateway: GatewayProcess) -> None:
    async with scene(gateway) as (ann, bob, _cy, stream):
        await ann.send("space/kick", {"participant_id": "bob"})
        assert await bob.closed() == 4501
        revoked = await ann.receive("stream/write-revoked", stream_id=stream)
        assert revoked["payload"]["reason"] == "kicked"
        assert presence(ann, "bob") == ["leave"]


@pytest.mark.parametrize(
    ("message", "code"), [("#" + "x" * (1 << 20) + "#", 1009), (b"\xc1\x00", 1002)], ids=["too-big", "bad-framing"]
)
async def test_what_the_gateway_closes_is_lost_if_the_client_may_come_back(
    gateway: GatewayProcess, message: str | bytes, code: int
) -> None:
    async with scene(gateway) as (ann, bob, _cy, stream):
        if isinstance(message, str):
            await bob.send_raw(message)
        else:
            bob.connection.transport.write(message)  # a frame with a reserved bit
        await ann.receive("system/presence", event="suspended" if code == 1009 else "leave")
        late = await gateway.join("dee")
        writers = active_stream(late.welcome, stream)["authorized_writers"]
        assert writers == (["ann", "bob"] if code == 1009 else ["ann"])
        await late.close()


async def test_a_lost_connection_keeps_its_rights_and_is_told_to_those_who_know_it(gateway: GatewayProcess) -> None:
    async with scene(gateway) as (ann, bob, cy, stream):
        bob.connection.transport.abort()
        told = await ann.receive("system/presence", event="suspended")
        assert told["payload"]["participant"] == {"id": "bob"}
        assert told["payload"]["until"] > told["ts"]
        late = await gateway.join("dee", **KNOWS)
        assert "bob" in [each["id"] for each in late.welcome["payload"]["participants"]]
        assert active_stream(late.welcome, stream)["authorized_writers"] == ["ann", "bob"]
        await late.close()
        back = await gateway.join("bob")
        told = await ann.receive("system/presence", event="resumed")
        assert told["payload"]["participant"]["id"] == "bob"
        await back.frame(stream, "still a writer")
        assert await ann.receive_frame(stream) == await cy.receive_frame(stream) == "still a writer"
        await cy.settle()
        assert presence(ann, "bob") == ["suspended", "resumed"]
        assert presence(cy, "bob") == []
        assert presence(back, "bob") == []
        await back.close()


async def test_the_owner_of_a_stream_is_away_meanwhile(gateway: GatewayProcess) -> None:
    async with scene(gateway) as (ann, bob, _cy, stream):
        ann.connection.transport.abort()
        dee = await gateway.join("dee", **KNOWS)
        while active_stream(dee.welcome, stream)["owner_connected"]:
            await dee.close()
            dee = await gateway.join("dee", **KNOWS)
        await bob.frame(stream, "others go on")
        assert await dee.receive_frame(stream) == "others go on"
        await dee.close()
        back = await gateway.join("ann")
        assert active_stream(back.welcome, stream)["owner_connected"] is True
        await back.close()


async def test_one_who_does_not_come_back_leaves_when_the_grace_is_over(hasty: GatewayProcess) -> None:
    async with scene(hasty) as (ann, bob, cy, stream):
        bob.connection.transport.abort()
        revoked = await cy.receive("stream/write-revoked", stream_id=stream)
        assert (revoked["payload"]["participant_id"], revoked["payload"]["reason"]) == ("bob", "disconnected")
        await ann.receive("stream/write-revoked")
        assert presence(ann, "bob") == ["suspended", "leave"]
        assert presence(cy, "bob") == ["leave"]


async def test_over_http_only_those_who_know_it_are_told(gateway: GatewayProcess) -> None:
    async with scene(gateway) as (ann, bob, _cy, _):
        since = ann.welcome["payload"]["seq"]
        bob.connection.transport.abort()
        await ann.receive("system/presence", event="suspended")
        for who, told in (("ann", ["suspended"]), ("cy", [])):
            path = f"/participants/{who}/messages"
            status, answer = await gateway.http("GET", path, who, params={"since": str(since)})
            assert status == 200
            events = [each["payload"] for each in answer["messages"] if each["kind"] == "system/presence"]
            assert [each["event"] for each in events if each["participant"]["id"] == "bob"][-1:] in (told, ["join"])
            assert ("suspended" in [each["event"] for each in events]) is bool(told)
        back = await gateway.join("bob")
        await back.close()


async def test_the_sdk_tells_of_it(gateway: GatewayProcess) -> None:
    async with mewstream.connect(gateway.ws_url, participant="ann", token=token_of("ann")) as ann:
        bob = await gateway.join("bob")
        async with mewstream.connect(gateway.ws_url, participant="cy", token=token_of("cy")) as cy:
            opened = await bob.open_stream()
            stream = await ann.stream(opened)
            with ann.events() as news:
                bob.connection.transport.abort()
                async for event in news:
                    if isinstance(event, Suspended):
                        assert (event.participant, event.until is None) == ("bob", False)
                        assert "bob" in ann.participants and not stream.owner_connected
                        bob = await gateway.join("bob")
                    if isinstance(event, Returned):
                        assert event.participant == "bob" and stream.owner_connected
                        break
            assert not cy.is_closed
        await bob.close()


async def grant(owner: Client, stream: str, who: str, **terms: Any) -> dict[str, Any]:
    id = await owner.send("stream/grant-write", {"stream_id": stream, "participant_id": who, **terms})
    return dict((await owner.receive("stream/write-granted", of=id))["payload"])


async def test_a_grant_says_what_becomes_of_it_when_the_connection_is_lost(gateway: GatewayProcess) -> None:
    async with scene(gateway) as (ann, bob, cy, stream):
        assert (await grant(ann, stream, "bob", on_disconnect="revoke"))["conditions"] == {"on_disconnect": "revoke"}
        await grant(ann, stream, "cy", on_disconnect=0.3)
        bob.connection.transport.abort()
        revoked = await ann.receive("stream/write-revoked", stream_id=stream)
        assert revoked["payload"].items() >= {"participant_id": "bob", "reason": "disconnected"}.items()
        assert revoked["payload"]["authorized_writers"] == ["ann", "cy"]
        await cy.close()
        assert presence(ann, "bob") == ["suspended"]
        revoked = await ann.receive("stream/write-revoked", participant_id="cy")
        assert presence(ann, "cy") == ["leave"]
        dee = await gateway.join("dee")
        await grant(ann, stream, "dee", on_disconnect="keep")
        await dee.close()
        await ann.receive("system/presence", event="leave", participant={"id": "dee"})
        again = await gateway.join("dee")
        await again.frame(stream, "kept")
        assert await ann.receive_frame(stream) == "kept"
        await again.close()
        back = await gateway.join("bob")
        await back.close()


async def test_a_grant_waits_for_somebody_who_is_absent(gateway: GatewayProcess) -> None:
    async with scene(gateway) as (ann, _bob, cy, stream):
        pending = await grant(ann, stream, "dee", when_absent=True, reason="your shift")
        assert (pending["pending"], pending["authorized_writers"]) == (True, ["ann", "bob"])
        assert (await cy.receive("stream/write-granted", participant_id="dee"))["payload"]["pending"] is True
        refused = {"stream_id": stream, "participant_id": "nobody", "when_absent": True}
        await ann.error("participant_not_found", of=await ann.send("stream/grant-write", refused))
        late = await gateway.join("dee")
        assert active_stream(late.welcome, stream)["pending_writers"] == ["dee"]
        granted = (await late.receive("stream/write-granted", participant_id="dee"))["payload"]
        assert (granted["authorized_writers"], granted["reason"]) == (["ann", "bob", "dee"], "your shift")
        await late.frame(stream, "mine")
        assert await cy.receive_frame(stream) == "mine"
        await late.close()


async def test_the_sdk_grants_to_absent_writers(gateway: GatewayProcess) -> None:
    connecting = mewstream.connect(gateway.ws_url, participant="ann", token=token_of("ann"))
    async with connecting as ann, ann.open_stream() as stream:
        with ann.events() as news:
            await stream.grant("dee", when_absent=True, on_disconnect="keep")
            assert (stream.pending_writers, stream.authorized_writers, stream.conditions) == (["dee"], ["ann"], {})
            dee = await gateway.join("dee")
            granted = [each async for each in first(news, 2) if isinstance(each, WriteGranted)]
            assert [each.pending for each in granted] == [True, False]
        assert (stream.pending_writers, stream.authorized_writers) == ([], ["ann", "dee"])
        assert stream.conditions == {"dee": {"on_disconnect": "keep"}}
        await dee.close()
        await stream.revoke("dee")
        await stream.grant("dee", when_absent=True)
        await stream.revoke("dee")
        assert stream.pending_writers == []


async def first(news: mewstream.Events, grants: int) -> AsyncIterator[mewstream.Event]:
    """The events up to the last of so many grants."""
    async for event in news:
        yield event
        grants -= isinstance(event, WriteGranted)
        if not grants:
            return


async def test_over_http_a_grant_may_wait(gateway: GatewayProcess) -> None:
    async with scene(gateway) as (_ann, _bob, _cy, stream):
        payload = {"stream_id": stream, "participant_id": "dee", "when_absent": True}
        status, answer = await gateway.post("ann", {"kind": "stream/grant-write", "payload": payload})
        assert (status, answer["status"], answer["pending"]) == (200, "granted", True)
