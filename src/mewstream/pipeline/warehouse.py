"""A warehouse: the directory in which the tables are, for those who read them and for the one who writes.

    _commits/     what counts: see :mod:`mewstream.pipeline.manifest`
    _checkpoint/  of the streaming query
    _lock         held while a pipeline writes
    frames/ ...   a directory for each table

Readers need nothing but the newest commit. They see whole batches, in all tables at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from pyspark.sql import DataFrame, SparkSession

from mewstream.pipeline import manifest as commits
from mewstream.pipeline.arrow_work import Change, Work
from mewstream.pipeline.delta_tables import DeltaTables
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.manifest import Manifest, Piece
from mewstream.pipeline.parquet_tables import ParquetTables, unnamed
from mewstream.pipeline.tables import ALL, BY_NAME, PUBLIC, RECORDS, SCHEMA_VERSION, Table
from mewstream.pipeline.typed_views import register_typed_views

#: A batch of at most so many records is small.
SMALL_BATCH = 50_000
_FOR_SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
LOCK = "_lock"
CHECKPOINT = "_checkpoint"


class TableFormat(Protocol):
    """How rows become files, and files rows. Nothing that is written counts before a commit names it."""

    def read(self, spark: SparkSession, table: Table, pieces: list[Piece]) -> DataFrame: ...

    def read_added(
        self, spark: SparkSession, table: Table, before: list[Piece], after: list[Piece], batch: int
    ) -> DataFrame:
        """The rows that a batch added."""

    def portions(self, spark: SparkSession, table: Table, pieces: list[Piece], most: int) -> Iterator[DataFrame]:
        """All rows in the order in which they were written, about ``most`` at once."""

    def append(self, rows: DataFrame, table: Table, before: list[Piece], batch: int) -> list[Piece]: ...

    def append_made(
        self, spark: SparkSession, work: Sequence[Work], table: Table, before: list[Piece], batch: int
    ) -> list[Piece]:
        """Rows that the workers make, which have the columns of the table."""

    def append_changed(
        self, rows: DataFrame, columns: Sequence[str], change: Change, table: Table, before: list[Piece], batch: int
    ) -> list[Piece]:
        """What the workers make of all rows in the files of another table, of which ``change`` gets these columns."""

    def replace(self, rows: DataFrame, table: Table, batch: int) -> Piece | None: ...

    def split(
        self, rows: DataFrame, column: str, table: Table, before: list[Piece], batch: int
    ) -> tuple[list[Piece], Piece | None]:
        """Rows of a table, final and open ones: where ``column`` is true they are open."""

    def distribute(
        self,
        rows: DataFrame,
        column: str,
        tables: tuple[Table, Table],
        befores: tuple[list[Piece], list[Piece]],
        batch: int,
    ) -> tuple[list[Piece], list[Piece]]:
        """Final rows of two tables: where ``column`` is true they are of the second."""

    def compact(self, spark: SparkSession, table: Table, pieces: list[Piece], batch: int) -> list[Piece]: ...


def _format(root: Path, manifest: Manifest) -> TableFormat:
    if manifest.table_format == "delta":
        return DeltaTables(root, manifest.generation)
    return ParquetTables(root, secrets.token_hex(4))


# -- reading --------------------------------------------------------------------------------------


class Warehouse:
    """The tables as they were when it was opened, whatever is written meanwhile."""

    def __init__(self, root: Path, manifest: Manifest) -> None:
        self.root = root
        self.manifest = manifest
        self._format = _format(root, manifest)

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """All rows of a table: the final ones, and those that are still open."""
        pieces = list(self.manifest.tables.get(name, ()))
        if (carried := self.manifest.open.get(name)) is not None:
            pieces.append(carried)
        return self._format.read(spark, BY_NAME[name], pieces)

    def register_views(self, spark: SparkSession) -> list[str]:
        """Make every table known to SQL by its plain name, and every format by its typed view. Returns the names."""
        for table in PUBLIC:
            self.table(spark, table.name).createOrReplaceTempView(table.name)
        return [table.name for table in PUBLIC] + register_typed_views(spark)


def open_warehouse(path: str | Path) -> Warehouse:
    """Raises :class:`WarehouseError` where there is none, or one of another version."""
    root = local_path(path)
    manifest = commits.newest(root)
    if manifest is None:
        raise WarehouseError(
            f"there is no warehouse in {root}: make one with `mewstream pipeline run --data DIR --warehouse {root}`"
        )
    refuse_other_version(root, manifest)
    return Warehouse(root, manifest)


def local_path(path: str | Path) -> Path:
    """A warehouse is in a directory; on a cluster, one that all machines share."""
    text = str(path).removeprefix("file://")
    if "://" in text:
        raise WarehouseError(f"{text} is no directory: a warehouse is on a path that the driver and all workers share")
    return Path(text).expanduser().absolute()


def refuse_other_version(root: Path, manifest: Manifest) -> None:
    if manifest.schema_version > SCHEMA_VERSION:
        raise WarehouseError(f"{root} was written by a newer mewstream: update mewstream")
    if manifest.schema_version < SCHEMA_VERSION:
        raise WarehouseError(
            f"{root} was written by an older mewstream, with other tables: run the pipeline with --full-refresh"
        )


# -- writing --------------------------------------------------------------------------------------


class Writer:
    """The writing end; there is one at a time, see :func:`locked`."""

    def __init__(self, spark: SparkSession, root: Path, manifest: Manifest, *, draft: bool = False) -> None:
        """A ``draft`` is not seen by anybody before :meth:`publish`."""
        self.spark = spark
        self.root = root
        self.manifest = manifest
        self.format = _format(root, manifest)
        self._draft = draft
        self._small: SparkSession | None = None

    def begin(self) -> BatchWriter:
        return BatchWriter(self)

    def small_session(self) -> SparkSession:
        """A session for what is small: one task on one core, interpreted, is done before a plan is compiled."""
        if self._small is None:
            self._small = self.spark.newSession()
            for name, value in _FOR_SMALL.items():
                self._small.conf.set(name, value)
        return self._small

    def commit(self, manifest: Manifest) -> None:
        self.manifest = manifest if self._draft else commits.commit(self.root, manifest, self.manifest)

    def refreshed(self) -> Writer:
        """An empty draft, of which nothing is known but bronze."""
        kept = {RECORDS.name: self.manifest.tables.get(RECORDS.name, [])}
        empty = msgspec.structs.replace(
            self.manifest,
            generation=self.manifest.generation + 1,
            schema_version=SCHEMA_VERSION,
            tables=kept,
            open={},
        )
        return Writer(self.spark, self.root, empty, draft=True)

    def publish(self, draft: Writer) -> None:
        self.commit(draft.manifest)
        self.format = draft.format

    def compact(self) -> None:
        """Put small pieces together, where there are enough of them."""
        before = self.manifest
        tables = {
            name: self.format.compact(self.spark, BY_NAME[name], pieces, before.batch)
            for name, pieces in before.tables.items()
        }
        if tables != before.tables:
            self.commit(msgspec.structs.replace(before, tables=tables))

    def sweep(self) -> None:
        """Remove what a killed run left."""
        named = self.manifest.paths() | {each.path for each in self.manifest.retired}
        if self.manifest.table_format == "parquet":
            commits.remove(self.root, unnamed(self.root, named, ALL))


class BatchWriter:
    """What one batch writes. Threads may write different tables at the same time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._spark = writer.spark
        self._is_small = False
        self._format = writer.format
        self.number = writer.manifest.batch + 1
        self._before = writer.manifest
        self._tables = dict(self._before.tables)
        self._open = dict(self._before.open)
        self._changes = threading.Lock()

    def expect(self, rows: int) -> None:
        """So many records are to be read: a small batch, over little that is open, is planned for one task."""
        carried = sum(piece.rows for piece in self._before.open.values())
        self._is_small = rows <= SMALL_BATCH and carried <= SMALL_BATCH
        self._spark = self._writer.small_session() if self._is_small else self._writer.spark

    def carried(self, table: Table) -> DataFrame:
        """The open rows of the batch before."""
        piece = self._before.open.get(table.name)
        return self._sized(self._format.read(self._spark, table, [piece] if piece else []))

    def has_carried(self, table: Table) -> bool:
        return table.name in self._before.open

    def added(self, table: Table) -> DataFrame:
        """The final rows that this batch has written."""
        before, after = self._pieces(table), self._tables.get(table.name, [])
        return self._sized(self._format.read_added(self._spark, table, before, after, self.number))

    def rows_added(self, table: Table) -> int:
        return sum(piece.rows for piece in self._tables.get(table.name, ())) - sum(
            piece.rows for piece in self._pieces(table)
        )

    def _sized(self, rows: DataFrame) -> DataFrame:
        return rows.coalesce(1) if self._is_small else rows

    def append(self, table: Table, rows: DataFrame) -> None:
        pieces = self._format.append(rows.select(table.names), table, self._pieces(table), self.number)
        self._note(table, pieces)

    def append_made(self, table: Table, work: Sequence[Work]) -> None:
        """Rows that the workers make in Arrow."""
        self._note(table, self._format.append_made(self._spark, work, table, self._pieces(table), self.number))

    def append_changed(self, table: Table, rows: DataFrame, columns: Sequence[str], change: Change) -> None:
        """What the workers make, in Arrow, of rows that are in a table."""
        pieces = self._format.append_changed(rows, columns, change, table, self._pieces(table), self.number)
        self._note(table, pieces)

    def replace(self, table: Table, rows: DataFrame) -> None:
        """All open rows of a table. What is not replaced stays as it was."""
        self._note_open(table, self._format.replace(rows.select(table.names), table, self.number))

    def split(self, table: Table, rows: DataFrame) -> None:
        """Final and open rows of a table, by the column ``is_open``."""
        chosen = rows.select(*table.names, "is_open")
        pieces, carried = self._format.split(chosen, "is_open", table, self._pieces(table), self.number)
        self._note(table, pieces)
        self._note_open(table, carried)

    def distribute(self, first: Table, second: Table, rows: DataFrame, column: str) -> None:
        """Final rows of two tables: those of the second have a true ``column``."""
        befores = self._pieces(first), self._pieces(second)
        pieces = self._format.distribute(rows, column, (first, second), befores, self.number)
        for table, these in zip((first, second), pieces, strict=True):
            self._note(table, these)

    def commit(self, offsets: dict[int, int]) -> Manifest:
        """Everything that was written counts from here on, and nothing of it before."""
        manifest = msgspec.structs.replace(
            self._before, batch=self.number, offsets=offsets, tables=self._tables, open=self._open
        )
        self._writer.commit(manifest)
        return self._writer.manifest

    def _pieces(self, table: Table) -> list[Piece]:
        return self._before.tables.get(table.name, [])

    def _note(self, table: Table, pieces: list[Piece]) -> None:
        with self._changes:
            self._tables[table.name] = pieces

    def _note_open(self, table: Table, piece: Piece | None) -> None:
        with self._changes:
            self._open.pop(table.name, None)
            if piece is not None:
                self._open[table.name] = piece


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """One pipeline at a time writes a warehouse."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise WarehouseError(f"cannot use {root} as a warehouse: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 32).decode("ascii", "replace").strip()
            by = f" (process {holder})" if holder else ""
            raise WarehouseError(
                f"{root} is being written by another pipeline{by}: wait for it, or give this one another --warehouse"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
