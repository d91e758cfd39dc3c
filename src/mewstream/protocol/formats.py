"""Format descriptors: what is inside a stream, said by its creator, checked here (seed 003, decision 15).

A schema comes from a peer and runs in our process against content of another peer, so both are hostile
until shown otherwise. :func:`parse_formats` refuses, at announce, every schema that could cost more than
its size suggests; :class:`FormatChecker` refuses, per frame, what is left: content too deep or too large
for that schema. The defence is a bound on *visits*: how often one value of the content is looked at.

- References stay inside the schema and land on a subschema, so the graph analysed here is all there is.
- A reference that comes back to itself without descending into the content means nothing: refused.
- ``allOf`` of references that double at each step, or at each level of the content, are counted exactly
  enough (:func:`_profile`): the first is refused, the second sets how deep the content may be.
- Patterns compile under the linear-time engine (no lookaround, no backreference) within a size limit.

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
from threading import Lock
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import msgspec

from mewstream.protocol.errors import LimitExceeded, ValidationFailed
from mewstream.protocol.policy import Limits

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_NESTING = 64
"""Levels of objects and arrays in a schema."""
MAX_SUBSCHEMAS = 2_048
MAX_CHAIN = 32
"""Subschemas applied to one value, each by the one before. With MAX_DEPTH it bounds the native stack."""
MAX_DEPTH = 128
"""Levels of objects and arrays in content that is checked."""
MIN_DEPTH = 8
"""A schema that cannot be checked this deep is refused at announce."""
MAX_COST = 20_000
"""Keyword checks that one value of the content may cost; one is about 5 ns."""
MAX_WORK = 20_000_000
"""Keyword checks that one message may cost: about 0.1 s."""
MAX_PROBLEMS = 5
MAX_TEXT = 200
_DETAILED = 100_000  # possible errors up to which they are listed: the library makes all, 8 us each
_ANALYSIS = 400_000  # steps of the analysis itself
_CACHED = 256
_REGEX = jsonschema_rs.RegexOptions(size_limit=64 << 10, dfa_size_limit=1 << 20)
_SMALL_REGEX = jsonschema_rs.RegexOptions(size_limit=16 << 10)

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
_NDJSON = frozenset({"x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines"})


def parse_formats(value: Any, *, limits: Limits) -> list[dict[str, Any]]:
    """Check ``payload.formats`` and return its descriptors, with ``schema_hash`` where there is a schema.

    All other fields are kept as they came; a ``schema_hash`` sent by the client is not. Raises
    :class:`ValidationFailed` or :class:`LimitExceeded` that name the entry.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValidationFailed(f"formats is {_kind(value)}; expected an array of format descriptors")
    if len(value) > limits.formats_per_stream:
        raise LimitExceeded(
            f"formats has {len(value)} entries; at most {limits.formats_per_stream} are allowed",
            limit="formats_per_stream",
        )
    seen: dict[str, int] = {}
    parsed = []
    for index, entry in enumerate(value):
        where = f"formats[{index}]"
        if not isinstance(entry, dict):
            raise ValidationFailed(f"{where} is {_kind(entry)}; expected an object with an id")
        name = entry.get("id")
        if not isinstance(name, str) or not name:
            raise ValidationFailed(f"{where}.id is {_kind(name)}; expected a non-empty string")
        if len(name.encode("utf-8", "surrogatepass")) > limits.id_bytes:
            raise ValidationFailed(f"{where}.id is too long; expected at most {limits.id_bytes} bytes")
        if name in seen:
            raise ValidationFailed(f"{where}.id repeats that of formats[{seen[name]}]; expected unique ids")
        seen[name] = index
        for key in ("description", "mime_type"):
            if not isinstance(entry.get(key), str | None):
                raise ValidationFailed(f"{where}.{key} is {_kind(entry[key])}; expected a string")
        descriptor = {key: item for key, item in entry.items() if key != "schema_hash"}
        if entry.get("schema") is not None:
            descriptor["schema_hash"] = check_schema(entry["schema"], limits=limits, where=f"{where}.schema")
        parsed.append(descriptor)
    return parsed


