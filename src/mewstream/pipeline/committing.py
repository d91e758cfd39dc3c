"""The writing end of a warehouse, without Spark: what a batch has written is committed to its tables, one by one, and
last to ``commits``.

``records`` comes first, and remembers how far the journal was read. So where a run was killed between two of the
commits, the next one knows which batch that was, repeats it from the state before it, and commits it to the tables
that do not have it yet. What a reader sees is what the newest row of ``commits`` names, all the while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from mewstream.pipeline.commits import Commit, append_commit, newest_in
from mewstream.pipeline.delta import APPLICATION, DeltaLog
from mewstream.pipeline.files import DataFile
from mewstream.pipeline.position import Position
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import ALL, COMMITS, RECORDS, Table


class Change(msgspec.Struct):
    """What a batch does to a table."""

    add: list[DataFile] = []
    remove: list[str] = []
    """The paths of files with open rows of before."""


Changes = dict[str, Change]


class BatchTables(Protocol):
    """What a batch is written to: the tables that everybody sees, or a draft of them."""

    store: Store

    @property
    def batch(self) -> int:
        """The number of the last one."""

    def open_files(self, table: Table) -> list[DataFile]:
        """The open rows, as of the last batch."""

    def commit(self, changes: Changes, position: Position, *, records: int) -> None: ...


class Unfinished(NamedTuple):
    """A batch that some tables have and others do not."""

    position: Position
    """How far the journal is read with it."""
    bronze: list[DataFile]


class Tables:
    """There is one at a time: see :func:`mewstream.pipeline.storage.locked`."""

    def __init__(self, store: Store, begin: Callable[[], Position]) -> None:
        """Where there is no warehouse yet it is made, of empty tables; ``begin`` says where the journal begins."""
        self.store = store
        self.logs = {table.name: DeltaLog.create(store, table) for table in ALL}
        self.commits = DeltaLog.create(store, COMMITS)
        newest = newest_in(self.commits)
        if newest is None:
            newest = Commit(batch=0, operation="create", records=0, versions=self.versions(), **begin()._asdict())
            append_commit(self.commits, newest)
        self.newest = newest
        self.rows: dict[str, int] = {}
        """How many rows each table has."""
        self._open: dict[str, list[DataFile]] = {}
        self._latest_open: dict[str, list[DataFile]] = {}
        self.reload()

    def reload(self) -> None:
        """Look again what is in the tables: as of the last batch, and now, which differs where one is unfinished."""
        for name, log in self.logs.items():
            files = log.files(self.newest.versions[name])
            self.rows[name] = sum(file.rows for file in files)
            self._open[name] = [file for file in files if file.is_open]
            is_newest = log.version == self.newest.versions[name]
            self._latest_open[name] = self._open[name] if is_newest else [file for file in log.files() if file.is_open]

    @property
    def batch(self) -> int:
        return self.newest.batch

    def versions(self) -> dict[str, int]:
        return {name: log.version for name, log in self.logs.items()}

    def open_files(self, table: Table) -> list[DataFile]:
        return self._open[table.name]

    def unfinished(self) -> Unfinished | None:
        """The batch after the last one, where a run was killed between its commits."""
        log = self.logs[RECORDS.name]
        if log.committed() <= self.batch:
            return None
        before = {file.path for file in log.files(log.version - 1)}
        return Unfinished(Position.from_json(log.remark()), [file for file in log.files() if file.path not in before])

    def roll_back(self) -> None:
        """Undo what some tables have of a batch that was not finished. The next one reads the same again."""
        unfinished = [name for name, log in self.logs.items() if log.committed() > self.batch]
        for name in unfinished:
            self.logs[name].restore(self.newest.versions[name])
        if unfinished:
            self.record("rollback", self.newest.position)
            self.reload()

    def commit(self, changes: Changes, position: Position, *, records: int) -> None:
        """Everything that the batch has written counts from here on, and nothing of it before."""
        number = self.batch + 1
        is_repeated = False
        for name in sorted(changes, key=lambda each: each != RECORDS.name):
            log, change = self.logs[name], changes[name]
            gone = set(change.remove)
            removed = [file for file in self._latest_open[name] if file.path in gone] if gone else []
            if log.committed() >= number:
                is_repeated = True
            elif change.add or removed:
                remark = position.to_json() if name == RECORDS.name else None
                log.commit(change.add, removed, transactions={APPLICATION: number}, remark=remark)
        self.record("run", position, records=records)
        if is_repeated:
            self.reload()
        else:
            self._note(changes)

    def _note(self, changes: Changes) -> None:
        for name, change in changes.items():
            gone = set(change.remove)
            self.rows[name] -= sum(file.rows for file in self._open[name] if file.path in gone)
            self.rows[name] += sum(file.rows for file in change.add)
            left = [file for file in self._open[name] if file.path not in gone]
            self._open[name] = self._latest_open[name] = [*left, *(file for file in change.add if file.is_open)]

    def record(self, operation: str, position: Position, *, records: int = 0) -> None:
        """The row of ``commits``: the tables are what they are now."""
        made = Commit(
            batch=self.batch + 1,
            operation=operation,
            records=records,
            versions=self.versions(),
            **position._asdict(),
        )
        append_commit(self.commits, made)
        self.newest = made
