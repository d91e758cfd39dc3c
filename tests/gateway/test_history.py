"""``stream/read``: the history of a stream over a socket (docs/protocol.md, History)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from instruments import turn_meter
from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import HistoryRead
from support import Client, GatewayProcess, joined, running_gateway, space_config, token_of

POSITIONS = {"extensions": ["positions"]}
PEOPLE = ("ann", "bob", "cy")


@pytest.fixture(scope="module", params=["memory", "journal"])
def gateway(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    data = tmp_path_factory.mktemp("data") / "data"
    options = ("--data", str(data)) if request.param == "journal" else ()
    config = space_config(*PEOPLE, capabilities={"cy": [{"kind": "*"}, {"kind": "!stream/read"}]})
    with running_gateway(config, options=options) as running:
        yield running


def split(frame: str | bytes) -> tuple[int, str]:
    """The seq and the data of a frame with a position."""
    text = frame.decode() if isinstance(frame, bytes) else frame
    _, head, data = text.split("#", 2)
    return int(head.split("|")[1]), data


def is_frame(message: Any) -> bool:
    return not isinstance(message, dict)


async def read(client: Client, stream: str, start: Any, **fields: Any) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Ask for history. Returns the answer and the frames of the history."""
    id = await client.send("stream/read", {"stream_id": stream, "from": start}, **fields)
    history = await client.receive("stream/history", of=id)
    found = [split(await client.wait_for(is_frame)) for _ in range(history["payload"]["frames"])]
    return history, found


async def write(client: Client, stream: str, *data: str) -> None:
    for each in data:
        await client.frame(stream, each)
    await client.send("stream/sync")
    await client.receive("stream/synced")


