"""Values from the wire, of which nothing is certain. Each function returns a value of its type, and an empty one or
None for anything else: a gateway's mistake is never an exception."""

from __future__ import annotations

from typing import Any


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
