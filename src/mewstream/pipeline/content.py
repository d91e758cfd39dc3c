"""``content`` and ``quarantine``: what frames say, decoded by the format that their stream announced.

JSON becomes a VARIANT, checked against its schema where there is one; JSON lines an array of them; text
is text. What does not fit goes to quarantine with the reasons and its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mewstream.pipeline.tables import CONTENT, LIVE_FORMATS, QUARANTINE
from mewstream.pipeline.validation import with_reasons
from mewstream.protocol import kinds
from mewstream.protocol.frames import TEXT

_JSON_LINES = ("x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines")
_UTF8 = ("", "utf-8", "utf8", "us-ascii")
_REASONS = "array<struct<rule:string,path:string,message:string>>"
_ROW = ("space", "seq", "ts", "stream_id", "sender", "format_id", "kind", "opcode", "data")


def live_formats(new: DataFrame, carried: DataFrame) -> DataFrame:
    """The formats of all streams that lived during this batch. ``new`` are the rows of ``formats`` that it brings."""
    return carried.unionByName(new).select(LIVE_FORMATS.names)


def still_live(formats: DataFrame, lives: DataFrame) -> DataFrame:
    """Those of streams that go on."""
    living = lives.where(F.col("ended_seq").isNull()).select("space", "stream_id", F.col("ready_seq").alias("seq"))
    return formats.join(F.broadcast(living), ["space", "stream_id", "seq"], "left_semi")


def schemas_of(formats: DataFrame) -> DataFrame:
    """The distinct schemas, by their hash: metadata that the driver collects and sends to the workers."""
    return (
        formats.where(F.col("schema_hash").isNotNull() & F.col("schema").isNotNull())
        .select("schema_hash", "schema")
        .distinct()
    )


def decoded(records: DataFrame, formats: DataFrame, lives: DataFrame, schemas: Mapping[str, str]) -> DataFrame:
    """Every frame that has a known format, decoded or not: the columns of both tables, and ``is_quarantined``.
    ``schemas`` has those of all ``formats``."""
    rows = _with_formats(records, formats, lives)
    has_schema = F.col("schema_hash").isNotNull() & F.col("decodes").isin("json", "lines")
    branches = [_parsed(rows.where(~has_schema).withColumn("reasons", F.lit(None).cast(_REASONS)))]
    if schemas:
        checked = rows.where(has_schema).withColumn("lines", F.col("decodes") == "lines")
        shape = ", ".join(f"`{name}` {type}" for name, type in checked.dtypes) + f", reasons {_REASONS}"
        branches.append(_parsed(checked.mapInArrow(with_reasons(schemas), shape).drop("lines")))
    both = reduce(DataFrame.unionByName, branches)
    wrong = F.col("reasons").isNotNull()
    return both.select(
        *(name for name in CONTENT.names if name not in ("body", "text")),
        F.when(~wrong, F.col("body")).alias("body"),
        F.when(~wrong, F.col("text")).alias("text"),
        "reasons",
        F.when(wrong, F.col("data")).alias("data"),
        wrong.alias("is_quarantined"),
    ).select(*dict.fromkeys([*CONTENT.names, *QUARANTINE.names, "is_quarantined"]))


def _with_formats(records: DataFrame, formats: DataFrame, lives: DataFrame) -> DataFrame:
    """Frames of streams that live, with their format and how that is decoded; others are left out."""
    ends = lives.select("space", "stream_id", F.col("ready_seq").alias("opened_seq"), "ended_seq")
    known = (
        formats.withColumn("decodes", decodes())
        .select(
            "space", "stream_id", F.col("seq").alias("opened_seq"), "format_id", "mime_type", "schema_hash", "decodes"
        )
        .join(ends, ["space", "stream_id", "opened_seq"])
    )
    found = (
        records.where((F.col("record") == "frame") & F.col("format_id").isNotNull())
        .select(*_ROW)
        .join(F.broadcast(known), ["space", "stream_id", "format_id"])
        .where(F.col("seq") > F.col("opened_seq"))
        .where(F.col("ended_seq").isNull() | (F.col("seq") < F.col("ended_seq")))
    )
    # A frame that was sent as text is text, whatever its media type.
    how = F.coalesce("decodes", F.when(F.col("opcode") == TEXT, "text"))
    return found.withColumn("decodes", how).where(F.col("decodes").isNotNull()).drop("opened_seq", "ended_seq")


def decodes() -> Column:
    """json, lines or text, from the media type; null for what is opaque."""
    given = F.lower(F.coalesce("mime_type", F.lit("")))
    name = F.trim(F.split_part(given, F.lit(";"), F.lit(1)))
    main, sub = F.split_part(name, F.lit("/"), F.lit(1)), F.split_part(name, F.lit("/"), F.lit(2))
    charset = F.regexp_extract(given, r'charset="?([^;"]*)', 1)
    return (
        F.when((main == "application") & sub.isin(*_JSON_LINES), "lines")
        .when((sub == "json") | F.endswith(sub, F.lit("+json")), "json")
        .when((name == "") & F.col("schema_hash").isNotNull(), "json")
        .when((main == "text") & F.trim(charset).isin(*_UTF8), "text")
    )


def _parsed(rows: DataFrame) -> DataFrame:
    """With ``body`` or ``text``, and the reasons why there is neither."""
    raw = F.col("data").cast("string")
    is_data, is_text = F.col("kind") == kinds.STREAM_DATA, F.col("decodes") == "text"
    content = F.get_json_object(raw, "$.payload.content")
    whole = F.concat(
        F.lit("["), F.array_join(F.filter(F.split(raw, "\n"), lambda each: F.trim(each) != ""), ","), F.lit("]")
    )
    json = F.when(is_data, _content_as_json(raw)).otherwise(
        F.try_parse_json(F.when(F.col("decodes") == "lines", whole).otherwise(raw))
    )
    valid = F.when(is_data, content).when(F.is_valid_utf8(raw), raw)
    rows = rows.withColumn("body", F.when(~is_text, json)).withColumn("text", F.when(is_text, valid))
    flaw = F.when(is_data, F.when(F.try_parse_json(raw).isNull(), _reason("json", "not a stream/data envelope")))
    flaw = flaw.when(is_text & F.col("text").isNull(), _reason("utf8", "not UTF-8"))
    flaw = flaw.when(~is_text & F.col("body").isNull(), _reason("json", "not valid JSON"))
    return rows.withColumn("reasons", F.coalesce("reasons", flaw))


def _content_as_json(raw: Column) -> Column:
    return F.try_variant_get(F.try_parse_json(raw), "$.payload.content", "variant")


def _reason(rule: str, message: str) -> Column:
    only = F.struct(F.lit(rule).alias("rule"), F.lit("").alias("path"), F.lit(message).alias("message"))
    return F.array(only).cast(_REASONS)
