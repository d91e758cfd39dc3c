"""What frames there were, summed up: the one pass over the many frames that most tables are made from.

A row is the frames of one writer, in one stream, under one right, in one window of time. Control
records are few, so the intervals that they make are broadcast, and each frame finds its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import query
from mewstream.pipeline.tables import METRIC_WINDOW_SECONDS

#: The beginning of the window that ``ts`` is in.
WINDOW_START = f"timestamp_micros(unix_micros(ts) - pmod(unix_micros(ts), {METRIC_WINDOW_SECONDS * 1_000_000}))"

#: Rights are cut into pieces of so many positions of the log, so that a writer whose right comes and goes with every
#: frame does not meet each of its frames with each of its rights.
_PIECE = 8192

_ACTIVITY = """
WITH pieces AS (
    SELECT rights.space, stream_id, participant, from_seq, until_seq,
        explode(sequence(
            greatest(from_seq, first_seq) div {piece}, least(coalesce(until_seq, last_seq), last_seq) div {piece}
        )) AS piece
    FROM {rights} AS rights JOIN {spaces} AS spaces ON rights.space = spaces.space
    WHERE right = 'write' AND coalesce(until_seq, last_seq) >= first_seq AND from_seq <= last_seq
)
SELECT /*+ BROADCAST(lives), BROADCAST(pieces) */
    frames.space, frames.stream_id, sender, ready_seq, from_seq, {window_start} AS window_start,
    count(*) AS frames,
    sum(size) AS bytes,
    min(seq) AS first_seq,
    max(seq) AS last_seq,
    min(ts) AS first_ts,
    max(ts) AS last_ts,
    collect_list(IF(ready_seq IS NOT NULL, unix_micros(ts), NULL)) AS times
FROM {frames} AS frames
LEFT JOIN {lives} AS lives
    ON frames.space = lives.space AND frames.stream_id = lives.stream_id
    AND seq >= ready_seq AND (ended_seq IS NULL OR seq < ended_seq)
LEFT JOIN pieces
    ON frames.space = pieces.space AND frames.stream_id = pieces.stream_id AND sender = participant
    AND seq div {piece} = piece AND seq > from_seq AND (until_seq IS NULL OR seq < until_seq)
GROUP BY frames.space, frames.stream_id, sender, ready_seq, from_seq, {window_start}
"""


def activity(frames: DataFrame, lives: DataFrame, rights: DataFrame, spaces: DataFrame) -> DataFrame:
    """``lives`` are those of :func:`mewstream.pipeline.streams.lives`, ``rights`` the rows of ``authorizations``, and
    ``spaces`` says which ``first_seq`` and ``last_seq`` of each space are in the batch.

    ``ready_seq`` is null where the stream was not alive, ``from_seq`` where the writer had no right to write.
    ``times`` are the times, in microseconds, of frames in a stream that was alive, in no order.
    """
    return query(
        _ACTIVITY,
        piece=str(_PIECE),
        window_start=WINDOW_START,
        frames=frames,
        lives=lives,
        rights=rights,
        spaces=spaces,
    )
