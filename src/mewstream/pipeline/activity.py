"""What frames there were, summed up: the one pass over the many frames that most tables are made from.

A row is the frames of one writer, in one stream, under one right, in one window of time. Control
records are few, so the intervals that they make are broadcast, and each frame finds its own.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mewstream.pipeline.tables import METRIC_WINDOW_SECONDS

_MICROS = METRIC_WINDOW_SECONDS * 1_000_000
#: Intervals are cut into pieces of so many positions of the log, so that a writer whose right comes and goes with
#: every frame does not meet each of its frames with each of its rights.
_PIECE = 8192


def activity(frames: DataFrame, lives: DataFrame, rights: DataFrame, spaces: DataFrame) -> DataFrame:
    """``lives`` are those of :func:`mewstream.pipeline.streams.lives`, ``rights`` the rows of ``authorizations``, and
    ``spaces`` says which ``first_seq`` and ``last_seq`` of each space are in the batch.

    ``ready_seq`` is null where the stream was not alive, ``from_seq`` where the writer had no right to write.
    ``times`` are the times, in microseconds, of frames in a stream that was alive, in no order.
    """
    rows = frames.select("space", "stream_id", "sender", "seq", "stream_seq", "ts", "size")
    rows = _in_lives(rows, lives)
    rows = _under_rights(rows, rights, spaces)
    time = F.unix_micros("ts")
    return (
        rows.withColumn("window_start", window_start("ts"))
        .groupBy("space", "stream_id", "sender", "ready_seq", "from_seq", "window_start")
        .agg(
            F.count(F.lit(1)).alias("frames"),
            F.sum("size").alias("bytes"),
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
            F.min("stream_seq").alias("first_stream_seq"),
            F.max("stream_seq").alias("last_stream_seq"),
            F.collect_list(F.when(F.col("ready_seq").isNotNull(), time)).alias("times"),
        )
    )


def window_start(ts: str) -> Column:
    """The beginning of the window that a time is in."""
    time = F.unix_micros(F.col(ts))
    return F.timestamp_micros(time - F.pmod(time, F.lit(_MICROS)))


def _in_lives(rows: DataFrame, lives: DataFrame) -> DataFrame:
    life = lives.select(
        F.col("space").alias("life_space"), F.col("stream_id").alias("life_stream"), "ready_seq", "ended_seq"
    )
    matches = (
        (F.col("space") == F.col("life_space"))
        & (F.col("stream_id") == F.col("life_stream"))
        & (F.col("seq") >= F.col("ready_seq"))
        & (F.col("ended_seq").isNull() | (F.col("seq") < F.col("ended_seq")))
    )
    return rows.join(F.broadcast(life), matches, "left").drop("life_space", "life_stream", "ended_seq")


def _under_rights(rows: DataFrame, rights: DataFrame, spaces: DataFrame) -> DataFrame:
    first, last = F.greatest("from_seq", "first_seq"), F.least(F.coalesce("until_seq", "last_seq"), "last_seq")
    pieces = (
        rights.where(F.col("right") == "write")
        .join(F.broadcast(spaces.select("space", "first_seq", "last_seq")), "space")
        .where(first <= last)
        .select(
            F.col("space").alias("right_space"),
            F.col("stream_id").alias("right_stream"),
            F.col("participant").alias("right_holder"),
            *("from_seq", "until_seq"),
            F.explode(F.sequence(_piece(first), _piece(last))).alias("piece"),
        )
    )
    matches = (
        (F.col("space") == F.col("right_space"))
        & (F.col("stream_id") == F.col("right_stream"))
        & (F.col("sender") == F.col("right_holder"))
        & (_piece(F.col("seq")) == F.col("piece"))
        & (F.col("seq") > F.col("from_seq"))
        & (F.col("until_seq").isNull() | (F.col("seq") < F.col("until_seq")))
    )
    joined = rows.join(F.broadcast(pieces), matches, "left")
    return joined.drop("right_space", "right_stream", "right_holder", "until_seq", "piece")


def _piece(seq: Column) -> Column:
    return F.floor(seq / _PIECE)
