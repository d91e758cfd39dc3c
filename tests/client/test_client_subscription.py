"""Reading: subscriptions by every name, slow readers, gaps, many readers, and those who go away."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from sdk_helping import Script, enter, eventually, scripted, until

import mewstream
from mewstream import Space, SubscriptionEnded, events
from support import GatewayProcess, running_gateway, space_config


async def told(space: Space) -> None:
    """All that was sent to the space so far has come."""
    await space.chat("mark")


async def test_subscriptions_by_every_name(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        early_alias, early_other = await bob.subscribe("hero"), await bob.subscribe("heroine")
        everything = await bob.subscribe()
        stream = await ann.announce(name="hero")
        await stream.start()
        theirs = await bob.stream("hero")
        by_id, by_alias, by_object = (
            await bob.subscribe(stream.id),
            await bob.subscribe("hero"),
            await bob.subscribe(theirs),
        )
        early_id = await bob.subscribe(f"stream-{int(stream.id.split('-')[1]) + 1}")
        next_stream = await ann.open_stream(name="heroine")
        assert early_id._queue is not None
        await bob.stream(next_stream.id)
        await stream.send("one", numbered=False)
        await stream.send("two")
        await next_stream.send("three")
        await ann.flush()
        await told(bob)
        for subscription in (early_alias, by_id, by_alias, by_object):
            assert [(await subscription.receive(5)).data for _ in range(2)] == [b"one", b'"two"']
            assert subscription.pending == 0
        for subscription in (early_other, early_id):
            assert (await subscription.receive(5)).text == "three"
        assert [(await everything.receive(5)).stream for _ in range(3)] == [stream.id, stream.id, next_stream.id]
        await stream.complete()
        await next_stream.close()
        for subscription in (early_alias, by_id, by_alias, by_object, early_other, early_id):
            assert [frame async for frame in subscription] == []
            with pytest.raises(SubscriptionEnded):
                await subscription.receive()
        await told(bob)
        assert everything.pending == 0
        everything.close()
        with pytest.raises(SubscriptionEnded):
            await everything.receive(1)
        assert [frame async for frame in bob.subscribe(theirs)] == []
        routes = bob._inbox.routes
        assert (routes._streams, routes._every_stream, routes._unresolved) == ({}, (), {})


@pytest.mark.parametrize("how", ["close", "with", "break", "garbage", "cycle", "thread"])
async def test_leaving(gateway: GatewayProcess, how: str) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        other = stream.subscribe()
        routes = ann._inbox.routes
        sending = asyncio.create_task(stream.send("a"))
        if how == "close":
            subscription = stream.subscribe()
            waiting = asyncio.create_task(subscription.receive())
            await asyncio.sleep(0)
            subscription.close()
            subscription.close()
            with pytest.raises((SubscriptionEnded, AssertionError)):
                assert (await waiting).text != "a"
        elif how == "with":
            with stream.subscribe() as subscription, ann.events() as news:
                assert subscription.pending == 0
                assert news.pending == 0
        elif how == "break":
            async for frame in stream.subscribe():
                assert frame.stream == stream.id
                break
            chatting = asyncio.create_task(ann.chat("x"))
            async for _ in ann.events():
                break
            await chatting
        elif how == "garbage":
            subscription = stream.subscribe()
            del subscription
        elif how == "cycle":
            loop: list[Any] = [stream.subscribe(), ann.events()]
            loop.append(loop)
            del loop
            gc.collect()
        else:
            holder = [stream.subscribe()]
            thread = threading.Thread(target=holder.clear)
            thread.start()
            await asyncio.to_thread(thread.join)
        await sending
        await asyncio.sleep(0.01)
        if how != "close":
            assert len(routes._streams[stream.id.encode()]) == 1
        assert routes._events == ()
        await stream.send("b")
        await stream.flush()
        assert [(await other.receive(5)).text, (await other.receive(5)).text] == ["a", "b"]


async def test_what_was_pending_can_be_taken_after_the_end(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        subscription, news = stream.subscribe(), ann.events()
        for number in range(3):
            await stream.send(str(number))
        await stream.flush()
        await told(ann)
        subscription.close()
        assert [frame.text async for frame in subscription] == ["0", "1", "2"]
        news.close()
        assert [type(event) async for event in news] == [events.Chat]


async def test_one_subscription_is_for_one_task(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        subscription = stream.subscribe()
        first = asyncio.create_task(subscription.receive())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one task"):
            await subscription.receive()
        await stream.send("x")
        assert (await first).text == "x"


async def test_a_wait_that_is_cancelled_loses_nothing(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        subscription = stream.subscribe()
        got = []
        sending = asyncio.create_task(_count_up(stream, 500))
        while len(got) < 500:
            task = asyncio.create_task(subscription.receive())
            await asyncio.sleep(0)
            task.cancel()
            try:
                got.append((await task).text)
            except asyncio.CancelledError:
                try:
                    got.append((await subscription.receive(0.0005)).text)
                except TimeoutError:
                    pass
        await sending
        assert got == [str(number) for number in range(500)]


async def _count_up(stream: mewstream.Stream, count: int) -> None:
    for number in range(count):
        await stream.send(str(number))
        if number % 50 == 0:
            await asyncio.sleep(0.001)
    await stream.flush()


# -- slow readers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("numbered", [False, True])
async def test_drop_oldest_counts_exactly(gateway: GatewayProcess, numbered: bool) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        slow, roomy = stream.subscribe(max_pending=10), stream.subscribe(max_pending=200)
        for number in range(100):
            await stream.send(number, numbered=numbered)
        await stream.flush()
        await told(ann)
        assert (slow.pending, slow.dropped) == (10, 90)
        assert (roomy.pending, roomy.dropped) == (100, 0)
        got = [await slow.receive(5) for _ in range(10)]
        assert [frame.json() for frame in got] == list(range(90, 100))
        assert [frame.gap for frame in got] == [90] + [0] * 9
        assert (slow.pending, slow.dropped) == (0, 90)
        await stream.send("x", numbered=numbered)
        assert (await slow.receive(5)).gap == 0
        assert sum([(await roomy.receive(5)).gap for _ in range(101)]) == 0


@pytest.mark.parametrize("numbered", [False, True])
async def test_latest_keeps_the_newest(gateway: GatewayProcess, numbered: bool) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        newest, few = stream.subscribe(on_slow="latest"), stream.subscribe(on_slow="latest", max_pending=10)
        for number in range(95):
            await stream.send(number, numbered=numbered)
        await stream.flush()
        await told(ann)
        assert (newest.pending, newest.dropped) == (1, 94)
        frame = await newest.receive(5)
        assert (frame.json(), frame.gap) == (94, 94)
        assert (few.pending, few.dropped) == (5, 90)
        assert [(await few.receive(5)).gap for _ in range(5)] == [90, 0, 0, 0, 0]


async def test_pause_loses_nothing(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, ann.open_stream() as stream:
        theirs = await bob.stream(stream.id)
        slow = await theirs.subscribe(on_slow="pause", max_pending=5)
        for number in range(20_000):
            await stream.send(f"{number}:" + "x" * 200)
        await stream.flush()
        assert bob._link._holders
        bound = slow.pending
        assert bound < 5000, "reading went on"
        got = []
        while len(got) < 20_000:
            frame = await slow.receive(10)
            assert frame.gap == 0
            got.append(int(frame.text.split(":")[0]))
        assert got == list(range(20_000))
        assert slow.dropped == 0
        await eventually(lambda: not bob._link._holders)
        await bob.chat("reading again")
        waiting = await theirs.subscribe(on_slow="pause", max_pending=1)
        for _ in range(3):
            await stream.send("x")
        await stream.flush()
        await eventually(lambda: bob._link._holders)
        waiting.close()  # whoever does not read any more must not hold up the others
        await bob.chat("reading once more")


async def test_a_paused_reader_is_told_why_nothing_is_confirmed(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann", request_timeout=0.2) as ann:
        stream = await ann.open_stream()
        subscription = stream.subscribe(on_slow="pause", max_pending=1)
        for _ in range(5):
            await stream.send("x")
        await eventually(lambda: ann._link._holders)
        await stream.send("x")
        with pytest.raises(mewstream.RequestTimeout, match="on_slow='pause'"):
            await ann.flush()
        subscription.close()
        await ann.flush()


@pytest.mark.parametrize("wrong", [{"on_slow": "wait"}, {"max_pending": 0}])
async def test_wrong_options(gateway: GatewayProcess, wrong: Any) -> None:
    async with enter(gateway, "ann") as ann:
        with pytest.raises(ValueError, match=r"on_slow is 'wait'|at least 1"):
            ann.subscribe("s", **wrong)


async def test_events_are_bounded(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann:
        few, many = ann.events(max_pending=10), ann.events()
        for number in range(25):
            await ann.chat(str(number))
        assert (few.pending, few.dropped) == (10, 15)
        assert (many.pending, many.dropped) == (25, 0)
        texts = []
        for _ in range(10):
            event = await few.receive(1)
            assert isinstance(event, events.Chat)
            texts.append(event.text)
        assert texts == [str(number) for number in range(15, 25)]


async def test_gaps_in_the_numbers_of_a_writer(gateway: GatewayProcess) -> None:
    """A writer that skips numbers, two writers at once, and one that begins anew."""
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        bob = await gateway.join("bob")
        await stream.grant("bob")
        subscription = stream.subscribe()

        async def by_bob(sequence: int) -> None:
            payload = {"stream": {"stream_id": stream.id}, "sequence": sequence, "content": sequence}
            await bob.send("stream/data", payload)
            await bob.settle()

        async def by_ann(text: str) -> None:
            await stream.send(text, numbered=True)
            await stream.flush()  # the order of two connections is known only once a frame is recorded

        await by_ann("a")
        await by_bob(5)
        await by_bob(6)
        await by_ann("b")
        await by_bob(10)
        await by_ann("c")
        got = [await subscription.receive(5) for _ in range(6)]
        assert [(frame.writer, frame.sequence, frame.gap) for frame in got] == [
            ("ann", 1, 0),
            ("bob", 5, 0),
            ("bob", 6, 0),
            ("ann", 2, 0),
            ("bob", 10, 3),
            ("ann", 3, 0),
        ]
        await bob.close()
        await eventually(lambda: "bob" not in ann.participants)
        bob = await gateway.join("bob")
        await stream.grant("bob")
        await by_bob(0)
        frame = await subscription.receive(5)
        assert (frame.sequence, frame.gap) == (0, 0)
        await bob.close()


async def test_frames_dropped_of_several_writers_are_counted_once(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, ann.open_stream() as stream:
        await eventually(lambda: "bob" in ann.participants)
        await stream.grant("bob")
        theirs = await bob.stream(stream.id)
        slow = stream.subscribe(max_pending=2)
        for _ in range(10):
            await stream.send("a", numbered=True)
            await theirs.send("b", numbered=True)
            await theirs.flush()
            await stream.flush()
        await told(ann)
        assert slow.dropped == 18
        got = [await slow.receive(1) for _ in range(2)]
        assert {frame.writer for frame in got} == {"ann", "bob"}
        assert [frame.gap for frame in got] == [18, 0]
        await stream.send("a", numbered=True)
        assert (await slow.receive(5)).gap == 0


async def test_what_the_gateway_drops_is_counted_once() -> None:
    """It tells of it after the frames that came after the gap."""

    async def act(script: Script) -> None:
        await script.welcome({"active_streams": [], "epoch": "e", "seq": 1}, seq=1)
        await script.relay()

        async def data(seq: int, sequence: int) -> None:
            payload = {"stream": {"stream_id": "n"}, "sequence": sequence, "content": sequence}
            await script.tell("stream/data", payload, seq=seq, **{"from": "w"})

        await data(2, 1)
        await data(6, 5)  # 3, 4 and 5 were dropped
        payload = {"notice": "frames_dropped", "stream_id": "n", "count": 3, "first_seq": 3, "last_seq": 5}
        await script.tell("system/notice", payload, seq=7)
        await data(8, 6)
        await script.connection.send("#r|9|w#raw")
        payload = {"notice": "frames_dropped", "stream_id": "r", "count": 4, "first_seq": 10, "last_seq": 13}
        await script.tell("system/notice", payload, seq=14)
        await script.connection.send("#r|15|w#raw")
        await script.connection.send("#r|16|w#raw")
        await script.connection.wait_closed()

    async with scripted(act) as url:
        made = mewstream.connect(url, participant="me")
        async with made as space:
            news, everything = space.events(), space.subscribe()
            numbered, raw = space.subscribe("n"), space.subscribe("r")
            await space.chat("begin")
            assert [(await numbered.receive(5)).gap for _ in range(3)] == [0, 3, 0]
            assert [(await raw.receive(5)).gap for _ in range(3)] == [0, 4, 0]
            assert [(await everything.receive(5)).gap for _ in range(6)] == [0, 3, 0, 0, 4, 0]
            gap = await until(news, events.Gap)
            assert (gap.stream, gap.count) == ("n", 3)
            assert (numbered.dropped, numbered.pending) == (0, 0)


async def test_a_reader_slower_than_the_gateway_allows(tmp_path: Any) -> None:
    """The gateway drops for a reader that has stopped reading; what is missing is told exactly."""
    delivery = {"queue_bytes": 1 << 20, "soft_queue_bytes": 1 << 19, "write_buffer_bytes": 1 << 16, "writer_pause": 0.1}
    config = space_config("ann", "bob", mewstream={"delivery": delivery})
    with running_gateway(config) as gateway:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, ann.open_stream() as stream:
            theirs = await bob.stream(stream.id)
            slow = await theirs.subscribe(on_slow="pause", max_pending=1)
            count = 40_000
            body = "x" * 1000
            for number in range(count):
                await stream.send(f"{number}:{body}")
            await stream.flush()
            await stream.send("last")
            got = missing = 0
            async with asyncio.timeout(30):
                while True:
                    frame = await slow.receive()
                    got, missing = got + 1, missing + frame.gap
                    if frame.text == "last":
                        break
            await stream.flush()
            await stream.send("after the notice")
            missing += (await slow.receive(5)).gap
            assert missing > 0
            assert got + missing == count + 1


async def test_fifty_subscribers(tmp_path: Any) -> None:
    people = [f"p{number}" for number in range(50)]
    with running_gateway(space_config("ann", *people)) as gateway:
        async with enter(gateway, "ann") as ann:
            spaces = await asyncio.gather(*(_entered(gateway, each) for each in people))
            stream = await ann.announce(name="news")
            await stream.start()

            async def follow(space: Space) -> list[tuple[Any, int]]:
                async with space:
                    return [(frame.json(), frame.gap) async for frame in space.subscribe("news", max_pending=10_000)]

            following = [asyncio.create_task(follow(space)) for space in spaces]
            await asyncio.gather(*(space.stream("news") for space in spaces))
            for number in range(500):
                await stream.send(number)
            await stream.complete()
            for got in await asyncio.gather(*following):
                assert got == [(number, 0) for number in range(500)]


async def _entered(gateway: GatewayProcess, participant: str) -> Space:
    return await enter(gateway, participant)
