"""What the audit needs of many frames, in one pass over them: counts, ends and maxima of small groups.

A group is what one writer wrote to one stream for the same readers, within a block of offsets. Records that are no
frames make groups of their own, without a stream.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import query, settled

BLOCK = 1 << 12
"""Offsets are cut into blocks of so many, so that little is suspected where something happens."""

READERS = """
CASE WHEN readers_seq IS NOT NULL THEN concat('@', readers_seq)
    WHEN detail IS NOT NULL THEN get_json_object(detail, '$.readers') END
"""
"""Whom a frame was for: by the record that made the set, or by name where nobody knows which that was. Most frames have
neither, and are for everyone."""


def are_for(readers: str, body: str, seq: str) -> str:
    """Whether frames that are for ``readers`` are for a set (``body``, null where there is none) that a record made."""
    by_reference = f"{body} IS NOT NULL AND {readers} = concat('@', {seq})"
    return f"({readers} <=> {body} OR coalesce({by_reference}, false))"


STREAM_NUMBER = "try_cast(regexp_extract(stream_id, '^stream-([0-9]+)$') AS BIGINT)"

_TALLIES = """
SELECT space, stream, sender, readers, block,
    count(*) AS n, min(offset) AS first_at, max(offset) AS last_at, min(micros) AS first_ts, max(micros) AS last_ts,
    min_by(seq, offset) AS first_seq, max(seq) AS last_seq,
    min(seq - offset) AS least_shift, max(seq - offset) AS greatest_shift,
    min_by(stream_seq, offset) AS first_number, max(stream_seq) AS greatest,
    max(numbered_at) AS numbered_at, max_by(seq, numbered_at) AS numbered_seq,
    max_by(sequence, numbered_at) AS sequence,
    max(IF(record = 'erased', offset, NULL)) AS erased_at, max(IF(record = 'erased', seq, NULL)) AS erased_seq,
    min(IF(record = 'stream-opened', {number}, NULL)) AS first_stream
FROM (
    SELECT space, offset, seq, unix_micros(ts) AS micros, record, stream_id, stream_seq, sequence,
        IF(record = 'frame', stream_id, NULL) AS stream, IF(record = 'frame', sender, NULL) AS sender,
        IF(record = 'frame' AND sequence IS NOT NULL, offset, NULL) AS numbered_at, {groups}
    FROM {records}
)
GROUP BY space, stream, sender, readers, block
"""
_FINE = f"IF(record = 'frame', {READERS}, NULL) AS readers, offset DIV {BLOCK} AS block"
_COARSE = "CAST(NULL AS STRING) AS readers, 0L AS block"

_SPANS = """
SELECT space, min(first_at) AS first_at, max(last_at) AS last_at, min_by(first_seq, first_at) AS first_seq,
    max(last_seq) AS last_seq, min(least_shift) AS least_shift, max(greatest_shift) AS greatest_shift,
    coalesce(sum(IF(stream IS NOT NULL, n, NULL)), 0) AS frames,
    max(erased_at) AS erased_at, max(erased_seq) AS erased_seq, min(first_stream) AS first_stream
FROM {tallies}
GROUP BY space
"""


def tallies(records: DataFrame, *, fine: bool) -> DataFrame:
    """One row for each group; those that are not ``fine`` tell neither blocks nor readers apart."""
    return settled(query(_TALLIES, number=STREAM_NUMBER, groups=_FINE if fine else _COARSE, records=records))


def spans(tallies: DataFrame) -> DataFrame:
    """One row for each space of the batch: which part of its log this is, and how many frames are in it."""
    return query(_SPANS, tallies=tallies)
