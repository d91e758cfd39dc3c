"""What a participant may send: a compiled list of ``{kind, payload?}`` patterns.

The pattern language (``WIRE.md``, Capabilities), with what it leaves open settled here:

``kind``
    Exact, or with ``*`` for any characters, ``/`` included. A leading ``!`` denies what the rest matches;
    with a payload pattern, only what that matches too. A denial wins over every permission, whatever the
    order. Only denials: nothing is allowed.
``payload``, an object or a list of alternatives
    * object: the value is an object too and has *at least* these keys. The key ``**`` is satisfied by the
      object itself or anything within it; a key that starts with ``$`` is a JSONPath from that object
      (``$.a``, ``$['a']``, ``[0]``, ``[*]``, ``.*``, ``$..a``), satisfied by any one thing it finds.
    * list: any of. It is never compared with a list in the payload.
    * ``/regex/``: a string that starts and ends with ``/`` is an RE2 expression, found anywhere unless
      anchored. So ``/public/`` is the expression ``public`` and not a path; write ``/public/**`` for that.
    * string: exact, or a glob if it has a ``*``. If the glob has a ``/``, ``*`` stops at ``/`` and ``**``
      does not. Globs judge text, not file names: ``/public/../etc`` matches ``/public/**``.
    * ``!`` before a glob or ``/regex/``: a *string* that does not match. A missing key or a value of another
      type never satisfies it, so wrapping a forbidden name in a list does not get it past.
    * number, boolean, null: the same value; ``1`` is ``1.0`` but not ``true``.

What peers send cannot hang the gateway: RE2 needs no backtracking, recursion follows the pattern (at most
``MAX_DEPTH`` levels) and never the payload, and one call spends at most ``MAX_STEPS`` steps over all patterns
together: one per value looked at, and one more per ``REGEX_WORK`` units of (bytes of text x size of the
compiled expression). Whoever exceeds it, or sends text that is not Unicode, is denied: a question that cannot
be answered must not become a permission.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import re2

from mewstream.protocol.errors import ValidationFailed

MAX_PATTERNS: Final = 256
MAX_STRING: Final = 1024
"""Bytes of UTF-8 in one string or key of a pattern; also the longest kind that can be allowed."""
MAX_DEPTH: Final = 64
"""Levels of nesting in a pattern, and steps in a JSONPath."""
MAX_NODES: Final = 4096
"""Values in all patterns of one list together; an expression counts once more per ``NODE_SIZE`` instructions."""
NODE_SIZE: Final = 64
MAX_STEPS: Final = 50_000
REGEX_WORK: Final = 256
"""With these two, the worst expression costs about 0.1 s, and an ordinary one can judge 256 KiB of text."""
_REGEX_MEMORY: Final = 256 << 10
_CACHED_KINDS: Final = 256


class _Malformed(ValueError):
    """A pattern that cannot be compiled. The text says what is wrong and what was expected."""


class _Undecidable(Exception):
    """The answer would cost too much, or the text cannot be judged."""


class _Budget:
    """The steps that are left for one question."""

    __slots__ = ("_left",)

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise _Undecidable


class _Regex:
    """An RE2 expression that charges for its worst case."""

    __slots__ = ("_find", "size")

    def __init__(self, source: str, *, glob: bool) -> None:
        options = re2.Options()
        options.max_mem = _REGEX_MEMORY
        options.log_errors = False  # they would go to stderr, whatever the application wants
        options.never_capture = True
        options.dot_nl = glob
        try:
            compiled = re2.compile(source, options)
        except re2.error as error:
            reason = error.args[0] if error.args else "unknown error"
            text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise _Malformed(
                f"RE2 does not accept it: {text[:200]}; expected RE2 syntax, which has no "
                "look-around and no back-references"
            ) from None
        self._find = compiled.fullmatch if glob else compiled.search
        self.size: int = compiled.programsize

    def found_in(self, text: str, budget: _Budget) -> bool:
        try:
            data = text.encode()  # bytes: for str, re2 would also map the offsets back
        except UnicodeEncodeError:  # a lone surrogate; "no match" would satisfy a negation
            raise _Undecidable from None
        budget.spend(1 + len(data) * self.size // REGEX_WORK)
        return self._find(data) is not None


def _glob_regex(glob: str, *, star: str) -> _Regex:
    """``glob`` with ``*`` as ``star``; two or more in a row match anything."""
    parts = re.split(r"(\*+)", glob)  # text and stars alternate
    parts[::2] = [re2.escape(part) for part in parts[::2]]
    parts[1::2] = [star if part == "*" else ".*" for part in parts[1::2]]
    return _Regex("".join(parts), glob=True)


def _globs_apart(one: str, other: str) -> bool:
    """Whether two globs surely have no text in common, judged by their fixed beginnings and ends."""
    if "*" not in one and "*" not in other:
        return one != other
    head, other_head = one.split("*", 1)[0], other.split("*", 1)[0]
    tail, other_tail = one.rsplit("*", 1)[-1], other.rsplit("*", 1)[-1]
    return not (head.startswith(other_head) or other_head.startswith(head)) or not (
        tail.endswith(other_tail) or other_tail.endswith(tail)
    )


# Payload patterns. Each node answers ``matches(value, budget)``.


@dataclass(frozen=True, slots=True)
class _Literal:
    value: str | int | float | bool | None

    def matches(self, value: Any, budget: _Budget) -> bool:
        budget.spend()
        # In Python True == 1, in JSON it is not.
        return isinstance(value, bool) is isinstance(self.value, bool) and bool(value == self.value)


class _Text:
    """A glob, a regular expression, or the negation of a string of any form."""

    __slots__ = ("_negated", "glob", "regex", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._negated = source.startswith("!")
        body = source[1:] if self._negated else source
        if self._negated and (not body or body.startswith("!")):
            raise _Malformed(f'{source[:80]!r} negates nothing; expected one "!" and then a string')
        is_regex = _is_regex(body)
        self.glob = None if is_regex or self._negated else body
        if is_regex:
            self.regex = _Regex(body[1:-1], glob=False)
        else:
            self.regex = _glob_regex(body, star="[^/]*" if "/" in body else ".*")

    def matches(self, value: Any, budget: _Budget) -> bool:
        budget.spend()
        return isinstance(value, str) and self.regex.found_in(value, budget) is not self._negated

    def includes(self, other: _Text, budget: _Budget) -> bool:
        """Whether every string that ``other`` matches is surely matched by this."""
        if self.source == other.source or set(self.source) == {"*"}:
            return True
        if self.glob is None or other.glob is None or "\0" in self.glob:
            return False
        # Match the text of the other glob: its stars can only fall within ours. NUL stands for its `**`,
        # which must not fall within a `*` that stops at `/`. (One with `/` never matches one without.)
        text = re.sub(r"\*{2,}", "\0", other.glob) if "/" in other.glob else other.glob
        try:
            widened = _glob_regex(self.glob, star=r"[^/\x00]*" if "/" in self.glob else ".*")
        except _Malformed:  # NUL made it just too large
            return False
        return widened.found_in(text, budget)


@dataclass(frozen=True, slots=True)
class _AnyOf:
    options: tuple[_Node, ...]

    def matches(self, value: Any, budget: _Budget) -> bool:
        budget.spend()
        return any(option.matches(value, budget) for option in self.options)


@dataclass(frozen=True, slots=True)
class _Object:
    """Fields are selected by key (``str``) or by a path (``tuple``) that may find several values."""

    fields: tuple[tuple[str | _Path, _Node], ...]

    def matches(self, value: Any, budget: _Budget) -> bool:
        budget.spend()
        if not isinstance(value, dict):
            return False
        for selector, node in self.fields:
            if isinstance(selector, str):
                if selector not in value or not node.matches(value[selector], budget):
                    return False
            elif not any(node.matches(found, budget) for found in _select(value, selector, budget)):
                return False
        return True


_Node: TypeAlias = _Literal | _Text | _AnyOf | _Object


class _Step(NamedTuple):
    """One step of a path: ``key``, ``index``, ``each`` child, or ``within``: itself and all descendants."""

    op: str
    arg: str | int = ""


_Path: TypeAlias = tuple[_Step, ...]
_WITHIN: Final = _Step("within")
_NAME: Final = r"[^\W\d][\w-]*"
_PATH_STEP: Final = re.compile(
    rf"(?P<within>\.)?\.(?P<name>{_NAME})|(?P<each>\.\*|\[\*\])|\[(?P<index>[0-9]{{1,9}})\]"
    r"""|\['(?P<single>[^'\\]+)'\]|\["(?P<double>[^"\\]+)"\]"""
)


