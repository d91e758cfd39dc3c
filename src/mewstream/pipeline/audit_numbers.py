"""Numbers without holes: ``seq`` in a space, ``stream_seq`` in a stream.

Each number must be one more than the greatest before it. Ordering millions of rows by space or stream with all their
names is dear, so that a cheap screen comes first, which may suspect too much and never too little; only what it
suspects is looked at in full.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.audit_facts import mark
from mewstream.pipeline.audit_tallies import BLOCK
from mewstream.pipeline.sql import columns, query, settled
from mewstream.pipeline.tables import AUDIT_FACTS

KNOWN = "(begun = 1 OR coalesce(try_cast(regexp_extract(key, '^stream-([0-9]+)$') AS BIGINT) >= lowest, false))"
"""Whether all that ever happened to the stream ``key`` is in the log, given ``begun`` and ``lowest`` of its space."""


# -- what is looked at ----------------------------------------------------------------------------


def spaces(spans: DataFrame, carried: DataFrame) -> DataFrame:
    """The spaces of the batch, each with ``last``: the greatest number before, or null where any may be the first."""
    return query(_SPACES, spans=spans, carried=carried)


def streams(tallies: DataFrame, facts: DataFrame, carried: DataFrame) -> DataFrame:
    """The streams of the batch, the same, with the offset of their end: what comes later is not numbered at all."""
    return query(_STREAMS, known=KNOWN, tallies=tallies, facts=facts, carried=carried)


def suspected_spaces(spaces: DataFrame, tallies: DataFrame, records: DataFrame) -> DataFrame:
    """Where a space has its part of the journal for itself, seq and offset go on side by side."""
    shared = settled(query(_OUT_OF_STEP, spaces=spaces))
    if shared.isEmpty():
        return shared
    rows = query(_RECORDS_OF, block=str(BLOCK), spaces=shared, records=records)
    return settled(query(_SUSPECTED_SPACES, spaces=shared, tallies=tallies, broken=_broken(rows)))


def suspected_streams(streams: DataFrame, tallies: DataFrame, records: DataFrame) -> DataFrame:
    rows = query(_FRAMES_OF, block=str(BLOCK), records=records)
    return settled(query(_SUSPECTED_STREAMS, streams=streams, tallies=tallies, broken=_broken(rows)))


def _broken(rows: DataFrame) -> DataFrame:
    """The places at which a number is not one more than the one before. A place is the hash of a name and of a block:
    to tell rows apart by that alone is cheap, and so is then to order the few that are left."""
    return query(_BROKEN, rows=rows)


_SPACES = """
SELECT spans.space, first_seq, least_shift, greatest_shift, number AS last
FROM {spans} AS spans
LEFT JOIN (SELECT space, number FROM {carried} WHERE topic = 'records') AS before ON spans.space = before.space
"""
#: A stream that was opened in this log begins at 1. Of an older one any number may be the first.
_STREAMS = """
SELECT space, key AS stream_id, coalesce(number, IF(opened, 0, NULL)) AS last, ended_at
FROM (SELECT DISTINCT space, stream AS key FROM {tallies} WHERE stream IS NOT NULL)
JOIN (SELECT space, number AS begun, bound AS lowest FROM {facts} WHERE topic = 'begins') USING (space)
LEFT JOIN (SELECT space, key, number FROM {carried} WHERE topic = 'frames') USING (space, key)
LEFT JOIN (
    SELECT space, key, max(topic = 'opened') AS opened,
        max(IF(topic = 'status' AND text = 'ended', at, NULL)) AS ended_at
    FROM {facts}
    WHERE topic IN ('opened', 'status')
    GROUP BY space, key
) USING (space, key)
WHERE coalesce(opened, false) OR NOT {known}
"""
_OUT_OF_STEP = "SELECT space, last FROM {spaces} WHERE least_shift <> greatest_shift OR first_seq <> last + 1"
_RECORDS_OF = """
SELECT /*+ BROADCAST(spaces) */ xxhash64(records.space, offset DIV {block}) AS place, offset AS at, seq AS number
FROM {records} AS records LEFT SEMI JOIN {spaces} AS spaces ON records.space = spaces.space
"""
_FRAMES_OF = """
SELECT xxhash64(space, stream_id, offset DIV {block}) AS place, offset AS at, stream_seq AS number
FROM {records}
WHERE record = 'frame'
"""
_BROKEN = """
SELECT DISTINCT place
FROM (SELECT place, number, lag(number) OVER (PARTITION BY place ORDER BY at) AS before FROM {rows})
WHERE before IS NOT NULL AND NOT number <=> before + 1
"""
_SUSPECTED_SPACES = """
WITH blocks AS (
    SELECT space, block, min_by(first_seq, first_at) AS first, max(last_seq) AS greatest
    FROM {tallies}
    GROUP BY space, block
)
SELECT space, any_value(last) AS last
FROM (
    SELECT spaces.*, xxhash64(spaces.space, block) AS place, first,
        coalesce(lag(greatest) OVER (PARTITION BY spaces.space ORDER BY block), last) AS before
    FROM {spaces} AS spaces JOIN blocks ON spaces.space = blocks.space
) AS chained
LEFT JOIN {broken} AS broken ON chained.place = broken.place
WHERE broken.place IS NOT NULL OR before IS NOT NULL AND NOT first <=> before + 1
GROUP BY space
"""
_SUSPECTED_STREAMS = """
WITH blocks AS (
    SELECT space, stream, block, min_by(first_number, first_at) AS first, max(greatest) AS greatest
    FROM {tallies}
    WHERE stream IS NOT NULL
    GROUP BY space, stream, block
)
SELECT space, stream_id, any_value(last) AS last, any_value(ended_at) AS ended_at
FROM (
    SELECT streams.*, xxhash64(streams.space, stream_id, block) AS place, first,
        coalesce(lag(greatest) OVER (PARTITION BY streams.space, stream_id ORDER BY block), last) AS before
    FROM {streams} AS streams JOIN blocks ON streams.space = blocks.space AND stream_id = stream
) AS chained
LEFT JOIN {broken} AS broken ON chained.place = broken.place
WHERE broken.place IS NOT NULL OR before IS NOT NULL AND NOT first <=> before + 1
GROUP BY space, stream_id
"""

# -- what is said ---------------------------------------------------------------------------------

OF_RECORDS = """
SELECT space, at, seq, ts, CAST(NULL AS STRING) AS stream_id, {found} AS found
FROM (
    SELECT /*+ BROADCAST(spaces) */ records.space, offset AS at, seq, ts, greatest(last, max(seq) OVER (
        PARTITION BY records.space ORDER BY offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS before
    FROM {records} AS records JOIN {spaces} AS spaces ON records.space = spaces.space
)
WHERE NOT seq <=> before + 1 AND before IS NOT NULL
"""
OF_FRAMES = """
SELECT space, at, seq, timestamp_micros(micros) AS ts, stream_id, {found} AS found
FROM (
    SELECT /*+ BROADCAST(streams) */ frames.space, frames.stream_id, at, seq, micros, stream_seq,
        greatest(last, max(stream_seq) OVER (PARTITION BY frames.space, frames.stream_id
            ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS before
    FROM {frames} AS frames JOIN {streams} AS streams
        ON frames.space = streams.space AND frames.stream_id = streams.stream_id
    WHERE ended_at IS NULL OR at < ended_at
)
WHERE NOT stream_seq <=> before + 1 AND before IS NOT NULL
"""


def verdict(number: str, what: str) -> str:
    """What is said of a number that is not one more than the greatest ``before`` it, as SQL."""
    reason = f"concat('{number} is ', {number}, ', expected ', before + 1, ': the {what} have no gaps')"
    rule = f"if({number} > before, '{number}_gap', '{number}_repeat')"
    return mark(rule, "flaw", "CAST(NULL AS STRING)", reason, "NULL")


# -- what is left to the next batch ---------------------------------------------------------------

GREATEST = """
SELECT {greatest}
FROM (
    SELECT space, topic, key, max(at) AS at, max(seq) AS seq, max(number) AS number
    FROM (
        SELECT space, 'frames' AS topic, stream AS key, last_at AS at, last_seq AS seq, greatest AS number
        FROM {tallies}
        WHERE stream IS NOT NULL
        UNION ALL
        SELECT space, 'records', '', last_at, NULL, last_seq FROM {tallies}
        UNION ALL
        SELECT space, topic, key, at, seq, number FROM {carried} WHERE topic IN ('records', 'frames')
    )
    GROUP BY space, topic, key
)
"""
"""As facts: the greatest ``seq`` of each space and the greatest ``stream_seq`` of each stream."""
OF_GREATEST = columns(
    AUDIT_FACTS,
    space="space",
    topic="topic",
    key="key",
    other="''",
    at="at",
    seq="seq",
    held="true",
    number="number",
)
SEQUENCES = """
SELECT {sequence}
FROM (
    SELECT space, stream AS key, sender AS other, max(numbered_at) AS at, max_by(numbered_seq, numbered_at) AS seq,
        max_by(sequence, numbered_at) AS number
    FROM {tallies}
    WHERE numbered_at IS NOT NULL
    GROUP BY space, stream, sender
)
UNION ALL
SELECT {unchanged} FROM {facts} WHERE topic = 'sequence'
"""
"""As facts: the last number of each writer of a stream."""
OF_SEQUENCE = columns(
    AUDIT_FACTS,
    space="space",
    topic="'sequence'",
    key="key",
    other="other",
    at="at",
    seq="seq",
    held="true",
    number="number",
)
