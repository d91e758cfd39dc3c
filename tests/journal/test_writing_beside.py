# ruff: noqa: ASYNC110 - there is nothing to wait for but that it is so
"""Many frames are written in a thread beside the loop: in order, once, within a bound, and never to be
overtaken by a control message. Full segments are rewritten when nothing flows."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driven import Driven
from making import SPACE, CountedFiles, FailingFiles, Script, memory_directory, open_journal

from mewstream.gateway import recorder as recorder_module
from mewstream.gateway import upkeep
from mewstream.journal.files import Files
from mewstream.journal.partition import BATCH_ROWS, COMPRESSED_ROWS
from mewstream.protocol.records import Record

MANY = 2 * COMPRESSED_ROWS


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


class GatedFiles(Files):
    """Writes of many frames wait until the gate is opened."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self.by: list[str] = []

    def write_at(self, handle: int, data: bytes | memoryview, position: int) -> None:
        self.by.append(threading.current_thread().name)
        if self.by[-1].startswith("journal-write"):
            self.waiting.set()
            assert self.gate.wait(30)
        super().write_at(handle, data, position)


class Sent:
    """What a space has recorded so far."""

    def __init__(self, driven: Driven) -> None:
        self.driven = driven
        self.script = Script().begin()
        for record in self.script.records:
            driven.recorder.append(SPACE, record)
        driven.recorder.commit(SPACE, lambda: None)

    def frames(self, count: int) -> None:
        for number in range(count):
            self._append(self.script.frame("ann", "stream-1", b"%d" % number))

    def control(self, done: Any) -> None:
        self._append(self.script.send("ann", "chat", text="x"))
        self.driven.recorder.commit(SPACE, done)

    def _append(self, records: list[Record]) -> None:
        for record in records:
            self.driven.recorder.append(SPACE, record)

    def check(self, data: Path) -> None:
        self.driven.die()
        journal = open_journal(data)
        try:
            assert [entry.record for entry in journal.read(SPACE, 0)] == self.script.records
        finally:
            journal.close()


async def _written_by_the_thread(files: GatedFiles) -> None:
    async with asyncio.timeout(10):
        while not files.waiting.is_set():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("durability", ["flush", "fsync"])
async def test_many_frames_do_not_stop_the_loop(tmp_path: Path, durability: str) -> None:
    files = GatedFiles()
    driven = Driven(tmp_path, files, durability=durability, segment_bytes=1 << 20)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)  # the loop goes on while the thread cannot
    sent.frames(10)
    files.gate.set()
    partition = driven.journal.partitions[0]
    async with asyncio.timeout(10):
        while partition.pending or partition.unsynced:
            await asyncio.sleep(0.001)
    sent.check(tmp_path)


@pytest.mark.parametrize("durability", ["flush", "fsync"])
async def test_a_control_message_waits_for_the_frames_before_it(tmp_path: Path, durability: str) -> None:
    files = GatedFiles()
    driven = Driven(tmp_path, files, durability=durability, segment_bytes=1 << 20)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)
    told: list[int] = []
    # The commit waits for the thread, so the gate must be opened by another one.
    opener = threading.Timer(0.05, files.gate.set)
    opener.start()
    sent.control(lambda: told.append(len(sent.script.records)))
    async with asyncio.timeout(10):
        while not told:
            await asyncio.sleep(0.001)
    opener.join()
    assert told == [len(sent.script.records)]
    sent.check(tmp_path)


async def test_what_is_read_back_has_the_frames_that_are_being_written(tmp_path: Path) -> None:
    files = GatedFiles()
    driven = Driven(tmp_path, files, durability="flush", segment_bytes=1 << 20)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)
    opener = threading.Timer(0.05, files.gate.set)
    opener.start()
    history = driven.recorder.history(SPACE, 0)
    assert history is not None
    assert [entry.record for entry in history] == sent.script.records
    opener.join()
    sent.check(tmp_path)


