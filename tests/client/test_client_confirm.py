"""Frames that are answered: ``send(confirm=True)``, ``try_send``, and frames that are too large."""

from __future__ import annotations

import asyncio

import pytest
from plain_gateway import plain_gateway
from sdk_helping import enter, eventually, wire_to

import mewstream
from mewstream import FramesUnconfirmed, LimitExceeded, UnauthorizedStreamWrite
from mewstream.sync import connect as connect_sync
from support import GatewayProcess, token_of


async def test_a_confirmed_frame_is_recorded(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        mine = ann.subscribe(stream)
        await asyncio.gather(*(stream.send(f"{number}", confirm=True) for number in range(50)))
        await stream.send({"n": 1}, numbered=True, confirm=True)
        await stream.send(b"\x00", confirm=True)
        got = [await mine.receive(5) for _ in range(52)]
        assert sorted(int(each.data) for each in got[:50]) == list(range(50))
        assert got[51].data == b"\x00"


async def test_each_confirmed_frame_gets_its_own_refusal(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, ann.open_stream() as stream:
        theirs = await bob.stream(stream.id)
        await stream.grant("bob", max_frames=3)
        await eventually(lambda: "bob" in theirs.authorized_writers)
        outcomes = await asyncio.gather(*(theirs.send("x", confirm=True) for _ in range(10)), return_exceptions=True)
        assert outcomes[:3] == [None] * 3
        assert all(isinstance(each, UnauthorizedStreamWrite) for each in outcomes[3:]), outcomes
        # Each was told to the one who waited, so that nothing is left for a later call.
        await stream.grant("bob")
        await eventually(lambda: "bob" in theirs.authorized_writers)
        await theirs.send("y", confirm=True)
        await theirs.flush()


async def test_a_lost_connection_leaves_it_unconfirmed(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "ann", url=wire.url) as ann:
        stream = await ann.open_stream()
        wire.is_deaf = True
        sending = asyncio.create_task(stream.send("x", confirm=True))
        await eventually(lambda: ann._inbox.confirmed._expected)
        wire.is_deaf = False
        wire.cut()
        with pytest.raises(FramesUnconfirmed):
            await sending
        with pytest.raises(FramesUnconfirmed):
            await ann.flush()  # which reports on all frames of the space
        await eventually(lambda: ann.is_connected)


async def test_try_send_never_waits(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "ann", url=wire.url) as ann:
        stream = await ann.open_stream()
        assert stream.try_send("taken") is True
        await stream.flush()
        wire.is_shut = True
        wire.cut()
        await eventually(lambda: not ann.is_connected)
        assert stream.try_send("not taken") is False
        wire.is_shut = False
        await eventually(lambda: ann.is_connected)
        await eventually(lambda: stream.try_send("taken again"))


async def test_try_send_raises_what_send_raises(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, ann.open_stream() as stream:
        theirs = await bob.stream(stream.id)
        with pytest.raises(UnauthorizedStreamWrite):
            theirs.try_send("x")


async def test_a_frame_that_is_too_large_is_not_sent(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        mine = ann.subscribe(stream)
        head = len(f"#{stream.id}#")
        largest = (1 << 20) - head
        for too_large in (b"x" * (largest + 1), "x" * (largest + 1)):
            with pytest.raises(LimitExceeded) as refused:
                await stream.send(too_large)
            assert refused.value.details["limit"] == "message_bytes"
            with pytest.raises(LimitExceeded):
                stream.try_send(too_large)
        with pytest.raises(LimitExceeded):
            await stream.send("x" * largest, numbered=True)
        await stream.send(b"x" * largest)
        await stream.send({"n": 1}, numbered=True)
        assert len(await mine.receive(10)) == largest
        small = await mine.receive(5)
        assert (small.sequence, small.gap) == (1, 0), "what was not sent has no number"
        assert ann.is_connected


async def test_a_plain_gateway_gets_plain_frames() -> None:
    async with (
        plain_gateway() as plain,
        mewstream.connect(plain.url, participant="ann", token="t") as ann,
        ann.open_stream() as stream,
    ):
        mine = ann.subscribe(stream)
        await stream.send("x", confirm=True)
        assert (await mine.receive(5)).data == b"x"


def test_the_synchronous_twin(gateway: GatewayProcess) -> None:
    with connect_sync(gateway.ws_url, participant="ann", token=token_of("ann")) as ann, ann.open_stream() as stream:
        mine = stream.subscribe()
        stream.send("a", confirm=True)
        assert stream.try_send("b") is True
        assert [mine.receive(5).text, mine.receive(5).text] == ["a", "b"]
