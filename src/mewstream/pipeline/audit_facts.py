"""What the log says, as facts: the newest one about a thing holds until the next one about the same thing.

A fact has a topic (``right``), a key (the stream) and perhaps an other (the participant). It comes from one control
record, whose offset is its place in time. All of the audit rests on these rows and on nothing of the protocol core:
the state at a record is, for each thing, the newest fact before it. What a batch leaves to the next one is the newest
fact of each thing that is still of use.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mewstream.pipeline import tables

OPEN = "('ready', 'live')"
"""The states of a stream that exists, for SQL."""

IS_OPEN = f"coalesce(was.status.text IN {OPEN}, false)"
#: The gateway numbers the streams, so that one can tell whether an unknown one is older than the log.
ALL_KNOWN = """(was.begins.number = 1 OR coalesce(
    try_cast(regexp_extract(stream_id, '^stream-([0-9]+)$') AS BIGINT) >= was.begins.bound, false))"""

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
        problems: array<string>, expected_from: string, targets: array<string>>
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

FAR_AWAY = 1 << 62
ASSUMED = "assumed"
"""The presence of somebody of whom the log does not say how it began."""
_SETS = ("grant",)
"""Topics of which all facts about a key count, and not only the newest."""
_FIELDS = {"at": "bigint", "seq": "bigint", "ts": "bigint", "other": "string", **_COLUMNS}
_ANSWER = f"struct<{', '.join(f'{name}: {type}' for name, type in _FIELDS.items())}>"

#: Topics whose facts are of no use once their stream has ended.
_OF_STREAMS = ("opened", "status", "owner", "readers", "right", "auto", "sequence", "used", "frames")


def mark(rule: str, severity: str, participant: str, reason: str, evidence: str, verdict: str = "'wrong'") -> str:
    """What is said of a record, as an SQL struct. ``rule`` and ``severity`` are names, the rest is SQL."""
    return (
        f"named_struct('verdict', {verdict}, 'rule', '{rule}', 'severity', '{severity}', 'participant', {participant}, "
        f"'reason', {reason}, 'evidence_seq', CAST({evidence} AS BIGINT))"
    )


def control_records(batch: DataFrame) -> DataFrame:
    """Everything but frames, with ``at`` (its offset), ``micros`` (its time) and ``d`` (its detail)."""
    return batch.where("record <> 'frame'").select(
        *("space", "seq", "record", "kind", "sender", "participant", "stream_id", "outcome", "cause_seq", "detail"),
        F.col("offset").alias("at"),
        F.expr("unix_micros(ts)").alias("micros"),
        F.from_json("detail", DETAIL).alias("d"),
        F.when(F.col("record") == "envelope", F.col("data")).alias("data"),
    )


def spans(batch: DataFrame) -> DataFrame:
    """One row for each space of the batch: which part of its log this is, and how many frames are in it."""
    opened = (
        "CASE WHEN record = 'stream-opened' THEN try_cast(regexp_extract(stream_id, '^stream-([0-9]+)$') AS BIGINT) END"
    )
    return batch.groupBy("space").agg(
        F.min("offset").alias("first_at"),
        F.max("offset").alias("last_at"),
        F.min_by("seq", "offset").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.max(F.expr("unix_micros(ts)")).alias("last_ts"),
        F.min(F.expr("seq - offset")).alias("least_shift"),
        F.max(F.expr("seq - offset")).alias("greatest_shift"),
        F.count(F.when(F.col("record") == "frame", 1)).alias("frames"),
        F.max(F.expr("CASE WHEN record = 'erased' THEN offset END")).alias("erased_at"),
        F.max(F.expr("CASE WHEN record = 'erased' THEN seq END")).alias("erased_seq"),
        F.min(F.expr(opened)).alias("first_stream"),
    )


def facts_in(control: DataFrame, carried: DataFrame, spans: DataFrame) -> DataFrame:
    """What was known before, and what the control records say, each with ``until``: the offset of the next fact about
    the same thing. Nothing from before a part that was erased."""
    cases = " ".join(f"WHEN '{name}' THEN concat({', '.join(said)})" for name, said in _SAYS.items())
    said = control.select(
        *("space", "at", "seq"),
        F.col("micros").alias("ts"),
        F.explode(F.expr(f"CASE record {cases} END")).alias("fact"),
    ).select("space", "at", "seq", "ts", "fact.*")
    known = carried.where("topic NOT IN ('begins', 'records')").unionByName(said)
    erased = F.broadcast(spans.where("erased_at IS NOT NULL").select("space", "erased_at"))
    lost = (known["space"] == erased["space"]) & (known["at"] <= erased["erased_at"])
    # Facts are few and asked for often: what they were made from must not be planned again each time.
    known = known.join(erased, lost, "left_anti").localCheckpoint()
    begins = _beginnings(spans, carried)
    facts = known.unionByName(_freed_aliases(known)).unionByName(begins).unionByName(_defaults(known, begins))
    same = Window.partitionBy("space", "topic", "key", "other").orderBy("at")
    return facts.withColumn("until", F.coalesce(F.lead("at").over(same), F.lit(FAR_AWAY))).localCheckpoint()


def _freed_aliases(known: DataFrame) -> DataFrame:
    """The end of a stream frees its alias, which the record of the end does not name."""
    named = known.where("topic = 'opened' AND text IS NOT NULL").select("space", "key", F.col("text").alias("alias"))
    ended = known.where("topic = 'status' AND text = 'ended'").drop("topic", "text", "held")
    freed = ended.join(F.broadcast(named), ["space", "key"]).select(
        *("space", "at", "seq", "ts", "other"), F.col("key").alias("text"), F.col("alias").alias("key")
    )
    return as_facts(freed.withColumn("held", F.lit(False)), "alias")


def _beginnings(spans: DataFrame, carried: DataFrame) -> DataFrame:
    """Since which ``seq`` the log of a space is whole (``number``; 1: always), and the lowest number of a stream that
    was opened since (``bound``). Older streams, where there were any, are unknown."""
    before = carried.where("topic = 'begins'").select(
        "space", F.col("number").alias("begun"), F.col("bound").alias("lowest")
    )
    begins = "greatest(coalesce(begun, first_seq), coalesce(erased_seq + 1, 0)) AS number"
    return as_facts(
        spans.join(before, "space", "full_outer").selectExpr(
            *("space", "'' AS key", "'' AS other", "CAST(-1 AS BIGINT) AS at"),
            *(begins, "least(lowest, first_stream) AS bound"),
        ),
        "begins",
    )


def _defaults(known: DataFrame, begins: DataFrame) -> DataFrame:
    """Whoever has a right was not paused before the log says so; and who was here before the log begins is assumed to
    be here until it says otherwise."""
    holders = known.where("topic = 'right' AND held").selectExpr("space", "other AS key", "'' AS other").distinct()
    before = holders.withColumn("at", F.lit(-1).cast("bigint"))
    here = before.join(F.broadcast(begins.where("number <> 1").select("space")), "space", "left_semi")
    return as_facts(before.withColumn("held", F.lit(False)), "pause").unionByName(
        as_facts(here.withColumn("text", F.lit(ASSUMED)), "presence")
    )


def as_facts(rows: DataFrame, topic: str) -> DataFrame:
    """Rows with some of the columns of a fact, as facts. They hold unless they say otherwise."""
    values = {"topic": F.lit(topic), "held": F.lit(True)}
    for column in tables.AUDIT_FACTS.columns:
        if column.name not in rows.columns and column.name not in values:
            values[column.name] = F.lit(None).cast(column.type)
    missing = {name: value for name, value in values.items() if name not in rows.columns}
    return rows.withColumns(missing).select(*tables.AUDIT_FACTS.names)


def as_of(facts: DataFrame, records: DataFrame, lookups: dict[str, tuple[str, str, str]]) -> DataFrame:
    """``records`` (which have ``space`` and ``at``) with ``was``: by name, the newest fact before the record.

    ``lookups`` says for each name the topic, and the key and the other as SQL over the record; where one is null,
    nothing is looked up. The answer ``all`` has every fact about a key, of topics that are sets (``grant``).
    """
    asked = ", ".join(
        f"named_struct('name', '{name}', 'topic', '{topic}', 'key', {key}, 'slot', {other})"
        for name, (topic, key, other) in lookups.items()
    )
    questions = (
        records.select("space", "at", F.explode(F.expr(f"array({asked})")).alias("asked"))
        .select("space", "at", "asked.*", F.lit(0).alias("rank"), F.lit(None).cast(_ANSWER).alias("fact"))
        .where("key IS NOT NULL AND slot IS NOT NULL")
    )
    topics = {topic for topic, _, _ in lookups.values()}
    known = facts.where(F.col("topic").isin(*topics)).select(
        *("space", "at"),
        F.lit(None).cast("string").alias("name"),
        *("topic", "key"),
        F.when(F.col("topic").isin(*_SETS), F.lit("")).otherwise(F.col("other")).alias("slot"),
        F.lit(1).alias("rank"),
        F.struct(*_FIELDS).cast(_ANSWER).alias("fact"),
    )
    before = (
        Window.partitionBy("space", "topic", "key", "slot")
        .orderBy("at", "rank")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    of_set = F.when(F.col("topic").isin(*_SETS), F.col("fact"))
    answers = (
        known.unionByName(questions)
        .select(
            *("space", "at", "name", "rank"),
            F.last("fact", ignorenulls=True).over(before).alias("fact"),
            F.collect_list(of_set).over(before).alias("all"),
        )
        .where("rank = 0")
        .select("space", "at", F.struct("name", F.struct("fact.*", "all").alias("answer")).alias("answer"))
    )
    whole = records.select("space", "at", F.struct("*").alias("whole"))
    return (
        # The record comes together with its answers, in one go.
        answers.unionByName(whole, allowMissingColumns=True)
        .groupBy("space", "at")
        .agg(
            F.map_from_entries(F.collect_list("answer")).alias("was"),
            F.first("whole", ignorenulls=True).alias("whole"),
        )
        .select("whole.*", "was")
    )


def carry(facts: DataFrame) -> DataFrame:
    """The newest fact of each thing, without those that nothing depends on any longer, and without assumptions."""
    same = Window.partitionBy("space", "topic", "key", "other")
    newest = (
        facts.where("at >= 0 OR topic = 'begins'")
        .withColumn("newest", F.max("at").over(same))
        .withColumn(
            "started", F.max(F.when(F.col("topic") == "started", F.col("seq"))).over(Window.partitionBy("space"))
        )
        .where("at = newest")
    )
    ended = newest.where("topic = 'status' AND text = 'ended'").select("space", "key")
    of_streams = newest.where(F.col("topic").isin(*_OF_STREAMS))
    others = newest.where(
        ~F.col("topic").isin(*_OF_STREAMS) & F.expr("held AND (topic <> 'roster' OR number = started)")
    )
    open_streams = of_streams.join(F.broadcast(ended), ["space", "key"], "left_anti").select(*newest.columns)
    return open_streams.unionByName(others).select(*tables.AUDIT_FACTS.names)
