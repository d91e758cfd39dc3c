"""``sessions``: who was here, from joining to leaving, and since when each participant counts its messages."""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import columns, query
from mewstream.pipeline.tables import PARTICIPANTS, SESSIONS

_SUSPENSIONS = next(column.type for column in SESSIONS.columns if column.name == "suspensions")

_AFTER = columns(
    SESSIONS,
    space="space",
    participant="participant",
    joined_seq="joined_seq",
    joined_ts="base.ts",
    transport="base.transport",
    capabilities="base.capabilities",
    connections="base.connections + again",
    suspensions="concat(base.suspensions, filter(suspended, each -> leaving IS NULL OR each.seq < leaving.seq))",
    left_seq="coalesce(leaving.seq, successor.seq)",
    left_ts="coalesce(leaving.ts, successor.ts)",
    ended_how="CASE WHEN leaving IS NOT NULL THEN leaving.reason WHEN successor IS NOT NULL THEN 'vanished' END",
)

_SESSIONS = """
WITH happened AS (
    SELECT space, d.participant AS participant, seq, ts, record AS what, d.reason AS reason,
        coalesce(d.resumed, false) OR coalesce(d.replaced, false) AS continued,
        timestamp_micros(d.until) AS until, d.transport AS transport, d.capabilities AS capabilities, 1 AS connections,
        CAST(array() AS {suspensions}) AS suspensions
    FROM {control}
    WHERE record IN ('joined', 'left', 'suspended')
    UNION ALL
    -- A session that is open. Its last suspension comes as the event that it was: whether anybody came back shows now.
    SELECT space, participant, joined_seq, joined_ts, 'before', NULL, false, NULL, transport, capabilities, connections,
        IF(waits, slice(suspensions, 1, size(suspensions) - 1), suspensions)
    FROM (
        SELECT *, size(suspensions) > 0 AND try_element_at(suspensions, -1).resumed_seq IS NULL AS waits
        FROM {carried}
    )
    UNION ALL
    SELECT space, participant, last.seq, last.ts, 'suspended', last.reason, false, last.until, NULL, NULL, NULL, NULL
    FROM (SELECT space, participant, try_element_at(suspensions, -1) AS last FROM {carried})
    WHERE last IS NOT NULL AND last.resumed_seq IS NULL
),
-- A join is a new session unless it goes on with one that the log knows.
begun AS (
    SELECT *,
        what = 'before' OR (what = 'joined' AND (NOT continued OR coalesce(came_or_left = 'left', true))) AS begins
    FROM (
        SELECT *, last(IF(what <> 'suspended', what, NULL), true) OVER (
            PARTITION BY space, participant ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS came_or_left
        FROM happened
    )
),
placed AS (
    SELECT *,
        last(IF(begins, seq, NULL), true) OVER (
            PARTITION BY space, participant ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS joined_seq,
        lead(struct(what, seq, ts, begins)) OVER (PARTITION BY space, participant ORDER BY seq) AS next
    FROM begun
),
grouped AS (
    SELECT space, participant, joined_seq,
        first(IF(begins, struct(ts, transport, capabilities, connections, suspensions), NULL), true) AS base,
        min(IF(what = 'left', struct(seq, ts, reason), NULL)) AS leaving,
        sort_array(collect_list(IF(what = 'suspended', struct(seq, ts, until, reason,
            IF(next.what = 'joined' AND NOT next.begins, next.seq, NULL) AS resumed_seq,
            IF(next.what = 'joined' AND NOT next.begins, next.ts, NULL) AS resumed_ts), NULL))) AS suspended,
        count_if(what = 'joined' AND NOT begins) AS again
    FROM placed
    WHERE joined_seq IS NOT NULL
    GROUP BY space, participant, joined_seq
),
followed AS (
    SELECT *, lead(struct(joined_seq AS seq, base.ts AS ts)) OVER (PARTITION BY space, participant ORDER BY joined_seq)
        AS successor
    FROM grouped
)
SELECT {after_it}
FROM followed
"""

_PARTICIPANTS = """
SELECT space, participant, max(counting_since) AS counting_since
FROM (
    SELECT * FROM {carried}
    UNION ALL
    SELECT space, d.participant, seq FROM {control} WHERE record = 'joined' AND NOT coalesce(d.continues, false)
)
GROUP BY space, participant
"""


def sessions(control: DataFrame, carried: DataFrame) -> DataFrame:
    """All sessions that were open before this batch or began in it, as they are after it."""
    return query(_SESSIONS, after_it=_AFTER, suspensions=_SUSPENSIONS, control=control, carried=carried)


def participants(control: DataFrame, carried: DataFrame) -> DataFrame:
    """Everyone who ever joined, with the join since which the numbers of its ``stream/data`` grow."""
    return query(_PARTICIPANTS, control=control, carried=carried.select(PARTICIPANTS.names))
