"""Every accepted frame: whether its writer held the right at that place in the log.

Rights, states of streams, presence, pauses and reader sets are few and become intervals, which are cut with each other
to intervals in which a participant may write to a stream. Frames are many: most groups of them lie within one such
interval as a whole. Only the others are looked at, and those frames alone that lie in none are judged one by one, by
the facts that held at each of them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.audit_facts import ASSUMED, mark
from mewstream.pipeline.audit_tallies import BLOCK, READERS, are_for
from mewstream.pipeline.sql import columns, query
from mewstream.pipeline.tables import AUDIT_FACTS
from mewstream.protocol.errors import SequenceRegression

_IS_FRAME = "if(record = 'frame', {}, NULL)"
LOOKUPS = {
    "right": ("right", _IS_FRAME.format("stream_id"), "sender"),
    "readers": ("readers", _IS_FRAME.format("stream_id"), "''"),
}
"""What must be looked up about a frame, beside what every record needs."""


def frames_of(records: DataFrame) -> DataFrame:
    return query(_FRAMES, readers=READERS, records=records)


_FRAMES = """
SELECT space, offset AS at, seq, unix_micros(ts) AS micros, record, kind, sender, stream_id, stream_seq, sequence,
    {readers} AS readers
FROM {records}
WHERE record = 'frame'
"""

# -- looking at few of many -----------------------------------------------------------------------


def allowed(facts: DataFrame, spans: DataFrame) -> DataFrame:
    """The intervals in which a raw frame is allowed."""
    return query(_ALLOWED, assumed=ASSUMED, facts=facts, spans=spans)


def worth_a_look(
    frames: DataFrame, tallies: DataFrame, allowed: DataFrame, facts: DataFrame, control: DataFrame, streams: DataFrame
) -> DataFrame:
    """The frames of groups that are not allowed as a whole, or are under a right that is good for so many frames, or of
    a writer whom a regression was held against, or of ``streams`` whose numbers are in doubt."""
    return query(
        _WORTH_A_LOOK,
        regression=SequenceRegression.code,
        block=str(BLOCK),
        for_them=are_for("groups.readers", "allowed.readers", "allowed.readers_seq"),
        frames=frames,
        tallies=tallies,
        allowed=allowed,
        facts=facts,
        control=control,
        streams=streams,
    )


def suspects(frames: DataFrame, allowed: DataFrame) -> DataFrame:
    """The frames that lie in no interval in which they are allowed."""
    for_them = are_for("frames.readers", "allowed.readers", "allowed.readers_seq")
    return query(_SUSPECTS, for_them=for_them, frames=frames, allowed=allowed)


#: A fact holds for the frames after its record.
_ALLOWED = """
WITH clipped AS (
    SELECT /*+ BROADCAST(spans) */ facts.*
    FROM {facts} AS facts JOIN {spans} AS spans ON facts.space = spans.space AND until > first_at AND at <= last_at
)
SELECT *
FROM (
    SELECT space, stream_id, sender, expires_at, not_before, readers, readers_seq,
        greatest(r_from, s_from, p_from, f_from, a_from) AS since,
        least(r_until, s_until, p_until, f_until, a_until) AS until
    FROM (
        SELECT space, key AS stream_id, other AS sender, at AS r_from, until AS r_until, number AS expires_at
        FROM clipped WHERE topic = 'right' AND held
    )
    JOIN (SELECT space, key AS stream_id, at AS s_from, until AS s_until
          FROM clipped WHERE topic = 'status' AND text = 'live') USING (space, stream_id)
    JOIN (SELECT space, key AS sender, at AS p_from, until AS p_until
          FROM clipped WHERE topic = 'presence' AND text IN ('here', '{assumed}')) USING (space, sender)
    JOIN (SELECT space, key AS sender, at AS f_from, until AS f_until, IF(held, number, NULL) AS not_before
          FROM clipped WHERE topic = 'pause' AND (NOT held OR number IS NOT NULL)) USING (space, sender)
    JOIN (SELECT space, key AS stream_id, at AS a_from, until AS a_until, body AS readers, seq AS readers_seq
          FROM clipped WHERE topic = 'readers') USING (space, stream_id)
)
WHERE since < until
"""
_WORTH_A_LOOK = """
WITH doubtful AS (
    SELECT /*+ BROADCAST(allowed) */ groups.space, stream, groups.sender, block
    FROM {tallies} AS groups LEFT ANTI JOIN {allowed} AS allowed
        ON groups.space = allowed.space AND stream = stream_id AND groups.sender = allowed.sender
        AND since < first_at AND last_at <= until AND (expires_at IS NULL OR last_ts < expires_at)
        AND (not_before IS NULL OR first_ts >= not_before) AND {for_them}
    WHERE stream IS NOT NULL
    UNION ALL
    SELECT groups.space, stream, sender, block
    FROM {tallies} AS groups JOIN {facts} AS facts
        ON groups.space = facts.space AND stream = key AND sender = other AND first_at <= until AND last_at > at
    WHERE topic = 'right' AND held AND bound IS NOT NULL
    UNION ALL
    SELECT groups.space, stream, groups.sender, block
    FROM {tallies} AS groups JOIN {control} AS control
        ON groups.space = control.space AND stream = stream_id AND groups.sender = control.sender
    WHERE outcome = '{regression}'
    UNION ALL
    SELECT groups.space, stream, sender, block
    FROM {tallies} AS groups JOIN {streams} AS streams ON groups.space = streams.space AND stream = stream_id
)
SELECT /*+ BROADCAST(doubtful) */ frames.*
FROM {frames} AS frames LEFT SEMI JOIN doubtful
    ON frames.space = doubtful.space AND stream_id = stream AND frames.sender = doubtful.sender
    AND at DIV {block} = block
