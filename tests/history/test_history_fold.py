"""What the fold of a space says, wherever its log is cut."""

from __future__ import annotations

import random

import pytest
from folding import comparable, fold_all, table_of
from journals import Play, lively
from logs import lively as livelier

from mewstream.history.fold import SpaceHistory
from mewstream.history.reading import by_space
from mewstream.history.state import State, read_state
from mewstream.protocol import kinds
from mewstream.protocol.fold import apply
from mewstream.protocol.state import SpaceState


def cuts(length: int, number: int, seed: int) -> list[int]:
    return sorted(random.Random(seed).sample(range(1, length), number))


def left(carried: bytes | None) -> State:
    """Where lists have no order of their own, in one that can be compared."""
    state = read_state(carried)
    for name in ("rights", "handoffs", "windows", "gaps"):
        getattr(state, name).sort(key=repr)
    return state


@pytest.mark.parametrize("seed", range(6))
def test_batches_of_any_size_give_the_same_rows(seed: int) -> None:
    play = lively(300, seed=seed)
    play.restart(after=2)
    for _ in range(40):
        play.step()
    whole = fold_all(play)
    for number in (1, 7, len(play.records) - 1):
        pieces = fold_all(play, cuts=cuts(len(play.records), number, seed))
        assert comparable(pieces.rows) == comparable(whole.rows)
        assert pieces.sums == whole.sums
        assert left(pieces.carried.history) == left(whole.carried.history)


@pytest.mark.parametrize("seed", range(4))
def test_rights_and_presence_are_those_of_the_gateway_at_every_record(seed: int) -> None:
    play = lively(300, seed=seed)
    rows = fold_all(play, cuts=cuts(len(play.records), 9, seed)).rows
    state = SpaceState(play.space)
    for record in play.records:
        apply(state, record)
        seq = state.seq
        held = {
            (row["stream_id"], row["right"], row["participant"])
            for row in rows["authorizations"]
            if row["from_seq"] <= seq and (row["until_seq"] is None or seq < row["until_seq"])
        }
        expected: set[tuple[str, str, str | None]] = set()
        for name, stream in state.streams.items():
            readers = [None] if stream.readers is None else stream.readers
            expected |= {(name, "own", stream.owner)}
            expected |= {(name, "write", who) for who in stream.writers}
            expected |= {(name, "read", who) for who in readers}
        assert held == expected
        here = {
            row["participant"]
            for row in rows["sessions"]
            if row["joined_seq"] <= seq and (row["left_seq"] is None or seq < row["left_seq"])
        }
        assert here == set(state.participants)


def test_a_space_that_is_over_leaves_names_and_where_it_ended() -> None:
    short, long = Play("over", begin=True), Play("over", begin=True)
    for play, streams in ((short, 1), (long, 30)):
        for _ in range(streams):
            play.send("ann", kinds.STREAM_CLOSE, stream_id=play.open("ann", desired_id="main"))
        for who in ("ann", "bob", "cy", "dee"):
            if who in play.state.participants:
                play.leave(who)
        play.wait(3700)
    sizes = [len(fold_all(play).carried.history or b"") for play in (short, long)]
    assert sizes[0] < 300
    assert sizes[1] < sizes[0] + 100


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_found_in_lively_logs(seed: int) -> None:
    life = livelier(400, seed)
    made = fold_all(life, cuts=cuts(len(life.records), seed % 5, seed))
    assert made.findings == []
    assert made.sums["frames_judged"] == made.sums["frames"] > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40, 540))
def test_nothing_is_found_in_five_hundred_lively_logs(seed: int) -> None:
    life = livelier(400 + seed % 7 * 100, seed)
    assert fold_all(life, cuts=cuts(len(life.records), seed % 9, seed)).findings == []


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_found_in_logs_that_begin_in_the_middle(seed: int) -> None:
    life = livelier(500, seed)
    made = fold_all(life, records=[each for each in life.records if each.seq > 150])
    assert made.findings == []
    assert made.sums["frames_judged"] + made.sums["frames_not_judged"] == made.sums["frames"]


def test_what_cannot_be_read_has_no_effect() -> None:
    play = lively(50, seed=1)
    [space] = by_space(table_of(play.space, play.records))
    history = SpaceHistory(play.space, None, 1)
    for record in space.control:
        history.see(record._replace(detail='{"participant": 7, "formats": "none"}'))
    history.place(space.frames, space.offsets)
    rows = history.rows()
    assert not rows["sessions"] and not rows["streams"] and not rows["authorizations"]
