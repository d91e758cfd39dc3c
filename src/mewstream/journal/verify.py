"""Verifying a journal: everything is read and compared, and all problems are reported.

A gateway may be writing meanwhile. What a crash or a running gateway leaves behind without harm (an uncommitted tail, a
segment in both of its forms) is a note, not a problem.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.journal.erase import ERASING_FILE, begun_erase
from mewstream.journal.errors import CorruptJournal, JournalError
from mewstream.journal.identity import IDENTITY_FILE, Identity
from mewstream.journal.interface import Entry
from mewstream.journal.listing import list_once, list_segments, open_segment
from mewstream.journal.local import newest_snapshot, read_snapshot, snapshot_files, snapshot_name
from mewstream.journal.positions import SegmentSpaces
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.reader_sets import SetsInForce, changes_in
from mewstream.journal.retention import consumers
from mewstream.journal.segments import BatchEntry, Segment, SegmentName, read_batch, read_segment, schema_of

_LOCAL = fs.LocalFileSystem()
_PARTITION = re.compile(r"p(\d+)\Z")
_SEGMENT_FILE = re.compile(r"(\d{20})(\.sealed)?\.(arrow|index|spaces)\Z")


class Problem(NamedTuple):
    """One thing that is wrong, and where, as far as that is known. A note is worth reporting and does no harm."""

    what: str
    file: str | None = None
    offset: int | None = None
    space: str | None = None
    seq: int | None = None
    is_note: bool = False

    def __str__(self) -> str:
        place = [self.file] if self.file is not None else []
        if self.offset is not None:
            place.append(f"offset {self.offset}")
        if self.space is not None:
            place.append(f"space {self.space!r}")
        if self.seq is not None:
            place.append(f"seq {self.seq}")
        return ": ".join([*place, self.what])


class LastRecord(NamedTuple):
    """The last record of a space so far."""

    seq: int
    ts: int
    run: int


class _Snapshot(NamedTuple):
    file: str
    offset: int
    spaces: dict[str, tuple[int, int]]
    """The seq and the time of the last record of each space."""


class Verification:
    """Verifies a whole journal once. ``advance`` is called with the bytes that were read, out of ``total_bytes``."""

    def __init__(self, root: Path, *, advance: Callable[[int], None] = lambda size: None) -> None:
        self._root = root
        self._reader = JournalReader(root)
        self.advance = advance
        self.journal = ""
        self.partitions = self.segments = self.records = self.erased = self.snapshots = 0
        self.spaces: dict[str, LastRecord] = {}

    @property
    def total_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._root.glob("p*/*.arrow"))

    def run(self) -> Iterator[Problem]:
        """Yield every problem as it is found. Raises :class:`JournalError` if there is no journal."""
        present = {int(match[1]) for each in self._root.glob("p*") if (match := _PARTITION.match(each.name))}
        identity: Identity | None = None
        try:
            identity = self._reader.identity()
        except JournalError as flaw:
            if not present:
                raise
            yield Problem(str(flaw), str(self._root / IDENTITY_FILE))
        self.partitions = identity.partitions if identity is not None else max(present) + 1
        self.journal = identity.id if identity is not None else ""
        for number in sorted(present - set(range(self.partitions))):
            yield Problem(f"a partition too many: the journal has {self.partitions}", self._reader.directory(number))
        if begun := begun_erase(self._root):
            yield Problem("an erase was interrupted: erase it again", str(self._root / ERASING_FILE), space=begun.space)
        for number in range(self.partitions):
            yield from self._partition(number, identity)
        yield from self._consumers()

    # -- a partition ------------------------------------------------------------------------------

    def _partition(self, number: int, identity: Identity | None) -> Iterator[Problem]:
        directory = self._root / f"p{number}"
        snapshots: list[_Snapshot] = []
        # Before the segments, so that no snapshot can be ahead of them.
        yield from self._read_snapshots(number, identity, snapshots)
        pruned = 0

        def begins_at() -> int:
            nonlocal pruned
            pruned = self.begins_at(number)
            return pruned

        segments = list_segments(_LOCAL, str(directory), begins_at)
        yield from _left_from_pruning(directory, self.begins_at(number))
        yield from _lasting_strays(directory)
        if not segments:
            yield Problem("every segment is missing", str(directory), pruned)
            return
        sets = SetsInForce(self.journal, pruned)
        if pruned:
            try:
                sets = SetsInForce.parse((directory / SetsInForce.file_name(pruned)).read_bytes())
            except FileNotFoundError:
                pass  # an older version pruned it, or it is being pruned again
            except (OSError, ValueError) as flaw:
                yield Problem(str(flaw), str(directory / SetsInForce.file_name(pruned)))
        walk = _Walk(self, number, pruned, snapshots, sets)
        expected = pruned
        for segment in segments:
            self.segments += 1
            first = segment.name.first_offset
            if first > expected:
                walk.has_holes = True
                yield Problem(f"records {expected} to {first - 1} are missing", segment.data_path, expected)
            elif first < expected:
                yield Problem(f"repeats records {first} to {expected - 1}", segment.data_path, first)
            yield from walk.segment(segment, is_last=segment is segments[-1])
            expected = max(expected, segment.next_offset)
        yield from walk.compare_snapshots(expected)
        for snapshot in snapshots:
            if snapshot.offset > expected:
                yield Problem(f"is ahead of the journal, which ends at {expected}", snapshot.file, snapshot.offset)
        if pruned and not any(pruned <= each.offset <= expected for each in snapshots):
            what = f"no sound snapshot from {pruned} on, where the journal begins: a start cannot know the state"
            yield Problem(what, str(directory))

    def begins_at(self, number: int) -> int:
        """Return the first offset of a partition that was not pruned, or 0 if that is not known."""
        try:
            return self._reader.identity().pruned.get(number, 0)
        except JournalError:
            return 0

    # -- snapshots and consumers ------------------------------------------------------------------

    def _read_snapshots(self, number: int, identity: Identity | None, found: list[_Snapshot]) -> Iterator[Problem]:
        """Add the sound snapshots of a partition to ``found``."""
        for file in snapshot_files(self._root / f"p{number}"):
            self.snapshots += 1
            try:
                offset, states = read_snapshot(file, identity.id if identity is not None else "")
            except FileNotFoundError:
                continue  # an older snapshot that was removed meanwhile
            except (OSError, ValueError) as flaw:
                if identity is not None:
                    yield Problem(str(flaw), str(file))
                continue
            if file.name != snapshot_name(offset):
                yield Problem("its name does not fit its content", str(file), offset)
                continue
            for space in states:
                if partition_of(space, self.partitions) != number:
                    yield Problem(f"does not belong into partition {number}", str(file), offset, space)
            spaces = {space: (state.seq, state.ts) for space, state in states.items()}
            found.append(_Snapshot(str(file), offset, spaces))

    def _end(self, number: int) -> int:
        segments = list_segments(_LOCAL, self._reader.directory(number))
        return segments[-1].next_offset if segments else 0

    def _consumers(self) -> Iterator[Problem]:
        try:
            named = consumers(self._root)
        except JournalError as flaw:
            yield Problem(str(flaw))
            return
        for name, consumer in named.items():
            for number, offset in consumer.offsets.items():
                file = str(self._root / "consumers" / f"{name}.json")
                if number >= self.partitions:
                    yield Problem(f"consumer {name!r} reads partition {number}, which is not there", file)
                elif offset > (end := self._end(number)):
                    what = f"consumer {name!r} is ahead of partition {number}, which ends at {end}"
                    yield Problem(what, file, offset)


class _Walk:
    """Verifies the rows of one partition, batch by batch."""

    def __init__(
        self, whole: Verification, number: int, pruned: int, snapshots: list[_Snapshot], sets: SetsInForce
    ) -> None:
        self._whole = whole
        self._number = number
        self._pruned = pruned
        self._snapshots = sorted((each for each in snapshots if each.offset >= pruned), key=lambda each: each.offset)
        self._last: dict[str, LastRecord] = {}
        self._sets = sets
        self.has_holes = False
        """Whether something could not be read, so that what follows cannot be compared with all that was before."""

    def segment(self, segment: Segment, *, is_last: bool) -> Iterator[Problem]:
        opened = open_segment(_LOCAL, segment)
        if opened is None:
            self.has_holes = True
            if segment.name.first_offset < self._whole.begins_at(self._number):
                # The partition begins after this segment now.
                self._last.clear()
                self._pruned = max(self._pruned, segment.next_offset)
            else:
                yield Problem("is missing, its index is there", segment.data_path, segment.name.first_offset)
            return
        segment, source = opened
        with source:
            if segment.flaw is not None:
                torn = is_last and not segment.name.sealed and segment.is_torn
                self.has_holes = self.has_holes or not torn
                yield Problem(segment.flaw.what, segment.data_path, segment.next_offset, is_note=torn)
            if segment.batches:
                try:
                    schema = schema_of(source, segment, segment.batches[0])
                except CorruptJournal as flaw:
                    self.has_holes = True
                    yield Problem(flaw.what, segment.data_path, segment.name.first_offset)
                    return
            spaces = SegmentSpaces()
            for entry in segment.batches:
                yield from self._batch(source, segment, entry, schema, spaces)
                self._whole.advance(entry.length)
            yield from _compare_spaces(segment, spaces)
            surplus = source.size() - segment.committed_bytes if segment.batches else 0
            if surplus > 0 and segment.flaw is None:
                # The segment has grown meanwhile, its tail is torn, or a failed write has left something.
                what = f"{surplus} bytes after the last committed batch"
                yield Problem(what, segment.data_path, segment.next_offset, is_note=not segment.name.sealed)

    def _batch(
        self, source: pa.NativeFile, segment: Segment, entry: BatchEntry, schema: pa.Schema, spaces: SegmentSpaces
    ) -> Iterator[Problem]:
        try:
            rows = read_batch(source, segment, entry, schema)
            spaces.add(rows)
        except CorruptJournal as flaw:
            spaces.add_damaged(flaw)
            self.has_holes = True
            what = f"{flaw.what} (offsets {entry.first_offset} to {entry.last_offset})"
            yield Problem(what, segment.data_path, entry.first_offset)
            return
        times = rows.column("ts").cast(pa.int64()).to_pylist()
        offsets = rows.column("offset").to_pylist()
        named = list(range(entry.first_offset, entry.last_offset + 1))
        if offsets != named:
            what = f"the index names offsets {named[0]} to {named[-1]}, the batch holds {rows.num_rows} others"
            if offsets and offsets[0] == named[0] and len(offsets) == len(named):
                what = "the offsets of this batch are not gap-free"
            yield Problem(what, segment.data_path, entry.first_offset)
        elif times[-1] != entry.last_ts:
            yield Problem("the index has another time for this batch", segment.data_path, entry.last_offset)
        self._whole.records += rows.num_rows
        columns = (rows.column(name).to_pylist() for name in ("space", "seq", "epoch", "record"))
        for offset, ts, space, seq, epoch, record in zip(offsets, times, *columns, strict=True):
            if self._snapshots and self._snapshots[0].offset <= offset:
                yield from self.compare_snapshots(offset)
            if record == "erased":
                self._whole.erased += 1
            for what in self._row(space, seq, ts, epoch):
                yield Problem(what, segment.data_path, offset, space, seq)
        yield from self._references(segment, rows)

    def _references(self, segment: Segment, rows: pa.RecordBatch) -> Iterator[Problem]:
        """Check that each frame names the record that made the reader set in force at its place."""
        frames = rows.filter(pc.is_valid(rows.column("readers_seq")))
        frames = frames.select(["offset", "space", "seq", "stream_id", "readers_seq"]).to_pylist()
        changes = changes_in(rows)
        for item in sorted([*frames, *changes], key=_offset_of):
            if isinstance(item, Entry):
                self._sets.apply(item)
                continue
            made_by, _ = self._sets.sets.get(item["space"], {}).get(item["stream_id"], (None, ()))
            if made_by != item["readers_seq"] and not self.has_holes:
                found = f"those of seq {made_by}" if made_by is not None else "none"
                what = f"is for the readers of seq {item['readers_seq']}, and in force were {found}"
                yield Problem(what, segment.data_path, item["offset"], item["space"], item["seq"])

    def _row(self, space: str, seq: int, ts: int, epoch: str) -> Iterator[str]:
        before = self._last.get(space)
        journal, _, rest = epoch.partition("-")
        digits = rest.partition("-")[0]
        run = int(digits) if digits.isdecimal() else 0
        if before is None:
            if seq != 1 and not self._pruned:
                yield f"the space begins here: seq 1 to {seq - 1} are missing"
            if partition_of(space, self._whole.partitions) != self._number:
                yield f"does not belong into partition {self._number}"
        else:
            if seq > before.seq + 1:
                yield f"seq {before.seq + 1} to {seq - 1} are missing"
            elif seq <= before.seq:
                yield f"seq runs back: {before.seq} came before it"
            if ts < before.ts:
                yield f"time runs back by {before.ts - ts} microseconds"
            if run < before.run:
                yield f"written by run {run} of the gateway, after run {before.run}"
        if self._whole.journal and journal != self._whole.journal[:8] and (before is None or run != before.run):
            yield f"written under epoch {epoch}, which is of another journal"
        self._last[space] = self._whole.spaces[space] = LastRecord(seq, ts, run)

    def compare_snapshots(self, offset: int) -> Iterator[Problem]:
        """Compare the snapshots up to ``offset`` with the log at their offsets."""
        while self._snapshots and self._snapshots[0].offset <= offset:
            snapshot = self._snapshots.pop(0)
            for space, position in self._last.items():
                seq, ts = snapshot.spaces.get(space, (0, 0))
                if seq < position.seq or (seq > position.seq and not self.has_holes):
                    what = f"holds the space at seq {seq}, the log is at {position.seq} there"
                    yield Problem(what, snapshot.file, snapshot.offset, space, seq)
                elif seq == position.seq and ts != position.ts:
                    what = "holds another time for this seq than the log"
                    yield Problem(what, snapshot.file, snapshot.offset, space, seq)
            if not self._pruned and not self.has_holes:
                for space in snapshot.spaces.keys() - self._last.keys():
                    yield Problem("holds a space that the log does not know", snapshot.file, snapshot.offset, space)


def _offset_of(item: Entry | dict[str, Any]) -> int:
    return item.offset if isinstance(item, Entry) else int(item["offset"])


def _compare_spaces(segment: Segment, spaces: SegmentSpaces) -> Iterator[Problem]:
    """Check the index by space of a sealed segment. It only saves time, but a wrong one would hide records."""
    if not segment.name.sealed:
        return
    path = Path(segment.directory) / segment.name.spaces_file
    try:
        written = path.read_bytes()
        SegmentSpaces.parse(written)
    except FileNotFoundError:
        return  # an older version sealed it
    except (OSError, ValueError) as flaw:
        yield Problem(str(flaw), str(path), is_note=True)
        return
    if not spaces.has_damaged and written != spaces.encode():
        yield Problem("does not say what the segment holds", str(path), segment.name.first_offset)


def _left_from_pruning(directory: Path, begins_at: int) -> Iterator[Problem]:
    for segment in list_once(_LOCAL, str(directory)):
        if segment.name.first_offset < begins_at and segment.next_offset <= begins_at and segment.batches:
            what = f"left from pruning, which ended before {begins_at}: the next start removes it"
            yield Problem(what, segment.data_path, segment.name.first_offset, is_note=True)


def _lasting_strays(directory: Path) -> list[Problem]:
    """Return the problems that do not go away by themselves: a segment may be sealed or pruned meanwhile."""
    for pause in (0.0, 0.01, 0.05):
        time.sleep(pause)
        found = list(_strays(directory))
        if all(problem.is_note for problem in found):
            break
    return found


def _strays(directory: Path) -> Iterator[Problem]:
    """Yield the files of segments that do not count, and why."""
    files: dict[tuple[int, bool], set[str]] = {}
    for each in directory.iterdir() if directory.is_dir() else ():
        if match := _SEGMENT_FILE.match(each.name):
            files.setdefault((int(match[1]), match[2] is not None), set()).add(match[3])
        elif each.suffix == ".bad":
            yield Problem("bytes of a damaged batch that a start has set aside", str(each), is_note=True)
    for (first, sealed), kinds in sorted(files.items()):
        other = files.get((first, not sealed), set())
        path = str(directory / SegmentName(first, sealed).data_file)
        if kinds == {"spaces"}:
            yield Problem("left from a segment that is gone: the next start removes it", path, first, is_note=True)
        elif sealed and "index" not in kinds:
            if other >= {"arrow", "index"}:
                yield Problem("a sealing that did not come to its end", path, first, is_note=True)
            else:
                yield Problem("the index of this segment is missing", path, first)
        elif not sealed and "index" in other and Path(path).exists():
            yield from _both_forms(directory, first, path)


def _both_forms(directory: Path, first: int, path: str) -> Iterator[Problem]:
    """Check a segment that exists in both forms: a crash came after it was sealed and before the other was removed."""
    unsealed, sealed = (read_segment(_LOCAL, str(directory), SegmentName(first, form)) for form in (False, True))
    if unsealed.next_offset > sealed.next_offset:
        ends = f"{sealed.next_offset - 1} and not at {unsealed.next_offset - 1}"
        yield Problem(f"is there in its sealed form too, which ends at {ends}", path, first)
    elif unsealed.batches:  # otherwise it is being removed
        what = "is there in its sealed form too, which counts: the next start removes this one"
        yield Problem(what, path, first, is_note=True)


def sound_snapshots(root: Path, identity: Identity) -> dict[int, int]:
    """Return the offset of the newest snapshot of each partition that a start could use, or 0."""
    reader = JournalReader(root)
    return {
        number: newest_snapshot(root / f"p{number}", identity.id, reader.next_offset(number))
        for number in range(identity.partitions)
    }
