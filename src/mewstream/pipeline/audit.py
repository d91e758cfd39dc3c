"""The audit: what the log itself does not justify, judged from the log alone and batch by batch.

It shares names with the protocol core (kinds, codes) and no rule. :func:`judge` takes a batch (rows of ``records``)
and what the batch before left (rows of ``state_audit``); it gives marks and what the next batch needs. A mark says of
something in the log that it is wrong, right, or cannot be judged; :func:`findings` and :func:`counts` read them.

* Numbers: ``seq`` and ``stream_seq`` have no gaps and no repeats (:mod:`.audit_numbers`).
* Frames: each was written by one who might, to a stream that was live, for its readers (:mod:`.audit_frames`).
* Changes of streams and rights: somebody entitled asked, or the gateway had cause (:mod:`.audit_changes`).
* Refusals of stream operations follow from the state (:mod:`.audit_refusals`).

A record is judged by what the records before it say, even where one of those is a finding itself: one fault is one
finding, and not a hundred.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mewstream.pipeline import audit_capabilities as capabilities
from mewstream.pipeline import audit_changes as changes
from mewstream.pipeline import audit_facts as facts_of
from mewstream.pipeline import audit_frames as frames_of
from mewstream.pipeline import audit_numbers as numbers
from mewstream.pipeline import audit_refusals as refusals
from mewstream.pipeline import audit_tallies as tallies_of
from mewstream.pipeline.sql import columns, filled, query, settled
from mewstream.pipeline.tables import AUDIT, AUDIT_FACTS
from mewstream.protocol import kinds as kinds_of_messages
from mewstream.protocol.errors import SequenceRegression

_WORTH_SCREENING = 10_000
"""From so many frames on, it is cheaper to look for suspects first than to judge each closely."""


class Judged(NamedTuple):
    marks: DataFrame
    """What was judged, few rows; persist it, for it is asked more than once."""
    carried: DataFrame
    """What the next batch needs, as rows of ``state_audit``."""


class _Looked(NamedTuple):
    """What is judged one by one."""

    frames: DataFrame
    """All that anything may be said of."""
    suspects: DataFrame
    """Those of them that may not have been allowed."""
    spaces: DataFrame
    """Those whose ``seq`` is looked at."""
    streams: DataFrame
    """Those whose ``stream_seq`` is looked at."""


def judge(
    batch: DataFrame,
    carried: DataFrame,
    *,
    control: DataFrame | None = None,
    frames: int | None = None,
    kinds: Collection[str] | None = None,
) -> Judged:
    """Judge a batch, whose rows of each space follow on those that ``carried`` is from.

    Where somebody knows: ``control`` are its rows that are no frames, ``frames`` is how many frames it has, and
    ``kinds`` are the records that it has; rules for others are left out. What is looked up is looked up here and now,
    and what is said of it when the results are asked for.
    """
    kinds = facts_of.KINDS if kinds is None else kinds
    screen = frames is None or frames >= _WORTH_SCREENING
    control = settled(facts_of.control_records(batch if control is None else control))
    tallies = tallies_of.tallies(batch, fine=screen)
    spans = tallies_of.spans(tallies)
    facts = facts_of.facts_in(control, carried, spans, kinds)
    spaces, streams = numbers.spaces(spans, carried), numbers.streams(tallies, facts, carried)
    if screen:
        looked = _screened(batch, control, facts, tallies, spans, spaces, streams)
    else:
        everything = settled(frames_of.frames_of(batch))
        looked = _Looked(everything, everything, spaces, streams)
    used = settled(frames_of.uses(looked.frames, facts))
    marks = query(
        _MARKS,
        judged=_judged(kinds),
        uses=frames_of.TOTALS,
        total=frames_of.TOTAL,
        overdrawn=frames_of.overdrawn(),
        of_records=filled(numbers.OF_RECORDS, found=numbers.verdict("seq", "records of the space")),
        of_frames=filled(numbers.OF_FRAMES, found=numbers.verdict("stream_seq", "frames of the stream")),
        known=numbers.KNOWN,
        records=batch,
        known_before=_known(kinds, control, facts, looked),
        facts=facts,
        tallies=tallies,
        used=used,
        frames=looked.frames,
        spaces=looked.spaces,
        streams=looked.streams,
    )
    left = facts_of.carry(
        facts,
        f"{frames_of.TOTALS} UNION ALL {numbers.SEQUENCES} UNION ALL {numbers.GREATEST}",
        total=frames_of.TOTAL,
        sequence=numbers.OF_SEQUENCE,
        greatest=numbers.OF_GREATEST,
        carried=carried,
        tallies=tallies,
        used=used,
    )
    return Judged(marks, left)


def _screened(
    batch: DataFrame,
    control: DataFrame,
    facts: DataFrame,
    tallies: DataFrame,
    spans: DataFrame,
    spaces: DataFrame,
    streams: DataFrame,
) -> _Looked:
    """What is suspected, which is little: to find it is the dearest part of the audit, and once is enough."""
    spaces = numbers.suspected_spaces(spaces, tallies, batch)
    streams = numbers.suspected_streams(streams, tallies, batch)
    allowed = settled(frames_of.allowed(facts, spans))
    frames = settled(frames_of.worth_a_look(frames_of.frames_of(batch), tallies, allowed, facts, control, streams))
    return _Looked(frames, settled(frames_of.suspects(frames, allowed)), spaces, streams)


_MARKS = """
WITH facts AS (SELECT * FROM {facts}),
uses AS ({uses})
SELECT space, at, seq, ts, stream_id, found.*, 1L AS n
FROM (
    {judged}
    UNION ALL
    SELECT space, at, seq, timestamp_micros(micros) AS ts, stream_id, {overdrawn} AS found
    FROM {used}
    WHERE used > bound
    UNION ALL
    {of_records}
    UNION ALL
    {of_frames}
)
UNION ALL
SELECT space, NULL, NULL, NULL, NULL, verdict, 'frames', NULL, NULL, NULL, NULL, n
FROM (
    SELECT space, 'right' AS verdict, sum(IF(stream IS NULL, 0, n)) AS n FROM {tallies} GROUP BY space
    UNION ALL
    SELECT space, 'unjudged', sum(n)
    FROM (
        SELECT tallies.space, stream AS key, n, number AS begun, bound AS lowest
        FROM {tallies} AS tallies JOIN facts ON tallies.space = facts.space AND topic = 'begins' AND number <> 1
        WHERE stream IS NOT NULL
    )
    WHERE NOT {known}
    GROUP BY space
)
"""

# -- by the state just before ---------------------------------------------------------------------

_LOOKUPS: facts_of.Lookups = {
    "begins": ("begins", "''", "''"),
    "status": ("status", "stream_id", "''"),
    "opened": ("opened", "stream_id", "''"),
    "owner": ("owner", "stream_id", "''"),
    "presence": ("presence", "sender", "''"),
    "pause": ("pause", "sender", "''"),
}
"""What must be looked up about every record."""

_FRAMES = """
SELECT space, at, seq, micros, record, kind, sender, stream_id, NULL AS participant, NULL AS outcome, NULL AS cause_seq,
    NULL AS d, readers, NULL AS subject, NULL AS reached
