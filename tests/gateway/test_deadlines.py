"""The timer of a space, by a clock of our own."""

from __future__ import annotations

import math

import pytest
from doubles import ManualLoop

from mewstream.gateway.deadlines import LONGEST_SLEEP, RETRY_SECONDS, Deadline
from mewstream.gateway.recorder import Recorder
from mewstream.protocol.times import SECOND


class Scene:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.woken: list[float] = []
        self.recorder = Recorder()
        self.deadline = Deadline(
            self.loop.as_loop, self.now, lambda: self.woken.append(self.loop.now - 1000), self.recorder
        )

    def now(self) -> int:
        return round(self.loop.now * SECOND)

    def after(self, seconds: float) -> int:
        return self.now() + round(seconds * SECOND)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_it_wakes_once_at_its_time(scene: Scene) -> None:
    due = scene.after(5)
    scene.deadline.set(due)
    scene.deadline.set(due)
    assert scene.deadline.due == due
    scene.loop.advance(60)
    assert scene.woken == [5]


def test_an_earlier_one_replaces_it(scene: Scene) -> None:
    scene.deadline.set(scene.after(5))
    scene.deadline.set(scene.after(2))
    scene.loop.advance(60)
    assert scene.woken == [2]


def test_one_that_has_passed_wakes_at_once(scene: Scene) -> None:
    scene.deadline.set(scene.after(-3))
    scene.loop.advance()
    assert scene.woken == [0]


@pytest.mark.parametrize("end", ["none", "cancel"])
def test_nothing_wakes_a_space_without_one(scene: Scene, end: str) -> None:
    scene.deadline.set(scene.after(5))
    if end == "none":
        scene.deadline.set(None)
        assert scene.deadline.due == math.inf
    else:
        scene.deadline.cancel()
    scene.loop.advance(60)
    assert scene.woken == []


def test_one_that_is_years_away_is_looked_at_again_meanwhile(scene: Scene) -> None:
    due = scene.after(1e8)
    scene.deadline.set(due)
    scene.loop.advance(LONGEST_SLEEP)
    assert scene.woken == [LONGEST_SLEEP]
    scene.deadline.set(due)
    scene.loop.advance(LONGEST_SLEEP)
    assert scene.woken == [LONGEST_SLEEP, 2 * LONGEST_SLEEP]


def test_while_the_journal_fails_it_does_not_spin(scene: Scene) -> None:
    scene.recorder.failing = True
    scene.deadline.set(scene.after(0))
    scene.loop.advance(RETRY_SECONDS / 2)
    assert scene.woken == []
    scene.loop.advance(RETRY_SECONDS)
    assert scene.woken == [RETRY_SECONDS]
