"""Erasing one space: its rows become tombstones, and nothing else of it is kept.

A tombstone keeps offset, space, seq, epoch and ts, so that the numbers stay gap-free and the range stays marked;
``record`` and ``outcome`` are ``erased``, everything else is null. A reader sees an
:class:`~mewstream.journal.schema.UnknownRecord`, which has no effect on the state.

If it is interrupted, the journal is sound, and erasing again completes it: the snapshot without the space is written
first, so that no start applies a log that is partly erased.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.journal.files import Files
from mewstream.journal.listing import list_segments
from mewstream.journal.local import LocalJournal, snapshot_files
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.reader_sets import SetsInForce
from mewstream.journal.schema import SCHEMA
from mewstream.journal.sealing import remove_segment, write_again
from mewstream.journal.segments import Segment, SegmentName
from mewstream.protocol.state import SpaceState

ERASED = "erased"
_LOCAL = fs.LocalFileSystem()
_KEPT = frozenset({"offset", "space", "seq", "epoch", "ts"})
_MARKED = frozenset({"record", "outcome"})


@dataclass(slots=True)
class Survey:
    """What the journal has of a space. ``records`` counts those that are not erased yet."""

    space: str
    partition: int
    records: int = 0
    erased: int = 0
    segments: list[Segment] = field(default_factory=list)
    has_state: bool = False
    set_aside: list[Path] = field(default_factory=list)
    """Files with the bytes of damaged batches, which may hold records of any space."""

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.erased or self.has_state)


def refuse_damaged(reader: JournalReader) -> None:
    """Raise :class:`CorruptJournal` if an index is damaged, before anything is changed. An incomplete entry at the very
    end is not damage: its batch was never committed."""
    for number in range(reader.identity().partitions):
        segments = reader.segments(number)
        for segment in segments:
            if segment.flaw is not None and not (segment.is_torn and segment is segments[-1]):
                raise segment.damage()


def survey(journal: LocalJournal, space: str, states: dict[str, SpaceState]) -> Survey:
    """Read everything that may hold a record of the space. Raises :class:`CorruptJournal` for a damaged batch."""
    number = partition_of(space, len(journal.partitions))
    found = Survey(space, number, has_state=space in states)
    for batch in journal.reader.batches(number, journal.identity.pruned.get(number, 0)):
        own = batch.rows.filter(pc.equal(batch.rows.column("space"), space))
        gone = pc.sum(pc.equal(own.column("record"), ERASED)).as_py() or 0
        found.erased += gone
        if own.num_rows > gone:
            found.records += own.num_rows - gone
            if not found.segments or found.segments[-1].name != batch.segment.name:
                found.segments.append(batch.segment)
    found.set_aside = sorted((journal.root / f"p{number}").glob("*.bad"))
    return found


def erase(
    journal: LocalJournal,
    space: str,
    states: dict[str, SpaceState],
    *,
    files: Files | None = None,
    progress: Callable[[Segment], None] = lambda segment: None,
) -> Survey:
    """Erase a space, and return what there was of it. ``states`` is the result of :meth:`LocalJournal.recover`. Nothing
    may be appended meanwhile."""
    files = files or Files()
    number = partition_of(space, len(journal.partitions))
    partition = journal.partitions[number]
    directory = journal.root / f"p{number}"
    found = survey(journal, space, states)

    active = SegmentName(journal.reader.segments(number)[-1].name.first_offset, sealed=False)
    if any(segment.name == active for segment in found.segments):
        partition.roll()
    before = states.get(space)
    if before is not None:
        # The state that tombstones alone lead to: numbers and time continue from the last record.
        states = {**states, space: SpaceState(space, seq=before.seq, ts=before.ts)}
    file, data = journal.encode_snapshot(number, states)
    journal.write_snapshot(file, data)
    for other in snapshot_files(directory):
        if other != file:
            files.remove(other)

    carried = journal.carried_sets(number)
    if carried.sets.pop(space, None) is not None:
        files.replace(directory / SetsInForce.file_name(carried.offset), carried.encode())

    for segment in found.segments:
        _erase_in(files, segment, space)
        progress(segment)
    # Files that a crash has left, of a sealing or a snapshot, may hold records of the space too.
    for closed in partition.closed:
        partition.seal(closed)
    partition.closed = []
    named = {segment.name.data_file for segment in journal.reader.segments(number)}
    for stray in [*directory.glob("*.tmp"), *directory.glob("*.sealed.arrow"), *directory.glob("*.sealed.spaces")]:
        if stray.with_suffix(".arrow").name not in named:
            files.remove(stray)
    files.sync_directory(directory)
    return found


def _erase_in(files: Files, segment: Segment, space: str) -> None:
    """Replace a segment by one without the space. The two files of a segment cannot be replaced atomically. But a
    segment counts in its sealed form if it has one, and otherwise as it was written: so the new one is made in the
    other form, and takes effect when one index appears or disappears."""

    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        return with_tombstones(rows, space)

    first = segment.name.first_offset
    sealed, unsealed = SegmentName(first, sealed=True), SegmentName(first, sealed=False)
    if segment.name.sealed:
        write_again(files, segment, unsealed, change)
        remove_segment(files, segment)
        files.sync_directory(Path(segment.directory))
        (segment,) = [each for each in list_segments(_LOCAL, segment.directory) if each.name == unsealed]
    write_again(files, segment, sealed, change)
    remove_segment(files, segment)


def with_tombstones(rows: pa.RecordBatch, space: str) -> pa.RecordBatch:
    """Return the rows with those of a space erased."""
    mine = pc.equal(rows.column("space"), space)
    places = pc.subtract(rows.column("offset"), rows.column("offset")[0])
    # `if_else` with a null would mark the values as null but leave their bytes in the buffer. `take` with a null index
    # copies nothing.
    others = pc.if_else(mine, pa.scalar(None, pa.int64()), places)
    columns = []
    for each in SCHEMA:
        column = rows.column(each.name)
        if each.name in _MARKED:
            column = pc.fill_null(column.take(others), ERASED)
        elif each.name not in _KEPT:
            column = column.take(others)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
