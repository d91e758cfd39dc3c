"""``handoffs``: from a grant or a transfer to the first frame of the new writer."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline.events import events
from mewstream.pipeline.tables import HANDOFFS

_HANDOFF = ("space", "stream_id", "writer", "seq")


def handoffs(
    control: DataFrame,
    rights: DataFrame,
    activity: DataFrame,
    *,
    frames: DataFrame,
    lives: DataFrame,
    spaces: DataFrame,
    carried: DataFrame,
) -> DataFrame:
    """Those that were pending before this batch and those that it brings, with ``is_open``: nobody has written yet.
    ``rights`` are the rows of ``authorizations`` that the batch has to do with."""
    every = carried.select(HANDOFFS.names).unionByName(_new(control, rights, spaces))
    used = activity.where(F.col("from_seq").isNotNull()).select(
        *("space", "stream_id"),
        F.col("sender").alias("writer"),
        "from_seq",
        F.struct(F.col("first_seq").alias("seq"), F.col("first_ts").alias("ts")).alias("first"),
    )
    used = used.groupBy("space", "stream_id", "writer", "from_seq").agg(F.min("first").alias("first"))
    # A right that was granted again goes on: all its intervals have the same beginning, since_seq.
    held = (
        rights.where(F.col("right") == "write")
        .select(
            *("space", "stream_id", "since_seq", "from_seq", "ended_how"),
            F.col("participant").alias("writer"),
        )
        .join(used, ["space", "stream_id", "writer", "from_seq"], "left")
    )
    ended = F.coalesce(F.col("ended_how") != "replaced", F.lit(False))
    found = (
        every.select(*_HANDOFF, "since_seq")
        .join(held, ["space", "stream_id", "writer", "since_seq"])
        .where(F.col("from_seq") >= F.col("seq"))
        .groupBy(*_HANDOFF)
        .agg(F.min("first").alias("first"), F.bool_or(ended).alias("ended"))
    )
    silence = _silence(found, frames, lives)
    rows = every.join(found, list(_HANDOFF), "left").join(silence, list(_HANDOFF), "left")
    written = F.col("first").isNotNull()
    over = F.coalesce("ended", F.lit(True))
    changed = {
        "outcome": F.when(written, "written").when(over, "unused").otherwise("pending"),
        "first_frame_seq": F.col("first.seq"),
        "first_frame_ts": F.col("first.ts"),
        "waited_ms": (F.unix_micros("first.ts") - F.unix_micros("ts")) / 1000.0,
        "silent_ms": F.col("silence"),
    }
    return rows.select(
        *(changed.get(name, F.col(name)).alias(name) for name in HANDOFFS.names),
        (~written & ~over).alias("is_open"),
    )


def _new(control: DataFrame, rights: DataFrame, spaces: DataFrame) -> DataFrame:
    """Rights to write that began in this batch by a grant or a transfer. A grant to somebody who can write is none."""
    transfers = events(control, "ownership-transferred").select(
        *("space", "stream_id", "previous_owner"),
        F.col("new_owner").alias("writer"),
        "seq",
    )
    begun = (
        rights.where((F.col("right") == "write") & F.col("given_how").isin("grant", "auto_grant", "transfer"))
        .where((F.col("given_how") == "transfer") | (F.col("since_seq") == F.col("from_seq")))
        .join(F.broadcast(spaces.select("space", "first_seq")), "space")
        .where(F.col("from_seq") >= F.col("first_seq"))
        .select(
            *("space", "stream_id", "since_seq", "reason"),
            F.col("from_seq").alias("seq"),
            F.col("from_ts").alias("ts"),
            F.col("given_how").alias("how"),
            F.col("granted_by").alias("by"),
            F.col("participant").alias("writer"),
        )
        .join(transfers, list(_HANDOFF), "left")
        # Whoever transfers a stream to itself hands nothing on.
        .where(~F.coalesce(F.col("previous_owner") == F.col("writer"), F.lit(False)))
    )
    types = {"first_frame_seq": "bigint", "first_frame_ts": "timestamp", "waited_ms": "double", "silent_ms": "double"}
    return begun.select(
        *(
            F.col(name) if name in begun.columns else F.lit(None).cast(types.get(name, "string")).alias(name)
            for name in HANDOFFS.names
        )
    )


def _silence(found: DataFrame, frames: DataFrame, lives: DataFrame) -> DataFrame:
    """How long the stream was silent before each first frame. Only streams that have one are looked at."""
    first = found.where(F.col("first").isNotNull()).select(*_HANDOFF, F.col("first.seq").alias("first_seq"))
    streams = F.broadcast(first.select("space", "stream_id").distinct())
    in_life = (F.col("seq") >= F.col("ready_seq")) & (F.col("ended_seq").isNull() | (F.col("seq") < F.col("ended_seq")))
    order = Window.partitionBy("space", "stream_id", "ready_seq").orderBy("seq")
    previous = F.coalesce(F.lag("ts").over(order), "last_frame_ts")
    waits = (
        frames.select("space", "stream_id", "seq", "ts")
        .join(streams, ["space", "stream_id"], "left_semi")
        .join(F.broadcast(lives), ["space", "stream_id"])
        .where(in_life)
        .withColumn("silence", (F.unix_micros("ts") - F.unix_micros(previous)) / 1000.0)
        .select("space", "stream_id", F.col("seq").alias("first_seq"), "silence")
    )
    return waits.join(F.broadcast(first), ["space", "stream_id", "first_seq"]).select(*_HANDOFF, "silence")
