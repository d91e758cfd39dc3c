"""What participants report of themselves (spec 3.9.4), and of the memory that they have freed (3.9.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mewstream.client import untrusted
from mewstream.client.messages import without_none

_STATUS = ("messages_in_context", "tokens", "max_tokens", "status")
_COMPACTED = ("freed_tokens", "freed_messages", "skipped", "reason", "status")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a participant: how many messages it keeps in its context, how many tokens these are of how many that
    it can take, and a word for what it does. ``extra`` holds all other figures, with names like ``latency_ms``."""

    messages_in_context: int = 0
    tokens: int | None = None
    max_tokens: int | None = None
    status: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the payload of a ``participant/status``."""
        named = without_none(**{name: getattr(self, name) for name in _STATUS})
        return {**self.extra, **named}


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a participant has freed when it compacted its memory. ``skipped`` says that it freed nothing, and ``reason``
    why."""

    freed_tokens: int | None = None
    freed_messages: int | None = None
    skipped: bool = False
    reason: str | None = None
    status: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the payload of a ``participant/compact-done``."""
        named = without_none(**{name: getattr(self, name) for name in _COMPACTED})
        return {**self.extra, **(named if self.skipped else {k: v for k, v in named.items() if k != "skipped"})}


def status_of(payload: Mapping[str, Any]) -> Status:
    """Return the status in a payload, which may contain anything."""
    return Status(
        untrusted.number(payload.get("messages_in_context")) or 0,
        untrusted.number(payload.get("tokens")),
        untrusted.number(payload.get("max_tokens")),
        untrusted.text(payload.get("status")),
        {key: value for key, value in payload.items() if key not in _STATUS},
    )


def compacted_of(payload: Mapping[str, Any]) -> Compacted:
    """The same for what was freed."""
    return Compacted(
        untrusted.number(payload.get("freed_tokens")),
        untrusted.number(payload.get("freed_messages")),
        payload.get("skipped") is True,
        untrusted.text(payload.get("reason")),
        untrusted.text(payload.get("status")),
        {key: value for key, value in payload.items() if key not in _COMPACTED},
    )
