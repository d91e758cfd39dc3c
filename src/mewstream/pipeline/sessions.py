"""``sessions``: who was here, from joining to leaving, and since when each participant counts its messages."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline.events import events, micros
from mewstream.pipeline.tables import PARTICIPANTS, SESSIONS

_WHO = ("space", "participant")
_SUSPENSION = "struct<seq:bigint,ts:timestamp,until:timestamp,reason:string,resumed_seq:bigint,resumed_ts:timestamp>"


def sessions(control: DataFrame, carried: DataFrame) -> DataFrame:
    """All sessions that were open before this batch or began in it, as they are after it."""
    order = Window.partitionBy(*_WHO).orderBy("seq", "place")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = reduce(
        lambda left, right: left.unionByName(right, allowMissingColumns=True),
        [_joins(control), _leaves(control), _suspensions(control), *_carried(carried)],
    )
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    # A join is a new session unless it goes on with one that the log knows.
    came_or_left = F.last(F.when(F.col("what") != "suspended", F.col("what")), ignorenulls=True).over(earlier)
    alone = F.coalesce(came_or_left == "left", F.lit(True))
    begins = (F.col("what") == "before") | ((F.col("what") == "joined") & (~F.col("continued") | alone))
    rows = rows.withColumn("begins", begins)
    following = F.lead(F.struct("what", "seq", "ts", "begins")).over(order)
    rows = rows.withColumn("joined_seq", F.last(F.when(F.col("begins"), F.col("seq")), ignorenulls=True).over(so_far))
    rows = rows.withColumn("next", following)
    resumed = (F.col("next.what") == "joined") & ~F.col("next.begins")
    suspension = F.struct(
        *("seq", "ts", "until", "reason"),
        F.when(resumed, F.col("next.seq")).alias("resumed_seq"),
        F.when(resumed, F.col("next.ts")).alias("resumed_ts"),
    )
    rows = rows.withColumns(
        {
            "base": F.when(F.col("begins"), F.struct("ts", "transport", "capabilities", "connections", "suspensions")),
            "suspended": F.when(F.col("what") == "suspended", suspension),
            "left": F.when(F.col("what") == "left", F.struct("seq", "ts", "reason")),
            "joined_again": F.when((F.col("what") == "joined") & ~F.col("begins"), 1).otherwise(0),
        }
    )
    grouped = rows.groupBy(*_WHO, "joined_seq").agg(
        F.first("base", ignorenulls=True).alias("base"),
        F.min("left").alias("left"),
        F.sort_array(F.collect_list("suspended")).alias("suspended"),
        F.sum("joined_again").alias("joined_again"),
    )
    sessions_in_order = Window.partitionBy(*_WHO).orderBy("joined_seq")
    known = grouped.where(F.col("joined_seq").isNotNull()).withColumn(
        "successor",
        F.lead(F.struct(F.col("joined_seq").alias("seq"), F.col("base.ts").alias("ts"))).over(sessions_in_order),
    )

    def still_here(suspension: Column) -> Column:
        return F.coalesce(suspension["seq"] < F.col("left.seq"), F.lit(True))

    return known.select(
        *(*_WHO, "joined_seq"),
        F.col("base.ts").alias("joined_ts"),
        *("base.transport", "base.capabilities"),
        (F.col("base.connections") + F.col("joined_again")).cast("int").alias("connections"),
        F.concat("base.suspensions", F.filter("suspended", still_here)).alias("suspensions"),
        F.coalesce("left.seq", "successor.seq").alias("left_seq"),
        F.coalesce("left.ts", "successor.ts").alias("left_ts"),
        F.when(F.col("left").isNotNull(), F.col("left.reason"))
        .when(F.col("successor").isNotNull(), "vanished")
        .alias("ended_how"),
    ).select(SESSIONS.names)


def participants(control: DataFrame, carried: DataFrame) -> DataFrame:
    """Everyone who ever joined, with the join since which the numbers of its ``stream/data`` grow."""
    joined = events(control, "joined").where(~F.coalesce("continues", F.lit(False)))
    rows = carried.unionByName(joined.select(*_WHO, F.col("seq").alias("counting_since")))
    return rows.groupBy(*_WHO).agg(F.max("counting_since").alias("counting_since")).select(PARTICIPANTS.names)


# -- events ---------------------------------------------------------------------------------------


def _joins(control: DataFrame) -> DataFrame:
    return events(control, "joined").select(
        *(*_WHO, "seq", "ts"),
        F.lit(1).alias("place"),
        F.lit("joined").alias("what"),
        F.coalesce(F.col("resumed") | F.col("replaced"), "resumed", "replaced", F.lit(False)).alias("continued"),
        *("transport", "capabilities"),
        F.lit(1).alias("connections"),
        F.array().cast(f"array<{_SUSPENSION}>").alias("suspensions"),
    )


def _leaves(control: DataFrame) -> DataFrame:
    return events(control, "left").select(
        *(*_WHO, "seq", "ts", "reason"), F.lit(1).alias("place"), F.lit("left").alias("what")
    )


def _suspensions(control: DataFrame) -> DataFrame:
    return events(control, "suspended").select(
        *(*_WHO, "seq", "ts", "reason"),
        F.lit(1).alias("place"),
        F.lit("suspended").alias("what"),
        micros("until").alias("until"),
    )


def _carried(carried: DataFrame) -> list[DataFrame]:
    """An open session, and its last suspension as the event that it was: whether anybody came back shows now."""
    last = F.try_element_at("suspensions", F.lit(-1))
    waiting = last.isNotNull() & last["resumed_seq"].isNull()
    past = F.when(waiting, F.slice("suspensions", 1, F.size("suspensions") - 1)).otherwise(F.col("suspensions"))
    base = carried.select(
        *_WHO,
        F.col("joined_seq").alias("seq"),
        F.col("joined_ts").alias("ts"),
        F.lit(0).alias("place"),
        F.lit("before").alias("what"),
        *("transport", "capabilities", "connections"),
        past.alias("suspensions"),
    )
    suspended = carried.where(waiting).select(
        *_WHO,
        last["seq"].alias("seq"),
        last["ts"].alias("ts"),
        F.lit(1).alias("place"),
        F.lit("suspended").alias("what"),
        last["until"].alias("until"),
        last["reason"].alias("reason"),
    )
    return [base, suspended]
