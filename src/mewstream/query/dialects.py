"""The dialects of SQL in which tables and typed views are described: Spark, DuckDB and Trino.

A type is ``string``, ``bigint``, ``double``, ``boolean`` or ``json``, which holds anything; ``("array", item)``,
``("map", item)`` with names as its keys, or ``("struct", {name: type})``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

Type = str | tuple[str, Any]


class Dialect(ABC):
    """What the three have in common, which is how DuckDB and Trino write it."""

    name: ClassVar[str]
    types: ClassVar[dict[str, str]]
    array, map, struct, field = "ARRAY({0})", "MAP({0}, {1})", "ROW({0})", "{0} {1}"
    #: From a JSON text and a path to a value.
    scalar = "TRY_CAST(json_extract_scalar({json}, {path}) AS {type})"
    nested = "TRY_CAST(json_extract({json}, {path}) AS {type})"
    anything = "json_extract({json}, {path})"
    #: From a value of JSON to its text.
    item: ClassVar[str]

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def text(self, value: str | None) -> str:
        return "NULL" if value is None else "'" + value.replace("'", "''") + "'"

    def path(self, key: str | None) -> str:
        return self.text("$" if key is None else f'$["{key}"]')

    def type(self, type: Type) -> str:
        if isinstance(type, str):
            return self.types[type]
        kind, inner = type
        if kind == "array":
            return self.array.format(self.type(inner))
        if kind == "map":
            return self.map.format(self.types["string"], self.type(inner))
        fields = (self.field.format(self.quoted(name), self.type(each)) for name, each in inner.items())
        return self.struct.format(", ".join(fields))

    def value(self, json: str, key: str | None, type: Type) -> str:
        """A value out of a JSON text, null if it is not of that type. Without a ``key`` it is the whole."""
        how = self.anything if type == "json" else self.scalar if isinstance(type, str) else self.nested
        return how.format(json=json, path=self.path(key), type=self.type(type))

    @abstractmethod
    def exploded(self, rows: str) -> str:
        """``rows``, whose ``body`` is an array, with a row for each item of it."""

    # -- a catalog --------------------------------------------------------------------------------

    def schema(self, catalog: str | None, schema: str) -> Iterator[str]:
        yield f"CREATE SCHEMA IF NOT EXISTS {self.place(catalog, schema)}"

    @abstractmethod
    def table(self, catalog: str | None, schema: str, name: str, location: str) -> str:
        """The statement that registers a Delta table."""

    def view(self, catalog: str | None, schema: str, name: str, select: str) -> str:
        return f"CREATE OR REPLACE VIEW {self.place(catalog, schema, name)} AS {select}"

    def place(self, catalog: str | None, *names: str) -> str:
        return ".".join(self.quoted(name) for name in (*([catalog] if catalog else []), *names))


class Spark(Dialect):
    name = "spark"
    types: ClassVar = {
        **{name: name for name in ("string", "bigint", "double", "boolean")},
        "json": "variant",
    }
    array, map, struct, field = "array<{0}>", "map<{0},{1}>", "struct<{0}>", "{0}:{1}"
    scalar = nested = anything = "try_variant_get(try_parse_json({json}), {path}, {type})"
    item = "to_json(item)"

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def text(self, value: str | None) -> str:
        if value is None:
            return "NULL"
        # Spark puts the environment in for ${env:...}, even within a literal, unless the dollar is escaped.
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{") + "'"

    def value(self, json: str, key: str | None, type: Type) -> str:
        return self.scalar.format(json=json, path=self.path(key), type=self.text(self.type(type)))

    def exploded(self, rows: str) -> str:
        return (
            f"(SELECT selected.*, line, item FROM {rows} AS selected "
            "LATERAL VIEW posexplode(try_variant_get(try_parse_json(body), '$', 'array<variant>')) AS line, item)"
        )

    def table(self, catalog: str | None, schema: str, name: str, location: str) -> str:
        place = self.place(catalog, schema, name)
        return f"CREATE TABLE IF NOT EXISTS {place} USING delta LOCATION {self.text(location)}"


class DuckDB(Dialect):
    name = "duckdb"
    types: ClassVar = {
        "string": "VARCHAR",
        "bigint": "BIGINT",
        "double": "DOUBLE",
        "boolean": "BOOLEAN",
        "json": "JSON",
    }
    array, struct = "{0}[]", "STRUCT({0})"
    scalar = "TRY_CAST(json_extract_string({json}, {path}) AS {type})"
    item = "CAST(item AS VARCHAR)"

    def path(self, key: str | None) -> str:
        return self.text("$" if key is None else f'$."{key}"')

    def exploded(self, rows: str) -> str:
        items = "json_extract(body, '$[*]')"
        return f"(SELECT *, unnest({items}) AS item, generate_subscripts({items}, 1) - 1 AS line FROM {rows})"

    def schema(self, catalog: str | None, schema: str) -> Iterator[str]:
        yield from ("INSTALL delta", "LOAD delta")
        yield from super().schema(catalog, schema)

    def table(self, catalog: str | None, schema: str, name: str, location: str) -> str:
        return self.view(catalog, schema, name, f"SELECT * FROM delta_scan({self.text(location)})")


class Trino(Dialect):
    name = "trino"
    types: ClassVar = {
        "string": "varchar",
        "bigint": "bigint",
        "double": "double",
        "boolean": "boolean",
        "json": "json",
    }
    item = "json_format(item)"

    def exploded(self, rows: str) -> str:
        items = "TRY_CAST(json_parse(body) AS ARRAY(JSON))"
        return (
            f"(SELECT selected.*, item, place - 1 AS line FROM {rows} AS selected "
            f"CROSS JOIN UNNEST({items}) WITH ORDINALITY AS items (item, place))"
        )

    def table(self, catalog: str | None, schema: str, name: str, location: str) -> str:
        named = {"schema_name": schema, "table_name": name, "table_location": location}
        arguments = ", ".join(f"{key} => {self.text(value)}" for key, value in named.items())
        return f"CALL {self.place(catalog, 'system', 'register_table')}({arguments})"


SPARK, DUCKDB, TRINO = Spark(), DuckDB(), Trino()
DIALECTS = {dialect.name: dialect for dialect in (SPARK, DUCKDB, TRINO)}
