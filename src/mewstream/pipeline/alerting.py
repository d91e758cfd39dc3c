"""Somebody is told of findings, as soon as the batch that has them is committed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.parquet as pq

from mewstream.pipeline.committing import Tables
from mewstream.pipeline.files import DataFile
from mewstream.pipeline.tables import AUDIT

Tell = Callable[[list[dict[str, Any]]], bool]
"""Gets rows of the table ``audit``, and says whether they reached somebody."""
#: More than so many at once are not told, for they say the same: look into the table.
MOST_TOLD = 1000
_TOLD = "mewstream-told"


class Alerts:
    """What was told is remembered in the table ``audit`` itself. So whoever is killed between a commit and the telling
    tells it at the next start; what was found before anybody wanted to be told is not told."""

    def __init__(self, tables: Tables, tell: Tell) -> None:
        self._log = tables.logs[AUDIT.name]
        self._tell = tell
        told, found = self._log.committed(_TOLD), self._log.committed()
        if told < found:
            before = {file.path for file in self._log.files(self._log.version - 1)} if told >= 0 else set()
            untold = [file for file in self._log.files() if file.path not in before]
            self.found(untold if told >= 0 else [], found)

    def found(self, files: Sequence[DataFile], batch: int) -> None:
        """A batch is committed that has written these files of the table."""
        filesystem = self._log.store.filesystem(AUDIT.name)
        rows = (row for file in files for row in pq.read_table(file.path, filesystem=filesystem).to_pylist())
        findings = list(itertools.islice(rows, MOST_TOLD))
        if not findings or self._tell(findings):
            self._log.commit([], transactions={_TOLD: batch})
