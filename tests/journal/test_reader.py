"""A reader beside the writer: the live tail, and segments that are sealed under it."""

from __future__ import annotations

from pathlib import Path

import pytest
from making import (
    SPACE,
    QuickFiles,
    lively,
    make_journal,
    open_journal,
    records,
    write,
)

from mewstream.journal import listing
from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import Record

QUICK = QuickFiles()
SEGMENT = 5000


def test_a_reader_follows_the_live_tail(memory: Path) -> None:
    journal = open_journal(memory, segment_bytes=SEGMENT, files=QUICK)
    made = lively(90).records
    reader = JournalReader(memory / "journal")
    got: list[Record] = []

    def catch_up() -> None:
        got.extend(entry.record for entry in reader.read(SPACE, got[-1].seq if got else 0))

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


def test_a_reader_starts_at_a_position(memory: Path) -> None:
    made = make_journal(memory, lively(50).records)
    assert [entry.record for entry in JournalReader(memory / "journal").read(SPACE, 20)] == made[20:]


def test_sealing_under_a_reader_changes_nothing_for_it(memory: Path) -> None:
    """A reader is half-way when segments that it has yet to read are rewritten."""
    journal = open_journal(memory, segment_bytes=SEGMENT, files=QUICK)
    made = lively(90).records
    write(journal, [(SPACE, record) for record in made])
    reading = JournalReader(memory / "journal").entries(0)
    got = [next(reading).record]
    for partition, name in journal.segments_to_seal():
        partition.seal(name)
    try:
        got += [entry.record for entry in reading]
    finally:
        journal.close()
    assert got == made


def test_listing_while_sealing_raises_no_other_error(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same between the listing of a directory and the reading of an index."""
    journal = open_journal(memory, segment_bytes=SEGMENT, files=QUICK)
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
        assert records(memory) == made
    finally:
        journal.close()
