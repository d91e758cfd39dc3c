"""Every change of rights: whether somebody entitled asked for it, or the gateway had a recorded cause.

A change that a participant asked for follows the record of its envelope, and so the newest envelope before it must be
that one. What the gateway does by itself follows from a leave, a join, a condition that is spent, or a policy.
"""

from __future__ import annotations

from mewstream.pipeline.audit_facts import ASSUMED, mark
from mewstream.pipeline.sql import filled
from mewstream.protocol import kinds

RECORDS = (
    *("stream-opened", "stream-started", "stream-ended", "write-granted", "write-revoked"),
    *("ownership-transferred", "read-granted", "read-revoked"),
)

_ASKED_BY = {
    "stream-started": kinds.STREAM_START,
    "write-granted": kinds.GRANT_WRITE,
    "write-revoked": kinds.REVOKE_WRITE,
    "ownership-transferred": kinds.TRANSFER_OWNERSHIP,
    "read-granted": kinds.GRANT_READ,
    "read-revoked": kinds.REVOKE_READ,
}
"""The kind of the envelope that each change answers."""

_CHANGED = "if(record IN {}, {{}}, NULL)".format("('" + "', '".join(RECORDS) + "')")
LOOKUPS = {
    "given": ("right", _CHANGED.format("stream_id"), "participant"),
    "receiver": ("presence", _CHANGED.format("participant"), "''"),
    "auto": ("auto", _CHANGED.format("stream_id"), "participant"),
    "asked": ("asked", _CHANGED.format("''"), "''"),
    "joined": ("joined", _CHANGED.format("''"), "''"),
    "left": ("left", _CHANGED.format("''"), "''"),
    "opening": ("opening", _CHANGED.format("''"), "''"),
}
"""What must be looked up about a change, beside what every record needs."""

_HERE = f"coalesce(was.receiver.text IN ('here', 'suspended', '{ASSUMED}'), NOT is_whole)"
_SUBJECT = "get_json_object(was.asked.body, '$.subject')"


def verdict() -> str:
    """What is wrong with a change, as SQL over a record with :func:`with_causes`; null where nothing is."""
    reason = "concat(sender, ' ', flaw)"
    found = mark("replace(record, '-', '_')", "breach", "coalesce(participant, sender)", reason, "cause_seq")
    return f"CASE WHEN all_known AND flaw IS NOT NULL THEN {found} END"


def with_causes(source: str) -> str:
    """SQL that gives the rows of a source with ``flaw``: what is wrong with a change; null where nothing is, and for
    other records."""
    return filled(_WITH_CAUSES, flaw=_flaw(), asked_for=_asked_for(), gateway=kinds.GATEWAY, source=source)


_WITH_CAUSES = """(
    SELECT * EXCEPT (asked_for, owner_gone, used, heir_since, longest_since), {flaw} AS flaw
    FROM (
        SELECT known.*, {asked_for} AS asked_for, gone.ts AS owner_gone, uses.number AS used, heir_since, longest_since
        FROM {source} AS known
        -- Since when the owner was not here, where the gateway acts for an owner who has left.
        LEFT JOIN (SELECT * FROM facts WHERE topic = 'presence' AND text = 'gone') AS gone
            ON known.space = gone.space AND known.was.owner.text = gone.key
            AND known.at > gone.at AND known.at <= gone.until AND known.sender = '{gateway}'
        -- How many frames were accepted under the right that is revoked.
        LEFT JOIN uses
            ON known.space = uses.space AND known.stream_id = uses.key AND known.participant = uses.other
            AND known.was.given.at = uses.at
        -- Those who might inherit a stream: writers who are here, since when, and since when the one who did.
        LEFT JOIN (
            SELECT orphan.space, orphan.at, min(rights.since) AS longest_since,
                min(IF(rights.other = orphan.participant, rights.since, NULL)) AS heir_since
            FROM {known_before} AS orphan
            JOIN facts AS rights
                ON orphan.space = rights.space AND orphan.stream_id = rights.key AND rights.topic = 'right'
                AND rights.held AND rights.other <> orphan.was.owner.text
                AND orphan.at > rights.at AND orphan.at <= rights.until
            JOIN facts AS presence
                ON orphan.space = presence.space AND rights.other = presence.key AND presence.topic = 'presence'
                AND presence.text = 'here' AND orphan.at > presence.at AND orphan.at <= presence.until
            WHERE orphan.sender = '{gateway}' AND orphan.d.reason = 'owner_left'
            GROUP BY orphan.space, orphan.at
        ) AS heirs ON known.space = heirs.space AND known.at = heirs.at
    )
)"""


