"""What peers ask for is worked off in turns of the loop: by participant, in order, and never all of a flood at once."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from raw_socket import BINARY, CLOSE, PING, PONG, TEXT, RawSocket, text, ws_frame

from mewstream.gateway import fair_queue
from mewstream.gateway.fair_queue import FairQueue
from support import GatewayProcess, joined, running_gateway, space_config

#: Each takes the gateway some milliseconds to check, and one reading holds many.
SLOW_SCHEMA = {"items": {"oneOf": [{"type": "integer", "const": number} for number in range(150)]}}
SLOW = json.dumps([149] * 150, separators=(",", ":"))


class TestQueue:
    @pytest.fixture
    async def queue(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FairQueue]:
        """Time stands still, unless a test says otherwise."""
        self.now = 0.0
        monkeypatch.setattr(fair_queue, "perf_counter", lambda: self.now)
        yield FairQueue(asyncio.get_running_loop())

    def work(self, done: list[str], name: str, takes: float = 1.0) -> Any:
        def work() -> None:
            done.append(name)
            self.now += takes

        return work

    async def test_there_is_time_until_it_is_used_up(self, queue: FairQueue) -> None:
        assert queue.admits(("s", "ann"))
        assert queue.has_time()
        self.now += 1
        assert not queue.admits(("s", "ann"))
        assert not queue.admits(("s", "bob"))
        assert queue.is_over
        await asyncio.sleep(0)
        assert not queue.is_over
        assert queue.admits(("s", "bob"))

    async def test_each_participant_in_turn_and_each_in_order(self, queue: FairQueue) -> None:
        done: list[str] = []
        for who, count in (("ann", 4), ("bob", 2), ("cy", 1)):
            for number in range(count):
                queue.put(("s", who), self.work(done, f"{who}{number}"))
        for _ in range(7):
            await asyncio.sleep(0)
        assert done == ["ann0", "bob0", "cy0", "ann1", "bob1", "ann2", "ann3"]

    async def test_one_piece_of_work_a_turn_if_it_takes_long_and_many_if_not(self, queue: FairQueue) -> None:
        done: list[str] = []
        for number in range(10):
            queue.put(("s", "ann"), self.work(done, str(number), takes=0.004 if number < 6 else 1.0))
        turns = []
        while len(done) < 10:
            await asyncio.sleep(0)
            turns.append(len(done))
        assert turns == [3, 6, 7, 8, 9, 10]

    async def test_who_has_something_waiting_waits_behind_it(self, queue: FairQueue) -> None:
        done: list[str] = []
        queue.put(("s", "ann"), self.work(done, "first", takes=0))
        assert not queue.admits(("s", "ann"))
        assert queue.admits(("s", "bob"))
        running = asyncio.create_task(queue.run(("s", "ann"), self.work(done, "second", takes=0)))
        await running
        assert done == ["first", "second"]

    async def test_results_and_errors_reach_who_waits(self, queue: FairQueue) -> None:
        queue.put(("s", "ann"), lambda: None)

        def fail() -> None:
            raise ValueError("mine")

        results = await asyncio.gather(
            queue.run(("s", "ann"), lambda: 7), queue.run(("s", "ann"), fail), return_exceptions=True
        )
        assert results[0] == 7
        assert isinstance(results[1], ValueError)

    async def test_an_internal_error_keeps_nobody_waiting(
        self, queue: FairQueue, caplog: pytest.LogCaptureFixture
    ) -> None:
        done: list[str] = []
        queue.put(("s", "ann"), lambda: done.append(str(1 / 0)))
        queue.put(("s", "bob"), lambda: done.append("bob"))
        await asyncio.sleep(0)
        assert done == ["bob"]
        assert "internal error in the work for ann" in caplog.text

    async def test_who_does_not_wait_any_more_costs_nothing(self, queue: FairQueue) -> None:
        done: list[str] = []
        queue.put(("s", "ann"), lambda: None)
        running = asyncio.create_task(queue.run(("s", "ann"), lambda: done.append("late")))
        await asyncio.sleep(0)
        running.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert done in ([], ["late"])


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    # The clients of these tests may be slow on a busy machine, which is not what is tested.
    delivery = {"queue_bytes": "64MiB"}
    config = space_config("ann", "bob", gateway={"drain_seconds": 0}, mewstream={"delivery": delivery})
    with running_gateway(config) as running:
        yield running


async def slow_stream(raw: RawSocket) -> str:
    formats = [{"id": "f", "mime_type": "application/json", "schema": SLOW_SCHEMA}]
    await raw.send(text({"kind": "stream/request", "payload": {"formats": formats, "validate": "enforce"}}))
    opened = await raw.read_until(lambda frame: b'"kind":"stream/open"' in frame.payload[:300])
    return str(opened[-1].json["payload"]["stream_id"])


async def test_order_holds_whatever_waits(gateway: GatewayProcess) -> None:
    """Checked frames, plain ones, envelopes, fragments and pings of one connection: as they were sent."""
    async with await RawSocket.joined(gateway.port, "ann") as raw:
        slow = await slow_stream(raw)
        await raw.send(text({"kind": "stream/request", "payload": {}}))
        opened = await raw.read_until(lambda frame: b'"kind":"stream/open"' in frame.payload[:300])
        plain = str(opened[-1].json["payload"]["stream_id"])
        sent: list[str] = []
        data = b""
        for number in range(120):
            match number % 6:
                case 0 | 1:
                    data += ws_frame(TEXT, f"#{slow}#{SLOW}")
                    sent.append("slow")
                case 2:
                    data += ws_frame(BINARY, f"#{plain}#{number}".encode()) + ws_frame(TEXT, f"#{plain}#also {number}")
                    sent += [f"plain {number}", f"plain also {number}"]
                case 3:
                    data += text({"kind": "chat", "payload": {"text": str(number)}})
                    sent.append(f"chat {number}")
                case 4:
                    data += ws_frame(TEXT, f"#{plain}#fragm", fin=False) + ws_frame(0, f"ents {number}")
                    sent.append(f"plain fragments {number}")
                case 5:
                    data += ws_frame(PING, f"recorded:{number}".encode())
                    sent.append(f"ping {number}")
        await raw.send(data + text({"id": "the end", "kind": "chat", "payload": {"text": "end"}}))
        came = []
        for frame in await raw.read_until(lambda frame: b'"the end"' in frame.payload[:300], within=60):
            if frame.opcode == PONG:
                came.append(f"ping {frame.payload.decode().partition(':')[2]}")
            elif frame.payload.startswith(f"#{slow}#".encode()):
                came.append("slow")
            elif frame.payload.startswith(f"#{plain}#".encode()):
                came.append(f"plain {frame.payload.partition(b'#')[2].partition(b'#')[2].decode()}")
            else:
                came.append(f"chat {frame.json['payload']['text']}")
        assert [each for each in came if not each.startswith("ping")] == [
            *(each for each in sent if not each.startswith("ping")),
            "chat end",
        ]
        # Of pings that wait for the disk together, the last one answers for all: never before what was sent before it.
        for place, each in enumerate(came):
            if each.startswith("ping"):
                before = sent[: sent.index(each)]
                assert [one for one in came[:place] if "ping" not in one][: len(before)] == [
                    one for one in before if "ping" not in one
                ]


@pytest.mark.parametrize("how", ["close", "end", "reset"])
async def test_what_was_sent_before_the_end_is_carried_out(gateway: GatewayProcess, how: str) -> None:
    async with joined(gateway, "bob") as (bob,), await RawSocket.joined(gateway.port, "ann") as raw:
        slow = await slow_stream(raw)
        data = ws_frame(TEXT, f"#{slow}#{SLOW}") * 40 + text({"kind": "chat", "payload": {"text": "last words"}})
        if how == "close":
            data += ws_frame(CLOSE, struct.pack("!H", 1000)) + text({"kind": "chat", "payload": {"text": "too late"}})
        await raw.send(data)
        if how == "end":
            raw.sock.shutdown(1)
        elif how == "reset":
            # What was read before the gateway hears of it; a reset may overtake the rest on its way.
            await raw.read_until(lambda frame: frame.payload.startswith(b"#"))
            raw.sock.setsockopt(1, 13, struct.pack("ii", 1, 0))
            raw.sock.close()
        await bob.receive("system/presence", event="leave", timeout=60)
        kinds = [each["kind"] for each in bob.got if isinstance(each, dict)]
        texts = [each["payload"]["text"] for each in bob.got if isinstance(each, dict) and each["kind"] == "chat"]
        if how != "reset":
            assert texts == ["last words"]
            assert kinds.index("chat") < len(kinds) - 1
        # The place is free: nothing of the old connection is left.
        again = await gateway.join("ann")
        await again.settle()
        await again.close()


async def test_a_reading_of_slow_frames_lets_others_through(gateway: GatewayProcess) -> None:
    """Forty frames come in one piece; somebody else is answered long before the last of them is checked."""
    async with joined(gateway, "bob") as (bob,), await RawSocket.joined(gateway.port, "ann") as raw:
        slow = await slow_stream(raw)
        await bob.settle()
        await raw.send(ws_frame(TEXT, f"#{slow}#{SLOW}") * 90)
        await bob.wait_for(lambda each: isinstance(each, str) and each.startswith("#"))
        await bob.send("chat", {"text": "let me through"})
        seen = 1
        while not isinstance(message := await bob.next(), dict):
            seen += 1
        assert message["payload"]["text"] == "let me through"
        assert seen < 60
        for _ in range(90 - seen):
            await bob.receive_frame(slow, timeout=60)


async def test_posts_of_one_participant_do_not_hold_up_another(gateway: GatewayProcess) -> None:
    """Many expensive ones over many connections, and one small one: it is not behind them all."""
    large = {"kind": "chat", "payload": {"text": "x", "a": [[[[]]]] * 100_000}}
    flood = [asyncio.create_task(gateway.post("ann", large)) for _ in range(30)]
    async with joined(gateway, "bob") as (bob,):
        texts: list[str] = []
        while "x" not in texts:
            texts.append((await bob.receive("chat", timeout=60))["payload"]["text"])
        status, _ = await gateway.post("bob", {"kind": "chat", "payload": {"text": "mine"}})
        assert status == 200
        while "mine" not in texts:
            texts.append((await bob.receive("chat", timeout=60))["payload"]["text"])
        assert texts.count("x") < 30, "it had to wait for all of the others"
        assert [status for status, _ in await asyncio.gather(*flood)] == [200] * 30
