"""``content`` and ``quarantine``: what frames say, decoded by the format that their stream announced.

JSON stays JSON, checked against its schema where there is one; JSON lines become an array; text is text. What does not
fit goes to quarantine with the reasons and its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mewstream.pipeline.decoding import DECODES
from mewstream.pipeline.sql import query
from mewstream.pipeline.tables import CONTENT, QUARANTINE
from mewstream.pipeline.validation import reasons_by

_REASONS = next(column.type for column in QUARANTINE.columns if column.name == "reasons")

#: Frames of streams that live, with their format. A frame that was sent as text is text, whatever its media type.
_WITH_FORMATS = """
WITH known AS (SELECT *, {decodes} AS decodes FROM {formats})
SELECT * FROM (
    SELECT /*+ BROADCAST(known) */ frames.space, seq, ts, frames.stream_id, sender, frames.format_id, mime_type,
        schema_hash, coalesce(decodes, IF(opcode = 1, 'text', NULL)) AS decodes, kind, opcode, data
    FROM {records} AS frames
    JOIN known
        ON frames.space = known.space AND frames.stream_id = known.stream_id AND frames.format_id = known.format_id
    WHERE record = 'frame' AND seq > opened_seq AND (ended_seq IS NULL OR seq < ended_seq)
)
WHERE decodes IS NOT NULL
"""
_HAS_SCHEMA = "schema_hash IS NOT NULL AND decodes IN ('json', 'lines')"

_SCHEMAS = """
SELECT DISTINCT IF({has_schema}, schema_hash, NULL) AS schema_hash, IF({has_schema}, schema, NULL) AS schema
FROM (SELECT *, {decodes} AS decodes FROM {formats})
"""

_DECODED = """
WITH read AS (
    SELECT *,
        IF(decodes = 'text', NULL, CASE
            WHEN kind = 'stream/data' THEN to_json(
                try_variant_get(try_parse_json(raw), '$.payload.content', 'variant')
            )
            WHEN is_valid_utf8(raw) AND try_parse_json(json) IS NOT NULL THEN json
        END) AS body,
        IF(decodes <> 'text', NULL, CASE
            WHEN kind = 'stream/data' THEN get_json_object(raw, '$.payload.content')
            WHEN is_valid_utf8(raw) THEN raw
        END) AS text
    FROM (
        SELECT *, IF(
            decodes = 'lines',
            concat('[', array_join(filter(split(raw, '\\n'), line -> trim(line) <> ''), ','), ']'),
            raw
        ) AS json
        FROM (SELECT *, CAST(data AS STRING) AS raw FROM {rows})
    )
),
-- An accepted stream/data is JSON, and its content may be null; of all else, null says that it could not be read.
judged AS (
    SELECT *, coalesce(reasons, CASE
        WHEN kind = 'stream/data' THEN IF(startswith(raw, char(123)), NULL, {no_json})
        WHEN decodes = 'text' THEN IF(text IS NULL, {no_text}, NULL)
        WHEN body IS NULL THEN IF(is_valid_utf8(raw), {no_json}, {no_text})
    END) AS wrong
    FROM read
)
SELECT space, seq, ts, stream_id, sender, format_id, mime_type, schema_hash,
    IF(wrong IS NULL, body, NULL) AS body,
    IF(wrong IS NULL, text, NULL) AS text,
    wrong AS reasons,
    IF(wrong IS NULL, NULL, data) AS data,
    wrong IS NOT NULL AS is_quarantined
FROM judged
"""


class Schemas(NamedTuple):
    """What there is to check against. This is metadata: the driver knows it, and sends it to the workers."""

    by_hash: dict[str, str]
    unchecked: bool
    """There are formats without a schema."""


def schemas_of(formats: DataFrame) -> Schemas:
    rows = query(_SCHEMAS, decodes=DECODES, has_schema=_HAS_SCHEMA, formats=formats).collect()
    by_hash = {row.schema_hash: row.schema for row in rows if row.schema_hash is not None}
    return Schemas(by_hash, len(by_hash) < len(rows))


def decoded(records: DataFrame, formats: DataFrame, schemas: Mapping[str, str], *, unchecked: bool) -> DataFrame:
    """Every frame that has a known format, decoded or not: the columns of both tables, and ``is_quarantined``.
    ``formats`` are those of all streams that lived during the batch, with ``opened_seq`` and ``ended_seq``, and
    ``schemas`` their schemas by hash; ``unchecked`` says that there are formats without a schema."""
    rows = query(_WITH_FORMATS, decodes=DECODES, records=records, formats=formats)
    branches = []
    if schemas:
        lines = F.expr("decodes = 'lines'")
        reasons = reasons_by(schemas)("schema_hash", lines, "kind", "opcode", "data")
        branches.append(rows.where(_HAS_SCHEMA).withColumn("reasons", reasons))
    if unchecked or not schemas:
        branches.append(rows.where(f"NOT ({_HAS_SCHEMA})").selectExpr("*", f"CAST(NULL AS {_REASONS}) AS reasons"))
    found = query(
        _DECODED,
        no_json=_reason("json", "not valid JSON, or with a key twice"),
        no_text=_reason("utf8", "not UTF-8"),
        rows=reduce(DataFrame.unionByName, branches),
    )
    return found.select(*dict.fromkeys([*CONTENT.names, *QUARANTINE.names, "is_quarantined"]))


def _reason(rule: str, message: str) -> str:
    return f"CAST(array(struct('{rule}', '', '{message}')) AS {_REASONS})"
