"""Raw frames that came together are judged once: with the same outcome as one by one."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from harness import Space

from mewstream.journal.memory import RecentRecords
from mewstream.journal.rows import Rows
from mewstream.journal.schema import decode
from mewstream.protocol import snapshot
from mewstream.protocol.fold import apply, apply_block
from mewstream.protocol.frame_rules import decide_frame, decide_run
from mewstream.protocol.records import Frame, FrameBlock, Record
from mewstream.protocol.state import SpaceState

DATA = [b"%d" % number for number in range(50)]


def one_by_one(state: SpaceState, now: int, sender: str, stream: str, data: list[bytes]) -> list[Record]:
    records: list[Record] = []
    for each in data:
        decided = decide_frame(state, now, sender, stream, each, 1)
        for record in decided:
            apply(state, record)
        records += decided
    return records


def block_of(space: Space, sender: str, stream: str, data: list[bytes] = DATA) -> FrameBlock | None:
    return decide_run(space.state, space.now, sender, stream, data, 1)


@pytest.mark.parametrize("fields", [{}, {"target": ["bob"]}, {"formats": [{"id": "words"}]}, {"alias": "none"}])
def test_the_same_records_and_the_same_state(fields: dict[str, object]) -> None:
    space = Space("alice", "bob")
    stream = space.open("alice", **fields)
    space.frame("alice", stream, b"before")
    singly, together = copy.deepcopy(space.state), copy.deepcopy(space.state)
    block = block_of(space, "alice", stream)
    assert block is not None
    assert block.frames() == one_by_one(singly, space.now, "alice", stream, DATA)
    apply_block(together, block)
    assert snapshot.dump(together) == snapshot.dump(singly)


class TestEachByItself:
    """Where the outcome may differ from one frame to the next, nothing is decided for all."""

    def test_a_stranger(self) -> None:
        space = Space("alice", "bob")
        assert block_of(space, "bob", space.open("alice")) is None

    def test_no_such_stream(self) -> None:
        assert block_of(Space("alice"), "alice", "stream-9") is None

    def test_conditions(self) -> None:
        space = Space("alice", "bob")
        stream = space.open("alice")
        space.send("alice", "stream/grant-write", stream_id=stream, participant_id="bob", conditions={"max_frames": 3})
        assert block_of(space, "bob", stream) is None

    def test_several_formats(self) -> None:
        space = Space("alice")
        assert block_of(space, "alice", space.open("alice", formats=[{"id": "a"}, {"id": "b"}])) is None

    def test_content_that_is_checked(self) -> None:
        space = Space("alice")
        formats = [{"id": "number", "schema": {"type": "number"}}]
        assert block_of(space, "alice", space.open("alice", formats=formats, validate="enforce")) is None

    def test_the_paused(self) -> None:
        space = Space("alice", "admin")
        stream = space.open("alice")
        space.send("admin", "participant/pause", to=["alice"])
        assert block_of(space, "alice", stream) is None


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
    rows.extend("demo", "e-1", block, sum(map(len, block.data)))
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
    rows.extend("demo", "e-1", first, sum(map(len, first.data)))
    rows.extend("demo", "e-1", second, sum(map(len, second.data)))
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
    recent.extend(block, sum(map(len, DATA)))
    recent.append(frame)
    assert recent.reaches(4) and not recent.reaches(3)
    for after in (4, 5, 30, 53, 54, 55):
        assert list(recent.read(after)) == [each for each in [*block.frames(), frame] if each.seq > after]
