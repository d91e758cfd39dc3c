"""JSON Schemas of peers, made safe to run: checked at announce, bounded at each message (decision 15).

A schema comes from a peer and runs in our process against content of another peer, so both are hostile
until shown otherwise. :func:`check_schema` refuses, at announce, every schema that could cost more than
its size suggests; :class:`BoundedSchema` refuses, per message, what is left: content too deep or too large
for that schema. The defence is a bound on *visits*: how often one value of the content is looked at.

- References stay inside the schema and land on a subschema, so the graph analysed here is all there is.
- A reference that comes back to itself without descending into the content means nothing: refused.
- ``allOf`` of references that double at each step, or at each level of the content, are counted exactly
  enough (:func:`_profile`): the first is refused, the second sets how deep the content may be.
- Patterns compile under the linear-time engine (no lookaround, no backreference) within a size limit.
- Numbers beyond 64 bits and 1e100 are not compared: the library computes with exact fractions then, and finds
  large numbers that should be unique by comparing each with each.
- The analysis and the compiling have a budget too (:class:`Effort`), for all formats of a stream together.

``format`` and ``content*`` are annotations, as 2020-12 says by default; they are not enforced.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

import jsonschema_rs

from mewstream.protocol.errors import LimitExceeded, ValidationFailed
from mewstream.protocol.identifiers import describe
from mewstream.protocol.policy import Limits

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_NESTING = 64
"""Levels of objects and arrays in a schema."""
MAX_SUBSCHEMAS = 1_024
"""Of all schemas that one stream has."""
MAX_PATTERNS = 64
"""Regular expressions in all schemas that one stream has; each takes up to 0.2 ms to compile."""
MAX_CHAIN = 32
"""Subschemas applied to one value, each by the one before. With MAX_DEPTH it bounds the native stack."""
MAX_DEPTH = 128
"""Levels of objects and arrays in content that is checked."""
MIN_DEPTH = 8
"""A schema that cannot be checked this deep is refused at announce."""
MAX_COST = 100_000
"""Keyword checks that one value of the content may cost; one is 5 ns at most."""
MAX_WORK = 4_000_000
"""Keyword checks that one message may cost: 20 ms at most."""
MAX_PROBLEMS = 5
"""Problems that are named; more are not looked for."""
MAX_TEXT = 200
"""Characters of one problem."""
MAX_LISTED = 1_000
"""Possible errors up to which they are listed: the library makes all of them before the first, 8 to 20 us each."""
_ANALYSIS = 40_000  # steps of the analysis itself
CHARACTERS_OF_A_VALUE = 8
"""Text is read so many characters at a time, as it were: they cost what a look at a value costs."""
_REGEX = jsonschema_rs.RegexOptions(size_limit=64 << 10, dfa_size_limit=1 << 20)
_SMALL_REGEX = jsonschema_rs.RegexOptions(size_limit=16 << 10)

_COMPARISON = 280  # of one number with another, which are made fractions for it
_WHOLE_COMPARISON = 52  # of whole numbers, where `type` lets nothing else through
_OTHER_COMPARISON = 30
_UNIQUE = 1_200  # for each value below: up to 15 items are compared each with each
_SLOW = {"multipleOf": 1_700}
_SLOW |= dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), 150)
_PATTERN, _LARGE_PATTERN = 320, 1_600  # for CHARACTERS_OF_A_VALUE

#: Bits of a whole number up to which it is compared. Larger ones that should be unique have too few different hashes.
_NUMBER_BITS = 64
_UNIQUE_BITS = 53
_ANY_BITS = 1 << 30
_LARGEST, _SMALLEST = 1e100, 1e-100

_DIGITS = bytes(range(256)).translate(bytes.maketrans(b"123456789E", b"000000000e"))
#: What is in JSON with digits as zeros, where there may be a number beyond the bounds.
_LONG_NUMBERS = (b"0" * 16, b"e000", b"e+000", b"e-000")

_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = frozenset(["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"])
_NAMED = {"properties": 0, "prefixItems": 1}  # for the member of that name, the element at that index
_OTHER = {"additionalProperties": 0, "items": 1}  # for all that _NAMED beside it leaves over
_WILD = dict.fromkeys(("patternProperties", "propertyNames", "unevaluatedProperties"), 0)
_WILD |= dict.fromkeys(("contains", "unevaluatedItems"), 1)
_APART = frozenset({"$defs", "definitions", "contentSchema"})  # apply where they are referred to
_MAPS = frozenset(["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"])
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_KEYWORDS = _IN_PLACE | _APART | {*_NAMED, *_OTHER, *_WILD}


class Effort:
    """What is left of the budget for the schemas of one stream."""

    __slots__ = ("_patterns", "_steps", "_subschemas")

    def __init__(self) -> None:
        self._subschemas = MAX_SUBSCHEMAS
        self._patterns = MAX_PATTERNS
        self._steps = _ANALYSIS

    def subschema(self, where: str) -> None:
        self._subschemas -= 1
        if self._subschemas < 0:
            raise ValidationFailed(f"{where} has too many subschemas; expected at most {MAX_SUBSCHEMAS} in a stream")

    def pattern(self, where: str) -> None:
        self._patterns -= 1
        if self._patterns < 0:
            raise ValidationFailed(f"{where} has too many patterns; expected at most {MAX_PATTERNS} in a stream")

    def steps(self, count: int, where: str) -> None:
        self._steps -= count
        if self._steps < 0:
            raise ValidationFailed(f"{where} is too entangled; expected fewer references between subschemas")


def check_schema(schema: Any, *, limits: Limits, where: str = "schema", effort: Effort | None = None) -> CheckedSchema:
    """Refuse a schema that is not valid JSON Schema 2020-12 or not safe to run."""
    text = _canonical(schema, where)
    if len(text) > limits.schema_bytes:
        raise LimitExceeded(
            f"{where} has {len(text)} bytes; at most {limits.schema_bytes} are allowed", limit="schema_bytes"
        )
    profile = compile_schema(schema, where, effort).profile
    return CheckedSchema(hashlib.sha256(text).hexdigest(), profile)


class Extent(NamedTuple):
    """How much there is in some content: values and texts, levels, and the bits of its largest number."""

    size: int
    depth: int
    bits: int = 0


class Profile(NamedTuple):
    """What running a schema can cost."""

    cost: int
    """The most that one value of the content costs."""
    errors: int
    """The most errors that one value can have."""
    depth: int
    """Levels of content up to which that holds."""
    bits: int
    """Of the numbers for which that holds."""


class CheckedSchema(NamedTuple):
    hash: str
    profile: Profile


class BoundedSchema(NamedTuple):
    """A schema that is safe to run. Made by :func:`compile_schema`."""

    validator: jsonschema_rs.Draft202012Validator
    profile: Profile

    def extent(self, data: bytes, value: Any) -> Extent:
        """As :func:`measure` of the value in ``data``; where an upper bound from the bytes will do, without a walk."""
        brackets = data.count(b"[") + data.count(b"{")
        if brackets > self.profile.depth or (self.profile.bits < _ANY_BITS and _has_long_number(data)):
            return measure(value)
        return Extent(1 + brackets + data.count(b",") + len(data) // CHARACTERS_OF_A_VALUE, brackets)

    def why_unchecked(self, extent: Extent, most_work: int = MAX_WORK) -> str | None:
        """Why content of this extent is not checked; None where it is."""
        cost, _, depth, bits = self.profile
        if extent.depth > depth:
            return f"nested too deep; expected at most {depth} levels, as far as its schema is checked"
        if extent.bits > bits:
            return f"holds a number too large or too small to be compared; expected at most {bits} bits"
        if extent.size * cost > most_work:
            return "too large to be checked against its schema; expected smaller messages or a simpler schema"
        return None

    def has_few_errors(self, extent: Extent) -> bool:
        """Whether errors may be listed. Those of branches hold those below them."""
        return extent.size * self.profile.errors * max(1, extent.depth / 4) <= MAX_LISTED

    def problems(self, value: Any, extent: Extent, most: int = MAX_PROBLEMS) -> list[str]:
        """What is wrong with ``value``, in short texts that do not quote it. Never raises."""
        unchecked = self.why_unchecked(extent)
        if unchecked is not None:
            return [unchecked]
        try:
            if self.validator.is_valid(value):
                return []
            if not self.has_few_errors(extent):
                return ["does not match its schema (too large or too deep to say where)"]
            return [_describe_error(error) for error in islice(self.validator.iter_errors(value), most)]
        except Exception as error:  # the validator refuses what JSON cannot hold: lone surrogates, odd keys
            return [_short(f"cannot be checked: {error}")]


def compile_schema(
    schema: Any, where: str = "schema", effort: Effort | None = None, *, known: Profile | None = None
) -> BoundedSchema:
    """Refuse a schema that is not valid or not safe to run, else make it ready to run. ``known`` is its profile, where
    it was found before: most of the time goes there."""
    profile = known or _analyse(schema, where, effort or Effort())
    # Without its own name, no reference can mean one of the schemas that the library knows by name.
    plain = {key: item for key, item in schema.items() if key != "$id"} if isinstance(schema, dict) else schema
    try:
        validator = jsonschema_rs.Draft202012Validator(
            plain, mask="the value", pattern_options=_REGEX, offline=True, validate_formats=False
        )
    except jsonschema_rs.ValidationError as error:
        at = _short(where + _pointer(error.instance_path))
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Format) and error.kind.format == "regex":
            raise ValidationFailed(
                f"{at} is not a usable pattern; expected a regular expression without lookaround and"
                " backreferences, and not too large"
            ) from None
        raise ValidationFailed(_short(f"{at} is not valid JSON Schema 2020-12: {error.message}")) from None
    except ValueError as error:
        raise ValidationFailed(_short(f"{where} is not valid JSON Schema 2020-12: {error}")) from None
    return BoundedSchema(validator, profile)


def _analyse(schema: Any, where: str, effort: Effort) -> Profile:
    if not isinstance(schema, dict | bool):
        raise ValidationFailed(f"{where} is {describe(schema)}; expected a JSON Schema: an object or a boolean")
    extent = measure(schema)
    if extent.depth > MAX_NESTING:
        raise ValidationFailed(f"{where} is nested too deep; expected at most {MAX_NESTING} levels")
    if extent.bits > _NUMBER_BITS:
        raise ValidationFailed(f"{where} has a number too large or too small; expected {_NUMBER_BITS} bits at most")
    return _profile(_graph(schema, where, effort), where, effort)


def measure(value: Any) -> Extent:
    """The walk ends where it is too much."""
    values, characters, bits, depth, level = 0, 0, 0, -1, [value]
    while level and depth <= MAX_DEPTH and values <= MAX_WORK:
        below: list[Any] = []
        values += len(level)
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
                characters += sum(len(key) for key in each if isinstance(key, str))
            elif isinstance(each, list | tuple):
                below.extend(each)
            elif isinstance(each, str):
                characters += len(each)
            elif isinstance(each, int):
                bits = max(bits, each.bit_length())
            elif isinstance(each, float) and each and not _SMALLEST < abs(each) < _LARGEST:
                bits = _ANY_BITS
            if isinstance(each, dict | list | tuple) and not each:
                below.append(None)  # an empty container is a level too
        level = below
        depth += 1
    return Extent(values + characters // CHARACTERS_OF_A_VALUE, depth, bits)


def _has_long_number(data: bytes) -> bool:
    """Whether there may be one, in a few passes in C. Texts may look like it: then the walk finds none."""
    digits = data.translate(_DIGITS)
    return any(long in digits for long in _LONG_NUMBERS)


# -- the graph of a schema, and what checking against it can cost --


@dataclass(slots=True)
class _Node:
    """One subschema and where it leads. ``named``, ``other`` and ``wild``: for objects, then for arrays."""

    weight: int = 2
    errors: int = 1
    unique: int = 0
    """What it costs beside that, for each value below."""
    bits: int = _ANY_BITS
    place: list[int] = field(default_factory=list)
    named: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    other: list[int | None] = field(default_factory=lambda: [None, None])
    wild: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The keyword, the name or index under it (or ""), and the subschema, for each subschema."""
    for keyword in _KEYWORDS & schema.keys():
        value = schema[keyword]
        if keyword in _MAPS and isinstance(value, dict):
            for name, item in value.items():
                if not isinstance(item, list):  # `dependencies` may hold lists of names
                    yield keyword, str(name), item
        elif keyword in _LISTS and isinstance(value, list):
            for index, item in enumerate(value):
                yield keyword, str(index), item
        elif keyword not in _MAPS | _LISTS:
            yield keyword, "", value