def check_schema(schema: Any, *, limits: Limits, where: str = "schema") -> str:
    """Refuse a schema that is not valid JSON Schema 2020-12 or not safe to run; return its hash."""
    text = _canonical(schema, where)
    if len(text) > limits.schema_bytes:
        raise LimitExceeded(
            f"{where} has {len(text)} bytes; at most {limits.schema_bytes} are allowed", limit="schema_bytes"
        )
    _compile(schema, where)
    return hashlib.sha256(text).hexdigest()


class FormatChecker:
    """Says what is wrong with content of one format. Build it with :func:`checker_for`, which caches.

    The answers are at most ``MAX_PROBLEMS`` short texts; they never quote the content, and nothing that
    a peer sends makes a method raise.
    """

    def __init__(self, descriptor: dict[str, Any]) -> None:
        schema = descriptor.get("schema")
        mime, _, options = (descriptor.get("mime_type") or "").lower().partition(";")
        main, _, sub = mime.strip().partition("/")
        charset = options.partition("charset=")[2].split(";")[0].strip(' "')
        self._lines = main == "application" and sub in _NDJSON
        self._json = self._lines or sub == "json" or sub.endswith("+json") or (not main and schema is not None)
        self._utf8 = main == "text" and charset in ("", "utf-8", "utf8", "us-ascii")
        self._schema = _compile(schema, "schema") if schema is not None and self._json else None

    def problems(self, content: Any) -> list[str]:
        """Problems of decoded content, as in ``payload.content`` of a ``stream/data``."""
        if self._schema is None:
            return []
        return self._check(content, _measure(content))

    def problems_in(self, data: bytes, *, text: bool) -> list[str]:
        """Problems of a raw frame. ``text``: it came as a text message, so it is UTF-8 whatever its format."""
        if (text or self._utf8) and not _is_utf8(data):
            return ["not UTF-8; expected text in UTF-8"]
        if not self._json:
            return []
        if not self._lines:
            value, problem = _decode(data)
            return [problem] if problem else self._check(value, self._size(data, value))
        found: list[str] = []
        total = 0
        for number, line in enumerate(data.split(b"\n"), 1):
            if not line.strip():
                continue
            value, problem = _decode(line)
            size, depth = self._size(line, value)
            total += size
            here = [problem] if problem else self._check(value, (total, depth), len(found))
            found += [f"line {number}: {each}" for each in here]
            if len(found) >= MAX_PROBLEMS:
                break
        return found[:MAX_PROBLEMS]

    def _size(self, data: bytes, value: Any) -> tuple[int, int]:
        """Size and depth as :func:`_measure`; where an upper bound from the bytes will do, without a walk."""
        if self._schema is None:
            return 0, 0
        size, depth = len(data) + 1, data.count(b"[") + data.count(b"{")
        return (size, depth) if depth <= self._schema.depth else _measure(value)

    def _check(self, value: Any, measure: tuple[int, int], found: int = 0) -> list[str]:
        schema = self._schema
        if schema is None:
            return []
        size, depth = measure
        if depth > schema.depth:
            return [f"nested too deep; expected at most {schema.depth} levels, as far as its schema is checked"]
        if size * schema.cost > MAX_WORK:
            return ["too large to be checked against its schema; expected smaller messages or a simpler schema"]
        try:
            if schema.validator.is_valid(value):
                return []
            if size * schema.errors * max(1, depth / 4) > _DETAILED:  # errors of branches hold those below them
                return ["does not match its schema (too large or too deep to say where)"]
            return [_describe(error) for error in islice(schema.validator.iter_errors(value), MAX_PROBLEMS - found)]
        except Exception as error:  # the validator refuses what JSON cannot hold: lone surrogates, odd keys
            return [_short(f"cannot be checked: {error}")]