FROM {suspects}
"""
_CHANGES = """
SELECT space, at, seq, micros, record, kind, sender, stream_id, participant, outcome, cause_seq, d, NULL AS readers,
    NULL AS subject, NULL AS reached
FROM control
WHERE record IN ({changed})
"""
_REFUSALS = """
SELECT space, at, seq, micros, record, kind, sender, stream_id, participant, outcome, cause_seq, d, NULL AS readers,
    subject, reached
FROM ({refused})
"""
_SAID = """
UNION ALL
SELECT {numbered}, NULL AS until
FROM {frames} AS frames LEFT SEMI JOIN control
    ON frames.space = control.space AND frames.stream_id = control.stream_id AND frames.sender = control.sender
    AND outcome = '{regression}'
WHERE sequence IS NOT NULL
"""
_NUMBERED = columns(
    AUDIT_FACTS,
    space="frames.space",
    topic="'sequence'",
    key="frames.stream_id",
    other="frames.sender",
    at="frames.at",
    seq="frames.seq",
    held="true",
    number="sequence",
)


_WITH_PATTERNS = """(
    SELECT *, {manager} AS manager
    FROM (SELECT *, IF(record = 'frame', NULL, {patterns}) AS patterns FROM {known_before})
)"""
_JUDGED = """
SELECT space, at, seq, timestamp_micros(micros) AS ts, stream_id, CASE {verdicts} END AS found FROM {source}
"""
_KNOWN = """
WITH control AS (SELECT * FROM {control}),
facts AS (SELECT * FROM {facts}),
looked_at AS ({looked_at}),
said AS (SELECT * FROM facts {sequences})
{as_of}
"""


def _known(kinds: Collection[str], control: DataFrame, facts: DataFrame, looked: _Looked) -> DataFrame:
    """Frames, changes and refusals, each with the state just before it. Here and now: the verdicts are long, and one
    plan of all would take longer than two."""
    lookups = dict(_LOOKUPS)
    looked_at = [_FRAMES]
    changed = [record for record in changes.RECORDS if record in kinds]
    if "frame" in kinds:
        lookups |= frames_of.LOOKUPS
    if changed or "refused" in kinds:
        lookups |= capabilities.LOOKUPS
    if "refused" in kinds:
        lookups |= refusals.LOOKUPS
        looked_at.append(filled(_REFUSALS, refused=refusals.with_counts()))
    if changed:
        lookups |= changes.LOOKUPS
        looked_at.append(filled(_CHANGES, changed=", ".join(f"'{record}'" for record in changed)))
    return settled(
        query(
            _KNOWN,
            looked_at=" UNION ALL ".join(looked_at),
            sequences=_SAID if "refused" in kinds else "",
            numbered=_NUMBERED,
            regression=SequenceRegression.code,
            as_of=facts_of.as_of(lookups),
            control=control,
            facts=facts,
            frames=looked.frames,
            suspects=looked.suspects,
        )
    )


def _judged(kinds: Collection[str]) -> str:
    """SQL of what is said of them."""
    changed = any(record in kinds for record in changes.RECORDS)
    known = "{known_before}"
    verdicts = [f"WHEN record = 'frame' THEN {frames_of.verdict()}"]
    if changed or "refused" in kinds:
        manager = capabilities.allows(f"'{kinds_of_messages.SPACE_MANAGE_STREAMS}'")
        known = filled(_WITH_PATTERNS, manager=manager, patterns=capabilities.PATTERNS)
    if "refused" in kinds:
        verdicts.append(f"WHEN record = 'refused' THEN {refusals.verdict()}")
    if changed:
        known = changes.with_causes(known)
        verdicts.append(f"ELSE {changes.verdict()}")
    return filled(_JUDGED, verdicts=" ".join(verdicts), source=known)


# -- what is read from it -------------------------------------------------------------------------


def findings(marks: DataFrame) -> DataFrame:
    """The rows of the table ``audit``."""
    return marks.where("verdict = 'wrong'").select(*AUDIT.names)


def counts(marks: DataFrame) -> DataFrame:
    """For each space of the batch, how much was judged, how much could not be, and how many findings there are."""

    def total(condition: str) -> str:
        return f"CAST(coalesce(sum(CASE WHEN {condition} THEN n END), 0) AS BIGINT)"

    frames = "rule = 'frames' AND verdict = 'right'"
    unjudged = "rule = 'frames' AND verdict = 'unjudged'"
    return marks.groupBy("space").agg(
        F.expr(f"{total(frames)} - {total(unjudged)}").alias("frames_judged"),
        F.expr(total(unjudged)).alias("frames_not_judged"),
        F.expr(total("rule = 'refusal' AND verdict <> 'unjudged'")).alias("refusals_judged"),
        F.expr(total("rule = 'refusal' AND verdict = 'unjudged'")).alias("refusals_not_judged"),
        F.expr(total("verdict = 'wrong'")).alias("findings"),
    )
