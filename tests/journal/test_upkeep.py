# ruff: noqa: ASYNC110 - there is nothing to wait for but that it is so
"""When snapshots are taken and saved, and when the journal is pruned: no files, and no writer but its offsets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mewstream.journal import upkeep
from mewstream.journal.background import BackgroundThread
from mewstream.journal.upkeep import PruneSchedule, SnapshotSchedule
from mewstream.protocol.state import SpaceState


class MemoryStore:
    def __init__(self, writers: list[Any], offsets: dict[int, int]) -> None:
        self._writers = writers
        self._offsets = offsets
        self.saved: list[tuple[int, int, int]] = []
        self.error: Exception | None = None

    def snapshot_offsets(self) -> Mapping[int, int]:
        return self._offsets

    def prepare_snapshot(self, partition: int, states: Mapping[str, SpaceState]) -> Callable[[], None]:
        if self.error is not None:
            raise self.error
        offset = self._writers[partition].end_offset
        return lambda: self.saved.append((partition, offset, states["demo"].seq))


class Scheduled:
    """A schedule of two partitions, and what it goes by."""

    def __init__(self, thread: BackgroundThread, offsets: dict[int, int] | None = None) -> None:
        self.writers = [SimpleNamespace(committed_offset=0, end_offset=0) for _ in range(2)]
        self.state = SpaceState("demo")
        self.store = MemoryStore(self.writers, offsets or {0: 0, 1: 0})
        self.schedule = SnapshotSchedule(
            self.store,
            self.writers,  # type: ignore[arg-type]
            lambda: {"demo": self.state},
            thread,
            every=10,
        )

    def append(self, count: int, partition: int = 0) -> None:
        self.writers[partition].end_offset += count
        self.state.seq += count

    def commit(self, offset: int, partition: int = 0) -> None:
        self.writers[partition].committed_offset = offset
        self.schedule.progressed(partition)


@pytest.fixture
async def thread() -> AsyncIterator[BackgroundThread]:
    made = BackgroundThread("upkeep", asyncio.get_running_loop())
    yield made
    made.close()


async def settle(thread: BackgroundThread) -> None:
    """Until the loop and the thread have done what they were given."""
    await asyncio.sleep(0)
    await asyncio.wrap_future(thread.run("wait", lambda: None))


async def test_a_snapshot_is_taken_after_every_ten_records(thread: BackgroundThread) -> None:
    scheduled = Scheduled(thread)
    for offset in range(1, 31):
        scheduled.append(1)
        scheduled.commit(offset)
        await settle(thread)
    assert scheduled.store.saved == [(0, 10, 10), (0, 20, 20), (0, 30, 30)]


async def test_a_snapshot_waits_until_its_records_are_committed(thread: BackgroundThread) -> None:
    scheduled = Scheduled(thread)
    scheduled.append(14)
    scheduled.commit(10)
    await settle(thread)
    assert not scheduled.store.saved, "it has the state of 14 records, of which 10 are committed"
    scheduled.commit(13)
    await settle(thread)
    assert not scheduled.store.saved
    scheduled.commit(14)
    await settle(thread)
    assert scheduled.store.saved == [(0, 14, 14)]


async def test_a_snapshot_is_not_taken_between_appending_and_applying(thread: BackgroundThread) -> None:
    scheduled = Scheduled(thread)
    scheduled.writers[0].end_offset = 10
    scheduled.commit(10)  # called from within an append: the state does not have the record yet
    scheduled.state.seq = 10
    await settle(thread)
    assert scheduled.store.saved == [(0, 10, 10)]


async def test_partitions_are_counted_apart_and_from_their_newest_snapshots(thread: BackgroundThread) -> None:
    scheduled = Scheduled(thread, {0: 95, 1: 40})
    scheduled.append(100, partition=0)
    scheduled.append(50, partition=1)
    scheduled.commit(100, partition=0)
    scheduled.commit(50, partition=1)
    await settle(thread)
    assert [each[:2] for each in scheduled.store.saved] == [(1, 50)]


async def test_a_state_that_cannot_be_encoded_is_reported_and_tried_again_later(
    thread: BackgroundThread, caplog: pytest.LogCaptureFixture
) -> None:
    scheduled = Scheduled(thread)
    scheduled.store.error = ValueError("poison")
    scheduled.append(10)
    scheduled.commit(10)
    await settle(thread)
    assert "could not take a snapshot" in caplog.messages
    scheduled.store.error = None
    scheduled.append(10)
    scheduled.commit(20)
    await settle(thread)
    assert scheduled.store.saved == [(0, 20, 20)]


async def test_the_last_snapshot_is_saved_where_something_is_new_or_none_was_ever_saved(
    thread: BackgroundThread,
) -> None:
    scheduled = Scheduled(thread, {0: 20, 1: 0})
    scheduled.writers[0].committed_offset = scheduled.writers[0].end_offset = 20
    scheduled.schedule.save_last(0)
    assert not scheduled.store.saved
    scheduled.schedule.save_last(1)
    assert scheduled.store.saved == [(1, 0, 0)]
    scheduled.writers[0].committed_offset = scheduled.writers[0].end_offset = 21
    scheduled.schedule.save_last(0)
    assert scheduled.store.saved[1:] == [(0, 21, 0)]


async def test_nothing_is_taken_after_the_end(thread: BackgroundThread) -> None:
    scheduled = Scheduled(thread)
    scheduled.append(10)
    scheduled.commit(10)
    scheduled.schedule.close()
    await settle(thread)
    assert not scheduled.store.saved


async def test_pruning_goes_on_in_the_thread_until_the_end(
    thread: BackgroundThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "PRUNE_SECONDS", 0.005)
    calls = 0

    class Prunable:
        def prune(self) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError("the first fails")

    schedule = PruneSchedule(Prunable(), thread)
    async with asyncio.timeout(10):
        while calls < 3:
            await asyncio.sleep(0.001)
    schedule.close()
    await settle(thread)
    made = calls
    await asyncio.sleep(0.03)
    assert calls == made
    assert "could not prune: the first fails" in caplog.messages