async def test_from_the_start(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", "bob", **POSITIONS) as [ann, bob]:
        stream = await ann.open_stream(desired_id="tokens")
        await write(ann, stream, "one", "two", "three")
        await bob.settle()
        before = len(bob.got)
        history, found = await read(bob, "tokens", "start")
        payload = history["payload"]
        assert history["to"] == ["bob"]
        assert payload["stream_id"] == stream
        assert [data for _, data in found] == ["one", "two", "three"]
        assert payload["to_seq"] == history["seq"] - 1
        assert payload["from_seq"] <= found[0][0] <= found[-1][0] <= payload["to_seq"]
        live = [split(each) for each in bob.got[:before] if is_frame(each)]
        assert found == live, "they keep their seq"
        await write(ann, stream, "four")
        seq, data = split(await bob.wait_for(is_frame))
        assert data == "four"
        assert seq > payload["to_seq"]
        await ann.settle()
        assert not [each for each in ann.got if isinstance(each, dict) and each["kind"].startswith("stream/hist")]
        assert not [each for each in ann.got if isinstance(each, dict) and each["kind"] == "stream/read"]
        await ann.send("stream/close", {"stream_id": stream})
        await ann.receive("stream/close")


async def test_from_a_seq_a_time_and_the_last(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", "bob", **POSITIONS) as [ann, bob]:
        stream = await ann.open_stream()
        await write(ann, stream, *"abcd")
        chat = await ann.send("chat", {"text": "now"})
        relayed = await ann.wait_for(lambda each: isinstance(each, dict) and each.get("id") == chat)
        await write(ann, stream, *"efgh")
        _, everything = await read(bob, stream, "start")
        assert "".join(data for _, data in everything) == "abcdefgh"
        seq_of_c = everything[2][0]
        assert (await read(bob, stream, seq_of_c))[1] == everything[2:]
        assert (await read(bob, stream, relayed["ts"]))[1] == everything[4:]
        assert (await read(bob, stream, {"last": 3}))[1] == everything[-3:]
        assert (await read(bob, stream, {"last": 100}))[1] == everything
        assert (await read(bob, stream, 1 << 40))[1] == []
        assert (await read(bob, stream, everything[-1][0] + 1))[1] == []
        await write(ann, stream, "live")
        assert split(await bob.wait_for(is_frame))[1] == "live"


async def test_every_form_of_a_frame(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", extensions=[]) as [ann]:
        stream = await ann.open_stream()
        await ann.frame(stream, "text#|")
        await ann.frame(stream, b"\x00\xff")
        await ann.send("stream/data", {"stream": {"stream_id": stream}, "sequence": 7, "content": {"n": 1}})
        await ann.settle()
        async with joined(gateway, "bob") as [plain]:
            id = await plain.send("stream/read", {"stream_id": stream, "from": "start"})
            # A client of v0.4 means something else by it.
            assert (await plain.wait_for(lambda each: isinstance(each, dict) and each.get("id") == id))["from"] == "bob"
        id = await ann.send("stream/read", {"stream_id": stream, "from": "start"})
        assert (await ann.receive("stream/history", of=id))["payload"]["frames"] == 3
        got = [await ann.next() for _ in range(3)]
        assert got[:2] == [f"#{stream}#text#|", f"#{stream}#".encode() + b"\x00\xff"]
        assert got[2]["payload"]["content"] == {"n": 1}
        assert "seq" not in got[2]
    async with joined(gateway, "ann", extensions=["times"]) as [timed]:
        id = await timed.send("stream/read", {"stream_id": stream, "from": "start"})
        history = await timed.receive("stream/history", of=id)
        text, binary, data = [await timed.next() for _ in range(3)]
        head, writer = text.split("#")[1].split("|"), "ann"
        assert head[0] == stream
        assert head[2] == writer
        assert abs(int(head[3]) / 1e6 - int(binary.split(b"#")[1].split(b"|")[3]) / 1e6) < 60
        assert int(head[1]) < history["seq"]
        assert data["seq"] < history["seq"]
        await timed.frame(stream, "live")
        live = await timed.wait_for(is_frame)
        assert live.startswith(f"#{stream}|")
        assert len(live.split("#")[1].split("|")) == 4


@pytest.mark.parametrize("start", [None, -1, True, 1.5, "yesterday", {"last": 0}, {"last": "3"}, {"first": 3}, {}, []])
async def test_malformed(gateway: GatewayProcess, start: Any) -> None:
    async with joined(gateway, "ann", **POSITIONS) as [ann]:
        stream = await ann.open_stream()
        id = await ann.send("stream/read", {"stream_id": stream, "from": start})
        refused = await ann.error("validation_error", of=id)
        assert refused["payload"]["field"] == "from"


async def test_who_may_not(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", "bob", "cy", **POSITIONS) as [ann, bob, cy]:
        silent = await ann.open_stream(history="none")
        closed = await ann.open_stream(target=["ann", "cy"])
        everyone = await ann.open_stream(history="all")
        id = await bob.send("stream/read", {"stream_id": silent, "from": "start"})
        await bob.error("unauthorized", of=id)
        id = await bob.send("stream/read", {"stream_id": closed, "from": "start"})
        await bob.error("unauthorized", of=id)
        id = await bob.send("stream/read", {"stream_id": "stream-9999", "from": "start"})
        await bob.error("stream_not_found", of=id)
        id = await cy.send("stream/read", {"stream_id": everyone, "from": "start"})
        await cy.error("capability_violation", of=id)
        status, body = await gateway.post("bob", {"kind": "stream/read", "payload": {"stream_id": everyone, "from": 1}})
        assert (status, body["payload"]["error"]) == (400, "invalid_request")
        await bob.error("invalid_request")
        await bob.send("stream/history", {})
        await bob.error("reserved_kind")
        id = await ann.send("stream/request", {"history": "some"})
        await ann.error("validation_error", of=id)


async def test_joined_shows_what_one_could_read_then(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", "bob", **POSITIONS) as [ann, bob]:
        for history, expected in (("joined", "adf"), ("all", "abcdef")):
            stream = await ann.open_stream(target=["ann", "bob"], history=history)
            await write(ann, stream, "a")
            await ann.send("stream/revoke-read", {"stream_id": stream, "participant_id": "bob"})
            await write(ann, stream, "b", "c")
            id = await bob.send("stream/read", {"stream_id": stream, "from": "start"})
            await bob.error("unauthorized", of=id)
            await ann.send("stream/grant-read", {"stream_id": stream, "participant_id": "bob"})
            await write(ann, stream, "d")
            await ann.send("stream/revoke-read", {"stream_id": stream, "participant_id": "bob"})
            await write(ann, stream, "e")
            await ann.send("stream/grant-read", {"stream_id": stream, "participant_id": "bob"})
            await write(ann, stream, "f")
            await bob.receive("stream/read-granted")
            _, found = await read(bob, stream, "start")
            assert "".join(data for _, data in found) == expected
            _, found = await read(bob, stream, {"last": 2})
            assert "".join(data for _, data in found) == expected[-2:]


async def test_joined_begins_with_the_first_join() -> None:
    with running_gateway(space_config("ann", "late", "later")) as gateway:
        async with joined(gateway, "ann", **POSITIONS) as [ann]:
            streams = [await ann.open_stream(history=history) for history in ("joined", "all")]
            for stream in streams:
                await write(ann, stream, "before")
            async with joined(gateway, "late", **POSITIONS) as [late]:
                for stream in streams:
                    await write(ann, stream, "after")
                assert [data for _, data in (await read(late, streams[0], "start"))[1]] == ["after"]
                assert [data for _, data in (await read(late, streams[0], 1))[1]] == ["after"]
                assert [data for _, data in (await read(late, streams[1], "start"))[1]] == ["before", "after"]


async def test_reads_wait_for_one_another(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", "bob", **POSITIONS) as [ann, bob]:
        streams = [await ann.open_stream() for _ in range(2)]
        for stream in streams:
            await write(ann, stream, *(f"{number}" for number in range(300)))
        await bob.settle()
        before = len(bob.got)
        ids = [
            await bob.send("stream/read", {"stream_id": streams[number % 2], "from": "start"}) for number in range(6)
        ]
        await bob.receive("stream/history", of=ids[-1])
        for _ in range(300):
            await bob.wait_for(is_frame)
        got = [each for each in bob.got[before:] if is_frame(each) or each["kind"] == "stream/history"]
        for number, id in enumerate(ids):
            history, *frames = got[number * 301 : (number + 1) * 301]
            assert history["correlation_id"] == [id]
            assert [split(each)[1] for each in frames] == [f"{each}" for each in range(300)]
            assert all(each.startswith(f"#{streams[number % 2]}|") for each in frames)


async def test_too_many_reads_wait() -> None:
    config = space_config("ann", mewstream={"limits": {"reads_waiting": 2}})
    with running_gateway(config) as gateway:
        async with joined(gateway, "ann", **POSITIONS) as [ann]:
            stream = await ann.open_stream()
            for _ in range(20):
                await ann.send("stream/read", {"stream_id": stream, "from": "start"})
            refused = await ann.error("limit_exceeded")
            assert refused["payload"]["limit"] == "reads_waiting"


async def test_every_read_is_recorded(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_gateway(space_config("ann", "bob"), options=("--data", str(data))) as gateway:
        async with joined(gateway, "ann", "bob", **POSITIONS) as [ann, bob]:
            stream = await ann.open_stream()
            await write(ann, stream, "x")
            history, _ = await read(bob, stream, "start")
    records = [entry.record for entry in JournalReader(data / "journal").read("demo", 0)]
    [recorded] = [each for each in records if isinstance(each, HistoryRead)]
    assert (recorded.participant, recorded.stream_id, recorded.frames) == ("bob", stream, 1)
    assert recorded.seq == history["seq"]
    assert (recorded.from_seq, recorded.to_seq) == (history["payload"]["from_seq"], history["payload"]["to_seq"])
    assert recorded.transport == "websocket"


async def test_too_old_without_a_journal() -> None:
    """The memory of a space is bounded, and nobody is shown less than was asked for without being told."""
    with running_gateway(space_config("ann", "bob")) as gateway:
        async with joined(gateway, "ann", "bob", **POSITIONS) as [ann, bob]:
            stream = await ann.open_stream()
            drain = asyncio.create_task(_drain(ann))
            for number in range(40):
                await ann.frame(stream, f"{number:4}".ljust(1 << 19, "."))
            for _ in range(40):
                await bob.wait_for(is_frame)
            id = await bob.send("stream/read", {"stream_id": stream, "from": "start"})
            gone = await bob.error("history_gone", of=id)
            first = gone["payload"]["first_seq"]
            _, found = await read(bob, stream, first)
            assert found[0][0] == first
            assert int(found[-1][1][:4]) == 39
            drain.cancel()


async def _drain(client: Client) -> None:
    while True:
        await client.next(60)


async def test_a_revoke_ends_what_may_be_read(tmp_path: Path) -> None:
    """A reader that does not read is revoked in the middle of its history: it gets no more of it."""
    with running_gateway(space_config("ann", "bob"), options=("--data", str(tmp_path / "data"))) as gateway:
        async with joined(gateway, "ann", **POSITIONS) as [ann]:
            bob = await Client.connect(f"{gateway.ws_url}/ws", max_queue=1)
            bob.participant = "bob"
            join = {"type": "join", "participantId": "bob", "token": token_of("bob"), **POSITIONS}
            await bob.send_raw(json.dumps(join))
            await bob.receive("system/welcome")
            stream = await ann.open_stream(target=["ann", "bob"])
            drain = asyncio.create_task(_drain(ann))
            for _ in range(60):
                await ann.frame(stream, "x" * (1 << 19))
                await bob.wait_for(is_frame)
            id = await bob.send("stream/read", {"stream_id": stream, "from": "start"})
            history = await bob.receive("stream/history", of=id)
            await ann.send("stream/revoke-read", {"stream_id": stream, "participant_id": "bob"}, id="revoke")
            assert history["payload"]["frames"] == 60
            count = 0
            while True:
                message = await bob.next(30)
                if isinstance(message, dict) and message["kind"] == "system/error":
                    assert message["payload"]["error"] == "unauthorized"
                    assert message["correlation_id"] == [id]
                    break
                count += is_frame(message)
            assert 0 < count < 60
            drain.cancel()
            await bob.close()


class Quick(WSListener):
    """A client that can take a hundred thousand frames a second. It keeps what comes as it is."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self._news = asyncio.Event()

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.got.append(frame.get_payload_as_bytes())
        if frame.last_in_buffer:
            self._news.set()

    def send(self, message: str) -> None:
        self.transport.send(WSMsgType.TEXT, message.encode())

    def ask(self, kind: str, **payload: Any) -> None:
        self.send(json.dumps({"id": f"{kind}-{len(self.got)}-{id(payload)}", "kind": kind, "payload": payload}))

    async def until(self, holds: Callable[[], Any], timeout: float = 120) -> Any:
        async with asyncio.timeout(timeout):
            while not (found := holds()):
                self._news.clear()
                await self._news.wait()
        return found

    async def envelope(self, kind: str, begin: int = 0) -> tuple[int, dict[str, Any]]:
        """The first envelope of a kind, and its place."""
        marker = f'"kind":"{kind}"'.encode()
        place = begin

        def find() -> Any:
            nonlocal place
            while place < len(self.got):
                message = self.got[place]
                place += 1
                if message[:1] == b"{" and marker in message:
                    return (place - 1, json.loads(message))
            return None

        return await self.until(find)  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def quick(gateway: GatewayProcess, participant: str) -> AsyncIterator[Quick]:
    _, client = await ws_connect(Quick, f"{gateway.ws_url}/ws")
    assert isinstance(client, Quick)
    join = {"type": "join", "participantId": participant, "token": token_of(participant), **POSITIONS}
    client.send(json.dumps(join))
    await client.envelope("system/welcome")
    try:
        yield client
    finally:
        client.transport.disconnect()
        await client.transport.wait_disconnected()


def frames_in(messages: list[bytes]) -> list[tuple[int, int]]:
    """The seqs and the numbers in frames."""
    return [
        (int(head.split(b"|")[1]), int(data))
        for _, head, data in (each.split(b"#") for each in messages if each[:1] == b"#")
    ]


async def test_while_frames_flow_at_ten_thousand_a_second(tmp_path: Path) -> None:
    """Each frame comes exactly once and in order: first the history, then the live flow, without a hole."""
    options = ("--data", str(tmp_path / "data"))
    with running_gateway(space_config("ann", "bob"), options=options) as gateway:
        async with quick(gateway, "ann") as ann, quick(gateway, "bob") as bob:
            ann.ask("stream/request")
            _, opened = await ann.envelope("stream/open")
            stream = opened["payload"]["stream_id"]
            is_done = asyncio.Event()

            async def flow() -> None:
                loop = asyncio.get_running_loop()
                begin, written = loop.time(), 0
                while not is_done.is_set():
                    for number in range(written, due := min(int((loop.time() - begin) * 10_000), written + 1_000)):
                        ann.send(f"#{stream}#{number}")
                    written = due
                    await asyncio.sleep(0.002)

            flowing = asyncio.create_task(flow())
            begin = 0
            for place in range(6):
                count = len(bob.got)
                await bob.until(lambda count=count: len(bob.got) >= count + 3_000)
                is_whole = place % 2 == 0
                bob.ask("stream/read", stream_id=stream, **{"from": "start" if is_whole else {"last": 2_500}})
                begin, history = await bob.envelope("stream/history", begin)
                begin += 1
                payload = history["payload"]
                end = begin + payload["frames"] + 3_000
                await bob.until(lambda end=end: len(bob.got) >= end)
                found = frames_in(bob.got[begin:end])
                numbers = [number for _, number in found]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "in order, once, without a hole"
                assert numbers[0] == 0 if is_whole else payload["frames"] == 2_500
                assert [seq <= payload["to_seq"] for seq, _ in found] == [
                    place < payload["frames"] for place in range(len(found))
                ]
            is_done.set()
            await flowing


async def test_a_hundred_thousand_frames_take_no_long_turn(tmp_path: Path) -> None:
    with turn_meter() as turns:
        options = ("--data", str(tmp_path / "data"))
        with running_gateway(space_config("ann", "bob"), options=options, prepare=turns.prepare) as gateway:
            async with quick(gateway, "ann") as ann:
                ann.ask("stream/request", history="all")
                _, opened = await ann.envelope("stream/open")
                stream = opened["payload"]["stream_id"]
                for number in range(100_000):
                    ann.send(f"#{stream}#{number}")
                    if number % 1_000 == 0:
                        await ann.until(lambda number=number: len(ann.got) > number - 20_000)
                ann.ask("stream/sync")
                await ann.envelope("stream/synced")
                async with quick(gateway, "bob") as bob:
                    turns.reset()
                    bob.ask("stream/read", stream_id=stream, **{"from": "start"})
                    place, history = await bob.envelope("stream/history")
                    assert history["payload"]["frames"] == 100_000
                    await bob.until(lambda: len(bob.got) > place + 100_000)
                    longest = turns.longest
                numbers = [number for _, number in frames_in(bob.got[place + 1 :])]
                assert numbers == list(range(100_000))
                assert longest < 0.01, f"a turn took {longest * 1000:.1f} ms of CPU"


async def test_polling_obeys_the_policy(gateway: GatewayProcess) -> None:
    async with joined(gateway, "ann", "bob", **POSITIONS) as [ann, _]:
        seq = ann.welcome["payload"]["seq"]
        silent = await ann.open_stream(history="none")
        usual = await ann.open_stream(target=["ann", "bob"])
        everything = await ann.open_stream(target=["ann", "bob"], history="all")

        async def polled() -> list[tuple[str, str]]:
            status, body = await gateway.http("GET", f"/participants/bob/messages?since={seq}", "bob")
            assert status == 200
            return [(each["stream_id"], each["data"]) for each in body["messages"] if each["kind"] == "frame"]

        for stream in (silent, usual, everything):
            await write(ann, stream, "1")
        assert await polled() == [(usual, "1"), (everything, "1")]
        for stream in (usual, everything):
            await ann.send("stream/revoke-read", {"stream_id": stream, "participant_id": "bob"})
            await write(ann, stream, "2")
        assert await polled() == []
        for stream in (usual, everything):
            await ann.send("stream/grant-read", {"stream_id": stream, "participant_id": "bob"})
            await ann.receive("stream/read-granted")
        assert await polled() == [(usual, "1"), (everything, "1"), (everything, "2")]
        for stream in (silent, usual):
            await ann.send("stream/close", {"stream_id": stream})
            await ann.receive("stream/close")
        assert await polled() == [(usual, "1"), (everything, "1"), (everything, "2")], "the policy outlives the stream"


async def test_a_read_subscribes(gateway: GatewayProcess) -> None:
    interested = {"extensions": ["positions", "interest"]}
    async with joined(gateway, "ann", **POSITIONS) as [ann], joined(gateway, "bob", **interested) as [bob]:
        streams = [await ann.open_stream() for _ in range(2)]
        for stream in streams:
            await write(ann, stream, "unseen")
        _, found = await read(bob, streams[0], "start")
        assert [data for _, data in found] == ["unseen"]
        for stream in streams:
            await write(ann, stream, "live")
        await bob.settle()
        live = [each for each in bob.got if is_frame(each)]
        assert [split(each)[1] for each in live] == ["unseen", "live"]
        assert all(each.startswith(f"#{streams[0]}|") for each in live)
