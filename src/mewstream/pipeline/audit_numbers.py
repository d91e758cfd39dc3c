"""Numbers without holes: ``seq`` in a space, ``stream_seq`` in a stream.

Each number must be one more than the greatest before it. Ordering four million rows by space or stream with all their
names is dear, so that a cheap screen comes first, which may suspect too much and never too little; only what it
suspects is looked at in full.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline.audit_facts import mark


def marks_of_records(batch: DataFrame, carried: DataFrame, spans: DataFrame, *, screen: bool) -> DataFrame:
    """Gaps and repeats of ``seq``."""
    known = spans.join(F.broadcast(_last(carried, "records").drop("key")), "space", "left")
    if screen:
        # Where a space has its part of the journal for itself, seq and offset go on side by side.
        known = known.where("least_shift <> greatest_shift OR first_seq <> last + 1")
    rows = batch.select("space", "seq", "ts", F.col("offset").alias("at"), F.lit(None).cast("string").alias("key"))
    return _marks(rows.join(F.broadcast(known.select("space", "last")), "space"), "seq", "records of the space")


def marks_of_frames(
    batch: DataFrame, carried: DataFrame, facts: DataFrame, begins: DataFrame, *, screen: bool
) -> DataFrame:
    """Gaps and repeats of ``stream_seq``, as long as a stream is open: what comes later is not numbered at all."""
    frames = batch.where("record = 'frame'")
    lives = (
        facts.where("topic IN ('opened', 'status')")
        .groupBy("space", "key")
        .agg(
            F.max(F.expr("topic = 'opened'")).alias("opened"),
            F.max(F.expr("CASE WHEN topic = 'status' AND text = 'ended' THEN at END")).alias("ended_at"),
        )
    )
    streams = (
        frames_of_streams(batch)
        .join(F.broadcast(_last(carried, "frames")), ["space", "key"], "left")
        .join(F.broadcast(lives), ["space", "key"], "left")
        .join(F.broadcast(begins), "space")
        .where(f"coalesce(opened, false) OR NOT {KNOWN}")
        # A stream that was opened in this log begins at 1. Of an older one any number may be the first.
        .withColumn("last", F.expr("coalesce(last, CASE WHEN opened THEN 0 END)"))
    )
    if screen:
        streams = (
            streams.withColumn("stream", F.xxhash64("space", "key"))
            .join(F.broadcast(_screened(frames)), "stream")
            .where("breaks > 0 OR first <> last + 1")
        )
    rows = frames.select(
        "space", "seq", "ts", F.col("offset").alias("at"), F.col("stream_id").alias("key"), "stream_seq"
    )
    suspected = rows.join(F.broadcast(streams.select("space", "key", "last", "ended_at")), ["space", "key"])
    return _marks(suspected.where("ended_at IS NULL OR at < ended_at"), "stream_seq", "frames of the stream")


def _screened(frames: DataFrame) -> DataFrame:
    """For each stream, by a hash of its name, its first number and how often the next was not one more."""
    hashed = frames.select(F.xxhash64("space", "stream_id").alias("stream"), F.col("offset").alias("at"), "stream_seq")
    before = F.lag("stream_seq").over(Window.partitionBy("stream").orderBy("at"))
    return (
        hashed.withColumn("before", before)
        .groupBy("stream")
        .agg(
            F.count(F.expr("CASE WHEN before IS NOT NULL AND NOT stream_seq <=> before + 1 THEN 1 END")).alias(
                "breaks"
            ),
            F.max(F.expr("CASE WHEN before IS NULL THEN stream_seq END")).alias("first"),
        )
    )


KNOWN = "(begun = 1 OR coalesce(try_cast(regexp_extract(key, '^stream-([0-9]+)$') AS BIGINT) >= lowest, false))"
"""Whether all that ever happened to the stream ``key`` is in the log, given ``begun`` and ``lowest`` of its space."""


def frames_of_streams(batch: DataFrame) -> DataFrame:
    return (
        batch.where("record = 'frame'")
        .groupBy("space", F.col("stream_id").alias("key"))
        .agg(F.max("stream_seq").alias("greatest"), F.max("offset").alias("at"), F.max("seq").alias("seq"))
    )


def _last(carried: DataFrame, topic: str) -> DataFrame:
    return carried.where(F.col("topic") == topic).select("space", "key", F.col("number").alias("last"))


def _marks(rows: DataFrame, number: str, what: str) -> DataFrame:
    """``rows`` have ``last``: the greatest number before them all, or null where any may be the first."""
    before = Window.partitionBy("space", "key").orderBy("at").rowsBetween(Window.unboundedPreceding, -1)
    reason = f"concat('{number} is ', {number}, ', expected ', before + 1, ': the {what} have no gaps')"
    found = " ".join(
        f"WHEN {condition} THEN {mark(f'{number}_{name}', 'flaw', 'CAST(NULL AS STRING)', reason, 'NULL')}"
        for name, condition in (("gap", f"{number} > before"), ("repeat", "true"))
    )
    return (
        rows.withColumn("before", F.max(number).over(before))
        .withColumn("before", F.expr("greatest(last, before)"))
        .where(f"before IS NOT NULL AND NOT {number} <=> before + 1")
        .selectExpr("space", "at", "seq", "ts", "key AS stream_id", f"CASE {found} END AS found")
    )
