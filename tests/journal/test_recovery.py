"""A start finds what was committed: after a crash anywhere, with or without snapshots, pruned or not."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
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
    copy,
    entries,
    lively,
    make_journal,
    memory_directory,
    open_journal,
    records,
    segment_files,
    write,
)

from mewstream.journal import listing
from mewstream.journal.errors import JournalError, JournalInUse, PositionGone
from mewstream.journal.files import Files
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.journal.reader_sets import SetsInForce
from mewstream.journal.retention import Retention, commit_consumer, consumers, plan_pruning
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


def _with_snapshots(data: Path, script: Script, *at: int, **options: object) -> None:
    journal = open_journal(data, files=QUICK, **options)
    place = 0
    for end in (*at, len(script.records)):
        write(journal, [(SPACE, record) for record in script.records[place:end]])
        if end in at:
            state = fold(SPACE, script.records[:end])
            journal.write_snapshot(*journal.encode_snapshot(0, {SPACE: state}))
        place = end
    for partition, name in journal.segments_to_seal():
        partition.seal(name)
    journal.close()


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
        _with_snapshots(data, script, place, segment_bytes=9000)
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
    _with_snapshots(tmp_path, script, 30, 60, segment_bytes=9000)
    older, newest = sorted((tmp_path / "journal/p0").glob("snapshot-*.json"))
    for content in (b"", b"x", newest.read_bytes()[:-1], newest.read_bytes()[:9] + b"{}", b"00000000\n{}"):
        newest.write_bytes(content)
        caplog.clear()
        assert _recovered(tmp_path) == _state_of(script.records)
        assert f"{newest.name} is not used" in caplog.text
    older.write_bytes(b"")
    assert _recovered(tmp_path) == _state_of(script.records)


def test_a_snapshot_of_another_journal_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _with_snapshots(tmp_path / "a", lively(60, seed=1, pauses=False), 30)
    script = lively(60, seed=2, pauses=False)
    _with_snapshots(tmp_path / "b", script)
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
    _with_snapshots(tmp_path, script, len(script.records))
    left = _cut_back(tmp_path, 3)
    assert left < len(script.records)
    assert _recovered(tmp_path) == _state_of(script.records[:left])
    assert "ahead of the journal" in caplog.text


def test_a_snapshot_that_was_ahead_is_never_used_later(tmp_path: Path) -> None:
    """It describes records that did not survive: when the log has grown past its offset, it still does."""
    script = lively(60, pauses=False)
    _with_snapshots(tmp_path, script, len(script.records))
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
    _with_snapshots(tmp_path, script, len(script.records), segment_bytes=SEGMENT)
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
    _with_snapshots(tmp_path, script, 100, segment_bytes=SEGMENT)
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
    _with_snapshots(tmp_path, script, 20, 40, 60, 80)
    names = sorted(file.name for file in (tmp_path / "journal/p0").glob("snapshot-*"))
    assert names == [f"snapshot-{at:020d}.json" for at in (60, 80)]


# -- retention ------------------------------------------------------------------------------------


class Prunable:
    def __init__(self, data: Path, *, snapshot_at: int | None = None) -> None:
        self.script = lively(200, pauses=False)
        self.made = self.script.records
        _with_snapshots(data, self.script, *([snapshot_at] if snapshot_at else []), segment_bytes=SEGMENT)
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
    assert prunable.journal.recover() == _state_of(prunable.made)


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


# -- readers beside the writer --------------------------------------------------------------------


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


# -- one writer -----------------------------------------------------------------------------------


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