def _graph(root: dict[str, Any] | bool, where: str, effort: Effort) -> list[_Node]:
    """Every subschema of the schema, with its references resolved; the root is the first."""
    effort.subschema(where)
    nodes = [_Node()]
    places = {"": 0}
    refs: list[tuple[int, str, str]] = []
    todo: list[tuple[int, str, Any]] = [(0, "", root)]
    while todo:
        number, path, schema = todo.pop()
        if not isinstance(schema, dict):
            continue  # a boolean; anything else is for the meta-schema to refuse
        node = nodes[number]
        _weigh(node, schema, where, effort)
        if schema.get("$schema", DIALECT) not in (DIALECT, DIALECT + "#"):
            raise ValidationFailed(f"{where}{path}/$schema is another dialect; expected {DIALECT} or none")
        if "$id" in schema and path:
            raise ValidationFailed(f"{where}{path}/$id changes the base of references; expected one at the root only")
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str) and places.setdefault(name, number) != number:
                raise ValidationFailed(_short(f"{where}{path}/{keyword} repeats {name!r}; expected unique anchors"))
        refs += [(number, f"{path}/{key}", schema[key]) for key in _REFS if isinstance(schema.get(key), str)]
        for keyword, name, item in _subschemas(schema):
            child = len(nodes)
            effort.subschema(where)
            nodes.append(_Node())
            tail = _pointer([keyword, name] if keyword in _MAPS | _LISTS else [keyword])
            places[path + tail] = child
            todo.append((child, path + tail, item))
            if keyword in _IN_PLACE:
                node.place.append(child)
            elif keyword in _NAMED:
                node.named[_NAMED[keyword]][name] = child
            elif keyword in _OTHER:
                node.other[_OTHER[keyword]] = child
            elif keyword in _WILD:
                node.wild[_WILD[keyword]].append(child)
    for number, path, ref in refs:
        if not ref.startswith("#"):
            raise ValidationFailed(_short(f"{where}{path} is remote; expected a reference that starts with '#'"))
        target = places.get(unquote(ref[1:]))
        if target is None:
            raise ValidationFailed(
                _short(f"{where}{path} is {ref!r}; expected the place of a subschema in this schema")
            )
        nodes[number].place.append(target)
    return nodes


