"""Time in the log is an integer: microseconds since 1970 in UTC. On the wire it is RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)\Z")

_FIRST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - _EPOCH) // _MICROSECOND

SECOND = 1_000_000


def rfc3339(micros: int) -> str:
    """``2026-01-31T12:00:00.123456Z``: always six digits, so that texts sort as times do."""
    return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds")[:26] + "Z"


def parse_rfc3339(text: str) -> int | None:
    """Parse an RFC 3339 text into microseconds. Returns None if it is not valid. A time zone is required."""
    if len(text) > 40 or not _RFC3339.match(text):
        return None
    # Python takes at most six digits of a fraction.
    trimmed = re.sub(r"(\.\d{6})\d+", r"\1", text.upper().replace(" ", "T"))
    try:
        micros = (datetime.fromisoformat(trimmed) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None
    # A time zone can push a time out of the years that can be written.
    return micros if _FIRST <= micros <= _LAST else None
