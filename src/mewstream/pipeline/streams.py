"""``streams``: one row for each stream from its request to its end, and the lives of streams within a batch."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline.events import events
from mewstream.pipeline.tables import STREAMS

_STREAM = ("space", "stream_id")


def lives(control: DataFrame, carried: DataFrame) -> DataFrame:
    """(space, stream_id, ready_seq, ended_seq, last_frame_ts) of every stream that lived during this batch:
    a frame is in a life from ``ready_seq`` up to ``ended_seq``, not included. ``last_frame_ts`` is that of before
    the batch."""
    opened = events(control, "stream-opened").select(
        *_STREAM, "seq", F.lit("opened").alias("what"), F.lit(None).cast("timestamp").alias("last_frame_ts")
    )
    before = carried.select(*_STREAM, F.col("ready_seq").alias("seq"), F.lit("opened").alias("what"), "last_frame_ts")
    ended = events(control, "stream-ended").select(
        *_STREAM, "seq", F.lit("ended").alias("what"), F.lit(None).cast("timestamp").alias("last_frame_ts")
    )
    order = Window.partitionBy(*_STREAM).orderBy("seq")
    rows = reduce(DataFrame.unionByName, [opened, before, ended])
    return (
        rows.withColumn("ended_seq", F.lead("seq").over(order))
        .where(F.col("what") == "opened")
        .select(*_STREAM, F.col("seq").alias("ready_seq"), "ended_seq", "last_frame_ts")
    )


def streams(control: DataFrame, carried: DataFrame, activity: DataFrame) -> DataFrame:
    """The rows of all streams that lived during this batch, as they are after it."""
    order = Window.partitionBy(*_STREAM).orderBy("seq")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known = _known(control, carried)
    changes = _changes(control)
    rows = known.unionByName(changes, allowMissingColumns=True)
    rows = rows.withColumn("life", F.last(F.col("base.ready_seq"), ignorenulls=True).over(so_far))
    rows = rows.withColumn("successor", F.lead(F.when(F.col("base").isNotNull(), F.struct("seq", "ts"))).over(order))
    counted = activity.where(F.col("ready_seq").isNotNull()).select(
        *_STREAM,
        F.col("ready_seq").alias("life"),
        F.struct("frames", "bytes", "last_seq", "last_ts").alias("usage"),
    )
    grouped = (
        rows.unionByName(counted, allowMissingColumns=True)
        .groupBy(*_STREAM, "life")
        .agg(
            F.first("base", ignorenulls=True).alias("base"),
            F.min("started").alias("started"),
            F.min("ended").alias("ended"),
            # The next event of a stream that has no end in the log is the opening of another under its name.
            F.min("successor").alias("successor"),
            F.sort_array(F.collect_list("transfer")).alias("transfers"),
            F.sum("usage.frames").alias("frames"),
            F.sum("usage.bytes").alias("bytes"),
            F.max("usage.last_seq").alias("last_seq"),
            F.max("usage.last_ts").alias("last_ts"),
        )
        .where(F.col("base").isNotNull())
    )
    # Whatever a log says of a stream that has ended, nothing of it happened.
    started_in_life = F.coalesce(F.col("started.seq") < F.col("ended.seq"), F.lit(True))
    grouped = grouped.withColumns(
        {
            "started": F.when(started_in_life, F.col("started")),
            "transfers": F.filter(
                "transfers", lambda each: F.coalesce(each["from_seq"] < F.col("ended.seq"), F.lit(True))
            ),
        }
    )
    return _rows(grouped)


def _known(control: DataFrame, carried: DataFrame) -> DataFrame:
    """Streams as they were before the batch, and as they were opened in it."""
    types = {column.name: column.type for column in STREAMS.columns}
    opened = events(control, "stream-opened")
    live = F.col("status") == "live"

    def requested(field: str) -> Column:
        return F.get_json_object("request", f"$.{field}").alias(field)

    owner = F.struct(
        F.col("owner"),
        F.col("seq").alias("from_seq"),
        F.col("ts").alias("from_ts"),
        F.col("owner").alias("by"),
        F.lit(None).cast("string").alias("reason"),
    )
    fresh = opened.select(
        *_STREAM,
        F.concat_ws("/", "space", "stream_id").alias("namespace"),
        *("alias", "status"),
        (~live).alias("announced"),
        *(requested(field) for field in ("description", "content_type", "direction")),
        F.coalesce("cause_seq", "seq").alias("intent_seq"),
        F.col("ts").alias("intent_ts"),
        F.col("seq").alias("ready_seq"),
        F.col("ts").alias("ready_ts"),
        F.when(live, F.col("seq")).alias("live_seq"),
        F.when(live, F.col("ts")).alias("live_ts"),
        "owner",
        F.array(owner).alias("owners"),
        F.coalesce(
            F.transform(
                "formats",
                lambda each: F.struct(
                    each["id"].alias("format_id"),
                    each["mime_type"].alias("mime_type"),
                    each["schema_hash"].alias("schema_hash"),
                ),
            ),
            F.array().cast(types["formats"]),
        ).alias("formats"),
        F.col("request").alias("metadata"),
        "policy",
        F.lit(0).cast("bigint").alias("frames"),
        F.lit(0).cast("bigint").alias("bytes"),
    )
    whole = [
        (F.col(name) if name in fresh.columns else F.lit(None)).cast(types[name]).alias(name) for name in STREAMS.names
    ]
    every = fresh.select(*whole).unionByName(carried.select(STREAMS.names))
    return every.select(
        *_STREAM, F.col("ready_seq").alias("seq"), F.col("ready_ts").alias("ts"), F.struct(STREAMS.names).alias("base")
    )


def _changes(control: DataFrame) -> DataFrame:
    started = events(control, "stream-started").select(*_STREAM, "seq", "ts", F.struct("seq", "ts").alias("started"))
    ended = events(control, "stream-ended").select(
        *_STREAM, "seq", "ts", F.struct("seq", "ts", "how", "by", "code", "message", "reason").alias("ended")
    )
    transfer = F.struct(
        F.col("seq").alias("from_seq"),
        F.col("ts").alias("from_ts"),
        F.col("new_owner").alias("owner"),
        *("by", "reason"),
    )
    transferred = events(control, "ownership-transferred").select(*_STREAM, "seq", "ts", transfer.alias("transfer"))
    every = started.unionByName(ended, allowMissingColumns=True)
    return every.unionByName(transferred, allowMissingColumns=True)


def _rows(grouped: DataFrame) -> DataFrame:
    owners = F.transform(
        F.col("transfers"),
        lambda each: F.struct(
            *(each[name].alias(name) for name in ("owner", "from_seq", "from_ts", "by", "reason")),
        ),
    )
    vanished = F.col("ended").isNull() & F.col("successor").isNotNull()
    ends = {
        "ended_seq": F.coalesce("ended.seq", "successor.seq"),
        "ended_ts": F.coalesce("ended.ts", "successor.ts"),
        "ended_by": F.col("ended.by"),
        "end_code": F.col("ended.code"),
        "end_message": F.col("ended.message"),
        "end_reason": F.col("ended.reason"),
    }
    changed = {
        "status": F.when(F.col("ended").isNotNull(), F.col("ended.how"))
        .when(vanished, "vanished")
        .when(F.col("started").isNotNull(), "live")
        .otherwise(F.col("base.status")),
        "live_seq": F.coalesce("base.live_seq", "started.seq"),
        "live_ts": F.coalesce("base.live_ts", "started.ts"),
        "owner": F.coalesce(F.try_element_at("transfers", F.lit(-1))["owner"], "base.owner"),
        "owners": F.concat("base.owners", owners),
        "frames": F.col("base.frames") + F.coalesce("frames", F.lit(0)),
        "bytes": F.col("base.bytes") + F.coalesce("bytes", F.lit(0)),
        "last_frame_seq": F.coalesce("last_seq", "base.last_frame_seq"),
        "last_frame_ts": F.coalesce("last_ts", "base.last_frame_ts"),
    }
    chosen = changed | ends
    return grouped.select(*(chosen.get(name, F.col(f"base.{name}")).alias(name) for name in STREAMS.names))
