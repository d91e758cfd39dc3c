"""Losing the connection: cut wires, killed gateways, and what is known afterwards."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sdk_helping import Script, enter, eventually, scripted, until, wire_to

import mewstream
from mewstream import (
    Backoff,
    ConnectionClosed,
    Event,
    FramesUnconfirmed,
    Space,
    events,
)
from support import GatewayProcess, space_config, token_of


@pytest.fixture
def journaled(tmp_path: Path) -> Iterator[GatewayProcess]:
    config = space_config("ann", "bob", "cy")
    gateway = GatewayProcess(tmp_path, config, options=("--data", str(tmp_path / "data"))).start()
    yield gateway
    gateway.stop(expect_clean_log=False)


def kill(gateway: GatewayProcess) -> None:
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGKILL)
    gateway.process.wait(timeout=10)
    gateway.process.stdout.close()


class Recording:
    """All events of a space, in order."""

    def __init__(self, space: Space) -> None:
        self.events: list[Event] = []
        self._task = asyncio.create_task(self._follow(space))

    async def _follow(self, space: Space) -> None:
        try:
            async for event in space.events():
                self.events.append(event)
        except ConnectionClosed:
            pass

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def stop(self) -> None:
        await self._task


async def test_a_gateway_killed_in_mid_stream(journaled: GatewayProcess) -> None:
    """What flush() confirmed is there; of the rest it is said that nobody knows."""
    async with enter(journaled, "ann", request_timeout=10) as ann:
        news = ann.events()
        stream = await ann.open_stream()
        kept = await stream.subscribe()  # or none of its frames would be for ann
        confirmed, sent = -1, 0
        with pytest.raises(FramesUnconfirmed) as caught:
            for batch in range(100):
                for _ in range(50):
                    await stream.send(str(sent))
                    sent += 1
                if batch == 20:
                    kill(journaled)
                await stream.flush()
                confirmed = sent - 1
        assert caught.value.count == 50
        assert confirmed > 0
        journaled.start()
        resumed = await until(news, events.Resumed)
        assert resumed.unconfirmed == caught.value.count
        assert ann.streams[stream.id] is stream
        assert stream.is_mine
        await stream.send("after")
        await stream.flush()  # the loss was reported once
        with pytest.raises(FramesUnconfirmed):
            await ann.flush()  # and once to whoever asks for the space as a whole
        await ann.flush()
        recorded = await all_frames(journaled, stream.id)
        kept.close()
        assert recorded[-1] == "after"
        numbers = [int(each) for each in recorded[:-1]]
        assert numbers == list(range(len(numbers))), "lost in the middle, or twice"
        assert len(numbers) > confirmed, "an acknowledged frame was lost"
        assert len(numbers) >= sent - caught.value.count


async def all_frames(gateway: GatewayProcess, stream: str) -> list[str]:
    found: list[str] = []
    since = 0
    while True:
        _, answer = await gateway.http("GET", "/participants/ann/messages", "ann", params={"since": str(since)})
        if answer["seq"] == since:
            return found
        since = answer["seq"]
        found += [
            each["data"] for each in answer["messages"] if each["kind"] == "frame" and each["stream_id"] == stream
        ]


async def test_a_reader_of_a_killed_gateway_knows_of_every_gap(journaled: GatewayProcess) -> None:
    """Whatever was lost: a frame says how many, or that nobody knows."""
    for _ in range(3):
        async with enter(journaled, "ann") as ann, enter(journaled, "bob") as bob:
            stream = await ann.announce()
            await stream.start()
            news, writers_news = Recording(bob), ann.events()
            subscription = await (await bob.stream(stream.id)).subscribe()
            await stream.send(0)
            got = [await subscription.receive(10)]  # what comes before the first frame of a reader is no gap
            asyncio.get_running_loop().call_later(0.1, kill, journaled)
            number = 1
            while journaled.process is not None and journaled.process.poll() is None:
                await stream.send(number)
                number += 1
                await asyncio.sleep(0)
            journaled.start()
            await until(writers_news, events.Resumed)
            await eventually(lambda: news.of(events.Resumed))  # noqa: B023
            for _ in range(5):
                await stream.send(number)
                number += 1
            await stream.complete()
            got += [frame async for frame in subscription]
            (resumed,) = news.of(events.Resumed)
            expected = 0
            for frame in got:
                expected += frame.gap
                if frame.gap == 1 and not resumed.recovered:
                    expected = frame.json()  # nobody knows how many
                assert frame.json() == expected
                expected += 1
            assert got[-1].json() == number - 1
            if not resumed.recovered:
                assert len(news.of(events.Gap)) == 1
        await news.stop()


async def test_a_cut_wire_loses_nothing(gateway: GatewayProcess) -> None:
    """Exactly once and in order, for frames and for events, however often the wire is cut."""
    async with wire_to(gateway) as wire, enter(gateway, "ann") as ann, enter(gateway, "bob", url=wire.url) as bob:
        raw, numbered = await ann.open_stream(), await ann.open_stream()
        await bob.stream(numbered.id)
        subscription, other = await bob.subscribe(raw.id), await bob.subscribe(numbered.id)
        news = Recording(bob)
        for number in range(400):
            await raw.send(str(number))
            await numbered.send(number, numbered=True)
            if number % 20 == 0:
                await ann.chat(str(number))
            if number % 100 == 25:  # every other cut finds him back, the others wherever he is
                await eventually(lambda: len(news.of(events.Resumed)) >= number // 100)  # noqa: B023
            if number % 50 == 25:
                wire.cut()
                await asyncio.sleep(0.02)
        await raw.close()
        await numbered.close()
        assert [(int(frame.text), frame.gap) async for frame in subscription] == [(n, 0) for n in range(400)]
        assert [(frame.json(), frame.gap) async for frame in other] == [(n, 0) for n in range(400)]
        await bob.chat("end")
        await eventually(lambda: news.of(events.Chat) and news.of(events.Chat)[-1].text == "end")
        assert [each.text for each in news.of(events.Chat)][:-1] == [str(n) for n in range(0, 400, 20)]
        assert len(news.of(events.Disconnected)) == len(news.of(events.Resumed)) >= 4
        assert all(each.recovered and each.unconfirmed == 0 for each in news.of(events.Resumed))
        assert [each.stream for each in news.of(events.StreamClosed)] == [raw.id, numbered.id]
        assert all(each.how == "closed" for each in news.of(events.StreamClosed))
        assert not news.of(events.Gap)
    await news.stop()


async def test_cut_again_while_what_was_missed_is_coming(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "ann") as ann, enter(gateway, "bob", url=wire.url) as bob:
        stream = await ann.open_stream()
        subscription = await (await bob.stream(stream.id)).subscribe(max_pending=100_000)
        wire.is_shut = True
        wire.cut()
        count = 3000
        for number in range(count):
            await stream.send(f"{number}:" + "x" * 200)
        await stream.close()
        wire.is_shut = False
        for _ in range(6):
            connections = wire.connections
            await eventually(lambda: wire.connections > connections)  # noqa: B023
            await asyncio.sleep(0.005)
            wire.cut()
        got = [frame async for frame in subscription]
        assert [int(frame.text.split(":")[0]) for frame in got] == list(range(count))
        assert not any(frame.gap for frame in got)


async def test_what_happened_while_away(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "ann") as ann, enter(gateway, "bob", url=wire.url) as bob:
        kept, ended = await ann.open_stream(), await ann.open_stream(description="ended")
        await bob.stream(ended.id)
        theirs = {each: bob.streams[each] for each in (kept.id, ended.id)}
        awaited = await bob.subscribe("brief")
        news = Recording(bob)
        wire.is_shut = True
        wire.cut()
        await eventually(lambda: not bob.is_connected)
        assert "reconnecting" in repr(bob)
        await kept.transfer("ann", reason="nothing")
        await ended.close(reason="over")
        brief = await ann.announce(name="brief")
        await brief.start()
        await brief.send("seen")
        await brief.fail("oops", "gone again")
        new = await ann.open_stream()
        async with enter(gateway, "cy"):
            pass
        wire.is_shut = False
        await bob.chat("back")
        assert [frame.json() async for frame in awaited] == ["seen"]
        assert set(bob.streams) >= {kept.id, new.id}
        assert ended.id not in bob.streams
        assert brief.id not in bob.streams
        assert bob.streams[kept.id] is theirs[kept.id]
        assert theirs[ended.id].status == "closed"
        closed = {each.stream: (each.how, each.reason) for each in news.of(events.StreamClosed)}
        assert closed == {ended.id: ("closed", "over"), brief.id: ("failed", "gone again")}
        opened = {each.stream: each.handle for each in news.of(events.StreamOpened)}
        assert opened[brief.id].status == "failed"
        assert opened[new.id] is bob.streams[new.id]
        assert [each.participant for each in news.of(events.Joined)] == ["cy"]
        assert [each.participant for each in news.of(events.Left)] == ["cy"]
        for stream in (kept, new):
            await stream.close()
    await news.stop()


async def test_requests_in_flight_are_answered_once(gateway: GatewayProcess) -> None:
    """The gateway has carried some out when the wire is cut, and others have not reached it."""
    async with wire_to(gateway) as wire, enter(gateway, "bob", url=wire.url) as bob, enter(gateway, "ann") as ann:
        seen, own = Recording(ann), Recording(bob)
        opening = []
        for number in range(60):
            opening.append(asyncio.create_task(bob.open_stream(description=str(number)).make()))
            if number % 15 == 10:
                await asyncio.sleep(0)
                wire.cut()
            if number % 7 == 0:
                await asyncio.sleep(0.002)
        streams = await asyncio.gather(*opening)
        assert len({stream.id for stream in streams}) == 60
        await bob.chat("end")
        for news in (seen, own):
            await eventually(lambda: news.of(events.Chat))  # noqa: B023
            opened = sorted(int(each.handle.description) for each in news.of(events.StreamOpened))
            assert opened == list(range(60))
        for stream in streams:
            assert bob.streams[stream.id] is stream
            await stream.close()
    await seen.stop()
    await own.stop()


async def test_a_request_that_never_reached_the_gateway(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "bob", url=wire.url) as bob:
        wire.is_deaf = True
        asking = asyncio.create_task(bob.chat("hello"))
        await asyncio.sleep(0.05)
        assert not asking.done()
        wire.is_deaf = False
        wire.cut()
        assert (await asking).payload["text"] == "hello"


async def test_requests_over_a_killed_gateway(journaled: GatewayProcess) -> None:
    async with enter(journaled, "ann") as ann, enter(journaled, "bob") as bob:
        bob.tool("double", lambda n: 2 * n)
        asking = [asyncio.create_task(ann.open_stream(description=str(n)).make()) for n in range(20)]
        await asyncio.sleep(0)
        kill(journaled)
        more = [asyncio.create_task(ann.chat(str(n))) for n in range(5)]
        journaled.start()
        streams = await asyncio.gather(*asking)
        assert len({stream.id for stream in streams}) == 20
        assert [message.payload["text"] for message in await asyncio.gather(*more)] == [str(n) for n in range(5)]
        await bob.chat("here")
        result = await ann.call_tool("double", {"n": 4}, to="bob")
        assert result["structuredContent"] == {"result": 8}
        assert sorted(int(each.description or "") for each in ann.streams.values()) == list(range(20))


async def test_a_gateway_without_a_journal_forgets(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, space_config("ann", "bob")).start()
    async with enter(gateway, "ann") as ann:
        news, subscription = ann.events(), ann.subscribe()
        stream = await ann.open_stream()
        of_stream = stream.subscribe()
        kill(gateway)
        gateway.start()
        assert (await until(news, events.Gap)).stream is None
        closed = await until(news, events.StreamClosed)
        assert (closed.stream, closed.how, stream.status) == (stream.id, "lost", "lost")
        resumed = await until(news, events.Resumed)
        assert (resumed.recovered, resumed.unconfirmed) == (False, 0)
        assert resumed.reason
        assert [frame async for frame in of_stream] == []
        again = await ann.open_stream()
        await again.send("x")
        frame = await subscription.receive(5)
        assert (frame.text, frame.gap) == ("x", 1)
        with pytest.raises(mewstream.StreamNotFound, match="lost"):
            await stream.send("x")
    gateway.stop(expect_clean_log=False)


async def test_frames_wait_for_the_connection(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "bob", url=wire.url) as bob:
        stream = await bob.open_stream()
        wire.is_shut = True
        wire.cut()
        await eventually(lambda: not bob.is_connected)
        sending = asyncio.create_task(stream.send("later"))
        given_up = asyncio.create_task(stream.send("never"))
        await asyncio.sleep(0.05)
        assert not sending.done()
        given_up.cancel()
        subscription = stream.subscribe()
        wire.is_shut = False
        await sending
        await stream.flush()
        assert (await subscription.receive(5)).text == "later"
        assert subscription.pending == 0
        await stream.close()


async def test_flush_survives_a_cut_where_nothing_was_at_stake(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "bob", url=wire.url) as bob:
        stream, other = await bob.open_stream(), await bob.open_stream()
        await stream.send("x")
        await stream.flush()
        wire.is_deaf = True
        await other.send("lost")
        flushing = asyncio.create_task(stream.flush())
        await asyncio.sleep(0.05)
        assert not flushing.done()
        wire.is_deaf = False
        wire.cut()
        await flushing
        with pytest.raises(FramesUnconfirmed) as caught:
            await other.flush()
        assert caught.value.count == 1
        await other.flush()
        await stream.close()
        await other.close()


async def test_drain_says_what_was_not_confirmed(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire:
        with pytest.raises(FramesUnconfirmed) as caught:
            async with enter(gateway, "bob", url=wire.url) as bob:
                stream = await bob.open_stream()
                wire.is_deaf = True
                for _ in range(3):
                    await stream.send("x")
                asyncio.get_running_loop().call_later(0.05, wire.cut)
        assert caught.value.count == 3
        assert bob.is_closed
        wire.is_deaf = False
        with pytest.raises(FramesUnconfirmed):
            async with enter(gateway, "bob", url=wire.url) as bob:
                wire.is_deaf = True
                await bob.streams[stream.id].send("x")
                wire.is_shut = True
                wire.cut()
                await eventually(lambda: not bob.is_connected)
        wire.is_deaf = wire.is_shut = False
        async with enter(gateway, "bob", url=wire.url) as bob:
            wire.is_deaf = True
            await bob.streams[stream.id].send("x")
            news = bob.events()
            wire.is_deaf = False
            wire.cut()
            assert (await until(news, events.Resumed)).unconfirmed == 1
            await bob.streams[stream.id].send("y")
        # The loss was told by the event, and what came after it is recorded.


async def test_closing_while_there_is_no_connection(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire:
        bob = await enter(gateway, "bob", url=wire.url)
        waiting = asyncio.create_task(bob.subscribe("s").receive())
        wire.is_shut = True
        wire.cut()
        await eventually(lambda: not bob.is_connected)
        asking = asyncio.create_task(bob.chat("x"))
        await asyncio.sleep(0.05)
        await bob.close()
        with pytest.raises(ConnectionClosed):
            await asking
        with pytest.raises(mewstream.SubscriptionEnded):
            await waiting
        await asyncio.sleep(0.1)  # what was on its way when it was closed has arrived
        before = wire.connections
        await asyncio.sleep(0.3)
        assert wire.connections == before, "it went on connecting"


async def test_reconnect_false(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire:
        bob = await enter(gateway, "bob", url=wire.url, reconnect=False)
        subscription, news = await bob.subscribe("s"), bob.events()
        proposal = await bob.propose("x")

        @bob.on_request
        async def never(call: mewstream.Call) -> None:
            await asyncio.Event().wait()

        asking = asyncio.create_task(bob.request("never", to="bob"))
        await asyncio.sleep(0.05)
        wire.cut()
        with pytest.raises(ConnectionClosed):
            await asking
        with pytest.raises(ConnectionClosed):
            async for _ in subscription:
                pass
        with pytest.raises(ConnectionClosed):
            async for _ in news:
                pass
        with pytest.raises(ConnectionClosed):
            await proposal.result()
        with pytest.raises(ConnectionClosed):
            bob.events()
            await bob.events().receive()
        await bob.wait_closed()
        assert bob.error is not None
        assert bob.error.code == 1006
        await bob.close()


async def test_kicked_and_replaced_do_not_come_back(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann:
        bob = await enter(gateway, "bob")
        await eventually(lambda: "bob" in ann.participants)
        await ann.kick("bob", reason="noise")
        await bob.wait_closed()
        assert bob.error is not None
        assert bob.error.code == 4501
        with pytest.raises(ConnectionClosed, match="removed"):
            await bob.chat("x")
        first = await enter(gateway, "bob")
        async with enter(gateway, "bob") as second:
            await first.wait_closed()
            assert first.error is not None
            assert first.error.code == 4502
            await asyncio.sleep(0.3)
            assert second.is_connected


async def test_two_programs_of_one_name_do_not_fight(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "bob", url=wire.url) as first:
        wire.is_shut = True
        wire.cut()
        await eventually(lambda: not first.is_connected)
        second = await enter(gateway, "bob")
        wire.is_shut = False
        await second.wait_closed()  # the first came back with its position, and took the place
        assert second.error is not None
        assert second.error.code == 4002
        await first.chat("here")


async def test_a_token_function_is_asked_for_every_connection(gateway: GatewayProcess) -> None:
    asked = 0

    async def token() -> str:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise OSError("the vault is away for a moment")
        return token_of("bob")

    async with wire_to(gateway) as wire, enter(gateway, "bob", url=wire.url, token=token) as bob:
        assert asked == 1
        news = bob.events()
        wire.cut()
        await until(news, events.Resumed)
        assert asked == 2
        wire.cut()
        await until(news, events.Resumed)
        assert asked == 4


async def test_a_token_that_is_not_good_any_more(gateway: GatewayProcess) -> None:
    tokens = iter([token_of("bob"), "expired-secret"])
    async with wire_to(gateway) as wire:
        bob = await enter(gateway, "bob", url=wire.url, token=lambda: next(tokens))
        wire.cut()
        await bob.wait_closed()
        assert bob.error is not None
        assert "did not let us in" in str(bob.error)
        assert "secret" not in str(bob.error)
        before = wire.connections
        await asyncio.sleep(0.3)
        assert wire.connections == before == 2


async def test_attempts_are_bounded(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire:
        bob = await enter(gateway, "bob", url=wire.url, reconnect=Backoff(first=0.01, most=0.02, attempts=3))
        wire.is_shut = True
        wire.cut()
        await bob.wait_closed()
        assert wire.connections == 4
        assert "could not be made again" in str(bob.error)

        def broken() -> str:
            if wire.connections > 4:
                raise KeyError("secret")
            return token_of("bob")

        wire.is_shut = False
        backoff = Backoff(first=0.01, most=0.02, attempts=2)
        bob = await enter(gateway, "bob", url=wire.url, token=broken, reconnect=backoff)
        wire.cut()
        await bob.wait_closed()
        assert "KeyError" in str(bob.error)
        assert "secret" not in str(bob.error)


async def test_a_gateway_that_lets_in_and_throws_out_is_asked_ever_less() -> None:
    times: list[float] = []

    async def act(script: Script) -> None:
        times.append(asyncio.get_running_loop().time())
        await script.welcome({"epoch": "e", "seq": 1}, seq=1)
        await script.connection.close(4003, "cannot record")

    async with scripted(act) as url, mewstream.connect(url, participant="me", reconnect=Backoff(first=0.02, most=60)):
        await eventually(lambda: len(times) >= 3)
        count = len(times)
        await asyncio.sleep(0.5)
        assert len(times) < count + 12, "the delays do not grow"


def test_backoff() -> None:
    backoff = Backoff(first=0.5, most=8.0)
    for attempt in (0, 1, 2, 3, 4, 5, 100, 100_000):
        delays = [backoff.delay(attempt) for _ in range(300)]
        bound = min(8.0, 0.5 * 2 ** min(attempt, 10))
        assert all(0 <= each <= bound for each in delays)
        assert max(delays) > bound / 2 > min(delays)
    assert not Backoff().is_over(10**9)
    assert [Backoff(attempts=2).is_over(n) for n in (1, 2)] == [False, True]
    with pytest.raises(ValueError, match="negative"):
        Backoff(first=-1)


async def test_a_drained_gateway_is_come_back_to(journaled: GatewayProcess) -> None:
    async with enter(journaled, "ann") as ann:
        stream = await ann.open_stream()
        news = ann.events()
        await stream.send("before")
        await asyncio.to_thread(journaled.stop, expect_clean_log=False)
        lost = await until(news, events.Disconnected)
        assert "going away" in lost.reason
        journaled.start()
        resumed = await until(news, events.Resumed)
        assert resumed.recovered
        await stream.send("after")
        await stream.flush() if not resumed.unconfirmed else None
        assert stream.is_mine


async def test_holding_goes_on_over_a_new_connection(gateway: GatewayProcess) -> None:
    async with wire_to(gateway) as wire, enter(gateway, "ann") as ann, enter(gateway, "bob", url=wire.url) as bob:
        stream = await ann.open_stream()
        slow = await (await bob.stream(stream.id)).subscribe(on_slow="pause", max_pending=5)
        for number in range(30):
            await stream.send(str(number))
        await stream.flush()
        await eventually(lambda: bob._link._holders)
        news = bob.events()
        wire.cut()
        # Whoever does not read does not see that the wire is cut, either: it is seen at the next reading.
        got = [(await slow.receive(5)).text for _ in range(30)]
        assert got == [str(number) for number in range(30)]
        for number in range(30, 60):
            await stream.send(str(number))
        assert (await until(news, events.Resumed)).recovered
        assert [(await slow.receive(5)).text for _ in range(30)] == [str(number) for number in range(30, 60)]
        await stream.close()


async def test_nothing_is_left_behind(gateway: GatewayProcess) -> None:
    before = asyncio.all_tasks()
    async with wire_to(gateway) as wire:
        for _ in range(5):
            async with enter(gateway, "bob", url=wire.url) as bob:
                news = bob.events()
                wire.cut()
                await until(news, events.Resumed)
                await bob.chat("x")
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == before
