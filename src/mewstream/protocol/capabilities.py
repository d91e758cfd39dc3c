"""What a participant may send: a compiled list of ``{kind, payload?}`` patterns (:mod:`.patterns`).

A message is allowed if one permission matches it and no denial does. If finding out would take more than ``MAX_STEPS``
steps, it is not allowed.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mewstream.protocol.errors import ValidationFailed
from mewstream.protocol.patterns import (
    MAX_NODES,
    MAX_STEPS,
    MAX_STRING,
    Budget,
    Malformed,
    Pattern,
    PayloadNode,
    Undecidable,
)

MAX_PATTERNS: Final = 256
_CACHED_KINDS: Final = 256


class _Decision(NamedTuple):
    """What a list says about a kind. ``verdict`` is None if it depends on the payload."""

    verdict: bool | None
    judges_payload: bool
    granting: tuple[PayloadNode, ...] | None
    """None if the kind is granted with any payload, unless it is denied."""
    denying: tuple[PayloadNode, ...]
    is_denied: bool | None
    """Whether a denial matches; None if it depends on the payload."""


_DENIED: Final = _Decision(False, False, (), (), True)


class MalformedPattern(ValidationFailed):
    """A pattern that cannot be compiled. ``pattern`` is an excerpt of it, ``reason`` what is wrong."""

    def __init__(self, name: str, pattern: object, reason: str) -> None:
        self.pattern = reprlib.repr(pattern)
        self.reason = reason
        super().__init__(f"{name} ({self.pattern}): {reason}")


def _compile_one(pattern: Any, name: str, budget: Budget) -> Pattern:
    try:
        return Pattern(pattern, budget)
    except Malformed as error:
        raise MalformedPattern(name, pattern, str(error)) from None
    except Undecidable:
        reason = f"the list is too large; expected {MAX_NODES} values, large expressions counted manifold"
        raise MalformedPattern(name, pattern, reason) from None


class Capabilities:
    """An immutable, compiled list of patterns.

    Keys of a pattern other than ``kind`` and ``payload`` (``id``, ``reason``, ...) have no effect, and :meth:`as_list`
    returns them. Raises :exc:`ValidationFailed` with the index of the pattern if one is malformed.
    """

    __slots__ = ("_decisions", "_identity", "_json", "_patterns")

    def __init__(self, patterns: Sequence[Mapping[str, Any] | str]) -> None:
        if not isinstance(patterns, list | tuple):
            raise ValidationFailed(f"capabilities are {reprlib.repr(patterns)}; expected a list of patterns")
        if len(patterns) > MAX_PATTERNS:
            raise ValidationFailed(f"capabilities have {len(patterns)} patterns; expected at most {MAX_PATTERNS}")
        budget = Budget(MAX_NODES)
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
        budget = Budget(MAX_STEPS)
        try:
            if decision.granting is not None and not any(node.matches(payload, budget) for node in decision.granting):
                return False
            return not any(node.matches(payload, budget) for node in decision.denying)
        except Undecidable:
            return False

    def permitting(self, kind: str, payload: Any) -> int | None:
        """The index of the first permission that allows ``kind`` with ``payload``, or None if it is not allowed. This
        is for explaining a decision; :meth:`allows` is faster."""
        if not self.allows(kind, payload):
            return None
        budget = Budget(MAX_STEPS)
        try:
            for place, pattern in enumerate(self._patterns):
                if pattern.denies or not pattern.matches_kind(kind, budget):
                    continue
                if pattern.payload is None or pattern.payload.matches(payload, budget):
                    return place
        except Undecidable:
            pass
        return None

    def denies(self, kind: str, payload: Any) -> bool:
        """Whether a denial matches. A denial also wins over a right that does not come from this list."""
        decision = self._decisions.get(kind) or self._decide(kind)
        if decision.is_denied is not None:
            return decision.is_denied
        budget = Budget(MAX_STEPS)
        try:
            return any(node.matches(payload, budget) for node in decision.denying)
        except Undecidable:
            return True

    def may_allow(self, kind: str) -> bool:
        """Whether there may be a payload with which the holder may send ``kind``."""
        return (self._decisions.get(kind) or self._decide(kind)).verdict is not False

    def judges_payload(self, kind: str) -> bool:
        """Whether a pattern for ``kind`` depends on the payload, which must be decoded then."""
        return (self._decisions.get(kind) or self._decide(kind)).judges_payload

    def first_not_covered(self, patterns: Sequence[Mapping[str, Any] | str]) -> Mapping[str, Any] | str | None:
        """Return the first of these patterns that the holder may not give to another, because it allows something
        beyond the holder's rights, or None if there is no such pattern.

        None is certain; a pattern may be returned out of caution, because one single permission of the holder must
        include it, and no denial may touch it. A denial can always be given. However many patterns there are, they are
        judged within one budget. Raises :exc:`ValidationFailed` if a pattern is malformed.
        """
        compiling, judging = Budget(MAX_NODES), Budget(MAX_STEPS)
        for pattern in patterns:
            granted = _compile_one(pattern, "capability pattern", compiling)
            try:
                if not granted.denies and not self._includes(granted, judging):
                    return pattern
            except Undecidable:
                return pattern
        return None

    def _includes(self, granted: Pattern, budget: Budget) -> bool:
        return all(held.apart_from(granted, budget) for held in self._patterns if held.denies) and any(
            held.includes(granted, budget) for held in self._patterns if not held.denies
        )

    def taking(self, held: Capabilities) -> set[int]:
        """The indexes of the patterns in another list that a revoke of these patterns takes away: all that allow
        nothing beyond one of these. Raises :exc:`ValidationFailed` if there is too much to compare."""
        budget = Budget(MAX_STEPS)
        taken = set()
        try:
            for place, granted in enumerate(held._patterns):
                for pattern in self._patterns:
                    budget.spend()
                    if not pattern.denies and pattern.includes(granted, budget):
                        taken.add(place)
                        break
        except Undecidable:
            raise ValidationFailed(
                "there is too much to compare: revoke fewer patterns at once, or by grant_id"
            ) from None
        return taken

    def as_list(self) -> list[dict[str, Any]]:
        """A copy of the patterns, in order, with a bare string as ``{"kind": ...}``."""
        copy: list[dict[str, Any]] = json.loads(self._json)
        return copy

    def _decide(self, kind: str) -> _Decision:
        if len(kind) > MAX_STRING:
            return _DENIED
        budget = Budget(MAX_STEPS)
        try:
            relevant = [pattern for pattern in self._patterns if pattern.matches_kind(kind, budget)]
        except Undecidable:
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
            True if None in denying else None if denying else False,
        )
        # Kinds come from the network, and invented ones must not fill the memory.
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

_PRIVILEGED: Final = Capabilities(["capability/*", "gateway/*", "space/*", "system/*"])


def is_privileged(pattern: Mapping[str, Any] | str) -> bool:
    """Whether a pattern may allow changing the rights of others, or looking beyond the space: whether it can match a
    kind of ``capability/*``, ``gateway/*``, ``space/*`` or ``system/*``, as ``*``, ``s*`` and ``*/*`` do. True if that
    is too much to find out."""
    compiled = _compile_one(pattern, "capability pattern", Budget(MAX_NODES))
    if compiled.denies:
        return False
    try:
        budget = Budget(MAX_STEPS)
        return not all(each.apart_from(compiled, budget) for each in _PRIVILEGED._patterns)
    except Undecidable:
        return True
