"""``handoffs``: from a grant or a transfer to the first frame of the new writer."""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import columns, query, same
from mewstream.pipeline.tables import HANDOFFS

_NEW = columns(
    HANDOFFS,
    space="rights.space",
    seq="from_seq",
    ts="from_ts",
    stream_id="rights.stream_id",
    how="given_how",
    by="granted_by",
    previous_owner="previous_owner",
    writer="participant",
    reason="reason",
    since_seq="since_seq",
)

_BEGUN = """
WITH transfers AS (
    SELECT space, stream_id, seq, d.previous_owner AS previous_owner
    FROM {control}
    WHERE record = 'ownership-transferred'
)
SELECT {unchanged} FROM {carried}
UNION ALL
-- A grant to somebody who can write already, and a transfer to oneself, hand nothing on.
SELECT {new}
FROM {rights} AS rights
JOIN {spaces} AS spaces ON rights.space = spaces.space AND from_seq >= first_seq
LEFT JOIN transfers
    ON rights.space = transfers.space AND rights.stream_id = transfers.stream_id AND from_seq = transfers.seq
WHERE right = 'write'
    AND (given_how = 'transfer' OR (given_how IN ('grant', 'auto_grant') AND since_seq = from_seq))
    AND NOT coalesce(previous_owner = participant, false)
"""

#: A right that was granted again goes on: all its intervals have the same beginning, since_seq.
_FOUND = """
WITH used AS (
    SELECT space, stream_id, sender, from_seq, min(struct(first_seq AS seq, first_ts AS ts)) AS first
    FROM {activity}
    WHERE from_seq IS NOT NULL
    GROUP BY space, stream_id, sender, from_seq
)
SELECT begun.space, begun.stream_id, begun.writer, begun.seq, min(first) AS first,
    coalesce(bool_or(ended_how <> 'replaced'), false) AS ended
FROM {begun} AS begun
JOIN {rights} AS rights
    ON begun.space = rights.space AND begun.stream_id = rights.stream_id AND begun.writer = rights.participant
    AND begun.since_seq = rights.since_seq AND rights.right = 'write' AND rights.from_seq >= begun.seq
LEFT JOIN used
    ON rights.space = used.space AND rights.stream_id = used.stream_id AND rights.participant = used.sender
    AND rights.from_seq = used.from_seq
GROUP BY begun.space, begun.stream_id, begun.writer, begun.seq
"""

#: How long a stream was silent before each first frame. Only streams that have one are looked at.
_SILENCES = """
WITH moments AS (
    SELECT /*+ BROADCAST(found), BROADCAST(lives) */ frames.space, frames.stream_id, frames.seq, ts,
        coalesce(
            lag(ts) OVER (PARTITION BY frames.space, frames.stream_id, ready_seq ORDER BY frames.seq), last_frame_ts
        ) AS previous
    FROM {frames} AS frames
    LEFT SEMI JOIN {found} AS found
        ON frames.space = found.space AND frames.stream_id = found.stream_id AND found.first IS NOT NULL
    JOIN {lives} AS lives
        ON frames.space = lives.space AND frames.stream_id = lives.stream_id
        AND frames.seq >= ready_seq AND (ended_seq IS NULL OR frames.seq < ended_seq)
)
SELECT /*+ BROADCAST(found) */ found.space, found.stream_id, found.writer, found.seq,
    (unix_micros(ts) - unix_micros(previous)) / 1000D AS silence
FROM moments
JOIN {found} AS found ON moments.space = found.space AND moments.seq = found.first.seq
"""

_HANDOFFS = """
SELECT {after_it}, first IS NULL AND NOT coalesce(ended, true) AS is_open
FROM (
    SELECT begun.*, first, ended, silence
    FROM {begun} AS begun
    LEFT JOIN {found} AS found USING (space, stream_id, writer, seq)
    LEFT JOIN {silences} AS silences USING (space, stream_id, writer, seq)
)
"""
_AFTER = same(
    HANDOFFS,
    outcome="CASE WHEN first IS NOT NULL THEN 'written' WHEN coalesce(ended, true) THEN 'unused' ELSE 'pending' END",
    first_frame_seq="first.seq",
    first_frame_ts="first.ts",
    waited_ms="(unix_micros(first.ts) - unix_micros(ts)) / 1000D",
    silent_ms="silence",
)


def begun(control: DataFrame, rights: DataFrame, *, spaces: DataFrame, carried: DataFrame) -> DataFrame:
    """Handoffs that were pending before this batch and those that it brings. ``rights`` are the rows of
    ``authorizations`` that the batch has to do with."""
    return query(
        _BEGUN, new=_NEW, unchanged=same(HANDOFFS), control=control, rights=rights, spaces=spaces, carried=carried
    )


def first_frames(begun: DataFrame, rights: DataFrame, activity: DataFrame) -> DataFrame:
    """For each handoff the ``first`` frame of this batch under its right, and whether the right has ``ended``."""
    return query(_FOUND, begun=begun, rights=rights, activity=activity)


def silences(found: DataFrame, frames: DataFrame, lives: DataFrame) -> DataFrame:
    return query(_SILENCES, found=found, frames=frames, lives=lives)


def handoffs(begun: DataFrame, found: DataFrame, silences: DataFrame) -> DataFrame:
    """As they are after the batch, with ``is_open``: nobody has written yet, and somebody still may."""
    return query(_HANDOFFS, after_it=_AFTER, begun=begun, found=found, silences=silences)
