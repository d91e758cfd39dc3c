"""The language of capability patterns: what ``{kind, payload?}`` matches, compiled and bounded.

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

import math
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import re2

MAX_STRING: Final = 1024
"""Bytes of UTF-8 in one string or key of a pattern; also the longest kind that can be allowed."""
MAX_DEPTH: Final = 64
"""Levels of nesting in a pattern, and steps in a JSONPath."""
MAX_NODES: Final = 4096
"""Values in all patterns of one list together, which compile in at most some 20 ms. A glob or an expression counts
``EXPRESSION_NODES`` more, and once more per ``NODE_SIZE`` instructions; a step of a path counts as a value."""
EXPRESSION_NODES: Final = 7
NODE_SIZE: Final = 4
MAX_STEPS: Final = 50_000
REGEX_WORK: Final = 64
"""With these two, one question costs about 25 ms at most, and an ordinary expression can judge 128 KiB of text."""
_REGEX_MEMORY: Final = 256 << 10
_COMPILING: Final = 100  # steps


class Malformed(ValueError):
    """A pattern that cannot be compiled. The text says what is wrong and what was expected."""


class Undecidable(Exception):
    """The answer would cost too much, or the text cannot be judged."""


class Budget:
    """The steps that are left for one question."""

    __slots__ = ("_left",)

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise Undecidable


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
            raise Malformed(
                f"RE2 does not accept it: {text[:200]}; expected RE2 syntax, which has no "
                "look-around and no back-references"
            ) from None
        self._find = compiled.fullmatch if glob else compiled.search
        self.size: int = compiled.programsize

    def found_in(self, text: str, budget: Budget) -> bool:
        try:
            data = text.encode()  # bytes: for str, re2 would also map the offsets back
        except UnicodeEncodeError:  # a lone surrogate; "no match" would satisfy a negation
            raise Undecidable from None
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


# -- payload patterns: each node answers ``matches(value, budget)`` --


@dataclass(frozen=True, slots=True)
class _Literal:
    value: str | int | float | bool | None

    def matches(self, value: Any, budget: Budget) -> bool:
        budget.spend()
        # In Python True == 1, in JSON it is not.
        return isinstance(value, bool) is isinstance(self.value, bool) and bool(value == self.value)


class _Text:
    """A glob, a regular expression, or the negation of a string of any form."""

    __slots__ = ("_negated", "_widened", "glob", "regex", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._widened: _Regex | None = None
        """Made when it is asked for: one question may ask it of thousands."""
        self._negated = source.startswith("!")
        body = source[1:] if self._negated else source
        if self._negated and (not body or body.startswith("!")):
            raise Malformed(f'{source[:80]!r} negates nothing; expected one "!" and then a string')
        is_regex = _is_regex(body)
        self.glob = None if is_regex or self._negated else body
        if is_regex:
            self.regex = _Regex(body[1:-1], glob=False)
        else:
            self.regex = _glob_regex(body, star="[^/]*" if "/" in body else ".*")

    def matches(self, value: Any, budget: Budget) -> bool:
        budget.spend()
        return isinstance(value, str) and self.regex.found_in(value, budget) is not self._negated

    def includes(self, other: _Text, budget: Budget) -> bool:
        """Whether every string that ``other`` matches is surely matched by this."""
        if self.source == other.source or set(self.source) == {"*"}:
            return True
        if self.glob is None or other.glob is None or "\0" in self.glob:
            return False
        # Match the text of the other glob: its stars can only fall within ours. NUL stands for its `**`,
        # which must not fall within a `*` that stops at `/`. (One with `/` never matches one without.)
        text = re.sub(r"\*{2,}", "\0", other.glob) if "/" in other.glob else other.glob
        if self._widened is None:
            budget.spend(_COMPILING)
            try:
                self._widened = _glob_regex(self.glob, star=r"[^/\x00]*" if "/" in self.glob else ".*")
            except Malformed:  # NUL made it just too large
                return False
        return self._widened.found_in(text, budget)


@dataclass(frozen=True, slots=True)
class _AnyOf:
    options: tuple[PayloadNode, ...]

    def matches(self, value: Any, budget: Budget) -> bool:
        budget.spend()
        return any(option.matches(value, budget) for option in self.options)


@dataclass(frozen=True, slots=True)
class _Object:
    """Fields are selected by key (``str``) or by a path (``tuple``) that may find several values."""

    fields: tuple[tuple[str | _Path, PayloadNode], ...]

    def matches(self, value: Any, budget: Budget) -> bool:
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


PayloadNode: TypeAlias = _Literal | _Text | _AnyOf | _Object


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


def _select(root: Any, path: _Path, budget: Budget) -> Iterator[Any]:
    """Everything in ``root`` that ``path`` leads to, lazily: the first match ends the search."""
    found: Iterator[Any] = iter((root,))
    for step in path:
        found = _advance(found, step, budget)
    return found


def _advance(nodes: Iterator[Any], step: _Step, budget: Budget) -> Iterator[Any]:
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


# -- compiling --


def _is_regex(text: str) -> bool:
    return len(text) > 2 and text.startswith("/") and text.endswith("/")


def _plain(value: Any, depth: int, budget: Budget) -> Any:
    """A copy made of JSON types only and within the bounds, so that the rest need not check again."""
    budget.spend()
    if depth > MAX_DEPTH:
        raise Malformed(f"it is nested too deep; expected at most {MAX_DEPTH} levels")
    if isinstance(value, str):
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise Malformed(f"{value[:80]!r} is not valid Unicode; expected no lone surrogates") from None
        if size > MAX_STRING:
            raise Malformed(f"{value[:80]!r}... has {size} bytes; expected at most {MAX_STRING} in a string")
        return value
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise Malformed(f"the key {reprlib.repr(key)} is not a string; expected strings as keys")
        return {_plain(key, depth, budget): _plain(item, depth + 1, budget) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1, budget) for item in value]
    raise Malformed(f"{reprlib.repr(value)} is not a JSON value; expected what JSON can express")


def _compile(value: Any, budget: Budget) -> PayloadNode:
    if isinstance(value, dict):
        fields = [(_selector(key, budget), _compile(item, budget)) for key, item in value.items()]
        # Plain keys first: they are cheap, and what they refuse needs no search.
        return _Object(tuple(sorted(fields, key=lambda field: isinstance(field[0], tuple))))
    if isinstance(value, list):
        return _AnyOf(tuple(_compile(item, budget) for item in value))
    if isinstance(value, str) and ("*" in value or value.startswith("!") or _is_regex(value)):
        try:
            text = _Text(value)
        except Malformed as error:
            raise Malformed(f"in the payload, {value[:80]!r}: {error}") from None
        budget.spend(EXPRESSION_NODES + text.regex.size // NODE_SIZE)
        return text
    return _Literal(value)


def _selector(key: str, budget: Budget) -> str | _Path:
    if key == "**":
        return (_WITHIN,)
    if not key.startswith("$"):
        return key
    steps: list[_Step] = []
    position = 1
    while position < len(key) and (found := _PATH_STEP.match(key, position)):
        budget.spend()
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
        raise Malformed(
            f"the JSONPath {key[:80]!r} is not supported from character {position}; use 1 to {MAX_DEPTH} of "
            ".name ['name'] [0] [*] .* ..name after the $ (a key that itself starts with $: $['$key'])"
        )
    return tuple(steps)


class Pattern:
    """One ``{kind, payload?}``."""

    __slots__ = ("_regex", "denies", "kind", "payload", "source")

    def __init__(self, pattern: Any, budget: Budget) -> None:
        if not isinstance(pattern, Mapping | str):
            raise Malformed('it is neither an object nor a string; expected {"kind": ..., "payload": ...}')
        self.source: dict[str, Any] = _plain({"kind": pattern} if isinstance(pattern, str) else pattern, 0, budget)
        kind = self.source.get("kind")
        text = kind if isinstance(kind, str) else ""
        self.denies = text.startswith("!")
        self.kind = text.removeprefix("!")
        if not self.kind or self.kind.startswith("!"):
            wrong = f"its kind is {reprlib.repr(kind)}" if "kind" in self.source else "it has no kind"
            raise Malformed(f'{wrong}; expected "*", a glob like "mcp/*" or a kind, with "!" before it to deny')
        self._regex = _glob_regex(self.kind, star=".*") if "*" in self.kind else None
        if self._regex is not None:
            budget.spend(EXPRESSION_NODES + self._regex.size // NODE_SIZE)
        self.payload: PayloadNode | None = None
        if "payload" in self.source:
            payload = self.source["payload"]
            options = payload if isinstance(payload, list) else [payload]
            # `payload:` left empty in YAML is null: neither "any payload" nor "none" may be guessed from it.
            if not all(isinstance(option, dict) for option in options):
                raise Malformed("its payload is not an object; expected an object or a list of objects")
            self.payload = _compile(payload, budget)

    def matches_kind(self, kind: str, budget: Budget) -> bool:
        return kind == self.kind if self._regex is None else self._regex.found_in(kind, budget)

    def includes(self, granted: Pattern, budget: Budget) -> bool:
        # The granted glob is matched as text: where it has a `*`, only a `*` of ours can match it.
        if not self.matches_kind(granted.kind, budget):
            return False
        if self.payload is None:
            return True
        return granted.payload is not None and _includes(self.payload, granted.payload, budget)

    def apart_from(self, granted: Pattern, budget: Budget) -> bool:
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


# -- what a pattern includes, and what it has nothing in common with --


def _includes(held: PayloadNode, granted: PayloadNode, budget: Budget) -> bool:
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


def _apart(denied: PayloadNode, granted: PayloadNode, budget: Budget) -> bool:
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
