"""The audit: what the log itself does not justify, judged from the log alone and batch by batch.

It shares names with the protocol core (kinds, codes) and no rule. :func:`judge` takes a batch (rows of ``records``)
and what the batch before left (rows of ``state_audit``); it gives marks and what the next batch needs. A mark says of
something in the log that it is wrong, right, or cannot be judged; :func:`findings` and :func:`counts` read them.

* Numbers: ``seq`` and ``stream_seq`` have no gaps and no repeats (:mod:`.audit_numbers`).
* Frames: each was written by one who might, to a stream that was live, for its readers (:mod:`.audit_frames`).
* Changes of streams and rights: somebody entitled asked, or the gateway had cause (:mod:`.audit_changes`).
* Refusals of stream operations follow from the state (:mod:`.audit_refusals`).

A record is judged by what the records before it say, even where one of those is a finding itself: one fault is one
finding, and not a hundred.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mewstream.pipeline import audit_capabilities as capabilities
from mewstream.pipeline import audit_changes as changes
from mewstream.pipeline import audit_facts as facts_of
from mewstream.pipeline import audit_frames as frames_of
from mewstream.pipeline import audit_numbers as numbers
from mewstream.pipeline import audit_refusals as refusals
from mewstream.pipeline import tables
from mewstream.protocol import kinds
from mewstream.protocol.errors import SequenceRegression

_WORTH_SCREENING = 50_000
"""From so many frames on, it is cheaper to look for suspects first than to judge each closely."""

_LOOKUPS = {
    "status": ("status", "stream_id", "''"),
    "opened": ("opened", "stream_id", "''"),
    "owner": ("owner", "stream_id", "''"),
    "presence": ("presence", "sender", "''"),
    "pause": ("pause", "sender", "''"),
    **capabilities.LOOKUPS,
    **frames_of.LOOKUPS,
    **changes.LOOKUPS,
    **refusals.LOOKUPS,
}


class Judged(NamedTuple):
    marks: DataFrame
    """What was judged, few rows; persist it, for it is asked more than once."""
    carried: DataFrame
    """What the next batch needs, as rows of ``state_audit``."""
    shared: tuple[DataFrame, ...]
    """Persisted on the way; unpersist them when both are written."""


def judge(
    batch: DataFrame, carried: DataFrame, *, control: DataFrame | None = None, frames: int | None = None
) -> Judged:
    """Judge a batch, whose rows of each space follow on those that ``carried`` is from.

    ``control`` are its rows that are no frames, and ``frames`` is how many frames it has, where somebody knows. Facts
    are gathered, and the frames of a large batch screened, here and now; all else when the results are asked for.
    """
    screen = frames is None or frames >= _WORTH_SCREENING
    spans = facts_of.spans(batch).persist()
    control = facts_of.control_records(batch if control is None else control).persist()
    facts = facts_of.facts_in(control, carried, spans)
    begins = facts.where("topic = 'begins'").selectExpr("space", "number AS begun", "bound AS lowest")
    accepted = frames_of.frames_of(batch)
    used = frames_of.uses(accepted, facts)
    uses = frames_of.totals(used, facts)
    closely = frames_of.suspects(accepted, facts, spans) if screen else accepted
    found = [
        _found(closely, control, facts, uses, batch),
        frames_of.overdrawn(used),
        numbers.marks_of_records(batch, carried, spans, screen=screen),
        numbers.marks_of_frames(batch, carried, facts, begins, screen=screen),
    ]
    marks = spans.selectExpr("space", "'right' AS verdict", "'frames' AS rule", "frames AS n").unionByName(
        frames_of.unknown(accepted, begins).selectExpr("space", "'unjudged' AS verdict", "'frames' AS rule", "n"),
    )
    for each in found:
        marked = each.selectExpr(*("space", "at", "seq", "ts", "stream_id", "found.*", "1L AS n"))
        marks = marks.unionByName(marked, allowMissingColumns=True)
    known = (
        facts.where("topic NOT IN ('used', 'sequence', 'frames')")
        .drop("until")
        .unionByName(uses)
        .unionByName(_sequences(batch, facts))
        .unionByName(_numbers(batch, carried, spans))
    )
    return Judged(marks, facts_of.carry(known), (spans, control))


def _found(frames: DataFrame, control: DataFrame, facts: DataFrame, uses: DataFrame, batch: DataFrame) -> DataFrame:
    """What is said of frames, changes and refusals, each by the state just before it."""
    refused = control.where(refusals.OF_STREAMS)
    asked = _asked_sequences(batch, refused).withColumn("until", F.lit(facts_of.FAR_AWAY))
    looked_at = (
        refused.withColumn("subject", F.expr(refusals.SUBJECT))
        .unionByName(control.where(F.col("record").isin(*changes.RECORDS)), allowMissingColumns=True)
        .drop("detail", "data")
        .unionByName(frames, allowMissingColumns=True)
    )
    known = (
        facts_of.as_of(facts.unionByName(asked), looked_at, _LOOKUPS)
        .withColumn("patterns", F.expr(f"if(record = 'frame', NULL, {capabilities.PATTERNS})"))
        .withColumn("manager", F.expr(capabilities.allows(f"'{kinds.SPACE_MANAGE_STREAMS}'")))
    )
    told = refusals.with_counts(changes.with_causes(known, facts, uses), refused, facts)
    found = (
        f"CASE record WHEN 'frame' THEN {frames_of.verdict()} WHEN 'refused' THEN {refusals.verdict()} "
        f"ELSE {changes.verdict()} END"
    )
    return (
        told.withColumn("found", F.expr(found))
        .where("found IS NOT NULL")
        .withColumn("ts", F.expr("timestamp_micros(micros)"))
    )


def findings(marks: DataFrame) -> DataFrame:
    """The rows of the table ``audit``."""
    return marks.where("verdict = 'wrong'").select(*tables.AUDIT.names)


def counts(marks: DataFrame) -> DataFrame:
    """For each space of the batch, how much was judged, how much could not be, and how many findings there are."""

    def total(condition: str) -> str:
        return f"CAST(coalesce(sum(CASE WHEN {condition} THEN n END), 0) AS BIGINT)"

    frames = "rule = 'frames' AND verdict = 'right'"
    unjudged = "rule = 'frames' AND verdict = 'unjudged'"
    return marks.groupBy("space").agg(
        F.expr(f"{total(frames)} - {total(unjudged)}").alias("frames_judged"),
        F.expr(total(unjudged)).alias("frames_not_judged"),
        F.expr(total("rule = 'refusal' AND verdict <> 'unjudged'")).alias("refusals_judged"),
        F.expr(total("rule = 'refusal' AND verdict = 'unjudged'")).alias("refusals_not_judged"),
        F.expr(total("verdict = 'wrong'")).alias("findings"),
    )


# -- what a batch leaves of its frames ------------------------------------------------------------


def _numbered(batch: DataFrame) -> DataFrame:
    return batch.where("record = 'frame' AND sequence IS NOT NULL").selectExpr(
        "space", "stream_id AS key", "sender AS other", "offset AS at", "seq", "sequence AS number"
    )


def _sequences(batch: DataFrame, facts: DataFrame) -> DataFrame:
    """The last number of each writer of a stream."""
    newest = (
        _numbered(batch)
        .groupBy("space", "key", "other")
        .agg(F.max(F.struct("at", "seq", "number")).alias("last"))
        .select("space", "key", "other", "last.*")
    )
    return facts_of.as_facts(newest, "sequence").unionByName(facts.where("topic = 'sequence'").drop("until"))


def _asked_sequences(batch: DataFrame, control: DataFrame) -> DataFrame:
    """All numbers of those writers whom a regression was held against."""
    asked = control.where(f"outcome = '{SequenceRegression.code}'").selectExpr(
        "space", "stream_id AS key", "sender AS other"
    )
    return facts_of.as_facts(
        _numbered(batch).join(F.broadcast(asked.distinct()), ["space", "key", "other"], "left_semi"), "sequence"
    )


def _numbers(batch: DataFrame, carried: DataFrame, spans: DataFrame) -> DataFrame:
    """The greatest ``seq`` of each space and the greatest ``stream_seq`` of each stream."""
    streams = numbers.frames_of_streams(batch).withColumnRenamed("greatest", "number")
    records = spans.selectExpr("space", "'' AS key", "last_at AS at", "last_seq AS number")
    newly = facts_of.as_facts(streams.withColumn("other", F.lit("")), "frames").unionByName(
        facts_of.as_facts(records.withColumn("other", F.lit("")), "records")
    )
    before = carried.where("topic IN ('records', 'frames')")
    values = [name for name in tables.AUDIT_FACTS.names if name not in ("space", "topic", "key", "other")]
    greatest = newly.unionByName(before).groupBy("space", "topic", "key", "other")
    return greatest.agg(*[F.max(name).alias(name) for name in values]).select(*tables.AUDIT_FACTS.names)
