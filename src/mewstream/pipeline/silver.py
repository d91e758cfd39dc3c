"""Facts that one control record gives by itself: ``envelopes``, ``refusals`` and ``formats``."""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import columns, query
from mewstream.pipeline.tables import ENVELOPES, FORMATS, REFUSALS

_NAMES = {name: name for name in ("space", "seq", "ts", "stream_id", "sender")}

_ENVELOPES = """
SELECT {as_envelopes}
FROM (
    SELECT *, from_json(CAST(data AS STRING),
        'ts string, `to` array<string>, correlation_id array<string>, context string, payload string') AS envelope
    FROM {control}
    WHERE record = 'envelope'
)
"""
_AS_ENVELOPES = columns(
    ENVELOPES,
    **_NAMES,
    id="d.id",
    kind="kind",
    addressed="envelope.to",
    correlation_id="envelope.correlation_id",
    context="envelope.context",
    # The gateway lets none pass that is not as in RFC 3339. Where a client gave none, it wrote the time of the record:
    # that is none of the client's.
    sent_at="nullif(try_cast(upper(envelope.ts) AS TIMESTAMP), ts)",
    payload="envelope.payload",
    size="octet_length(data)",
)

_REFUSALS = "SELECT {as_refusals} FROM {control} WHERE record = 'refused'"
_AS_REFUSALS = columns(
    REFUSALS,
    space="space",
    seq="seq",
    ts="ts",
    sender="d.sender",
    kind="nullif(d.kind, '')",
    stream_id="coalesce(stream_id, get_json_object(d.details, '$.stream_id'))",
    code="d.code",
    message="d.message",
    http_status="d.http_status",
    count="coalesce(d.count, 1)",
    id="d.id",
    details="d.details",
    excerpt="d.excerpt",
)

_FORMATS = """
SELECT {as_formats}
FROM (SELECT *, explode(d.formats) AS format FROM {control} WHERE record = 'stream-opened')
"""
_AS_FORMATS = columns(
    FORMATS,
    space="space",
    seq="seq",
    ts="ts",
    stream_id="stream_id",
    format_id="format.id",
    mime_type="format.mime_type",
    schema_hash="format.schema_hash",
    schema="format.schema",
    description="format.description",
)


def envelopes(control: DataFrame) -> DataFrame:
    return query(_ENVELOPES, as_envelopes=_AS_ENVELOPES, control=control)


def refusals(control: DataFrame) -> DataFrame:
    return query(_REFUSALS, as_refusals=_AS_REFUSALS, control=control)


def formats(control: DataFrame) -> DataFrame:
    """One row for each format of each stream that was opened."""
    return query(_FORMATS, as_formats=_AS_FORMATS, control=control)
