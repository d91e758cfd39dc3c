"""What the report shows, aggregated in SQL: however long the history is, some thousand rows come out of it."""

from __future__ import annotations

from dataclasses import dataclass

from mewstream.query.database import Rows, WarehouseDatabase
from mewstream.query.report.selection import Selection, create_views

TOP_STREAMS = 12
"""This many streams are shown by name; the rest are summed."""
TOP_WRITERS = 6
"""This many writers of a stream have their own lane."""
TOP_PEOPLE = 40
MOST_BUCKETS = 160
LATENCY_BUCKETS = 48
"""Fewer, because a percentile needs enough frames."""
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

    @property
    def bucket(self) -> str:
        """The bucket of ``ts``, in SQL."""
        return f"CAST(floor((epoch_ms(ts) - {self.begin}) / {self.step}) AS INTEGER)"

    def start_of(self, bucket: int) -> int:
        return self.begin + bucket * self.step

    def per_second(self, count: int) -> float:
        """The rate of ``count`` items in one bucket, to four digits."""
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
    """None if nothing has happened at all."""
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


def collect(database: WarehouseDatabase, selection: Selection | None = None) -> ReportData:
    """Collect everything that the page needs, of everything or of a selection."""
    create_views(database, selection or Selection())
    [totals] = database.rows(_TOTALS)
    [records] = database.rows("SELECT count(*) AS count FROM the_refusals")
    totals["refusal_records"] = records["count"]
    begin, end, count = (totals.pop(name) for name in ("begin", "end", "spaces"))
    listed = database.rows(_SPACES)
    span, coarse = (Span.over(begin or 0, end or 0, buckets) for buckets in (MOST_BUCKETS, LATENCY_BUCKETS))
    streams = database.rows(_TOP_STREAMS)
    _name_places(database, streams)
    rates = database.rows(_RATES.format(bucket=span.bucket))
    for place, stream in enumerate(streams):
        stream["peak_rate"] = _peak(rates, place, span)
    [people] = database.rows("SELECT count(DISTINCT (space, participant)) AS count FROM the_sessions")
    return ReportData(
        spaces=listed,
        space_count=count,
        totals=totals,
        span=None if begin is None else span,
        streams=streams,
        writes=database.rows(_WRITES.format(bucket=span.bucket)),
        rights=database.rows(_RIGHTS),
        rates=rates,
        messages=database.rows(_MESSAGES.format(bucket=span.bucket)),
        latency=database.rows(_LATENCY.format(begin=coarse.begin, bucket=coarse.bucket, step=coarse.step)),
        refusals=database.rows(_REFUSALS.format(bucket=span.bucket)),
        refusal_codes=database.rows(_REFUSAL_CODES),
        gaps=database.rows(_GAPS),
        handoffs=database.rows(_HANDOFFS),
        sessions=database.rows(_SESSIONS),
        participant_count=people["count"],
        quarantine=database.rows(_QUARANTINE),
        findings=database.rows(_FINDINGS),
    )


def _name_places(database: WarehouseDatabase, streams: Rows) -> None:
    """The small table by which others find the place of a stream."""
    database.rows("CREATE OR REPLACE TEMP TABLE places (space VARCHAR, stream_id VARCHAR, stream INTEGER)")
    named = [[each["space"], each["stream_id"], place] for place, each in enumerate(streams)]
    if named:
        database.connection.executemany("INSERT INTO places VALUES (?, ?, ?)", named)


def _peak(rates: Rows, stream: int, span: Span) -> float | None:
    """Frames per second in the busiest bucket: the highest point of the stream in the picture of the rates."""
    most = max((each["frames"] for each in rates if each["stream"] == stream), default=None)
    return None if most is None else span.per_second(most)


# -- the parts: ``the_frames`` and so on are the selected rows ---------------------------------