_cache: dict[tuple[str | None, str], FormatChecker] = {}
_cache_lock = Lock()


def checker_for(descriptor: dict[str, Any]) -> FormatChecker:
    """The checker of a descriptor that :func:`parse_formats` returned; the last 256 in use are kept.

    Only for those: the key is their ``schema_hash``, which a descriptor from elsewhere could forge.
    """
    key = (descriptor.get("schema_hash"), descriptor.get("mime_type") or "")
    if key[0] is None and descriptor.get("schema") is not None:
        return FormatChecker(descriptor)
    with _cache_lock:
        checker = _cache.pop(key, None) or FormatChecker(descriptor)
        _cache[key] = checker  # now the most recently used: dicts keep the order of insertion
        if len(_cache) > _CACHED:
            del _cache[next(iter(_cache))]
    return checker


# -- a schema: its graph, and what checking against it can cost --


@dataclass(slots=True)
class _Node:
    """One subschema and where it leads. ``named``, ``other`` and ``wild``: for objects, then for arrays."""

    weight: int = 1
    errors: int = 1
    place: list[int] = field(default_factory=list)
    named: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    other: list[int | None] = field(default_factory=lambda: [None, None])
    wild: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


@dataclass(frozen=True, slots=True)
class _Compiled:
    validator: jsonschema_rs.Draft202012Validator
    cost: int
    errors: int
    depth: int


def _compile(schema: Any, where: str) -> _Compiled:
    if not isinstance(schema, dict | bool):
        raise ValidationFailed(f"{where} is {_kind(schema)}; expected a JSON Schema: an object or a boolean")
    if _measure(schema)[1] > MAX_NESTING:
        raise ValidationFailed(f"{where} is nested too deep; expected at most {MAX_NESTING} levels")
    cost, errors, depth = _profile(_graph(schema, where), where)
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
    return _Compiled(validator, cost, errors, depth)


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


def _graph(root: dict[str, Any] | bool, where: str) -> list[_Node]:
    """Every subschema of the schema, with its references resolved; the root is the first."""
    nodes = [_Node()]
    places = {"": 0}
    refs: list[tuple[int, str, str]] = []
    todo: list[tuple[int, str, Any]] = [(0, "", root)]
    while todo:
        number, path, schema = todo.pop()
        if not isinstance(schema, dict):
            continue  # a boolean; anything else is for the meta-schema to refuse
        node = nodes[number]
        node.weight, node.errors = _weights(schema)
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
            if child >= MAX_SUBSCHEMAS:
                raise ValidationFailed(f"{where} has too many subschemas; expected at most {MAX_SUBSCHEMAS}")
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


def _weights(schema: dict[str, Any]) -> tuple[int, int]:
    """What one look at this subschema costs (units of about 5 ns, measured with jsonschema_rs 0.60), and
    how many errors it can find."""
    errors = 1 + len(schema)
    for keyword in ("required", "dependentRequired"):
        value = schema.get(keyword)
        errors += 4 * len(value) if isinstance(value, dict | list) else 0
    options = schema.get("enum")
    cost = sum(40 for each in options if isinstance(each, dict | list)) if isinstance(options, list) else 0
    keyed = schema.get("patternProperties")
    cost += sum(map(_pattern_cost, [schema.get("pattern"), *(keyed if isinstance(keyed, dict) else ())]))
    return errors + cost + (8 if "uniqueItems" in schema else 0), errors


def _pattern_cost(pattern: Any) -> int:
    """For each character. The engine is linear in the text, times the size of the pattern when that is bad."""
    if not isinstance(pattern, str):
        return 0
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=_SMALL_REGEX)
    except ValueError:
        return 200
    return 40


