"""One order for everyone: what each reader gets is the part of the space's log that is meant for it, in order.

Readers that ask for positions see the ``seq`` of everything, so the claim can be checked record by record.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest
from raw_socket import BINARY, CLOSE, TEXT, Frame, RawSocket, join_message, text, upgrade_head, ws_frame

from support import GatewayProcess, running_gateway, space_config, token_of

READERS = [f"reader-{number}" for number in range(20)]
JOINERS = [f"joiner-{number}" for number in range(30)]
POSITIONS = {"extensions": ["positions"]}


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    config = space_config(
        *("olga", "will", "rex", "pia", "tom", "una"),
        *READERS,
        *JOINERS,
        gateway={"drain_seconds": 0},
        mewstream={"limits": {"envelopes_per_second": 0.0}},
    )
    with running_gateway(config) as running:
        yield running


class People:
    """Everyone who is connected, to be sent home at the end, whatever that is."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._port = gateway.port
        self._all: list[RawSocket] = []

    async def joined(self, participant: str, **fields: Any) -> RawSocket:
        return await self.add(RawSocket.joined(self._port, participant, **fields))

    async def add(self, coming: Awaitable[RawSocket]) -> RawSocket:
        self._all.append(await coming)
        return self._all[-1]

    def go(self) -> None:
        for raw in self._all:
            raw.sock.close()


@pytest.fixture
def people(gateway: GatewayProcess) -> Iterator[People]:
    everyone = People(gateway)
    yield everyone
    everyone.go()


class Seen(NamedTuple):
    """One message as a reader with positions got it."""

    seq: int
    content: Any
    """A frame as (stream, writer, data, opcode); an envelope as an object without ``seq``."""

    @property
    def is_frame(self) -> bool:
        return isinstance(self.content, tuple)

    @property
    def kind(self) -> str:
        return "frame" if self.is_frame else str(self.content["kind"])

    @property
    def plain(self) -> Any:
        """The same message as those get it who know of no positions."""
        if not self.is_frame:
            return self.content
        stream, _, data, opcode = self.content
        return b"#%b#%b" % (stream.encode(), data), opcode

    @property
    def is_private(self) -> bool:
        return self.kind in ("system/welcome", "system/error", "system/notice", "space/invite-ack")


def seen(frames: Iterable[Frame]) -> list[Seen]:
    messages = []
    for frame in frames:
        if frame.payload.startswith(b"#"):
            _, head, data = frame.payload.split(b"#", 2)
            stream, seq, writer = head.decode().split("|")
            messages.append(Seen(int(seq), (stream, writer, data, frame.opcode)))
        elif frame.opcode == TEXT:
            content = frame.json
            messages.append(Seen(content.pop("seq"), content))
    return messages


def plain(frames: Iterable[Frame]) -> list[Any]:
    return [
        frame.json if frame.payload.startswith(b"{") else (frame.payload, frame.opcode)
        for frame in frames
        if frame.opcode in (TEXT, BINARY)
    ]


def send(kind: str, payload: dict[str, Any], id: str) -> bytes:
    return text({"id": id, "kind": kind, "payload": payload})


def chat(words: str) -> bytes:
    return send("chat", {"text": words}, words)


def says(words: str) -> Any:
    needle = json.dumps({"text": words}, separators=(",", ":")).encode()
    return lambda frame: needle in frame.payload


async def open_stream(raw: RawSocket, id: str, **payload: Any) -> str:
    await raw.send(send("stream/request", {"direction": "upload", **payload}, id))
    opened = await raw.read_until(lambda frame: b'"stream/open"' in frame.payload and id.encode() in frame.payload)
    return str(opened[-1].json["payload"]["stream_id"])


def assert_one_order(*logs: list[Seen]) -> None:
    """Positions grow, and stand for the same message to everyone."""
    known: dict[int, Any] = {}
    for log in logs:
        positions = [each.seq for each in log]
        assert positions == sorted(set(positions)), "a position twice, or a step back"
        for each in log:
            if not each.is_private:
                assert known.setdefault(each.seq, each.content) == each.content


def assert_no_hole(log: list[Seen], reference: list[Seen], *, reads: Any = None) -> None:
    """From its welcome on, a reader has every public message that the early one has (frames: those it may read)."""
    welcome = log[0]
    assert welcome.kind == "system/welcome"
    assert welcome.content["payload"]["seq"] == welcome.seq
    live = [each for each in log[1:] if not each.is_private]
    if not live:
        return
    assert live[0].seq > welcome.seq
    me = welcome.content["payload"]["you"]["id"]
    expected = [
        each
        for each in reference
        if welcome.seq < each.seq <= live[-1].seq
        and not each.is_private
        and not (each.kind == "system/presence" and each.content["payload"]["participant"]["id"] == me)
        and (reads is None or not each.is_frame or reads(each))
    ]
    assert live == expected


