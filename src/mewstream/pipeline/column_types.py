"""The types of columns, which are declared as Spark SQL writes them, in the words of Arrow."""

from __future__ import annotations

import pyarrow as pa

_SCALARS = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "tinyint": pa.int8(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_type(text: str) -> pa.DataType:
    """``array<struct<seq:bigint,ts:timestamp>>`` and the like. Raises KeyError for what no table has."""
    outer, bracket, rest = text.strip().partition("<")
    if not bracket:
        return _SCALARS[outer]
    parts = _split(rest[:-1])
    match outer:
        case "array":
            return pa.list_(arrow_type(parts[0]))
        case "map":
            return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
        case "struct":
            fields = [part.partition(":") for part in parts]
            return pa.struct([(name.strip(), arrow_type(type)) for name, _, type in fields])
    raise KeyError(text)


def _split(text: str) -> list[str]:
    """At the commas that are not within brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
