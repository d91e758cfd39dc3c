"""The parameters and the result of a function as types: their JSON Schemas, and values converted to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from mewstream.client.call import Call
from mewstream.client.docstrings import described
from mewstream.client.media import Audio, Image

#: Results of these types say nothing that a schema could.
_ANYTHING = (Any, type(None), str, bytes, object, dict, Mapping)


class Signature:
    """The parameters of a function as one object, as a caller gives it. Raises TypeError if they cannot be given by
    name in JSON."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.description, about = described(function)
        self.call_parameter: str | None = None
        """The name of the parameter that gets the :class:`Call`; None if there is none."""
        self.takes_any = False
        """Whether there is a ``**parameter``, which takes arguments of any name."""
        self.parameters: dict[str, inspect.Parameter] = {}
        hints = _hints(name, function)
        fields: list[Any] = []
        for each in inspect.signature(function).parameters.values():
            kind = Any if hints.get(each.name) is object else hints.get(each.name, Any)
            if kind is Call:
                self.call_parameter = each.name
            elif each.kind is each.VAR_KEYWORD:
                self.takes_any = True
            elif each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
                raise TypeError(f"the parameter {each.name!r} of {name} cannot be given by name")
            else:
                self.parameters[each.name] = each
                fields.append(_field(each, kind, about.get(each.name)))
        try:
            self._type = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=not self.takes_any)
            self.schema = self._schema()
        except TypeError as flaw:
            raise TypeError(f"the parameters of {name} have no JSON Schema: {_reason(flaw)}") from None
        self.result = Result.of(name, hints.get("return", Any))

    def _schema(self) -> dict[str, Any]:
        schema = _root_schema(self._type)
        schema.pop("title", None)
        for name, each in self.parameters.items():
            if each.default is not each.empty:
                try:
                    schema["properties"][name].setdefault("default", msgspec.to_builtins(each.default))
                except (TypeError, AttributeError):
                    pass  # a default that JSON cannot express, or a property that is not an object
        return schema

    def convert(self, arguments: Mapping[str, Any], *, strict: bool = True) -> dict[str, Any]:
        """Return the arguments as the types that the function expects, without those that it has defaults for. Raises
        :class:`msgspec.ValidationError`. If it is not ``strict``, text is taken for numbers and the like."""
        converted = msgspec.convert(arguments, self._type, strict=strict)
        found = {name: getattr(converted, name) for name in self.parameters}
        found = {name: value for name, value in found.items() if value is not msgspec.UNSET}
        if self.takes_any:
            found |= {name: value for name, value in arguments.items() if name not in self.parameters}
        return found


class Result:
    """The type of a function's result, as structured content, which is always an object."""

    def __init__(self, type: Any, schema: dict[str, Any]) -> None:
        self.type = type
        self.is_wrapped = schema.get("type") != "object"
        """Whether the result is not an object itself, but the value of ``result`` in one."""
        self.schema = _wrapped(schema) if self.is_wrapped else schema

    @classmethod
    def of(cls, name: str, type: Any) -> Result | None:
        """Return the result of a type; None if a schema of it would say nothing. Raises TypeError if there can be
        none."""
        if type in _ANYTHING or _has_media(type):
            return None
        if get_origin(type) in (dict, Mapping) and get_args(type)[1:] in ((Any,), (object,)):
            return None
        try:
            return cls(type, _root_schema(type))
        except TypeError as flaw:
            raise TypeError(f"the result of {name} has no JSON Schema: {_reason(flaw)}") from None

    def structured(self, value: Any) -> Any:
        """Return a value as structured content. Raises :class:`msgspec.ValidationError` if it is not of the type."""
        plain = msgspec.to_builtins(value)
        msgspec.convert(plain, self.type)
        return {"result": plain} if self.is_wrapped else plain

    def value(self, structured: Any) -> Any:
        """Return what structured content stands for. Raises :class:`msgspec.ValidationError`."""
        if self.is_wrapped and isinstance(structured, dict) and set(structured) == {"result"}:
            structured = structured["result"]
        return msgspec.convert(structured, self.type)


def _reason(flaw: TypeError) -> str:
    return str(flaw).splitlines()[-1]  # before it, msgspec says how its own functions could be called otherwise


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as flaw:
        raise TypeError(
            f"a type hint of {name} cannot be understood: {flaw}; import or define it in its module"
        ) from None


def _field(parameter: inspect.Parameter, kind: Any, about: str | None) -> Any:
    if get_origin(kind) is Annotated:  # Annotated[int, "what it means"]
        about = next((each for each in get_args(kind)[1:] if isinstance(each, str)), about)
    if about:
        kind = Annotated[kind, msgspec.Meta(description=about)]
    if parameter.default is parameter.empty:
        return (parameter.name, kind)
    return (parameter.name, kind | msgspec.UnsetType if _is_joinable(kind) else kind, msgspec.UNSET)


def _is_joinable(kind: Any) -> bool:
    """Return whether a type can be joined with another; Any includes everything already."""
    return kind is not Any and not (get_origin(kind) is Annotated and get_args(kind)[0] is Any)


def _root_schema(type: Any) -> dict[str, Any]:
    """Return the schema of a type. That of the type itself stands at the root, and not behind a reference."""
    (schema,), components = msgspec.json.schema_components((type,), ref_template="#/$defs/{name}")
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/") and set(schema) == {"$ref"}:
        own = reference.removeprefix("#/$defs/")
        schema = dict(components[own])
        if not _refers(components, reference) and not _refers(schema, reference):
            del components[own]
    return {**schema, "$defs": components} if components else schema


def _has_media(type: Any) -> bool:
    return type in (Image, Audio) or any(_has_media(each) for each in get_args(type))


def _refers(schema: Any, reference: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == reference or any(_refers(each, reference) for each in schema.values())
    return isinstance(schema, list) and any(_refers(each, reference) for each in schema)


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.pop("$defs", None)
    wrapped = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return {**wrapped, "$defs": definitions} if definitions else wrapped