class TestBurst:
    @pytest.mark.parametrize("opcode", [TEXT, BINARY])
    async def test_ten_thousand_frames_reach_twenty_readers(
        self, gateway: GatewayProcess, people: People, opcode: int
    ) -> None:
        olga = await people.joined("olga")
        readers = [await people.joined(id) for id in READERS]
        stream = await open_stream(olga, "open")
        count = 10_000
        burst = b"".join(ws_frame(opcode, f"#{stream}#{number}", mask=b"\0\0\0\0") for number in range(count))
        collected, _ = await asyncio.gather(
            asyncio.gather(*(raw.read_until(says("done"), 30) for raw in [olga, *readers])),
            olga.send(burst + chat("done")),
        )
        expected = [Frame(opcode, f"#{stream}#{number}".encode()) for number in range(count)]
        for frames in collected:
            assert [frame for frame in frames if frame.payload.startswith(b"#")] == expected


class TestOneTick:
    """Everything in one TCP segment, so that it is decided within one tick."""

    async def test_control_messages_keep_their_place(self, gateway: GatewayProcess, people: People) -> None:
        olga = await people.joined("olga")
        will = await people.joined("will")
        rex = await people.joined("rex", **POSITIONS)
        right = {"stream_id": "tick", "participant_id": "will"}
        await olga.send(
            send("stream/request", {"direction": "upload", "desired_id": "tick"}, "open")
            + text("#tick#1")
            + send("stream/grant-write", right, "grant")
            + text("#tick#2")
            + chat("3")
            + ws_frame(BINARY, "#tick#4")
            + send("stream/revoke-write", right, "revoke")
            + text("#tick#5")
            + send("stream/transfer-ownership", {"stream_id": "tick", "new_owner": "will"}, "transfer")
            + text("#tick#refused")
            + chat("6")
            + text("#nowhere#refused")
            + chat("end")
        )
        logs = [await raw.read_until(says("end")) for raw in (olga, will, rex)]

        def steps(messages: Iterable[Any]) -> list[str]:
            told = []
            for each in messages:
                if isinstance(each, tuple):
                    told.append(each[0].rpartition(b"#")[2].decode())
                elif each["kind"].startswith("stream/"):
                    told.append(each["kind"])
                elif each["kind"] == "chat":
                    told.append(each["payload"]["text"])
                elif each["kind"] == "system/error":
                    told.append(each["payload"]["error"])
            return told

        mine = steps(plain(logs[0]))
        answers = [step for step in mine if step not in ("stream/request", "stream/grant-write", "stream/revoke-write")]
        assert [step for step in answers if step != "stream/transfer-ownership"] == [
            "stream/open",
            "1",
            "stream/write-granted",
            "2",
            "3",
            "4",
            "stream/write-revoked",
            "5",
            "stream/ownership-transferred",
            "unauthorized_stream_write",
            "6",
            "stream_not_found",
            "end",
        ]
        without_errors = [step for step in mine if step not in ("unauthorized_stream_write", "stream_not_found")]
        assert steps(plain(logs[1])) == without_errors
        assert steps(each.plain for each in seen(logs[2])) == without_errors
        assert_one_order(seen(logs[2]))

    async def test_a_segment_that_ends_in_a_close(self, gateway: GatewayProcess, people: People) -> None:
        """Everything before the close counts; then everyone sees the leave, and nothing after it."""
        olga = await people.joined("olga")
        rex = await people.joined("rex", **POSITIONS)
        stream = await open_stream(olga, "open")
        frames = b"".join(text(f"#{stream}#{number}") for number in range(500))
        await olga.send(frames + chat("bye") + ws_frame(CLOSE, struct.pack("!H", 1000)) + chat("too late"))
        log = seen(await rex.read_until(lambda frame: b'"leave"' in frame.payload))
        assert [each.content[2] for each in log if each.is_frame] == [b"%d" % number for number in range(500)]
        assert [each.kind for each in log[-2:]] == ["chat", "system/presence"]
        assert_one_order(log)


