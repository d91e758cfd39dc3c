"""Values on the command line: time spans, sizes and moments, as callbacks of click options."""

from __future__ import annotations

import re
import time
from typing import Any

import click

from mewstream.protocol.times import SECOND, parse_rfc3339

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"": 1, "b": 1} | {
    unit: factor**power
    for power, letter in enumerate("kmgt", 1)
    for unit, factor in ((letter, 1000), (f"{letter}b", 1000), (f"{letter}ib", 1024))
}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\Z")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\Z")


def age(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A time span in seconds: ``90s``, ``15m``, ``12h``, ``7d``, ``2w``."""
    if value is None:
        return None
    match = _AGE.match(value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is no age: expected for instance 90s, 15m, 12h, 7d or 2w")
    return float(match[1]) * _SECONDS[match[2]]


def span(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A time span in seconds: a bare number of them, or with a unit as :func:`age` has."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is no time span: expected for instance 30 (seconds), 1.5s, 15m or 12h")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Bytes: ``10GB`` are 10^10, ``10GiB`` are 10 * 2^30."""
    if value is None:
        return None
    match = _SIZE.match(value.strip().lower())
    if match is None or match[2] not in _BYTES:
        raise click.BadParameter(f"{value!r} is no size: expected for instance 500MB, 10GB or 64MiB")
    return int(float(match[1]) * _BYTES[match[2]])


def moment(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A time in microseconds: RFC 3339, a day (UTC), ``now``, or an age such as ``15m`` before now."""
    if value is None:
        return None
    text = value.strip()
    now = time.time_ns() // 1000
    if text.lower() == "now":
        return now
    if match := _AGE.match(text.lower()):
        return now - int(float(match[1]) * _SECONDS[match[2]] * SECOND)
    micros = parse_rfc3339(f"{text}T00:00:00Z" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text)
    if micros is None:
        raise click.BadParameter(
            f"{value!r} is no time: expected for instance 2026-01-31T12:00:00Z (with a time zone), "
            "2026-01-31, 15m (ago) or now"
        )
    return micros


def json_object(context: click.Context, parameter: click.Parameter, value: str | None) -> dict[str, Any] | None:
    """A JSON object, as a payload is."""
    if value is None:
        return None
    import msgspec

    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"expected a JSON object: {error}") from None
