"""Writers wait for slow readers, and many slow readers are another matter than a few."""

from __future__ import annotations

from doubles import FakeMember, ManualLoop

from mewstream.gateway.back_pressure import WINDOW_SECONDS, BackPressure, RecentCount
from mewstream.gateway.membership import Membership
from mewstream.protocol.state import SpaceState


class Scene:
    def __init__(self, count: int) -> None:
        self.loop = ManualLoop()
        self.members = [FakeMember(f"p{number}") for number in range(count)]
        membership = Membership(SpaceState("demo"))
        for each in self.members:
            membership.add(each)
        self.pressure = BackPressure(self.loop.as_loop, membership)

    def are_many(self, slow: int) -> bool:
        for each in self.members[:slow]:
            self.pressure.fell_behind(each)
        return self.pressure.are_many_behind()


def test_writers_that_are_connected_are_held() -> None:
    scene = Scene(3)
    assert scene.pressure.hold_writers("slow", {"p0", "p2", "absent"})
    assert [each.held for each in scene.members] == [{"slow"}, set(), {"slow"}]


def test_what_counts_as_many() -> None:
    assert not Scene(10).are_many(2)
    assert Scene(10).are_many(3), "a quarter, and more than a few"
    assert Scene(3).are_many(2), "most of the space"
    assert not Scene(100).are_many(24) and Scene(100).are_many(25)


def test_they_count_only_for_a_while() -> None:
    scene = Scene(4)
    assert scene.are_many(4)
    scene.loop.advance(WINDOW_SECONDS * 1.5)
    assert not scene.pressure.are_many_behind()


def test_one_that_falls_behind_again_counts_once_and_anew() -> None:
    count = RecentCount(1.0)
    for now in (0.0, 0.5, 0.9):
        count.add("a", now)
    count.add("b", 0.9)
    assert count.count(0.9) == 2
    assert count.count(1.8) == 2, "the last time counts"
    assert count.count(2.0) == 0
