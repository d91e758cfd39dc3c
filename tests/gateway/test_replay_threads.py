"""Threads that read the journal for participants."""

from __future__ import annotations

import asyncio
import threading

from mewstream.gateway.replay_threads import Lane


async def test_one_read_of_each_at_a_time_and_so_many_of_all() -> None:
    lane = Lane(asyncio.get_running_loop(), 2, "test")
    lock = threading.Lock()
    running: dict[str, int] = {}
    most: dict[str, int] = {}
    order: list[tuple[str, int]] = []
    gate = threading.Semaphore(0)

    def task(who: str, number: int) -> int:
        with lock:
            running[who] = running.get(who, 0) + 1
            most[who] = max(most.get(who, 0), running[who])
            most["all"] = max(most.get("all", 0), sum(running.values()))
            order.append((who, number))
        gate.acquire()
        with lock:
            running[who] -= 1
        if number == 3:
            raise RuntimeError("one that fails")
        return number

    greedy = [asyncio.create_task(lane.run(("s", "eve"), lambda n=n: task("eve", n))) for n in range(8)]  # type: ignore[misc]
    await asyncio.sleep(0.05)
    modest = [asyncio.create_task(lane.run(("s", who), lambda w=who: task(w, 0))) for who in ("ann", "bob")]  # type: ignore[misc]
    await asyncio.sleep(0.05)
    greedy[6].cancel()
    for _ in range(20):
        gate.release()
    results = await asyncio.gather(*greedy, *modest, return_exceptions=True)
    assert [type(each).__name__ if isinstance(each, BaseException) else each for each in results] == [
        *(0, 1, 2, "RuntimeError", 4, 5, "CancelledError", 7),
        *(0, 0),
    ]
    assert most == {"eve": 1, "ann": 1, "bob": 1, "all": 2}
    assert {who for who, _ in order[:3]} == {"eve", "ann", "bob"}, "others wait behind all of one's"
    assert [number for who, number in order if who == "eve"] == [0, 1, 2, 3, 4, 5, 7]
    assert lane._turns == {}
    lane.close()
