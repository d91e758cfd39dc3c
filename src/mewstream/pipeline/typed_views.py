"""One view for each announced format: what its JSON Schema describes, as columns.

A part of JSON Schema has a type in Spark: objects, arrays, scalars, references within the schema.
Everything else stays VARIANT, which holds anything. The whole value is in ``body`` in any case.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mewstream.pipeline.content import DECODES

_SCALARS = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_COMBINED = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "$dynamicRef"})
_VARIANT = "variant"
_MAX_DEPTH = 16
_PLAIN = re.compile(r"[^a-z0-9]+")
#: What every view begins with.
_PLACE = ("space", "seq", "ts", "stream_id", "sender")


def register_typed_views(spark: SparkSession) -> list[str]:
    """Make a view for every format in the view ``formats``, over the view ``content``. Returns their names. Where
    formats share an id, the first that was announced has the plain name."""
    known = (
        spark.table("formats")
        .withColumn("decodes", F.expr(DECODES))
        .groupBy("format_id", "mime_type", "schema_hash", "decodes")
        .agg(F.min("schema").alias("schema"), F.min(F.struct("ts", "space", "seq")).alias("first"))
        .orderBy("first", "format_id")
        .collect()
    )
    content = spark.table("content")
    names: dict[str, None] = {}
    for row in known:
        name = view_name(row.format_id)
        if name in names:
            name = f"{name}_{(row.schema_hash or 'none')[:8]}"
        if name in names:
            name = f"{name}_{len(names)}"
        rows = content.where(
            (F.col("format_id") == row.format_id)
            & F.col("mime_type").eqNullSafe(row.mime_type)
            & F.col("schema_hash").eqNullSafe(row.schema_hash)
        )
        _typed(rows, row.decodes, row.schema).createOrReplaceTempView(name)
        names[name] = None
    return list(names)


def view_name(format_id: str) -> str:
    return "content_" + (_PLAIN.sub("_", format_id.lower()).strip("_") or "format")


def _typed(rows: DataFrame, decodes: str | None, schema: str | None) -> DataFrame:
    if decodes not in ("json", "lines"):
        return rows.select(*_PLACE, "text")
    if decodes == "lines":
        values = F.try_variant_get("body", "$", "array<variant>")
        rows = rows.select(*_PLACE, F.posexplode(values).alias("line", "body"))
    return rows.select(*_PLACE, *(["line"] if decodes == "lines" else []), *_columns(_decode(schema)), "body")


def _decode(schema: str | None) -> Any:
    try:
        return json.loads(schema) if schema is not None else True
    except ValueError:
        return True


def _columns(schema: Any) -> list[Column]:
    """A column for each property of an object; ``value`` for anything else."""
    root = _resolved(schema, schema, 0)
    properties = root.get("properties") if isinstance(root, dict) else None
    if not isinstance(properties, dict) or root.get("type", "object") != "object":
        type = spark_type(schema)
        return [] if type == _VARIANT else [F.try_variant_get("body", "$", type).alias("value")]
    taken = {*_PLACE, "line", "body"}
    columns = []
    for name, each in properties.items():
        path = _path(name)
        if path is None:
            continue
        alias = name if name.lower() not in taken else f"value_{name}"
        while alias.lower() in taken:
            alias += "_"
        taken.add(alias.lower())
        columns.append(F.try_variant_get("body", path, spark_type(each, schema)).alias(alias))
    return columns


def _path(name: str) -> str | None:
    """A property as a path of VARIANT; None where it cannot be written as one."""
    if not name or "\\" in name:
        return None
    if "'" not in name:
        return f"$['{name}']"
    return None if '"' in name else f'$["{name}"]'


def spark_type(schema: Any, root: Any = None, depth: int = 0) -> str:
    """The type of Spark that holds every value that a JSON Schema allows, or VARIANT."""
    root = schema if root is None else root
    schema = _resolved(schema, root, depth)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return _VARIANT
    type = _single_type(schema)
    if type in _SCALARS:
        return _SCALARS[type]
    if _COMBINED & schema.keys():
        return _VARIANT
    if type == "array" and "items" in schema and "prefixItems" not in schema:
        return f"array<{spark_type(schema['items'], root, depth + 1)}>"
    if type == "object":
        return _object_type(schema, root, depth)
    return _VARIANT


def _single_type(schema: dict[str, Any]) -> str | None:
    """The one type that it allows beside null."""
    given = schema.get("type")
    if given is None:
        values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
        return "string" if values and all(isinstance(each, str) for each in values) else None
    types = [each for each in (given if isinstance(given, list) else [given]) if each != "null"]
    return types[0] if len(types) == 1 else None


def _object_type(schema: dict[str, Any], root: Any, depth: int) -> str:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if "patternProperties" in schema:
        return _VARIANT
    if not properties:
        return f"map<string,{spark_type(others, root, depth + 1)}>" if isinstance(others, dict) else _VARIANT
    # Fields that a struct would leave out, or that differ in nothing but their case, need a VARIANT.
    if others is not False or len({name.lower() for name in properties}) < len(properties) or "" in properties:
        return _VARIANT
    fields = (f"`{name.replace('`', '``')}`:{spark_type(each, root, depth + 1)}" for name, each in properties.items())
    return f"struct<{','.join(fields)}>"


def _resolved(schema: Any, root: Any, depth: int) -> Any:
    """What a reference leads to, as long as it stays within the schema."""
    for _ in range(_MAX_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if reference is None:
            return schema
        if reference == "#":
            schema = root
        elif isinstance(reference, str) and reference.startswith("#/"):
            schema = root
            for part in reference[2:].split("/"):
                key = part.replace("~1", "/").replace("~0", "~")
                schema = schema.get(key) if isinstance(schema, dict) else None
        else:
            return None
    return None
