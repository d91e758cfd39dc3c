"""Tables as Parquet files: a directory for each batch, which counts when a commit names it."""

from __future__ import annotations

import contextlib
import functools
import secrets
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from mewstream.journal.batches import gathered
from mewstream.journal.files import Files
from mewstream.pipeline.arrow_work import Batches, Change, Work, in_workers, one_after_the_other
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.manifest import Piece
from mewstream.pipeline.sql import is_for_small
from mewstream.pipeline.tables import Table

#: Columns in which hardly a value comes twice. A dictionary of them would be begun and thrown away, in every file.
_DISTINCT = ("offset", "seq", "ts", "stream_seq", "sent_at", "latency_ms", "data", "body.value")
_WITHOUT_DICTIONARY = {f"parquet.enable.dictionary#{column}": "false" for column in _DISTINCT}
#: What is put into a row group by the workers, and what they change at once.
GROUP_ROWS = 1 << 20
GROUP_BYTES = 64 << 20
CHANGE_ROWS = 1 << 16
CHANGE_BYTES = 8 << 20
#: So many pieces of one level become one of the next.
FAN_IN = 10
#: Pieces of more rows are not put together any further.
FULL_ROWS = 2_000_000


class ParquetTables:
    """``tag`` is of one run: what a killed run left, or a worker of it still writes, never gets mixed with ours. What
    this run has written for a batch that came to nothing, it overwrites."""

    def __init__(self, root: Path, tag: str) -> None:
        self._root = root
        self._tag = tag

    # -- reading ----------------------------------------------------------------------------------

    def read(self, spark: SparkSession, table: Table, pieces: list[Piece]) -> DataFrame:
        if not pieces:
            return spark.createDataFrame([], table.schema)
        return spark.read.schema(table.schema).parquet(*(str(self._root / piece.path) for piece in pieces))

    def read_added(
        self, spark: SparkSession, table: Table, before: list[Piece], after: list[Piece], batch: int
    ) -> DataFrame:
        """The rows that a batch added."""
        return self.read(spark, table, after[len(before) :])

    def portions(self, spark: SparkSession, table: Table, pieces: list[Piece], most: int) -> Iterator[DataFrame]:
        """All rows in their order, so many at once: neighbouring pieces, and one piece at least."""
        portion: list[Piece] = []
        for piece in pieces:
            if portion and sum(each.rows for each in portion) + piece.rows > most:
                yield self.read(spark, table, portion)
                portion = []
            portion.append(piece)
        if portion:
            yield self.read(spark, table, portion)

    # -- writing ----------------------------------------------------------------------------------

    def append(self, rows: DataFrame, table: Table, before: list[Piece], batch: int) -> list[Piece]:
        added = self._write(rows, f"{table.name}/{batch:012d}-{self._tag}")
        return [*before, added] if added else before

    def append_made(
        self, spark: SparkSession, work: Sequence[Work], table: Table, before: list[Piece], batch: int
    ) -> list[Piece]:
        if is_for_small(spark):
            work = [functools.partial(one_after_the_other, work)]
        path = f"{table.name}/{batch:012d}-{self._tag}"
        directory = self._root / path
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        written = in_workers(spark, work, functools.partial(_write_file, str(directory)), _WRITTEN).collect()
        rows = _put_in_place(directory, {row.file: row.rows for row in written if row.rows})
        return [*before, Piece(path, rows)] if rows else before

    def append_changed(
        self, rows: DataFrame, columns: Sequence[str], change: Change, table: Table, before: list[Piece], batch: int
    ) -> list[Piece]:
        files = [unquote(urlsplit(file).path) for file in rows.inputFiles()]
        work = [functools.partial(_changed, file, tuple(columns), change) for file in sorted(files)]
        return self.append_made(rows.sparkSession, work, table, before, batch)

    def replace(self, rows: DataFrame, table: Table, batch: int) -> Piece | None:
        return self._write(rows, f"{table.name}/{batch:012d}-{self._tag}-open")

    def split(
        self, rows: DataFrame, column: str, table: Table, before: list[Piece], batch: int
    ) -> tuple[list[Piece], Piece | None]:
        final, carried = self._write_parts(rows, column, table, batch)
        return [*before, final] if final else before, carried

    def distribute(
        self,
        rows: DataFrame,
        column: str,
        tables: tuple[Table, Table],
        befores: tuple[list[Piece], list[Piece]],
        batch: int,
    ) -> tuple[list[Piece], list[Piece]]:
        """The files hold the columns of both tables; a reader takes those of its own."""
        first, second = self._write_parts(rows, column, tables[0], batch)
        return [*befores[0], *([first] if first else [])], [*befores[1], *([second] if second else [])]

    def _write_parts(self, rows: DataFrame, column: str, table: Table, batch: int) -> tuple[Piece | None, Piece | None]:
        """In one job, rows with a false and with a true ``column`` apart."""
        path = f"{table.name}/{batch:012d}-{self._tag}"
        rows.write.options(**_WITHOUT_DICTIONARY).mode("overwrite").partitionBy(column).parquet(str(self._root / path))
        return self._piece(f"{path}/{column}=false"), self._piece(f"{path}/{column}=true")

    def _write(self, rows: DataFrame, path: str, level: int = 0) -> Piece | None:
        rows.write.options(**_WITHOUT_DICTIONARY).mode("overwrite").parquet(str(self._root / path))
        return self._piece(path, level)

    def _piece(self, path: str, level: int = 0) -> Piece | None:
        files = sorted((self._root / path).glob("*.parquet"))
        count = sum(pq.read_metadata(file).num_rows for file in files)
        return Piece(path, count, level) if count else None

    # -- putting small pieces together --------------------------------------------------------------

    def compact(self, spark: SparkSession, table: Table, pieces: list[Piece], batch: int) -> list[Piece]:
        """The same rows in fewer pieces, or the same pieces where there is nothing to do yet. A row is rewritten a few
        times at most, however long the history is: only pieces of one level are put together, to one of the next."""
        level = pieces[-1].level if pieces else 0
        start = len(pieces)
        while start > 0 and pieces[start - 1].level == level:
            start -= 1
        run = pieces[start:]
        if len(run) < FAN_IN or sum(piece.rows for piece in run) > FULL_ROWS:
            return pieces
        rows = self.read(spark, table, run).coalesce(1)
        merged = self._write(rows, f"{table.name}/{batch:012d}-{self._tag}-merged-{level + 1}", level + 1)
        return self.compact(spark, table, [*pieces[:start], *([merged] if merged else [])], batch)


