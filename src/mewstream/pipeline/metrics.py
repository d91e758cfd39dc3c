"""``stream_metrics``: how lively each stream was, window by window.

Time never runs back in a space, so at most one window of it is open; what is in that window is carried
from batch to batch, with the time of every frame, so that percentiles are exact.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.activity import WINDOW_START
from mewstream.pipeline.sql import query
from mewstream.pipeline.tables import METRIC_WINDOW_SECONDS, OPEN_WINDOWS, STREAM_METRICS

_WINDOWS = """
WITH parts AS (
    SELECT space, stream_id, ready_seq, window_start, frames, bytes, writers, times, drops, previous, true AS was_open
    FROM {carried}
    UNION ALL
    SELECT space, stream_id, ready_seq, window_start, frames, bytes, array(sender), times, 0, NULL, false
    FROM {activity}
    UNION ALL
    SELECT space, stream_id, NULL, {window_start}, 0, 0, array(), array(), d.count, NULL, false
    FROM {control}
    WHERE record = 'frames-dropped'
),
merged AS (
    SELECT space, stream_id, ready_seq, window_start,
        sum(frames) AS frames,
        sum(bytes) AS bytes,
        sort_array(array_distinct(flatten(collect_list(writers)))) AS writers,
        sort_array(flatten(collect_list(times))) AS times,
        sum(drops) AS drops,
        max(previous) AS carried_previous,
        bool_or(was_open) AS was_open
    FROM parts
    GROUP BY space, stream_id, ready_seq, window_start
),
linked AS (
    SELECT *, last(try_element_at(times, -1), true) OVER (
        PARTITION BY space, stream_id, ready_seq ORDER BY window_start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS earlier
    FROM merged
)
SELECT linked.space, linked.stream_id, linked.ready_seq, window_start, frames, bytes, writers, times, drops,
    IF(was_open, carried_previous, coalesce(earlier, unix_micros(last_frame_ts))) AS previous,
    -- A window that ends by the last record of its space is over.
    coalesce(window_start + INTERVAL {seconds} SECONDS > last_ts, true) AS is_open
FROM linked
LEFT JOIN {lives} AS lives
    ON linked.space = lives.space AND linked.stream_id = lives.stream_id AND linked.ready_seq = lives.ready_seq
LEFT JOIN {spaces} AS spaces ON linked.space = spaces.space
"""

_PERCENTILE = """
    IF(size(waits) > 0, (
        element_at(waits, CAST(floor((size(waits) - 1) * {share}) AS INT) + 1)
        + (
            element_at(waits, CAST(ceil((size(waits) - 1) * {share}) AS INT) + 1)
            - element_at(waits, CAST(floor((size(waits) - 1) * {share}) AS INT) + 1)
        ) * ((size(waits) - 1) * {share} - floor((size(waits) - 1) * {share}))
    ) / 1000D, NULL)
"""

_METRICS = """
WITH every AS (
    SELECT *, concat(IF(previous IS NULL, array(), array(previous)), times) AS moments FROM {windows}
),
waited AS (
    SELECT space, stream_id, window_start, is_open,
        sum(frames) AS frames,
        sum(bytes) AS bytes,
        size(array_distinct(flatten(collect_list(writers)))) AS writers,
        sort_array(flatten(collect_list(zip_with(
            slice(moments, 2, greatest(size(moments) - 1, 0)),
            slice(moments, 1, greatest(size(moments) - 1, 0)),
            (later, sooner) -> later - sooner
        )))) AS waits,
        sum(drops) AS drops
    FROM every
    GROUP BY space, stream_id, window_start, is_open
)
SELECT space, stream_id, window_start, window_start + INTERVAL {seconds} SECONDS AS window_end, frames, bytes,
    frames / {seconds}D AS rate, bytes / {seconds}D AS byte_rate, writers,
    {p50} AS interarrival_p50_ms, {p95} AS interarrival_p95_ms, {p99} AS interarrival_p99_ms,
    drops, is_open
FROM waited
"""

_SECONDS = str(METRIC_WINDOW_SECONDS)


def windows(
    control: DataFrame, activity: DataFrame, *, lives: DataFrame, spaces: DataFrame, carried: DataFrame
) -> DataFrame:
    """What is in each window that this batch has to do with, and ``is_open``: it may still get more. ``previous`` is
    the time of the last frame before it."""
    found = query(
        _WINDOWS,
        window_start=WINDOW_START,
        seconds=_SECONDS,
        control=control,
        activity=activity,
        lives=lives,
        spaces=spaces,
        carried=carried,
    )
    return found.select(*OPEN_WINDOWS.names, "is_open")


def metrics(windows: DataFrame) -> DataFrame:
    """Percentiles lie between two neighbours as Spark's own ``percentile`` has them."""
    shares = {f"p{share}": _PERCENTILE.replace("{share}", f"{share / 100}D") for share in (50, 95, 99)}
    found = query(_METRICS, seconds=_SECONDS, windows=windows, **shares)
    return found.select(*STREAM_METRICS.names, "is_open")
