"""What the log says, as facts: the newest one about a thing holds until the next one about the same thing.

A fact has a topic (``right``), a key (the stream) and perhaps an other (the participant). It comes from one control
record, whose offset is its place in time. All of the audit rests on these rows and on nothing of the protocol core:
the state at a record is, for each thing, the newest fact before it. What a batch leaves to the next one is the newest
fact of each thing that is still of use.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import columns, filled, query, same, settled
from mewstream.pipeline.tables import AUDIT_FACTS

OPEN = "('ready', 'live')"
"""The states of a stream that exists, for SQL."""

#: Rules ask for these again and again; a column is planned once.
_ASKED_OFTEN = f"""
    was.begins.number = 1 AS is_whole,
    coalesce(was.status.text IN {OPEN}, false) AS is_open,
    -- The gateway numbers the streams, so that one can tell whether an unknown one is older than the log.
    was.begins.number = 1 OR coalesce(
        try_cast(regexp_extract(stream_id, '^stream-([0-9]+)$') AS BIGINT) >= was.begins.bound, false) AS all_known
"""

DETAIL = """
    config struct<participants: map<string, struct<capabilities: array<string>>>>,
    participant string, resumed boolean, replaced boolean, continues boolean, until bigint, reason string,
    capabilities array<string>, grant_id string, remaining map<string, array<string>>, by string,
    owner string, status string, authorized_writers array<string>, auto_grant array<string>, alias string,
    formats array<struct<id: string>>, start_by bigint, request_id string, how string, code string,
    policy struct<on_owner_leave: string, owner_leave_grace: double, validate: string>,
    conditions string, expires_at bigint, max_frames bigint, previous_owner string, new_owner string,
    message string, remember boolean, excerpt string,
    details struct<participant_id: string, status: string, last_sequence: bigint, limit: string,
        problems: array<string>, expected_from: string, targets: array<string>, shut_down: boolean>
