"""Open rows, which a batch replaces: only those of the spaces that it touches.

A file of open rows that holds none of those spaces stays as it is. Of another one the rest is written again. So what
a batch costs does not depend on the spaces that are over, however many they are; to tell which file holds which space,
each is looked into once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mewstream.pipeline.arrow_work import Batches
from mewstream.pipeline.files import DataFile, files_told, read_file, write_files
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import IS_OPEN, Layout, Table

#: Files smaller than this are put together where there are so many of them.
_SMALL = 1 << 20
_MANY = 8


class Replaced(NamedTuple):
    gone: list[DataFile]
    made: list[DataFile]


class OpenRows:
    """Remembers which spaces each file holds, from batch to batch: a file never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spaces: dict[tuple[str, str], frozenset[str]] = {}

    def holding(self, files: Sequence[DataFile], spaces: Set[str]) -> list[DataFile]:
        """Those that hold any of these spaces."""
        return [file for file in files if not self._in(file).isdisjoint(spaces)]

    def without(self, table: Table, files: Sequence[DataFile], spaces: Set[str]) -> Replaced:
        """Which of the open files must go so that they have none of these spaces, and what comes in their place."""
        gone = self.holding(files, spaces)
        paths = {file.path for file in gone}
        small = [file for file in files if file.path not in paths and file.size < _SMALL]
        if len(small) >= _MANY:
            gone += small
        left = self._left(table, gone, spaces)
        for file in gone:
            self._spaces.pop((file.table, file.path), None)
        return Replaced(gone, files_told(write_files(self._store, [table.name], None, 0, left)))

    def _left(self, table: Table, files: Sequence[DataFile], spaces: Set[str]) -> Batches:
        erased = pa.array(sorted(spaces), pa.string())
        for file in files:
            if self._in(file) <= spaces:
                continue
            for rows in read_file(self._store, file, table.names):
                kept = rows.filter(pc.invert(pc.is_in(rows.column("space"), value_set=erased)))
                if table.layout is Layout.OPEN_AND_FINAL:
                    kept = kept.append_column(IS_OPEN.name, pa.repeat(pa.scalar(value=True), kept.num_rows))
                yield kept

    def of_spaces(self, table: Table, files: Sequence[DataFile], spaces: Set[str]) -> Iterator[dict[str, Any]]:
        """The open rows of these spaces. Times are microseconds."""
        wanted = pa.array(sorted(spaces), pa.string())
        for file in self.holding(files, spaces):
            for rows in read_file(self._store, file, table.names):
                yield from _in_micros(rows.filter(pc.is_in(rows.column("space"), value_set=wanted))).to_pylist()

    def _in(self, file: DataFile) -> frozenset[str]:
        key = (file.table, file.path)
        if key not in self._spaces:
            filesystem = self._store.filesystem(file.table)
            column = pq.read_table(file.path, filesystem=filesystem, columns=["space"]).column("space")
            self._spaces[key] = frozenset(pc.unique(column).to_pylist())
        return self._spaces[key]


def _in_micros(rows: pa.RecordBatch) -> pa.RecordBatch:
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            moments = rows.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            rows = rows.set_column(place, field.name, moments)
    return rows
