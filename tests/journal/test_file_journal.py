# ruff: noqa: ASYNC110 - there is nothing to wait for but that it is so
"""The journal on files as a gateway runs it: opening, failing, recovering, and the watch over its directory."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from driven import Driven, Sent
from making import QuickFiles

from mewstream.journal import file_journal
from mewstream.journal.errors import JournalInUse
from mewstream.journal.opening import open_journal
from mewstream.journal.settings import JournalSettings


def test_a_journal_that_was_not_started_is_closed(tmp_path: Path) -> None:
    settings = JournalSettings(partitions=2)
    journal = open_journal(tmp_path / "data", settings)
    assert journal.recover() == {}
    with pytest.raises(JournalInUse):
        open_journal(tmp_path / "data", settings)
    journal.close()
    open_journal(tmp_path / "data", settings).close()


async def test_every_space_has_one_writer_for_good(tmp_path: Path) -> None:
    driven = Driven(tmp_path, QuickFiles(), partitions=3)
    spaces = [f"space-{number}" for number in range(50)]
    assert {driven.running.writer_of(space) for space in spaces} == set(driven.running.writers)
    assert all(driven.running.writer_of(space).partition is driven.running.local.partition(space) for space in spaces)
    driven.die()


async def test_a_journal_whose_directory_is_displaced_has_not_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The watch sees it while the last attempt to write is under way, and that attempt succeeds."""
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.005)
    monkeypatch.setattr(file_journal, "WATCH_SECONDS", 60.0)
    driven = Driven(tmp_path, QuickFiles(), durability="flush")
    sent = Sent(driven)
    sent.frames(3)
    begun, gate = threading.Event(), threading.Event()

    def gated() -> None:
        begun.set()
        assert gate.wait(30)

    monkeypatch.setattr(driven.running, "_sync_all", gated)
    driven.running._failed(OSError(errno.EIO, "broken"))
    async with asyncio.timeout(10):
        while not begun.is_set():
            await asyncio.sleep(0.001)
        driven.running._watched("/data/lock: No such file or directory")
        gate.set()
        await asyncio.sleep(0.05)
        assert driven.recorder.failing
        driven.running._watched(None)
        while driven.recorder.failing:
            await asyncio.sleep(0.001)
    assert len([each for each in caplog.messages if "can be written again" in each]) == 1
    sent.check(tmp_path)


async def test_snapshots_and_sealing_leave_a_replaced_directory_alone(tmp_path: Path) -> None:
    driven = Driven(tmp_path, QuickFiles(), durability="flush", segment_bytes=1 << 20)
    sent = Sent(driven)
    driven.running._watched("/data/lock is another file now")
    driven.states[sent.script.state.id] = sent.script.state
    driven.running.snapshots._take(0)
    driven.running.local.partitions[0].roll()
    driven.running.sealer.seal()
    driven.running._stop_background_work()
    files = [each.name for each in (tmp_path / "journal/p0").iterdir()]
    assert not [name for name in files if "snapshot" in name or "sealed" in name]
    driven.die()


async def test_a_sync_that_ends_while_the_journal_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The event loop is told of it only after the close, which has synced everything."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    driven = Driven(tmp_path, QuickFiles(), durability="fsync")
    sent = Sent(driven)
    sent.frames(3)
    writer = driven.running.writers[0]
    writer.write_waiting()
    writer._has_written()
    assert writer.is_syncing
    driven.running.close()
    await asyncio.sleep(0.05)
    assert complaints == [] and not caplog.records
