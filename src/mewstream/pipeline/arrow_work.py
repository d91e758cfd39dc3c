"""Work that the workers do in Arrow: reading, changing and writing whole batches.

The two longest tables are made so. To take the rows of a journal into Spark and out again costs several times as much
as to write them where they were read.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from mewstream.journal.batches import gathered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What is handed to Spark at once.
OUTPUT_ROWS = 32_768
OUTPUT_BYTES = 8 << 20

Batches = Iterator[pa.RecordBatch]
Work = Callable[[], Batches]
"""Gives rows, wherever it is called: it is pickled."""
Change = Callable[[pa.RecordBatch], pa.RecordBatch]


def in_workers(
    spark: SparkSession, work: Sequence[Work], handle: Callable[[int, Batches], Batches], schema: str
) -> DataFrame:
    """What ``handle`` makes of the rows of each piece of work, which it gets with its number: a task for each."""

    def run(numbers: Batches) -> Batches:
        spare_the_collector()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from handle(number, work[number]())

    return spark.range(0, len(work), 1, len(work)).mapInArrow(run, schema)


def one_after_the_other(work: Sequence[Work]) -> Batches:
    for each in work:
        yield from each()


def for_spark(batches: Iterable[pa.RecordBatch]) -> Batches:
    """The same rows in batches of a size that suits Spark."""
    for together in gathered(batches, most_rows=OUTPUT_ROWS, most_bytes=OUTPUT_BYTES):
        yield together[0] if len(together) == 1 else pa.concat_batches(together)


def unchanged(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


@functools.cache
def spare_the_collector() -> None:
    """In a worker: Spark collects garbage after every task, and what is there now, mostly modules, is none. Not in the
    driver: what is frozen is not taken apart when the program ends, and libraries complain of that."""
    gc.freeze()
