"""Parsing values of options: durations, sizes and points in time, as callbacks for click."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from mewstream.protocol.times import SECOND, parse_rfc3339
from mewstream.protocol.units import parse_bytes, parse_seconds

Callback = Callable[[click.Context, click.Parameter, str | None], Any]


def time_span(*, least: float = 0.0, needs_unit: bool = False) -> Callback:
    """A time span in seconds, as space.yaml has it: ``30``, ``1.5s``, ``15m``, ``7d``. With ``needs_unit`` a plain
    number is refused: where something is removed, seconds taken for days would be too much."""

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        if needs_unit and value.strip()[-1:].isdigit():
            raise click.BadParameter(f"{value!r} is no age: say the unit too, such as {value.strip()}d")
        try:
            seconds = parse_seconds(value)
        except ValueError as form:
            raise click.BadParameter(f"{value!r} is no time: {form}") from None
        if seconds < least:
            raise click.BadParameter(f"{value!r} is too short: expected at least {least:g} seconds")
        return seconds

    return parse


def size_in_bytes(*, least: int = 0, most: int | None = None) -> Callback:
    """A size in bytes, as space.yaml has it: ``65536``, ``64KiB``, ``10GB``."""

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        try:
            found = parse_bytes(value)
        except ValueError as form:
            raise click.BadParameter(f"{value!r} is no size: {form}") from None
        if found < least or (most is not None and found > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise click.BadParameter(f"{value!r} is out of range: expected {bounds} bytes")
        return found

    return parse


def moment(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A time in microseconds: RFC 3339, a day (UTC), ``now``, or a time span such as ``15m`` before now."""
    if value is None:
        return None
    text = value.strip()
    now = time.time_ns() // 1000
    if text.lower() == "now":
        return now
    if re.fullmatch(r"[0-9.]+\s*[A-Za-z]+", text):
        try:
            return now - int(parse_seconds(text) * SECOND)
        except ValueError as form:
            raise click.BadParameter(f"{value!r} is no time span before now: {form}") from None
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


def retention(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, timedelta]:
    """``90d`` for all tables and ``frames=30d`` for one, as often as wanted."""
    from mewstream.pipeline.tables import PUBLIC

    known = {table.name for table in PUBLIC if table.time is not None}
    parse, kept = time_span(least=86_400, needs_unit=True), {}
    for each in value:
        table, _, age = each.rpartition("=")
        if table and table not in known:
            raise click.BadParameter(
                f"{table!r} is no table whose rows grow old: expected one of {', '.join(sorted(known))}"
            )
        kept[table or "*"] = timedelta(seconds=parse(context, parameter, age) or 0)
    return kept
