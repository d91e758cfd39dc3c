"""Every refusal of a stream operation: whether its code follows from the state at that place in the log.

The verdict is ``right`` or ``wrong`` where the log decides it, and ``unjudged`` where it does not: it holds only the
beginning of what was refused, and no expression of SQL checks a JSON Schema or a pattern of payloads. What a flood of
refusals was summed up to is not judged again; the first of them was.
"""

from __future__ import annotations

from mewstream.pipeline import audit_capabilities as capabilities
from mewstream.pipeline.audit_facts import OPEN, mark
from mewstream.pipeline.sql import filled
from mewstream.protocol import kinds
from mewstream.protocol.errors import (
    CapabilityViolation,
    FormatRequired,
    FormatViolation,
    InvalidOperation,
    LimitExceeded,
    ParticipantNotFound,
    ReservedKind,
    SequenceRegression,
    StreamNotFound,
    TargetNotFound,
    Unauthorized,
    UnauthorizedStreamWrite,
)

_REFUSED = "if(record = 'refused', {}, NULL)"
LOOKUPS = {
    "alias": ("alias", _REFUSED.format("stream_id"), "''"),
    "held": ("right", _REFUSED.format("stream_id"), "sender"),
    "sequence": ("sequence", _REFUSED.format("stream_id"), "sender"),
    "counting": ("counting", _REFUSED.format("sender"), "''"),
    "subject": ("presence", "subject", "''"),
    "named": ("roster", "subject", "''"),
    "invitee": ("invited", "subject", "''"),
}
"""What must be looked up about a refusal, beside what every record needs."""

OF_STREAMS = "record = 'refused' AND (kind = 'frame' OR kind LIKE 'stream/%')"
SUBJECT = "coalesce(d.details.participant_id, get(d.details.targets, 0))"

_OWNERS = f"('{kinds.STREAM_START}', '{kinds.STREAM_COMPLETE}', '{kinds.STREAM_ERROR}')"
"""What only the owner may send."""
_MANAGERS = (
    "('"
    + "', '".join(
        [
            *(kinds.GRANT_WRITE, kinds.REVOKE_WRITE, kinds.TRANSFER_OWNERSHIP),
            *(kinds.GRANT_READ, kinds.REVOKE_READ, kinds.STREAM_CLOSE),
        ]
    )
    + "')"
)
"""What the owner may send, and a holder of space/manage-streams."""
_WRITERS = f"('frame', '{kinds.STREAM_DATA}')"
_RESERVED = "('" + "', '".join(sorted(kinds.RESERVED)) + "')"

_COUNTED = "('streams_per_space', 'writers_per_stream')"
"""Limits of what can be counted at any place in the log."""

_LONGEST_REFERENCE = 128
"""A reference to a stream is recorded up to this length."""

_PAUSED = "was.pause.held AND (was.pause.number IS NULL OR micros < was.pause.number)"
_PRESENT = "('here', 'suspended')"


def verdict() -> str:
    """Whether a refusal was right, as SQL over a record with :func:`with_counts`."""
    reason = "concat(kind, ' was refused with ', outcome, ', and nothing in the log justifies it: ', d.message)"
    evidence = "if(is_open, coalesce(was.held.seq, was.status.seq), NULL)"
    return mark("'refusal'", "flaw", "sender", reason, evidence, f"coalesce({_verdict()}, 'unjudged')")


def with_counts() -> str:
    """SQL of the refusals of stream operations, with ``reached``: how many there were of what a limit bounds; null for
    limits that the log cannot tell about."""
    return filled(_WITH_COUNTS, subject=SUBJECT, limit=LimitExceeded.code, open=OPEN, of_streams=OF_STREAMS)


_WITH_COUNTS = """
SELECT * EXCEPT (counted_space, counted_at), {subject} AS subject
FROM control
LEFT JOIN (
    SELECT control.space AS counted_space, control.at AS counted_at, count(*) AS reached
    FROM control JOIN facts
        ON control.space = facts.space AND control.at > facts.at AND control.at <= facts.until
        AND ((d.details.limit = 'streams_per_space' AND topic = 'status' AND text IN {open})
            OR (d.details.limit = 'writers_per_stream' AND topic = 'right' AND held AND key = stream_id))
    WHERE outcome = '{limit}' AND {of_streams}
    GROUP BY control.space, control.at
) ON space = counted_space AND at = counted_at
WHERE {of_streams}
"""


