"""Every accepted frame: whether its writer held the right at that place in the log.

Rights, states of streams, presence, pauses and reader sets are few and become intervals, which are cut with each other
to intervals in which a participant may write to a stream. Frames are many: one join finds those that lie in no such
interval. These suspects alone are judged one by one, by the facts that held at each of them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline.audit_facts import ALL_KNOWN, ASSUMED, IS_OPEN, as_facts, mark
from mewstream.pipeline.audit_numbers import KNOWN

_BLOCK = 1 << 16
"""Offsets are cut into blocks, so that a frame is compared with the intervals of its block and not with all."""

_IS_FRAME = "if(record = 'frame', {}, NULL)"
LOOKUPS = {
    "right": ("right", _IS_FRAME.format("stream_id"), "sender"),
    "readers": ("readers", _IS_FRAME.format("stream_id"), "''"),
}
"""What must be looked up about a frame, beside what every record needs."""


def frames_of(batch: DataFrame) -> DataFrame:
    return batch.where("record = 'frame'").select(
        *("space", "seq", "ts", "record", "stream_id", "sender", "kind"),
        F.col("offset").alias("at"),
        F.expr("unix_micros(ts)").alias("micros"),
        # Most frames have no detail, and the others one of few.
        F.expr("CASE WHEN detail IS NOT NULL THEN get_json_object(detail, '$.readers') END").alias("readers"),
    )


def unknown(frames: DataFrame, begins: DataFrame) -> DataFrame:
    """How many frames of each space are of streams that are older than the log."""
    of_unknown = frames.join(F.broadcast(begins.where("begun <> 1")), "space").withColumn("key", F.col("stream_id"))
    return of_unknown.where(f"NOT {KNOWN}").groupBy("space").agg(F.count("*").alias("n"))


def suspects(frames: DataFrame, facts: DataFrame, spans: DataFrame) -> DataFrame:
    """The frames that lie in no interval in which they are allowed."""
    blocked = frames.withColumn("block", F.expr(f"at DIV {_BLOCK}"))
    keys = [F.col(f"f.{name}") == F.col(f"a.{name}") for name in ("space", "stream_id", "sender", "block")]
    within = F.expr(
        "f.at > a.since AND f.at <= a.until AND (a.expires_at IS NULL OR f.micros < a.expires_at) "
        "AND (a.not_before IS NULL OR f.micros >= a.not_before) AND f.readers <=> a.readers"
    )
    condition = keys[0] & keys[1] & keys[2] & keys[3] & within
    allowed = F.broadcast(_allowed(facts, spans).alias("a"))
    # They are few, and to find them is the dearest part of the audit: once is enough.
    return blocked.alias("f").join(allowed, condition, "left_anti").drop("block").localCheckpoint()


def _allowed(facts: DataFrame, spans: DataFrame) -> DataFrame:
    """The intervals in which a raw frame is allowed, one row for each block of offsets that they touch."""
    clipped = (
        facts.join(F.broadcast(spans), "space")
        # A fact holds for the frames after its record.
        .where("until > first_at AND at <= last_at")
    )
    rights = clipped.where("topic = 'right' AND held").selectExpr(
        *("space", "key AS stream_id", "other AS sender", "at AS r_from", "until AS r_until", "number AS expires_at"),
        *("first_at", "last_at"),
    )
    live = clipped.where("topic = 'status' AND text = 'live'").selectExpr(
        "space", "key AS stream_id", "at AS s_from", "until AS s_until"
    )
    here = clipped.where(f"topic = 'presence' AND text IN ('here', '{ASSUMED}')").selectExpr(
        "space", "key AS sender", "at AS p_from", "until AS p_until"
    )
    free = clipped.where("topic = 'pause' AND (NOT held OR number IS NOT NULL)").selectExpr(
        "space", "key AS sender", "at AS f_from", "until AS f_until", "CASE WHEN held THEN number END AS not_before"
    )
    addressed = clipped.where("topic = 'readers'").selectExpr(
        "space", "key AS stream_id", "at AS a_from", "until AS a_until", "body AS readers"
    )
    both = (
        rights.join(F.broadcast(live), ["space", "stream_id"])
        .where("r_from < s_until AND s_from < r_until")
        .join(F.broadcast(here), ["space", "sender"])
        .where("greatest(r_from, s_from) < p_until AND p_from < least(r_until, s_until)")
        .join(F.broadcast(free), ["space", "sender"])
        .join(F.broadcast(addressed), ["space", "stream_id"])
        .selectExpr(
            *("space", "stream_id", "sender", "expires_at", "not_before", "readers", "first_at", "last_at"),
            "greatest(r_from, s_from, p_from, f_from, a_from) AS since",
            "least(r_until, s_until, p_until, f_until, a_until) AS until",
        )
        .where("since < until")
    )
    blocks = f"sequence(greatest(since, first_at) DIV {_BLOCK}, least(until, last_at) DIV {_BLOCK})"
    return both.withColumn("block", F.explode(F.expr(blocks))).drop("first_at", "last_at")


def verdict() -> str:
    """The first rule that a frame breaks, as SQL; null where it breaks none. ``stream/data`` comes by HTTP too, from an
    owner who is not here."""
    absent = f"kind = 'frame' AND NOT coalesce(was.presence.text IN ('here', '{ASSUMED}'), false)"
    paused = "was.pause.held AND (was.pause.number IS NULL OR micros < was.pause.number)"
    rules = (
        ("no_stream", f"NOT {IS_OPEN}", "'the stream was not open'", "NULL"),
        ("not_live", "was.status.text <> 'live'", "'the stream had not been started'", "NULL"),
        (
            "no_right",
            "NOT coalesce(was.right.held, false)",
            "if(was.right.seq IS NULL, 'the writer never had the right', 'the right of the writer had been revoked')",
            "was.right.seq",
        ),
        (
            "expired",
            "was.right.number <= micros",
            "concat('the right of the writer had expired at ', timestamp_micros(was.right.number))",
            "was.right.seq",
        ),
        ("absent", absent, "'the writer was not here'", "was.presence.seq"),
        ("paused", paused, "'the writer was paused'", "was.pause.seq"),
        (
            "readers",
            "NOT readers <=> was.readers.body",
            "concat('addressed to ', coalesce(readers, 'everyone'), ', but the readers were ', "
            "coalesce(was.readers.body, 'everyone'))",
            "was.readers.seq",
        ),
    )
    cases = " ".join(
        f"WHEN {broken} THEN {mark('frame_' + name, 'breach', 'sender', _ACCEPTED.format(reason), seq)}"
        for name, broken, reason, seq in rules
    )
    return f"CASE WHEN {ALL_KNOWN} THEN CASE {cases} END END"


_ACCEPTED = "concat('a frame was accepted: ', {})"


# -- rights that are good for a number of frames --------------------------------------------------


def uses(frames: DataFrame, facts: DataFrame) -> DataFrame:
    """Each frame under a right that is good for so many, with how many were used with it (``used``)."""
    bounded = facts.where("topic = 'right' AND held AND bound IS NOT NULL")
    before = facts.where("topic = 'used'").selectExpr(
        "space", "key", "other", "at AS right_at", "number AS used_before"
    )
    rights = (
        bounded.withColumnRenamed("at", "right_at")
        .withColumnRenamed("seq", "right_seq")
        .join(F.broadcast(before), ["space", "key", "other", "right_at"], "left")
        .selectExpr(
            *("space", "key AS stream_id", "other AS sender", "right_at", "right_seq", "until", "bound"),
            "coalesce(used_before, 0) AS used_before",
        )
    )
    under = (
        frames.select("space", "stream_id", "sender", "at", "seq", "ts")
        .join(F.broadcast(rights), ["space", "stream_id", "sender"])
        .where("at > right_at AND at <= until")
    )
    order = Window.partitionBy("space", "stream_id", "sender", "right_at").orderBy("at")
    return under.withColumn("used", F.row_number().over(order) + F.col("used_before"))


def totals(used: DataFrame, facts: DataFrame) -> DataFrame:
    """As facts: how many frames have been accepted under each such right, with the place of the right."""
    newly = used.groupBy("space", "stream_id", "sender", "right_at").agg(F.max("used").alias("number"))
    counted = newly.withColumnsRenamed({"stream_id": "key", "sender": "other", "right_at": "at"})
    both = as_facts(counted, "used").unionByName(facts.where("topic = 'used'").drop("until"))
    return as_facts(both.groupBy("space", "key", "other", "at").agg(F.max("number").alias("number")), "used")


def overdrawn(used: DataFrame) -> DataFrame:
    """Marks of frames beyond the number that a right was good for."""
    reason = _ACCEPTED.format("concat('the right of the writer was good for ', bound, ' frames')")
    found = mark("frame_spent", "breach", "sender", reason, "right_seq")
    return used.where("used > bound").selectExpr("space", "at", "seq", "ts", "stream_id", f"{found} AS found")
