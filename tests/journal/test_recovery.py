"""A start finds what was committed: after a crash anywhere, with or without snapshots, pruned or not."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from making import (
    SPACE,
    Crash,
    CrashingFiles,
    FailingFiles,
    QuickFiles,
    Script,
    abandon,
    entries,
    lively,
    memory_directory,
    open_journal,
    records,
    segment_files,
    write,
    write_with_snapshots,
)

from mewstream.journal.errors import JournalError
from mewstream.journal.files import Files
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.journal.reader_sets import SetsInForce
from mewstream.journal.retention import Retention, plan_pruning
from mewstream.protocol import snapshot
from mewstream.protocol.fold import fold
from mewstream.protocol.records import Record
from mewstream.protocol.state import SpaceState

QUICK = QuickFiles()
SEGMENT = 5000


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


def _state_of(records: list[Record], space: str = SPACE) -> dict[str, object]:
    return {space: fold(space, records)}


# -- a crash at every step ------------------------------------------------------------------------


class Workload:
    """Everything that a writer ever does: write, sync, roll, seal, snapshot, prune."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.committed = 0
        self.attempted = 0

    def run(self, data: Path, files: Files) -> None:
        journal: LocalJournal | None = None
        try:
            journal = open_journal(data, segment_bytes=SEGMENT, files=files)
            for place in range(0, len(self.records), 4):
                batch = self.records[place : place + 4]
                for record in batch:
                    journal.append(SPACE, record)
                self.attempted = place + len(batch)
                journal.partitions[0].flush()
                self.committed = self.attempted
                if place == 20:
                    self._snapshot(journal)
                    self._seal(journal)
            self._snapshot(journal)
            self._seal(journal)
            self._prune(journal)
            journal.partitions[0].sync()
        finally:
            if journal is not None:
                abandon(journal)

    def _snapshot(self, journal: LocalJournal) -> None:
        states = {SPACE: fold(SPACE, self.records[: self.committed])}
        journal.write_snapshot(*journal.encode_snapshot(0, states))

    def _seal(self, journal: LocalJournal) -> None:
        for partition, name in journal.segments_to_seal():
            partition.seal(name)

    def _prune(self, journal: LocalJournal) -> None:
        journal.prune(
            plan_pruning(
                journal.root, Retention(max_bytes=1), now=0, partitions=1, snapshots=journal.snapshot_offsets()
            )
        )


@pytest.mark.parametrize("torn", [False, True], ids=["before", "torn"])
def test_a_crash_at_every_operation(tmp_path: Path, torn: bool) -> None:
    """Whatever was flushed before is there, in order and once, and the log can be gone on with."""
    made = lively(44, seed=1, pauses=False).records
    crashes = 0
    for at in range(1, 1000):
        data = tmp_path / f"crash-{at}"
        files = CrashingFiles(at, torn=torn)
        workload = Workload(made)
        try:
            workload.run(data, files)
            crashed = False
        except Crash:
            crashed = True
        where = f"crash at operation {at}, {workload.committed} records were committed"
        journal = open_journal(data, segment_bytes=SEGMENT, files=QUICK)
        try:
            found = list(journal.reader.entries(0))
            pruned = journal.identity.pruned.get(0, 0)
            end = journal.partitions[0].next_offset
            assert end in (workload.committed, workload.attempted), where
            assert [entry.offset for entry in found] == list(range(pruned, end)), where
            assert [entry.record for entry in found] == made[pruned:end], where
            expected = _state_of(made[:end]) if end else {}
            assert journal.recover() == expected, where
            # And it goes on: to the end, through further segments, and once more from the start.
            rest = write(journal, [(SPACE, record) for record in made[end:]], per_batch=3)
            for partition, name in journal.segments_to_seal():
                partition.seal(name)
            assert journal.partitions[0].next_offset == end + len(rest)
        finally:
            journal.close()
        assert [entry.record for entry in entries(data)] == made[pruned:], where
        journal = open_journal(data, segment_bytes=SEGMENT, files=QUICK)
        try:
            assert journal.recover() == _state_of(made), where
        finally:
            journal.close()
        if not crashed:
            break
        crashes += 1
    assert crashes > 60, "the workload does less than it should"


