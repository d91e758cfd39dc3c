"""The records of a batch, out of bronze: as rows for SQL, and as files for workers that take them as Arrow."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mewstream.journal.reader import partition_of
from mewstream.pipeline.arrow_work import Batches, Change, Work, unchanged
from mewstream.pipeline.files import DataFile, changed_file, holds
from mewstream.pipeline.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Ranges(msgspec.Struct, frozen=True):
    """A part of bronze: for each partition of the journal the offsets, the last one not included."""

    offsets: dict[int, tuple[int, int]]

    @property
    def records(self) -> int:
        return sum(end - start for start, end in self.offsets.values())

    def condition(self) -> str:
        """In SQL, over the columns of bronze."""
        number = f"pmod(crc32(CAST(space AS BINARY)), {len(self.offsets)})"
        each = (
            f"{number} = {at} AND offset >= {start} AND offset < {end}" for at, (start, end) in self.offsets.items()
        )
        return " OR ".join(f"({one})" for one in each)

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same for rows of Arrow."""
        spaces = rows.column("space").dictionary_encode()
        numbers = [partition_of(space, len(self.offsets)) for space in spaces.dictionary.to_pylist()]
        starts, ends = (pa.array([self.offsets[number][side] for number in numbers], pa.int64()) for side in (0, 1))
        offsets = rows.column("offset")
        after = pc.greater_equal(offsets, starts.take(spaces.indices))
        return rows.filter(pc.and_(after, pc.less(offsets, ends.take(spaces.indices))))


def portions(begin: dict[int, int], end: dict[int, int], most: int) -> Iterator[Ranges]:
    """Ranges of about ``most`` records, one after the other, over everything between two positions."""
    left = Ranges({number: (begin.get(number, 0), offset) for number, offset in end.items()})
    while left.records > 0:
        count = math.ceil(left.records / most)
        cut = {number: start + math.ceil((stop - start) / count) for number, (start, stop) in left.offsets.items()}
        yield Ranges({number: (start, cut[number]) for number, (start, _) in left.offsets.items()})
        left = Ranges({number: (cut[number], stop) for number, (_, stop) in left.offsets.items()})


class Bronze(NamedTuple):
    rows: DataFrame
    store: Store
    files: list[DataFile]
    ranges: Ranges | None = None
    """Where the files hold more than the batch: the part that is its own."""

    def changed(self, columns: tuple[str, ...], change: Change) -> list[Work]:
        """For each file what ``change`` makes of these columns, in a worker."""
        keep = None if self.ranges is None else self.ranges.kept
        read = columns if keep is None else tuple(dict.fromkeys([*columns, "offset", "space"]))
        return [
            functools.partial(changed_file, self.store, file, read, change, keep)
            for file in sorted(self.files, key=lambda file: file.path)
        ]

    def narrowed(self, columns: tuple[str, ...], change: Change, keeps: Sequence[Change]) -> list[Work]:
        """For each of ``keeps`` what ``change`` makes of these columns, of the rows of all files that it keeps."""
        files = sorted(self.files, key=lambda file: file.path)
        own = unchanged if self.ranges is None else self.ranges.kept
        return [functools.partial(_narrowed, self.store, files, columns, change, own, keep) for keep in keeps]


def _narrowed(
    store: Store, files: Sequence[DataFile], columns: tuple[str, ...], change: Change, own: Change, keep: Change
) -> Batches:
    def both(rows: pa.RecordBatch) -> pa.RecordBatch:
        return keep(own(rows))

    for file in files:
        if holds(store, file, keep):
            yield from changed_file(store, file, columns, change, both, with_dictionaries=False)
