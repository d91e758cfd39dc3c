"""Intervals against the fold: at every seq of lively logs, the tables say what the state of the gateway was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from journals import Play, lively, write_journal
from pyspark.sql import SparkSession
from running import Found, bring_up_to_date, rows

from mewstream.protocol.fold import apply
from mewstream.protocol.records import Frame
from mewstream.protocol.state import SpaceState

SEEDS = (11, 12, 13, 14)


class Story:
    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.plays = {f"space-{seed}": lively(500, space=f"space-{seed}", seed=seed) for seed in SEEDS}
        for play in self.plays.values():
            play.restart(after=2)
            for _ in range(60):
                play.step()
        data = write_journal(path / "data", *self.plays.values())
        bring_up_to_date(spark, data, path / "warehouse", max_records=900)
        self.tables = {
            name: rows(path / "warehouse", name)
            for name in ("authorizations", "sessions", "streams", "frames", "space_summary")
        }

    def of(self, table: str, space: str) -> list[Found]:
        return [row for row in self.tables[table] if row.space == space]


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(spark, tmp_path_factory.mktemp("fold"))


def states(play: Play) -> Iterator[SpaceState]:
    state = SpaceState(play.space)
    for record in play.records:
        apply(state, record)
        yield state


def holders(intervals: list[Found], seq: int, begin: str, until: str) -> list[Found]:
    return [row for row in intervals if row[begin] <= seq and (row[until] is None or seq < row[until])]


@pytest.mark.parametrize("space", [f"space-{seed}" for seed in SEEDS])
class TestAtEverySeq:
    def test_rights(self, story: Story, space: str) -> None:
        intervals = story.of("authorizations", space)
        for state in states(story.plays[space]):
            found: dict[str, dict[str, set[Any]]] = defaultdict(lambda: defaultdict(set))
            for row in holders(intervals, state.seq, "from_seq", "until_seq"):
                found[row.stream_id][row.right].add(row.participant)
            assert found.keys() == state.streams.keys(), state.seq
            for id, stream in state.streams.items():
                assert found[id]["own"] == {stream.owner}, (state.seq, id)
                assert found[id]["write"] == set(stream.writers), (state.seq, id)
                assert found[id]["read"] == ({None} if stream.readers is None else set(stream.readers)), (state.seq, id)

    def test_conditions_and_since(self, story: Story, space: str) -> None:
        intervals = [row for row in story.of("authorizations", space) if row.right == "write"]
        for state in states(story.plays[space]):
            for row in holders(intervals, state.seq, "from_seq", "until_seq"):
                right = state.streams[row.stream_id].writers[row.participant]
                assert row.since_seq == right.since, (state.seq, row)
                given = None if row.expires_at is None else round(row.expires_at.timestamp() * 1_000_000)
                assert given == right.expires_at

    def test_frames_used(self, story: Story, space: str) -> None:
        frames = [record for record in story.plays[space].records if isinstance(record, Frame)]
        assert frames
        for row in story.of("authorizations", space):
            if row.right == "write":
                used = [
                    frame
                    for frame in frames
                    if (frame.stream_id, frame.sender) == (row.stream_id, row.participant)
                    and row.from_seq < frame.seq
                    and (row.until_seq is None or frame.seq < row.until_seq)
                ]
                assert row.frames_used == len(used)
            else:
                assert row.frames_used is None

    def test_presence(self, story: Story, space: str) -> None:
        sessions = story.of("sessions", space)
        for state in states(story.plays[space]):
            present = holders(sessions, state.seq, "joined_seq", "left_seq")
            assert sorted(row.participant for row in present) == sorted(state.participants), state.seq
            for row in present:
                away = [
                    each
                    for each in row.suspensions
                    if each.seq <= state.seq and (each.resumed_seq is None or state.seq < each.resumed_seq)
                ]
                # A second reason to wait begins another suspension; the first has no end of its own.
                last = max(away, key=lambda each: each.seq, default=None)
                came = [
                    each.resumed_seq for each in row.suspensions if (each.resumed_seq or state.seq + 1) <= state.seq
                ]
                suspended = last is not None and last.seq > max(came, default=0)
                assert state.participants[row.participant].connected != suspended, (state.seq, row)

    def test_streams(self, story: Story, space: str) -> None:
        streams = story.of("streams", space)
        for state in states(story.plays[space]):
            alive = {row.stream_id: row for row in holders(streams, state.seq, "ready_seq", "ended_seq")}
            assert alive.keys() == state.streams.keys(), state.seq
            for id, stream in state.streams.items():
                owners = [each.owner for each in alive[id].owners if each.from_seq <= state.seq]
                assert owners[-1] == stream.owner
                is_live = alive[id].live_seq is not None and alive[id].live_seq <= state.seq
                assert is_live == (stream.status == "live")

    def test_streams_at_the_end(self, story: Story, space: str) -> None:
        *_, state = states(story.plays[space])
        for row in story.of("streams", space):
            frames = [
                each
                for each in story.plays[space].records
                if isinstance(each, Frame) and each.stream_id == row.stream_id
            ]
            assert row.frames == len(frames)
            assert row.bytes == sum(len(each.data) for each in frames)
            assert row.last_frame_seq == max((each.seq for each in frames), default=None)
            if row.ended_seq is None:
                known = state.streams[row.stream_id]
                assert (row.alias, row.owner, row.status) == (known.alias, known.owner, str(known.status))
            else:
                assert row.status in ("closed", "completed", "failed")

    def test_summary(self, story: Story, space: str) -> None:
        [row] = story.of("space_summary", space)
        *_, state = states(story.plays[space])
        records = story.plays[space].records
        assert (row.first_seq, row.last_seq, row.records) == (1, state.seq, len(records))
        assert row.frames == sum(isinstance(each, Frame) for each in records)
        assert row.present == len(state.participants)
        assert row.participants == len(state.first_joins)
        assert (row.streams, row.open_streams) == (state.stream_counter, len(state.streams))
