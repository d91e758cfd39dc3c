"""Facts that one record gives by itself: ``envelopes``, ``frames``, ``refusals`` and ``formats``."""

from __future__ import annotations

from pyspark.sql import DataFrame

from mewstream.pipeline.sql import columns, filled, query
from mewstream.pipeline.tables import ENVELOPES, FORMATS, FRAMES, REFUSALS

# -- when something was sent ----------------------------------------------------------------------

_RFC3339 = (
    r"[0-9]+-[0-9][0-9]-[0-9][0-9][Tt ][0-9][0-9]:[0-9][0-9]:[0-9][0-9]([.][0-9]+)?([Zz]|[+-][0-9][0-9]:[0-9][0-9])"
)
#: A text as a number, and a text with its number as a time; null where it is none. Numbers are seconds or milliseconds
#: since 1970, of times after September 2001: what is smaller is a counter or a duration. To read a number is dear, and
#: done once; so is to round one in decimals, which ``rint`` does not.
_NUMBER = "IF(contains({told}, ':'), NULL, try_cast({told} AS DOUBLE))"
_MOMENT = """
    IF({number} IS NULL,
        IF({told} RLIKE '^{rfc3339}$', try_cast(upper({told}) AS TIMESTAMP), NULL),
        timestamp_micros(CAST(rint({number} * CASE
            WHEN {number} BETWEEN 1e9 AND 1e10 THEN 1e6
            WHEN {number} BETWEEN 1e12 AND 1e13 THEN 1e3
        END) AS BIGINT)))
"""


def _number(text: str) -> str:
    return filled(_NUMBER, told=text)


def _moment(text: str, number: str) -> str:
    return filled(_MOMENT, rfc3339=_RFC3339, told=text, number=number)


def _given(text: str) -> str:
    """Where a client gave no ``ts``, the gateway wrote the time of the record: that is none of the client's."""
    return f"nullif({_moment(text, _number(text))}, ts)"


# -- tables ---------------------------------------------------------------------------------------

_NAMES = {name: name for name in ("space", "seq", "ts", "stream_id", "sender")}

_TELLS_WHEN = ("ts", "timestamp", "sent_at")
"""Keys of a payload, the first that holds a time counts."""

#: Only a payload that may tell when it was sent is looked into: a JSON object with one of the keys. Most are flat and
#: without escapes, and there a quoted key is found without parsing, at a fraction of the cost. (from_json would do it
#: all in one go, and cut the compiled plan in two.) What is asked more than once is a column of the step before.
_FRAMES = """
SELECT {as_frames}
FROM (
    SELECT *, coalesce({told_moments}, IF(kind = 'stream/data', {envelope_moment}, NULL)) AS sent_at
    FROM (
        SELECT *, {told_numbers}
        FROM (
            SELECT *, {told_texts}
            FROM (
                SELECT *,
                    startswith(ltrim(body), char(123)) AND ({has_key}) AS may_tell,
                    endswith(rtrim(body), char(125)) AND NOT contains(substr(ltrim(body), 2), char(123))
                        AND NOT contains(body, '[') AND NOT contains(body, char(92)) AS is_flat
                FROM (
                    SELECT *, {has_keys}
                    FROM (
                        SELECT *, IF(kind = 'stream/data', get_json_object(text, '$.payload.content'), text) AS body
                        FROM (SELECT *, CAST(data AS STRING) AS text FROM {records} WHERE record = 'frame')
                    )
                )
            )
        )
    )
)
"""
_HAS_KEY = """contains(body, '"{key}"') AS has_{key}"""
_TOLD_TEXT = r"""
    CASE
        WHEN NOT may_tell THEN NULL
        WHEN NOT is_flat THEN get_json_object(body, '$.{key}')
        WHEN has_{key} THEN
            trim(BOTH '"' FROM regexp_extract(body, '"{key}"\\s*:\\s*("[^"]*"|[-+0-9.eE]+)', 1))
    END AS told_{key}
"""
_AS_FRAMES = columns(
    FRAMES,
    **{name: name for name in FRAMES.names}
    | {"size": "octet_length(data)", "latency_ms": "(unix_micros(ts) - unix_micros(sent_at)) / 1000D"},
)

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
    sent_at=_given("envelope.ts"),
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


def frames(records: DataFrame) -> DataFrame:
    """Every accepted frame. Only payloads that may carry a time are looked into."""
    return query(
        _FRAMES,
        as_frames=_AS_FRAMES,
        told_moments=", ".join(_moment(f"told_{key}", f"number_{key}") for key in _TELLS_WHEN),
        told_numbers=", ".join(f"{_number(f'told_{key}')} AS number_{key}" for key in _TELLS_WHEN),
        told_texts=", ".join(filled(_TOLD_TEXT, key=key) for key in _TELLS_WHEN),
        has_key=" OR ".join(f"has_{key}" for key in _TELLS_WHEN),
        has_keys=", ".join(filled(_HAS_KEY, key=key) for key in _TELLS_WHEN),
        envelope_moment=_given("get_json_object(text, '$.ts')"),
        records=records,
    )


def envelopes(control: DataFrame) -> DataFrame:
    return query(_ENVELOPES, as_envelopes=_AS_ENVELOPES, control=control)


def refusals(control: DataFrame) -> DataFrame:
    return query(_REFUSALS, as_refusals=_AS_REFUSALS, control=control)


def formats(control: DataFrame) -> DataFrame:
    """One row for each format of each stream that was opened."""
    return query(_FORMATS, as_formats=_AS_FORMATS, control=control)
