"""Tables in Delta Lake: one Delta table for final rows and one for open rows, read at the version that a commit names.

Every row has the batch that wrote it in ``_batch``. A version that no commit names yet is seen by nobody, and
where a killed run has left one, it is undone before more is written.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mewstream.pipeline.arrow_work import Change, Work, for_spark, in_workers
from mewstream.pipeline.manifest import GRACE_SECONDS, Piece
from mewstream.pipeline.tables import Table

#: Small files are put together, and old versions removed, once in so many batches.
COMPACT_EVERY = 20


class DeltaTables:
    def __init__(self, root: Path, generation: int) -> None:
        self._root = root
        self._generation = generation

    # -- reading ----------------------------------------------------------------------------------

    def read(self, spark: SparkSession, table: Table, pieces: list[Piece]) -> DataFrame:
        if not pieces:
            return spark.createDataFrame([], table.schema)
        return functools.reduce(DataFrame.unionByName, [self._at(spark, piece).select(table.names) for piece in pieces])

    def read_added(
        self, spark: SparkSession, table: Table, before: list[Piece], after: list[Piece], batch: int
    ) -> DataFrame:
        """The rows that a batch added."""
        if after == before:
            return self.read(spark, table, [])
        return self._at(spark, after[-1]).where(F.col("_batch") == batch).select(table.names)

    def portions(self, spark: SparkSession, table: Table, pieces: list[Piece], most: int) -> Iterator[DataFrame]:
        """All rows in their order, so many at once: neighbouring batches, and one batch at least."""
        for piece in pieces:
            whole = self._at(spark, piece)
            first, rows = 0, 0
            for row in whole.groupBy("_batch").count().orderBy("_batch").collect():
                if rows and rows + row["count"] > most:
                    yield whole.where(F.col("_batch").between(first, row["_batch"] - 1)).select(table.names)
                    first, rows = row["_batch"], 0
                rows += row["count"]
            yield whole.where(F.col("_batch") >= first).select(table.names)

    def _at(self, spark: SparkSession, piece: Piece) -> DataFrame:
        reader = spark.read.format("delta").option("versionAsOf", str(piece.version))
        return reader.load(str(self._root / piece.path))

    # -- writing ----------------------------------------------------------------------------------

    def append(self, rows: DataFrame, table: Table, before: list[Piece], batch: int) -> list[Piece]:
        # Bronze stays where it is when everything else is made anew.
        path = before[-1].path if before else f"{table.name}/{self._generation}"
        writer = _with_batch(rows, batch).write.format("delta")
        if before:
            self._undo_after(rows.sparkSession, before[-1])
        writer.mode("append" if before else "overwrite").save(str(self._root / path))
        version, count = self._last_commit(path)
        total = count + sum(piece.rows for piece in before)
        return [Piece(path, total, version=version)] if total else []

    def append_made(
        self, spark: SparkSession, work: Sequence[Work], table: Table, before: list[Piece], batch: int
    ) -> list[Piece]:
        rows = in_workers(spark, work, lambda _, batches: for_spark(batches), table.schema)
        return self.append(rows, table, before, batch)

    def append_changed(
        self, rows: DataFrame, columns: Sequence[str], change: Change, table: Table, before: list[Piece], batch: int
    ) -> list[Piece]:
        changed = rows.select(*columns).mapInArrow(lambda batches: map(change, batches), table.schema)
        return self.append(changed, table, before, batch)

    def replace(self, rows: DataFrame, table: Table, batch: int) -> Piece | None:
        path = f"{table.name}/{self._generation}-open"
        _with_batch(rows, batch).write.format("delta").mode("overwrite").save(str(self._root / path))
        version, count = self._last_commit(path)
        return Piece(path, count, version=version) if count else None

    def split(
        self, rows: DataFrame, column: str, table: Table, before: list[Piece], batch: int
    ) -> tuple[list[Piece], Piece | None]:
        with _kept(rows):
            final = self.append(rows.where(~F.col(column)).select(table.names), table, before, batch)
            return final, self.replace(rows.where(column).select(table.names), table, batch)

    def distribute(
        self,
        rows: DataFrame,
        column: str,
        tables: tuple[Table, Table],
        befores: tuple[list[Piece], list[Piece]],
        batch: int,
    ) -> tuple[list[Piece], list[Piece]]:
        with _kept(rows):
            first = self.append(rows.where(~F.col(column)).select(tables[0].names), tables[0], befores[0], batch)
            return first, self.append(rows.where(column).select(tables[1].names), tables[1], befores[1], batch)

    def _undo_after(self, spark: SparkSession, named: Piece) -> None:
        """Whatever was written after the version that a commit names: by a batch that came to nothing, which
        perhaps does not write to this table when it is repeated."""
        path = self._root / named.path
        if _newest_version(path) != named.version:
            spark.sql(f"RESTORE delta.`{path}` TO VERSION AS OF {named.version}").collect()

    def _last_commit(self, path: str) -> tuple[int, int]:
        """The newest version, and how many rows it wrote. We are the only writer."""
        newest = max((self._root / path / "_delta_log").glob("*.json"))
        actions = [msgspec.json.decode(line) for line in newest.read_bytes().splitlines() if line]
        [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
        return int(newest.stem), int(info["operationMetrics"].get("numOutputRows", 0))

    # -- putting small files together ---------------------------------------------------------------

    def compact(self, spark: SparkSession, table: Table, pieces: list[Piece], batch: int) -> list[Piece]:
        if not pieces or batch % COMPACT_EVERY:
            return pieces
        [piece] = pieces
        self._undo_after(spark, piece)
        spark.sql(f"OPTIMIZE delta.`{self._root / piece.path}`").collect()
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        for path in (piece.path, f"{table.name}/{self._generation}-open"):
            if (self._root / path / "_delta_log").exists():
                spark.sql(f"VACUUM delta.`{self._root / path}` RETAIN {GRACE_SECONDS / 3600} HOURS").collect()
        return [Piece(piece.path, piece.rows, version=_newest_version(self._root / piece.path))]


def _newest_version(path: Path) -> int:
    return int(max((path / "_delta_log").glob("*.json")).stem)


@contextlib.contextmanager
def _kept(rows: DataFrame) -> Iterator[None]:
    """Rows that are written twice are computed once."""
    rows.persist()
    try:
        yield
    finally:
        rows.unpersist()


def _with_batch(rows: DataFrame, batch: int) -> DataFrame:
    return rows.withColumn("_batch", F.lit(batch).cast("bigint"))
