"""The files of a journal have one writer at a time, and an identity of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from making import (
    SPACE,
    QuickFiles,
    copy,
    lively,
    make_journal,
    memory_directory,
    open_journal,
    records,
    write,
)

from mewstream.journal.errors import JournalError, JournalInUse
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader

QUICK = QuickFiles()
SEGMENT = 5000


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


def test_two_writers_on_one_directory(tmp_path: Path) -> None:
    first = open_journal(tmp_path)
    with pytest.raises(JournalInUse, match=rf"process {os.getpid()}\).*--data"):
        open_journal(tmp_path)
    runs = first.identity.runs
    write(first, [(SPACE, record) for record in lively(20).records])
    first.close()
    second = open_journal(tmp_path)
    assert second.identity.runs == runs + 1
    assert second.identity.id == first.identity.id
    assert second.epoch != first.epoch
    second.close()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, os; from pathlib import Path; from mewstream.journal.local import LocalJournal;"
        "journal = LocalJournal(Path(sys.argv[1])); print('here', flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "here" in done.stdout, done.stderr
    open_journal(tmp_path).close()


def test_a_failed_start_lets_go_of_the_directory(tmp_path: Path) -> None:
    make_journal(tmp_path, lively(30).records)
    file = tmp_path / "journal/journal.json"
    whole = file.read_bytes()
    file.write_bytes(b"nonsense")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(JournalError):
            open_journal(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    file.write_bytes(whole)
    open_journal(tmp_path).close()


def test_a_recreated_journal_is_another(tmp_path: Path) -> None:
    make_journal(tmp_path / "a", lively(20).records)
    make_journal(tmp_path / "b", lively(20).records)
    one, other = (JournalReader(tmp_path / each / "journal").identity() for each in "ab")
    assert one.id != other.id
    assert one.epoch != other.epoch


def test_the_number_of_partitions_is_for_good(tmp_path: Path) -> None:
    made = make_journal(tmp_path, lively(40).records, partitions=3)
    journal = LocalJournal(tmp_path, partitions=7)
    assert len(journal.partitions) == 3
    assert [entry.record for entry in journal.read(SPACE, 0)] == made
    journal.close()


def test_a_copy_of_a_journal_can_be_read(tmp_path: Path) -> None:
    made = make_journal(tmp_path / "a", lively(40).records)
    work = copy(tmp_path / "a", tmp_path / "b")
    assert records(work) == made
    assert JournalReader(work / "journal").identity().runs == 1