def _profile(nodes: list[_Node], where: str) -> tuple[int, int, int]:
    """The most that one value can cost, the most errors it can have, and the depth up to which that holds.

    Level by level, from the root down: how often, at most, is each subschema applied to one and the same
    value? A member is met by ``properties`` under its name, or else by ``additionalProperties`` of the
    same subschema, and by all that is "wild". Upper bounds: which branch fails first is not considered.
    """
    reach = _closures(nodes, where)
    steps = 0

    def spread(entries: dict[int, int]) -> Counter[int]:
        nonlocal steps
        out: Counter[int] = Counter()
        for target, count in entries.items():
            steps += len(reach[target])
            for each, times in reach[target].items():
                out[each] += count * times
        return out

    def price(visits: dict[int, int]) -> tuple[int, int]:
        cost = sum(nodes[each].weight * count for each, count in visits.items())
        return cost, sum(nodes[each].errors * count for each, count in visits.items())

    level: dict[int, int] = reach[0]
    worst, errors = price(level)
    for depth in range(1, MAX_DEPTH + 1):
        below: dict[int, int] = {}
        cost = most = 0
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
            for visits in (Counter[int](), *map(spread, named.values())):
                visits += common
                steps += len(visits)
                cost, most = map(max, price(visits), (cost, most))
                for each, count in visits.items():
                    below[each] = max(below.get(each, 0), count)
            if steps > _ANALYSIS:
                raise ValidationFailed(f"{where} is too entangled; expected fewer references between subschemas")
        if cost > MAX_COST:
            if depth <= MIN_DEPTH:
                raise ValidationFailed(f"{where} would check one value too often; expected {_ADVICE}")
            return worst, errors, depth - 1
        worst, errors = max(worst, cost), max(errors, most)
        if not below or below == level:
            break
        level = below
    return worst, errors, MAX_DEPTH


_ADVICE = "fewer allOf, anyOf, oneOf and $ref that lead to the same subschema"


def _closures(nodes: list[_Node], where: str) -> list[Counter[int]]:
    """For each subschema, how often it and those it applies to the same value are looked at."""
    reach: list[Counter[int]] = [Counter() for _ in nodes]
    height = [0] * len(nodes)
    total = 0
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
        total += len(reach[number])
        if height[number] > MAX_CHAIN:
            raise ValidationFailed(f"{where} has a chain of references too long; expected at most {MAX_CHAIN}")
        if sum(nodes[each].weight * count for each, count in reach[number].items()) > MAX_COST:
            raise ValidationFailed(f"{where} would check one value too often; expected {_ADVICE}")
        if total > _ANALYSIS:
            raise ValidationFailed(f"{where} is too entangled; expected fewer references between subschemas")
    return reach


# -- small helpers --


def _canonical(value: Any, where: str) -> bytes:
    """JSON with sorted keys and no spaces: the same bytes for the same schema, however it was written."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (ValueError, TypeError, RecursionError):
        raise ValidationFailed(f"{where} cannot be written as JSON; expected plain JSON, not nested too deep") from None


def _measure(value: Any) -> tuple[int, int]:
    """How many values and characters there are, and how many levels; the walk ends where it is too much."""
    size, depth, level = 0, -1, [value]
    while level and depth <= MAX_DEPTH and size <= MAX_WORK:
        below: list[Any] = []
        size += len(level)
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
                size += sum(len(key) for key in each if isinstance(key, str))
            elif isinstance(each, list | tuple):
                below.extend(each)
            elif isinstance(each, str):
                size += len(each)
            if isinstance(each, dict | list | tuple) and not each:
                below.append(None)  # an empty container is a level too
        level = below
        depth += 1
    return size, depth


def _decode(data: bytes) -> tuple[Any, str]:
    try:
        return msgspec.json.decode(data), ""
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return None, _short(f"not valid JSON: {error}")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _describe(error: jsonschema_rs.ValidationError) -> str:
    at = _pointer(error.instance_path)
    return _short(f"at {_short(at, 80) or 'the root'}: {error.message}")


def _pointer(path: list[str | int] | list[str]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _short(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _kind(value: Any) -> str:
    if value is None:
        return "missing or null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string" if value else "an empty string"
    return "an object" if isinstance(value, dict) else "an array" if isinstance(value, list) else "a number"
