"""Facts that one record gives by itself: ``envelopes``, ``frames``, ``refusals`` and ``formats``."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mewstream.pipeline.events import events
from mewstream.pipeline.tables import ENVELOPES, FORMATS, FRAMES, REFUSALS
from mewstream.protocol import kinds

_RFC3339 = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$"
_NUMBER = r"^\d{9,13}(\.\d+)?([eE]\+?\d+)?$"
#: Where writers put the time at which they sent something, the likeliest first.
_SENT_KEYS = ("ts", "timestamp", "sent_at")
_SENT = ", ".join(f"{key} string" for key in _SENT_KEYS)
#: Numbers are times only where they mean one after September 2001: everything smaller is a counter or a duration.
_SECONDS = (1e9, 1e10)
_MILLISECONDS = (1e12, 1e13)


def envelopes(control: DataFrame) -> DataFrame:
    parsed = F.from_json(
        F.col("data").cast("string"),
        "ts string, `to` array<string>, correlation_id array<string>, context string, payload string",
    )
    rows = control.where(F.col("record") == "envelope").withColumn("envelope", parsed)
    return rows.select(
        *("space", "seq", "ts"),
        F.get_json_object("detail", "$.id").alias("id"),
        *("kind", "sender"),
        F.col("envelope.to").alias("addressed"),
        *("envelope.correlation_id", "envelope.context", "stream_id"),
        _unless_filled_in(_moment(F.col("envelope.ts"))).alias("sent_at"),
        "envelope.payload",
        F.octet_length("data").alias("size"),
    ).select(ENVELOPES.names)


def frames(records: DataFrame) -> DataFrame:
    """Every accepted frame. Only payloads that may carry a time are looked into."""
    rows = records.where(F.col("record") == "frame").withColumn("sent_at", _sent_at())
    latency = (F.unix_micros("ts") - F.unix_micros("sent_at")) / F.lit(1000.0)
    return rows.select(
        *(name for name in FRAMES.names if name not in ("size", "latency_ms")),
        F.octet_length("data").alias("size"),
        latency.alias("latency_ms"),
    ).select(FRAMES.names)


def refusals(control: DataFrame) -> DataFrame:
    found = events(control, "refused")
    return found.select(
        *("space", "seq", "ts", "sender"),
        F.nullif(F.col("kind"), F.lit("")).alias("kind"),
        F.coalesce("stream_id", F.get_json_object("details", "$.stream_id")).alias("stream_id"),
        *("code", "message", "http_status"),
        F.coalesce("count", F.lit(1)).cast("bigint").alias("count"),
        *("id", "details", "excerpt"),
    ).select(REFUSALS.names)


def formats(control: DataFrame) -> DataFrame:
    opened = events(control, "stream-opened").withColumn("format", F.explode("formats"))
    return opened.select(
        *("space", "seq", "ts", "stream_id"),
        F.col("format.id").alias("format_id"),
        *("format.mime_type", "format.schema_hash", "format.schema", "format.description"),
    ).select(FORMATS.names)


# -- when something was sent ----------------------------------------------------------------------


def _sent_at() -> Column:
    text = F.col("data").cast("string")
    may_tell = _mentions_a_time(text) & F.startswith(F.ltrim(text), F.lit("{"))
    raw = _first_moment(F.from_json(text, _SENT))
    envelope = F.from_json(text, "ts string, payload struct<content:string>")
    content = envelope["payload"]["content"]
    told = F.when(_mentions_a_time(content), _first_moment(F.from_json(content, _SENT)))
    data = F.coalesce(told, _unless_filled_in(_moment(envelope["ts"])))
    return F.when(F.col("kind") == kinds.STREAM_DATA, data).when(may_tell, raw)


def _mentions_a_time(text: Column) -> Column:
    mentions = F.lit(False)
    for key in _SENT_KEYS:
        mentions = mentions | F.contains(text, F.lit(f'"{key}"'))
    return mentions


def _first_moment(parsed: Column) -> Column:
    return F.coalesce(*(_moment(parsed[key]) for key in _SENT_KEYS))


def _moment(text: Column) -> Column:
    """RFC 3339, or seconds or milliseconds since 1970; null for everything else."""
    number = F.when(text.rlike(_NUMBER), text.try_cast("double"))
    seconds = F.when(number.between(*_SECONDS), number).when(number.between(*_MILLISECONDS), number / 1000)
    as_text = F.when(text.rlike(_RFC3339), F.upper(text).try_cast("timestamp"))
    return F.coalesce(as_text, F.timestamp_micros(F.round(seconds * 1e6).cast("bigint")))


def _unless_filled_in(moment: Column) -> Column:
    """Where a client gave no ``ts``, the gateway wrote the time of the record."""
    return F.when(moment != F.col("ts"), moment)
