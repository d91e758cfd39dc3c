"""What the report shows, aggregated by Spark: however long the history is, some thousand rows come to the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

Rows = list[dict[str, Any]]
TableOf = Callable[[str], DataFrame]
"""A table of the warehouse by its plain name."""

TOP_STREAMS = 12
"""So many streams are shown by name; the others are summed up."""
TOP_WRITERS = 6
"""So many writers of a stream have a lane of their own."""
TOP_PEOPLE = 40
MOST_BUCKETS = 160
LATENCY_BUCKETS = 48
"""Fewer: a percentile needs some frames to be of."""
MOST_ROWS = 2000
"""Of anything that is drawn one by one, such as grants."""
MOST_LISTED = 100
"""Of anything that is listed in a table."""

_STEPS = [
    *(50, 100, 250, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000),
    *(60_000 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)),
]
_DAY = 86_400_000


@dataclass(frozen=True, kw_only=True)
class Span:
    """The time that the report is about, cut into buckets. Milliseconds since 1970."""

    begin: int
    end: int
    step: int

    @classmethod
    def over(cls, begin: int, end: int, buckets: int = MOST_BUCKETS) -> Span:
        length = max(end - begin, 1)
        step = next((each for each in _STEPS if length <= each * buckets), None)
        if step is None:
            step = -(-length // buckets // _DAY) * _DAY
        return cls(begin=begin // step * step, end=end, step=step)

    def bucket(self, ts: str = "ts") -> Column:
        return F.floor((F.unix_millis(ts) - F.lit(self.begin)) / F.lit(self.step)).cast("int")

    def start_of(self, bucket: int) -> int:
        return self.begin + bucket * self.step

    def per_second(self, count: int) -> float:
        """The rate of so many in one bucket. Four figures are more than a pixel shows, and less than half the text."""
        return float(f"{count * 1000 / self.step:.4g}")

    @property
    def buckets(self) -> int:
        return (self.end - self.begin) // self.step + 1


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Times are milliseconds since 1970. A stream is named by its place in ``streams``; -1 is the sum of the others."""

    spaces: Rows
    """The summaries of the busiest spaces."""
    space_count: int
    totals: dict[str, int]
    """Of the summaries; and ``refusal_records``, for one record may sum up many refusals."""
    span: Span | None
    """None where nothing has happened at all."""
    streams: Rows
    writes: Rows
    """Who wrote without a pause of a bucket: stream, sender (None: the other writers), from, until, frames."""
    rights: Rows
    """Rights to write and ownerships: stream, participant, right, from, until, how it was given and how it ended."""
    rates: Rows
    """stream, bucket, frames, bytes."""
    messages: Rows
    """bucket, envelopes."""
    latency: Rows
    """at, p50, p95, p99, frames."""
    refusals: Rows
    """code, bucket, count."""
    refusal_codes: Rows
    """code, kind, count: the most frequent."""
    gaps: Rows
    handoffs: Rows
    sessions: Rows
    participant_count: int
    quarantine: Rows
    """stream_id, format_id, rule, frames."""
    findings: Rows


def collect(table: TableOf, spaces: Sequence[str] = ()) -> ReportData:
    """Everything that the page needs, of all spaces or of some."""

    def of(name: str) -> DataFrame:
        rows = table(name)
        return rows.where(F.col("space").isin(*spaces)) if spaces else rows

    summary = of("space_summary").cache()
    try:
        totals = _totals(summary)
        listed = _rows(
            summary.orderBy(F.desc("frames"), "space")
            .limit(MOST_LISTED)
            .select("*", _millis("first_ts", "begin"), _millis("last_ts", "end"))
            .drop("first_ts", "last_ts")
        )
    finally:
        summary.unpersist()
    totals["refusal_records"] = of("refusals").count()
    begin, end = totals.pop("begin"), totals.pop("end")
    count = totals.pop("spaces")
    people = of("sessions")
    nothing: Rows = []
    if begin is None or end is None:
        return ReportData(
            **dict.fromkeys(("streams", "writes", "rights", "rates", "messages", "latency", "refusals"), nothing),
            **dict.fromkeys(("refusal_codes", "gaps", "handoffs", "sessions", "quarantine", "findings"), nothing),
            spaces=listed,
            space_count=count,
            totals=totals,
            span=None,
            participant_count=0,
        )
    span = Span.over(begin, end)
    streams = _top_streams(of("streams"), of("stream_metrics"))
    places = _places(of("streams").sparkSession.createDataFrame, streams)
    rates = _rates(of("frames"), places, span)
    for place, stream in enumerate(streams):
        stream["peak_rate"] = _peak(rates, place, span)
    return ReportData(
        spaces=listed,
        space_count=count,
        totals=totals,
        span=span,
        streams=streams,
        writes=_writes(of("frames"), places, span),
        rights=_rights(of("authorizations"), places),
        rates=rates,
        messages=_rows(of("envelopes").groupBy(span.bucket().alias("bucket")).agg(F.count("*").alias("envelopes"))),
        latency=_latency(of("frames"), Span.over(begin, end, LATENCY_BUCKETS)),
        refusals=_refusals(of("refusals"), span),
        refusal_codes=_rows(
            of("refusals")
            .groupBy("code", "kind")
            .agg(F.sum("count").alias("count"))
            .orderBy(F.desc("count"), "code", "kind")
            .limit(MOST_LISTED)
        ),
        gaps=_gaps(of("sequence_gaps")),
        handoffs=_handoffs(of("handoffs")),
        sessions=_sessions(people),
        participant_count=people.select("space", "participant").distinct().count(),
        quarantine=_quarantine(of("quarantine")),
        findings=_rows(
            of("audit")
            .orderBy("space", "seq", "rule")
            .limit(MOST_LISTED)
            .select("space", "seq", _millis("ts", "at"), "rule", "stream_id", "participant", "reason")
        ),
    )


