"""Delta Lake, as far as we write it: tables are made, and files are added and removed, one commit at a time.

Every commit of a batch carries the number of the batch as the version of our application (Delta's ``txn``). A batch
that is repeated finds its number there and leaves the table alone; and of two pipelines that commit the same batch at
the same time Delta lets one, whoever comes first.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)
from pyarrow import fs

from mewstream.pipeline.column_types import arrow_type
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.files import DataFile
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import Layer, Table

APPLICATION = "mewstream-pipeline"
_KEY = "mewstream"
_LONGEST = 500
_VERSION = re.compile(r"(\d{20})\.(checkpoint)?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: Old commits are looked for now and then, and not after each one: see :meth:`DeltaLog.forget`.
_AFTERWARDS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


def delta_schema(table: Table) -> Schema:
    return Schema.from_arrow(pa.schema([(each.name, arrow_type(each.type)) for each in table.all_columns]))


def _properties(table: Table) -> dict[str, str]:
    """How long files stay that are not of the newest version, and the commits before it. For files it is Delta's
    ordinary safety period, but for tables that nobody reads except the next batch."""
    return {
        "delta.dataSkippingStatsColumns": ",".join(table.statistics),
        "delta.deletedFileRetentionDuration": f"interval {1 if table.layer is Layer.STATE else 7} days",
        "delta.logRetentionDuration": "interval 1 days",
        "delta.checkpointInterval": "10",
    }


def partition_columns(table: Table) -> list[str]:
    return [table.partition.name] if table.partition else []


class DeltaLog:
    """The log of one table, at its newest version."""

    def __init__(self, store: Store, table: Table) -> None:
        """Raises :class:`TableNotFoundError` where there is none."""
        self.store = store
        self.table = table
        with told(store):
            self.delta = DeltaTable(store.uri(table.name))
        self._numbers: dict[str, int] = {}
        """What :meth:`committed` tells, which is slow to ask for."""

    @classmethod
    def create(cls, store: Store, table: Table) -> DeltaLog:
        """The table, which is made where there is none."""
        with contextlib.suppress(TableNotFoundError):
            return cls(store, table)
        with told(store):
            create_table_with_add_actions(
                store.uri(table.name),
                delta_schema(table),
                [],
                mode="ignore",
                partition_by=partition_columns(table),
                name=table.name,
                description=table.meaning,
                configuration=_properties(table),
            )
        log = cls(store, table)
        log.sync()
        return log

    @property
    def version(self) -> int:
        return self.delta.version()

    def committed(self, application: str = APPLICATION) -> int:
        """The number that the last commit of an application carried; -1 before the first."""
        if application not in self._numbers:
            number = self.delta.transaction_version(application)
            self._numbers[application] = -1 if number is None else number
        return self._numbers[application]

    def files(self, version: int | None = None) -> list[DataFile]:
        """Those of the newest version, or of an earlier one."""
        delta = self.delta
        if version is not None and version != self.version:
            with told(self.store):
                delta = DeltaTable(self.store.uri(self.table.name), version=version)
        return data_files(delta, self.table)

    def files_with(self, column: str, value: str) -> list[DataFile]:
        """Those of the newest version that may hold a value, by their statistics; one without any may hold all."""
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        if not {f"min.{column}", f"max.{column}"} <= set(actions.column_names):
            return self.files()
        columns = [actions.column(name).to_pylist() for name in ("path", f"min.{column}", f"max.{column}")]
        bounds = zip(*columns, strict=True)
        perhaps = {path for path, low, high in bounds if low is None or high is None or low <= value <= high}
        return [file for file in self.files() if file.path in perhaps]

    def remark(self) -> Any:
        """What the newest commit was given to remember."""
        with told(self.store):
            [newest] = self.delta.history(1)
        return newest.get(_KEY)

    def commit(
        self,
        add: Iterable[DataFile],
        remove: Iterable[DataFile] = (),
        *,
        transactions: dict[str, int] | None = None,
        remark: Any = None,
        data_change: bool = True,
        overwrite: bool = False,
    ) -> None:
        """Add and remove files at once; to ``overwrite`` is to remove all that there are, and to have the columns as
        they are declared now. ``transactions`` are the numbers of applications."""
        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(each.path, each.size, self._values(each), now, data_change, each.stats) for each in add
        ]
        actions += [RemoveAction(each.path, data_change, now, each.size, self._values(each)) for each in remove]
        numbers = [Transaction(application, number) for application, number in (transactions or {}).items()]
        with told(self.store):
            self.delta.create_write_transaction(
                actions,
                "overwrite" if overwrite else "append",
                delta_schema(self.table) if overwrite else self.delta.schema(),
                partition_columns(self.table),
                commit_properties=CommitProperties(
                    custom_metadata=None if remark is None else {_KEY: remark}, app_transactions=numbers
                ),
                post_commithook_properties=_AFTERWARDS,
            )
            self.delta.update_incremental()
        self._numbers |= transactions or {}
        self.sync()

    def restore(self, version: int) -> None:
        """The rows of an earlier version become those of a new one."""
        with told(self.store):
            self.delta.restore(version)
            self.delta.update_incremental()
        self.sync()

    def forget(self, keep: int, age: timedelta | None = None) -> None:
        """Let the log begin at a checkpoint: the newest that has ``keep`` commits after it, or is of that ``age``. What
        came before can neither be read nor followed any more."""
        filesystem = self.store.filesystem(self.table.name)
        listed = [
            (int(found[1]), found[2] is not None, info)
            for info in filesystem.get_file_info(fs.FileSelector("_delta_log"))
            if (found := _VERSION.match(info.base_name))
        ]
        before = datetime.now(UTC) - age if age is not None else datetime.min.replace(tzinfo=UTC)
        begin = max(
            (
                version
                for version, is_checkpoint, info in listed
                if is_checkpoint and (version <= self.version - keep or info.mtime < before)
            ),
            default=0,
        )
        for version, _, info in listed:
            if version < begin:
                filesystem.delete_file(info.path)

    def sync(self) -> None:
        """The newest commit survives a power failure."""
        self.store.sync(f"{self.table.name}/_delta_log", f"{self.version:020d}.json")

    def _values(self, file: DataFile) -> dict[str, str | None]:
        return dict.fromkeys(partition_columns(self.table), file.partition)


def data_files(delta: DeltaTable, table: Table) -> list[DataFile]:
    actions = pa.table(delta.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    column = f"partition.{table.partition.name}" if table.partition else None
    values: Sequence[Any] = actions.column(column).to_pylist() if column else [None] * actions.num_rows
    columns = [actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
    return [
        DataFile(table.name, path, size, rows, None if value is None else str(value).lower(), "")
        for path, size, rows, value in zip(*columns, values, strict=True)
    ]


def relative_paths(delta: DeltaTable) -> list[str]:
    """Of the live files, below the directory of the table. URIs would not do for paths: they are encoded."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    return [str(path) for path in actions.column("path").to_pylist()] if actions.num_rows else []


@contextlib.contextmanager
def told(store: Store) -> Iterator[None]:
    """What delta-rs raises, as one line of ours. That there is no table is for the caller."""
    try:
        yield
    except TableNotFoundError:
        raise
    except CommitFailedError:
        raise WarehouseError(
            f"{store} is being written by another pipeline, which was faster: nothing of this batch counts. Stop one "
            "of the two, or give this one another --warehouse"
        ) from None
    except (DeltaError, OSError) as error:
        raise WarehouseError(f"{store}: {one_line(error)}") from None


def one_line(error: Exception) -> str:
    """Without the colours that delta-rs gives its errors."""
    return " ".join(_COLOUR.sub("", str(error)).split())[:_LONGEST]