def _weigh(node: _Node, schema: dict[str, Any], where: str, effort: Effort) -> None:
    """What one look at this subschema costs (units of 5 ns, measured with jsonschema_rs 0.60 and rounded up), and how
    many errors it can find."""
    names = [schema.get("required"), *(_members(schema, "dependentRequired") + _members(schema, "dependencies"))]
    listed = sum(1 + len(each) for each in names if isinstance(each, list))
    options = [*_members(schema, "enum"), schema.get("const")]
    # Text alone is looked up by its hash; beside anything else it is compared too.
    of_number = _WHOLE_COMPARISON if schema.get("type") == "integer" else _COMPARISON
    comparing = sum(_comparison(option, of_number) for option in options)
    cost = comparing + (4 * len(options) if comparing else 0)
    keyed = schema.get("patternProperties")
    for pattern in (schema.get("pattern"), *(keyed if isinstance(keyed, dict) else ())):
        if isinstance(pattern, str):
            effort.pattern(where)
            cost += _pattern_cost(pattern)
    cost += sum(_SLOW[keyword] for keyword in _SLOW.keys() & schema.keys())
    node.weight = 2 + len(schema) + 4 * listed + cost
    node.errors = 1 + len(schema) + listed
    if schema.get("uniqueItems") is not None:
        node.unique, node.bits = _UNIQUE, _UNIQUE_BITS
    elif comparing or _SLOW.keys() & schema.keys():
        node.bits = _NUMBER_BITS