# -- the parts ------------------------------------------------------------------------------------

_SUMMED = (
    *("records", "envelopes", "frames", "bytes", "refusals", "drops", "participants", "streams", "open_streams"),
    *("content", "quarantined", "frames_judged", "frames_not_judged", "refusals_judged", "refusals_not_judged"),
    "findings",
)


def _totals(summary: DataFrame) -> dict[str, Any]:
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMMED]
    flawed = F.coalesce(F.sum((F.col("verdict") == "flawed").cast("bigint")), F.lit(0)).alias("flawed")
    judged = F.coalesce(F.sum(F.col("verdict").isNotNull().cast("bigint")), F.lit(0)).alias("judged")
    times = (F.unix_millis(F.min("first_ts")).alias("begin"), F.unix_millis(F.max("last_ts")).alias("end"))
    [row] = _rows(summary.agg(*sums, flawed, judged, F.count("*").alias("spaces"), *times))
    return row


def _top_streams(streams: DataFrame, metrics: DataFrame) -> Rows:
    """The busiest streams with what is known of them."""
    top = (
        streams.orderBy(F.desc("frames"), F.desc("ready_seq"), "space", "stream_id")
        .limit(TOP_STREAMS)
        .select(
            *("space", "stream_id", "alias", "description", "status", "owner", "frames", "bytes"),
            _millis("ready_ts", "begin"),
            _millis("ended_ts", "end"),
            F.size("owners").alias("owners"),
        )
    )
    windows = metrics.groupBy("space", "stream_id").agg(
        F.max("interarrival_p99_ms").alias("worst_pause"),
        F.sum("drops").alias("drops"),
    )
    joined = top.join(windows, ["space", "stream_id"], "left")
    return _rows(joined.orderBy(F.desc("frames"), "space", F.length("stream_id"), "stream_id"))


def _places(create: Callable[..., DataFrame], streams: Rows) -> DataFrame:
    """The small table by which others find the place of a stream."""
    named = [(each["space"], each["stream_id"], place) for place, each in enumerate(streams)]
    return F.broadcast(create(named, "space string, stream_id string, stream int"))


def _writes(frames: DataFrame, places: DataFrame, span: Span) -> Rows:
    """Neighbouring buckets in which somebody wrote are one piece, from its first frame to its last: none may seem to
    begin before the right does."""
    busy = frames.join(places, ["space", "stream_id"])
    totals = busy.groupBy("stream", "sender").agg(F.count("*").alias("frames"))
    order = Window.partitionBy("stream").orderBy(F.desc("frames"), "sender")
    named = totals.withColumn("place", F.row_number().over(order)).where(F.col("place") <= TOP_WRITERS)
    named = named.select("stream", "sender", F.col("sender").alias("writer"))
    counted = (
        busy.join(F.broadcast(named), ["stream", "sender"], "left")
        .groupBy("stream", "writer", span.bucket().alias("bucket"))
        .agg(F.count("*").alias("frames"), F.min("ts").alias("first"), F.max("ts").alias("last"))
    )
    lane = Window.partitionBy("stream", "writer").orderBy("bucket")
    pieces = (
        counted.withColumn("piece", F.col("bucket") - F.row_number().over(lane))
        .groupBy("stream", F.col("writer").alias("sender"), "piece")
        .agg(
            F.unix_millis(F.min("first")).alias("from"),
            F.unix_millis(F.max("last")).alias("until"),
            F.sum("frames").alias("frames"),
        )
    )
    return _rows(pieces.drop("piece").orderBy("stream", "sender", "from"))


