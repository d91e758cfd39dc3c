"""Payloads by their announced format: decoded, typed, or in quarantine with the reasons."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from journals import POSITION_FORMAT, Play, frame_fields, write_journal
from pyspark.sql import SparkSession
from running import Found, bring_up_to_date, found

from mewstream.pipeline.warehouse import open_warehouse
from mewstream.protocol import kinds
from mewstream.protocol.records import Frame
from mewstream.query.database import open_database
from mewstream.query.dialects import DIALECTS, DUCKDB, SPARK, TRINO, Dialect, Type
from mewstream.query.typed_views import TypedView, columns_of, sql_type, view_name
from mewstream.query.with_spark import register_views

LINES = {"id": "events/log", "mime_type": "application/x-ndjson", "schema": {"type": "object", "required": ["n"]}}
PLAIN = {"id": "notes", "mime_type": "text/plain; charset=utf-8"}
LATIN = {"id": "latin", "mime_type": "text/plain; charset=latin-1"}
PICTURE = {"id": "picture", "mime_type": "image/png"}
ANY_JSON = {"id": "any", "mime_type": "application/vnd.thing+json"}
RICH = {
    "id": "rich",
    "schema": {
        "type": "object",
        "properties": {
            "ts": {"type": "integer"},
            "name": {"type": ["string", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "spot": {"$ref": "#/$defs/point"},
            "choice": {"oneOf": [{"type": "string"}, {"type": "number"}]},
        },
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
                "additionalProperties": False,
            }
        },
    },
}
OTHER_POSITION = {"id": "position", "mime_type": "application/json", "schema": {"type": "array"}}
STREAMS = (POSITION_FORMAT, LINES, PLAIN, LATIN, PICTURE, ANY_JSON, RICH, OTHER_POSITION)


def view_of(schema: Any, *, format_id: str = "x", mime_type: str = "m") -> TypedView:
    announced = {"format_id": format_id, "mime_type": mime_type, "schema_hash": "h", "decodes": "json"}
    return TypedView("content_x", {**announced, "schema": json.dumps(schema)})


class Decoded:
    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        play = self.play = Play(begin=True, limits={"streams_per_participant": 50})
        self.streams = {number: play.announce("ann", formats=[each]) for number, each in enumerate(STREAMS)}
        self._frames()
        data = write_journal(path / "data", play)
        bring_up_to_date(spark, data, path / "warehouse", max_records=60)
        self.warehouse = open_warehouse(path / "warehouse")

    def _frames(self) -> None:
        self.raw(0, b'{"x":1.5,"label":"a"}', b'{"x":"no number"}', b"{not json", b'"\xff"', b"{}", b'{"x":1,"x":2}')
        self.raw(1, b'{"n":1}\n\n{"n":2,"m":3}\n', b'{"n":1}\n{"m":2}\nnonsense\n')
        self.raw(2, "é".encode(), b"\xff\xfe")
        self.raw(3, b"\xe9")
        self.raw(4, b"\x89PNG", text=False)
        self.raw(5, b"[1,2]", b"[1,", b"3")
        self.raw(6, json.dumps({"ts": 5, "name": None, "tags": ["a"], "spot": {"x": 1}, "choice": 2}).encode())
        self.raw(7, b"[1]", b"{}")
        for content in ({"x": 2}, {"x": "no"}, "text"):
            self.play.data("ann", self.streams[0], content)
        self.play.data("ann", self.streams[2], "spoken")
        self.play.data("ann", self.streams[5], None)
        unformatted = self.play.open("ann")
        self.play.frame("ann", unformatted, b'{"x":1}')
        self.play.data("ann", unformatted, {"x": 1}, format_id="position")
        stream = self.streams[0]
        self.play.send("ann", kinds.STREAM_CLOSE, stream_id=stream)
        self.play.plant(Frame, **frame_fields(self.play, stream, "ann", b'{"x":9}', format_id="position"))

    def raw(self, number: int, *payloads: bytes, text: bool | None = None) -> None:
        for data in payloads:
            opcode = 1 if text is not False and data.isascii() else 2
            self.play.frame("ann", self.streams[number], data, opcode=opcode)

    def ask(self, sql: str) -> list[Found]:
        with open_database(self.warehouse) as database:
            return [found(row) for row in database.rows(sql)]

    def rows(self, table: str, number: int) -> list[Found]:
        columns = "seq, kind, body, text" if table == "content" else "seq, kind, reasons, data"
        return self.ask(
            f"SELECT {columns} FROM {table} JOIN (SELECT seq, kind FROM frames) USING (seq) "
            f"WHERE stream_id = '{self.streams[number]}' ORDER BY seq"
        )

    def bodies(self, number: int) -> list[Any]:
        return [None if row.body is None else json.loads(row.body) for row in self.rows("content", number)]

    def rules(self, number: int) -> list[list[tuple[str, str]]]:
        return [[(each.rule, each.path) for each in row.reasons] for row in self.rows("quarantine", number)]


@pytest.fixture(scope="module")
def decoded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Decoded:
    return Decoded(spark, tmp_path_factory.mktemp("content"))


class TestContent:
    def test_json_with_a_schema(self, decoded: Decoded) -> None:
        assert decoded.bodies(0)[0] == {"x": 1.5, "label": "a"}
        assert decoded.bodies(0)[-1] == {"x": 2}
        assert decoded.rules(0) == [
            [("type", "/x")],
            [("json", "")],
            [("utf8", "")],
            [("required", "")],
            [("json", "")],
            [("type", "/x")],
            [("type", "")],
        ]

    def test_a_repeated_key_is_not_lost_silently(self, decoded: Decoded) -> None:
        """Readers differ in which of the two they take: it says nothing for sure."""
        assert b'{"x":1,"x":2}' in [bytes(row.data) for row in decoded.rows("quarantine", 0)]

    def test_raw_bytes_are_kept_and_reasons_do_not_quote(self, decoded: Decoded) -> None:
        wrong = decoded.rows("quarantine", 0)
        assert bytes(wrong[0].data) == b'{"x":"no number"}'
        assert all("no number" not in each.message for row in wrong for each in row.reasons)
        assert json.loads(bytes(wrong[-1].data))["payload"]["content"] == "text"

    def test_json_lines(self, decoded: Decoded) -> None:
        assert decoded.bodies(1) == [[{"n": 1}, {"n": 2, "m": 3}]]
        assert decoded.rules(1) == [[("required", "line 2"), ("json", "line 3")]]

    def test_text(self, decoded: Decoded) -> None:
        assert [row.text for row in decoded.rows("content", 2)] == ["é", "spoken"]
        assert decoded.rules(2) == [[("utf8", "")]]

    @pytest.mark.parametrize("number", [3, 4])
    def test_what_is_opaque_has_no_row(self, decoded: Decoded, number: int) -> None:
        assert (decoded.rows("content", number), decoded.rows("quarantine", number)) == ([], [])

    def test_json_without_a_schema(self, decoded: Decoded) -> None:
        assert decoded.bodies(5) == [[1, 2], 3, None]
        assert decoded.rules(5) == [[("json", "")]]

    def test_other_streams_and_ended_ones(self, decoded: Decoded) -> None:
        """Frames without an announced format, and after the end of their stream, have no row."""
        streams = {row.stream_id for row in decoded.ask("SELECT DISTINCT stream_id FROM content")}
        assert streams <= set(decoded.streams.values())
        assert {"x": 9} not in decoded.bodies(0)

    def test_a_body_is_the_json_that_came(self, decoded: Decoded) -> None:
        """A text, which every engine can read, and not a byte of it is changed."""
        assert decoded.rows("content", 0)[0].body == '{"x":1.5,"label":"a"}'
        assert decoded.warehouse.dataset("content").schema.field("body").type == pa.string()


class TestTypedViews:
    """In DuckDB; Spark gives the same for each."""

    def same(self, decoded: Decoded, sql: str) -> list[dict[str, Any]]:
        register_views(decoded.spark, decoded.warehouse)
        with_spark = [row.asDict(recursive=True) for row in decoded.spark.sql(sql).collect()]
        assert decoded.ask(sql) == with_spark
        return with_spark

    def test_one_for_each_format(self, decoded: Decoded) -> None:
        with open_database(decoded.warehouse) as database:
            typed = [view.name for view in database.typed_views()]
        assert typed[:7] == [
            *("content_position", "content_events_log", "content_notes", "content_latin", "content_picture"),
            *("content_any", "content_rich"),
        ]
        [other] = typed[7:]
        assert other.startswith("content_position_")
        assert register_views(decoded.spark, decoded.warehouse)[-8:] == typed

    def test_properties_are_columns(self, decoded: Decoded) -> None:
        found = self.same(decoded, "SELECT x, label, sender FROM content_position ORDER BY seq")
        assert found[0] == {"x": 1.5, "label": "a", "sender": "ann"}

    def test_types_and_names(self, decoded: Decoded) -> None:
        [row] = self.same(
            decoded, "SELECT value_ts, name, tags, spot.x, CAST(choice AS int) AS choice FROM content_rich"
        )
        assert row == {"value_ts": 5, "name": None, "tags": ["a"], "x": 1.0, "choice": 2}
        view = decoded.spark.table("content_rich")
        assert dict(view.dtypes)["spot"] == "struct<x:double,y:double>"
        assert dict(view.dtypes)["choice"] == "variant"

    def test_lines_are_rows(self, decoded: Decoded) -> None:
        lines = decoded.ask("SELECT line, body FROM content_events_log ORDER BY line")
        assert [(row.line, json.loads(row.body)) for row in lines] == [(0, {"n": 1}), (1, {"n": 2, "m": 3})]
        register_views(decoded.spark, decoded.warehouse)
        with_spark = decoded.spark.sql("SELECT line, body FROM content_events_log ORDER BY line").collect()
        assert [(row.line, json.loads(row.body)) for row in with_spark] == [(0, {"n": 1}), (1, {"n": 2, "m": 3})]

    def test_text_views(self, decoded: Decoded) -> None:
        found = self.same(decoded, "SELECT text FROM content_notes ORDER BY seq")
        assert [row["text"] for row in found] == ["é", "spoken"]


class TestTypes:
    @pytest.mark.parametrize(
        ("schema", "expected"),
        [
            (True, "json"),
            ({}, "json"),
            ({"type": "integer"}, "bigint"),
            ({"type": ["number", "null"]}, "double"),
            ({"type": ["number", "string"]}, "json"),
            ({"enum": ["a", "b"]}, "string"),
            ({"enum": ["a", 1]}, "json"),
            ({"type": "array", "items": {"type": "boolean"}}, ("array", "boolean")),
            ({"type": "array"}, "json"),
            ({"type": "object", "additionalProperties": {"type": "integer"}}, ("map", "bigint")),
            ({"type": "object", "properties": {"a": {"type": "string"}}}, "json"),
            (
                {"type": "object", "properties": {"a`b": {"type": "string"}}, "additionalProperties": False},
                ("struct", {"a`b": "string"}),
            ),
            (
                {"type": "object", "properties": {"a": {}, "A": {}}, "additionalProperties": False},
                "json",
            ),
            ({"$ref": "https://example.org/x"}, "json"),
            ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "json"),
            ({"anyOf": [{"type": "object"}]}, "json"),
        ],
    )
    def test_from_json_schema(self, schema: Any, expected: Type) -> None:
        assert sql_type(schema) == expected

    @pytest.mark.parametrize(
        ("dialect", "expected"),
        [
            (SPARK, "array<struct<`a``b`:string, `c`:map<string,bigint>>>"),
            (DUCKDB, 'STRUCT("a`b" VARCHAR, "c" MAP(VARCHAR, BIGINT))[]'),
            (TRINO, 'ARRAY(ROW("a`b" varchar, "c" MAP(varchar, bigint)))'),
        ],
    )
    def test_in_each_dialect(self, dialect: Dialect, expected: str) -> None:
        assert dialect.type(("array", ("struct", {"a`b": "string", "c": ("map", "bigint")}))) == expected

    def test_recursion_ends(self) -> None:
        tree = {
            "type": "object",
            "properties": {"next": {"$ref": "#"}},
            "additionalProperties": False,
        }
        assert str(sql_type(tree)).count("struct") < 20

    @pytest.mark.parametrize("dialect", DIALECTS.values())
    def test_a_short_schema_makes_no_long_text(self, dialect: Dialect) -> None:
        """Each definition names the next one ten times: 10 ** 5 fields, if nobody counted."""
        closed = {"type": "object", "additionalProperties": False}
        definitions: dict[str, Any] = {
            f"d{at}": {**closed, "properties": {f"p{each}": {"$ref": f"#/$defs/d{at + 1}"} for each in range(10)}}
            for at in range(5)
        }
        definitions["d5"] = {"type": "string"}
        properties = {name: {"$ref": "#/$defs/d0"} for name in ("a", "b")}
        view = view_of({"properties": {"first": {"type": "string"}, **properties}, "$defs": definitions})
        assert len(view.select(dialect)) < 50_000
        assert columns_of(json.loads(view.format["schema"]))[0] == ("first", "first", "string")

    def test_a_name_that_duckdb_takes_for_all_is_left_out(self) -> None:
        schema = {"properties": {"*": {"type": "string"}, "a*": {"type": "string"}, "b": {"type": "string"}}}
        content = {name: [None] for name in ("space", "seq", "ts", "stream_id", "sender")}
        row = {"format_id": ["x"], "mime_type": ["m"], "schema_hash": ["h"], "body": ['{"a*":"one","b":"two"}']}
        with duckdb.connect() as connection:
            connection.register("content", pa.table({**content, **row}))
            found = connection.sql(view_of(schema).select(DUCKDB)).to_arrow_table().to_pylist()
        assert found[0].items() >= {"a*": "one", "b": "two"}.items() and "*" not in found[0]

    @pytest.mark.parametrize("substitute", ["true", "false"])
    def test_names_do_not_show_the_environment(self, spark: SparkSession, substitute: str) -> None:
        """Neither in our sessions nor in another's, where Spark puts in what ${env:...} names."""
        assert spark.conf.get("spark.sql.variable.substitute") == "false"
        home, spot = "${env:HOME}", {"type": "object", "properties": {"${env:HOME}": {"type": "string"}}}
        schema = {"properties": {home: {"type": "string"}, "spot": {**spot, "additionalProperties": False}}}
        view = view_of(schema, format_id=home, mime_type=f"text/{home}")
        body = json.dumps({home: "x", "spot": {home: "y"}})
        row = ("s", 1, "st", "ann", home, f"text/{home}", "h", body)
        names = "space string, seq long, stream_id string, sender string, format_id string, mime_type string"
        content = spark.createDataFrame([row], f"{names}, schema_hash string, body string")
        content.selectExpr("*", "current_timestamp() AS ts").createOrReplaceTempView("told_content")
        spark.conf.set("spark.sql.variable.substitute", substitute)
        try:
            [found] = spark.sql(view.select(SPARK, "told_content")).collect()
        finally:
            spark.conf.set("spark.sql.variable.substitute", "false")
            spark.catalog.dropTempView("told_content")
        assert found.asDict(recursive=True)["spot"] == {home: "y"} and found.body == body
        assert os.environ["HOME"] not in str(found) and home not in found.asDict()

    @pytest.mark.parametrize(
        ("format_id", "expected"),
        [
            ("position", "content_position"),
            ("A/b C", "content_a_b_c"),
            ("'; DROP", "content_drop"),
            ("é", "content_format"),
        ],
    )
    def test_view_names(self, format_id: str, expected: str) -> None:
        assert view_name(format_id) == expected
