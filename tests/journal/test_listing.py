"""A directory is not listed at one moment: whoever looks at a sound journal while its segments are sealed, pruned and
begun must never call it damaged."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from making import PEOPLE, SPACE, QuickFiles, lively, memory_directory, open_journal
from pyarrow import fs

from mewstream.journal import listing
from mewstream.journal.errors import CorruptJournal, PositionGone
from mewstream.journal.listing import list_once, list_segments
from mewstream.journal.reader import JournalReader
from mewstream.journal.retention import PrunePlan
from mewstream.journal.verify import Verification
from mewstream.pipeline.ranges import RangeReader
from mewstream.protocol.records import EnvelopeAccepted

LOCAL = fs.LocalFileSystem()
#: How long each reader looks. A listing of the code before this one failed about 3 times in 1000.
SECONDS = 2.0


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


class Sealing:
    """A journal that is written and sealed as fast as it goes, and perhaps pruned, until told to stop."""

    def __init__(self, data: Path, *, keeps: int | None = None) -> None:
        self.data = data
        self.journal = open_journal(data, segment_bytes=1, files=QuickFiles())
        self.seq = 0
        self._write(40)
        self._keeps = keeps
        self._end = threading.Event()
        self.rounds = 0
        self._thread = threading.Thread(target=self._run)

    def _write(self, count: int) -> None:
        for _ in range(count):
            self.seq += 1
            record = EnvelopeAccepted(self.seq, self.seq, None, PEOPLE[0], "chat", f"id-{self.seq}", 0, b"{}")
            self.journal.append(SPACE, record)
            self.journal.partitions[0].flush()

    def _run(self) -> None:
        while not self._end.is_set():
            self._write(2)
            for partition, name in self.journal.segments_to_seal():
                partition.seal(name)
            # One after another, as a gateway does.
            gone = self.journal.reader.segments(0)[: -self._keeps] if self._keeps is not None else []
            if gone:
                self.journal.prune(PrunePlan(segments=gone, begins_at={0: gone[-1].next_offset}))
            self.rounds += 1

    def __enter__(self) -> Sealing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.journal.close()


def looks(data: Path) -> dict[str, Callable[[], object]]:
    """Everything that looks at a whole partition."""
    reader, ranges = JournalReader(data / "journal"), RangeReader(LOCAL, str(data / "journal"))

    def listed() -> None:
        found = reader.segments(0)
        assert not [segment.flaw for segment in found if segment.flaw is not None and not segment.is_torn]
        for before, after in itertools.pairwise(found):
            assert before.next_offset == after.name.first_offset

    def reading() -> None:
        seqs = [entry.record.seq for entry in reader.read(SPACE, max(0, reader.next_offset(0) - 60))]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))

    def by_offset() -> None:
        end = reader.next_offset(0)
        assert [entry.offset for entry in reader.entries(0, end - 40, end)] == list(range(end - 40, end))

    def by_range() -> None:
        begin, end = ranges.bounds(0)
        rows = ranges.rows(0, max(begin, end - 40), end)
        assert sum(batch.num_rows for batch in rows) == min(40, end - begin)
        assert ranges.bounds(0)[1] >= end, "the end runs back"

    def verifying() -> None:
        problems = [str(each) for each in Verification(data / "journal").run() if not each.is_note]
        problems = [each for each in problems if "of another journal" not in each and "no sound snapshot" not in each]
        assert problems == []

    return {
        "listing": listed,
        "reading": reading,
        "by offset": by_offset,
        "by range": by_range,
        "verifying": verifying,
    }


LOOKS = ("listing", "reading", "by offset", "by range", "verifying")


@pytest.mark.parametrize("look", LOOKS)
def test_a_sound_journal_is_never_called_damaged(tmp_path: Path, look: str) -> None:
    made = 0
    with Sealing(tmp_path) as sealing:
        once = looks(tmp_path)[look]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or not made:
            once()
            made += 1
    assert sealing.rounds > 1
    # What is missing for good is damage all the same.
    for file in (tmp_path / "journal/p0").glob("00000000000000000010.*"):
        file.unlink()
    if look in ("listing", "verifying"):
        with pytest.raises(AssertionError):
            once()
    else:
        with pytest.raises(CorruptJournal, match=r"missing"):
            list(JournalReader(tmp_path / "journal").entries(0))


def test_one_look_alone_would_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moment that every look may hit: neither form of a segment is seen."""
    made = lively(60).records
    journal = open_journal(tmp_path, segment_bytes=3000, files=QuickFiles())
    for record in made:
        journal.append(SPACE, record)
        journal.partitions[0].flush()
    directory = str(tmp_path / "journal/p0")
    whole = list_segments(LOCAL, directory)
    assert len(whole) > 4
    hidden = whole[2].name
    real, seen = listing._names_of, []

    def blinking(files: object) -> object:
        """As if that segment were sealed while the first listing was under way."""
        names = list(real(files))  # type: ignore[arg-type]
        seen.append(names)
        return [name for name in names if name != hidden] if len(seen) == 1 else names

    monkeypatch.setattr(listing, "_names_of", blinking)
    assert [segment for segment in list_once(LOCAL, directory) if segment.flaw is not None]
    seen.clear()
    assert list_segments(LOCAL, directory) == whole
    seen.clear()
    assert [entry.record for entry in JournalReader(tmp_path / "journal").read(SPACE)] == made
    journal.close()


@pytest.mark.parametrize("look", ["listing", "reading", "by range", "verifying"])
def test_what_is_pruned_meanwhile_is_no_damage(tmp_path: Path, look: str) -> None:
    """It is a position that is gone."""
    with Sealing(tmp_path, keeps=30) as sealing:
        once = looks(tmp_path)[look]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(PositionGone):
                once()
    assert sealing.journal.identity.pruned[0] > 1
