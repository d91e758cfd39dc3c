"""From the records of one batch to the rows of every table: what is made where, and in which order.

Most rows follow from one pass over the records of each space (:mod:`.spaces`). What frames say is decoded in SQL
(:mod:`.content`); it needs the formats, which that pass tells.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from mewstream.history.reading import COLUMNS as READ_BY_SPACE
from mewstream.history.reading import narrow
from mewstream.journal.reader import partition_of
from mewstream.pipeline import content
from mewstream.pipeline import tables as t
from mewstream.pipeline.arrow_work import unchanged
from mewstream.pipeline.batch_writer import BatchWriter
from mewstream.pipeline.bronze import Bronze
from mewstream.pipeline.column_types import arrow_type
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.frames import COLUMNS, frames
from mewstream.pipeline.open_rows import OpenRows
from mewstream.pipeline.spaces import TOLD_SPACES, Space, arrow_table, folded, of_partition, understood
from mewstream.pipeline.summary import summaries

#: So much goes on at the same time: the long passes fill the cores, and small tables take little but waiting.
_WRITERS = 4
#: Tables with open rows, which :func:`.spaces.folded` makes anew for each space that it sees.
_BY_SPACE = (t.SESSIONS, t.STREAMS, t.AUTHORIZATIONS, t.HANDOFFS, t.STREAM_METRICS, t.SEQUENCE_GAPS, t.SPACES)


@dataclass(slots=True)
class Counted:
    """What is in a batch, as far as the driver needs to know it."""

    records: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    formatted: int = 0
    """Frames with a format."""
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each partition of the journal the offsets, the last one not included."""


def count(spaces: Collection[Space], partitions: int, *, is_whole: bool = True) -> Counted:
    """Raises where the offsets of a partition are not one unbroken range: then records are missing, or there twice.
    What is not whole may miss some."""
    counted = Counted()
    found: dict[int, int] = {}
    for space in spaces:
        number, records = partition_of(space.space, partitions), space.sums["records"]
        counted.records += records
        counted.formatted += space.formatted
        for kind, of_kind in space.kinds.items():
            counted.kinds[kind] = counted.kinds.get(kind, 0) + of_kind
        first, end = counted.ranges.get(number, (space.offsets[0], space.offsets[1] + 1))
        counted.ranges[number] = min(first, space.offsets[0]), max(end, space.offsets[1] + 1)
        found[number] = found.get(number, 0) + records
    for number, (first, end) in counted.ranges.items():
        if found[number] > end - first or (is_whole and found[number] < end - first):
            raise WarehouseError(
                f"the batch has {found[number]} records of partition {number} for the offsets {first} to {end - 1}: "
                "expected each once. Verify the journal with `mewstream journal verify`"
            )
    return counted


def derive(batch: BatchWriter, bronze: Bronze, partitions: int, open_rows: OpenRows) -> Counted:
    """Write the rows of every table but bronze."""
    context = batch.spark.sparkContext
    # Or Spark would take a stack trace for each step of each plan, to tell where in its code that comes from.
    for form in ("short", "long"):
        context.setLocalProperty(f"callSite.{form}", f"batch {batch.number}")
    spaces = _fold(batch, bronze, partitions)
    counted = count(spaces, partitions, is_whole=bronze.ranges is None)
    if counted.records:
        with _at_work(batch.spark) as work:
            work.start(_frames, batch, bronze, counted)
            if counted.formatted:
                work.start(_content, batch, bronze, spaces)
            work.finish()
        _replace(batch, spaces, open_rows)
    return counted


def _fold(batch: BatchWriter, bronze: Bronze, partitions: int) -> list[Space]:
    keeps = [unchanged] if batch.is_small else [of_partition(number, partitions) for number in range(partitions)]
    fold = functools.partial(folded, batch.store, batch.open_files(t.SPACES))
    told = batch.told(bronze.narrowed(READ_BY_SPACE, narrow, keeps), fold, TOLD_SPACES)
    files, spaces = understood(told)
    batch.adopt(files)
    return spaces


