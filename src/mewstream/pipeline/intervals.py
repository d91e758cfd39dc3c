"""``authorizations``: who had which right on which stream, as intervals, from the few records that change rights.

Every change is an event of one key (stream, participant, right): it begins a right or ends one. What
was open before the batch comes in as the event that began it. In the order of ``seq`` an interval lasts
from an event that begins it to the next event of its key, or to the end of the stream.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import query
from mewstream.pipeline.tables import AUTHORIZATIONS

_FIELDS = {
    "participant": "string",
    "right": "string",
    "begins": "boolean",
    "how": "string",
    "by": "string",
    "reason": "string",
    "expires_at": "timestamp",
    "max_frames": "bigint",
}


def _event(right: str, participant: str, *, begins: bool, how: str, by: str = "d.by", **more: str) -> str:
    """One event as an SQL struct; all arguments but ``right`` are SQL."""
    given = {"right": f"'{right}'", "participant": participant, "begins": str(begins), "how": how, "by": by, **more}
    fields = (f"'{name}', CAST({given.get(name, 'NULL')} AS {type})" for name, type in _FIELDS.items())
    return f"named_struct({', '.join(fields)})"


_REASON = "d.reason"
_OPENED = f"""concat(
    array({_event("own", "d.owner", begins=True, how="'open'", by="d.owner")}),
    transform(d.authorized_writers, who -> {
    _event(
        "write",
        "who",
        begins=True,
        how="IF(who = d.owner, 'open', 'auto_grant')",
        by="d.owner",
        reason="IF(who = d.owner, NULL, 'auto_grant')",
    )
})
)"""
_GRANTED = _event(
    "write",
    "d.participant",
    begins=True,
    how="IF(d.reason <=> 'auto_grant' AND d.request_id IS NULL, 'auto_grant', 'grant')",
    reason=_REASON,
    expires_at="timestamp_micros(d.expires_at)",
    max_frames="d.max_frames",
)
_REVOKED = _event(
    "write",
    "d.participant",
    begins=False,
    how="""CASE WHEN d.request_id IS NOT NULL THEN 'revoked'
                WHEN d.reason IN ('expired', 'max_frames') THEN d.reason ELSE 'left' END""",
    reason=_REASON,
)
_TRANSFERRED = f"""concat(
    array(
        {_event("own", "d.previous_owner", begins=False, how="'transferred'", reason=_REASON)},
        {_event("own", "d.new_owner", begins=True, how="'transfer'", reason=_REASON)},
        {_event("write", "d.new_owner", begins=True, how="'transfer'", reason=_REASON)}
    ),
    IF(
        array_contains(d.authorized_writers, d.previous_owner),
        array(),
        array({_event("write", "d.previous_owner", begins=False, how="'transferred'", reason=_REASON)})
    )
)"""
#: What the end of a stream does: rights of everyone, whatever they are.
_CLOSED = _event("all", "NULL", begins=False, how="'stream_ended'", reason=_REASON)
#: A stream under a name that is in use: the log has lost the end of the one before it.
_REOPENED = _event("all", "NULL", begins=False, how="'vanished'", by="NULL")

_CHANGES = """
    SELECT space, stream_id, seq, ts, cause_seq, CAST(NULL AS BIGINT) AS since_seq, 0L AS frames_used, event.*
    FROM (
        SELECT space, stream_id, seq, ts, cause_seq, explode(CASE record
            WHEN 'stream-opened' THEN concat(array({reopened}), {opened})
            WHEN 'stream-ended' THEN array({closed})
            WHEN 'write-granted' THEN array({granted})
            WHEN 'write-revoked' THEN array({revoked})
            WHEN 'ownership-transferred' THEN {transferred}
        END) AS event
        FROM {control}
    )