def _comparison(option: Any, of_number: int) -> int:
    """With an option of ``enum`` or ``const``. Text is looked up; a container is compared with all that is in it."""
    if isinstance(option, str | bool | None):
        return 0
    cost, pending = 0, [option]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        cost += of_number if isinstance(value, int | float) else _OTHER_COMPARISON
    return cost


def _members(schema: dict[str, Any], keyword: str) -> list[Any]:
    """The values below a keyword, whatever stands there: the meta-schema has not judged it yet."""
    value = schema.get(keyword)
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _pattern_cost(pattern: str) -> int:
    """The engine is linear in the text, times the size of the pattern when that is bad."""
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=_SMALL_REGEX)
    except ValueError:
        return _LARGE_PATTERN
    return _PATTERN


def _profile(nodes: list[_Node], where: str, effort: Effort) -> Profile:
    """The most that one value can cost, the most errors it can have, and the depth up to which that holds.

    Level by level, from the root down: how often, at most, is each subschema applied to one and the same
    value? A member is met by ``properties`` under its name, or else by ``additionalProperties`` of the
    same subschema, and by all that is "wild". What must be unique is looked at again by each level above that asks
    for it. Upper bounds: which branch fails first is not considered.
    """
    reach = _closures(nodes, where, effort)
    bits = min(node.bits for node in nodes)

    def spread(entries: dict[int, int]) -> Counter[int]:
        out: Counter[int] = Counter()
        for target, count in entries.items():
            effort.steps(len(reach[target]), where)
            for each, times in reach[target].items():
                out[each] += count * times
        return out

    def price(visits: dict[int, int]) -> tuple[int, int]:
        cost = sum(nodes[each].weight * count for each, count in visits.items())
        return cost, sum(nodes[each].errors * count for each, count in visits.items())

    level: dict[int, int] = reach[0]
    worst, errors = price(level)
    above = 0
    for depth in range(1, MAX_DEPTH + 1):
        below: dict[int, int] = {}
        cost = most = 0
        unique = sum(nodes[each].unique * count for each, count in level.items())
        above += unique
        for kind in (0, 1):
            wild: Counter[int] = Counter()
            named: defaultdict[str, Counter[int]] = defaultdict(Counter)
            for number, count in level.items():
                node = nodes[number]
                other = node.other[kind]
                for target in node.wild[kind] if other is None else [*node.wild[kind], other]:
                    wild[target] += count
                for name, target in node.named[kind].items():
                    named[name][target] += count
                    if other is not None:
                        named[name][other] -= count
            common = spread(wild)
            for entries in ({}, *named.values()):
                visits = spread(entries)
                visits += common
                effort.steps(len(visits), where)
                cost, most = map(max, price(visits), (cost, most))
                for each, count in visits.items():
                    below[each] = max(below.get(each, 0), count)
        cost += above
        if cost > MAX_COST:
            if depth <= MIN_DEPTH:
                raise ValidationFailed(f"{where} would check one value too often; expected {_ADVICE}")
            return Profile(worst, errors, depth - 1, bits)
        worst, errors = max(worst, cost), max(errors, most)
        if not below or (below == level and not unique):
            break
        level = below
    return Profile(worst, errors, MAX_DEPTH, bits)


