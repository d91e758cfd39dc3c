"""A reader that stops reading: bounded memory, its own loss told exactly, and nobody else's (DESIGN, back-pressure).

The slow one is a bare socket with a tiny buffer that is not read from. Writers are paced by the fast readers, so that
those never fall behind by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psutil
import pytest
from raw_socket import BINARY, PING, Frame, RawSocket, text, ws_frame

from support import GatewayProcess, running_gateway, space_config

QUEUE_BYTES = 256 << 10
DELIVERY = {
    "write_buffer_bytes": 64 << 10,
    "soft_queue_bytes": 128 << 10,
    "queue_bytes": QUEUE_BYTES,
    "writer_pause": 0.1,
}
FRAME_BYTES = 16 << 10
QUEUED_FRAMES = QUEUE_BYTES // (FRAME_BYTES + 10)
BATCH = 12
"""Frames on their way at the same time: less than what a reader may have waiting."""
SLOW_BUFFER = 128 << 10
"""Small, and not so small that catching up takes minutes: windows of a few KB wait for the timers of TCP."""
JOURNAL_BYTES = 16 << 20
"""What the gateway keeps of a space in memory, whoever reads."""


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    config = space_config(
        *("writer", "fast", "other", "slow", "extra"),
        gateway={"drain_seconds": 0},
        mewstream={"delivery": DELIVERY, "limits": {"envelopes_per_second": 0.0}},
    )
    with running_gateway(config) as running:
        yield running


def is_frame(frame: Frame) -> bool:
    return frame.payload.startswith(b"#")


def data_of(frame: Frame) -> tuple[str, int]:
    """The stream of a frame (with or without a position), and the number that its data begins with."""
    _, head, data = frame.payload.split(b"#", 2)
    return head.split(b"|")[0].decode(), int(data[:8])


def numbers_of(frames: list[Frame], stream: str) -> list[int]:
    return [number for each, number in map(data_of, filter(is_frame, frames)) if each == stream]


def message(stream: str, number: int, size: int = FRAME_BYTES) -> bytes:
    data = f"#{stream}#{number:08d}".encode()
    return ws_frame(BINARY, data.ljust(size, b"."), mask=b"\0\0\0\0")


def chat(number: int, size: int = 0) -> bytes:
    return text({"kind": "chat", "payload": {"text": f"chat-{number}", "padding": "." * size}})


def chats(frames: list[Frame]) -> list[int]:
    return [
        int(frame.json["payload"]["text"].removeprefix("chat-"))
        for frame in frames
        if frame.is_envelope and b'"kind":"chat"' in frame.payload
    ]


def notices(frames: list[Frame]) -> list[dict[str, Any]]:
    return [
        frame.json["payload"] for frame in frames if frame.is_envelope and b'"kind":"system/notice"' in frame.payload
    ]


def is_leave(frame: Frame) -> bool:
    return b'"event":"leave"' in frame.payload


def rss(gateway: GatewayProcess) -> int:
    return int(psutil.Process(gateway.pid).memory_info().rss)


class Scene:
    """A writer, two fast readers (the first with positions), and one that does not read."""

    def __init__(self, gateway: GatewayProcess, writer: RawSocket, fast: RawSocket, other: RawSocket, slow: RawSocket):
        self.gateway = gateway
        self.writer, self.fast, self.other, self.slow = writer, fast, other, slow
        self.sent: Counter[str] = Counter()
        self.chats = 0
        self.peak = 0

    async def open(self, **payload: Any) -> str:
        request = {"kind": "stream/request", "payload": {"target": ["fast", "other", "slow"], **payload}}
        await self.writer.send(text(request))
        opened = await self.writer.read_until(lambda frame: b'"kind":"stream/open"' in frame.payload)
        return str(opened[-1].json["payload"]["stream_id"])

    async def flow(
        self, count: int, *streams: str, until: Callable[[], bool] = lambda: False, chat_every: int = 0
    ) -> None:
        """Send ``count`` frames to each stream, in batches; the next when the fast readers have the one before."""
        while count > 0 and not until():
            size = min(count, max(1, BATCH // len(streams)))
            count -= size
            segment = b""
            for _ in range(size):
                for stream in streams:
                    segment += message(stream, self.sent[stream])
                    self.sent[stream] += 1
                    if chat_every and self.sent[stream] % chat_every == 0:
                        segment += chat(self.chats)
                        self.chats += 1
            last = streams[-1], self.sent[streams[-1]] - 1
            await self.writer.send(segment)
            await self.fast_readers_have(lambda frame, last=last: is_frame(frame) and data_of(frame) == last)
            self.peak = max(self.peak, rss(self.gateway))

    async def fast_readers_have(self, accept: Callable[[Frame], bool]) -> None:
        await asyncio.gather(*(raw.read_until(accept, 30) for raw in (self.fast, self.other)))

    def assert_fast_readers_have_everything(self) -> None:
        for raw in (self.fast, self.other):
            for stream, count in self.sent.items():
                assert numbers_of(raw.got, stream) == list(range(count))
            assert notices(raw.got) == []

    async def metric(self, name: str, **labels: str) -> int:
        _, exposition = await self.gateway.http("GET", "/metrics")
        total = 0.0
        for line in exposition.splitlines():
            found = re.fullmatch(rf"mewstream_{name}(?:_total)?(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return int(total)

    async def catch_up(self) -> list[Frame]:
        """The slow reader reads again, until it knows what became of every frame and has every chat."""
        got = self.slow.got
        known: Counter[str] = Counter()
        read = chatted = 0
        while True:
            for frame in got[read:]:
                if is_frame(frame):
                    known[data_of(frame)[0]] += 1
                for notice in notices([frame]):
                    known[notice["stream_id"]] += notice["count"]
                chatted += len(chats([frame]))
            read = len(got)
            if known == self.sent and chatted == self.chats:
                break
            assert all(known[stream] <= self.sent[stream] for stream in self.sent), (known, self.sent)
            try:
                frame = await self.slow.read_frame()
            except TimeoutError:
                pytest.fail(f"of {self.sent} and {self.chats} chats, it knows of {known} and {chatted}")
            assert frame is not None, f"closed: {got[-1]}"
        # And nothing more than that: the answer to this is the very next message.
        await self.slow.send(text({"id": f"caught-up-{read}", "kind": "mcp/response", "payload": {}}))
        frame = await self.slow.read_frame()
        assert frame is not None
        assert frame.json["kind"] == "mcp/response", frame
        return got


@contextlib.asynccontextmanager
async def scene(gateway: GatewayProcess) -> AsyncIterator[Scene]:
    async with (
        await RawSocket.joined(gateway.port, "writer") as writer,
        await RawSocket.joined(gateway.port, "fast", receive_buffer=2 << 20, extensions=["positions"]) as fast,
        await RawSocket.joined(gateway.port, "other", receive_buffer=2 << 20) as other,
        await RawSocket.joined(gateway.port, "slow", receive_buffer=SLOW_BUFFER) as slow,
    ):
        for raw in (writer, fast, other):
            await raw.read_until(lambda frame: b'"id":"slow"' in frame.payload)
        yield Scene(gateway, writer, fast, other, slow)


class TestPolicies:
    @pytest.mark.parametrize("policy", ["drop-oldest", "latest"])
    async def test_what_is_dropped_is_told(self, gateway: GatewayProcess, policy: str) -> None:
        async with scene(gateway) as it:
            stream = await it.open(on_slow=policy)
            await it.flow(1_000, stream, chat_every=10)
            got = await it.catch_up()
            numbers = numbers_of(got, stream)
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == 999, "the newest is kept"
            if policy == "drop-oldest":
                # Chats take a little of the room.
                newest = QUEUED_FRAMES - 2
                assert numbers[-newest:] == list(range(1_000 - newest, 1_000)), "as many of the newest as fit"
            assert chats(got) == list(range(it.chats)), "control messages are never dropped"
            dropped = sum(notice["count"] for notice in notices(got))
            assert dropped == 1_000 - len(numbers) > 0
            told = {(notice["notice"], notice["stream_id"], notice["policy"]) for notice in notices(got)}
            assert told == {("frames_dropped", stream, policy)}
            assert await it.metric("frames_dropped") == dropped
            it.assert_fast_readers_have_everything()

    async def test_disconnect(self, gateway: GatewayProcess) -> None:
        async with scene(gateway) as it:
            stream = await it.open(on_slow="disconnect")
            await it.flow(2_000, stream, until=lambda: any(map(is_leave, it.fast.got)))
            frames, code = await it.slow.read_to_close()
            assert code == 4001
            numbers = numbers_of(frames, stream)
            assert numbers == list(range(len(numbers))), "nothing is left out before the close"
            it.assert_fast_readers_have_everything()
            assert await it.metric("closes", reason="slow_consumer") == 1
            # Every frame before its leave was addressed to it: it has it, or a drop is recorded.
            (leave,) = (n for n, frame in enumerate(it.fast.got) if is_leave(frame))
            addressed = len(numbers_of(it.fast.got[:leave], stream))
            assert await it.metric("frames_dropped") == addressed - len(numbers)

    async def test_each_stream_for_itself(self, gateway: GatewayProcess) -> None:
        async with scene(gateway) as it:
            streams = [await it.open(on_slow="drop-oldest"), await it.open(on_slow="latest")]
            await it.flow(500, *streams, chat_every=25)
            got = await it.catch_up()
            for stream in streams:
                numbers = numbers_of(got, stream)
                assert numbers == sorted(set(numbers))
                assert numbers[-1] == 499
            assert {notice["stream_id"] for notice in notices(got)} == set(streams)
            assert await it.metric("frames_dropped") == sum(notice["count"] for notice in notices(got))
            it.assert_fast_readers_have_everything()

    async def test_slow_again_and_again(self, gateway: GatewayProcess) -> None:
        """Each time it catches up it is told what it has missed since: together that is everything."""
        async with scene(gateway) as it:
            stream = await it.open()
            for turn in range(3):
                await it.flow(500, stream, chat_every=50)
                got = await it.catch_up()
                assert len(notices(got)) > turn
            assert await it.metric("frames_dropped") == sum(notice["count"] for notice in notices(it.slow.got))
            it.assert_fast_readers_have_everything()

    async def test_a_frame_larger_than_the_queue(self, gateway: GatewayProcess) -> None:
        async with scene(gateway) as it:
            stream = await it.open()
            await it.flow(500, stream)
            await it.writer.send(message(stream, 500, 2 * QUEUE_BYTES))
            it.sent[stream] += 1
            await it.fast_readers_have(lambda frame: is_frame(frame) and data_of(frame)[1] == 500)
            await it.flow(10, stream)
            await it.catch_up()
            it.assert_fast_readers_have_everything()


class TestControlMessages:
    async def test_alone_they_close_the_connection(self, gateway: GatewayProcess) -> None:
        """They are never dropped: when they do not fit, the connection ends with a code of its own."""
        async with scene(gateway) as it:
            while not any(map(is_leave, it.fast.got)):
                await it.writer.send(chat(it.chats, FRAME_BYTES))
                await it.fast_readers_have(lambda frame: b'"chat-%d"' % it.chats in frame.payload)
                # Its own words come back to it: it must not be the slow one.
                await it.writer.read_until(lambda frame: b'"chat-%d"' % it.chats in frame.payload)
                it.chats += 1
                assert it.chats < 2_000, "it is still connected"
            frames, code = await it.slow.read_to_close()
            assert code == 4001
            numbers = chats(frames)
            assert numbers == list(range(len(numbers))), "none is left out before the close"
            assert len(numbers) < it.chats
            assert await it.metric("frames_dropped") == 0
            assert await it.metric("closes", reason="slow_consumer") == 1
            assert chats(it.other.got) == list(range(it.chats))

    async def test_frames_make_room_for_them(self, gateway: GatewayProcess) -> None:
        async with scene(gateway) as it:
            stream = await it.open()
            await it.flow(500, stream)
            for _ in range(QUEUED_FRAMES - 2):
                await it.writer.send(chat(it.chats, FRAME_BYTES))
                it.chats += 1
            await it.fast_readers_have(lambda frame: b'"chat-%d"' % (it.chats - 1) in frame.payload)
            got = await it.catch_up()
            assert chats(got) == list(range(it.chats))
            it.assert_fast_readers_have_everything()


class TestMemory:
    async def test_is_bounded_while_others_get_everything(self, gateway: GatewayProcess) -> None:
        async with scene(gateway) as it:
            stream = await it.open()
            await it.flow(60, stream)
            before = rss(gateway)
            await it.flow(4_400, stream, chat_every=100)
            assert it.sent[stream] * FRAME_BYTES > 70_000_000
            assert it.peak - before < JOURNAL_BYTES + (24 << 20)
            await it.catch_up()
            it.assert_fast_readers_have_everything()

    async def test_small_frames_cost_no_more(self, gateway: GatewayProcess) -> None:
        """What a waiting frame costs beside its bytes must not multiply the limit."""
        async with scene(gateway) as it:
            stream = await it.open()
            await it.flow(500, stream)
            for _ in range(60):
                first, last = it.sent[stream], it.sent[stream] + 2_000
                it.sent[stream] = last
                await it.writer.send(b"".join(message(stream, number, 20) for number in range(first, last)))
                await it.fast_readers_have(lambda frame, n=last - 1: is_frame(frame) and data_of(frame)[1] == n)
                it.peak = max(it.peak, rss(gateway))
                if first == 500:
                    before = rss(gateway)
            # The journal alone keeps 60,000 of them.
            assert it.peak - before < 3 * JOURNAL_BYTES + (24 << 20)
            await it.catch_up()
            it.assert_fast_readers_have_everything()

    async def test_pings_of_those_who_do_not_read(self, gateway: GatewayProcess) -> None:
        """A member that is behind, and a stranger: neither gets pongs to pile up."""
        async with scene(gateway) as it, await RawSocket.upgraded(gateway.port, receive_buffer=SLOW_BUFFER) as stranger:
            stream = await it.open()
            await it.flow(500, stream)
            before = rss(gateway)
            flood = ws_frame(PING, "x" * 125) * 1_000
            for _ in range(150):
                await it.slow.send(flood)
                await stranger.send(flood)
            await it.flow(50, stream)
            assert rss(gateway) - before < 24 << 20
            it.assert_fast_readers_have_everything()


class TestWriters:
    async def test_one_that_only_writes(self, gateway: GatewayProcess) -> None:
        """Frames echo to the sender: a writer that does not read holds up itself, and only for a time."""
        async with (
            scene(gateway) as it,
            await RawSocket.joined(gateway.port, "extra", receive_buffer=SLOW_BUFFER) as extra,
        ):
            await extra.send(text({"kind": "stream/request", "payload": {"target": ["extra", "fast", "other"]}}))
            opened = await extra.read_until(lambda frame: b'"kind":"stream/open"' in frame.payload)
            stream = opened[-1].json["payload"]["stream_id"]
            for number in range(0, 600, BATCH):
                await extra.send(b"".join(message(stream, number + each) for each in range(BATCH)))
                await it.fast_readers_have(lambda f, n=number + BATCH - 1: is_frame(f) and data_of(f)[1] == n)
            for raw in (it.fast, it.other):
                assert numbers_of(raw.got, stream) == list(range(600))

    async def test_one_that_does_not_feed_the_slow(self, gateway: GatewayProcess) -> None:
        async with scene(gateway) as it, await RawSocket.joined(gateway.port, "extra") as extra:
            await extra.send(text({"kind": "stream/request", "payload": {"target": ["fast", "other"]}}))
            opened = await extra.read_until(lambda frame: b'"kind":"stream/open"' in frame.payload)
            own = opened[-1].json["payload"]["stream_id"]
            await it.writer.read_until(lambda frame: b'"kind":"stream/open"' in frame.payload)
            stream = await it.open()

            async def write() -> None:
                for number in range(300):
                    await extra.send(message(own, number, 100))
                    await asyncio.sleep(0.001)
                await extra.send(chat(0))

            writing = asyncio.create_task(write())
            await it.flow(500, stream)
            await writing
            it.chats = 1
            for raw in (it.fast, it.other):
                if not chats(raw.got):
                    await raw.read_until(lambda frame: b'"chat-0"' in frame.payload)
                assert numbers_of(raw.got, own) == list(range(300))
            await it.catch_up()
            it.assert_fast_readers_have_everything()


class TestGoneWhileBehind:
    async def test_what_was_waiting_is_recorded_as_dropped(self, gateway: GatewayProcess) -> None:
        """Every drop is a record: the newest frame was still waiting when the connection broke."""
        async with scene(gateway) as it:
            stream = await it.open()
            await it.flow(500, stream)
            newest = int([frame for frame in it.fast.got if is_frame(frame)][-1].payload.split(b"|")[1])
            it.slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            it.slow.sock.close()
            await it.fast_readers_have(is_leave)
            again = await gateway.join("slow")
            _, answer = await gateway.http("GET", "/participants/slow/messages", "slow", params={"since": str(newest)})
            told = [each["payload"] for each in answer["messages"] if each["kind"] == "system/notice"]
            assert told
            assert max(notice["last_seq"] for notice in told) == newest
            assert await it.metric("frames_dropped") == sum(notice["count"] for notice in told)
            await again.close()

    async def test_a_rejoin_starts_afresh(self, gateway: GatewayProcess) -> None:
        async with scene(gateway) as it:
            stream = await it.open()
            await it.flow(500, stream)
            async with await RawSocket.joined(gateway.port, "slow") as again:
                await it.writer.send(message(stream, 500))
                frames = await again.read_until(is_frame)
                assert data_of(frames[-1]) == (stream, 500)
                # What the connection before has missed may be told to the new one, as what it was.
                assert all(notice["last_seq"] < again.got[0].json["payload"]["seq"] for notice in notices(frames))