"""

#: Each record that changes the readers holds the whole set; null in a set stands for everyone. What differs from the
#: set before it begins or ends. A stream that is opened anew under a name in use has nothing from before.
_GAINED = _event(
    "read",
    "who",
    begins=True,
    how="CASE WHEN opens THEN 'open' WHEN who <=> named THEN 'grant' ELSE 'reader_set' END",
    by="by",
    reason="reason",
)
_LOST = _event(
    "read",
    "who",
    begins=False,
    how="IF(who <=> named, 'revoked', 'reader_set')",
    by="by",
    reason="reason",
)
_READERS = """
    SELECT space, stream_id, seq, ts, CAST(NULL AS BIGINT) AS cause_seq, CAST(NULL AS BIGINT) AS since_seq,
        CAST(NULL AS BIGINT) AS frames_used, event.*
    FROM (
        SELECT space, stream_id, seq, ts, explode(concat(
            transform(array_except(readers, before), who -> {gained}),
            transform(array_except(before, readers), who -> {lost})
        )) AS event
        FROM (
            SELECT *,
                IF(opens, array(), coalesce(lag(readers) OVER (PARTITION BY space, stream_id ORDER BY seq), array()))
                    AS before
            FROM (
                SELECT space, stream_id, seq, ts, record = 'stream-opened' AS opens,
                    IF(record = 'stream-opened', d.owner, d.by) AS by, d.reason AS reason, d.participant AS named,
                    CASE record WHEN 'stream-ended' THEN array()
                        ELSE coalesce(d.authorized_readers, array(CAST(NULL AS STRING))) END AS readers
                FROM {control}
                WHERE record IN ('stream-opened', 'stream-ended')
                    OR (record IN ('read-granted', 'read-revoked') AND d.authorized_readers IS NOT NULL)
                UNION ALL
                SELECT space, stream_id, -1L, NULL, false, NULL, NULL, NULL,
                    collect_list(struct(participant)).participant
                FROM {carried}
                WHERE right = 'read'
                GROUP BY space, stream_id
            )
        )
        WHERE seq >= 0
    )
"""

_HELD = """
    SELECT space, stream_id, from_seq AS seq, from_ts AS ts, CAST(NULL AS BIGINT) AS cause_seq, since_seq, frames_used,
        participant, right, true AS begins, given_how AS how, granted_by AS by, reason, expires_at, max_frames
    FROM {carried}
"""

_QUERY = """
WITH changes AS ({changes} UNION ALL {readers} UNION ALL {held}),
-- The next end of the stream, seen from each event: the newest one, looking backwards from the end.
with_closing AS (
    SELECT *, last(IF(right = 'all', struct(seq, ts, how, by, reason), NULL), true) OVER (
        PARTITION BY space, stream_id ORDER BY seq DESC, begins DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS closing
    FROM changes
),
-- Whoever is granted with the opening is told so in a record of its own, which gives nothing new.
told_once AS (
    SELECT * FROM (
        SELECT *,
            begins AND how = 'auto_grant' AND lag(begins) OVER of_key AND cause_seq = lag(seq) OVER of_key AS again
        FROM with_closing
        WHERE right <> 'all'
        WINDOW of_key AS (PARTITION BY space, stream_id, participant, right ORDER BY seq, begins)
    )
    WHERE NOT coalesce(again, false)
),
linked AS (
    SELECT *,
        lead(struct(seq, ts, begins, how, by, reason)) OVER of_key AS next,
        coalesce(lag(begins) OVER of_key, false) AND coalesce(lag(closing.seq) OVER of_key > seq, true) AS goes_on
    FROM told_once
    WINDOW of_key AS (PARTITION BY space, stream_id, participant, right ORDER BY seq, begins)
),
since AS (
    SELECT *,
        last(IF(begins AND NOT goes_on, coalesce(since_seq, seq), NULL), true) OVER (
            PARTITION BY space, stream_id, participant, right ORDER BY seq, begins
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS held_since,
        CASE
            WHEN closing IS NOT NULL AND (next IS NULL OR closing.seq <= next.seq)
                THEN struct(closing.seq, closing.ts, closing.how, closing.by, closing.reason)
            WHEN next.begins THEN struct(next.seq, next.ts, 'replaced' AS how, next.by, next.reason)
            ELSE struct(next.seq, next.ts, next.how, next.by, next.reason)
        END AS ending
    FROM linked
)
SELECT space, stream_id, participant, right, seq AS from_seq, ts AS from_ts, ending.seq AS until_seq,
    ending.ts AS until_ts, held_since AS since_seq, how AS given_how, by AS granted_by, reason, expires_at, max_frames,
    IF(right = 'write', frames_used, NULL) AS frames_used, ending.how AS ended_how, ending.by AS ended_by,
    ending.reason AS end_reason
FROM since
WHERE begins
"""


def authorizations(control: DataFrame, carried: DataFrame) -> DataFrame:
    """All intervals that this batch has to do with: those that were open before it, and those that began in it.
    ``frames_used`` is that of before the batch."""
    return query(
        _QUERY,
        changes=_CHANGES,
        readers=_READERS,
        held=_HELD,
        reopened=_REOPENED,
        opened=_OPENED,
        closed=_CLOSED,
        granted=_GRANTED,
        revoked=_REVOKED,
        transferred=_TRANSFERRED,
        gained=_GAINED,
        lost=_LOST,
        control=control,
        carried=carried,
    ).select(AUTHORIZATIONS.names)
