"""Killed again and again while everything is in flight: nothing that anyone was told of is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import aiohttp
import oracle
import pytest
from making import POSITIONS, JournaledGateway, is_welcome, journaled, positioned_frame, seq_of
from websockets.exceptions import ConnectionClosed, WebSocketException

from support import Client, space_config

PEOPLE = ("ann", "bob", "cy", "dee")
CONFIG = space_config(*PEOPLE, "eve", mewstream={"policies": {"suspend_for": 0.5}})
SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {"segment_bytes": 40_000, "snapshot_every": 150},
    "early flushes": {"segment_bytes": 40_000, "snapshot_every": 40, "flush_bytes": 700},
    "fsync": {"segment_bytes": 40_000, "snapshot_every": 150, "durability": "fsync"},
}


class Actor:
    """One participant who does whatever comes to mind, and keeps all that it is told."""

    def __init__(self, gateway: JournaledGateway, name: str, seed: int) -> None:
        self.gateway = gateway
        self.name = name
        self.told: list[tuple[str, Any]] = []
        """(run of the gateway, message)"""
        self._random = random.Random(seed)
        self._client: Client | None = None
        self._reading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        with contextlib.suppress(WebSocketException, OSError, TimeoutError, AssertionError, aiohttp.ClientError):
            await self._join()
            while True:
                await self._act()
                if self._random.random() < 0.5:
                    await asyncio.sleep(self._random.random() * 0.005)

    async def _join(self) -> None:
        self._client = await self.gateway.join(self.name, **POSITIONS)
        epoch = self._client.welcome["payload"]["epoch"]
        self.told.append((epoch, self._client.welcome))
        self._reading = asyncio.ensure_future(self._read(self._client, epoch))

    async def _read(self, client: Client, epoch: str) -> None:
        with contextlib.suppress(ConnectionClosed, OSError):
            while True:
                self.told.append((epoch, await client.next(60)))

    async def finish(self) -> None:
        if self._reading is not None:
            await self._reading

    async def _act(self) -> None:
        client, chance = self._client, self._random
        assert client is not None
        stream = f"stream-{chance.randrange(1, 40)}"
        streams = [each["stream_id"] for each in client.welcome["payload"]["active_streams"]] or [stream]
        about = {"stream_id": chance.choice([*streams, stream])}
        other = chance.choice(PEOPLE)
        match chance.randrange(24):
            case 0:
                await client.send("stream/request", {"desired_id": f"{self.name}-{chance.randrange(9)}"})
            case 1:
                await client.send("stream/request", {"target": sorted({self.name, other}), "auto_grant": [other]})
            case 2 | 3:
                await client.send("stream/grant-write", {**about, "participant_id": other})
            case 4:
                conditions = {"max_frames": chance.randrange(1, 9)}
                await client.send("stream/grant-write", {**about, "participant_id": other, "conditions": conditions})
            case 5:
                await client.send("stream/revoke-write", {**about, "participant_id": other})
            case 6:
                retain = chance.random() < 0.5
                await client.send("stream/transfer-ownership", {**about, "new_owner": other, "retain_write": retain})
            case 7 if chance.random() < 0.3:
                await client.send("stream/close", about)
            case 8:
                await client.send("stream/revoke-read", {**about, "participant_id": other})
            case 9:
                await client.send("stream/grant-read", {**about, "participant_id": other})
            case 10 | 11:
                await client.send("chat", {"text": "x" * chance.randrange(300)})
            case 12 if chance.random() < 0.4:
                await client.close()
                await self.finish()
                await self._join()
            case 13:
                await self.gateway.post(self.name, {"kind": "chat", "payload": {"text": "over HTTP"}})
            case _:
                for number in range(chance.randrange(1, 8)):
                    await client.frame(about["stream_id"], chance.randbytes(chance.randrange(200)) + b"%d" % number)


def check(data: Path, told: list[tuple[str, Any]]) -> None:
    """Every control message that somebody got is in the log, where and as they got it."""
    rows = oracle.space_rows(data)  # no gap, no repeat
    oracle.fold(rows)  # every frame was allowed, every set of writers is what it says
    by_seq = {row["seq"]: row for row in rows}
    last_of_run: dict[str, int] = {}
    for row in rows:
        last_of_run[row["epoch"]] = row["seq"]
    for epoch, message in told:
        seq = seq_of(message)
        if seq is None:
            continue
        row = by_seq.get(seq)
        frame = positioned_frame(message)
        if frame is not None:
            # Frames are told before they are written: the last few may be lost, and only those.
            if seq <= last_of_run[epoch]:
                assert row is not None
                assert (row["record"], row["epoch"], row["data"]) == ("frame", epoch, frame.data)
            continue
        assert row is not None, f"told of seq {seq}, the log ends at {rows[-1]['seq']}: {str(message)[:200]}"
        assert row["epoch"] == epoch, f"seq {seq} was told by run {epoch} and is of run {row['epoch']}: {message}"
        if is_welcome(message):
            continue
        if row["record"] == "envelope":
            assert row["detail"]["id"] == message["id"]
        elif row["record"] == "refused":
            assert (message["kind"], message["payload"]["error"]) == ("system/error", row["outcome"])
        else:
            assert row["kind"] == message["kind"], (row, message)


async def rounds(directory: Path, count: int, seed: int, settings: dict[str, Any]) -> int:
    """Returns how many control messages were told altogether."""
    chance = random.Random(seed)
    everything: list[tuple[str, Any]] = []
    async with journaled(directory, CONFIG, start=False, **settings) as gateway:
        for round in range(count + 1):
            gateway.start()
            # Whoever comes first sees the fold of the log.
            eve = await gateway.join("eve", **POSITIONS)
            state = oracle.at(gateway.data, eve.welcome["seq"])
            assert oracle.of_welcome(eve.welcome) == state.summary(), f"round {round}"
            for each in eve.welcome["payload"]["active_streams"]:
                left = {who: has["frames_left"] for who, has in each.get("conditions", {}).items()}
                assert left == state.streams[each["stream_id"]].left, f"round {round}: {each}"
            check(gateway.data, everything)
            if round == count:
                break
            everything = [(epoch, message) for epoch, message in everything if isinstance(message, dict)][-2000:]
            actors = [Actor(gateway, name, chance.randrange(1 << 30)) for name in PEOPLE]
            tasks = [asyncio.ensure_future(actor.run()) for actor in actors]
            await asyncio.sleep(0.1 + chance.random() * 0.5)
            assert gateway.process is not None
            gateway.process.kill()
            await asyncio.gather(*tasks)
            for actor in actors:
                await actor.finish()
                everything += actor.told
            await gateway.end("kill")
        await gateway.end("term")
        check(gateway.data, everything)
    return len([message for _, message in everything if isinstance(message, dict)])


@pytest.mark.parametrize(("name", "count"), [("usual", 5), ("early flushes", 4), ("fsync", 3)])
async def test_killed_under_load(tmp_path: Path, name: str, count: int) -> None:
    assert await rounds(tmp_path, count, count, SETTINGS[name]) > 200


@pytest.mark.long
@pytest.mark.parametrize(("name", "count"), [("usual", 100), ("early flushes", 40), ("fsync", 40)])
async def test_killed_a_hundred_times(tmp_path: Path, name: str, count: int) -> None:
    """Each journal lives through twenty deaths: the whole of it is read after every one."""
    for part in range(count // 20):
        assert await rounds(tmp_path / str(part), 20, 1000 * count + part, SETTINGS[name]) > 200
