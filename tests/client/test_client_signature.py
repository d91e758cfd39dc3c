"""``client/signature`` and ``client/docstrings``: functions as JSON Schemas. No sockets."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from mewstream import Audio, Call, Image
from mewstream.client.docstrings import described
from mewstream.client.signature import Signature


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


@dataclass
class Node:
    name: str
    parent: Node | None = None


class Row(TypedDict):
    id: int


class Stranger:
    pass


def of(function: Callable[..., Any]) -> Signature:
    return Signature("it", function)


class TestSchema:
    def test_of_simple_parameters(self) -> None:
        def function(a: int, b: str = "x", *, c: float | None = None) -> None: ...

        assert of(function).schema == {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "string", "default": "x"},
                "c": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            },
            "required": ["a"],
            "additionalProperties": False,
        }

    def test_of_nothing(self) -> None:
        assert of(lambda: 1).schema == {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": False,
        }

    def test_of_what_has_no_hints(self) -> None:
        schema = of(lambda a, b=2, **others: a).schema
        assert schema == {"type": "object", "properties": {"a": {}, "b": {"default": 2}}, "required": ["a"]}

    def test_types_that_msgspec_knows(self) -> None:
        def function(
            colour: Colour,
            point: Point,
            node: Node,
            way: Literal["left", "right"],
            when: datetime,
            count: Annotated[int, msgspec.Meta(ge=0)],
            rows: list[Row],
            anything: object,
        ) -> None: ...

        found = of(function)
        assert found.schema["properties"]["way"] == {"enum": ["left", "right"]}
        assert found.schema["properties"]["count"] == {"type": "integer", "minimum": 0}
        assert found.schema["properties"]["anything"] == {}
        assert set(found.schema["$defs"]) == {"Colour", "Point", "Node", "Row"}
        arguments = found.convert(
            {
                "colour": "red",
                "point": {"x": 1},
                "node": {"name": "a", "parent": {"name": "b"}},
                "way": "left",
                "when": "2026-01-31T12:00:00Z",
                "count": 0,
                "rows": [{"id": 1}],
                "anything": [None],
            }
        )
        assert (arguments["colour"], arguments["point"].x, arguments["when"].year) == (Colour.RED, 1, 2026)
        assert arguments["node"].parent.name == "b"

    def test_defaults_are_the_functions_own(self) -> None:
        unspeakable = object()

        def function(a: Any = unspeakable, b: list[int] = [1, 2], c: Colour = Colour.BLUE) -> None: ...  # noqa: B006

        found = of(function)
        assert found.convert({}) == {}
        properties = found.schema["properties"]
        assert (properties["a"], properties["b"]["default"], properties["c"]["default"]) == ({}, [1, 2], "blue")

    def test_the_call_is_not_a_parameter_of_the_caller(self) -> None:
        def function(a: int, call: Call) -> None: ...

        found = of(function)
        assert found.call_parameter == "call"
        assert list(found.schema["properties"]) == ["a"]

    def test_of_methods_partials_and_objects(self) -> None:
        class Tool:
            def method(self, a: int) -> str:
                return str(a)

            async def __call__(self, b: int) -> int:
                return b

        assert list(of(Tool().method).schema["properties"]) == ["a"]
        assert of(Tool()).schema["properties"] == {"b": {"type": "integer"}}
        partial = functools.partial(lambda a, b: a + b, 1, b=2)
        assert of(partial).schema["properties"] == {"b": {"default": 2}}

    @pytest.mark.parametrize(
        ("function", "text"),
        [
            (lambda *a: a, "'a' of it cannot be given by name"),
            (lambda a, /: a, "'a' of it cannot be given by name"),
            (print, "cannot be given by name"),
        ],
    )
    def test_parameters_without_a_name(self, function: Callable[..., Any], text: str) -> None:
        with pytest.raises(TypeError, match=text):
            of(function)

    def test_types_that_json_has_not(self) -> None:
        def takes(a: Stranger) -> None: ...

        def returns() -> Stranger:
            return Stranger()

        class Local: ...

        def hidden(a: Local) -> None: ...

        with pytest.raises(
            TypeError, match=r"^the parameters of it have no JSON Schema: type .*Stranger.* not supported"
        ):
            of(takes)
        with pytest.raises(TypeError, match="the result of it has no JSON Schema"):
            of(returns)
        with pytest.raises(TypeError, match="a type hint of it cannot be understood: name 'Local'"):
            of(hidden)

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"a": "1"}, r"Expected `int`, got `str` - at `\$.a`"),
            ({}, "missing required field `a`"),
            ({"a": 1, "b": 2}, "unknown field `b`"),
            ({"a": True}, "Expected `int`, got `bool`"),
            ({"a": 10**400}, "a"),
        ],
    )
    def test_wrong_arguments(self, arguments: dict[str, Any], text: str) -> None:
        def function(a: int) -> None: ...

        if arguments == {"a": 10**400}:
            assert of(function).convert(arguments) == arguments
            return
        with pytest.raises(msgspec.ValidationError, match=text):
            of(function).convert(arguments)

    def test_text_for_numbers_where_it_is_not_strict(self) -> None:
        def function(a: int, b: bool = False) -> None: ...

        assert of(function).convert({"a": "5", "b": "true"}, strict=False) == {"a": 5, "b": True}


class TestResults:
    @pytest.mark.parametrize("type", [Any, None, str, bytes, object, dict, dict[str, Any], Mapping[str, Any]])
    def test_that_no_schema_describes(self, type: Any) -> None:
        def function() -> None: ...

        function.__annotations__["return"] = type
        assert of(function).result is None

    @pytest.mark.parametrize("type", [Image, Audio, list[Image], list[str | Image]])
    def test_that_are_content(self, type: Any) -> None:
        def function() -> None: ...

        function.__annotations__["return"] = type
        assert of(function).result is None

    def test_objects_stand_for_themselves(self) -> None:
        def function() -> Point:
            return Point(1)

        result = of(function).result
        assert result is not None
        assert result.schema["properties"]["x"] == {"type": "integer"}
        assert result.structured(Point(1)) == {"x": 1, "y": 0.0}
        assert result.value({"x": 1}) == Point(1)
        with pytest.raises(msgspec.ValidationError):
            result.structured({"x": "no"})

    def test_everything_else_is_wrapped(self) -> None:
        def function() -> list[Node]:
            return []

        result = of(function).result
        assert result is not None
        assert result.schema["required"] == ["result"]
        assert result.schema["properties"]["result"] == {"type": "array", "items": {"$ref": "#/$defs/Node"}}
        assert "Node" in result.schema["$defs"]
        assert result.structured([Node("a")]) == {"result": [{"name": "a", "parent": None}]}
        assert result.value({"result": [{"name": "a"}]}) == [Node("a")]

    def test_a_type_that_contains_itself(self) -> None:
        def function() -> Node:
            return Node("a")

        result = of(function).result
        assert result is not None
        assert result.schema["type"] == "object"
        assert result.schema["properties"]["parent"]["anyOf"][0] == {"$ref": "#/$defs/Node"}
        assert "Node" in result.schema["$defs"]


class TestDocstrings:
    def test_in_the_way_of_google(self) -> None:
        def function(city: str, days: int) -> None:
            """Tell the weather.

            It may be wrong.

            Args:
                city: The name of the city,
                    in its own language.
                days (int): How many: one or more.

            Returns:
                Something.
            """

        found = described(function)
        assert found.text == "Tell the weather.\n\nIt may be wrong.\n\nReturns:\n    Something."
        assert found.parameters == {
            "city": "The name of the city, in its own language.",
            "days": "How many: one or more.",
        }
        properties = of(function).schema["properties"]
        assert properties["city"]["description"] == "The name of the city, in its own language."

    def test_in_the_way_of_sphinx(self) -> None:
        def function(city: str, days: int) -> None:
            """Tell the weather.

            :param city: The name of the city,
                in its own language.
            :param int days: How many.
            :returns: Something.
            """

        found = described(function)
        assert found.text == "Tell the weather.\n\n:returns: Something."
        assert found.parameters == {"city": "The name of the city, in its own language.", "days": "How many."}

    def test_annotated_by_text(self) -> None:
        def function(city: Annotated[str, "Where."], days: Annotated[int, "How long."] = 1) -> None:
            """Tell.

            Args:
                city: Something else.
            """

        properties = of(function).schema["properties"]
        assert properties["city"] == {"type": "string", "description": "Where."}
        assert properties["days"] == {"type": "integer", "description": "How long.", "default": 1}

    def test_of_nothing(self) -> None:
        assert described(lambda: 1) == (None, {})

        class Silent:
            """Not about the call."""

            def __call__(self) -> None: ...

        assert described(Silent()) == (None, {})
