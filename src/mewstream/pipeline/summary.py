"""``space_summary``: each space in one row, by adding what a batch brought to what was there."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mewstream.pipeline.events import KNOWN
from mewstream.pipeline.tables import SPACE_SUMMARY

_FIRST = ("first_seq", "first_ts")
_LAST = ("last_seq", "last_ts")
#: Counted anew in each batch, from what is open after it.
_CURRENT = ("participants", "present", "open_streams")
_SUMS = tuple(name for name in SPACE_SUMMARY.names if name not in {"space", "verdict", *_FIRST, *_LAST})


def of_records(stats: DataFrame) -> DataFrame:
    """What the number of records of each kind says. ``stats`` has a row for each space and kind."""
    count = F.col("count")

    def of(condition: Column) -> Column:
        return F.sum(F.when(condition, count).otherwise(0))

    record = F.col("record")
    return stats.groupBy("space").agg(
        F.min("first_seq").alias("first_seq"),
        F.min("first_ts").alias("first_ts"),
        F.max("last_seq").alias("last_seq"),
        F.max("last_ts").alias("last_ts"),
        F.sum("count").alias("records"),
        of(~record.isin(*KNOWN)).alias("unknown_records"),
        of(record == "envelope").alias("envelopes"),
        of(record == "frame").alias("frames"),
        of(record == "stream-opened").alias("streams"),
    )


def total(rows: DataFrame, name: str, column: str | None = None) -> DataFrame:
    """``rows`` counted, or a column of them summed up, by space, under the name of a column of the summary."""
    value = F.count(F.lit(1)) if column is None else F.sum(column)
    return rows.groupBy("space").agg(value.alias(name))


def summary(carried: DataFrame, *additions: DataFrame) -> DataFrame:
    before = carried.drop("verdict", *_CURRENT)
    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), [before, *additions])
    totals = rows.groupBy("space").agg(
        *(F.min(name).alias(name) for name in _FIRST),
        *(F.max(name).alias(name) for name in _LAST),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS),
    )
    verdict = F.when(F.col("findings") > 0, "flawed").otherwise("sound")
    return totals.withColumn("verdict", verdict).select(SPACE_SUMMARY.names)
