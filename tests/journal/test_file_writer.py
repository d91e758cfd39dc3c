# ruff: noqa: ASYNC110 - there is nothing to wait for but that it is so
"""Many frames are written in a thread beside the loop: in order, once, within a bound, and never to be
overtaken by a control message."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from driven import Driven, Sent
from making import SPACE, CountedFiles, FailingFiles

from mewstream.journal import file_journal
from mewstream.journal.file_writer import MAX_WAITING
from mewstream.journal.files import Files
from mewstream.journal.partition import BATCH_ROWS, COMPRESSED_ROWS

MANY = 2 * COMPRESSED_ROWS


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


async def _written_by_the_thread(files: GatedFiles) -> None:
    async with asyncio.timeout(10):
        while not files.waiting.is_set():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("durability", ["flush", "fsync"])
async def test_many_frames_do_not_stop_the_loop(memory: Path, durability: str) -> None:
    files = GatedFiles()
    driven = Driven(memory, files, durability=durability, segment_bytes=1 << 20)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)  # the loop goes on while the thread cannot
    sent.frames(10)
    files.gate.set()
    partition = driven.journal.partitions[0]
    async with asyncio.timeout(10):
        while partition.pending or partition.unsynced:
            await asyncio.sleep(0.001)
    sent.check(memory)


@pytest.mark.parametrize("durability", ["flush", "fsync"])
async def test_a_control_message_waits_for_the_frames_before_it(memory: Path, durability: str) -> None:
    files = GatedFiles()
    driven = Driven(memory, files, durability=durability, segment_bytes=1 << 20)
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
    sent.check(memory)


async def test_what_is_read_back_has_the_frames_that_are_being_written(memory: Path) -> None:
    files = GatedFiles()
    driven = Driven(memory, files, durability="flush", segment_bytes=1 << 20)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)
    opener = threading.Timer(0.05, files.gate.set)
    opener.start()
    history = driven.recorder.read(SPACE, 0)
    assert history is not None
    assert [entry.record for entry in history] == sent.script.records
    opener.join()
    sent.check(memory)


async def test_what_waits_for_a_slow_disk_is_bounded(memory: Path) -> None:
    """Beyond it the loop waits too, and with it whoever writes: memory does not grow."""
    files = GatedFiles()
    flush_bytes = 200 * MANY
    driven = Driven(memory, files, durability="flush", segment_bytes=64 << 20, flush_bytes=flush_bytes)
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
    assert flush_bytes < most < (MAX_WAITING + 1) * flush_bytes
    driven.flush()
    sent.check(memory)


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("durability", ["flush", "fsync"])
async def test_a_write_in_the_thread_fails(
    memory: Path, durability: str, at: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, what was to be written still waits, and goes first when the disk is well again."""
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.02)
    files = FailingFiles(at=10**9, error=errno.ENOSPC)
    driven = Driven(memory, files, durability=durability, segment_bytes=1 << 20)
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
    sent.check(memory)


async def test_an_empty_segment_is_never_full(memory: Path) -> None:
    """However small segments may be: one that was just begun is not left for another of the same name."""
    files = CountedFiles(lambda what, where: None)
    driven = Driven(memory, files, durability="flush", segment_bytes=1)
    sent = Sent(driven)
    for _ in range(5):
        sent.frames(3)
        driven.flush()
        await asyncio.sleep(0.02)
    names = [each.first_offset for each in driven.journal.partitions[0].closed]
    assert names == sorted(set(names))
    assert len(names) == 6
    sent.check(memory)


async def test_a_few_frames_do_not_wait_for_the_thread(memory: Path) -> None:
    """They are due while it is still at work on the many before them, and the loop goes on."""
    files = GatedFiles()
    driven = Driven(memory, files, durability="flush", segment_bytes=64 << 20)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)
    sent.frames(10)
    await asyncio.sleep(20 * driven.settings.flush_interval)
    assert not files.gate.is_set()
    assert driven.journal.partitions[0].pending == MANY + 10
    files.gate.set()
    async with asyncio.timeout(10):
        while driven.journal.partitions[0].pending:
            await asyncio.sleep(0.001)
    sent.check(memory)


async def test_a_mistake_of_whoever_waited_is_no_failure_of_the_journal(memory: Path) -> None:
    driven = Driven(memory, None, durability="flush", segment_bytes=1 << 20)
    sent = Sent(driven)

    def mistaken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sent.control(mistaken)
    assert not driven.recorder.failing
    sent.check(memory)


async def test_what_is_synced_is_committed_and_nothing_else(memory: Path) -> None:
    driven = Driven(memory, None, durability="fsync", segment_bytes=1 << 20, flush_interval=60)
    sent = Sent(driven)
    [writer] = driven.running.writers
    async with asyncio.timeout(10):
        while writer.committed_offset < len(sent.script.records):
            await asyncio.sleep(0.001)
    sent.frames(5)
    driven.journal.partitions[0].flush()
    assert (writer.committed_offset, writer.end_offset) == (len(sent.script.records) - 5, len(sent.script.records))
    told: list[int] = []
    driven.recorder.commit(SPACE, lambda: told.append(writer.committed_offset))
    async with asyncio.timeout(10):
        while not told:
            await asyncio.sleep(0.001)
    assert told == [len(sent.script.records)]
    sent.check(memory)


async def test_what_came_last_is_written_though_nothing_follows_it(memory: Path) -> None:
    """More than a batch waits for the thread, and then there is silence."""
    files = GatedFiles()
    driven = Driven(memory, files, durability="flush", segment_bytes=64 << 20, flush_bytes=64 << 20)
    sent = Sent(driven)
    sent.frames(MANY)
    await _written_by_the_thread(files)
    sent.frames(BATCH_ROWS + MANY)
    files.gate.set()
    async with asyncio.timeout(10):
        while driven.journal.partitions[0].pending:
            await asyncio.sleep(0.001)
    sent.check(memory)
