"""Raw frames that came together are judged once: with the same outcome as one by one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from harness import Space

from mewstream.journal.memory import RecentRecords
from mewstream.journal.rows import Rows
from mewstream.journal.schema import decode
from mewstream.protocol import commands, snapshot
from mewstream.protocol.decide import Decision, decide
from mewstream.protocol.fold import apply
from mewstream.protocol.records import Frame, FrameBlock, Record, Refused, WriteRevoked
from mewstream.protocol.state import SpaceState

DATA = [b"%d" % number for number in range(50)]
Written = Record | FrameBlock


def carried_out(state: SpaceState, now: int, sender: str, stream: str, data: list[bytes]) -> list[Written]:
    """What is written for frames that came together."""
    written: list[Written] = []
    undecided: Sequence[bytes] = data
    while undecided:
        decision = decide(state, now, commands.SendFrames(sender, stream, undecided, 1))
        assert decision.written and len(decision.undecided) < len(undecided)
        for each in decision.written:
            apply(state, each)
        written += decision.written
        undecided = decision.undecided
    return written


def one_by_one(state: SpaceState, now: int, sender: str, stream: str, data: list[bytes]) -> list[Record]:
    written = [each for frame in data for each in carried_out(state, now, sender, stream, [frame])]
    return Decision(written).records


def check_the_same(space: Space, sender: str, stream: str, data: list[bytes] = DATA) -> list[Written]:
    """The records and the state are the same, whether the frames came together or each by itself."""
    singly, together = copy.deepcopy(space.state), copy.deepcopy(space.state)
    written = carried_out(together, space.now, sender, stream, data)
    assert Decision(written).records == one_by_one(singly, space.now, sender, stream, data)
    assert snapshot.dump(together) == snapshot.dump(singly)
    return written


@pytest.mark.parametrize("fields", [{}, {"target": ["bob"]}, {"formats": [{"id": "words"}]}, {"alias": "none"}])
def test_frames_that_came_together_are_one_block(fields: dict[str, object]) -> None:
    space = Space("alice", "bob")
    stream = space.open("alice", **fields)
    space.frame("alice", stream, b"before")
    [block] = check_the_same(space, "alice", stream)
    assert isinstance(block, FrameBlock) and block.data == DATA


class TestWhereTheOutcomeMayDiffer:
    """From one frame to the next: then fewer are judged together."""

    def test_a_stranger_is_refused_for_each_frame(self) -> None:
        space = Space("alice", "bob")
        written = check_the_same(space, "bob", space.open("alice"))
        assert [type(each) for each in written] == [Refused] * len(DATA)

    def test_a_stream_that_does_not_exist(self) -> None:
        written = check_the_same(Space("alice"), "alice", "stream-9")
        assert [type(each) for each in written] == [Refused] * len(DATA)

    def test_the_last_frame_that_a_right_allows_ends_the_block(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice")
        space.grant("alice", stream, "bob", conditions={"max_frames": 3})
        block, revoked, *others = check_the_same(space, "bob", stream)
        assert isinstance(block, FrameBlock) and len(block) == 3
        assert isinstance(revoked, WriteRevoked) and revoked.cause_seq == block.last_seq
        assert [type(each) for each in others] == [Refused] * (len(DATA) - 3)

    def test_fewer_frames_than_a_right_allows(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice")
        space.grant("alice", stream, "bob", conditions={"max_frames": len(DATA) + 1})
        [block] = check_the_same(space, "bob", stream)
        assert isinstance(block, FrameBlock) and len(block) == len(DATA)

    def test_several_formats(self) -> None:
        space = Space("alice")
        written = check_the_same(space, "alice", space.open("alice", formats=[{"id": "a"}, {"id": "b"}]))
        assert [type(each) for each in written] == [Refused] * len(DATA)

    def test_content_that_is_checked(self) -> None:
        space = Space("alice")
        formats = [{"id": "number", "schema": {"type": "number"}}]
        stream = space.open("alice", formats=formats, validate="enforce")
        written = check_the_same(space, "alice", stream, [b"1", b"two", b"3"])
        assert [type(each) for each in written] == [FrameBlock, Refused, FrameBlock]

    def test_the_paused(self) -> None:
        space = Space("alice", "admin")
        stream = space.open("alice")
        space.send("admin", "participant/pause", to=["alice"])
        written = check_the_same(space, "alice", stream)
        assert [type(each) for each in written] == [Refused] * len(DATA)


@pytest.mark.parametrize("count", [1, 31, 32, 50, 9000])
def test_a_block_becomes_the_rows_of_its_frames(count: int) -> None:
    """Beside other records, whatever its length."""
    block = FrameBlock(
        8, 1000, "stream-1", "alice", 3, 2, 5, [b"%d" % number for number in range(count)], ("bob",), "words"
    )
    before = Frame(7, 999, None, "stream-1", "bob", 2, 1, 5, b"before")
    after = Frame(8 + count, 1001, None, "stream-1", "bob", 3 + count, 1, 5, b"after")
    rows = Rows()
    rows.append("demo", "e-1", before)
    rows.append("demo", "e-1", block)
    rows.append("demo", "e-1", after)
    assert rows.count == count + 2
    batch = rows.encode(100)
    batch.validate(full=True)
    entries = list(decode(batch))
    assert [entry.record for entry in entries] == [before, *block.frames(), after]
    assert [entry.offset for entry in entries] == list(range(100, 102 + count))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"seq": 90},
        {"stream_id": "stream-2"},
        {"sender": "bob"},
        {"stream_seq": 80},
        {"opcode": 1},
        {"recipients": 6},
        {"readers": ("bob", "cy")},
        {"format_id": None},
    ],
    ids=str,
)
def test_blocks_that_follow_one_another(changed: dict[str, Any]) -> None:
    """They become one run of rows where they may, and whatever differs is kept apart."""
    first = FrameBlock(8, 1000, "stream-1", "alice", 3, 2, 5, DATA, ("bob",), "words")
    data = [b"", b"longer than before", *DATA]
    following = FrameBlock(first.last_seq + 1, 1007, "stream-1", "alice", 3 + len(DATA), 2, 5, data, ("bob",), "words")
    second = msgspec.structs.replace(following, **changed)
    rows = Rows()
    rows.append("demo", "e-1", first)
    rows.append("demo", "e-1", second)
    assert (rows.count, rows.last_ts) == (len(first) + len(second), 1007)
    batch = rows.encode(100)
    batch.validate(full=True)
    entries = list(decode(batch))
    assert [entry.record for entry in entries] == [*first.frames(), *second.frames()]
    assert [entry.offset for entry in entries] == list(range(100, 100 + rows.count))


def test_what_is_remembered_of_a_block() -> None:
    recent = RecentRecords(max_bytes=100_000)
    block = FrameBlock(5, 1000, "stream-1", "alice", 1, 1, 1, DATA, None, None)
    frame = Frame(55, 1001, None, "stream-1", "alice", 51, 1, 1, b"x")
    recent.append(block)
    recent.append(frame)
    assert recent.reaches(4) and not recent.reaches(3)
    for after in (4, 5, 30, 53, 54, 55):
        assert list(recent.read(after)) == [each for each in [*block.frames(), frame] if each.seq > after]
