"""The earliest of many timers, whatever is set, set again and taken away."""

from __future__ import annotations

import copy
import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from mewstream.protocol.timers import Timers

names = st.tuples(st.sampled_from(["expire", "start"]), st.sampled_from("abc"), st.sampled_from(["", "x"]))


@given(st.lists(st.tuples(names, st.one_of(st.none(), st.integers(0, 9)))))
@settings(max_examples=300, deadline=None)
def test_the_earliest_is_the_least_of_all(steps: list[tuple[tuple[str, str, str], int | None]]) -> None:
    timers, plain = Timers(), dict[tuple[str, str, str], int]()
    for timer, due in steps:
        if due is None:
            timers.pop(timer, None)
            plain.pop(timer, None)
        else:
            timers[timer] = plain[timer] = due
        assert timers == plain
        assert timers.earliest() == min(((due, timer) for timer, due in plain.items()), default=None)
        for again in (Timers(timers), copy.copy(timers), copy.deepcopy(timers), pickle.loads(pickle.dumps(timers))):
            assert (again, again.earliest()) == (timers, timers.earliest())


def test_what_is_set_again_and_again_takes_no_room() -> None:
    timers = Timers()
    for due in range(10_000):
        timers["expire", "stream-1", "ann"] = due
    assert timers.earliest() == (9_999, ("expire", "stream-1", "ann"))
    assert len(timers._heap) < 100