"""
"""What the audit looks at in the detail of control records."""

_COLUMNS = {"held": "boolean", "text": "string", "number": "bigint", "bound": "bigint", "body": "string"}


def _fact(topic: str, key: str, other: str = "''", **values: str) -> str:
    """One fact as an SQL struct. ``values`` are SQL; what is left out is null, and ``held`` is true."""
    given = {"held": "true", **values}
    fields = [f"'topic', '{topic}'", f"'key', {key}", f"'other', {other}"]
    fields += [f"'{name}', CAST({given.get(name, 'NULL')} AS {type})" for name, type in _COLUMNS.items()]
    return f"named_struct({', '.join(fields)})"


def _all(*facts: str) -> str:
    return f"array({', '.join(facts)})"


def _each(things: str, fact: str) -> str:
    """A fact for each of an array, which it calls ``each``."""
    return f"coalesce(transform({things}, each -> {fact}), array())"


def _when(condition: str, *facts: str) -> str:
    return f"CASE WHEN {condition} THEN {_all(*facts)} ELSE array() END"


_NO_RIGHT_LEFT = "d.previous_owner <> d.new_owner AND NOT array_contains(d.authorized_writers, d.previous_owner)"
_READERS = "get_json_object(detail, '$.authorized_readers')"
_OPENING = """to_json(named_struct('on_owner_leave', d.policy.on_owner_leave, 'grace', d.policy.owner_leave_grace,
    'validate', d.policy.validate, 'formats', d.formats.id))"""
_ASKED = """to_json(named_struct('kind', kind, 'stream_id', stream_id,
    'subject', get_json_object(CAST(data AS STRING),
        if(kind = 'stream/transfer-ownership', '$.payload.new_owner', '$.payload.participant_id'))))"""

#: What each record says. The values are arrays of facts, in SQL over the columns of the journal and ``d``, the detail.
_SAYS: dict[str, tuple[str, ...]] = {
    "space-started": (
        _all(_fact("started", "''", body="get_json_object(detail, '$.config.limits')")),
        _each(
            "map_entries(d.config.participants)",
            _fact("roster", "each.key", number="seq", body="to_json(each.value.capabilities)"),
        ),
    ),
    "joined": (
        _all(_fact("presence", "d.participant", text="'here'"), _fact("joined", "''", text="d.participant")),
        _when(
            "NOT coalesce(d.continues, false) OR NOT (coalesce(d.resumed, false) OR coalesce(d.replaced, false))",
            _fact("counting", "d.participant", number="seq"),
        ),
    ),
    "left": (_all(_fact("presence", "d.participant", text="'gone'"), _fact("left", "''", text="d.participant")),),
    "suspended": (_all(_fact("presence", "d.participant", text="'suspended'", number="d.until")),),
    "envelope": (_when("kind LIKE 'stream/%'", _fact("asked", "''", text="sender", body=_ASKED)),),
    "capabilities-granted": (_all(_fact("grant", "d.participant", "d.grant_id", body="to_json(d.capabilities)")),),
    "capabilities-revoked": (
        _each(
            "map_entries(d.remaining)",
            _fact("grant", "d.participant", "each.key", held="size(each.value) > 0", body="to_json(each.value)"),
        ),
    ),
    "invited": (_all(_fact("invited", "d.participant", body="to_json(d.capabilities)")),),
    "paused": (_all(_fact("pause", "d.participant", number="d.until")),),
    "unpaused": (_all(_fact("pause", "d.participant", held="false")),),
    "stream-opened": (
        _all(
            _fact("opened", "stream_id", text="d.alias", number="d.start_by", body=_OPENING),
            _fact("status", "stream_id", text="d.status"),
            _fact("owner", "stream_id", text="d.owner"),
            _fact("readers", "stream_id", body=_READERS),
            _fact("opening", "''", text="stream_id"),
        ),
        _each("d.authorized_writers", _fact("right", "stream_id", "each")),
        _each("d.auto_grant", _fact("auto", "stream_id", "each")),
        _when("d.alias IS NOT NULL", _fact("alias", "d.alias", text="stream_id")),
    ),
    "stream-started": (_all(_fact("status", "stream_id", text="'live'")),),
    "stream-ended": (_all(_fact("status", "stream_id", text="'ended'")),),
    "write-granted": (
        _all(_fact("right", "stream_id", "d.participant", number="d.expires_at", bound="d.max_frames")),
        _when("d.conditions IS NOT NULL", _fact("auto", "stream_id", "d.participant", held="false")),
    ),
    "write-revoked": (
        _all(_fact("right", "stream_id", "d.participant", held="false")),
        _when("d.request_id IS NOT NULL", _fact("auto", "stream_id", "d.participant", held="false")),
    ),
    "ownership-transferred": (
        _all(_fact("owner", "stream_id", text="d.new_owner"), _fact("right", "stream_id", "d.new_owner")),
        _when(
            _NO_RIGHT_LEFT,
            _fact("right", "stream_id", "d.previous_owner", held="false"),
            _fact("auto", "stream_id", "d.previous_owner", held="false"),
        ),
    ),
    "read-granted": (_when(f"{_READERS} IS NOT NULL", _fact("readers", "stream_id", body=_READERS)),),
    "read-revoked": (_all(_fact("readers", "stream_id", body=_READERS)),),
}

KINDS = frozenset({*_SAYS, "frame", "refused", "erased"})
"""The records that the audit looks at; of others it checks the numbers."""

FAR_AWAY = 1 << 62
ASSUMED = "assumed"
"""The presence of somebody of whom the log does not say how it began."""
_IS_SET = "topic = 'grant'"
"""Of such a topic all facts about a key count, and not only the newest."""

#: Topics whose facts are of no use once their stream has ended.
_OF_STREAMS = "('opened', 'status', 'owner', 'readers', 'right', 'auto', 'sequence', 'used', 'frames')"

Lookups = Mapping[str, tuple[str, str, str]]
"""What to look up, by name: a topic, and the key and the other as SQL over a record. Where one is null, nothing is."""


def mark(rule: str, severity: str, participant: str, reason: str, evidence: str, verdict: str = "'wrong'") -> str:
    """What is said of a record, as an SQL struct. ``severity`` is a name, the rest is SQL."""
    return (
        f"named_struct('verdict', {verdict}, 'rule', {rule}, 'severity', '{severity}', 'participant', {participant}, "
        f"'reason', {reason}, 'evidence_seq', CAST({evidence} AS BIGINT))"
    )


def control_records(records: DataFrame) -> DataFrame:
    """Everything but frames, with ``at`` (its offset), ``micros`` (its time) and ``d`` (its detail)."""
    return query(_CONTROL, fields=DETAIL, records=records)


_CONTROL = """
SELECT space, offset AS at, seq, unix_micros(ts) AS micros, record, kind, sender, participant, stream_id, outcome,
    cause_seq, detail, from_json(detail, '{fields}') AS d, IF(record = 'envelope', data, NULL) AS data
