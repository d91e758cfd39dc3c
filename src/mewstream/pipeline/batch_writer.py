"""Writing one batch with Spark: the workers write files, and the driver commits what they tell it."""

from __future__ import annotations

import functools
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mewstream.pipeline.arrow_work import (
    Batches,
    Work,
    for_spark,
    in_workers,
    one_after_the_other,
    spare_the_collector,
)
from mewstream.pipeline.committing import BatchTables, Change, Changes
from mewstream.pipeline.files import DATA_FILES, DataFile, files_told, read_file, write_files
from mewstream.pipeline.position import Position
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import RECORDS, Column, Table

#: A batch of at most so many records is small.
SMALL_BATCH = 50_000
#: What it writes goes through the driver where its bronze has at most so many bytes, which are compressed, and was
#: read in so many pieces: to write a table there takes a third of what a job with a worker of Python takes.
SMALL_BYTES = 8 << 20
FEW_PIECES = 8
#: What Spark takes for a pattern in a path.
_GLOB = re.compile(r"[\[\]{}*?]")
_FOR_SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Sessions:
    """A session for what is large and, once it is needed, one for what is small: one task on one core, interpreted,
    is done before a plan is compiled."""

    def __init__(self, spark: SparkSession) -> None:
        self.large = spark
        self._small: SparkSession | None = None

    @property
    def small(self) -> SparkSession:
        if self._small is None:
            self._small = self.large.newSession()
            for name, value in _FOR_SMALL.items():
                self._small.conf.set(name, value)
        return self._small


class BatchWriter:
    """Threads may write different tables at the same time. Nothing counts before :meth:`commit`."""

    def __init__(self, sessions: Sessions, tables: BatchTables, expected: int) -> None:
        """``expected`` are the records to be read: a small batch is planned for one task."""
        self._tables = tables
        self.number = tables.batch + 1
        self.is_small = expected <= SMALL_BATCH
        self.spark = sessions.small if self.is_small else sessions.large
        self._changes: Changes = {}
        self._changing = threading.Lock()

    # -- reading ----------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        return self._tables.store

    def open_files(self, table: Table) -> list[DataFile]:
        """The files of the open rows of the batch before."""
        return self._tables.open_files(table)

    def added(self, table: Table) -> DataFrame:
        """The final rows that this batch has written."""
        return self.read(table, self.files_added(table))

    def files_added(self, table: Table) -> list[DataFile]:
        return [file for file in self._changes.get(table.name, Change()).add if not file.is_open]

    def rows_added(self, table: Table) -> int:
        return sum(file.rows for file in self.files_added(table))

    def read(self, table: Table, files: Sequence[DataFile]) -> DataFrame:
        rows = read_with_spark(self.spark, self._tables.store, table, files)
        return rows.coalesce(1) if self.is_small else rows

    # -- writing ----------------------------------------------------------------------------------

    def append_made(self, table: Table, work: Sequence[Work]) -> None:
        """Rows that are made in Arrow, by the workers: a file for each piece of work."""
        write = functools.partial(write_files, self._tables.store, [table.name], None)
        if self.is_small and len(work) <= FEW_PIECES:
            self._note(files_told(write(0, one_after_the_other(work))))
        else:
            self._note(_told(in_workers(self.spark, work, write, DATA_FILES)))

    def told(
        self, work: Sequence[Work], handle: Callable[[int, Batches], Batches], schema: str
    ) -> list[dict[str, Any]]:
        """What ``handle`` tells of rows that are made in Arrow, by the workers or, where there is little, here."""
        if self.is_small:
            told = [row for batch in handle(0, one_after_the_other(work)) for row in batch.to_pylist()]
        else:
            told = [row.asDict() for row in in_workers(self.spark, work, handle, schema).collect()]
        return told

    def adopt(self, files: Sequence[DataFile], *, gone: Sequence[DataFile] = ()) -> None:
        """Files that are there already, in place of others with open rows."""
        self._note(files, gone)

    def write(self, table: Table, rows: pa.Table) -> None:
        """Rows that the driver has made."""
        self._note(files_told(write_files(self._tables.store, [table.name], None, 0, iter(rows.to_batches()))))

    def rows_by_space(self, table: Table) -> dict[str, int]:
        """How many final rows this batch has written of each space."""
        found: Counter[str] = Counter()
        for file in self.files_added(table):
            for rows in read_file(self._tables.store, file, ["space"]):
                found.update(
                    {each["values"]: each["counts"] for each in rows.column("space").value_counts().to_pylist()}
                )
        return found

    def distribute(self, first: Table, second: Table, rows: DataFrame, column: str) -> None:
        """Final rows of two tables: those of the second have a true ``column``."""
        self._note(self._write(rows, first, second, chosen_by=column))

    def commit(self, position: Position, *, records: int) -> None:
        self._tables.commit(self._changes, position, records=records)

    def _write(self, rows: DataFrame, *tables: Table, chosen_by: str | None = None) -> list[DataFile]:
        write = functools.partial(write_files, self._tables.store, [table.name for table in tables], chosen_by, 0)
        if self.is_small and 0 < sum(file.size for file in self.files_added(RECORDS)) <= SMALL_BYTES:
            return files_told(write(iter(rows.toArrow().to_batches())))
        return _told(rows.mapInArrow(functools.partial(_sparing, write), DATA_FILES))

    def _note(self, files: Sequence[DataFile], gone: Sequence[DataFile] = ()) -> None:
        with self._changing:
            for file in gone:
                self._changes.setdefault(file.table, Change([], [])).remove.append(file.path)
            for file in files:
                self._changes.setdefault(file.table, Change([], [])).add.append(file)


def _sparing(write: Callable[[Batches], Batches], rows: Batches) -> Batches:
    spare_the_collector()
    return write(rows)


def _told(files: DataFrame) -> list[DataFile]:
    return [DataFile(*row) for row in files.collect()]


def read_with_spark(
    spark: SparkSession, store: Store, table: Table, files: Sequence[DataFile], columns: Sequence[Column] | None = None
) -> DataFrame:
    """Files of a table as rows: the columns that are in the files, or others. Spark reads what is in a directory by
    itself. From an object store the workers read, who have what is needed for it anyway: Spark would need jars, and
    credentials of its own."""
    columns = columns or table.columns
    schema = ", ".join(f"`{column.name}` {column.type}" for column in columns)
    if not files:
        return spark.createDataFrame([], schema)
    if store.is_local:
        root = store.uri(table.name)
        # With a base path the directories tell the partition column.
        reader = spark.read if columns == table.columns else spark.read.option("basePath", root)
        directory = _GLOB.sub(r"\\\g<0>", root)
        return reader.schema(schema).parquet(*(f"{directory}/{file.path}" for file in files))
    names = [column.name for column in columns]
    work: list[Work] = [functools.partial(read_file, store, file, names) for file in files]
    return in_workers(spark, work, _as_they_are, schema)


def _as_they_are(_: int, rows: Batches) -> Batches:
    return for_spark(rows)
