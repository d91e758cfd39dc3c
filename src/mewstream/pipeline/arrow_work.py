"""Work that the workers do in Arrow: reading, changing and writing whole batches, of which Spark sees no row.

The two longest tables are made so. To take the rows of a journal into Spark and out again costs several times as much
as to write them where they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
Work = Callable[[], Batches]
"""Gives rows, wherever it is called: it is pickled."""
Change = Callable[[pa.RecordBatch], pa.RecordBatch]


def in_workers(
    spark: SparkSession, work: Sequence[Work], handle: Callable[[int, Batches], Batches], schema: str
) -> DataFrame:
    """What ``handle`` makes of the rows of each piece of work, which it gets with its number: a task for each."""

    def run(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from handle(number, work[number]())

    return spark.range(0, len(work), 1, len(work)).mapInArrow(run, schema)
