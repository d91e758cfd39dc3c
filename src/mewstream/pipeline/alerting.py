"""Somebody is told of findings, as soon as the batch that has them is committed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from mewstream.pipeline.committing import Tables
from mewstream.pipeline.files import DataFile
from mewstream.pipeline.tables import AUDIT

Row = dict[str, Any]
Tell = Callable[[list[Row]], bool]
"""Gets rows of the table ``audit``, and says whether they reached somebody."""
#: More than so many at once are not told, for they say the same: look into the table.
MOST_TOLD = 1000
_TOLD = "mewstream-told"


class Alerts:
    """Up to which batch findings were told is remembered in the table ``audit`` itself. So whoever is killed between a
    commit and the telling tells it at the next start, and what reached nobody is told again with what comes next. What
    was found before anybody wanted to be told is not told."""

    def __init__(self, tables: Tables, tell: Tell) -> None:
        self._tables = tables
        self._log = tables.logs[AUDIT.name]
        self._tell = tell
        self._untold: list[Row] = []
        told, found = self._log.committed(_TOLD), self._log.committed()
        if told < 0:
            self._log.commit([], transactions={_TOLD: max(0, found)})
        elif told < found:
            self._told(self._after(told), found)

    def found(self, files: Sequence[DataFile], batch: int) -> None:
        """A batch is committed that has written these files of the table."""
        self._told(self._rows(files), batch)

    def _told(self, findings: Iterator[Row], batch: int) -> None:
        self._untold += itertools.islice(findings, MOST_TOLD - len(self._untold))
        if not self._untold or self._tell(self._untold):
            self._log.commit([], transactions={_TOLD: batch})
            self._untold = []

    def _after(self, batch: int) -> Iterator[Row]:
        """The findings of later batches, whatever files they are in by now."""
        commits = self._tables.commits.delta.to_pyarrow_table(columns=["batch", "versions"])
        rows = commits.filter(pc.equal(commits.column("batch"), batch)).to_pylist(maps_as_pydicts="strict")
        files = self._log.files(rows[0]["versions"][AUDIT.name]) if rows else []
        known = {tuple(row[key] for key in AUDIT.keys) for row in self._rows(files)}
        return (row for row in self._rows(self._log.files()) if tuple(row[key] for key in AUDIT.keys) not in known)

    def _rows(self, files: Sequence[DataFile]) -> Iterator[Row]:
        filesystem = self._log.store.filesystem(AUDIT.name)
        return (row for file in files for row in pq.read_table(file.path, filesystem=filesystem).to_pylist())