def _rights(authorizations: DataFrame, places: DataFrame) -> Rows:
    held = authorizations.where(F.col("right").isin("own", "write")).join(places, ["space", "stream_id"])
    return _rows(
        held.orderBy(F.desc("from_ts"), F.desc("from_seq"))
        .limit(MOST_ROWS)
        .select(
            *("stream", "participant", "right", "given_how", "granted_by", "reason", "ended_how", "ended_by"),
            *("end_reason", "max_frames", "frames_used", "from_seq", "until_seq"),
            _millis("from_ts", "from"),
            _millis("until_ts", "until"),
            _millis("expires_at", "expires"),
        )
        .orderBy("stream", "from_seq", "right")
    )


def _rates(frames: DataFrame, places: DataFrame, span: Span) -> Rows:
    return _rows(
        frames.join(places, ["space", "stream_id"], "left")
        .groupBy(F.coalesce("stream", F.lit(-1)).alias("stream"), span.bucket().alias("bucket"))
        .agg(F.count("*").alias("frames"), F.sum("size").alias("bytes"))
        .orderBy("stream", "bucket")
    )


def _peak(rates: Rows, stream: int, span: Span) -> float | None:
    """Frames per second in the busiest bucket: the highest point of the stream in the picture of the rates."""
    most = max((each["frames"] for each in rates if each["stream"] == stream), default=None)
    return None if most is None else span.per_second(most)


def _latency(frames: DataFrame, span: Span) -> Rows:
    percentiles = F.percentile_approx("latency_ms", F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)), 1000)
    at = (F.lit(span.begin) + span.bucket() * F.lit(span.step)).alias("at")
    p50, p95, p99 = (F.col("p")[place].alias(name) for place, name in enumerate(("p50", "p95", "p99")))
    return _rows(
        frames.where(F.col("latency_ms").isNotNull())
        .groupBy(at)
        .agg(percentiles.alias("p"), F.count("*").alias("frames"))
        .select("at", "frames", p50, p95, p99)
        .orderBy("at")
    )


def _refusals(refusals: DataFrame, span: Span) -> Rows:
    return _rows(
        refusals.groupBy("code", span.bucket().alias("bucket"))
        .agg(F.sum("count").alias("count"))
        .orderBy(F.desc("count"), "code", "bucket")
        .limit(MOST_ROWS)
    )


def _gaps(gaps: DataFrame) -> Rows:
    return _rows(
        gaps.groupBy("space", "stream_id", "sender")
        .agg(
            F.count("*").alias("gaps"),
            F.sum("missing").alias("missing"),
            F.sum("still_missing").alias("still_missing"),
            F.sum(F.col("healed").cast("int")).alias("healed"),
            F.unix_millis(F.max("ts")).alias("last"),
        )
        .orderBy(F.desc("still_missing"), F.desc("missing"), "space", "stream_id", "sender")
        .limit(MOST_LISTED)
    )


def _handoffs(handoffs: DataFrame) -> Rows:
    return _rows(
        handoffs.orderBy(F.desc("ts"), F.desc("seq"))
        .limit(MOST_ROWS)
        .select(
            *("space", "stream_id", "how", "by", "writer", "reason", "outcome", "waited_ms", "silent_ms", "seq"),
            _millis("ts", "at"),
        )
        .orderBy("at", "seq")
    )


def _sessions(sessions: DataFrame) -> Rows:
    """Of those who came first: each participant is a row of the picture."""
    first = (
        sessions.groupBy("space", "participant")
        .agg(F.min("joined_ts").alias("first"))
        .orderBy("first", "space", "participant")
        .limit(TOP_PEOPLE)
        .drop("first")
    )
    lost = F.transform(
        F.coalesce("suspensions", F.array()),
        lambda each: F.struct(
            F.unix_millis(each["ts"]).alias("from"),
            F.unix_millis(each["resumed_ts"]).alias("until"),
            each["reason"].alias("reason"),
        ),
    )
    return _rows(
        sessions.join(F.broadcast(first), ["space", "participant"])
        .orderBy(F.desc("joined_ts"))
        .limit(MOST_ROWS)
        .select(
            *("space", "participant", "ended_how", "connections", "transport"),
            _millis("joined_ts", "from"),
            _millis("left_ts", "until"),
            F.slice(lost, 1, MOST_LISTED).alias("lost"),
        )
        .orderBy("from", "participant")
    )


def _quarantine(quarantine: DataFrame) -> Rows:
    return _rows(
        quarantine.select("space", "stream_id", "sender", "format_id", F.explode("reasons").alias("reason"))
        .groupBy("space", "stream_id", "format_id", "sender", F.col("reason.rule").alias("rule"))
        .agg(F.count("*").alias("frames"), F.min("reason.message").alias("example"))
        .orderBy(F.desc("frames"), "space", "stream_id", "rule")
        .limit(MOST_LISTED)
    )


def _millis(ts: str, name: str) -> Column:
    return F.unix_millis(ts).alias(name)


def _rows(small: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in small.collect()]
