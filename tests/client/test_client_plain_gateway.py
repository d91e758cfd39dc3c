"""The SDK against a gateway that has none of the extensions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from plain_gateway import PlainGateway, plain_gateway
from sdk_helping import QUICK, eventually, until

import mewstream
from mewstream import AnswerLost, Connecting, events


@pytest.fixture
async def plain() -> AsyncIterator[PlainGateway]:
    async with plain_gateway() as gateway:
        yield gateway


def enter(gateway: PlainGateway, participant: str, **options: float) -> Connecting:
    return mewstream.connect(gateway.url, space="demo", participant=participant, token="t", reconnect=QUICK, **options)  # type: ignore[arg-type]


async def test_everything_that_v04_has(plain: PlainGateway) -> None:
    async with enter(plain, "ann") as ann, enter(plain, "bob") as bob:
        assert ann.features == frozenset()
        assert ann.position is None
        assert plain.joins[0]["extensions"] == ["interest", "positions"]  # asked for, and not granted
        await eventually(lambda: "bob" in ann.participants)
        assert set(bob.participants) == {"ann"}
        news = bob.events()
        async with ann.open_stream(description="d") as stream:
            opened = await until(news, events.StreamOpened, stream=stream.id)
            assert (opened.owner, opened.handle.description, opened.handle.authorized_writers) == ("ann", "d", ["ann"])
            subscription = bob.subscribe(stream.id)
            await stream.send("text#with#marks")
            await stream.send(b"bytes")
            await stream.flush()
            frame, other = await subscription.receive(5), await subscription.receive(5)
            assert (frame.text, frame.writer, frame.seq, frame.gap) == ("text#with#marks", None, None, 0)
            assert (other.data, other.is_text) == (b"bytes", False)
            await stream.grant("bob")
            await until(news, events.WriteGranted, participant="bob")
            await bob.streams[stream.id].send("by bob")
            assert (await subscription.receive(5)).text == "by bob"
            await stream.transfer("bob")
            await until(news, events.OwnershipTransferred, new_owner="bob")
        assert bob.streams[stream.id].is_mine
        await bob.streams[stream.id].close()
        assert [each async for each in subscription] == []
        assert not stream.is_open
        with pytest.raises(mewstream.StreamNotFound):
            await stream.grant("bob")
        await ann.chat("hi")
        assert (await until(news, events.Chat)).sender == "ann"
        bob.tool("one", lambda: 1)
        assert (await ann.call_tool("one", to="bob"))["structuredContent"] == {"result": 1}


async def test_streams_of_before_we_came_can_be_read_by_id(plain: PlainGateway) -> None:
    async with enter(plain, "ann") as ann, ann.open_stream() as stream, enter(plain, "bob") as bob:
        assert stream.id not in bob.streams
        subscription = bob.subscribe(stream.id)
        await bob.chat("subscribed")
        await stream.send("x")
        assert (await subscription.receive(5)).text == "x"


async def test_coming_back_without_resume(plain: PlainGateway) -> None:
    async with enter(plain, "ann") as ann, enter(plain, "bob") as bob:
        stream = await ann.open_stream()
        subscription, news = (await bob.stream(stream.id)).subscribe(), bob.events()
        await stream.send("1")
        assert (await subscription.receive(5)).gap == 0
        plain.cut("bob")
        gap = await until(news, events.Gap)
        assert (gap.stream, gap.count) == (None, None)
        resumed = await until(news, events.Resumed)
        assert (resumed.recovered, resumed.reason) == (False, "this gateway cannot resume")
        assert stream.id in bob.streams
        await stream.send("2")
        await stream.send("3")
        assert [(await subscription.receive(5)).gap for _ in range(2)] == [1, 0]
        assert "resume" not in plain.joins[-1]


async def test_requests_are_not_repeated_where_that_would_do_them_twice(plain: PlainGateway) -> None:
    async with enter(plain, "ann") as ann:
        plain.is_mute = True
        asking = asyncio.create_task(ann.open_stream().make())
        await asyncio.sleep(0.05)
        plain.is_mute = False
        plain.cut("ann")
        with pytest.raises(AnswerLost):
            await asking
        await ann.chat("alive")
        assert not ann.streams


async def test_a_gateway_that_begins_anew(plain: PlainGateway) -> None:
    async with enter(plain, "ann") as ann:
        news = ann.events()
        await plain.stop()
        await until(news, events.Disconnected)
        await plain.start()
        assert (await until(news, events.Resumed)).recovered is False
        async with ann.open_stream() as stream:
            await stream.send("x")
            await stream.flush()


async def test_a_handshake_that_it_does_not_know(plain: PlainGateway) -> None:
    async with enter(plain, "ann", request_timeout=0.2) as ann:
        with pytest.raises(mewstream.RequestTimeout, match="stream/announce"):
            await ann.announce()


async def test_an_invitation_that_did_not_work(plain: PlainGateway) -> None:
    """Spec 3.6.6: the acknowledgement says so, and nothing else does."""
    async with enter(plain, "ann") as ann:
        assert (await ann.invite("guest")).token == "token-of-guest"
        with pytest.raises(mewstream.AlreadyExists) as refused:
            await ann.invite("guest")
        assert refused.value.details["participant_id"] == "guest"
        with pytest.raises(mewstream.InvalidOperation, match="invalid characters"):
            await ann.invite("a/b")