def _put_in_place(directory: Path, written: dict[str, int]) -> int:
    """Give what the workers have written its name, and return how many rows that is. Only what was told to the driver
    counts: a task may have been tried twice."""
    for number, file in enumerate(sorted(written)):
        (directory / file).rename(directory / f"part-{number:05d}.parquet")
    for leftover in directory.glob(".*"):
        leftover.unlink(missing_ok=True)
    Files().sync_directory(directory)
    return sum(written.values())


# -- in the workers -------------------------------------------------------------------------------


_WRITTEN = "file string, rows bigint"


def _write_file(directory: str, number: int, batches: Batches) -> Batches:
    """One file for each piece of work, under a name that nobody reads; it tells which, and how many rows are in it."""
    file = Path(directory, f".{number:05d}-{secrets.token_hex(8)}")
    writer, rows = None, 0
    try:
        for together in gathered(batches, most_rows=GROUP_ROWS, most_bytes=GROUP_BYTES):
            group = pa.Table.from_batches(together)
            with _told(file):
                writer = writer or _writer(file, group.schema)
                writer.write_table(group)
            rows += group.num_rows
        if writer is not None:
            with _told(file):
                writer.close()
                _sync(file)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    yield pa.RecordBatch.from_pylist([{"file": file.name, "rows": rows}])


def _writer(file: Path, schema: pa.Schema) -> pq.ParquetWriter:
    with_dictionary = [name for name in schema.names if name not in _DISTINCT]
    return pq.ParquetWriter(file, schema, use_dictionary=with_dictionary, store_schema=False)


def _sync(file: Path) -> None:
    """The journal may forget what bronze has, so that is to be on the disk before a commit names it."""
    files = Files()
    handle = files.open(file)
    try:
        files.sync(handle)
    finally:
        files.close(handle)


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    """What goes wrong in a worker reaches the user as a line of ours, or as the traceback of another process."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        where = f"{file.parent} cannot be written by the worker on {socket.gethostname()}"
        if isinstance(error, FileNotFoundError):
            raise WarehouseError(f"{where}: a warehouse is on a path that the driver and all workers share") from None
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise WarehouseError(f"{where}: {reason}") from None


def _changed(file: str, columns: tuple[str, ...], change: Change) -> Batches:
    with pq.ParquetFile(file) as source:
        # Texts that come again and again stay what they are in the file: numbers of a dictionary.
        texts = [each.name for each in source.schema_arrow if each.type == pa.string()]
    # Bronze of before has the times of another age, which would come as nanoseconds.
    with pq.ParquetFile(file, read_dictionary=texts, coerce_int96_timestamp_unit="us") as source:
        for group in range(source.num_row_groups):
            extent = source.metadata.row_group(group)
            # Payloads are of any size, and only so much of them is to be in memory at once.
            rows = max(1, min(CHANGE_ROWS, CHANGE_BYTES * extent.num_rows // max(1, extent.total_byte_size)))
            yield from map(change, source.iter_batches(rows, [group], columns))


def unnamed(root: Path, named: set[str], tables: tuple[Table, ...]) -> list[str]:
    """Directories of tables that no commit names: what a killed run left."""
    found = []
    for table in tables:
        for directory in sorted((root / table.name).glob("*-*")):
            path = str(directory.relative_to(root))
            parts = [f"{path}/{each.name}" for each in directory.iterdir() if "=" in each.name]
            if path in named:
                continue
            if any(part in named for part in parts):
                found += [part for part in parts if part not in named]
            else:
                found.append(path)
    return found
