"""What a list of capabilities allows (the section "Capabilities" of the protocol)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mewstream.audit.records import Unjudged
from mewstream.protocol.patterns import MAX_NODES, MAX_STEPS, Budget, Malformed, Pattern, Undecidable

MAX_PATTERNS = 256
_PRIVILEGED = [Pattern(kind, Budget(MAX_NODES)) for kind in ("capability/*", "gateway/*", "space/*", "system/*")]
_UNCERTAIN = "what the capabilities say of it is not certain"


class Held:
    """A compiled list. A question raises :class:`Unjudged` if its answer is not certain."""

    def __init__(self, patterns: Iterable[Any]) -> None:
        budget = Budget(MAX_NODES)
        try:
            self._patterns = [Pattern(each, budget) for each in patterns]
        except (Malformed, Undecidable):
            raise Unjudged("a capability is not understood") from None

    def allows(self, kind: str, payload: dict[str, Any] | None) -> bool:
        """``payload`` is None if it is not known."""
        return not self.denies(kind, payload) and self._matches(kind, payload, denials=False)

    def denies(self, kind: str, payload: dict[str, Any] | None) -> bool:
        return self._matches(kind, payload, denials=True)

    def _matches(self, kind: str, payload: dict[str, Any] | None, *, denials: bool) -> bool:
        budget = Budget(MAX_STEPS)
        try:
            relevant = [each for each in self._patterns if each.denies == denials and each.matches_kind(kind, budget)]
            if any(each.payload is None for each in relevant):
                return True
            if payload is not None or not relevant:
                return any(each.payload is not None and each.payload.matches(payload, budget) for each in relevant)
        except Undecidable:
            pass
        raise Unjudged(_UNCERTAIN)

    def holds(self, pattern: Any) -> bool:
        """A single permission includes it, and no denial overlaps with it."""
        asked, budget = _compiled(pattern), Budget(MAX_STEPS)
        try:
            apart = all(each.apart_from(asked, budget) for each in self._patterns if each.denies)
            return apart and any(each.includes(asked, budget) for each in self._patterns if not each.denies)
        except Undecidable:
            raise Unjudged(_UNCERTAIN) from None


def included(pattern: Any, others: list[Any]) -> bool:
    """Whether one of the others includes the pattern."""
    asked, budget = _compiled(pattern), Budget(MAX_STEPS)
    try:
        return any(not each.denies and each.includes(asked, budget) for each in map(_compiled, others))
    except Undecidable:
        raise Unjudged(_UNCERTAIN) from None


def is_ordinary(pattern: Any) -> bool:
    """Whether it can match nothing that changes the rights of others or looks beyond the space."""
    asked, budget = _compiled(pattern), Budget(MAX_STEPS)
    try:
        return asked.denies or all(each.apart_from(asked, budget) for each in _PRIVILEGED)
    except Undecidable:
        raise Unjudged(_UNCERTAIN) from None


def _compiled(pattern: Any) -> Pattern:
    try:
        return Pattern(pattern, Budget(MAX_NODES))
    except (Malformed, Undecidable):
        raise Unjudged("a capability is not understood") from None