def test_a_crash_leaves_nothing_behind_for_good(tmp_path: Path) -> None:
    """Leftovers of sealing and pruning are removed at the next start: a disk must not fill up with them."""
    made = lively(44, seed=1, pauses=False).records
    stray: dict[str, int] = {}
    for at in range(1, 1000):
        data = tmp_path / f"crash-{at}"
        try:
            Workload(made).run(data, CrashingFiles(at))
            crashed = False
        except Crash:
            crashed = True
        journal = open_journal(data, segment_bytes=SEGMENT, files=QUICK)
        # What waits to be sealed is sealed: that may write over what a crash has left.
        for partition, name in journal.segments_to_seal():
            partition.seal(name)
        journal.close()
        # A header alone waits for the first batch of the next segment, which is written over it.
        known = {"lock", "journal.json", f"{journal.partitions[0].next_offset:020d}.arrow"}
        for segment in JournalReader(data / "journal").segments(0):
            known |= {segment.name.data_file, segment.name.index_file}
            known |= {segment.name.spaces_file} if segment.name.sealed else set()
        known.add(SetsInForce.file_name(journal.identity.pruned.get(0, 0)))
        for file in data.rglob("*"):
            if file.is_file() and file.name not in known and not file.name.startswith("snapshot-"):
                stray.setdefault(file.name, at)
        if not crashed:
            break
    assert not stray, f"never removed (name: operation of the crash): {stray}"


def test_the_disk_fails_once_at_every_operation(tmp_path: Path) -> None:
    """An operation fails and is tried again, as the gateway does: nothing is lost or written twice."""
    made = lively(44, seed=1, pauses=False).records
    wrong = []
    for at in range(1, 400):
        data = tmp_path / f"fail-{at}"
        open_journal(data, segment_bytes=SEGMENT, files=QUICK).close()
        files = FailingFiles(10_000)
        journal = open_journal(data, segment_bytes=SEGMENT, files=files)
        first = files.count
        files._fail_at = first + at
        failed = False
        try:
            for place in range(0, len(made), 4):
                for record in made[place : place + 4]:
                    journal.append(SPACE, record)
                for attempt in range(4):
                    try:
                        journal.partitions[0].flush()
                        break
                    except OSError as error:
                        failed = True
                        if attempt == 3:
                            raise AssertionError(f"still {error!r} after the disk is well again") from None
            found = [entry.record for entry in journal.reader.entries(0)]
            assert found == made, f"{len(found)} of {len(made)} records"
        except Exception as error:
            wrong.append(f"operation {at}: {error}")
        finally:
            abandon(journal)
        if not failed and at > 20:
            break
    assert not wrong, f"{len(wrong)} times: " + "\n".join(wrong[:6])


def test_a_failed_seal_can_be_done_again(tmp_path: Path) -> None:
    made = lively(44, seed=1).records
    for at in range(1, 100):
        data = tmp_path / f"seal-{at}"
        files = FailingFiles(10_000, error=errno.EIO)
        journal = open_journal(data, segment_bytes=SEGMENT, files=files)
        write(journal, [(SPACE, record) for record in made])
        (partition, name), *_ = journal.segments_to_seal()
        files._fail_at = files.count + at
        try:
            partition.seal(name)
            failed = False
        except OSError:
            failed = True
        assert [entry.record for entry in journal.reader.entries(0)] == made
        partition.seal(name)
        assert [entry.record for entry in journal.reader.entries(0)] == made
        journal.close()
        if not failed:
            break


# -- snapshots ------------------------------------------------------------------------------------


def _recovered(data: Path) -> dict[str, object]:
    journal = open_journal(data, files=QUICK)
    try:
        return dict(journal.recover())
    finally:
        journal.close()


@pytest.mark.parametrize("seed", range(8))
def test_the_state_is_the_fold_of_the_whole_log(tmp_path: Path, seed: int) -> None:
    """Wherever the snapshot was made: recovering from it is the same as folding everything."""
    script = lively(150, seed=seed)
    wrong = []
    for place in range(10, 150, 20):
        data = tmp_path / f"at-{place}"
        write_with_snapshots(data, script, place, segment_bytes=9000)
        [state] = _recovered(data).values()
        if state != script.state:
            fields = [name for name in _recorded(state) if getattr(state, name) != getattr(script.state, name)]
            wrong.append(f"snapshot at {place}: {fields}")
    assert not wrong, wrong


def test_a_snapshot_is_the_whole_state(tmp_path: Path) -> None:
    """Every field: also those that are rarely set."""
    script = Script().begin()
    script.send("ann", "participant/pause", to=["bob"])
    script.send("ann", "participant/pause", to=["cy"], timeout_seconds=1000)
    script.send("ann", "space/invite", participant_id="guest", capabilities=[{"kind": "chat"}])
    script.send("ann", "capability/grant", recipient="bob", capabilities=[{"kind": "chat"}])
    script.send("ann", "stream/grant-write", stream_id="stream-1", participant_id="cy", conditions={"max_frames": 3})
    script.frame("cy", "stream-1", b"x")
    loaded = snapshot.load(snapshot.dump(script.state))
    for name in _recorded(loaded):
        assert getattr(loaded, name) == getattr(script.state, name), name