_SUMMED = (
    *("records", "envelopes", "frames", "bytes", "refusals", "drops", "participants", "streams", "open_streams"),
    *("content", "quarantined", "frames_judged", "frames_not_judged", "refusals_judged", "refusals_not_judged"),
    "findings",
)
_TOTALS = f"""
SELECT {", ".join(f"CAST(coalesce(sum({name}), 0) AS BIGINT) AS {name}" for name in _SUMMED)},
    count(*) FILTER (verdict = 'flawed') AS flawed, count(verdict) AS judged, count(*) AS spaces,
    epoch_ms(min(first_ts)) AS begin, epoch_ms(max(last_ts)) AS "end"
FROM the_summary
"""
_SPACES = f"""
SELECT * EXCLUDE (first_ts, last_ts), epoch_ms(first_ts) AS begin, epoch_ms(last_ts) AS "end"
FROM the_summary ORDER BY frames DESC, space LIMIT {MOST_LISTED}
"""
#: The busiest streams with what is known of them.
_TOP_STREAMS = f"""
WITH windows AS (
    SELECT space, stream_id, max(interarrival_p99_ms) AS worst_pause, CAST(sum(drops) AS BIGINT) AS drops
    FROM the_stream_metrics GROUP BY space, stream_id
)
SELECT space, stream_id, alias, description, status, owner, coalesce(frames, 0) AS frames, coalesce(bytes, 0) AS bytes,
    epoch_ms(ready_ts) AS begin, epoch_ms(ended_ts) AS "end", worst_pause, coalesce(drops, 0) AS drops
FROM (
    SELECT * FROM the_streams ORDER BY frames DESC, ready_seq DESC, space, stream_id LIMIT {TOP_STREAMS}
) LEFT JOIN windows USING (space, stream_id)
ORDER BY frames DESC, space, length(stream_id), stream_id
"""
#: Neighbouring buckets in which somebody wrote are one piece, from its first frame to its last: none may seem to begin
#: before the right does.
_WRITES = f"""
WITH counted AS (
    SELECT stream, sender, {{bucket}} AS bucket, count(*) AS frames, min(ts) AS first, max(ts) AS last
    FROM the_frames JOIN places USING (space, stream_id)
    GROUP BY stream, sender, bucket
), named AS (
    SELECT stream, sender, sender AS writer FROM counted GROUP BY stream, sender
    QUALIFY row_number() OVER (PARTITION BY stream ORDER BY sum(frames) DESC, sender) <= {TOP_WRITERS}
), lanes AS (
    SELECT stream, writer, bucket, sum(frames) AS frames, min(first) AS first, max(last) AS last
    FROM counted LEFT JOIN named USING (stream, sender)
    GROUP BY stream, writer, bucket
), pieces AS (
    SELECT *, bucket - row_number() OVER (PARTITION BY stream, writer ORDER BY bucket) AS piece FROM lanes
)
SELECT stream, writer AS sender, epoch_ms(min(first)) AS "from", epoch_ms(max(last)) AS until,
    CAST(sum(frames) AS BIGINT) AS frames
FROM pieces GROUP BY stream, writer, piece ORDER BY stream, sender NULLS FIRST, "from"
"""
_RIGHTS = f"""
SELECT * FROM (
    SELECT stream, participant, "right", given_how, granted_by, reason, ended_how, ended_by, end_reason, max_frames,
        frames_used, from_seq, until_seq, epoch_ms(from_ts) AS "from", epoch_ms(until_ts) AS until,
        epoch_ms(expires_at) AS expires
    FROM the_authorizations JOIN places USING (space, stream_id)
    WHERE "right" IN ('own', 'write')
    ORDER BY from_ts DESC, from_seq DESC LIMIT {MOST_ROWS}
) ORDER BY stream, from_seq, "right"
"""
_RATES = """
SELECT coalesce(stream, -1) AS stream, {bucket} AS bucket, count(*) AS frames, CAST(sum(size) AS BIGINT) AS bytes
FROM the_frames LEFT JOIN places USING (space, stream_id)
GROUP BY ALL ORDER BY stream, bucket
"""
_MESSAGES = "SELECT {bucket} AS bucket, count(*) AS envelopes FROM the_envelopes GROUP BY bucket ORDER BY bucket"
_LATENCY = """
SELECT "at", frames, p[1] AS p50, p[2] AS p95, p[3] AS p99
FROM (
    SELECT {begin} + {bucket} * {step} AS "at", count(*) AS frames, quantile_disc(latency_ms, [0.5, 0.95, 0.99]) AS p
    FROM the_frames WHERE latency_ms IS NOT NULL GROUP BY "at"
) ORDER BY "at"
"""
_REFUSALS = f"""
SELECT code, {{bucket}} AS bucket, CAST(sum(count) AS BIGINT) AS count
FROM the_refusals GROUP BY code, bucket ORDER BY count DESC, code, bucket LIMIT {MOST_ROWS}
"""
_REFUSAL_CODES = f"""
SELECT code, kind, CAST(sum(count) AS BIGINT) AS count
FROM the_refusals GROUP BY code, kind ORDER BY count DESC, code, kind LIMIT {MOST_LISTED}
"""
_GAPS = f"""
SELECT space, stream_id, sender, count(*) AS gaps, CAST(sum(missing) AS BIGINT) AS missing,
    CAST(sum(still_missing) AS BIGINT) AS still_missing
FROM the_sequence_gaps GROUP BY space, stream_id, sender
ORDER BY still_missing DESC, missing DESC, space, stream_id, sender LIMIT {MOST_LISTED}
"""
_HANDOFFS = f"""
SELECT * FROM (
    SELECT space, stream_id, how, "by", writer, reason, outcome, waited_ms, silent_ms, seq, epoch_ms(ts) AS "at"
    FROM the_handoffs ORDER BY ts DESC, seq DESC LIMIT {MOST_ROWS}
) ORDER BY "at", seq
"""
#: Of those who came first: each participant is a row of the picture.
_SESSIONS = f"""
WITH first AS (
    SELECT space, participant FROM the_sessions GROUP BY space, participant
    ORDER BY min(joined_ts), space, participant LIMIT {TOP_PEOPLE}
)
SELECT * FROM (
    SELECT space, participant, ended_how, epoch_ms(joined_ts) AS "from", epoch_ms(left_ts) AS until,
        [{{"from": epoch_ms(each.ts), "until": epoch_ms(each.resumed_ts), "reason": each.reason}}
            for each in coalesce(suspensions, [])[:{MOST_LISTED}]] AS lost
    FROM the_sessions JOIN first USING (space, participant)
    ORDER BY joined_ts DESC LIMIT {MOST_ROWS}
) ORDER BY "from", participant
"""
_QUARANTINE = f"""
SELECT space, stream_id, format_id, sender, reason.rule AS rule, count(*) AS frames, min(reason.message) AS example
FROM (SELECT space, stream_id, format_id, sender, unnest(reasons) AS reason FROM the_quarantine)
GROUP BY ALL ORDER BY frames DESC, space, stream_id, rule LIMIT {MOST_LISTED}
"""
_FINDINGS = f"""
SELECT space, seq, epoch_ms(ts) AS "at", rule, stream_id, participant, reason
FROM the_audit ORDER BY space, seq, rule LIMIT {MOST_LISTED}
"""