class TestWelcome:
    async def test_no_hole_and_no_overlap_for_late_joiners(self, gateway: GatewayProcess, people: People) -> None:
        olga = await people.joined("olga")
        rex = await people.joined("rex", **POSITIONS)
        stream = await open_stream(olga, "open")

        async def write() -> None:
            for round in range(60):
                await olga.send(
                    b"".join(text(f"#{stream}#{round * 50 + n}") for n in range(50)) + chat(f"round-{round}")
                )
                await asyncio.sleep(0)
            await olga.send(chat("end"))

        async def come(id: str, turn: int) -> list[Seen]:
            for _ in range(turn):
                await asyncio.sleep(0)
            raw = await people.add(RawSocket.open(gateway.port))
            await raw.send(upgrade_head() + text(join_message(id, **POSITIONS)))
            assert (await raw.read_head())[0] == 101
            frames = await raw.read_until(lambda frame: says("end")(frame) or says("after")(frame), 30)
            raw.sock.close()
            return seen(frames)

        joining = [asyncio.create_task(come(id, turn * 3)) for turn, id in enumerate(JOINERS)]
        await write()
        # Who came after the end sees this one instead.
        await asyncio.sleep(0.2)
        await olga.send(chat("after"))
        logs = await asyncio.gather(*joining)
        reference = seen([*rex.got, *await rex.read_until(says("after"))])
        assert sum(each.is_frame for each in reference) == 3_000
        assert_one_order(reference, *logs)
        for log in logs:
            assert_no_hole(log, reference)

    async def test_positions_that_are_asked_for_later(self, gateway: GatewayProcess, people: People) -> None:
        """Identified by the header, a join follows in the middle of the flow: nothing is lost or told twice."""
        olga = await people.joined("olga")
        stream = await open_stream(olga, "open")
        pia = await people.add(RawSocket.upgraded(gateway.port, Authorization=f"Bearer {token_of('pia')}"))
        await olga.send(b"".join(text(f"#{stream}#{number}") for number in range(1_000)))
        await pia.read_until(lambda frame: frame.payload.endswith(b"#0"))
        await asyncio.gather(
            pia.send(text(join_message("pia", **POSITIONS))),
            olga.send(b"".join(text(f"#{stream}#{number}") for number in range(1_000, 5_000))),
        )
        await pia.read_until(lambda frame: b'"system/welcome"' in frame.payload)
        await olga.send(text(f"#{stream}#5000") + chat("end"))
        await pia.read_until(says("end"))
        frames = [frame for frame in pia.got if frame.payload.startswith(b"#")]
        assert [int(frame.payload.rpartition(b"#")[2]) for frame in frames] == list(range(5_001))
        first, second = (n for n, frame in enumerate(pia.got) if b'"system/welcome"' in frame.payload)
        assert first == 0
        assert not [frame for frame in pia.got[:second] if b"|" in frame.payload or b'"seq":' in frame.payload[:8]]
        assert_one_order(seen(pia.got[second:]))
        assert frames[-1].payload.count(b"|") == 2


