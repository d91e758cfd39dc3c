"""A reader beside the writer: the live tail, and segments that are sealed under it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from making import (
    SPACE,
    QuickFiles,
    lively,
    make_journal,
    memory_directory,
    open_journal,
    records,
    write,
)

from mewstream.journal import listing
from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import Record

QUICK = QuickFiles()
SEGMENT = 5000


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


def test_a_reader_follows_the_live_tail(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, segment_bytes=SEGMENT, files=QUICK)
    made = lively(90).records
    followed = JournalReader(tmp_path / "journal").follow(SPACE, poll=0)
    got: list[Record] = []

    def catch_up() -> None:
        while (entry := next(followed)) is not None:
            got.append(entry.record)

    catch_up()
    assert got == []
    for place, record in enumerate(made, 1):
        journal.append(SPACE, record)
        if place % 4 == 0:
            catch_up()
            assert got == made[: place - 4], "what is not flushed is not committed"
            journal.partitions[0].flush()
            catch_up()
            assert got == made[:place]
        if place % 20 == 0:
            for partition, name in journal.segments_to_seal():
                partition.seal(name)
    journal.close()
    catch_up()
    assert got == made


def test_a_follower_starts_at_a_position(tmp_path: Path) -> None:
    made = make_journal(tmp_path, lively(50).records)
    followed = JournalReader(tmp_path / "journal").follow(SPACE, 20, poll=0)
    got = []
    while (entry := next(followed)) is not None:
        got.append(entry.record)
    assert got == made[20:]


def test_sealing_under_a_reader_changes_nothing_for_it(tmp_path: Path) -> None:
    """A reader is half-way when segments that it has yet to read are rewritten."""
    journal = open_journal(tmp_path, segment_bytes=SEGMENT, files=QUICK)
    made = lively(90).records
    write(journal, [(SPACE, record) for record in made])
    reading = JournalReader(tmp_path / "journal").entries(0)
    got = [next(reading).record]
    for partition, name in journal.segments_to_seal():
        partition.seal(name)
    try:
        got += [entry.record for entry in reading]
    finally:
        journal.close()
    assert got == made


def test_listing_while_sealing_raises_no_other_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same between the listing of a directory and the reading of an index."""
    journal = open_journal(tmp_path, segment_bytes=SEGMENT, files=QUICK)
    made = lively(60).records
    write(journal, [(SPACE, record) for record in made])
    waiting = journal.segments_to_seal()
    original = listing.read_segment

    def sealing_first(filesystem: object, directory: str, name: object) -> object:
        monkeypatch.setattr(listing, "read_segment", original)
        for partition, each in waiting:
            partition.seal(each)
        return original(filesystem, directory, name)  # type: ignore[arg-type]

    monkeypatch.setattr(listing, "read_segment", sealing_first)
    try:
        assert records(tmp_path) == made
    finally:
        journal.close()
