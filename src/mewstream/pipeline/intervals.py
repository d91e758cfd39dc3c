"""``authorizations``: who had which right on which stream, as intervals, from the few records that change rights.

Every change is an event of one key (stream, participant, right): it begins a right or ends one. What
was open before the batch comes in as an event that began it. In the order of ``seq`` an interval lasts
from an event that begins it to the next event of its key, whatever that is.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline.events import events, micros
from mewstream.pipeline.tables import AUTHORIZATIONS

_KEY = ("space", "stream_id", "participant", "right")
_ENDS, _BEGINS = 0, 1
_EVENT = (
    *_KEY,
    *("seq", "phase", "ts", "how", "by", "reason", "expires_at", "max_frames", "cause_seq", "since_seq"),
    "frames_used",
)


def authorizations(control: DataFrame, carried: DataFrame) -> DataFrame:
    """All intervals that this batch has to do with: those that were open before it, and those that began in it.
    ``frames_used`` is that of before the batch."""
    begun = reduce(DataFrame.unionByName, [_carried(carried), *_write_begins(control), *_own_begins(control)])
    read_begins, read_ends = _readers(control, carried)
    begun = begun.unionByName(read_begins)
    ended = reduce(DataFrame.unionByName, [*_write_ends(control), _own_ends(control), read_ends])
    return _to_intervals(begun.unionByName(ended).unionByName(_stream_ends(control, begun)))


def _to_intervals(changes: DataFrame) -> DataFrame:
    order = Window.partitionBy(*_KEY).orderBy("seq", "phase")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    previous, following = F.lag("phase").over(order), F.lead(F.struct("seq", "ts", "phase", "how", "by", "reason"))
    # Whoever is granted with the opening is told so in a record of its own, which gives nothing new.
    told_again = (
        (F.col("phase") == _BEGINS)
        & (F.col("how") == "auto_grant")
        & (previous == _BEGINS)
        & (F.col("cause_seq") == F.lag("seq").over(order))
    )
    changes = changes.withColumn("told_again", F.coalesce(told_again, F.lit(False))).where(~F.col("told_again"))
    uninterrupted = F.coalesce(previous == _BEGINS, F.lit(False))
    anew = F.when((F.col("phase") == _BEGINS) & ~uninterrupted, F.coalesce("since_seq", "seq"))
    rows = changes.withColumn("next", following.over(order)).withColumn(
        "since_seq", F.last(anew, ignorenulls=True).over(so_far)
    )
    replaced = F.col("next.phase") == _BEGINS
    return (
        rows.where(F.col("phase") == _BEGINS)
        .withColumns(
            {
                "from_seq": F.col("seq"),
                "from_ts": F.col("ts"),
                "until_seq": F.col("next.seq"),
                "until_ts": F.col("next.ts"),
                "given_how": F.col("how"),
                "granted_by": F.col("by"),
                "ended_how": F.when(replaced, "replaced").otherwise(F.col("next.how")),
                "ended_by": F.col("next.by"),
                "end_reason": F.col("next.reason"),
            }
        )
        .select(AUTHORIZATIONS.names)
    )


# -- events ---------------------------------------------------------------------------------------


def _event(rows: DataFrame, phase: int, **columns: Column) -> DataFrame:
    """Rows in the shape of an event; what ``columns`` does not say is taken from the rows, or is null."""
    fields = {"phase": F.lit(phase)} | columns
    types = {"expires_at": "timestamp", "max_frames": "bigint", "since_seq": "bigint", "frames_used": "bigint"}
    chosen = [
        fields.get(name, F.col(name) if name in rows.columns else F.lit(None).cast(types.get(name, "string")))
        for name in _EVENT
    ]
    return rows.select(*(column.alias(name) for name, column in zip(_EVENT, chosen, strict=True)))


def _carried(carried: DataFrame) -> DataFrame:
    return _event(
        carried,
        _BEGINS,
        seq=F.col("from_seq"),
        ts=F.col("from_ts"),
        how=F.col("given_how"),
        by=F.col("granted_by"),
        cause_seq=F.lit(None).cast("bigint"),
    )


def _write_begins(control: DataFrame) -> list[DataFrame]:
    opened = events(control, "stream-opened").withColumn("participant", F.explode("authorized_writers"))
    how = F.when(F.col("participant") == F.col("owner"), "open").otherwise("auto_grant")
    granted = events(control, "write-granted")
    standing = (F.col("reason") == "auto_grant") & F.col("request_id").isNull()
    transferred = events(control, "ownership-transferred")
    write = F.lit("write")
    unused = F.lit(0).cast("bigint")
    why = F.when(how == "auto_grant", "auto_grant")
    return [
        _event(opened, _BEGINS, right=write, how=how, by=F.col("owner"), reason=why, frames_used=unused),
        _event(
            granted,
            _BEGINS,
            right=write,
            how=F.when(F.coalesce(standing, F.lit(False)), "auto_grant").otherwise("grant"),
            expires_at=micros("expires_at"),
            frames_used=unused,
        ),
        _event(
            transferred,
            _BEGINS,
            right=write,
            participant=F.col("new_owner"),
            how=F.lit("transfer"),
            frames_used=unused,
        ),
    ]


def _write_ends(control: DataFrame) -> list[DataFrame]:
    revoked = events(control, "write-revoked")
    how = (
        F.when(F.col("request_id").isNotNull(), "revoked")
        .when(F.col("reason").isin("expired", "max_frames"), F.col("reason"))
        .otherwise("left")
    )
    transferred = events(control, "ownership-transferred")
    lost = transferred.where(~F.array_contains("authorized_writers", F.col("previous_owner")))
    return [
        _event(revoked, _ENDS, right=F.lit("write"), how=how),
        _event(lost, _ENDS, right=F.lit("write"), participant=F.col("previous_owner"), how=F.lit("transferred")),
    ]


def _own_begins(control: DataFrame) -> list[DataFrame]:
    opened, transferred = events(control, "stream-opened"), events(control, "ownership-transferred")
    own, owner = F.lit("own"), F.col("owner")
    return [
        _event(opened, _BEGINS, right=own, participant=owner, how=F.lit("open"), by=owner),
        _event(transferred, _BEGINS, right=own, participant=F.col("new_owner"), how=F.lit("transfer")),
    ]


def _own_ends(control: DataFrame) -> DataFrame:
    transferred = events(control, "ownership-transferred")
    return _event(transferred, _ENDS, right=F.lit("own"), participant=F.col("previous_owner"), how=F.lit("transferred"))


def _readers(control: DataFrame, carried: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Each record that changes the readers holds the whole set; what differs from the set before it begins or ends.
    Null in a set stands for everyone."""
    columns = ("space", "stream_id", "seq", "ts", "by", "reason", "named", "readers", "opens")
    opened = events(control, "stream-opened").select(
        *("space", "stream_id", "seq", "ts"),
        F.col("owner").alias("by"),
        F.lit(None).cast("string").alias("reason"),
        F.lit(None).cast("string").alias("named"),
        F.coalesce("authorized_readers", F.array(F.lit(None).cast("string"))).alias("readers"),
        F.lit(True).alias("opens"),
    )
    changed = [
        events(control, record)
        .where(F.col("authorized_readers").isNotNull())
        .select(
            *("space", "stream_id", "seq", "ts", "by", "reason"),
            F.col("participant").alias("named"),
            F.col("authorized_readers").alias("readers"),
            F.lit(False).alias("opens"),
        )
        for record in ("read-granted", "read-revoked")
    ]
    held = (
        carried.where(F.col("right") == "read")
        .groupBy("space", "stream_id")
        .agg(
            # An array of participants that may hold null, which collect_list would leave out.
            F.collect_list(F.struct("participant"))["participant"].alias("readers"),
            F.lit(-1).cast("bigint").alias("seq"),
        )
    )
    for name, type in (("ts", "timestamp"), ("by", "string"), ("reason", "string"), ("named", "string")):
        held = held.withColumn(name, F.lit(None).cast(type))
    held = held.withColumn("opens", F.lit(False)).select(*columns)
    order = Window.partitionBy("space", "stream_id").orderBy("seq")
    nobody = F.array().cast("array<string>")
    # A stream that is opened anew under a name that was in use has nothing from before.
    before = F.when(F.col("opens"), nobody).otherwise(F.coalesce(F.lag("readers").over(order), nobody))
    sets = reduce(DataFrame.unionByName, [opened, *changed, held]).withColumn("before", before).where("seq >= 0")
    read, named = F.lit("read"), F.col("participant").eqNullSafe(F.col("named"))
    gains = sets.withColumn("participant", F.explode(F.array_except("readers", "before")))
    loses = sets.withColumn("participant", F.explode(F.array_except("before", "readers")))
    given = F.when(F.col("opens"), "open").when(named, "grant").otherwise("reader_set")
    return (
        _event(gains, _BEGINS, right=read, how=given, cause_seq=F.lit(None).cast("bigint")),
        _event(
            loses,
            _ENDS,
            right=read,
            how=F.when(named, "revoked").otherwise("reader_set"),
            cause_seq=F.lit(None).cast("bigint"),
        ),
    )


def _stream_ends(control: DataFrame, begun: DataFrame) -> DataFrame:
    """The end of a stream ends every right on it. So does another stream under its name: the log lost the end."""
    ended = events(control, "stream-ended").select(
        *("space", "stream_id", "seq", "ts", "by", "reason"), F.lit("stream_ended").alias("how")
    )
    reopened = events(control, "stream-opened").select(
        *("space", "stream_id", "seq", "ts"),
        F.lit(None).cast("string").alias("by"),
        F.lit(None).cast("string").alias("reason"),
        F.lit("vanished").alias("how"),
    )
    keys = begun.groupBy(*_KEY).agg(F.min("seq").alias("since"))
    found = ended.unionByName(reopened).join(keys, ["space", "stream_id"]).where(F.col("seq") > F.col("since"))
    return _event(found, _ENDS, cause_seq=F.lit(None).cast("bigint"))
