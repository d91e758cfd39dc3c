"""``stream_metrics``: how lively each stream was, window by window.

Time never runs back in a space, so at most one window of it is open; what is in that window is carried
from batch to batch, with the time of every frame, so that percentiles are exact.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline.activity import window_start
from mewstream.pipeline.events import events
from mewstream.pipeline.tables import METRIC_WINDOW_SECONDS, OPEN_WINDOWS, STREAM_METRICS

_LIFE = ("space", "stream_id", "ready_seq")
_PERCENTILES = {"interarrival_p50_ms": 0.5, "interarrival_p95_ms": 0.95, "interarrival_p99_ms": 0.99}


class Metrics(NamedTuple):
    rows: DataFrame
    """With ``is_open``: whether the window may still get more."""
    open_windows: DataFrame


def windows(control: DataFrame, activity: DataFrame, lives: DataFrame, carried: DataFrame) -> DataFrame:
    """What is in each window that this batch has to do with. ``previous`` is the time of the last frame before it."""
    flowed = activity.groupBy(*_LIFE, "window_start").agg(
        F.sum("frames").alias("frames"),
        F.sum("bytes").alias("bytes"),
        F.collect_set("sender").alias("writers"),
        F.flatten(F.collect_list("times")).alias("times"),
    )
    dropped = (
        events(control, "frames-dropped")
        .withColumn("window_start", window_start("ts"))
        .groupBy("space", "stream_id", "window_start")
        .agg(F.sum("count").alias("drops"))
    )
    before = carried.withColumn("carried", F.lit(True))
    together = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), [before, flowed, dropped])
    merged = together.groupBy(*_LIFE, "window_start").agg(
        F.coalesce(F.sum("frames"), F.lit(0)).alias("frames"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_list("writers")))).alias("writers"),
        F.sort_array(F.flatten(F.collect_list("times"))).alias("times"),
        F.coalesce(F.sum("drops"), F.lit(0)).alias("drops"),
        F.max("previous").alias("carried_previous"),
        F.bool_or(F.coalesce("carried", F.lit(False))).alias("was_open"),
    )
    since = lives.select(*_LIFE, F.unix_micros("last_frame_ts").alias("last_before_batch"))
    order = Window.partitionBy(*_LIFE).orderBy("window_start")
    earlier = F.last(F.try_element_at("times", F.lit(-1)), ignorenulls=True).over(
        order.rowsBetween(Window.unboundedPreceding, -1)
    )
    previous = F.when(F.col("was_open"), F.col("carried_previous")).otherwise(
        F.coalesce(earlier, F.col("last_before_batch"))
    )
    return (
        merged.join(F.broadcast(since), list(_LIFE), "left").withColumn("previous", previous).select(OPEN_WINDOWS.names)
    )


def metrics(windows: DataFrame, spaces: DataFrame) -> Metrics:
    """``spaces`` has the ``last_ts`` of each space that is in the batch: a window that ends by then is over."""
    length = F.expr(f"interval {METRIC_WINDOW_SECONDS} seconds")
    reached = windows.join(F.broadcast(spaces.select("space", "last_ts")), "space", "left")
    is_open = F.coalesce(F.col("window_start") + length > F.col("last_ts"), F.lit(True))
    reached = reached.withColumn("is_open", is_open)
    rows = (
        reached.withColumn("waits", _waits())
        .groupBy("space", "stream_id", "window_start", "is_open")
        .agg(
            F.sum("frames").alias("frames"),
            F.sum("bytes").alias("bytes"),
            F.size(F.array_distinct(F.flatten(F.collect_list("writers")))).alias("writers"),
            F.sort_array(F.flatten(F.collect_list("waits"))).alias("waits"),
            F.sum("drops").alias("drops"),
        )
        .withColumn("window_end", F.col("window_start") + length)
        .withColumn("rate", F.col("frames") / METRIC_WINDOW_SECONDS)
        .withColumn("byte_rate", F.col("bytes") / METRIC_WINDOW_SECONDS)
        .withColumns({name: _percentile(F.col("waits"), share) for name, share in _PERCENTILES.items()})
    )
    return Metrics(
        rows.select(*STREAM_METRICS.names, "is_open"),
        reached.where("is_open").select(OPEN_WINDOWS.names),
    )


def _waits() -> Column:
    """From each frame to the next, in microseconds, the one before the window included."""
    times = F.col("times")
    previous = F.when(F.col("previous").isNotNull(), F.array("previous")).otherwise(F.array().cast("array<bigint>"))
    every = F.concat(previous, times)
    following = F.slice(every, 2, F.greatest(F.size(every) - 1, F.lit(0)))
    leading = F.slice(every, 1, F.greatest(F.size(every) - 1, F.lit(0)))
    return F.zip_with(following, leading, lambda later, sooner: later - sooner)


def _percentile(sorted_waits: Column, share: float) -> Column:
    """Between the two neighbours, in milliseconds, as Spark's own ``percentile`` does."""
    place = (F.size(sorted_waits) - 1) * F.lit(share)
    lower, upper = F.floor(place), F.ceil(place)
    low = F.try_element_at(sorted_waits, (lower + 1).cast("int"))
    high = F.try_element_at(sorted_waits, (upper + 1).cast("int"))
    value = low + (high - low) * (place - lower)
    return F.when(F.size(sorted_waits) > 0, value / 1000.0)