def _asked_for() -> str:
    """Whether the change answers an envelope of its own kind, sender, stream and participant."""
    kind = " ".join(f"WHEN record = '{record}' THEN '{kind}'" for record, kind in _ASKED_BY.items())
    ends = (
        f"WHEN record = 'stream-ended' THEN kind WHEN record = 'stream-opened' AND d.status = 'live' "
        f"THEN '{kinds.STREAM_REQUEST}' WHEN record = 'stream-opened' THEN '{kinds.STREAM_ANNOUNCE}'"
    )
    return f"""coalesce(
        was.asked.seq = cause_seq AND was.asked.text = sender
        AND get_json_object(was.asked.body, '$.kind') = CASE {kind} {ends} END
        AND (record = 'stream-opened' OR get_json_object(was.asked.body, '$.stream_id') = stream_id)
        AND (participant IS NULL OR {_SUBJECT} = participant), false)"""


def _flaw() -> str:
    """What is wrong with a change; null where nothing is."""
    gateway = f"sender = '{kinds.GATEWAY}'"
    owner_left = (
        "owner_gone IS NOT NULL AND micros >= owner_gone + "
        "CAST(round(CAST(get_json_object(was.opened.body, '$.grace') AS DOUBLE) * 1000000) AS BIGINT)"
    )
    policy = "get_json_object(was.opened.body, '$.on_owner_leave')"
    entitled = "coalesce(sender = was.owner.text OR manager <> 'no', false)"
    spent = """CASE d.reason
        WHEN 'expired' THEN if(was.given.held AND was.given.number <= micros, NULL,
            'revoked as expired, and it was not')
        WHEN 'max_frames' THEN if(was.given.held AND coalesce(used, 0) >= was.given.bound, NULL,
            'revoked as used up, and it was not')
        ELSE if(was.left.seq = cause_seq AND was.left.text = participant, NULL,
            'revoked by the gateway without a recorded cause') END"""
    auto = """was.auto.held AND ((was.joined.seq = cause_seq AND was.joined.text = participant)
        OR (was.opening.seq = cause_seq AND was.opening.text = stream_id))"""
    return f"""CASE
        WHEN record IN ('frame', 'refused') THEN NULL
        WHEN record = 'stream-opened' THEN CASE
            WHEN is_open THEN 'opened a stream that was open already'
            WHEN NOT asked_for THEN 'opened a stream without a request' END
        WHEN NOT is_open THEN 'changed a stream that was not open'
        WHEN record = 'stream-started' THEN CASE
            WHEN was.status.text <> 'ready' THEN 'started a stream that was live'
            WHEN sender <> was.owner.text THEN 'started a stream of another'
            WHEN NOT asked_for THEN 'started a stream without a request' END
        WHEN record = 'stream-ended' AND {gateway} THEN CASE
            WHEN d.code = 'start_timeout' THEN if(was.status.text = 'ready' AND micros >= was.opened.number, NULL,
                'failed a stream that was not late')
            WHEN d.reason = 'owner_left' THEN CASE
                WHEN NOT coalesce({owner_left} AND {policy} <> 'keep', false) THEN
                    'closed a stream for an owner who was here, or too early, or against its policy'
                WHEN {policy} = 'transfer' AND longest_since IS NOT NULL THEN
                    'closed a stream that a writer who was here would have inherited' END
            ELSE 'ended a stream without a recorded cause' END
        WHEN record = 'stream-ended' THEN CASE
            WHEN NOT coalesce(sender = was.owner.text OR (d.how = 'closed' AND manager <> 'no'), false) THEN
                'ended a stream without being entitled to'
            WHEN d.how = 'completed' AND was.status.text <> 'live' THEN 'completed a stream that was not live'
            WHEN NOT asked_for THEN 'ended a stream without a request' END
        WHEN record = 'ownership-transferred' AND d.previous_owner <> was.owner.text THEN
            concat('took ownership from ', d.previous_owner, ', but the owner was ', was.owner.text)
        WHEN record = 'ownership-transferred' AND {gateway} THEN CASE
            WHEN NOT coalesce({owner_left} AND {policy} = 'transfer', false) THEN
                'transferred for an owner who was here, or too early, or against the policy of the stream'
            WHEN NOT coalesce(was.given.held AND was.receiver.text IN ('here', '{ASSUMED}'), false) THEN
                'transferred to somebody who was no writer, or not here'
            WHEN heir_since > longest_since THEN 'transferred to another than the longest-standing writer' END
        WHEN record = 'write-revoked' AND participant = was.owner.text THEN 'took the right of the owner'
        WHEN record = 'write-revoked' AND {gateway} THEN {spent}
        WHEN record = 'write-granted' AND d.request_id IS NULL THEN
            if(coalesce({auto}, false) AND sender = was.owner.text, NULL,
                'granted without a request, and without a standing grant')
        WHEN NOT {entitled} THEN 'changed the rights of a stream without being entitled to'
        WHEN NOT asked_for THEN 'changed the rights of a stream without a recorded request'
        WHEN record IN ('write-granted', 'read-granted', 'ownership-transferred') AND NOT {_HERE} THEN
            'gave a right to somebody who was not here'
        END"""
