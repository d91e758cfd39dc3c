"""What all figures share: escaping, colours, axes, and the formatting of times and numbers."""

from __future__ import annotations

import html
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

Figure = dict[str, Any]
"""What plotly.js draws: ``data`` and ``layout``. Names in it are escaped, because plotly reads its texts as HTML."""

Piece = tuple[int, int, float, float, str]
"""A bar: from, until, the middle of its height, its height, and what it is in words."""

LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"}
#: Told apart by most eyes, on white and on black.
COLOURS = ("#4c8dff", "#f28e2b", "#22b07d", "#b07cf0", "#e5586b", "#17b3c7", "#c9a227", "#e377c2", "#7f9c3b", "#9c755f")
OTHERS = "#8a94a6"
GOOD, BAD, WARN = "#22b07d", "#e5484d", "#f5a524"
_LONGEST_NAME = 26
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def escape(text: object) -> str:
    """Escape untrusted text for plotly and HTML. Plotly takes what is between dollars for TeX."""
    return html.escape(str(text), quote=True).replace("$", "&#36;")


def shorten(text: object, longest: int = _LONGEST_NAME) -> str:
    """Shorten a name by leaving out its middle. The result is not escaped yet."""
    name = "".join(each if each.isprintable() else "·" for each in str(text))
    if len(name) <= longest:
        return name
    head = (longest - 1) * 2 // 3
    return f"{name[:head]}…{name[head - longest + 1 :]}"


def iso(millis: int) -> str:
    """Format a time for an axis, in UTC."""
    return (_EPOCH + timedelta(milliseconds=millis)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def format_time(millis: int) -> str:
    """Format a time for people, in UTC."""
    return (_EPOCH + timedelta(milliseconds=millis)).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_duration(millis: float) -> str:
    """Format a duration: 340 ms, 12.5 s, 3 min, 2 h, 5 days."""
    for limit, unit, size in (
        (1000, "ms", 1),
        (120_000, "s", 1000),
        (7_200_000, "min", 60_000),
        (172_800_000, "h", 3_600_000),
    ):
        if abs(millis) < limit:
            return f"{millis / size:.3g} {unit}"
    return f"{millis / 86_400_000:.3g} days"


def format_count(number: float) -> str:
    """Format a count: 1,234 or 12.3 M."""
    if abs(number) < 100_000:
        return f"{number:,.0f}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def format_bytes(size: float) -> str:
    """Format a number of bytes: 340 B, 12.3 kB, 5 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            return f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError


def colours_of(names: Iterable[str | None]) -> dict[str | None, str]:
    """A colour for each name, the same in every figure; after the last colour they come again."""
    known: dict[str | None, str] = {None: OTHERS}
    for name in names:
        if name not in known:
            known[name] = COLOURS[(len(known) - 1) % len(COLOURS)]
    return known


def time_axis(begin: int, end: int, **more: Any) -> dict[str, Any]:
    margin = max((end - begin) // 100, 20)
    return {"type": "date", "range": [iso(begin - margin), iso(end + margin)], "showgrid": True, **more}


def lanes_axis(extent: list[float], places: list[Any], names: list[str]) -> dict[str, Any]:
    """The axis of a picture whose rows have names, from its bottom to its top."""
    fixed = {"showgrid": False, "zeroline": False, "fixedrange": True}
    return {"range": extent, "tickvals": places, "ticktext": names, **fixed}


def bars(name: str, colour: str, pieces: list[Piece], *, outline: int = 0, **more: Any) -> Figure:
    """Pieces of time, in the rows of a picture."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": escape(shorten(name, 40)),
        "base": [iso(begin) for begin, _, _, _, _ in pieces],
        "x": [max(end - begin, 1) for begin, end, _, _, _ in pieces],
        "y": [y for _, _, y, _, _ in pieces],
        "width": [height for _, _, _, height, _ in pieces],
        "customdata": [said for _, _, _, _, said in pieces],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": colour, "line": {"width": outline, "color": colour}},
        **more,
    }


def stream_name(stream: dict[str, Any], *, with_space: bool) -> str:
    """``arena/stream-3 · hero``. Not escaped yet."""
    name = f"{stream['space']}/{stream['stream_id']}" if with_space else str(stream["stream_id"])
    said = stream.get("alias") or stream.get("description")
    return f"{name} · {shorten(said, 44)}" if said else name
