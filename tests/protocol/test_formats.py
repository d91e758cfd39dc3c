"""Seed 003, "Format Descriptors", and decision 15: formats are checked at announce, and hold no traps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mewstream.protocol import formats
from mewstream.protocol.errors import LimitExceeded, ValidationFailed
from mewstream.protocol.formats import FormatChecker, checker_for, parse_formats
from mewstream.protocol.policy import Limits
from mewstream.protocol.schemas import DIALECT, check_schema

LIMITS = Limits()

# Seed 003, "Format Descriptors", verbatim.
MOVEMENT = json.loads("""
{
  "id": "movement/2d",
  "description": "Normalized XY positions for a multiplayer session",
  "mime_type": "application/json",
  "schema": {
    "type": "object",
    "properties": {
      "entity": { "type": "string" },
      "position": {
        "type": "object",
        "properties": {
          "x": { "type": "number" },
          "y": { "type": "number" }
        }
      },
      "orientation": { "type": "number" }
    },
    "required": ["entity", "position"]
  }
}
""")


def parse(*entries: Any, limits: Limits = LIMITS) -> list[dict[str, Any]]:
    return parse_formats(list(entries), limits=limits)


def checker(schema: Any, mime_type: str | None = "application/json") -> FormatChecker:
    return FormatChecker({"id": "f", "mime_type": mime_type, "schema": schema})


def nested(levels: int, leaf: Any = None, key: str | None = None) -> Any:
    for _ in range(levels):
        leaf = [leaf] if key is None else {key: leaf}
    return leaf


def doubling(steps: int) -> dict[str, Any]:
    """Each definition applies the next one twice: 2 ** steps looks at one value."""
    defs: dict[str, Any] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(steps)}
    return {"$defs": {**defs, f"d{steps}": {"type": "string"}}, "$ref": "#/$defs/d0"}


class TestDescriptors:
    """003 Format Descriptors: "Each entry in payload.formats mirrors tool schema metadata"."""

    def test_the_example_of_the_seed(self) -> None:
        (parsed,) = parse(MOVEMENT)
        assert {key: parsed[key] for key in MOVEMENT} == MOVEMENT
        assert len(parsed["schema_hash"]) == 64
        assert checker_for(parsed).problems({"entity": "e1", "position": {"x": 0.5, "y": 1}}) == []
        assert checker_for(parsed).problems({"entity": "e1"}) == ['at the root: "position" is a required property']
        (problem,) = checker_for(parsed).problems({"entity": "e1", "position": {"x": "left"}})
        assert problem.startswith("at /position/x: ")
        assert "number" in problem
        assert "left" not in problem  # content is never quoted

    @pytest.mark.parametrize("value", [None, []])
    def test_none(self, value: Any) -> None:
        assert parse_formats(value, limits=LIMITS) == []

    def test_several_formats_and_unknown_fields_are_kept(self) -> None:
        entries = [{"id": "audio/opus", "mime_type": "audio/opus", "rate": 48000}, {"id": "llm/tokens", "x": [1]}]
        assert parse(*entries) == entries

    def test_the_input_is_not_changed(self) -> None:
        before = json.dumps(MOVEMENT)
        parse(MOVEMENT)
        assert json.dumps(MOVEMENT) == before

    def test_the_hash_is_ours_and_canonical(self) -> None:
        one, other = parse(
            {"id": "a", "schema": {"type": "string", "minLength": 1}, "schema_hash": "forged"},
            {"id": "b", "schema": {"minLength": 1, "type": "string"}},
        )
        assert one["schema_hash"] == other["schema_hash"] != "forged"
        assert "schema_hash" not in parse({"id": "a", "schema_hash": "forged"})[0]

    @pytest.mark.parametrize(
        ("value", "says"),
        [
            ({"id": "a"}, "formats is an object"),
            (["a"], "formats[0] is the text 'a'"),
            ([{"id": "a"}, {}], "formats[1].id is nothing"),
            ([{"id": ""}], "formats[0].id is the text ''"),
            ([{"id": 7}], "formats[0].id is a number"),
            ([{"id": "é" * 65}], "at most 128 bytes"),
            ([{"id": "a"}, {"id": "a"}], "formats[1].id repeats that of formats[0]"),
            ([{"id": "a", "description": 1}], "formats[0].description is a number"),
            ([{"id": "a", "mime_type": []}], "formats[0].mime_type is a list"),
            ([{"id": "a", "schema": "string"}], "formats[0].schema is the text 'string'"),
            ([{"id": "a", "schema": []}], "formats[0].schema is a list"),
        ],
    )
    def test_refused(self, value: Any, says: str) -> None:
        with pytest.raises(ValidationFailed) as caught:
            parse_formats(value, limits=LIMITS)
        assert says in caught.value.message
        assert "expected" in caught.value.message

    def test_limits(self) -> None:
        with pytest.raises(LimitExceeded) as caught:
            parse(*({"id": str(n)} for n in range(17)))
        assert caught.value.details["limit"] == "formats_per_stream"
        with pytest.raises(LimitExceeded) as caught:
            parse({"id": "a", "schema": {"description": "x" * 40_000}})
        assert caught.value.details["limit"] == "schema_bytes"


class TestSchemas:
    """Decision 15: 2020-12, size-capped, no remote references, no pathological patterns."""

    @pytest.mark.parametrize(
        "schema",
        [
            True,
            False,
            {},
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/s"},
            {"$defs": {"a/b": {"type": "string"}}, "$ref": "#/$defs/a~1b"},
            {"$defs": {"a b": {"$anchor": "x"}}, "allOf": [{"$ref": "#/$defs/a%20b"}, {"$ref": "#x"}]},
            {"definitions": {"a": {"type": "string"}}, "$ref": "#/definitions/a"},
            {"properties": {"$ref": {"type": "string"}, "pattern": {"const": "("}}},  # names, not keywords
            {"enum": [{"$ref": "http://example.com/"}]},  # data, not a reference
            {"pattern": r"^[0-9a-f]{8}-[0-9a-f]{4}$"},
            {"pattern": "^[A-Za-z0-9_]{1,256}$"},
            {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}},
            {"anyOf": [{"type": "number"}, {"items": {"$ref": "#"}}, {"additionalProperties": {"$ref": "#"}}]},
            {"$dynamicAnchor": "n", "properties": {"next": {"$dynamicRef": "#n"}}, "unevaluatedProperties": False},
        ],
    )
    def test_accepted(self, schema: Any) -> None:
        assert len(check_schema(schema, limits=LIMITS).hash) == 64

    @pytest.mark.parametrize(
        ("schema", "says"),
        [
            ({"type": "nope"}, "schema/type is not valid JSON Schema 2020-12"),
            ({"properties": {"a": {"minLength": -1}}}, "schema/properties/a/minLength"),
            ({"properties": {"a": 3}}, "schema/properties/a"),
            ({"allOf": {}}, "schema/allOf"),
            ({"const": float("nan")}, "cannot be written as JSON"),
            ({"const": "\ud800"}, "cannot be written as JSON"),
            ({"$schema": "http://json-schema.org/draft-07/schema#"}, "another dialect"),
            ({"$ref": "https://example.com/s.json"}, "schema/$ref is remote"),
            ({"items": {"$ref": "file:///etc/passwd"}}, "schema/items/$ref is remote"),
            ({"$ref": "other.json"}, "is remote"),
            ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, "is remote"),
            ({"$dynamicRef": "//evil/#a"}, "is remote"),
            ({"$defs": {"a": {"$id": "http://evil/"}}}, "changes the base"),
            ({"$ref": "#/$defs/none"}, "expected the place of a subschema"),
            ({"$ref": "#none"}, "expected the place of a subschema"),
            ({"$ref": "#/x/y", "x": {"y": {"$ref": "http://evil/"}}}, "expected the place of a subschema"),
            ({"$ref": "#/enum/0", "enum": [{}]}, "expected the place of a subschema"),
            ({"$defs": {"a": {"$anchor": "x"}, "b": {"$dynamicAnchor": "x"}}}, "unique anchors"),
            ({"pattern": "(?=a)b"}, "schema/pattern is not a usable pattern"),
            ({"pattern": r"(a)\1"}, "without lookaround and backreferences"),
            ({"pattern": "("}, "not a usable pattern"),
            ({"pattern": "(a{1000}){1000}"}, "not too large"),
            ({"patternProperties": {"(?<!a)b": True}}, "not a usable pattern"),
            ({"$ref": "#"}, "leads back to itself"),
            ({"not": {"anyOf": [{"$ref": "#"}]}}, "leads back to itself"),
            ({"$dynamicAnchor": "a", "if": {"$dynamicRef": "#a"}}, "leads back to itself"),
            ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "leads back to itself"),
            ({"dependentSchemas": {"a": {"$ref": "#"}}}, "leads back to itself"),
            (nested(70, True, "not"), "nested too deep"),
            ({"const": nested(70)}, "nested too deep"),
            ({"const": nested(100_000)}, "cannot be written as JSON"),
            ({"allOf": [True] * 1024}, "too many subschemas"),
            ({"properties": {str(n): {"pattern": f"a{n}"} for n in range(65)}}, "too many patterns"),
            ({"multipleOf": 5e-324}, "a number too large or too small"),
            ({"const": 10**4000}, "a number too large or too small"),
            (doubling(15), "would check one value too often"),
            (doubling(26), "would check one value too often"),
            ({"items": {"items": doubling(3)["$defs"]["d0"]}}, "expected the place of a subschema"),
            ({"items": {"allOf": [{"$ref": "#"}] * 20}}, "would check one value too often"),
            ({"enum": [*map(str, range(1900)), *range(1900)]}, "would check one value too often"),
            ({"enum": [number + 0.5 for number in range(1900)]}, "fewer numbers in enum"),
            ({"required": 1, "dependentRequired": [1], "enum": 1, "patternProperties": 1}, "is not valid JSON Schema"),
        ],
        ids=lambda value: None if isinstance(value, str) else str(type(value).__name__),
    )
    def test_refused(self, schema: Any, says: str) -> None:
        with pytest.raises(ValidationFailed) as caught:
            check_schema(schema, limits=LIMITS)
        assert says in caught.value.message
        assert len(caught.value.message) < 400

    def test_all_schemas_of_a_stream_share_one_budget(self) -> None:
        """Sixteen formats must not take sixteen times as long."""
        half = {"properties": {str(n): {} for n in range(600)}}
        parse({"id": "a", "schema": half})
        with pytest.raises(ValidationFailed, match=r"formats\[1\].schema has too many subschemas"):
            parse({"id": "a", "schema": half}, {"id": "b", "schema": {**half, "title": "another"}})
        patterns = {"patternProperties": {f"a{n}": True for n in range(40)}}
        with pytest.raises(ValidationFailed, match=r"formats\[1\].schema has too many patterns"):
            parse({"id": "a", "schema": patterns}, {"id": "b", "schema": patterns})

    def test_a_long_chain_of_references_is_refused(self) -> None:
        """With 600 steps and 128 levels of content, jsonschema_rs 0.60 overflows the native stack."""
        chain: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(600)}
        chain["d600"] = {"properties": {"a": {"$ref": "#/$defs/d0"}}}
        with pytest.raises(ValidationFailed, match="chain of references"):
            check_schema({"$defs": chain, "$ref": "#/$defs/d0"}, limits=LIMITS)

    def test_the_analysis_itself_is_bounded(self) -> None:
        """Each of 300 members leads to 300 others: refused for the steps that it takes to count them."""
        members = {f"p{i}": {"$ref": "#"} for i in range(300)}
        refs = [{"properties": {f"p{i}": {"$ref": f"#/properties/p{i}"}}} for i in range(300)]
        with pytest.raises(ValidationFailed, match="entangled"):
            check_schema({"properties": members, "allOf": refs}, limits=Limits(schema_bytes=1 << 20))

    def test_a_root_id_cannot_pose_as_a_known_schema(self) -> None:
        schema = {"$id": DIALECT, "$defs": {"core": {"type": "string"}}, "$ref": "#/$defs/core"}
        check_schema(schema, limits=LIMITS)
        assert checker(schema).problems("text") == []
        assert checker(schema).problems(1) != []


class TestContent:
    """Decision 15: `validate: enforce` checks frames and `stream/data`; hostile content cannot hang or raise."""

    def test_at_most_five_short_problems(self) -> None:
        found = checker({"items": {"enum": ["x" * 500]}}).problems([1] * 50)
        assert len(found) == 5
        assert all(len(each) <= 200 for each in found)
        assert found[1].startswith("at /1: ")

    def test_long_names_are_cut(self) -> None:
        (problem,) = checker({"additionalProperties": False}).problems({"k" * 5000: 1})
        assert len(problem) <= 200

    @pytest.mark.parametrize("mime", ["application/json", "Application/JSON; charset=utf-8", "model/x+json", None])
    def test_json_frames(self, mime: str | None) -> None:
        check = checker({"type": "object"}, mime)
        assert check.problems_in(b'{"a":1}', text=True) == []
        assert check.problems_in(b"[]", text=False) == ['at the root: the value is not of type "object"']
        assert check.problems_in(b"{", text=True)[0].startswith("not valid JSON")

    def test_json_without_a_schema_must_be_json(self) -> None:
        check = FormatChecker({"id": "f", "mime_type": "application/json"})
        assert check.problems_in(b"[1]", text=False) == []
        assert check.problems_in(b"nope", text=False) != []
        assert check.problems("anything") == []

    @pytest.mark.parametrize("mime", ["application/x-ndjson", "application/jsonl", "application/x-jsonlines"])
    def test_each_line_is_checked(self, mime: str) -> None:
        check = checker({"type": "integer"}, mime)
        assert check.problems_in(b"1\n2\r\n\n3\n", text=True) == []
        assert check.problems_in(b'1\n"a"\n{', text=True) == [
            'line 2: at the root: the value is not of type "integer"',
            "line 3: not valid JSON: Input data was truncated",
        ]
        assert len(check.problems_in(b"true\n" * 100, text=True)) == 5
        assert check.problems(1) == []
        assert check.problems("a") != []

    def test_text_must_be_utf8(self) -> None:
        plain = FormatChecker({"id": "f", "mime_type": "text/plain"})
        assert plain.problems_in("é".encode(), text=False) == []
        assert plain.problems_in(b"\xff", text=False) == ["not UTF-8; expected text in UTF-8"]
        latin = FormatChecker({"id": "f", "mime_type": "text/plain; charset=iso-8859-1"})
        assert latin.problems_in(b"\xff", text=False) == []

    def test_other_types_are_opaque(self) -> None:
        for schema in (None, {"type": "string"}):
            check = checker(schema, "audio/opus")
            assert check.problems_in(b"\xff\x00", text=False) == []
            assert check.problems(1) == []
        assert FormatChecker({"id": "f"}).problems_in(b"\xff", text=False) == []

    @pytest.mark.parametrize("schema", [True, {"type": "string"}, {"items": {"$ref": "#"}}, {"uniqueItems": True}])
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\xff\xfe",
            b'"\xff"',
            b'"\\ud800"',
            b"1" * 5000,
            b"1e999",
            b"-" + b"9" * 4000,
            b"NaN",
            b"[" * 100_000,
            b"[" * 900 + b"]" * 900,
            b"[" * 129 + b"]" * 129,
            b'{"a":' * 900 + b"1" + b"}" * 900,
            b"\x00",
        ],
        ids=lambda data: repr(data[:12]),
    )
    def test_hostile_frames(self, schema: Any, data: bytes) -> None:
        for mime in ("application/json", "application/x-ndjson"):
            for text in (True, False):
                found = checker(schema, mime).problems_in(data, text=text)
                assert all(len(each) <= 240 for each in found)
                if data.startswith(b"[[") or data in (b"1e999", b"NaN"):
                    assert found

    @pytest.mark.parametrize("content", [nested(5000), nested(300, key="a"), "\ud800", {1: 2}, 10**4000, float("inf")])
    def test_hostile_values(self, content: Any) -> None:
        for schema in (True, {"type": "boolean"}, {"properties": {"a": {"$ref": "#"}}, "type": "array"}):
            assert isinstance(checker(schema).problems(content), list)

    def test_depth_is_counted_in_levels_not_in_brackets(self) -> None:
        check = checker({"items": {"type": ["array", "string"]}})
        assert check.problems_in(json.dumps([[]] * 500).encode(), text=True) == []
        assert check.problems_in(json.dumps(["[" * 500]).encode(), text=True) == []

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
            {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"a": {"$ref": "#"}}},
            {"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"additionalProperties": {"$ref": "#"}}]},
            {"if": {"properties": {"a": {"$ref": "#"}}}, "then": {"properties": {"a": {"$ref": "#"}}}},
            {"$defs": {"e": {"properties": {"a": {"$ref": "#"}}}}, "oneOf": [{"$ref": "#/$defs/e"}] * 2},
        ],
        ids=repr,
    )
    def test_what_doubles_with_each_level_has_a_depth(self, schema: Any) -> None:
        """Unbounded, 100 levels of content in 600 bytes would be looked at 2 ** 100 times."""
        check_schema(schema, limits=LIMITS)
        assert "nested too deep" in checker(schema).problems(nested(100, {}, "a"))[0]
        assert not any("nested too deep" in each for each in checker(schema).problems(nested(6, {}, "a")))

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}},
            {"anyOf": [{"type": "null"}, {"properties": {"a": {"$ref": "#"}}}, {"items": {"$ref": "#"}}]},
            {"$defs": {"b": {"properties": {"a": {"$ref": "#"}}}}, "properties": {"a": {"$ref": "#/$defs/b"}}},
        ],
        ids=repr,
    )
    def test_honest_recursion_is_checked_to_the_full_depth(self, schema: Any) -> None:
        assert checker(schema).problems(nested(120, {}, "a")) == []

    @pytest.mark.parametrize(
        ("schema", "content"),
        [
            ({"items": {"allOf": [{"type": "number"}] * 1000}}, [1] * 400_000),
            ({"items": {"enum": [{"x": n} for n in range(300)]}}, [{"x": 299}] * 60_000),
            ({"items": {"enum": [*"abcdefghij", *range(100)]}}, [99] * 300_000),
            ({"items": {"enum": list(range(100))}}, [0.5] * 100_000),
            ({"items": {"multipleOf": 0.1}}, [5e-99] * 100_000),
            ({"items": {"dependentRequired": {"a": [str(n) for n in range(3000)]}}}, [{"a": 1}] * 3_000),
            ({"uniqueItems": True}, [2**52 + n for n in range(40_000)]),
            ({"pattern": "(a|b)*a(a|b){250}c"}, "abbabaaab" * 100_000),
        ],
        ids=lambda value: repr(value)[:50],
    )
    def test_size_times_schema_is_bounded(self, schema: Any, content: Any) -> None:
        """Each of these takes from seconds to minutes when it is left to jsonschema_rs 0.60."""
        check_schema(schema, limits=LIMITS)
        (problem,) = checker(schema).problems(content)
        assert problem.startswith("too large to be checked against its schema")
        assert checker(schema).problems_in(json.dumps(content).encode(), text=True) == [problem]
        small = checker(schema).problems(content[:1])
        assert not any("too large to be checked" in each for each in small)

    @pytest.mark.parametrize(
        ("schema", "content", "bits"),
        [
            ({"items": {"multipleOf": 0.1}}, [5e-324], 64),
            ({"items": {"multipleOf": 3}}, [10**4000], 64),
            ({"items": {"maximum": 3}}, [-(2**64)], 64),
            ({"items": {"const": 1.5}}, [1e100], 64),
            ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, {"b": 2**53}]}, 53),
        ],
    )
    def test_numbers_that_take_long_to_compare_are_not_compared(self, schema: Any, content: Any, bits: int) -> None:
        """Fifty such numbers take jsonschema_rs 0.60 a fiftieth of a second; a thousand that shall be unique, 0.3 s."""
        expected = f"holds a number too large or too small to be compared; expected at most {bits} bits"
        assert checker(schema).problems(content) == [expected]
        assert checker(schema).problems_in(json.dumps(content).encode(), text=True) == [expected]
        assert checker({"type": ["array", "object"]}).problems(content) == []

    @pytest.mark.parametrize(
        "data",
        [b"[0.30000000000000004, 18446744073709551615]", b'["00000000000000000", "e000"]', b"[1e99, 1E-99, -0.0]"],
    )
    def test_other_numbers_are(self, data: bytes) -> None:
        assert checker({"items": {"minimum": -1, "not": {"const": 7}}}).problems_in(data, text=True) == []

    @pytest.mark.parametrize(
        ("schema", "content"),
        [
            ({"anyOf": [{"items": {"type": "string"}}]}, [1] * 300_000),
            ({"allOf": [{"type": "string"}] * 300}, ["x" * 100] * 200),
            ({"items": {"type": "string"}}, [1] * 300_000),
            ({"items": {"dependentRequired": {"a": [str(n) for n in range(3000)]}}}, [{"a": 1}] * 30),
            ({"items": {"enum": [str(n) for n in range(3000)]}}, [1] * 10_000),
        ],
        ids=lambda value: repr(value)[:50],
    )
    def test_errors_are_listed_only_where_they_are_few(self, schema: Any, content: Any) -> None:
        """The library makes all errors before it returns the first."""
        check_schema(schema, limits=LIMITS)
        assert checker(schema).problems(content) == ["does not match its schema (too large or too deep to say where)"]

    def test_a_megabyte_of_movement_is_checked(self) -> None:
        check = checker({"type": "array", "items": MOVEMENT["schema"]})
        data = json.dumps([{"entity": "e", "position": {"x": 1, "y": 2}}] * 18_000).encode()
        assert check.problems_in(data, text=True) == []
        assert check.problems_in(data.replace(b'"e"', b"1", 1), text=True) == [
            "does not match its schema (too large or too deep to say where)"
        ]


class TestCache:
    def test_the_same_schema_is_compiled_once(self) -> None:
        one, other, third = parse(
            {"id": "a", "schema": {"type": "string"}},
            {"id": "b", "schema": {"type": "string"}, "description": "another name"},
            {"id": "c", "schema": {"type": "string"}, "mime_type": "text/plain"},
        )
        assert checker_for(one) is checker_for(other)
        assert checker_for(one) is not checker_for(third)

    def test_it_is_bounded_and_keeps_what_is_in_use(self) -> None:
        (used,) = parse({"id": "a", "schema": {"const": "in use"}})
        kept = checker_for(used)
        for number in range(600):
            checker_for({"id": "x", "mime_type": f"audio/{number}"})
            assert checker_for(used) is kept
        assert len(formats._cache) <= 256

    def test_large_schemas_are_fewer(self) -> None:
        """Compiled, a schema takes many times the room that it has as JSON."""
        parsed = [parse({"id": "a", "schema": {"const": f"{n}-{'x' * 30_000}"}})[0] for n in range(60)]
        checkers = [checker_for(each) for each in parsed]
        assert sum(each.size for each in formats._cache.values()) <= 1 << 20
        assert checker_for(parsed[-1]) is checkers[-1]
        assert checker_for(parsed[0]) is not checkers[0]

    def test_without_a_hash_it_is_not_cached(self) -> None:
        assert checker_for({"id": "a", "schema": {"type": "string"}}).problems(1) != []
        assert checker_for({"id": "a", "schema": {"type": "number"}}).problems(1) == []
