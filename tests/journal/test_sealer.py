# ruff: noqa: ASYNC110 - there is nothing to wait for but that it is so
"""Full segments are rewritten when few records are written, or when many segments wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from driven import Driven, Sent
from making import memory_directory

from mewstream.journal import sealer


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


class Flow:
    """Frames that flow all the time."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            self._sent.frames(60)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("most", [3, 10_000])
async def test_segments_are_rewritten_when_nothing_flows_or_many_wait(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer, "SEAL_SECONDS", 0.05)
    monkeypatch.setattr(sealer, "QUIET_RECORDS", 50)
    monkeypatch.setattr(sealer, "MAX_UNSEALED", most)
    driven = Driven(tmp_path, None, durability="flush", segment_bytes=20_000)
    sent = Sent(driven)

    def sealed() -> int:
        return len(list((tmp_path / "journal/p0").glob("*.sealed.index")))

    flow = Flow(sent)
    async with asyncio.timeout(30):
        if most == 3:
            while not sealed():
                await asyncio.sleep(0.01)
        else:
            while len(driven.journal.partitions[0].closed) < 8:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert not sealed(), "frames flow, and segments are rewritten"
        flow.task.cancel()
        while not sealed():
            await asyncio.sleep(0.01)
    driven.flush()
    sent.check(tmp_path)


async def test_a_rewriting_that_was_begun_stands_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealer, "QUIET_RECORDS", 50)
    monkeypatch.setattr(sealer, "MAX_UNSEALED", 10_000)
    driven = Driven(tmp_path, None, durability="flush", segment_bytes=20_000)
    sent = Sent(driven)
    while not driven.journal.partitions[0].closed:
        sent.frames(100)
        driven.flush()
    flow = Flow(sent)
    driven.running.sealer.seal()
    await asyncio.sleep(5 * sealer.GIVE_WAY_SECONDS)
    assert not list((tmp_path / "journal/p0").glob("*.sealed.index"))
    flow.task.cancel()
    async with asyncio.timeout(30):
        while not list((tmp_path / "journal/p0").glob("*.sealed.index")):
            await asyncio.sleep(0.01)
    driven.flush()
    sent.check(tmp_path)