def _verdict() -> str:
    summed_up = "NOT coalesce(d.remember, true)"
    capable = capabilities.allows(f"if(kind = '{kinds.STREAM_ANNOUNCE}', '{kinds.STREAM_MANAGE}', kind)")
    denied = capabilities.denies("kind")
    rules = {
        ReservedKind.code: _right_if(f"kind IN {_RESERVED} OR kind LIKE 'system/%'"),
        StreamNotFound.code: f"""CASE
            WHEN octet_length(stream_id) >= {_LONGEST_REFERENCE} THEN 'unjudged'
            WHEN kind = '{kinds.STREAM_CLOSE}' AND NOT coalesce(stream_id IN (get_json_object(d.excerpt, '$.stream_id'),
                get_json_object(d.excerpt, '$.stream.stream_id')), false) THEN 'unjudged'
            WHEN is_open OR coalesce(was.alias.held, false) THEN 'wrong'
            WHEN all_known THEN 'right' END""",
        UnauthorizedStreamWrite.code: f"""CASE
            WHEN NOT all_known THEN 'unjudged'
            WHEN NOT is_open OR kind NOT IN {_WRITERS} THEN 'wrong'
            ELSE {_right_if("NOT coalesce(was.held.held, false)")} END""",
        Unauthorized.code: f"""CASE
            WHEN d.details.expected_from IS NOT NULL OR NOT all_known THEN 'unjudged'
            WHEN NOT is_open OR sender = was.owner.text THEN 'wrong'
            WHEN kind IN {_OWNERS} THEN 'right'
            WHEN kind IN {_MANAGERS} AND (manager = 'no' OR {denied} = 'yes') THEN 'right'
            WHEN kind IN {_MANAGERS} THEN if(manager = 'yes' AND {denied} = 'no', 'wrong', 'unjudged')
            ELSE 'wrong' END""",
        ParticipantNotFound.code: f"""CASE
            WHEN subject IS NULL THEN 'unjudged'
            WHEN was.subject.text IN {_PRESENT} THEN 'wrong'
            WHEN was.subject.text = 'gone' OR is_whole THEN 'right' END""",
        TargetNotFound.code: f"""CASE
            WHEN subject IS NULL THEN 'unjudged'
            WHEN was.subject.text IN {_PRESENT} OR was.named.number = was.started.seq OR was.invitee.seq IS NOT NULL
                THEN 'wrong'
            WHEN is_whole AND size(d.details.targets) = 1 THEN 'right' END""",
        SequenceRegression.code: f"""CASE
            WHEN NOT all_known OR NOT coalesce(was.presence.text IN {_PRESENT}, false) THEN 'unjudged'
            ELSE {
            _right_if(
                "was.sequence.seq > was.counting.number AND d.details.last_sequence = was.sequence.number "
                "AND try_cast(regexp_extract(d.message, '^payload.sequence is ([0-9]+),') AS BIGINT) "
                "<= was.sequence.number"
            )
        } END""",
        InvalidOperation.code: _invalid_operation(),
        CapabilityViolation.code: f"""CASE
            WHEN kind IN {_OWNERS} OR kind IN {_MANAGERS} OR kind IN {_WRITERS} THEN 'wrong'
            WHEN {denied} = 'yes' THEN 'right'
            WHEN {denied} = 'unknown' THEN 'unjudged'
            ELSE CASE {capable} WHEN 'no' THEN 'right' WHEN 'yes' THEN 'wrong' END END""",
        FormatRequired.code: f"""CASE WHEN all_known THEN {_right_if(f"is_open AND size({_FORMATS}) > 1")} END""",
        FormatViolation.code: f"""CASE
            WHEN NOT all_known THEN 'unjudged'
            WHEN NOT is_open OR size({_FORMATS}) = 0 THEN 'wrong'
            WHEN d.details.problems IS NOT NULL THEN
                if(get_json_object(was.opened.body, '$.validate') <> 'enforce', 'wrong', 'unjudged')
            WHEN array_contains({_FORMATS}, get_json_object(d.excerpt, '$.format_id')) THEN 'wrong'
            WHEN get_json_object(d.excerpt, '$.format_id') IS NOT NULL THEN 'right' END""",
        LimitExceeded.code: f"""CASE
            WHEN d.details.limit NOT IN {_COUNTED} OR NOT is_whole THEN 'unjudged'
            WHEN try_cast(get_json_object(was.started.body, concat('$.', d.details.limit)) AS BIGINT) IS NOT NULL THEN
                {
            _right_if(
                "coalesce(reached, 0) >= "
                "try_cast(get_json_object(was.started.body, concat('$.', d.details.limit)) AS BIGINT)"
            )
        } END""",
    }
    cases = " ".join(f"WHEN '{code}' THEN {verdict}" for code, verdict in rules.items())
    return f"CASE WHEN {summed_up} THEN 'unjudged' ELSE CASE outcome {cases} END END"


_FORMATS = "from_json(get_json_object(was.opened.body, '$.formats'), 'array<string>')"


def _invalid_operation() -> str:
    """Not valid in the state of the stream, the sender is paused, or one of the rules for owners."""
    not_now = f"""was.status.text = d.details.status AND CASE
        WHEN kind = '{kinds.STREAM_START}' THEN was.status.text <> 'ready'
        WHEN kind = '{kinds.STREAM_COMPLETE}' OR kind IN {_WRITERS} THEN was.status.text <> 'live' END"""
    named = "get_json_object(d.excerpt, '$.participant_id')"
    expiry = "unix_micros(try_to_timestamp(get_json_object(d.excerpt, '$.conditions.expires_at')))"
    return f"""CASE
        WHEN d.details.shut_down THEN 'unjudged'
        WHEN d.details.status IS NOT NULL THEN if(all_known, {_right_if(not_now)}, 'unjudged')
        WHEN d.message LIKE 'you are paused%' THEN
            if(is_whole OR was.pause.seq IS NOT NULL, {_right_if(_PAUSED)}, 'unjudged')
        WHEN NOT all_known OR {named} IS NULL THEN 'unjudged'
        WHEN kind = '{kinds.REVOKE_WRITE}' THEN {_right_if(f"is_open AND {named} = was.owner.text")}
        WHEN kind = '{kinds.GRANT_WRITE}' AND is_open THEN CASE
            WHEN {named} = was.owner.text OR {expiry} <= micros THEN 'right'
            WHEN {expiry} > micros THEN 'wrong' END
        END"""


def _right_if(condition: str) -> str:
    return f"if(coalesce({condition}, false), 'right', 'wrong')"
