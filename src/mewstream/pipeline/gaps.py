"""``sequence_gaps``: numbers that a writer's ``stream/data`` skipped, and whether they came later.

The numbers of a writer grow as long as it is here. When it comes back it may count anew, which is no
gap; and it may send what was missing, which heals one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline.events import events
from mewstream.pipeline.tables import GAP_HEALS_WITHIN_SECONDS, SEQUENCE_GAPS, WRITER_SEQUENCES

_WRITER = ("space", "stream_id", "sender")
_GAP = (*_WRITER, "seq")


def numbered(frames: DataFrame, lives: DataFrame, carried: DataFrame) -> DataFrame:
    """Frames with a number in streams that live, each with ``previous_seq`` and ``previous_sequence`` of the one before
    it of the same writer, and ``highest_before``; ``carried`` are those from before the batch."""
    life = F.broadcast(lives.select("space", "stream_id", "ready_seq", "ended_seq"))
    in_life = (F.col("seq") >= F.col("ready_seq")) & (F.col("ended_seq").isNull() | (F.col("seq") < F.col("ended_seq")))
    came = (
        frames.where(F.col("sequence").isNotNull())
        .select(*_WRITER, "seq", "ts", "sequence")
        .join(life, ["space", "stream_id"])
        .where(in_life)
        .select(*_WRITER, "ready_seq", "seq", "ts", "sequence", F.lit(False).alias("carried"))
        .withColumn("highest", F.col("sequence"))
    )
    before = (
        carried.join(life, ["space", "stream_id"])
        .where(in_life)
        .select(
            *(*_WRITER, "ready_seq", "seq"),
            F.lit(None).cast("timestamp").alias("ts"),
            "sequence",
            F.lit(True).alias("carried"),
            "highest",
        )
    )
    order = Window.partitionBy(*_WRITER, "ready_seq").orderBy("seq")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    return came.unionByName(before).withColumns(
        {
            "previous_seq": F.lag("seq").over(order),
            "previous_sequence": F.lag("sequence").over(order),
            "highest_before": F.max("highest").over(earlier),
        }
    )


def gaps(
    numbered: DataFrame,
    control: DataFrame,
    *,
    participants: DataFrame,
    lives: DataFrame,
    spaces: DataFrame,
    carried: DataFrame,
) -> DataFrame:
    """The gaps that were open before this batch and those that it shows, with ``is_open``: it may still heal.
    ``participants`` are those of before the batch."""
    every = carried.select(SEQUENCE_GAPS.names).unionByName(_new_gaps(numbered, control, participants))
    deadline = F.col("ts") + F.expr(f"interval {GAP_HEALS_WITHIN_SECONDS} seconds")
    late = numbered.where(~F.col("carried") & (F.col("sequence") < F.col("highest_before"))).select(
        *_WRITER,
        F.col("seq").alias("late_seq"),
        F.col("ts").alias("late_ts"),
        F.col("sequence").alias("number"),
    )
    heals = (
        (F.col("late_seq") > F.col("seq"))
        & (F.col("number") > F.col("after_sequence"))
        & (F.col("number") < F.col("sequence"))
        & (F.col("late_ts") <= deadline)
    )
    arrivals = (
        every.select(*_GAP, "ts", "after_sequence", "sequence")
        .join(late, list(_WRITER))
        .where(heals)
        .groupBy(*_GAP)
        .agg(F.sort_array(F.collect_list(F.struct("late_seq", "late_ts", "number"))).alias("arrivals"))
    )
    folded = every.join(arrivals, list(_GAP), "left").withColumn("fold", _fold())
    healed = F.size("fold.ranges") == 0
    rows = folded.select(
        *(*_WRITER, "seq", "ts", "after_sequence", "sequence", "missing"),
        _total(F.col("fold.ranges")).alias("still_missing"),
        F.col("fold.ranges").alias("ranges"),
        healed.alias("healed"),
        F.when(healed, F.col("fold.seq")).alias("healed_seq"),
        F.when(healed, F.col("fold.ts")).alias("healed_ts"),
    )
    life = lives.select("space", "stream_id", "ready_seq", "ended_seq")
    ended = (
        rows.join(F.broadcast(life), ["space", "stream_id"], "left")
        .where(F.coalesce(F.col("ready_seq") <= F.col("seq"), F.lit(True)))
        .withColumn("life_over", F.col("ready_seq").isNull() | F.col("ended_seq").isNotNull())
        .groupBy(*_GAP)
        .agg(F.bool_and("life_over").alias("life_over"))
    )
    too_late = F.coalesce(F.col("last_ts") > deadline, F.lit(False))
    return (
        rows.join(ended, list(_GAP))
        .join(F.broadcast(spaces.select("space", "last_ts")), "space", "left")
        .withColumn("is_open", ~(F.col("healed") | F.col("life_over") | too_late))
        .select(*SEQUENCE_GAPS.names, "is_open")
    )


def writer_sequences(numbered: DataFrame, lives: DataFrame) -> DataFrame:
    """The last number of each writer, for the next batch; those of streams that have ended are forgotten."""
    living = lives.where(F.col("ended_seq").isNull()).select("space", "stream_id", "ready_seq")
    last = numbered.groupBy(*_WRITER, "ready_seq").agg(
        F.max_by("sequence", "seq").alias("sequence"), F.max("highest").alias("highest"), F.max("seq").alias("seq")
    )
    return last.join(F.broadcast(living), ["space", "stream_id", "ready_seq"], "left_semi").select(
        WRITER_SEQUENCES.names
    )


def _new_gaps(numbered: DataFrame, control: DataFrame, participants: DataFrame) -> DataFrame:
    jumps = numbered.where(~F.col("carried") & (F.col("sequence") > F.col("previous_sequence") + 1))
    anew = events(control, "joined").where(~F.coalesce("continues", F.lit(False)))
    counting = anew.select("space", F.col("participant").alias("sender"), F.col("seq").alias("join_seq")).unionByName(
        participants.select("space", F.col("participant").alias("sender"), F.col("counting_since").alias("join_seq"))
    )
    counted_anew = (
        jumps.select(*_GAP, "previous_seq")
        .join(F.broadcast(counting), ["space", "sender"])
        .where((F.col("join_seq") > F.col("previous_seq")) & (F.col("join_seq") < F.col("seq")))
        .select(*_GAP)
    )
    first, last = F.col("previous_sequence") + 1, F.col("sequence") - 1
    missing = last - first + 1
    return (
        jumps.join(counted_anew, list(_GAP), "left_anti")
        .withColumns(
            {
                "after_sequence": F.col("previous_sequence"),
                "missing": missing,
                "still_missing": missing,
                "ranges": F.array(F.struct(first.alias("first"), last.alias("last"))),
                "healed": F.lit(False),
                "healed_seq": F.lit(None).cast("bigint"),
                "healed_ts": F.lit(None).cast("timestamp"),
            }
        )
        .select(SEQUENCE_GAPS.names)
    )


def _fold() -> Column:
    """What is left of the ranges after all arrivals, and the arrival that took the last of it."""
    state = "struct<ranges:array<struct<first:bigint,last:bigint>>,seq:bigint,ts:timestamp>"
    nothing = F.array().cast("array<struct<late_seq:bigint,late_ts:timestamp,number:bigint>>")
    start = F.struct(
        F.col("ranges"), F.lit(None).cast("bigint").alias("seq"), F.lit(None).cast("timestamp").alias("ts")
    ).cast(state)

    def arrive(so_far: Column, arrival: Column) -> Column:
        number = arrival["number"]

        def without(range: Column) -> Column:
            rests = F.array(
                F.struct(range["first"].alias("first"), (number - 1).alias("last")),
                F.struct((number + 1).alias("first"), range["last"].alias("last")),
            )
            kept = F.filter(rests, lambda rest: rest["first"] <= rest["last"])
            return F.when(number.between(range["first"], range["last"]), kept).otherwise(F.array(range))

        left = F.flatten(F.transform(so_far["ranges"], without))
        return F.when(
            F.size(so_far["ranges"]) > 0,
            F.struct(left.alias("ranges"), arrival["late_seq"].alias("seq"), arrival["late_ts"].alias("ts")).cast(
                state
            ),
        ).otherwise(so_far)

    return F.aggregate(F.coalesce("arrivals", nothing), start, arrive)


def _total(ranges: Column) -> Column:
    return F.aggregate(ranges, F.lit(0).cast("bigint"), lambda sum, each: sum + each["last"] - each["first"] + 1)
