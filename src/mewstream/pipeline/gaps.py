"""``sequence_gaps``: numbers that a writer's ``stream/data`` skipped, and whether they came later.

The numbers of a writer grow as long as it is here. When it comes back it may count anew, which is no
gap; and it may send what was missing, which heals one.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import query
from mewstream.pipeline.tables import GAP_HEALS_WITHIN_SECONDS, SEQUENCE_GAPS, WRITER_SEQUENCES

_NUMBERED = """
WITH rows AS (
    SELECT /*+ BROADCAST(lives) */ frames.space, frames.stream_id, sender, ready_seq, seq, ts, sequence,
        sequence AS highest, false AS carried
    FROM {frames} AS frames
    JOIN {lives} AS lives ON frames.space = lives.space AND frames.stream_id = lives.stream_id
    WHERE sequence IS NOT NULL AND seq >= ready_seq AND (ended_seq IS NULL OR seq < ended_seq)
    UNION ALL
    SELECT carried.space, carried.stream_id, sender, ready_seq, seq, NULL, sequence, highest, true
    FROM {carried} AS carried
    JOIN {lives} AS lives ON carried.space = lives.space AND carried.stream_id = lives.stream_id
    WHERE seq >= ready_seq AND (ended_seq IS NULL OR seq < ended_seq)
)
SELECT *,
    lag(seq) OVER of_writer AS previous_seq,
    lag(sequence) OVER of_writer AS previous_sequence,
    max(highest) OVER (
        PARTITION BY space, stream_id, sender, ready_seq ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS highest_before
FROM rows
WINDOW of_writer AS (PARTITION BY space, stream_id, sender, ready_seq ORDER BY seq)
"""

#: A number arrives: it is taken out of the range that it is in, and a gap without ranges is healed.
_ARRIVE = """
    IF(size(so_far.ranges) = 0, so_far, struct(
        flatten(transform(so_far.ranges, range -> IF(
            each.number BETWEEN range.first AND range.last,
            filter(
                array(
                    struct(range.first AS first, each.number - 1 AS last),
                    struct(each.number + 1 AS first, range.last AS last)
                ),
                rest -> rest.first <= rest.last
            ),
            array(range)
        ))) AS ranges,
        each.seq AS seq,
        each.ts AS ts
    ))
"""

_GAPS = """
WITH counted_anew AS (
    SELECT space, d.participant AS sender, seq AS join_seq
    FROM {control}
    WHERE record = 'joined' AND NOT coalesce(d.continues, false)
    UNION ALL
    SELECT space, participant, counting_since FROM {participants}
),
jumps AS (
    SELECT * FROM {numbered} WHERE NOT carried AND sequence > previous_sequence + 1
),
every AS (
    SELECT space, stream_id, sender, seq, ts, after_sequence, sequence, missing, ranges FROM {carried}
    UNION ALL
    SELECT space, stream_id, sender, seq, ts, previous_sequence, sequence, sequence - previous_sequence - 1,
        array(struct(previous_sequence + 1 AS first, sequence - 1 AS last))
    FROM jumps
    WHERE NOT EXISTS (
        SELECT 1 FROM counted_anew
        WHERE counted_anew.space = jumps.space AND counted_anew.sender = jumps.sender
            AND join_seq > previous_seq AND join_seq < seq
    )
),
arrivals AS (
    SELECT every.space, every.stream_id, every.sender, every.seq,
        sort_array(collect_list(struct(late.seq AS seq, late.ts AS ts, late.sequence AS number))) AS arrivals
    FROM every
    JOIN {numbered} AS late
        ON every.space = late.space AND every.stream_id = late.stream_id AND every.sender = late.sender
        AND NOT late.carried AND late.sequence < late.highest_before AND late.seq > every.seq
        AND late.sequence > every.after_sequence AND late.sequence < every.sequence
        AND late.ts <= every.ts + INTERVAL {seconds} SECONDS
    GROUP BY every.space, every.stream_id, every.sender, every.seq
),
folded AS (
    SELECT every.*,
        aggregate(
            coalesce(arrivals, array()),
            CAST(struct(ranges, NULL, NULL) AS
                STRUCT<ranges: ARRAY<STRUCT<first: BIGINT, last: BIGINT>>, seq: BIGINT, ts: TIMESTAMP>),
            (so_far, each) -> {arrive}
        ) AS so_far
    FROM every LEFT JOIN arrivals USING (space, stream_id, sender, seq)
),
-- The life of the stream that a gap is in: the newest that began before it.
alive AS (
    SELECT folded.space, folded.stream_id, folded.sender, folded.seq,
        max_by(ended_seq IS NULL, ready_seq) AS lives_on
    FROM folded
    JOIN {lives} AS lives
        ON folded.space = lives.space AND folded.stream_id = lives.stream_id AND ready_seq <= folded.seq
    GROUP BY folded.space, folded.stream_id, folded.sender, folded.seq
)
SELECT folded.space, folded.stream_id, folded.sender, folded.seq, ts, after_sequence, sequence, missing,
    aggregate(so_far.ranges, 0L, (sum, range) -> sum + range.last - range.first + 1) AS still_missing,
    so_far.ranges AS ranges,
    size(so_far.ranges) = 0 AS healed,
    IF(size(so_far.ranges) = 0, so_far.seq, NULL) AS healed_seq,
    IF(size(so_far.ranges) = 0, so_far.ts, NULL) AS healed_ts,
    size(so_far.ranges) > 0 AND coalesce(lives_on, false)
        AND coalesce(last_ts <= ts + INTERVAL {seconds} SECONDS, true) AS is_open
FROM folded
LEFT JOIN alive USING (space, stream_id, sender, seq)
LEFT JOIN {spaces} AS spaces ON folded.space = spaces.space
"""

_SEQUENCES = """
SELECT numbered.space, numbered.stream_id, sender, max(seq) AS seq, max_by(sequence, seq) AS sequence,
    max(highest) AS highest
FROM {numbered} AS numbered
LEFT SEMI JOIN {lives} AS lives
    ON numbered.space = lives.space AND numbered.stream_id = lives.stream_id AND numbered.ready_seq = lives.ready_seq
    AND ended_seq IS NULL
GROUP BY numbered.space, numbered.stream_id, sender
"""


def numbered(frames: DataFrame, lives: DataFrame, carried: DataFrame) -> DataFrame:
    """Frames with a number in streams that live, each with ``previous_seq`` and ``previous_sequence`` of the one before
    it of the same writer, and ``highest_before``; ``carried`` are those from before the batch."""
    return query(_NUMBERED, frames=frames, lives=lives, carried=carried)


def gaps(
    numbered: DataFrame,
    control: DataFrame,
    *,
    participants: DataFrame,
    lives: DataFrame,
    spaces: DataFrame,
    carried: DataFrame,
) -> DataFrame:
    """The gaps that were open before this batch and those that it shows, with ``is_open``: it may still heal.
    ``participants`` are those of before the batch."""
    found = query(
        _GAPS,
        arrive=_ARRIVE,
        seconds=str(GAP_HEALS_WITHIN_SECONDS),
        numbered=numbered,
        control=control,
        participants=participants,
        lives=lives,
        spaces=spaces,
        carried=carried,
    )
    return found.select(*SEQUENCE_GAPS.names, "is_open")


def writer_sequences(numbered: DataFrame, lives: DataFrame) -> DataFrame:
    """The last number of each writer, for the next batch; those of streams that have ended are forgotten."""
    return query(_SEQUENCES, numbered=numbered, lives=lives).select(WRITER_SEQUENCES.names)
