"""A warehouse, for those who read it: every table is a Delta table in the directory of its name.

    commits/      which version of every table belongs together
    records/ ...  the tables
    _lock         in a directory: held while somebody writes

What is read is what the newest row of ``commits`` names, in all tables at once, whatever is written meanwhile. Neither
Spark nor a JVM is needed for it.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from mewstream.pipeline.commits import Commit, newest_commit
from mewstream.pipeline.delta import data_files, one_line
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.files import DataFile
from mewstream.pipeline.refresh import is_old_kind
from mewstream.pipeline.storage import Store, store_at
from mewstream.pipeline.tables import BY_NAME, COMMITS, SCHEMA_VERSION


class Warehouse:
    """The tables as they were when it was opened."""

    def __init__(self, store: Store, commit: Commit) -> None:
        self.store = store
        self.commit = commit

    def delta(self, name: str) -> DeltaTable:
        version = None if name == COMMITS.name else self.commit.versions[name]
        try:
            return DeltaTable(self.store.uri(name), version=version)
        except DeltaError as error:
            raise WarehouseError(
                f"{self.store}: the table {name} is not there at version {version} ({one_line(error)}). Put it back "
                "from a copy, or make all tables anew in another --warehouse"
            ) from None

    def dataset(self, name: str) -> ds.Dataset:
        """A table for everything that understands Arrow. Files that cannot hold what is asked for are not read."""
        return self.delta(name).to_pyarrow_dataset(filesystem=self.store.filesystem(name))

    def files(self, name: str) -> list[DataFile]:
        return data_files(self.delta(name), BY_NAME[name])

    def rows(self, name: str) -> int:
        return sum(file.rows for file in self.files(name))

    def table(self, name: str) -> pa.Table:
        return self.dataset(name).to_table()


def open_warehouse(path: str | Path) -> Warehouse:
    """Raises :class:`WarehouseError` where there is none, or one of another version."""
    store = store_at(path)
    refuse_old_kind(store)
    commit = newest_commit(store)
    if commit is None:
        raise WarehouseError(
            f"there is no warehouse in {store}: make one with `mewstream pipeline run --data DIR --warehouse {store}`"
        )
    refuse_other_version(store, commit.schema_version)
    return Warehouse(store, commit)


def refuse_old_kind(store: Store) -> None:
    if is_old_kind(store):
        raise WarehouseError(
            f"{store} was written by a mewstream of before Delta Lake: run the pipeline with --full-refresh, which "
            "takes over its bronze table"
        )


def refuse_other_version(store: Store, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise WarehouseError(f"{store} was written by a newer mewstream: update mewstream")
    if version < SCHEMA_VERSION:
        raise WarehouseError(
            f"{store} was written by an older mewstream, with other tables: run the pipeline with --full-refresh"
        )