async def test_what_waits_for_a_slow_disk_is_bounded(tmp_path: Path) -> None:
    """Beyond it the loop waits too, and with it whoever writes: memory does not grow."""
    files = GatedFiles()
    flush_bytes = 200 * MANY
    driven = Driven(tmp_path, files, durability="flush", segment_bytes=64 << 20, flush_bytes=flush_bytes)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)
    opener = threading.Timer(0.2, files.gate.set)
    opener.start()
    most = 0
    for _ in range(12 * MANY):
        sent.frames(1)
        most = max(most, driven.journal.partitions[0].pending_bytes)
    opener.join()
    assert flush_bytes < most < (recorder_module.MOST_WAITING + 1) * flush_bytes
    sent.driven.recorder._flush(driven.recorder._lanes[0])
    sent.check(tmp_path)


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("durability", ["flush", "fsync"])
async def test_a_write_in_the_thread_fails(
    tmp_path: Path, durability: str, at: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, what was to be written still waits, and goes first when the disk is well again."""
    monkeypatch.setattr(recorder_module, "RETRY_SECONDS", 0.02)
    files = FailingFiles(at=10**9, error=errno.ENOSPC)
    driven = Driven(tmp_path, files, durability=durability, segment_bytes=1 << 20)
    sent = Sent(driven)
    await asyncio.sleep(0.05)
    files._fail_at = files.count + at
    sent.frames(MANY)
    async with asyncio.timeout(10):
        while not driven.recorder.failing and driven.journal.partitions[0].pending:
            await asyncio.sleep(0.001)
    told: list[bool] = []
    sent.frames(5)
    sent.control(lambda: told.append(True))
    async with asyncio.timeout(10):
        while not told:
            await asyncio.sleep(0.001)
    assert told == [True]
    if files.count >= files._fail_at:
        assert len([each for each in caplog.messages if "No space left" in each]) == 1
        assert len([each for each in caplog.messages if "can be written again" in each]) == 1
    sent.check(tmp_path)


# -- rewriting full segments ----------------------------------------------------------------------


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
    monkeypatch.setattr(upkeep, "SEAL_SECONDS", 0.05)
    monkeypatch.setattr(upkeep, "QUIET_RECORDS", 50)
    monkeypatch.setattr(upkeep, "MOST_UNSEALED", most)
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
    driven.recorder._flush(driven.recorder._lanes[0])
    sent.check(tmp_path)


async def test_a_rewriting_that_was_begun_stands_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "QUIET_RECORDS", 50)
    monkeypatch.setattr(upkeep, "MOST_UNSEALED", 10_000)
    driven = Driven(tmp_path, None, durability="flush", segment_bytes=20_000)
    sent = Sent(driven)
    while not driven.journal.partitions[0].closed:
        sent.frames(100)
        driven.recorder._flush(driven.recorder._lanes[0])
    flow = Flow(sent)
    driven.recorder.upkeep.seal()
    await asyncio.sleep(5 * upkeep.GIVE_WAY_SECONDS)
    assert not list((tmp_path / "journal/p0").glob("*.sealed.index"))
    flow.task.cancel()
    async with asyncio.timeout(30):
        while not list((tmp_path / "journal/p0").glob("*.sealed.index")):
            await asyncio.sleep(0.01)
    driven.recorder._flush(driven.recorder._lanes[0])
    sent.check(tmp_path)


async def test_an_empty_segment_is_never_full(tmp_path: Path) -> None:
    """However small segments may be: one that was just begun is not left for another of the same name."""
    files = CountedFiles(lambda what, where: None)
    driven = Driven(tmp_path, files, durability="flush", segment_bytes=1)
    sent = Sent(driven)
    for _ in range(5):
        sent.frames(3)
        driven.recorder._flush(driven.recorder._lanes[0])
        await asyncio.sleep(0.02)
    names = [each.first_offset for each in driven.journal.partitions[0].closed]
    assert names == sorted(set(names))
    assert len(names) == 6
    sent.check(tmp_path)


async def test_what_came_last_is_written_though_nothing_follows_it(tmp_path: Path) -> None:
    """More than a batch waits for the thread, and then there is silence."""
    files = GatedFiles()
    driven = Driven(tmp_path, files, durability="flush", segment_bytes=64 << 20, flush_bytes=64 << 20)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)
    sent.frames(BATCH_ROWS + MANY)
    files.gate.set()
    async with asyncio.timeout(10):
        while driven.journal.partitions[0].pending:
            await asyncio.sleep(0.001)
    sent.check(tmp_path)