def _select(root: Any, path: _Path, budget: _Budget) -> Iterator[Any]:
    """Everything in ``root`` that ``path`` leads to, lazily: the first match ends the search."""
    found: Iterator[Any] = iter((root,))
    for step in path:
        found = _advance(found, step, budget)
    return found


def _advance(nodes: Iterator[Any], step: _Step, budget: _Budget) -> Iterator[Any]:
    op, arg = step
    for node in nodes:
        budget.spend()
        if op == "within":
            pending = [node]  # not recursion: the depth is the sender's choice
            while pending:
                budget.spend()
                value = pending.pop()
                yield value
                pending.extend(_children(value))
        elif op == "each":
            yield from _children(node)
        elif op == "key":
            if isinstance(node, dict) and arg in node:
                yield node[arg]
        elif isinstance(node, list) and isinstance(arg, int) and arg < len(node):
            yield node[arg]


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


# Compiling


def _is_regex(text: str) -> bool:
    return len(text) > 2 and text.startswith("/") and text.endswith("/")


def _plain(value: Any, depth: int, budget: _Budget) -> Any:
    """A copy made of JSON types only and within the bounds, so that the rest need not check again."""
    budget.spend()
    if depth > MAX_DEPTH:
        raise _Malformed(f"it is nested too deep; expected at most {MAX_DEPTH} levels")
    if isinstance(value, str):
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise _Malformed(f"{value[:80]!r} is not valid Unicode; expected no lone surrogates") from None
        if size > MAX_STRING:
            raise _Malformed(f"{value[:80]!r}... has {size} bytes; expected at most {MAX_STRING} in a string")
        return value
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _Malformed(f"the key {reprlib.repr(key)} is not a string; expected strings as keys")
        return {_plain(key, depth, budget): _plain(item, depth + 1, budget) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1, budget) for item in value]
    raise _Malformed(f"{reprlib.repr(value)} is not a JSON value; expected what JSON can express")