def _recorded(state: SpaceState) -> list[str]:
    """Its fields, but for what follows from the others."""
    return [each.name for each in dataclasses.fields(state) if each.compare]


def test_a_corrupt_snapshot_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = lively(100, pauses=False)
    write_with_snapshots(tmp_path, script, 30, 60, segment_bytes=9000)
    older, newest = sorted((tmp_path / "journal/p0").glob("snapshot-*.json"))
    for content in (b"", b"x", newest.read_bytes()[:-1], newest.read_bytes()[:9] + b"{}", b"00000000\n{}"):
        newest.write_bytes(content)
        caplog.clear()
        assert _recovered(tmp_path) == _state_of(script.records)
        assert f"{newest.name} is not used" in caplog.text
    older.write_bytes(b"")
    assert _recovered(tmp_path) == _state_of(script.records)


def test_a_snapshot_of_another_journal_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_with_snapshots(tmp_path / "a", lively(60, seed=1, pauses=False), 30)
    script = lively(60, seed=2, pauses=False)
    write_with_snapshots(tmp_path / "b", script)
    [file] = (tmp_path / "a/journal/p0").glob("snapshot-*.json")
    (tmp_path / "b/journal/p0" / file.name).write_bytes(file.read_bytes())
    assert _recovered(tmp_path / "b") == _state_of(script.records)
    assert "another journal" in caplog.text


def _cut_back(data: Path, batches: int) -> int:
    """As a lost power leaves it: the last batches never reached the disk. Returns the records left."""
    index = segment_files(data)[-1]
    content = index.read_bytes()
    index.write_bytes(content[: len(content) - batches * 48])
    return len(entries(data))


def test_a_snapshot_ahead_of_the_journal_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = lively(60, pauses=False)
    write_with_snapshots(tmp_path, script, len(script.records))
    left = _cut_back(tmp_path, 3)
    assert left < len(script.records)
    assert _recovered(tmp_path) == _state_of(script.records[:left])
    assert "ahead of the journal" in caplog.text


def test_a_snapshot_that_was_ahead_is_never_used_later(tmp_path: Path) -> None:
    """It describes records that did not survive: when the log has grown past its offset, it still does."""
    script = lively(60, pauses=False)
    write_with_snapshots(tmp_path, script, len(script.records))
    left = _cut_back(tmp_path, 3)
    journal = open_journal(tmp_path, files=QUICK)
    survived = Script(pauses=False)
    survived.state = journal.recover()[SPACE]
    survived.records = list(script.records[:left])
    survived.now = script.now
    while len(survived.records) < len(script.records) + 20:
        survived.send("ann", "chat", text="after")
    write(journal, [(SPACE, record) for record in survived.records[left:]])
    abandon(journal)
    assert records(tmp_path) == survived.records
    assert _recovered(tmp_path) == _state_of(survived.records)


def test_a_snapshot_that_was_ahead_lets_nothing_be_pruned(tmp_path: Path) -> None:
    script = lively(120, pauses=False)
    write_with_snapshots(tmp_path, script, len(script.records), segment_bytes=SEGMENT)
    left = _cut_back(tmp_path, 1)
    journal = open_journal(tmp_path, files=QUICK, segment_bytes=SEGMENT)
    journal.prune(
        plan_pruning(journal.root, Retention(max_bytes=1), now=0, partitions=1, snapshots=journal.snapshot_offsets())
    )
    abandon(journal)
    assert _recovered(tmp_path) == _state_of(script.records[:left])


def test_without_a_usable_snapshot_a_pruned_journal_is_refused(tmp_path: Path) -> None:
    """The state was pruned with the records: a start from the rest alone would be a wrong one."""
    script = lively(150, pauses=False)
    write_with_snapshots(tmp_path, script, 100, segment_bytes=SEGMENT)
    journal = open_journal(tmp_path, files=QUICK)
    journal.prune(
        plan_pruning(journal.root, Retention(max_bytes=1), now=0, partitions=1, snapshots=journal.snapshot_offsets())
    )
    assert journal.identity.pruned[0] > 0
    journal.close()
    assert _recovered(tmp_path) == _state_of(script.records)
    for file in (tmp_path / "journal/p0").glob("snapshot-*.json"):
        file.write_bytes(b"damaged")
    with pytest.raises(JournalError):
        _recovered(tmp_path)


def test_only_the_newest_snapshots_are_kept(tmp_path: Path) -> None:
    script = lively(120)
    write_with_snapshots(tmp_path, script, 20, 40, 60, 80)
    names = sorted(file.name for file in (tmp_path / "journal/p0").glob("snapshot-*"))
    assert names == [f"snapshot-{at:020d}.json" for at in (60, 80)]