class TestEverythingAtOnce:
    """One writer interleaves frames with control messages, another writes whether it may or not, and others join
    and leave meanwhile: every reader's view is derived from the total order, and must be exactly what it got."""

    ROUNDS = 40

    async def test_each_reader_gets_its_part_of_the_total_order(self, gateway: GatewayProcess, people: People) -> None:
        rex = await people.joined("rex", **POSITIONS)  # reads everything from the beginning
        others = {id: await people.joined(id, **POSITIONS) for id in ("olga", "will", "tom", "una")}
        pia = await people.joined("pia")  # the same as rex, without positions
        olga, will = others["olga"], others["will"]
        broad = await open_stream(olga, "broad")
        narrow = await open_stream(olga, "narrow", target=["rex", "pia", "tom"])
        await olga.send(chat("start"))
        await rex.read_until(says("start"))
        await pia.read_until(says("start"))

        sent: list[str] = []
        refused_or_accepted = 0
        for round in range(self.ROUNDS):
            segment = b""
            for step, (what, data) in enumerate(self.script(round, broad, narrow)):
                label = f"o-{round}-{step}"
                sent.append(label)
                if what == "frame":
                    segment += ws_frame((TEXT, BINARY)[step % 2], f"#{data}#{label}")
                elif what == "chat":
                    segment += send("chat", {"text": label}, label)
                else:
                    segment += send(what, data, label)
            burst = b"".join(text(f"#{broad}#w-{round}-{number}") for number in range(20))
            refused_or_accepted += 20
            joiners = [await people.add(RawSocket.open(gateway.port)) for _ in range(2)]
            await asyncio.gather(
                olga.send(segment),
                will.send(burst),
                *(
                    raw.send(upgrade_head() + text(join_message(JOINERS[(round * 2 + n) % len(JOINERS)], **POSITIONS)))
                    for n, raw in enumerate(joiners)
                ),
            )
            for n, raw in enumerate(joiners):
                assert (await raw.read_head())[0] == 101
                await raw.read_frame()
                others[f"{round}-{n}"] = raw
            if round % 3:
                # The ones before leave while the next come.
                for key in (f"{round - 1}-0", f"{round - 1}-1"):
                    raw = others[key]
                    await raw.send(ws_frame(CLOSE, struct.pack("!H", 1000)))
        await asyncio.gather(olga.send(chat("olga-end")), will.send(chat("will-end")))
        ends = {b"olga-end", b"will-end"}

        def is_last(raw: RawSocket) -> Any:
            missing = {end for end in ends if not any(end in frame.payload for frame in raw.got)}

            def accept(frame: Frame) -> bool:
                missing.difference_update([end for end in missing if end in frame.payload])
                return not missing

            return accept

        for raw in (rex, pia, *(others[id] for id in ("olga", "will", "tom", "una"))):
            await raw.read_until(is_last(raw))
        for key, raw in others.items():
            if key[0].isdigit():
                # Those that have left or were replaced have an end; the others have what they have read so far.
                await raw.send(ws_frame(CLOSE, struct.pack("!H", 1000)))
                while await raw.read_frame() is not None:
                    pass
        await olga.send(chat("finish"))
        for raw in (rex, pia, *(others[id] for id in ("olga", "will", "tom", "una"))):
            await raw.read_until(says("finish"))

        reference = seen(rex.got)
        logs = {key: seen(raw.got) for key, raw in others.items()}
        assert_one_order(reference, *logs.values())

        readers: dict[int, set[str]] = {}
        writers: dict[int, set[str]] = {}
        reading, writing = {"rex", "pia", "tom"}, {"olga"}
        for each in reference:
            payload = each.content["payload"] if not each.is_frame else {}
            if each.kind in ("stream/read-granted", "stream/read-revoked") and payload["stream_id"] == narrow:
                reading = set(payload["authorized_readers"])
            elif each.kind in ("stream/write-granted", "stream/write-revoked") and payload["stream_id"] == broad:
                writing = set(payload["authorized_writers"])
            elif each.is_frame:
                readers[each.seq], writers[each.seq] = reading, writing

        # Revokes are exact: who has written a frame was a writer at its position.
        by_will = [each for each in reference if each.is_frame and each.content[1] == "will"]
        assert by_will
        assert all("will" in writers[each.seq] for each in by_will)
        assert [each.content[2] for each in by_will] == sorted(
            (each.content[2] for each in by_will), key=lambda data: [int(part) for part in data[2:].split(b"-")]
        )

        # Every view is the part of the total order that is meant for it.
        for log in logs.values():
            me = log[0].content["payload"]["you"]["id"]
            assert_no_hole(
                log,
                reference,
                reads=lambda each, me=me: each.content[0] != narrow or me in readers[each.seq],
            )
        for id in ("tom", "una"):
            assert logs[id][-1].seq == reference[-1].seq
        assert {me for seq in readers for me in readers[seq]} == {"rex", "pia", "tom", "una"}, "the script tries it"

        # Without positions it is the same sequence.
        after_start = [each.plain for each in reference]
        theirs = plain(pia.got)
        start = next(n for n, each in enumerate(theirs) if isinstance(each, dict) and each.get("id") == "start")
        mine = next(n for n, each in enumerate(after_start) if isinstance(each, dict) and each.get("id") == "start")
        assert theirs[start:] == after_start[mine:]

        # The writer's messages are told in the order in which they were sent.
        told = []
        for each in reference:
            if each.is_frame and each.content[1] == "olga":
                told.append(each.content[2].decode())
            elif each.kind == "chat":
                told.append(each.content["id"])
            elif each.kind in ("stream/open", *self.ANSWERS):
                told += each.content.get("correlation_id", [])
        assert [label for label in told if label.startswith("o-")] == sent

        # Nothing of the other writer is lost without a word: accepted or refused, with a count.
        def errors() -> int:
            return sum(
                each.content["payload"].get("count", 1) for each in seen(will.got) if each.kind == "system/error"
            )

        while errors() + len(by_will) < refused_or_accepted:
            await will.read_until(lambda frame: b'"system/error"' in frame.payload)
        assert errors() + len(by_will) == refused_or_accepted

    ANSWERS = ("stream/write-granted", "stream/write-revoked", "stream/read-granted", "stream/read-revoked")

    def script(self, round: int, broad: str, narrow: str) -> Iterator[tuple[str, Any]]:
        """What the owner says in one segment: (``frame``, stream), (``chat``, None) or a kind with its payload."""
        write = {"stream_id": broad, "participant_id": "will"}
        read = {"stream_id": narrow, "participant_id": "una"}
        yield "frame", broad
        yield "frame", narrow
        yield "stream/grant-write" if round % 2 == 0 else "stream/revoke-write", write
        yield "frame", broad
        yield "chat", None
        yield "frame", narrow
        yield "stream/grant-read" if round % 3 != 1 else "stream/revoke-read", read
        yield "frame", narrow
        yield "frame", broad
        if round % 5 == 0:
            yield "stream/request", {"direction": "upload", "target": ["tom"]}
        if round % 4 == 3:
            # Given and taken within one segment.
            yield "stream/grant-write", write
            yield "frame", broad
            yield "stream/revoke-write", write
        yield "frame", narrow
        yield "chat", None
