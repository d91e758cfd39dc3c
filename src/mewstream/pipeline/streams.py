"""``streams``: one row for each stream from its request to its end, and the lives of streams within a batch."""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import columns, query, same
from mewstream.pipeline.tables import STREAMS

_LIVES = """
SELECT space, stream_id, seq AS ready_seq, ended_seq, last_frame_ts
FROM (
    SELECT *, lead(seq) OVER (PARTITION BY space, stream_id ORDER BY seq) AS ended_seq
    FROM (
        SELECT space, stream_id, seq, record = 'stream-opened' AS opens, CAST(NULL AS TIMESTAMP) AS last_frame_ts
        FROM {control}
        WHERE record IN ('stream-opened', 'stream-ended')
        UNION ALL
        SELECT space, stream_id, ready_seq, true, last_frame_ts FROM {carried}
    )
)
WHERE opens
"""

_OPENED = columns(
    STREAMS,
    space="space",
    stream_id="stream_id",
    namespace="concat(space, '/', stream_id)",
    alias="d.alias",
    status="d.status",
    announced="d.status <> 'live'",
    description="get_json_object(d.request, '$.description')",
    content_type="get_json_object(d.request, '$.content_type')",
    direction="get_json_object(d.request, '$.direction')",
    intent_seq="coalesce(cause_seq, seq)",
    intent_ts="ts",
    ready_seq="seq",
    ready_ts="ts",
    live_seq="IF(d.status = 'live', seq, NULL)",
    live_ts="IF(d.status = 'live', ts, NULL)",
    owner="d.owner",
    owners="array(struct(d.owner, seq AS from_seq, ts AS from_ts, d.owner AS by, CAST(NULL AS STRING) AS reason))",
    formats="coalesce(transform(d.formats, each -> struct(each.id, each.mime_type, each.schema_hash)), array())",
    metadata="d.request",
    policy="d.policy",
    frames="0",
    bytes="0",
)

_AFTER = same(
    STREAMS,
    status="""CASE WHEN ending IS NOT NULL THEN ending.how WHEN successor IS NOT NULL THEN 'vanished'
                   WHEN started IS NOT NULL THEN 'live' ELSE status END""",
    live_seq="coalesce(live_seq, started.seq)",
    live_ts="coalesce(live_ts, started.ts)",
    ended_seq="coalesce(ending.seq, successor.seq)",
    ended_ts="coalesce(ending.ts, successor.ts)",
    ended_by="ending.by",
    end_code="ending.code",
    end_message="ending.message",
    end_reason="ending.reason",
    owner="coalesce(try_element_at(transfers, -1).owner, owner)",
    owners="concat(owners, transform(transfers, each -> "
    "struct(each.owner, each.from_seq, each.from_ts, each.by, each.reason)))",
    frames="frames + coalesce(more_frames, 0)",
    bytes="bytes + coalesce(more_bytes, 0)",
    last_frame_seq="coalesce(last_seq, last_frame_seq)",
    last_frame_ts="coalesce(last_ts, last_frame_ts)",
)

_STREAMS = """
WITH known AS (
    SELECT space, stream_id, ready_seq AS seq, ready_ts AS ts, struct({names}) AS base
    FROM (
        SELECT {opened} FROM {control} WHERE record = 'stream-opened'
        UNION ALL
        SELECT {unchanged} FROM {carried}
    )
),
happened AS (
    SELECT space, stream_id, seq, ts, base, NULL AS record, NULL AS d FROM known
    UNION ALL
    SELECT space, stream_id, seq, ts, NULL, record, d
    FROM {control}
    WHERE record IN ('stream-started', 'stream-ended', 'ownership-transferred')
),
in_lives AS (
    SELECT *,
        last(base.ready_seq, true) OVER (
            PARTITION BY space, stream_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS life,
        lead(IF(base IS NOT NULL, struct(seq, ts), NULL)) OVER (PARTITION BY space, stream_id ORDER BY seq) AS successor
    FROM happened
),
-- Whatever a log says of a stream after its end, nothing of it happened.
ended AS (
    SELECT *, min(IF(record = 'stream-ended', struct(seq, ts, d.how, d.by, d.code, d.message, d.reason), NULL)) OVER (
        PARTITION BY space, stream_id, life
    ) AS ending
    FROM in_lives
    WHERE life IS NOT NULL
),
lived AS (
    SELECT space, stream_id, life,
        first(base, true) AS base,
        min(IF(record = 'stream-started', struct(seq, ts), NULL)) AS started,
        first(ending, true) AS ending,
        min(successor) AS successor,
        sort_array(collect_list(IF(record = 'ownership-transferred',
            struct(seq AS from_seq, ts AS from_ts, d.new_owner AS owner, d.by, d.reason), NULL))) AS transfers
    FROM ended
    WHERE ending IS NULL OR seq <= ending.seq
    GROUP BY space, stream_id, life
),
used AS (
    SELECT space, stream_id, ready_seq AS life, sum(frames) AS frames, sum(bytes) AS bytes, max(last_seq) AS last_seq,
        max(last_ts) AS last_ts
    FROM {activity}
    WHERE ready_seq IS NOT NULL
    GROUP BY space, stream_id, ready_seq
),
after AS (
    SELECT base.*, started, ending, IF(ending IS NULL, successor, NULL) AS successor, transfers,
        used.frames AS more_frames, used.bytes AS more_bytes, used.last_seq, used.last_ts
    FROM lived LEFT JOIN used USING (space, stream_id, life)
)
SELECT {after_it}
FROM after
"""


def lives(control: DataFrame, carried: DataFrame) -> DataFrame:
    """(space, stream_id, ready_seq, ended_seq, last_frame_ts) of every stream that lived during this batch:
    a frame is in a life from ``ready_seq`` up to ``ended_seq``, not included. ``last_frame_ts`` is that of before
    the batch."""
    return query(_LIVES, control=control, carried=carried)


def streams(control: DataFrame, carried: DataFrame, activity: DataFrame) -> DataFrame:
    """The rows of all streams that lived during this batch, as they are after it."""
    return query(
        _STREAMS,
        names=", ".join(STREAMS.names),
        opened=_OPENED,
        unchanged=same(STREAMS),
        after_it=_AFTER,
        control=control,
        carried=carried,
        activity=activity,
    )