def _compile(value: Any, budget: _Budget) -> _Node:
    if isinstance(value, dict):
        fields = [(_selector(key), _compile(item, budget)) for key, item in value.items()]
        # Plain keys first: they are cheap, and what they refuse needs no search.
        return _Object(tuple(sorted(fields, key=lambda field: isinstance(field[0], tuple))))
    if isinstance(value, list):
        return _AnyOf(tuple(_compile(item, budget) for item in value))
    if isinstance(value, str) and ("*" in value or value.startswith("!") or _is_regex(value)):
        try:
            text = _Text(value)
        except _Malformed as error:
            raise _Malformed(f"in the payload, {value[:80]!r}: {error}") from None
        budget.spend(text.regex.size // NODE_SIZE)
        return text
    return _Literal(value)


def _selector(key: str) -> str | _Path:
    if key == "**":
        return (_WITHIN,)
    if not key.startswith("$"):
        return key
    steps: list[_Step] = []
    position = 1
    while position < len(key) and (found := _PATH_STEP.match(key, position)):
        position = found.end()
        if found["within"]:
            steps.append(_WITHIN)
        if found["each"]:
            steps.append(_Step("each"))
        elif found["index"]:
            steps.append(_Step("index", int(found["index"])))
        else:
            steps.append(_Step("key", found["name"] or found["single"] or found["double"]))
    if position < len(key) or not 0 < len(steps) <= MAX_DEPTH:
        raise _Malformed(
            f"the JSONPath {key[:80]!r} is not supported from character {position}; use 1 to {MAX_DEPTH} of "
            ".name ['name'] [0] [*] .* ..name after the $ (a key that itself starts with $: $['$key'])"
        )
    return tuple(steps)


class _Pattern:
    """One ``{kind, payload?}``."""

    __slots__ = ("_regex", "denies", "kind", "payload", "source")

    def __init__(self, pattern: Any, budget: _Budget) -> None:
        if not isinstance(pattern, Mapping | str):
            raise _Malformed('it is neither an object nor a string; expected {"kind": ..., "payload": ...}')
        self.source: dict[str, Any] = _plain({"kind": pattern} if isinstance(pattern, str) else pattern, 0, budget)
        kind = self.source.get("kind")
        self.denies = isinstance(kind, str) and kind.startswith("!")
        self.kind: str = kind[1:] if isinstance(kind, str) and self.denies else kind or ""
        if not isinstance(kind, str) or not self.kind or self.kind.startswith("!"):
            wrong = f"its kind is {reprlib.repr(kind)}" if "kind" in self.source else "it has no kind"
            raise _Malformed(f'{wrong}; expected "*", a glob like "mcp/*" or a kind, with "!" before it to deny')
        self._regex = _glob_regex(self.kind, star=".*") if "*" in self.kind else None
        if self._regex is not None:
            budget.spend(self._regex.size // NODE_SIZE)
        self.payload: _Node | None = None
        if "payload" in self.source:
            payload = self.source["payload"]
            options = payload if isinstance(payload, list) else [payload]
            # `payload:` left empty in YAML is null: neither "any payload" nor "none" may be guessed from it.
            if not all(isinstance(option, dict) for option in options):
                raise _Malformed("its payload is not an object; expected an object or a list of objects")
            self.payload = _compile(payload, budget)

    def matches_kind(self, kind: str, budget: _Budget) -> bool:
        return kind == self.kind if self._regex is None else self._regex.found_in(kind, budget)

    def includes(self, granted: _Pattern, budget: _Budget) -> bool:
        # The granted glob is matched as text: where it has a `*`, only a `*` of ours can match it.
        if not self.matches_kind(granted.kind, budget):
            return False
        if self.payload is None:
            return True
        return granted.payload is not None and _includes(self.payload, granted.payload, budget)

    def apart_from(self, granted: _Pattern, budget: _Budget) -> bool:
        """Whether surely no message matches both."""
        if _globs_apart(self.kind, granted.kind):
            return True
        if "*" not in granted.kind and not self.matches_kind(granted.kind, budget):
            return True
        if "*" not in self.kind and not granted.matches_kind(self.kind, budget):
            return True
        if self.payload is None or granted.payload is None:
            return False
        return _apart(self.payload, granted.payload, budget)


def _includes(held: _Node, granted: _Node, budget: _Budget) -> bool:
    """Whether ``held`` surely matches every value that ``granted`` matches."""
    budget.spend()
    if isinstance(granted, _AnyOf):
        return all(_includes(held, option, budget) for option in granted.options)
    if isinstance(held, _AnyOf):
        return any(_includes(option, granted, budget) for option in held.options)
    if isinstance(granted, _Literal):
        return held.matches(granted.value, budget)
    if isinstance(held, _Text) and isinstance(granted, _Text):
        return held.includes(granted, budget)
    if isinstance(held, _Object) and isinstance(granted, _Object):
        # Each demand of ours must follow from one of theirs; what they demand beyond that only narrows.
        offered = dict(granted.fields)
        return all(key in offered and _includes(node, offered[key], budget) for key, node in held.fields)
    return False


def _apart(denied: _Node, granted: _Node, budget: _Budget) -> bool:
    """Whether surely no value matches both."""
    budget.spend()
    if isinstance(granted, _AnyOf):
        return all(_apart(denied, option, budget) for option in granted.options)
    if isinstance(denied, _AnyOf):
        return all(_apart(option, granted, budget) for option in denied.options)
    if isinstance(granted, _Literal):
        return not denied.matches(granted.value, budget)
    if isinstance(denied, _Literal):
        return not granted.matches(denied.value, budget)
    if isinstance(denied, _Object) and isinstance(granted, _Object):
        # Only plain keys: a path may find several values, and another one may match.
        wanted = {key: node for key, node in granted.fields if isinstance(key, str)}
        return any(key in wanted and _apart(node, wanted[key], budget) for key, node in denied.fields)
    if isinstance(denied, _Text) and isinstance(granted, _Text):
        return denied.glob is not None and granted.glob is not None and _globs_apart(denied.glob, granted.glob)
    return True  # one wants a string, the other an object


class _Decision(NamedTuple):
    """What a list says about a kind. ``verdict`` is None if it depends on the payload."""

    verdict: bool | None
    judges_payload: bool
    granting: tuple[_Node, ...] | None
    """None: granted whatever the payload is, unless it is denied."""
    denying: tuple[_Node, ...]


_DENIED: Final = _Decision(False, False, (), ())


def _compile_one(pattern: Any, name: str, budget: _Budget) -> _Pattern:
    try:
        return _Pattern(pattern, budget)
    except _Malformed as error:
        raise ValidationFailed(f"{name} ({reprlib.repr(pattern)}): {error}") from None
    except _Undecidable:
        reason = f"the list is too large; expected {MAX_NODES} values, large expressions counted manifold"
        raise ValidationFailed(f"{name} ({reprlib.repr(pattern)}): {reason}") from None


class Capabilities:
    """An immutable list of patterns, compiled once and asked for every envelope.

    Keys of a pattern other than ``kind`` and ``payload`` (``id``, ``reason``, ...) are kept for
    :meth:`as_list` and have no effect. Raises :exc:`ValidationFailed`, which names the pattern by its index,
    if one is malformed.
    """

    __slots__ = ("_decisions", "_identity", "_json", "_patterns")

    def __init__(self, patterns: Sequence[Mapping[str, Any] | str]) -> None:
        if not isinstance(patterns, list | tuple):
            raise ValidationFailed(f"capabilities are {reprlib.repr(patterns)}; expected a list of patterns")
        if len(patterns) > MAX_PATTERNS:
            raise ValidationFailed(f"capabilities have {len(patterns)} patterns; expected at most {MAX_PATTERNS}")
        budget = _Budget(MAX_NODES)
        self._patterns = tuple(
            _compile_one(pattern, f"capability pattern {index}", budget) for index, pattern in enumerate(patterns)
        )
        sources = [pattern.source for pattern in self._patterns]
        self._json = json.dumps(sources)
        # Text, because in Python [1] == [True], and these are different rights.
        self._identity = json.dumps(sources, sort_keys=True)
        self._decisions: dict[str, _Decision] = {}

    def allows(self, kind: str, payload: Any) -> bool:
        """Whether the holder may send ``kind`` with ``payload`` (decoded JSON; None if there is none)."""
        decision = self._decisions.get(kind) or self._decide(kind)
        if decision.verdict is not None:
            return decision.verdict
        budget = _Budget(MAX_STEPS)
        try:
            if decision.granting is not None and not any(node.matches(payload, budget) for node in decision.granting):
                return False
            return not any(node.matches(payload, budget) for node in decision.denying)
        except _Undecidable:
            return False

    def judges_payload(self, kind: str) -> bool:
        """Whether a pattern for ``kind`` looks at the payload, so that it must be decoded first."""
        return (self._decisions.get(kind) or self._decide(kind)).judges_payload

    def covers(self, pattern: Mapping[str, Any] | str) -> bool:
        """Whether the holder may give ``pattern`` to another: it allows nothing beyond the holder's rights.

        True is certain, False may be over-cautious: one single permission of the holder must include the
        pattern, and no denial may touch it. A denial can always be given. Raises :exc:`ValidationFailed` if
        the pattern is malformed.
        """
        granted = _compile_one(pattern, "capability pattern", _Budget(MAX_NODES))
        if granted.denies:
            return True
        budget = _Budget(MAX_STEPS)
        try:
            return all(held.apart_from(granted, budget) for held in self._patterns if held.denies) and any(
                held.includes(granted, budget) for held in self._patterns if not held.denies
            )
        except _Undecidable:
            return False

    def as_list(self) -> list[dict[str, Any]]:
        """The patterns in order, as a copy that may be changed; a bare string is ``{"kind": ...}``."""
        copy: list[dict[str, Any]] = json.loads(self._json)
        return copy

    def _decide(self, kind: str) -> _Decision:
        if len(kind) > MAX_STRING:
            return _DENIED
        budget = _Budget(MAX_STEPS)
        try:
            relevant = [pattern for pattern in self._patterns if pattern.matches_kind(kind, budget)]
        except _Undecidable:
            return _DENIED
        granting = [pattern.payload for pattern in relevant if not pattern.denies]
        denying = [pattern.payload for pattern in relevant if pattern.denies]
        verdict: bool | None = None
        if not granting or None in denying:
            verdict = False
        elif None in granting and not denying:
            verdict = True
        decision = _Decision(
            verdict,
            any(pattern.payload is not None for pattern in relevant),
            None if None in granting else tuple(node for node in granting if node is not None),
            tuple(node for node in denying if node is not None),
        )
        # Kinds come from the network: whoever invents them must not fill the memory.
        if len(self._decisions) >= _CACHED_KINDS:
            self._decisions.clear()
        self._decisions[kind] = decision
        return decision

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Capabilities) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Capabilities({self._json})"


EMPTY: Final = Capabilities(())
"""Allows nothing."""
