"""All tables but bronze made anew, from bronze: in portions, as a draft that replaces the tables when it is complete.

Nobody sees the draft before. Its files are in the directories of the tables, where no commit names them; which they
are stands in a Delta table of its own, a row for each portion, so that a refresh that was stopped or killed goes on
after its last portion. A warehouse of the kind that was before Delta is taken over the same way, its bronze included.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError

from mewstream.pipeline.commits import newest_commit
from mewstream.pipeline.committing import Change, Changes, Tables
from mewstream.pipeline.delta import DeltaLog, delta_schema, relative_paths, told
from mewstream.pipeline.files import DataFile, write_rows
from mewstream.pipeline.position import Position
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import ALL, RECORDS, REFRESH, SCHEMA_VERSION, Table

_APPLICATION = "mewstream-refresh"
#: Where warehouses of before Delta had their commits.
OLD_COMMITS = "_commits"


class _Portion(msgspec.Struct, kw_only=True):
    """A row of the table ``_refresh``."""

    portion: int
    position: str
    """How far bronze is read with it, as JSON."""
    changes: str
    """The files that it wrote, as JSON."""
    schema_version: int = SCHEMA_VERSION
    published_as: int | None = None
    """The number of the batch as which the draft is published: it is complete."""


class Draft:
    """Tables in the making."""

    def __init__(self, store: Store) -> None:
        """The one that was begun, or a new one."""
        self.store = store
        self.batch = 0
        self.position: Position | None = None
        self.published_as: int | None = None
        self.files: dict[str, list[DataFile]] = {table.name: [] for table in ALL}
        self._log = DeltaLog.create(store, REFRESH)
        for portion in self._portions():
            self._take(portion)

    @staticmethod
    def is_begun(store: Store) -> bool:
        try:
            DeltaLog(store, REFRESH)
        except TableNotFoundError:
            return False
        return True

    def _portions(self) -> list[_Portion]:
        files = self._log.files()
        filesystem = self.store.filesystem(REFRESH.name)
        rows = [row for file in files for row in pq.read_table(file.path, filesystem=filesystem).to_pylist()]
        return sorted((msgspec.convert(row, _Portion) for row in rows), key=lambda portion: portion.portion)

    def is_usable(self) -> bool:
        """False where it was begun by another version, or files of it are gone."""
        if any(portion.schema_version != SCHEMA_VERSION for portion in self._portions()):
            return False
        for name, files in self.files.items():
            found = self.store.filesystem(name).get_file_info([file.path for file in files])
            if any(info.size is None for info in found):
                return False
        return True

    def _take(self, portion: _Portion) -> None:
        self.batch = portion.portion
        self.position = Position.from_json(msgspec.json.decode(portion.position))
        self.published_as = portion.published_as
        for name, change in msgspec.json.decode(portion.changes, type=Changes).items():
            gone = set(change.remove)
            self.files[name] = [file for file in self.files[name] if file.path not in gone] + change.add

    # -- what a batch is written to ---------------------------------------------------------------

    def open_files(self, table: Table) -> list[DataFile]:
        return [file for file in self.files[table.name] if file.is_open]

    def commit(self, changes: Changes, position: Position, *, records: int) -> None:
        self._append(changes, position, None)

    def _append(self, changes: dict[str, Change], position: Position, published_as: int | None) -> None:
        made = _Portion(
            portion=self.batch + 1,
            position=msgspec.json.encode(position.to_json()).decode(),
            changes=msgspec.json.encode(changes).decode(),
            published_as=published_as,
        )
        row = pa.RecordBatch.from_pylist([msgspec.structs.asdict(made)], pa.schema(self._log.delta.schema().to_arrow()))
        self._log.commit(write_rows(self.store, REFRESH, row), transactions={_APPLICATION: made.portion})
        self._take(made)

    # -- its end ----------------------------------------------------------------------------------

    def complete(self, position: Position, batch: int) -> None:
        """From here on it is published, whoever goes on with it."""
        self._append({}, position, batch)

    def publish(self, tables: Tables) -> None:
        """Every table becomes what the draft has, and the draft ends. Killed in between, it is published again."""
        number = self.published_as
        assert number is not None and self.position is not None
        if tables.batch < number:
            for name, log in tables.logs.items():
                if log.committed(_APPLICATION) >= number:
                    continue
                if name == RECORDS.name and not self.files[name]:
                    _add_columns(log)
                else:
                    log.commit(self.files[name], transactions={_APPLICATION: number}, overwrite=True)
            tables.record("refresh", self.position)
        tables.reload()
        forget_old_kind(self.store)
        self.discard()

    def discard(self) -> None:
        """Its files are left to vacuum."""
        self.store.remove(REFRESH.name)


def _add_columns(log: DeltaLog) -> None:
    """Bronze stays as it is, but may have columns that it did not have before."""
    known = {field.name for field in log.delta.schema().fields}
    new = [field for field in delta_schema(log.table).fields if field.name not in known]
    if new:
        with told(log.store):
            log.delta.alter.add_columns(Schema(new).fields)
        log.sync()


class KnownBronze(NamedTuple):
    """What there is to make the tables from."""

    files: list[DataFile]
    end: Position
    """How far the journal is read with it."""
    schema_version: int
    next_batch: int
    is_old_kind: bool = False


def bronze_of(store: Store) -> KnownBronze | None:
    """None where there is no warehouse."""
    newest = newest_commit(store)
    if is_old_kind(store):
        old = OldBronze.of(store)
        position = Position(old.journal, old.offsets, {})
        return KnownBronze(old.files(store), position, 0, newest.batch + 1 if newest else 1, is_old_kind=True)
    if newest is None:
        return None
    log = DeltaLog(store, RECORDS)
    # A batch that was not committed to all tables is in bronze, and that is what counts here.
    end = Position.from_json(log.remark()) if log.committed() > newest.batch else newest.position
    return KnownBronze(log.files(), end, newest.schema_version, newest.batch + 1)


# -- the kind of before ---------------------------------------------------------------------------


def is_old_kind(store: Store) -> bool:
    return store.is_local and Path(store.root, OLD_COMMITS).is_dir()


class OldBronze(msgspec.Struct):
    """What a warehouse of before Delta says of its bronze."""

    journal: str
    offsets: dict[int, int]
    tables: dict[str, list[dict[str, str | int | None]]]

    @classmethod
    def of(cls, store: Store) -> OldBronze:
        newest = max(Path(store.root, OLD_COMMITS).glob("*.json"))
        return msgspec.json.decode(newest.read_bytes(), type=cls)

    def files(self, store: Store) -> list[DataFile]:
        root, found = Path(store.uri(RECORDS.name)), []
        for piece in self.tables.get(RECORDS.name, []):
            path, version = Path(store.root, str(piece["path"])), piece.get("version")
            if isinstance(version, int):
                found += [path / each for each in relative_paths(DeltaTable(path, version=version))]
            else:
                found += sorted(path.glob("*.parquet"))
        sizes = [(file.stat().st_size, pq.read_metadata(file).num_rows) for file in found]
        return [
            DataFile(RECORDS.name, str(file.relative_to(root)), size, rows, None, "")
            for file, (size, rows) in zip(found, sizes, strict=True)
        ]


def forget_old_kind(store: Store) -> None:
    """Remove what only the kind of before needed. Its commits go first, and at once."""
    root = Path(store.root)
    if is_old_kind(store):
        (root / OLD_COMMITS).rename(root / "_old")
    if store.is_local and (root / "_old").is_dir():
        for table in ALL:
            # The pieces of before were called after their batch: 000000000012-3fa9c1d2.
            for piece in (root / table.name).glob("[0-9]" * 12 + "-*"):
                shutil.rmtree(piece, ignore_errors=True)
        shutil.rmtree(root / "_checkpoint", ignore_errors=True)
        shutil.rmtree(root / "_old", ignore_errors=True)