_ADVICE = (
    "fewer allOf, anyOf, oneOf and $ref that lead to the same subschema, and fewer numbers in enum or a type of "
    "integer beside them"
)


def _closures(nodes: list[_Node], where: str, effort: Effort) -> list[Counter[int]]:
    """For each subschema, how often it and those it applies to the same value are looked at."""
    reach: list[Counter[int]] = [Counter() for _ in nodes]
    height = [0] * len(nodes)
    try:
        order = list(TopologicalSorter({n: node.place for n, node in enumerate(nodes)}).static_order())
    except CycleError:
        raise ValidationFailed(
            f"{where} has a reference that leads back to itself for the same value; expected recursion"
            " through properties or items only"
        ) from None
    for number in order:
        reach[number][number] = 1
        for target in nodes[number].place:
            reach[number].update(reach[target])
            height[number] = max(height[number], 1 + height[target])
        effort.steps(len(reach[number]), where)
        if height[number] > MAX_CHAIN:
            raise ValidationFailed(f"{where} has a chain of references too long; expected at most {MAX_CHAIN}")
        if sum(nodes[each].weight * count for each, count in reach[number].items()) > MAX_COST:
            raise ValidationFailed(f"{where} would check one value too often; expected {_ADVICE}")
    return reach


# -- small helpers --


def _canonical(value: Any, where: str) -> bytes:
    """JSON with sorted keys and no spaces: the same bytes for the same schema, however it was written."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (ValueError, TypeError, RecursionError):
        raise ValidationFailed(f"{where} cannot be written as JSON; expected plain JSON, not nested too deep") from None


def _describe_error(error: jsonschema_rs.ValidationError) -> str:
    at = _pointer(error.instance_path)
    return _short(f"at {_short(at, 80) or 'the root'}: {error.message}")


def _pointer(path: list[str | int] | list[str]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _short(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
