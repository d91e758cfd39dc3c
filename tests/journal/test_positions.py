"""Finding the records of a space costs what is read of it, however long the journal is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from making import (
    SPACE,
    QuickFiles,
    lively,
    memory_directory,
    open_journal,
    segment_files,
    write,
)

from mewstream.journal import positions as positions_module
from mewstream.journal.errors import CorruptJournal, PositionGone
from mewstream.journal.positions import SegmentSpaces
from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import Frame, Record

QUICK = QuickFiles()


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


class Counted:
    """A reader, and what it has read."""

    def __init__(self, data: Path) -> None:
        self.batches = self.bytes = 0
        self.reader = JournalReader(data / "journal", on_read=self._count)

    def _count(self, size: int) -> None:
        self.batches += 1
        self.bytes += size

    def page(self, space: str, after: int, count: int = 50) -> list[int]:
        """The seqs of one page."""
        entries = self.reader.read(space, after)
        found = [entry.record.seq for _, entry in zip(range(count), entries, strict=False)]
        entries.close()  # type: ignore[attr-defined]
        return found


def frames(space: str, count: int, data: bytes = b"x" * 100) -> list[tuple[str, Record]]:
    return [(space, Frame(seq, seq, None, "stream-1", "ann", seq, 2, 1, data)) for seq in range(1, count + 1)]


def long_journal(data: Path, *, segments: int, spaces: int = 1, seal: bool = True) -> int:
    """A journal of so many segments in one partition, in which spaces take turns; the records of each."""
    journal = open_journal(data, segment_bytes=40_000, files=QUICK)
    seq = 0
    while len(journal.reader.segments(0)) < segments:
        for number in range(spaces):
            for _ in range(20):
                record = Frame(seq + 1 + _, seq, None, "stream-1", "ann", seq + 1 + _, 2, 1, b"x" * 100)
                journal.append(f"space-{number}", record)
            journal.partitions[0].flush()
        seq += 20
    if seal:
        for partition, name in journal.segments_to_seal():
            partition.seal(name)
    journal.close()
    return seq


@pytest.mark.parametrize("spaces", [1, 5])
@pytest.mark.parametrize("seal", [False, True])
def test_a_page_costs_the_same_however_long_the_log_is(memory: Path, spaces: int, seal: bool) -> None:
    cost: dict[int, list[int]] = {}
    for segments in (4, 40):
        data = memory / f"{segments}"
        last = long_journal(data, segments=segments, spaces=spaces, seal=seal)
        counted = Counted(data)
        places = (1, 2, last // 3, last // 2, last - 60, last - 1)
        # Where segments do not say by themselves what is in them, they are read once.
        for after in places if not seal else places[-1:]:
            counted.page("space-0", after)
        costs = []
        for after in places:
            before = counted.bytes
            seqs = counted.page("space-0", after)
            assert seqs == list(range(after + 1, min(after + 50, last) + 1))
            costs.append(counted.bytes - before)
        cost[segments] = costs
        assert max(costs) < 60_000, "more than a page needs"
    assert max(cost[40]) < 2 * max(cost[4])


def test_the_first_page_reads_what_it_tells_and_no_more(memory: Path) -> None:
    """Sealed segments say by themselves where the records of a space are; the open one is read once."""
    last = long_journal(memory, segments=40)
    counted = Counted(memory)
    open_segment = segment_files(memory, suffix="arrow")[-1]
    assert counted.page("space-0", 1)[0] == 2
    assert counted.bytes < 60_000 + open_segment.stat().st_size
    whole = sum(file.stat().st_size for file in segment_files(memory, suffix="arrow"))
    assert counted.bytes < whole / 5
    assert last > 1000


@pytest.mark.parametrize("how", ["missing", "damaged", "of another segment", "cut"])
def test_a_file_of_positions_is_a_help_and_no_more(memory: Path, how: str) -> None:
    last = long_journal(memory, segments=8, spaces=3)
    files = sorted((memory / "journal/p0").glob("*.sealed.spaces"))
    assert len(files) == 7
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents, strict=True):
        if how == "missing":
            file.unlink()
        elif how == "damaged":
            file.write_bytes(content.replace(b"space-1", b"space-7"))
        elif how == "cut":
            file.write_bytes(content[:-3])
    if how == "of another segment":
        files[2].write_bytes(contents[3])
        # Its checksum is right: nobody can tell but by comparing. Whatever comes of it, nothing is passed over.
        with contextlib.suppress(CorruptJournal, PositionGone):
            found = [entry.record.seq for entry in JournalReader(memory / "journal").read("space-1")]
            assert found == list(range(1, last + 1))
        return
    for space in ("space-0", "space-1", "space-2"):
        for after in (0, 1, last // 2, last - 1):
            found = [entry.record.seq for entry in JournalReader(memory / "journal").read(space, after)]
            assert found == list(range(after + 1, last + 1))


def test_times_are_found_without_reading_everything(memory: Path) -> None:
    last = long_journal(memory, segments=40)
    counted = Counted(memory)
    counted.page("space-0", last - 1)
    for micros in (1, 20, 500, last // 2, last):
        before = counted.bytes
        # All records of a round have the time at which it began.
        expected = max(0, -(-micros // 20) * 20)
        assert counted.reader.seq_before("space-0", micros) == min(expected, last)
        assert counted.bytes - before < 60_000
    assert counted.reader.seq_before("space-0", 0) == 0
    assert counted.reader.seq_before("nobody", 10**15) == 0


@pytest.mark.parametrize("seed", range(3))
def test_spaces_that_come_and_go(memory: Path, seed: int) -> None:
    """Every position of every space, in segments of which many have nothing of it."""
    scripts = {f"space-{number}": lively(60 + 40 * number, space=f"space-{number}", seed=seed) for number in range(4)}
    journal = open_journal(memory, segment_bytes=12_000, files=QUICK)
    for name in ("space-2", "space-0", "space-3", "space-1"):
        made = scripts[name].records
        write(journal, [(name, each) for each in made[: len(made) // 2]])
    for partition, segment in journal.segments_to_seal():
        partition.seal(segment)
    for name in ("space-1", "space-3", "space-0", "space-2"):
        made = scripts[name].records
        write(journal, [(name, each) for each in made[len(made) // 2 :]])
    reader = JournalReader(memory / "journal")
    for name, script in scripts.items():
        for after in range(0, len(script.records) + 1, 7):
            assert [entry.record for entry in reader.read(name, after)] == script.records[after:]
            ts = script.records[min(after, len(script.records) - 1)].ts
            assert reader.seq_before(name, ts) == max((each.seq for each in script.records if each.ts < ts), default=0)
    journal.close()


def test_what_is_remembered_of_positions_is_bounded(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = long_journal(memory, segments=20, spaces=4)
    monkeypatch.setattr(positions_module, "MAX_CACHED_PARTS", 50)
    reader = JournalReader(memory / "journal")
    for space in ("space-0", "space-3"):
        assert [entry.record.seq for entry in reader.read(space)] == list(range(1, last + 1))
    known = reader.positions(0)
    assert known._size == sum(each.size for each in known._known.values())
    assert known._size < 50 + 4 * 60


def test_a_damaged_batch_is_told_where_it_matters_and_only_there(memory: Path) -> None:
    last = long_journal(memory, segments=6, seal=False)
    file = segment_files(memory, suffix="arrow")[3]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    reader = JournalReader(memory / "journal")
    assert [entry.record.seq for entry in reader.read("space-0", last - 30)] == list(range(last - 29, last + 1))
    with pytest.raises(CorruptJournal, match="checksum"):
        list(reader.read("space-0", 1))
    assert reader.seq_before("space-0", 10**15) == last


def test_a_damaged_end_is_not_taken_for_the_end(memory: Path) -> None:
    last = long_journal(memory, segments=2, seal=False)
    file = segment_files(memory, suffix="arrow")[-1]
    content = bytearray(file.read_bytes())
    content[-200] ^= 1
    file.write_bytes(content)
    for after in (0, last - 25, last - 1):
        with pytest.raises(CorruptJournal):
            list(JournalReader(memory / "journal").read("space-0", after))


def test_old_segments_are_indexed_by_whoever_has_the_time(memory: Path) -> None:
    long_journal(memory, segments=6, spaces=2)
    for file in (memory / "journal/p0").glob("*.spaces"):
        file.unlink()
    journal = open_journal(memory, files=QUICK)
    partition = journal.partitions[0]
    names = partition.without_spaces()
    assert len(names) == 5
    for name in names:
        partition.index_spaces(name)
    assert partition.without_spaces() == []
    journal.close()
    written = [SegmentSpaces.parse(file.read_bytes()) for file in (memory / "journal/p0").glob("*.spaces")]
    assert all(each.is_whole and each.batches for each in written)


def test_there_is_a_space_to_read(memory: Path) -> None:
    """Of no records at all."""
    journal = open_journal(memory, files=QUICK)
    assert list(JournalReader(memory / "journal").read(SPACE)) == []
    assert list(JournalReader(memory / "journal").read(SPACE, 5)) == []
    write(journal, frames(SPACE, 3))
    assert [entry.record.seq for entry in JournalReader(memory / "journal").read(SPACE)] == [1, 2, 3]
    assert list(JournalReader(memory / "journal").read(SPACE, 3)) == []
    journal.close()
