"""One view for each announced format: what its JSON Schema describes, as columns.

A part of JSON Schema has a type in SQL: objects, arrays, scalars, references within the schema. Everything else is the
type of JSON that the dialect has, which holds anything. The whole value is in ``body`` in any case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mewstream.pipeline.decoding import DECODES
from mewstream.query.dialects import Dialect, Type

_SCALARS = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_COMBINED = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "$dynamicRef"})
_ANYTHING = "json"
_MAX_DEPTH = 16
_MAX_SCHEMAS = 1000
_PLAIN = re.compile(r"[^a-z0-9]+")
#: What every view begins with.
_PLACE = ("space", "seq", "ts", "stream_id", "sender")

#: The distinct formats in the order in which they were announced, for :func:`typed_views`.
FORMATS_QUERY = f"""
SELECT format_id, mime_type, schema_hash, {DECODES} AS decodes, min(schema) AS schema
FROM formats
GROUP BY format_id, mime_type, schema_hash
ORDER BY min((ts, space, seq)), format_id
"""


class TypedView(NamedTuple):
    name: str
    format: Mapping[str, Any]
    """The row of :data:`FORMATS_QUERY`."""

    def select(self, dialect: Dialect, content: str = "content") -> str:
        """The view in a dialect, over the table ``content``."""
        conditions = " AND ".join(
            f"{column} IS NOT DISTINCT FROM {dialect.text(self.format[column])}"
            for column in ("format_id", "mime_type", "schema_hash")
        )
        rows = f"(SELECT * FROM {content} WHERE {conditions})"
        if self.format["decodes"] not in ("json", "lines"):
            return f"SELECT {', '.join(_PLACE)}, text FROM {rows} AS selected"
        is_lines = self.format["decodes"] == "lines"
        body = dialect.item if is_lines else "body"
        columns = [
            f"{dialect.value(body, key, type)} AS {dialect.quoted(alias)}"
            for alias, key, type in columns_of(_decode(self.format["schema"]))
        ]
        selected = [*_PLACE, *(["line"] if is_lines else []), *columns, f"{body} AS body"]
        return f"SELECT {', '.join(selected)} FROM {dialect.exploded(rows) if is_lines else rows} AS selected"


def typed_views(formats: Iterable[Mapping[str, Any]]) -> list[TypedView]:
    """Return the view of each format. If formats share an id, the first that was announced has the plain name."""
    views: dict[str, TypedView] = {}
    for row in formats:
        name = view_name(row["format_id"])
        if name in views:
            name = f"{name}_{(row['schema_hash'] or 'none')[:8]}"
        if name in views:
            name = f"{name}_{len(views)}"
        views[name] = TypedView(name, row)
    return list(views.values())


def view_name(format_id: str) -> str:
    return "content_" + (_PLAIN.sub("_", format_id.lower()).strip("_") or "format")


def _decode(schema: str | None) -> Any:
    try:
        return json.loads(schema) if schema is not None else True
    except ValueError:
        return True


def columns_of(schema: Any) -> list[tuple[str, str | None, Type]]:
    """A column for each property of an object; ``value``, without a key, for anything else."""
    root = _resolved(schema, schema)
    properties = root.get("properties") if isinstance(root, dict) else None
    if not isinstance(properties, dict) or root.get("type", "object") != "object":
        type = sql_type(schema)
        return [] if type == _ANYTHING else [("value", None, type)]
    taken, budget = {*_PLACE, "line", "body"}, _Budget()
    columns: list[tuple[str, str | None, Type]] = []
    for name, each in properties.items():
        if not _is_usable(name):
            continue
        alias = name if name.lower() not in taken else f"value_{name}"
        while alias.lower() in taken:
            alias += "_"
        taken.add(alias.lower())
        columns.append((alias, name, sql_type(each, schema, budget)))
    return columns


def _is_usable(name: str) -> bool:
    """A path cannot hold every name: DuckDB takes ``*`` for all of them, and Spark replaces ``${...}``."""
    return name.isprintable() and name not in ("", "*") and not any(part in name for part in ("\\", '"', "'", "${"))


class _Budget:
    """How many schemas are still translated for a view: references let a short schema describe a very large type."""

    def __init__(self) -> None:
        self.left = _MAX_SCHEMAS


def sql_type(schema: Any, root: Any = None, budget: _Budget | None = None, depth: int = 0) -> Type:
    """The type that holds every value that a JSON Schema allows: see :mod:`mewstream.query.dialects`."""
    root, budget = schema if root is None else root, budget or _Budget()
    if budget.left == 0:
        return _ANYTHING
    budget.left -= 1
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return _ANYTHING
    type = _single_type(schema)
    if type in _SCALARS:
        return _SCALARS[type]
    if _COMBINED & schema.keys():
        return _ANYTHING
    if type == "array" and "items" in schema and "prefixItems" not in schema:
        return "array", sql_type(schema["items"], root, budget, depth + 1)
    if type == "object":
        return _object_type(schema, root, budget, depth)
    return _ANYTHING


def _single_type(schema: dict[str, Any]) -> str | None:
    """The one type that it allows beside null."""
    declared = schema.get("type")
    if declared is None:
        values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
        return "string" if values and all(isinstance(each, str) for each in values) else None
    types = [each for each in (declared if isinstance(declared, list) else [declared]) if each != "null"]
    return types[0] if len(types) == 1 else None


def _object_type(schema: dict[str, Any], root: Any, budget: _Budget, depth: int) -> Type:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if "patternProperties" in schema:
        return _ANYTHING
    if not properties:
        return ("map", sql_type(others, root, budget, depth + 1)) if isinstance(others, dict) else _ANYTHING
    # Fields that a struct would leave out, or that differ in nothing but their case, need a type that holds anything.
    if others is not False or len({name.lower() for name in properties}) < len(properties) or "" in properties:
        return _ANYTHING
    return "struct", {name: sql_type(each, root, budget, depth + 1) for name, each in properties.items()}


def _resolved(schema: Any, root: Any) -> Any:
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
