# ruff: noqa: ASYNC110 - there is nothing to wait for but that it is so
"""Group commit over a journal in memory, whose progress and failures the test decides: no disk, no threads."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence

import pytest

from mewstream.gateway.metrics import Metrics
from mewstream.gateway.recorder import JournalRecorder, Recorder
from mewstream.journal.errors import JournalDisplaced
from mewstream.journal.interface import Entry, Listener, States, Writer
from mewstream.journal.settings import JournalSettings
from mewstream.protocol.records import FrameBlock, Left, Record
from mewstream.protocol.state import SpaceState


class MemoryWriter:
    """Everything that is flushed is written at once, and committed when the test says so."""

    def __init__(self, batch: int = 1000, epoch: str = "e-0") -> None:
        self.epoch = epoch
        self.waiting: list[tuple[str, Record | FrameBlock]] = []
        self.written: list[tuple[str, Record | FrameBlock]] = []
        self.committed_offset = 0
        self.flushes: list[bool] = []
        self.is_busy = False
        self._batch = batch

    @property
    def end_offset(self) -> int:
        return len(self.written) + len(self.waiting)

    @property
    def has_waiting(self) -> bool:
        return bool(self.waiting)

    @property
    def must_flush(self) -> bool:
        return len(self.waiting) >= self._batch

    def append(self, space: str, record: Record | FrameBlock) -> int:
        self.waiting.append((space, record))
        return 7

    def flush(self, *, urgent: bool) -> None:
        self.flushes.append(urgent)
        if urgent or not self.is_busy:
            self.written += self.waiting
            self.waiting = []


class MemoryReader:
    def __init__(self) -> None:
        self.on_read: Callable[[int], None] = lambda size: None

    def read(self, space: str, after: int) -> Iterator[Entry]:
        return iter(())

    def seq_before(self, space: str, micros: int) -> int:
        return micros


class MemoryJournal:
    def __init__(self, partitions: int = 1, batch: int = 1000) -> None:
        self.reader = MemoryReader()
        self.memory = [MemoryWriter(batch, f"e-{number}") for number in range(partitions)]
        self.listener: Listener
        self.is_closed = False

    @property
    def writers(self) -> Sequence[Writer]:
        return self.memory

    def writer_of(self, space: str) -> Writer:
        return self.memory[int(space)]

    def recover(self) -> dict[str, SpaceState]:
        return {}

    def start(self, listener: Listener, states: States) -> None:
        self.listener = listener

    def commit(self, partition: int = 0, upto: int | None = None) -> None:
        writer = self.memory[partition]
        writer.committed_offset = len(writer.written) if upto is None else upto
        self.listener.progressed(writer)

    def close(self) -> None:
        for number, writer in enumerate(self.memory):
            writer.flush(urgent=True)
            self.commit(number)
        self.is_closed = True


def recording(journal: MemoryJournal, **settings: object) -> JournalRecorder:
    given = {"flush_interval": 0.001, **settings}
    return JournalRecorder(
        journal,
        JournalSettings(**given),  # type: ignore[arg-type]
        loop=asyncio.get_running_loop(),
        metrics=Metrics(),
        states=dict,
    )


def left(seq: int) -> Left:
    return Left(seq, seq, None, "ann", "disconnected")


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not happened():
            await asyncio.sleep(0.001)


async def test_records_are_flushed_together_after_a_while() -> None:
    journal = MemoryJournal()
    recorder = recording(journal)
    for seq in range(1, 6):
        assert recorder.append("0", left(seq)) == 7
    assert not journal.memory[0].flushes
    await until(lambda: journal.memory[0].written)
    assert journal.memory[0].flushes == [False]
    assert len(journal.memory[0].written) == 5


async def test_a_full_batch_does_not_wait_for_the_interval() -> None:
    journal = MemoryJournal(batch=3)
    recorder = recording(journal, flush_interval=60)
    for seq in range(1, 4):
        recorder.append("0", left(seq))
    assert journal.memory[0].flushes == [False]
    recorder.close()


async def test_a_busy_writer_is_flushed_again_when_it_has_progressed() -> None:
    journal = MemoryJournal(batch=3)
    recorder = recording(journal, flush_interval=60)
    journal.memory[0].is_busy = True
    for seq in range(1, 4):
        recorder.append("0", left(seq))
    assert not journal.memory[0].written
    journal.memory[0].is_busy = False
    journal.commit()
    assert len(journal.memory[0].written) == 3
    recorder.close()


async def test_what_waits_behind_a_busy_writer_is_flushed_though_nothing_follows() -> None:
    journal = MemoryJournal()
    recorder = recording(journal)
    journal.memory[0].is_busy = True
    recorder.append("0", left(1))
    await until(lambda: journal.memory[0].flushes)
    journal.memory[0].is_busy = False
    journal.commit()
    await until(lambda: journal.memory[0].written)


async def test_a_commit_waits_for_its_own_records_and_no_others() -> None:
    journal = MemoryJournal(partitions=2)
    recorder = recording(journal)
    told: list[str] = []
    recorder.append("0", left(1))
    recorder.commit("0", lambda: told.append("first"))
    recorder.append("0", left(2))
    recorder.commit("0", lambda: told.append("second"))
    recorder.append("1", left(1))
    recorder.commit("1", lambda: told.append("other"))
    assert journal.memory[0].flushes == [True, True], "a commit is urgent"
    assert not told
    journal.commit(0, upto=1)
    assert told == ["first"]
    journal.commit(1)
    assert told == ["first", "other"]
    journal.commit(0)
    assert told == ["first", "other", "second"]


async def test_every_partition_has_its_own_epoch() -> None:
    recorder = recording(MemoryJournal(partitions=2))
    assert [recorder.epoch(space) for space in ("1", "0", "1")] == ["e-1", "e-0", "e-1"]


async def test_what_waited_may_record_in_another_partition() -> None:
    journal = MemoryJournal(partitions=2)
    recorder = recording(journal, flush_interval=60)
    journal.listener.failed(OSError(errno.EIO, "broken"))
    recorder.append("0", left(1))
    recorder.commit("0", lambda: recorder.append("1", left(1)) and None)
    journal.memory[0].committed_offset = 1
    journal.listener.recovered()
    assert journal.memory[1].end_offset == 1
    recorder.close()


async def test_a_commit_of_nothing_new_does_not_wait() -> None:
    journal = MemoryJournal()
    recorder = recording(journal)
    told: list[int] = []
    recorder.append("0", left(1))
    recorder.commit("0", lambda: told.append(1))
    journal.commit()
    recorder.commit("0", lambda: told.append(2))
    assert told == [1, 2]


async def test_without_durability_nothing_waits() -> None:
    journal = MemoryJournal()
    recorder = recording(journal, durability="none", flush_interval=60)
    told: list[int] = []
    recorder.append("0", left(1))
    recorder.commit("0", lambda: told.append(1))
    assert told == [1]
    assert not journal.memory[0].flushes
    recorder.close()


async def test_history_includes_what_was_appended() -> None:
    journal = MemoryJournal()
    recorder = recording(journal, flush_interval=60)
    recorder.append("0", left(1))
    assert list(recorder.read("0", 0) or ()) == []
    assert journal.memory[0].flushes == [True]
    assert recorder.seq_before("0", 5) == 5


async def test_while_the_journal_fails_records_wait(caplog: pytest.LogCaptureFixture) -> None:
    journal = MemoryJournal(batch=2)
    recorder = recording(journal)
    told: list[int] = []
    again: list[bool] = []
    recorder.on_recovery(lambda: again.append(recorder.failing))
    journal.listener.failed(OSError(errno.ENOSPC, "No space left on device"))
    journal.listener.failed(OSError(errno.ENOSPC, "No space left on device"))
    assert recorder.failing
    for seq in range(1, 5):
        recorder.append("0", left(seq))
        recorder.commit("0", lambda seq=seq: told.append(seq))  # type: ignore[misc]
    await asyncio.sleep(0.02)
    assert not journal.memory[0].flushes
    assert not told
    journal.listener.recovered()
    assert not recorder.failing
    assert journal.memory[0].flushes == [True]
    assert again == [False]
    journal.commit()
    assert told == [1, 2, 3, 4]
    assert [each.split(":")[0] for each in caplog.messages] == [
        "the journal cannot be written (No space left on device)",
        "the journal can be written again",
    ]


async def test_nobody_is_told_of_a_recovery_that_fails_at_once() -> None:
    journal = MemoryJournal()
    recorder = recording(journal)
    again: list[str] = []

    def fail() -> None:
        again.append("failed")
        journal.listener.failed(OSError(errno.EIO, "broken"))

    recorder.on_recovery(fail)
    recorder.on_recovery(lambda: again.append("never"))
    journal.listener.failed(OSError(errno.EIO, "broken"))
    journal.listener.recovered()
    assert again == ["failed"]


async def test_a_displaced_directory_is_reported_even_if_the_journal_fails_already(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = MemoryJournal()
    recorder = recording(journal)
    journal.listener.failed(OSError(errno.EIO, "broken"))
    journal.listener.failed(JournalDisplaced("/data/lock: No such file or directory"))
    assert recorder.failing
    assert [each for each in caplog.messages if "/data/lock" in each and "Put the same directory back" in each]


async def test_closing_commits_what_waits() -> None:
    journal = MemoryJournal()
    recorder = recording(journal, flush_interval=60)
    told: list[int] = []
    journal.memory[0].is_busy = True
    recorder.append("0", left(1))
    recorder.commit("0", lambda: told.append(1))
    recorder.append("0", left(2))
    recorder.close()
    assert told == [1]
    assert journal.is_closed
    assert len(journal.memory[0].written) == 2
    assert recorder.append("0", left(3)) == 0
    recorder.commit("0", lambda: told.append(2))
    assert told == [1, 2]
    assert len(journal.memory[0].written) == 2


def test_without_a_journal_nothing_is_kept_and_nothing_waits() -> None:
    recorder = Recorder()
    told: list[int] = []
    assert recorder.append("0", left(1)) == 0
    recorder.commit("0", lambda: told.append(1))
    assert told == [1]
    assert recorder.read("0", 0) is None
