"""The centrepiece: who wrote to which stream when, under which right, and how the right passed from one to another.

Each stream is a group of lanes, one for each of its writers. The pale band in a lane is the time for which its
participant held the right to write, the line below it the time for which it owned the stream, the solid pieces are when
it wrote. Marks are grants, transfers, revocations and the ends of streams.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from mewstream.query.report.data import TOP_WRITERS, ReportData, Span
from mewstream.query.report.formatting import (
    BAD,
    GOOD,
    LEGEND,
    OTHERS,
    WARN,
    Figure,
    Piece,
    bars,
    colours_of,
    escape,
    format_count,
    format_duration,
    format_time,
    iso,
    lanes_axis,
    shorten,
    stream_name,
    time_axis,
)

LANE_PIXELS = 24
HEADER_LANES = 1.25
"""The room for the name of a stream, in lanes."""
_MARGIN_PIXELS = 96
#: Heights, and how far below the middle of its lane a line stands, in lanes.
_HELD, _WROTE, _OWNED, _OWNED_BELOW = 0.72, 0.46, 0.1, 0.44
#: How far above the middle of its lane a mark stands: at the middle it would hide the few frames right after a grant.
_MARK_ABOVE, _MARK_PIXELS = 0.36, 8
#: A single frame is seen too, however long the time is that the picture shows: some pixels, at any width and zoom.
_OUTLINE_PIXELS = 3

#: What happened to a right -> (name in the legend, symbol, colour).
_MARKS: dict[str, tuple[str, str, str]] = {
    "grant": ("grant", "triangle-up", GOOD),
    "auto_grant": ("grant", "triangle-up", GOOD),
    "transfer": ("transfer of ownership", "diamond", WARN),
    "revoked": ("revoked", "triangle-down", BAD),
    "expired": ("expired or spent", "hourglass", OTHERS),
    "max_frames": ("expired or spent", "hourglass", OTHERS),
    "left": ("left", "x-thin", OTHERS),
}


@dataclass
class _Lane:
    participant: str | None
    """None: all who have no lane of their own."""
    y: float = 0.0


@dataclass
class _Group:
    stream: int
    lanes: list[_Lane] = field(default_factory=list)
    header_y: float = 0.0

    def lane(self, participant: str | None) -> _Lane | None:
        return next((lane for lane in self.lanes if lane.participant == participant), None)


def timeline(data: ReportData) -> Figure | None:
    """None if there is no stream."""
    if data.span is None or not data.streams:
        return None
    groups = _groups(data)
    lanes = [lane for group in groups for lane in group.lanes]
    bottom = max(lane.y for lane in lanes) + 0.7
    colours = colours_of(lane.participant for lane in lanes if lane.participant is not None)
    traces = [
        *_lives(data, data.span, groups),
        *_held(data, data.span, groups, colours),
        *_wrote(data, groups, colours),
        *_marks(data, groups),
    ]
    with_space = data.space_count > 1
    headers = [
        {
            "xref": "paper",
            "x": 0,
            "y": group.header_y,
            "xanchor": "left",
            "yanchor": "middle",
            "showarrow": False,
            "text": f"<b>{escape(stream_name(data.streams[group.stream], with_space=with_space))}</b>"
            f"  {_in_words(data.streams[group.stream])}",
            "font": {"size": 12},
        }
        for group in groups
    ]
    layout = {
        "height": round(bottom * LANE_PIXELS) + _MARGIN_PIXELS,
        "barmode": "overlay",
        "bargap": 0,
        "margin": {"l": 178, "r": 16, "t": 44, "b": 40},
        "xaxis": time_axis(data.span.begin, data.span.end, side="bottom"),
        "yaxis": lanes_axis([bottom, -0.2], [lane.y for lane in lanes], [_label(lane) for lane in lanes]),
        "annotations": headers,
        "legend": {**LEGEND, "y": 1},
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def _groups(data: ReportData) -> list[_Group]:
    """Streams in the order of their beginning, each with its lanes; all with their places from the top."""
    weight: dict[int, dict[str | None, int]] = defaultdict(lambda: defaultdict(int))
    for right in data.rights:
        weight[right["stream"]][right["participant"]] += 0
    others = {piece["stream"] for piece in data.writes if piece["sender"] is None}
    for piece in data.writes:
        if piece["sender"] is not None:
            weight[piece["stream"]][piece["sender"]] += piece["frames"]
    groups, y = [], 0.0
    for number in sorted(range(len(data.streams)), key=lambda each: (data.streams[each]["begin"] or 0, each)):
        known = sorted(weight[number], key=lambda each: (-weight[number][each], str(each)))[:TOP_WRITERS]
        group = _Group(number, [_Lane(each) for each in known] or [_Lane(data.streams[number]["owner"])])
        if number in others:
            group.lanes.append(_Lane(None))
        group.header_y = y + HEADER_LANES / 2
        y += HEADER_LANES
        for lane in group.lanes:
            lane.y = y + 0.5
            y += 1
        y += 0.25
        groups.append(group)
    return groups


def _label(lane: _Lane) -> str:
    return "other writers" if lane.participant is None else escape(shorten(lane.participant, 22))


def _in_words(stream: dict[str, Any]) -> str:
    frames = "no frames" if not stream["frames"] else f"{format_count(stream['frames'])} frames"
    return f"<span style='opacity:0.7'>{frames}, {escape(stream['status'])}</span>"


def _lives(data: ReportData, span: Span, groups: list[_Group]) -> list[Figure]:
    """From when until when each stream lived, as a thin line under its name."""
    x: list[Any] = []
    y: list[Any] = []
    for group in groups:
        stream = data.streams[group.stream]
        x += [iso(stream["begin"] or span.begin), iso(stream["end"] or span.end), None]
        y += [group.header_y + HEADER_LANES / 2 - 0.08] * 2 + [None]
    line = {"color": OTHERS, "width": 1.5}
    return [
        {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip", "showlegend": False}
    ]


def _held(data: ReportData, span: Span, groups: list[_Group], colours: dict[str | None, str]) -> list[Figure]:
    """The time for which a right was held (a band) and for which the stream was owned (a line below it)."""
    by_stream = {group.stream: group for group in groups}
    held: dict[tuple[str, str], list[Piece]] = defaultdict(list)
    for right in data.rights:
        lane = by_stream[right["stream"]].lane(right["participant"])
        if lane is not None:
            until = right["until"] if right["until"] is not None else span.end
            place = (lane.y, _HELD) if right["right"] == "write" else (lane.y + _OWNED_BELOW, _OWNED)
            held[right["participant"], right["right"]].append((right["from"], until, *place, _right_in_words(right)))
    return [
        bars(name, colours[name], pieces, opacity=0.28 if right == "write" else 0.85, showlegend=False)
        for (name, right), pieces in sorted(held.items())
    ]


def _wrote(data: ReportData, groups: list[_Group], colours: dict[str | None, str]) -> list[Figure]:
    by_stream = {group.stream: group for group in groups}
    wrote: dict[str | None, list[Piece]] = defaultdict(list)
    for piece in data.writes:
        lane = by_stream[piece["stream"]].lane(piece["sender"])
        if lane is None:
            continue
        begin, end = piece["from"], piece["until"]
        name = "other writers" if piece["sender"] is None else piece["sender"]
        count = (
            "1 frame"
            if piece["frames"] == 1
            else f"{format_count(piece['frames'])} frames in {format_duration(end - begin)}"
        )
        said = f"<b>{escape(shorten(name))}</b> wrote {count}<br>{format_time(begin)}"
        wrote[piece["sender"]].append((begin, end, lane.y, _WROTE, said))
    return [
        bars(name or "other writers", colours[name], wrote[name], outline=_OUTLINE_PIXELS, showlegend=False)
        for name in sorted(wrote, key=lambda each: (each is None, str(each)))
    ]


def _right_in_words(right: dict[str, Any]) -> str:
    who = escape(shorten(right["participant"]))
    what = "owned it" if right["right"] == "own" else "might write"
    given = f"by {right['given_how']} of {escape(shorten(right['granted_by']))}" if right["granted_by"] else ""
    lines = [f"<b>{who}</b> {what} {given}".rstrip(), f"from {format_time(right['from'])}"]
    if right["reason"]:
        lines.append(f"because: {escape(shorten(right['reason'], 60))}")
    if right["max_frames"] is not None:
        lines.append(
            f"good for {format_count(right['max_frames'])} frames, {format_count(right['frames_used'] or 0)} used"
        )
    if right["expires"] is not None:
        lines.append(f"good until {format_time(right['expires'])}")
    if right["until"] is not None:
        lines.append(f"until {format_time(right['until'])}: {right['ended_how']}")
    return "<br>".join(lines)


def _marks(data: ReportData, groups: list[_Group]) -> list[Figure]:
    """Grants, transfers and how rights ended, one trace for each sort."""
    by_stream = {group.stream: group for group in groups}
    found: dict[tuple[str, str, str], list[tuple[int, float, str]]] = defaultdict(list)
    for right in data.rights:
        lane = by_stream[right["stream"]].lane(right["participant"])
        if lane is None:
            continue
        how = right["given_how"]
        is_transfer = how == "transfer"
        if how in _MARKS and (right["right"] == "own") == is_transfer:
            found[_MARKS[how]].append((right["from"], lane.y, _given_in_words(right)))
        ended = right["ended_how"]
        if right["right"] == "write" and ended in _MARKS and ended != "transfer" and right["until"] is not None:
            found[_MARKS[ended]].append((right["until"], lane.y, _ended_in_words(right)))
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label,
            "x": [iso(at) for at, _, _ in marks],
            "y": [y - _MARK_ABOVE for _, y, _ in marks],
            "customdata": [said for _, _, said in marks],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {
                "symbol": symbol,
                "size": _MARK_PIXELS,
                "color": colour,
                "line": {"width": 1.6, "color": colour} if "thin" in symbol else {"width": 1, "color": "#fff"},
            },
        }
        for (label, symbol, colour), marks in sorted(found.items())
    ]


def _given_in_words(right: dict[str, Any]) -> str:
    who, by = escape(shorten(right["participant"])), escape(shorten(right["granted_by"]))
    verb = "made owner" if right["right"] == "own" else "let write"
    why = f"<br>{escape(shorten(right['reason'], 60))}" if right["reason"] else ""
    return f"<b>{who}</b> {verb} by {by}{why}<br>{format_time(right['from'])}, seq {right['from_seq']}"


def _ended_in_words(right: dict[str, Any]) -> str:
    by = f" by {escape(shorten(right['ended_by']))}" if right["ended_by"] else ""
    why = f"<br>{escape(shorten(right['end_reason'], 60))}" if right["end_reason"] else ""
    return (
        f"the right of <b>{escape(shorten(right['participant']))}</b> ended: {right['ended_how']}{by}{why}"
        f"<br>{format_time(right['until'])}, seq {right['until_seq']}"
    )
