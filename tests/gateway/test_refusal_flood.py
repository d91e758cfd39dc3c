"""A flood of refusals is summed up, over the socket and over HTTP: the log stays small, and its numbers are exact."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from http_socket import HttpSocket, request
from raw_socket import TEXT, RawSocket, join_message, text, ws_frame

from mewstream.gateway import refusal_flood
from mewstream.gateway.decision_log import decision_entries
from mewstream.gateway.refusal_flood import BURST, MAX_ANSWERED, MAX_SUMS, PER_SECOND, RefusalFloods, Treatment
from mewstream.journal.reader import JournalReader
from mewstream.protocol.commands import Refuse
from mewstream.protocol.errors import CapabilityViolation
from mewstream.protocol.records import Joined, Left, Record, Refused
from mewstream.protocol.state import SpaceState
from support import GatewayProcess, joined, running_gateway, space_config

KINDS = ("chat", "mcp/request", "x/y", "stream/request", "capability/grant", "space/invite")


class Recorded:
    """A gateway whose log is looked at when it has ended."""

    def __init__(self, directory: Path, **limits: Any) -> None:
        self.data = directory / "data"
        config = space_config("mute", "ann", capabilities={"mute": []}, gateway={"drain_seconds": 0})
        config["mewstream"]["limits"] |= limits
        self.gateway = GatewayProcess(directory, config, options=("--data", str(self.data))).start()

    def stop(self) -> list[Record]:
        self.gateway.stop()
        records = [entry.record for entry in JournalReader(self.data / "journal").read("demo", 0)]
        assert [each.seq for each in records] == list(range(1, len(records) + 1))
        return records


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with tempfile.TemporaryDirectory() as directory:
        yield Recorded(Path(directory))


def refusals(records: list[Record]) -> list[Refused]:
    return [each for each in records if isinstance(each, Refused)]


async def test_every_envelope_is_answered_and_few_are_recorded(recorded: Recorded) -> None:
    gateway = recorded.gateway
    async with await RawSocket.joined(gateway.port, "mute", extensions=["positions"]) as raw:
        sent = {f"m-{number}": KINDS[number % len(KINDS)] for number in range(3_000)}
        payload = {"text": "x", "method": "x", "recipient": "ann", "participant_id": "eve", "capabilities": ["chat"]}
        started = asyncio.get_running_loop().time()
        for id, kind in sent.items():
            await raw.send(ws_frame(TEXT, json.dumps({"id": id, "kind": kind, "payload": payload}), mask=bytes(4)))
        answers: dict[str, str] = {}
        ids = []
        positions = []
        while len(answers) < len(sent):
            frame = await raw.read_frame(within=60)
            assert frame is not None
            ids.append(frame.json["id"])
            if frame.json["kind"] == "space/invite-ack":
                assert sent[frame.json["correlation_id"][0]] == "space/invite"
                continue
            assert frame.json["kind"] == "system/error"
            assert "count" not in frame.json["payload"], "who was told of each is not told of the sum"
            [answered] = frame.json["correlation_id"]
            answers[answered] = frame.json["payload"]["error"]
            positions.append(frame.json.get("seq"))
        assert answers == dict.fromkeys(sent, "capability_violation")
        assert len(set(ids)) == len(ids)
        told = [each for each in positions if each is not None]
        # One more may be recorded for every second that it took.
        seconds = asyncio.get_running_loop().time() - started
        assert BURST <= len(told) <= BURST + PER_SECOND * (seconds + 1), "only what is recorded has a position"
        assert told == sorted(told)
    found = refusals(recorded.stop())
    counted = Counter[str]()
    for each in found:
        counted[each.kind] += each.count
    assert counted == Counter(sent.values())
    assert len(found) < BURST + 10 * len(KINDS)
    assert all(each.told == each.count for each in found if each.count > 1)


async def test_over_http_the_same(recorded: Recorded) -> None:
    gateway = recorded.gateway
    envelope = json.dumps({"kind": "chat", "payload": {"text": "no"}}).encode()
    post = request("POST", "/participants/mute/messages", participant="mute", body=envelope)

    async def one() -> None:
        async with await HttpSocket.connected(gateway.port) as raw:
            for _ in range(100):
                answer = await raw.ask(post)
                assert (answer.status, answer.error) == (403, "capability_violation")

    await asyncio.gather(*(one() for _ in range(20)))
    _, metrics = await gateway.http("GET", "/metrics")
    assert 'mewstream_refusals_total{code="capability_violation",space="demo"} 2000.0' in metrics
    found = refusals(recorded.stop())
    assert sum(each.count for each in found) == 2_000
    assert len(found) < BURST + 20


async def test_socket_and_http_share_an_account(recorded: Recorded) -> None:
    gateway = recorded.gateway
    async with joined(gateway, "mute") as (mute,):
        for _ in range(BURST):
            await mute.send("chat", {"text": "no"})
        for _ in range(BURST):
            await mute.error("capability_violation")
        status, answer = await gateway.post("mute", {"id": "mine", "kind": "chat", "payload": {"text": "no"}})
        assert (status, answer["correlation_id"]) == (403, ["mine"])
        # It is not remembered: asked again, it is judged again.
        status, again = await gateway.post("mute", {"id": "mine", "kind": "chat", "payload": {"text": "no"}})
        assert status == 403
        assert again["id"] != answer["id"]
    found = refusals(recorded.stop())
    assert sum(each.count for each in found) == BURST + 2
    assert len(found) <= BURST + 2


async def test_frames_to_more_streams_than_are_counted_for_themselves(recorded: Recorded) -> None:
    """Each of them was recorded before, as soon as there were more than sixty-four."""
    gateway = recorded.gateway
    async with joined(gateway, "ann") as (ann,), await RawSocket.joined(gateway.port, "mute") as raw:
        streams = [await ann.open_stream(target=["ann"]) for _ in range(80)]
        for _ in range(50):
            await raw.send(b"".join(ws_frame(TEXT, f"#{stream}#x", mask=bytes(4)) for stream in streams))
        told: Counter[str | None] = Counter()
        while sum(told.values()) < 4_000:
            frame = await raw.read_frame(within=60)
            assert frame is not None
            if b'"kind":"system/error"' in frame.payload[:300]:
                payload = frame.json["payload"]
                told[payload.get("stream_id")] += payload.get("count", 1)
        assert sum(told.values()) == 4_000
        assert set(told) == {*streams, None}, "of each stream the first is told, and what is left over has none"
        assert max(told[stream] for stream in streams) <= 50, "none is told of what another one was refused"
    found = refusals(recorded.stop())
    assert sum(each.count for each in found) == 4_000
    assert {each.kind for each in found} == {"frame"}
    counted = Counter(each.stream_id for each in found for _ in range(each.count))
    assert max(counted[stream] for stream in streams) <= 50
    assert len(found) < BURST + 5 * (MAX_SUMS + 1)


async def test_what_is_counted_is_there_after_a_drain(recorded: Recorded) -> None:
    """The gateway ends while a flood goes on."""
    raw = await RawSocket.joined(recorded.gateway.port, "mute")
    await raw.send(text({"kind": "chat", "payload": {"text": "no"}}) * 500)
    for _ in range(500):
        assert (await raw.read_frame(within=60)) is not None
    found = refusals(recorded.stop())
    raw.sock.close()
    assert sum(each.count for each in found) == 500


class TestJoins:
    """Each costs a welcome, is recorded, and is told to everyone."""

    async def join(self, gateway: GatewayProcess, **fields: Any) -> tuple[list[Any], int | None]:
        async with await RawSocket.upgraded(gateway.port) as raw:
            await raw.send(text(join_message("mute", **fields)))
            frame = await raw.read_frame()
            assert frame is not None
            if frame.json["kind"] == "system/welcome":
                return [frame.json], None
            frames, code = await raw.read_to_close()
            return [frame.json, *(each.json for each in frames)], code

    async def test_too_often(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            recorded = Recorded(Path(directory), joins_per_second=0.01)
            for _ in range(100):
                assert (await self.join(recorded.gateway))[1] is None
            for _ in range(30):
                [error], code = await self.join(recorded.gateway, extensions=[])
                assert code == 4006
                assert (error["payload"]["error"], error["payload"]["limit"]) == ("limit_exceeded", "joins_per_second")
                assert error["payload"]["retry_after"] > 0
            assert (await self.join(recorded.gateway))[1] == 1013, "a client that knows no codes of ours"
            # Others come as they like, and so do posts.
            async with joined(recorded.gateway, "ann"):
                status, _ = await recorded.gateway.post("mute", {"kind": "mcp/response", "payload": {}})
                assert status == 200
            records = recorded.stop()
            comings = [each for each in records if isinstance(each, Joined | Left) and each.participant == "mute"]
            assert len(comings) <= 200
            refused = [each for each in refusals(records) if each.kind == "system/join"]
            assert sum(each.count for each in refused) == 31
            assert len(refused) < 10

    async def test_a_space_that_is_full(self) -> None:
        """Who knocks again and again does not fill the disk."""
        with tempfile.TemporaryDirectory() as directory:
            recorded = Recorded(Path(directory), participants_per_space=1)
            async with joined(recorded.gateway, "ann"):
                for _ in range(BURST + 100):
                    [error], code = await self.join(recorded.gateway)
                    assert code == 4005
                    assert error["payload"]["limit"] == "participants_per_space"
            refused = [each for each in refusals(recorded.stop()) if each.kind == "system/join"]
            assert sum(each.count for each in refused) == BURST + 100
            assert len(refused) < BURST + 10

    async def test_who_was_replaced_keeps_no_welcome_in_memory(self) -> None:
        """Two hundred connections of one token that read nothing held two hundred welcomes."""
        with tempfile.TemporaryDirectory() as directory:
            recorded = Recorded(Path(directory))
            gateway = recorded.gateway
            async with joined(gateway, "ann") as (ann,), contextlib.AsyncExitStack() as stack:
                for _ in range(20):
                    await ann.open_stream(description="x" * 50_000)
                before = memory(gateway.pid)
                for _ in range(200):
                    raw = await RawSocket.upgraded(gateway.port, receive_buffer=4_096)
                    stack.callback(raw.sock.close)
                    await raw.send(text(join_message("mute")))
                await ann.settle()
                assert memory(gateway.pid) - before < 64 << 20
            recorded.stop()


async def test_what_one_causes_slows_one_down() -> None:
    """A hundred bytes of a grant make forty thousand for everyone: reading pauses, and nothing is refused."""
    people = [f"reader-{number:04}-{'x' * 100}" for number in range(400)]
    limits = {"caused_bytes_per_second": 400_000}
    config = space_config("ann", "bob", *people, gateway={"drain_seconds": 0}, mewstream={"limits": limits})
    with tempfile.TemporaryDirectory() as directory:
        gateway = GatewayProcess(Path(directory), config).start()
        try:
            async with joined(gateway, "ann", "bob") as (ann, bob):
                stream = await ann.open_stream(target=people)
                ids = []
                for _ in range(80):
                    ids.append(await ann.send("stream/grant-read", {"stream_id": stream, "participant_id": "bob"}))
                granted = [await bob.receive("stream/read-granted", of=id, timeout=60) for id in ids]
                sizes = [len(json.dumps(each)) for each in granted]
                assert sum(sizes) > 8 * 400_000
                seconds = [_time_of(each) for each in (granted[0], granted[-1])]
                # After four seconds' worth at once, so many bytes a second; a slow machine can only take longer.
                assert seconds[1] - seconds[0] > 0.8 * (sum(sizes) / 400_000 - 5)
                # What it owes it owes by whichever connection. Over HTTP one is told to wait.
                statuses = []
                while 429 not in statuses:
                    status, answer = await gateway.post(
                        "ann", {"kind": "stream/grant-read", "payload": {"stream_id": stream, "participant_id": "bob"}}
                    )
                    statuses.append(status)
                assert answer["payload"]["limit"] == "caused_bytes_per_second"
                assert set(statuses) <= {200, 429}
        finally:
            gateway.stop()


class TestDebts:
    """One cause that is larger than what may be caused in an hour."""

    @pytest.fixture
    def gateway(self) -> Iterator[GatewayProcess]:
        config = space_config("ann", "bob", mewstream={"limits": {"caused_bytes_per_second": 0.01}})
        with running_gateway(config) as gateway:
            yield gateway

    async def is_in_debt(self, gateway: GatewayProcess) -> bool:
        status, answer = await gateway.post("ann", {"kind": "chat", "payload": {"text": "hi"}})
        return status == 429 and answer["payload"]["limit"] == "caused_bytes_per_second"

    async def test_outlive_the_connection(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "ann") as (ann,):
            assert not await self.is_in_debt(gateway)
            await ann.send("stream/list", {})
            await ann.receive("stream/listed")
        assert await self.is_in_debt(gateway)

    async def test_are_made_by_repetitions(self, gateway: GatewayProcess) -> None:
        async with joined(gateway, "ann") as (ann,):
            for _ in range(2):
                await ann.send("chat", {"text": "x" * 1_000}, id="same")
                await ann.receive("chat")
        assert await self.is_in_debt(gateway)


def _time_of(message: dict[str, Any]) -> float:
    return datetime.fromisoformat(message["ts"]).timestamp()


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) << 10


class TestAccount:
    """The sums themselves, with a loop whose time is told."""

    @pytest.fixture
    def floods(self) -> RefusalFloods:
        self.now = 0.0
        self.timers: list[tuple[float, Any]] = []
        self.reports: list[Refuse] = []
        self.may_report = True

        def report(refuse: Refuse) -> bool:
            if self.may_report:
                self.reports.append(refuse)
            return self.may_report

        return RefusalFloods(self, report)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Any) -> Any:
        self.timers.append((self.now + delay, callback))

        class Handle:
            def cancel(self) -> None: ...

        return Handle()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self.timers if each[0] <= end]:
            first = min(due, key=lambda each: each[0])
            self.timers.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end

    def refused(self, kind: str = "chat", code: str = "c", stream: str | None = None, sender: str = "ann") -> Refused:
        return Refused(1, 1, None, sender=sender, kind=kind, code=code, message="no", http_status=403, stream_id=stream)

    def test_the_burst_and_then_one_a_second(self, floods: RefusalFloods) -> None:
        found = [floods.treat(self.refused()) for _ in range(BURST + 50)]
        assert found == [Treatment.RECORDED] * BURST + [Treatment.ANSWERED] * 50
        assert floods.treat(self.refused(sender="bob")) is Treatment.RECORDED, "each has its own"
        self.advance(1.5)
        assert [(each.count, each.told) for each in self.reports] == [(50, 50)]
        assert [floods.treat(self.refused()) for _ in range(3)] == [Treatment.RECORDED] + [Treatment.ANSWERED] * 2

    def test_the_intervals_grow_and_shrink(self, floods: RefusalFloods) -> None:
        for _ in range(BURST):
            floods.treat(self.refused())
        reported = []
        for second in range(60):
            floods.treat(self.refused())
            floods.treat(self.refused())
            before = len(self.reports)
            self.advance(1)
            if len(self.reports) > before:
                reported.append(second)
        gaps = [after - before for before, after in itertools.pairwise(reported)]
        assert gaps[:2] == [2, 4]
        assert set(gaps[3:]) == {int(refusal_flood.LONGEST_INTERVAL)}
        self.advance(300)
        assert not floods._floods, "what has ended is forgotten"
        assert not self.timers

    def test_frames_are_told_once_and_again_after_a_change(self, floods: RefusalFloods) -> None:
        def treat(version: int) -> Treatment:
            return floods.treat(self.refused("frame", stream="stream-1"), version=version)

        assert [treat(1), treat(1), treat(1)] == [Treatment.RECORDED, Treatment.COUNTED, Treatment.COUNTED]
        assert [treat(2), treat(2)] == [Treatment.RECORDED, Treatment.COUNTED]
        floods.finish("ann")
        assert [(each.count, each.told) for each in self.reports] == [(2, 0), (1, 0)]
        assert treat(2) is Treatment.RECORDED, "another connection is told anew"

    def test_without_the_burst_the_first_frame_is_told_all_the_same(self, floods: RefusalFloods) -> None:
        for _ in range(BURST):
            floods.treat(self.refused())
        found = [floods.treat(self.refused("frame", stream="s"), version=1) for _ in range(3)]
        assert found == [Treatment.ANSWERED, Treatment.COUNTED, Treatment.COUNTED]
        floods.finish("ann")
        assert [(each.count, each.told) for each in self.reports] == [(3, 1)]
        assert "(2 frames since the last report)" in self.reports[0].message

    def test_nothing_grows_without_a_bound(self, floods: RefusalFloods) -> None:
        for number in range(5_000):
            floods.treat(self.refused("frame", stream=f"s-{number}"), version=0)
            floods.treat(self.refused(kind=f"k-{number}", code=f"c-{number % 12}"))
        flood = floods._floods["ann"]
        assert len(flood.sums) <= MAX_SUMS + 13
        assert len(flood.answered) <= MAX_ANSWERED
        floods.finish("ann")
        assert sum(each.count for each in self.reports) == 10_000 - BURST

    def test_what_is_left_over_names_no_kind_that_it_is_not(self, floods: RefusalFloods) -> None:
        """Whatever came last had all of them put down to it."""
        for _ in range(BURST):
            floods.treat(self.refused())
        sent = Counter[str]()
        for number in range(60 * 20):
            kind = f"k/{number % 60}"
            floods.treat(self.refused(kind))
            floods.treat(self.refused("frame", stream=f"s-{number % 50}"), version=1)
            sent[kind] += 1
            sent["frame"] += 1
        floods.finish("ann")
        counted = Counter[str]()
        for each in self.reports:
            counted[each.kind] += each.count
        assert counted["frame"] == sent["frame"]
        assert counted.total() == sent.total()
        named = {kind: count for kind, count in counted.items() if kind.startswith("k/")}
        assert named == {kind: sent[kind] for kind in named}
        assert counted[""] == sent.total() - sent["frame"] - sum(named.values()) > 0
        [rest] = [each for each in self.reports if each.kind == ""]
        assert (rest.stream_id, rest.details, rest.excerpt) == (None, {}, b"")
        assert f"{rest.count} messages of several kinds or streams" in rest.message
        [frames] = [each for each in self.reports if each.kind == "frame" and each.stream_id is None]
        assert f"{frames.count - frames.told} frames of several kinds or streams" in frames.message

    def test_a_sum_of_several_kinds_is_no_decision_about_a_capability(self) -> None:
        rest = self.refused("", CapabilityViolation.code)
        assert list(decision_entries(SpaceState("demo"), rest, "websocket")) == []
        one = self.refused("chat", CapabilityViolation.code)
        assert [each["required_capability"] for each in decision_entries(SpaceState("demo"), one, "websocket")] == [
            "chat"
        ]

    def test_what_is_left_over_and_of_one_kind_names_it(self, floods: RefusalFloods) -> None:
        for number in range(BURST + 60 * 20):
            floods.treat(self.refused(stream=f"s-{number % 60}"))
        floods.finish("ann")
        assert {each.kind for each in self.reports} == {"chat"}
        assert sum(each.count for each in self.reports if each.stream_id is None) > 0

    def test_what_cannot_be_recorded_waits(self, floods: RefusalFloods) -> None:
        for _ in range(BURST + 5):
            floods.treat(self.refused())
        self.may_report = False
        self.advance(3)
        floods.treat(self.refused(), may_record=False)
        floods.finish("ann")
        self.may_report = True
        self.advance(10)
        assert sum(each.count for each in self.reports) == 6
