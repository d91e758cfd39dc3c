"""What is pruned: by age and by size, but never what a start or a consumer needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from making import (
    SPACE,
    QuickFiles,
    lively,
    memory_directory,
    open_journal,
    write_with_snapshots,
)

from mewstream.journal.errors import JournalError, PositionGone
from mewstream.journal.retention import Retention, commit_consumer, consumers, plan_pruning
from mewstream.protocol.fold import fold

QUICK = QuickFiles()
SEGMENT = 5000


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


class Prunable:
    def __init__(self, data: Path, *, snapshot_at: int | None = None) -> None:
        self.script = lively(200, pauses=False)
        self.made = self.script.records
        write_with_snapshots(data, self.script, *([snapshot_at] if snapshot_at else []), segment_bytes=SEGMENT)
        self.journal = open_journal(data, files=QUICK, segment_bytes=SEGMENT)

    def prune(self, retention: Retention, now: int = 0) -> tuple[int, list[str]]:
        """The first offset that is left, and the alarms."""
        plan = plan_pruning(
            self.journal.root, retention, now=now, partitions=1, snapshots=self.journal.snapshot_offsets()
        )
        if plan.segments:
            self.journal.prune(plan)
        first = next(self.journal.reader.entries(0)).offset
        assert self.journal.identity.pruned.get(0, 0) == first
        assert [entry.record for entry in self.journal.reader.entries(0)] == self.made[first:]
        return first, plan.alarms

    @property
    def segments(self) -> list[int]:
        return [segment.name.first_offset for segment in self.journal.reader.segments(0)]


@pytest.fixture
def prunable(tmp_path: Path) -> Iterator[Prunable]:
    made = Prunable(tmp_path, snapshot_at=100)
    yield made
    made.journal.close()


def test_pruning_never_passes_the_snapshot(prunable: Prunable) -> None:
    before = prunable.segments
    first, alarms = prunable.prune(Retention(max_bytes=1))
    assert 0 < first <= 100
    assert first == max(each for each in before if each <= 100)
    assert not alarms
    assert prunable.journal.recover() == {SPACE: fold(SPACE, prunable.made)}


def test_without_a_snapshot_nothing_is_pruned(tmp_path: Path) -> None:
    prunable = Prunable(tmp_path)
    assert prunable.prune(Retention(max_bytes=1)) == (0, [])
    prunable.journal.close()


def test_without_bounds_nothing_is_pruned(prunable: Prunable) -> None:
    assert prunable.prune(Retention(), now=2**60) == (0, [])


def test_pruning_by_size_stops_at_the_bound(prunable: Prunable) -> None:
    sizes = sum(file.stat().st_size for file in (prunable.journal.root / "p0").glob("*.arrow"))
    assert prunable.prune(Retention(max_bytes=sizes))[0] == 0
    first, _ = prunable.prune(Retention(max_bytes=sizes - 1))
    assert first == sorted({*prunable.segments, first})[0] > 0


def test_pruning_by_age_keeps_what_is_young(prunable: Prunable) -> None:
    young = prunable.made[60]
    age = 5.0
    first, _ = prunable.prune(Retention(max_age=age), now=young.ts + int(age * 1_000_000))
    assert 0 < first <= 60


def test_a_consumer_holds_back_up_to_a_cap(prunable: Prunable) -> None:
    root = prunable.journal.root
    third = prunable.segments[2]
    commit_consumer(root, "spark", {0: third})
    first, alarms = prunable.prune(Retention(max_bytes=1))
    assert first == third
    assert any("spark" in alarm and "holds back" in alarm for alarm in alarms)
    # It may not go back.
    commit_consumer(root, "spark", {0: 1})
    assert consumers(root)["spark"].offsets == {0: third}
    # Beyond its cap it is passed, and that is said.
    first, alarms = prunable.prune(Retention(max_bytes=1, consumer_hold_bytes=1))
    assert third < first <= 100
    assert any("pruned though spark has not read it" in alarm for alarm in alarms)


def test_the_slowest_consumer_counts(prunable: Prunable) -> None:
    root = prunable.journal.root
    commit_consumer(root, "fast", {0: 100})
    commit_consumer(root, "slow", {0: prunable.segments[1]})
    first, alarms = prunable.prune(Retention(max_bytes=1))
    assert first == prunable.segments[0]
    assert [alarm for alarm in alarms if "fast" in alarm] == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 65, "a b"])
def test_names_of_consumers_are_checked(prunable: Prunable, name: str) -> None:
    if name == "..":
        commit_consumer(prunable.journal.root, name, {0: 1})  # "...json" is a file like any other
        assert not (prunable.journal.root.parent / ".json").exists()
        return
    with pytest.raises(JournalError, match="no name for a consumer"):
        commit_consumer(prunable.journal.root, name, {0: 1})


def test_a_pruned_position_is_gone_and_says_so(prunable: Prunable) -> None:
    first, _ = prunable.prune(Retention(max_bytes=1))
    reader = prunable.journal.reader
    with pytest.raises(PositionGone):
        list(reader.entries(0, 1))
    with pytest.raises(PositionGone):
        list(reader.read(SPACE, 1))
    seq = prunable.made[first].seq
    assert [entry.record for entry in reader.read(SPACE, seq)] == prunable.made[first + 1 :]