FROM {records}
WHERE record <> 'frame'
"""


def facts_in(control: DataFrame, carried: DataFrame, spans: DataFrame, kinds: Container[str]) -> DataFrame:
    """What was known before, and what the control records say, each with ``until``: the offset of the next fact about
    the same thing. Nothing from before a part that was erased."""
    cases = " ".join(f"WHEN '{name}' THEN concat({', '.join(said)})" for name, said in _SAYS.items() if name in kinds)
    said = query(
        _KNOWN,
        said=_SAID if cases else "",
        kept=_NOT_ERASED if "erased" in kinds else "",
        cases=cases,
        names=same(AUDIT_FACTS),
        fact=columns(AUDIT_FACTS, space="space", at="at", seq="seq", ts="micros", **_OF_FACT),
        carried=carried,
        control=control,
        spans=spans,
    )
    return settled(
        query(
            _FACTS,
            with_since=same(AUDIT_FACTS, since="last(first_at, true) OVER until_now"),
            unchanged=same(AUDIT_FACTS),
            freed=_FREED,
            begun=_BEGUN,
            assumed=_ASSUMED,
            far_away=str(FAR_AWAY),
            # Facts are few and asked for often: what they were made from must not be planned again each time.
            known=settled(said),
            carried=carried,
            spans=spans,
        )
    )


_OF_FACT = {name: f"fact.{name}" for name in ("topic", "key", "other", *_COLUMNS)}
_KNOWN = """
SELECT *
FROM (
    SELECT {names} FROM {carried} WHERE topic NOT IN ('begins', 'records')
    {said}
) AS known
{kept}
"""
_SAID = """
UNION ALL
SELECT {fact} FROM (SELECT space, at, seq, micros, explode(CASE record {cases} END) AS fact FROM {control})
"""
_NOT_ERASED = "LEFT ANTI JOIN {spans} AS spans ON known.space = spans.space AND known.at <= spans.erased_at"

#: A log is whole since a ``seq`` (``number``; 1: always), and ``bound`` is the lowest number of a stream that was
#: opened since: older streams, where there were any, are unknown. The end of a stream frees its alias, which the record
#: of the end does not name. Whoever has a right was not paused before the log says so; and who was here before the log
#: begins is assumed to be here until it says otherwise.
_FACTS = """
WITH begins AS (
    SELECT space, greatest(coalesce(begun, first_seq), coalesce(erased_seq + 1, 0)) AS number,
        least(lowest, first_stream) AS bound
    FROM {spans}
    FULL OUTER JOIN (SELECT space, number AS begun, bound AS lowest FROM {carried} WHERE topic = 'begins')
        USING (space)
),
holders AS (SELECT DISTINCT space, other AS holder FROM {known} WHERE topic = 'right' AND held),
named AS (SELECT space, key, text AS alias FROM {known} WHERE topic = 'opened' AND text IS NOT NULL),
ended AS (SELECT space, key, at, seq, ts FROM {known} WHERE topic = 'status' AND text = 'ended')
SELECT {with_since}, until
FROM (
    SELECT *, coalesce(lead(at) OVER of_thing, {far_away}) AS until,
        IF(held AND NOT coalesce(lag(held) OVER of_thing, false), coalesce(since, at), NULL) AS first_at
    FROM (
        SELECT {unchanged} FROM {known}
        UNION ALL
        SELECT {freed} FROM ended JOIN named USING (space, key)
        UNION ALL
        SELECT {begun} FROM begins
        UNION ALL
        SELECT {assumed}
        FROM (
            SELECT space, holder, explode(IF(number = 1, array('pause'), array('pause', 'presence'))) AS topic
            FROM holders JOIN begins USING (space)
        )
    )
    WINDOW of_thing AS (PARTITION BY space, topic, key, other ORDER BY at)
)
WINDOW until_now AS (PARTITION BY space, topic, key, other ORDER BY at)
"""
_FREED = columns(
    AUDIT_FACTS,
    space="space",
    topic="'alias'",
    key="alias",
    other="''",
    at="at",
    seq="seq",
    ts="ts",
    held="false",
    text="key",
)
_BEGUN = columns(
    AUDIT_FACTS,
    space="space",
    topic="'begins'",
    key="''",
    other="''",
    at="-1",
    held="true",
    number="number",
    bound="bound",
)
_ASSUMED = columns(
    AUDIT_FACTS,
    space="space",
    topic="topic",
    key="holder",
    other="''",
    at="-1",
    held="topic = 'presence'",
    text=f"IF(topic = 'presence', '{ASSUMED}', NULL)",
)


def as_of(lookups: Lookups) -> str:
    """SQL that gives the rows of ``looked_at`` (which have ``space`` and ``at``) with ``was``: by name, the newest of
    ``said`` before the record. Of topics that are sets, ``all`` has every fact about the key. ``is_whole``: the log has
    its beginning; ``is_open``: the stream exists; ``all_known``: all that ever happened to it is in the log."""
    asked = ", ".join(
        f"named_struct('name', '{name}', 'topic', '{topic}', 'key', {key}, 'slot', {other})"
        for name, (topic, key, other) in lookups.items()
    )
    topics = "', '".join(sorted({topic for topic, _, _ in lookups.values()}))
    return filled(
        _AS_OF,
        often=_ASKED_OFTEN,
        asked=asked,
        topics=topics,
        is_set=_IS_SET,
        values=", ".join(_COLUMNS),
    )


_AS_OF = """
SELECT *, {often}
FROM (
    SELECT whole.*, was
    FROM (
        SELECT map_from_entries(collect_list(struct(name, struct(fact.*, `all`)))) AS was, first(whole, true) AS whole
        FROM (
            SELECT space, at, name, whole, last(fact, true) OVER before AS fact,
                collect_list(IF({is_set}, fact, NULL)) OVER before AS `all`
            FROM (
                -- The first question takes the record along, so that it comes back together with the answers.
                SELECT space, at, asked.*, 0 AS rank, NULL AS fact, IF(place = 0, whole, NULL) AS whole
                FROM (
                    SELECT space, at, struct(*) AS whole, posexplode(array({asked})) AS (place, asked)
                    FROM looked_at
                )
                WHERE asked.key IS NOT NULL AND asked.slot IS NOT NULL
                UNION ALL
                SELECT space, at, NULL, topic, key, IF({is_set}, '', other), 1,
                    struct(at, seq, ts, other, {values}), NULL
                FROM said
                WHERE topic IN ('{topics}')
            )
            WINDOW before AS (
                PARTITION BY space, topic, key, slot
                ORDER BY at, rank ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
        )
        WHERE name IS NOT NULL
        GROUP BY space, at
    )
)
"""


def carry(facts: DataFrame, more: str, **given: DataFrame | str) -> DataFrame:
    """The newest fact of each thing, without those that nothing depends on any longer, and without assumptions.
    ``more`` is SQL of facts about what was counted, in place of those of before."""
    return query(
        _CARRY,
        more=more,
        unchanged=same(AUDIT_FACTS),
        of_streams=_OF_STREAMS,
        far_away=str(FAR_AWAY),
        facts=facts,
        **given,
    )


_CARRY = """
SELECT {unchanged}
FROM (
    SELECT *,
        max(at) OVER (PARTITION BY space, topic, key, other) AS newest,
        max(IF(topic = 'started', seq, NULL)) OVER (PARTITION BY space) AS started
    FROM (
        SELECT {unchanged} FROM {facts}
        WHERE topic NOT IN ('used', 'sequence', 'frames') AND (at >= 0 OR topic = 'begins')
        UNION ALL
        {more}
    )
) AS kept
LEFT ANTI JOIN (
    SELECT space, key FROM {facts} WHERE topic = 'status' AND text = 'ended' AND until = {far_away}
) AS ended
    ON topic IN {of_streams} AND kept.space = ended.space AND kept.key = ended.key
WHERE at = newest AND (topic IN {of_streams} OR held AND (topic <> 'roster' OR number = started))
"""
