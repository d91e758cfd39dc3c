"""The thread for work that can wait."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest

from mewstream.journal import background
from mewstream.journal.background import BackgroundThread


async def test_tasks_run_one_after_another_at_a_lower_priority() -> None:
    thread = BackgroundThread("quiet", asyncio.get_running_loop())
    seen: list[tuple[int, str, int]] = []

    def task(number: int) -> None:
        priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        seen.append((number, threading.current_thread().name.split("_")[0], priority))

    for number in range(5):
        thread.run("count", lambda number=number: task(number))  # type: ignore[misc]
    thread.close()
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert [number for number, _, _ in seen] == [0, 1, 2, 3, 4]
    assert {name for _, name, _ in seen} == {"quiet"}
    assert all(priority > own for _, _, priority in seen) or sys.platform != "linux"


async def test_a_failure_is_reported_and_offered_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "RETRY_SECONDS", 0.001)
    thread = BackgroundThread("failing", asyncio.get_running_loop())
    again = asyncio.Event()

    def fail() -> None:
        raise ValueError

    thread.run("do it", fail, retry=again.set)
    async with asyncio.timeout(10):
        await again.wait()
    thread.close()
    assert "could not do it: ValueError()" in caplog.messages


async def test_a_held_thread_does_nothing_and_offers_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "RETRY_SECONDS", 0.001)
    thread = BackgroundThread("held", asyncio.get_running_loop())
    thread.is_held = True
    done: list[str] = []
    again = asyncio.Event()
    thread.run("do it", lambda: done.append("done"), retry=again.set)
    async with asyncio.timeout(10):
        await again.wait()
    assert not done
    thread.is_held = False
    thread.run("do it", lambda: done.append("done"))
    thread.close()
    assert done == ["done"]
