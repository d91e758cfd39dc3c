"""Checks of content against JSON Schemas, which need the extra ``schemas``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mewstream.extras import require

if TYPE_CHECKING:
    from mewstream.protocol.formats import FormatChecker


def require_schema_checks() -> None:
    """Raise :class:`ConfigError`, which tells what to install, if content cannot be checked here."""
    require("schemas", who="checking content against a JSON Schema")


def checker_of(descriptor: dict[str, Any]) -> FormatChecker:
    """Return the checker of a format. Raises :class:`ConfigError` if content cannot be checked here."""
    require_schema_checks()
    from mewstream.protocol.formats import FormatChecker

    return FormatChecker(descriptor)