def _frames(batch: BatchWriter, bronze: Bronze, counted: Counted) -> None:
    if "frame" in counted.kinds:
        batch.append_made(t.FRAMES, bronze.changed(COLUMNS, frames))
    found, expected = batch.rows_added(t.FRAMES), counted.kinds.get("frame", 0)
    if found != expected:
        raise WarehouseError(f"{found} frames were written of {expected}: are all workers of the same mewstream?")


def _content(batch: BatchWriter, bronze: Bronze, spaces: Collection[Space]) -> None:
    formats = _formats(batch.spark, spaces)
    schemas, unchecked = content.schemas_of(formats)
    batch.distribute(
        t.CONTENT,
        t.QUARANTINE,
        content.decoded(bronze.rows, formats, schemas, unchecked=unchecked),
        "is_quarantined",
    )


_FORMATS = {
    "space": "string",
    "stream_id": "string",
    "opened_seq": "bigint",
    "ended_seq": "bigint",
    "format_id": "string",
    "mime_type": "string",
    "schema_hash": "string",
    "schema": "string",
}


def _formats(spark: SparkSession, spaces: Collection[Space]) -> DataFrame:
    """The formats of all streams that lived during the batch."""
    rows = [
        (
            *(space.space, life.stream_id, life.ready_seq, life.ended_seq),
            *(each.format_id, each.mime_type, each.schema_hash, each.schema),
        )
        for space in spaces
        for life in space.lives
        for each in life.formats
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in _FORMATS]
    arrays = [pa.array(values, arrow_type(type)) for values, type in zip(columns, _FORMATS.values(), strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, list(_FORMATS)))


def _replace(batch: BatchWriter, spaces: Collection[Space], open_rows: OpenRows) -> None:
    """What these spaces had open before goes, and what is said of each as a whole is written anew."""
    touched = {space.space for space in spaces}

    def of_before(table: t.Table) -> Iterator[dict[str, Any]]:
        return open_rows.of_spaces(table, batch.open_files(table), touched)

    before = {row["space"]: row for row in of_before(t.SPACE_SUMMARY)}
    unjudged = Counter({(row["space"], row["what"], row["reason"]): row["count"] for row in of_before(t.UNJUDGED)})
    for space in spaces:
        for what, reason, count in space.unjudged:
            unjudged[space.space, what, reason] += count
    more: dict[str, dict[str, int]] = {}
    for table, name in ((t.CONTENT, "content"), (t.QUARANTINE, "quarantined")):
        for where, rows in batch.rows_by_space(table).items():
            more.setdefault(where, {})[name] = rows
    for table in (*_BY_SPACE, t.UNJUDGED, t.SPACE_SUMMARY):
        replaced = open_rows.without(table, batch.open_files(table), touched)
        batch.adopt(replaced.made, gone=replaced.gone)
    batch.write(t.SPACE_SUMMARY, arrow_table(t.SPACE_SUMMARY, summaries(spaces, before, more)))
    rows_of_unjudged = [dict(zip(t.UNJUDGED.names, (*key, count), strict=True)) for key, count in unjudged.items()]
    batch.write(t.UNJUDGED, arrow_table(t.UNJUDGED, rows_of_unjudged))


class _Work:
    """What goes on side by side."""

    def __init__(self, spark: SparkSession, pool: ThreadPoolExecutor) -> None:
        self._spark = spark
        self._pool = pool
        self._running: list[Future[Any]] = []

    def start(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        # With the properties of this thread, so that stopping the query stops these jobs too.
        started = self._pool.submit(inheritable_thread_target(self._spark)(work), *arguments)
        self._running.append(started)
        return started

    def finish(self) -> None:
        for each in self._running:
            each.result()


@contextlib.contextmanager
def _at_work(spark: SparkSession) -> Iterator[_Work]:
    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="tables") as pool:
        yield _Work(spark, pool)
