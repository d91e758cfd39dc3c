"""Lists of capabilities that one participant gives another: their form, their bounds, and what may be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mewstream.protocol import kinds
from mewstream.protocol.capabilities import MAX_PATTERNS, Capabilities
from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import CapabilityViolation, InvalidOperation, LimitExceeded, ValidationFailed
from mewstream.protocol.policy import Limits
from mewstream.protocol.state import SpaceState


def pattern_list(value: Any) -> list[Any]:
    """Check the shape only. Patterns are compiled later, if the sender may grant anything."""
    if not isinstance(value, list) or not value or not all(isinstance(each, dict | str) for each in value):
        raise ValidationFailed("payload.capabilities must be a non-empty list of patterns", field="capabilities")
    return value


def patterns_of(given: list[Any], limits: Limits, *, beside: list[dict[str, Any]] | None = None) -> Capabilities:
    """Compile patterns. With those that a participant has already (``beside``) they must not be too many."""
    listed = [*(beside or ()), *given]
    if len(listed) > MAX_PATTERNS or len(encode_json(listed)) > limits.capability_list_bytes:
        raise LimitExceeded(
            f"more than {MAX_PATTERNS} patterns or {limits.capability_list_bytes} bytes of capabilities for one "
            "participant",
            limit="capability_list_bytes",
        )
    patterns = Capabilities(given)
    if beside:
        Capabilities(listed)  # each may be small enough, and all together too large
    for pattern in patterns.as_list():
        if pattern["kind"].lstrip("!").startswith((kinds.WRITE_PROJECTION, kinds.READ_PROJECTION)):
            raise InvalidOperation(
                f"{pattern['kind']} mirrors the writers and readers of a stream: "
                f"use {kinds.GRANT_WRITE} or {kinds.GRANT_READ}"
            )
    return patterns


def require_held(state: SpaceState, sender: str, patterns: Sequence[dict[str, Any]], otherwise: str) -> None:
    pattern = state.capabilities(sender).first_not_covered(patterns)
    if pattern is not None:
        kind = pattern["kind"] if isinstance(pattern, Mapping) else pattern
        raise CapabilityViolation(
            f"{otherwise}: {kind}",
            attempted_kind=kind,
            **state.repeated_capabilities(sender),
        )