"""
_SUSPECTS = """
SELECT /*+ BROADCAST(allowed) */ frames.*
FROM {frames} AS frames LEFT ANTI JOIN {allowed} AS allowed
    ON frames.space = allowed.space AND frames.stream_id = allowed.stream_id AND frames.sender = allowed.sender
    AND at > since AND at <= until AND (expires_at IS NULL OR micros < expires_at)
    AND (not_before IS NULL OR micros >= not_before) AND {for_them}
"""

# -- the verdict ----------------------------------------------------------------------------------


def verdict() -> str:
    """The first rule that a frame breaks, as SQL; null where it breaks none. ``stream/data`` comes by HTTP too, from an
    owner who is not here."""
    absent = f"kind = 'frame' AND NOT coalesce(was.presence.text IN ('here', '{ASSUMED}'), false)"
    paused = "was.pause.held AND (was.pause.number IS NULL OR micros < was.pause.number)"
    rules = (
        ("no_stream", "NOT is_open", "'the stream was not open'", "NULL"),
        ("not_live", "was.status.text <> 'live'", "'the stream had not been started'", "NULL"),
        (
            "no_right",
            "NOT coalesce(was.right.held, false)",
            "if(was.right.seq IS NULL, 'the writer never had the right', 'the right of the writer had been revoked')",
            "was.right.seq",
        ),
        (
            "expired",
            "was.right.number <= micros",
            "concat('the right of the writer had expired at ', timestamp_micros(was.right.number))",
            "was.right.seq",
        ),
        ("absent", absent, "'the writer was not here'", "was.presence.seq"),
        ("paused", paused, "'the writer was paused'", "was.pause.seq"),
        (
            "readers",
            f"NOT {are_for('readers', 'was.readers.body', 'was.readers.seq')}",
            "concat('addressed to ', coalesce(regexp_replace(readers, '^@', 'the readers of seq '), 'everyone'), "
            "', but the readers were ', coalesce(was.readers.body, 'everyone'))",
            "was.readers.seq",
        ),
    )
    cases = " ".join(
        f"WHEN {broken} THEN " + mark(f"'frame_{name}'", "breach", "sender", _ACCEPTED.format(reason), seq)
        for name, broken, reason, seq in rules
    )
    return f"CASE WHEN all_known THEN CASE {cases} END END"


_ACCEPTED = "concat('a frame was accepted: ', {})"


# -- rights that are good for a number of frames --------------------------------------------------


def uses(frames: DataFrame, facts: DataFrame) -> DataFrame:
    """Each frame under a right that is good for so many, with how many were used with it (``used``)."""
    return query(_USES, frames=frames, facts=facts)


_USES = """
WITH rights AS (
    SELECT rights.space, rights.key, rights.other, rights.at AS right_at, rights.seq AS right_seq, rights.until,
        rights.bound, coalesce(used.number, 0) AS used_before
    FROM (SELECT * FROM {facts} WHERE topic = 'right' AND held AND bound IS NOT NULL) AS rights
    LEFT JOIN (SELECT * FROM {facts} WHERE topic = 'used') AS used USING (space, key, other, at)
)
SELECT /*+ BROADCAST(rights) */ frames.space, at, seq, micros, stream_id, sender, right_at, right_seq, bound,
    used_before + row_number() OVER (PARTITION BY frames.space, stream_id, sender, right_at ORDER BY at) AS used
FROM {frames} AS frames JOIN rights
    ON frames.space = rights.space AND stream_id = key AND sender = other AND at > right_at AND at <= until
"""

TOTALS = """
SELECT {total}
FROM (
    SELECT space, key, other, at, max(number) AS number
    FROM (
        SELECT space, stream_id AS key, sender AS other, right_at AS at, used AS number FROM {used}
        UNION ALL
        SELECT space, key, other, at, number FROM {facts} WHERE topic = 'used'
    )
    GROUP BY space, key, other, at
)
"""
"""As facts: how many frames have been accepted under each such right, with the place of the right."""
TOTAL = columns(
    AUDIT_FACTS,
    space="space",
    topic="'used'",
    key="key",
    other="other",
    at="at",
    held="true",
    number="number",
)


def overdrawn() -> str:
    """What is said of frames beyond the number that a right was good for."""
    reason = _ACCEPTED.format("concat('the right of the writer was good for ', bound, ' frames')")
    return mark("'frame_spent'", "breach", "sender", reason, "right_seq")
