"""Erasing one space: its rows become tombstones, and nothing else of it is kept.

A tombstone keeps offset, seq, epoch and ts, so that the numbers stay gap-free and the range stays marked. A hash
replaces the space, ``record`` and ``outcome`` are ``erased``, everything else is null. A reader sees an
:class:`~mewstream.journal.schema.UnknownRecord` of a space that nobody serves. If the space is served again, it is a
new space: it begins with ``seq`` 1, in an epoch that no earlier position can name.

While an erase is under way, there is a file ``erasing.json``. If it was interrupted, no gateway starts, because what is
left of the log cannot be applied; erasing again completes it, with the same hash.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from mewstream.journal.errors import JournalError
from mewstream.journal.files import Files
from mewstream.journal.listing import list_segments
from mewstream.journal.local import LocalJournal, snapshot_files, snapshot_name
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.reader_sets import SetsInForce
from mewstream.journal.rewriting import remove_segment, write_again
from mewstream.journal.schema import SCHEMA
from mewstream.journal.segments import Segment, SegmentName
from mewstream.protocol.state import SpaceState

ERASED = "erased"
ERASING_FILE = "erasing.json"
_LOCAL = fs.LocalFileSystem()
_KEPT = frozenset({"offset", "seq", "epoch", "ts"})
_MARKED = frozenset({"record", "outcome"})


class Begun(msgspec.Struct, frozen=True):
    """An erase that is not complete."""

    space: str
    mark: str
    """The name that replaces the space."""


def begun_erase(root: Path) -> Begun | None:
    """Return the erase that was interrupted in a journal, or None."""
    try:
        return msgspec.json.decode((root / ERASING_FILE).read_bytes(), type=Begun)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, OSError) as flaw:
        raise JournalError(f"{root / ERASING_FILE} cannot be read: {flaw}") from None


def refuse_half_erased(root: Path) -> None:
    """Raise :class:`JournalError` if an erase was interrupted."""
    if begun := begun_erase(root):
        raise JournalError(
            f"erasing space {begun.space!r} from {root} was interrupted: complete it with "
            f"`mewstream journal erase --data {root.parent} --space {begun.space}`"
        )


@dataclass(slots=True)
class Survey:
    """What the journal has of a space."""

    space: str
    partition: int
    records: int = 0
    first_offset: int = 0
    """The offset of the first of these records."""
    segments: list[Segment] = field(default_factory=list)
    has_state: bool = False
    set_aside: list[Path] = field(default_factory=list)
    """Files with the bytes of damaged batches, which may hold records of any space."""
    begun: Begun | None = None
    """An erase of this space that was interrupted."""

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.has_state or self.begun)


def erased_name(journal: str, space: str, first_offset: int, partitions: int) -> str:
    """Return the name that replaces a space in its tombstones: a hash that belongs to the same partition. Each erased
    range has its own, because the space may be served again and erased again."""
    number = partition_of(space, partitions)
    for attempt in itertools.count():
        told = f"{journal}\n{space}\n{first_offset}\n{attempt}".encode()
        name = f"{ERASED}-{hashlib.sha256(told).hexdigest()[:24]}"
        if partition_of(name, partitions) == number:
            return name
    raise AssertionError("every partition has names")


def refuse_damaged(reader: JournalReader) -> None:
    """Raise :class:`CorruptJournal` if an index is damaged, before anything is changed. An incomplete entry at the very
    end is not damage: its batch was never committed."""
    for number in range(reader.identity().partitions):
        segments = reader.segments(number)
        for segment in segments:
            if segment.flaw is not None and not (segment.is_torn and segment is segments[-1]):
                raise segment.damage()


def survey(journal: LocalJournal, space: str, states: dict[str, SpaceState]) -> Survey:
    """Read everything that may hold a record of the space. Raises :class:`CorruptJournal` for a damaged batch, and
    :class:`JournalError` if an erase of another space was interrupted."""
    number = partition_of(space, len(journal.partitions))
    begun = begun_erase(journal.root)
    if begun is not None and begun.space != space:
        refuse_half_erased(journal.root)
    found = Survey(space, number, has_state=space in states, begun=begun)
    for batch in journal.reader.batches(number, journal.identity.pruned.get(number, 0)):
        own = batch.rows.filter(pc.equal(batch.rows.column("space"), space))
        if own.num_rows:
            found.first_offset = found.first_offset if found.records else own.column("offset")[0].as_py()
            found.records += own.num_rows
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
    mark = erased_name(journal.identity.id, space, found.first_offset, len(journal.partitions))
    mark = found.begun.mark if found.begun else mark
    files.replace(journal.root / ERASING_FILE, msgspec.json.encode(Begun(space, mark)))
    before = states.get(space)
    if before is not None:
        # The state that tombstones alone lead to, under the name that they have.
        others = {name: state for name, state in states.items() if name != space}
        states = {**others, mark: SpaceState(mark, seq=before.seq, ts=before.ts)}
    journal.prepare_snapshot(number, states)()
    for other in snapshot_files(directory):
        if other.name != snapshot_name(partition.end_offset):
            files.remove(other)

    carried = journal.carried_sets(number)
    if carried.sets.pop(space, None) is not None:
        files.replace(directory / SetsInForce.file_name(carried.offset), carried.encode())

    for segment in found.segments:
        _erase_in(files, segment, space, mark)
        progress(segment)
    remove_strays(journal, number, files=files)
    files.remove(journal.root / ERASING_FILE)
    files.sync_directory(journal.root)
    return found


def remove_strays(journal: LocalJournal, number: int, *, files: Files | None = None) -> None:
    """Remove the files of a sealing or a snapshot that a crash has left: they may hold records of the space too."""
    files = files or Files()
    partition, directory = journal.partitions[number], journal.root / f"p{number}"
    for closed in partition.closed:
        partition.seal(closed)
    partition.closed = []
    named = {segment.name.data_file for segment in journal.reader.segments(number)}
    for stray in [*directory.glob("*.tmp"), *directory.glob("*.sealed.arrow"), *directory.glob("*.sealed.spaces")]:
        if stray.with_suffix(".arrow").name not in named:
            files.remove(stray)
    files.sync_directory(directory)


def _erase_in(files: Files, segment: Segment, space: str, mark: str) -> None:
    """Replace a segment by one without the space. The two files of a segment cannot be replaced atomically. But a
    segment counts in its sealed form if it has one, and otherwise as it was written: so the new one is made in the
    other form, and takes effect when one index appears or disappears."""

    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        return with_tombstones(rows, space, mark)

    first = segment.name.first_offset
    sealed, unsealed = SegmentName(first, sealed=True), SegmentName(first, sealed=False)
    if segment.name.sealed:
        write_again(files, segment, unsealed, change)
        remove_segment(files, segment)
        files.sync_directory(Path(segment.directory))
        (segment,) = [each for each in list_segments(_LOCAL, segment.directory) if each.name == unsealed]
    write_again(files, segment, sealed, change)
    remove_segment(files, segment)


def with_tombstones(rows: pa.RecordBatch, space: str, mark: str) -> pa.RecordBatch:
    """Return the rows with those of a space erased, and ``mark`` in its place."""
    mine = pc.equal(rows.column("space"), space)
    places = pa.array(range(rows.num_rows), pa.int64())
    # `if_else` with a null would mark the values as null but leave their bytes in the buffer. `take` with a null index
    # copies nothing.
    others = pc.if_else(mine, pa.scalar(None, pa.int64()), places)
    columns = []
    for each in SCHEMA:
        column = rows.column(each.name)
        if each.name in _MARKED:
            column = pc.fill_null(column.take(others), ERASED)
        elif each.name == "space":
            column = pc.fill_null(column.take(others), mark)
        elif each.name not in _KEPT:
            column = column.take(others)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
