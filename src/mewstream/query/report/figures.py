"""The other pictures of the report: activity, rates, latency, refusals, handoffs, sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from mewstream.query.report.data import ReportData, Span
from mewstream.query.report.formatting import (
    BAD,
    COLOURS,
    LEGEND,
    OTHERS,
    WARN,
    Figure,
    Piece,
    bars,
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

_ROW_PIXELS = 22
#: The height of a bar, in rows.
_STAY = 0.6
_MARGIN = {"l": 64, "r": 16, "t": 36, "b": 40}
_TOP_CODES = 8


def activity(data: ReportData) -> Figure | None:
    """Frames and messages per second over the whole time, and how many were here."""
    span = data.span
    if span is None or not (data.rates or data.messages):
        return None
    frames = [0] * span.buckets
    for row in data.rates:
        frames[row["bucket"]] += row["frames"]
    messages = [0] * span.buckets
    for row in data.messages:
        messages[row["bucket"]] += row["envelopes"]
    traces = [
        _line(
            f"{what}/s",
            _starts(span),
            [span.per_second(each) for each in counts],
            f"%{{y}} {what}/s",
            {"color": colour, "width": 1.5, "shape": "hvh"},
            **fill,
        )
        for what, counts, colour, fill in (
            ("frames", frames, COLOURS[0], {"fill": "tozeroy"}),
            ("messages", messages, COLOURS[1], {}),
        )
    ]
    if presence := _presence(data, span):
        traces.append(presence)
    second_axis = {
        **_counted_from_zero("present"),
        "overlaying": "y",
        "side": "right",
        "showgrid": False,
        "dtick": 1 if data.participant_count <= 8 else None,
    }
    y = _counted_from_zero(f"per second, in {format_duration(span.step)}")
    return _over_time(span, traces, y, margin={**_MARGIN, "r": 56}, yaxis2=second_axis, hovermode="x unified")


def _presence(data: ReportData, span: Span) -> Figure | None:
    """How many were here. Left out if there are more than the report has read."""
    known = {(each["space"], each["participant"]) for each in data.sessions}
    if not known or data.participant_count > len(known):
        return None
    steps: dict[int, int] = defaultdict(int)
    for session in data.sessions:
        steps[session["from"]] += 1
        if session["until"] is not None:
            steps[session["until"]] -= 1
    x, y, here = [iso(span.begin)], [0], 0
    for at in sorted(steps):
        here += steps[at]
        x.append(iso(at))
        y.append(here)
    line = {"color": COLOURS[2], "width": 1.5, "shape": "hv", "dash": "dot"}
    return _line("participants here", [*x, iso(span.end)], [*y, here], "%{y} here", line, yaxis="y2")


def rates(data: ReportData) -> Figure | None:
    """Frames per second of each stream, stacked; the streams without a name are one."""
    span = data.span
    if span is None or not data.rates:
        return None
    by_stream: dict[int, list[float]] = defaultdict(lambda: [0.0] * span.buckets)
    for row in data.rates:
        by_stream[row["stream"]][row["bucket"]] = span.per_second(row["frames"])
    unnamed = max(data.totals["streams"] - len(data.streams), 0)
    traces = []
    for number in sorted(by_stream, key=lambda each: (each < 0, each)):
        if number < 0:
            name = f"{format_count(unnamed)} other streams" if unnamed else "other streams"
        else:
            name = shorten(stream_name(data.streams[number], with_space=data.space_count > 1), 34)
        colour = OTHERS if number < 0 else COLOURS[number % len(COLOURS)]
        line = {"width": 0.8, "color": colour, "shape": "hvh"}
        hover = "%{y:.3~g}/s  %{fullData.name}"
        traces.append(_line(escape(name), _starts(span), by_stream[number], hover, line, stackgroup="frames"))
    y = _counted_from_zero(f"frames/s, in {format_duration(span.step)}")
    return _over_time(span, traces, y, height=300 + 22 * (len(traces) // 3))


def latency(data: ReportData) -> Figure | None:
    """From the writer's own time to the gateway's, if payloads carry one."""
    span = data.span
    if span is None or not data.latency:
        return None
    x = [iso(row["at"]) for row in data.latency]
    look = {"mode": "lines+markers" if len(x) < 60 else "lines", "marker": {"size": 4}}
    traces = []
    for name, colour in (("p50", COLOURS[2]), ("p95", WARN), ("p99", BAD)):
        # Four digits are more than a pixel shows, and halve the size of the page's data.
        y = [float(f"{row[name]:.4g}") for row in data.latency]
        traces.append(_line(name, x, y, f"{name} %{{y:.4~g}} ms", {"color": colour, "width": 1.8}, **look))
    return _over_time(span, traces, _counted_from_zero("ms"), hovermode="x unified")


def refusals_by_code(data: ReportData) -> Figure | None:
    """How often each code was given, and for which kinds."""
    if not data.refusal_codes:
        return None
    codes = _codes(data)
    kinds: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(codes, 0))
    for row in data.refusal_codes:
        if row["code"] in codes:
            kinds[row["kind"] or "unreadable"][row["code"]] += row["count"]
    busiest = sorted(kinds, key=lambda kind: (-sum(kinds[kind].values()), kind))
    shown = busiest[:_TOP_CODES]
    rest = {code: sum(kinds[kind][code] for kind in busiest[_TOP_CODES:]) for code in codes}
    stacks = [(kind, kinds[kind], COLOURS[place % len(COLOURS)]) for place, kind in enumerate(shown)]
    if any(rest.values()):
        stacks.append(("other kinds", rest, OTHERS))
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": escape(shorten(kind)),
            "y": [escape(code) for code in codes],
            "x": [counts[code] for code in codes],
            "marker": {"color": colour},
            "hovertemplate": "%{x} of %{fullData.name}<extra>%{y}</extra>",
        }
        for kind, counts, colour in stacks
    ]
    layout = {
        "height": 110 + 30 * len(codes) + 18 * (len(traces) // 3),
        "barmode": "stack",
        "margin": {**_MARGIN, "l": 190},
        "xaxis": {"title": {"text": "refusals"}, "rangemode": "tozero", "tickformat": "~s"},
        "yaxis": {"autorange": "reversed", "showgrid": False, "fixedrange": True},
        "legend": LEGEND,
    }
    return {"data": traces, "layout": layout}


def refusals_over_time(data: ReportData) -> Figure | None:
    span = data.span
    if span is None or not data.refusals:
        return None
    codes = _codes(data)
    traces = []
    for place, code in enumerate(codes):
        mine = [row for row in data.refusals if row["code"] == code]
        if mine:
            traces.append(
                {
                    "type": "bar",
                    "name": escape(code),
                    "x": [iso(span.start_of(row["bucket"])) for row in mine],
                    "y": [row["count"] for row in mine],
                    "width": [span.step] * len(mine),
                    "offset": 0,
                    "marker": {"color": COLOURS[place % len(COLOURS)]},
                    "hovertemplate": "%{y} %{fullData.name}<extra></extra>",
                }
            )
    y = _counted_from_zero(f"in {format_duration(span.step)}")
    return _over_time(span, traces, y, height=max(260, 110 + 30 * len(codes)), barmode="stack")


def _codes(data: ReportData) -> list[str]:
    """The most frequent ones first."""
    counts: dict[str, int] = defaultdict(int)
    for row in data.refusal_codes:
        counts[row["code"]] += row["count"]
    return sorted(counts, key=lambda code: (-counts[code], code))[:_TOP_CODES]


def handoffs(data: ReportData) -> Figure | None:
    """How long each handoff took until the new writer wrote."""
    span = data.span
    written = [each for each in data.handoffs if each["waited_ms"] is not None]
    if span is None or not written:
        return None
    traces = []
    for how, symbol, colour in (
        ("grant", "triangle-up", COLOURS[2]),
        ("auto_grant", "circle", COLOURS[5]),
        ("transfer", "diamond", WARN),
    ):
        mine = [each for each in written if each["how"] == how]
        if mine:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": how,
                    "x": [iso(each["at"]) for each in mine],
                    # The axis is logarithmic, and a clock of microseconds may say that no time has passed.
                    "y": [max(each["waited_ms"], 0.1) for each in mine],
                    "customdata": [_handoff_in_words(each) for each in mine],
                    "hovertemplate": "%{customdata}<extra></extra>",
                    "marker": {"symbol": symbol, "size": 10, "color": colour, "line": {"width": 1, "color": "#fff"}},
                }
            )
    return _over_time(span, traces, {"title": {"text": "ms to first frame"}, "type": "log", "dtick": 1})


def _handoff_in_words(handoff: dict[str, Any]) -> str:
    silent = handoff["silent_ms"]
    quiet = f"<br>the stream had been silent for {format_duration(silent)}" if silent is not None else ""
    by, writer = escape(shorten(handoff["by"])), escape(shorten(handoff["writer"]))
    return (
        f"<b>{escape(shorten(handoff['stream_id']))}</b>: {by} to {writer}<br>"
        f"first frame after {format_duration(handoff['waited_ms'])}{quiet}<br>"
        f"{format_time(handoff['at'])}, seq {handoff['seq']}"
    )


def sessions(data: ReportData) -> Figure | None:
    """Who was here when, and when a connection was lost."""
    span = data.span
    if span is None or not data.sessions:
        return None
    with_space = data.space_count > 1
    rows: dict[tuple[str, str], int] = {}
    for session in data.sessions:
        rows.setdefault((session["space"], session["participant"]), len(rows))
    here: list[Piece] = []
    lost: list[Piece] = []
    for session in data.sessions:
        row = rows[session["space"], session["participant"]]
        until = session["until"] if session["until"] is not None else span.end
        name = escape(shorten(session["participant"]))
        how = (
            "still here" if session["until"] is None else f"left: {escape(shorten(session['ended_how'] or 'unknown'))}"
        )
        length = format_duration(until - session["from"])
        stay = f"<b>{name}</b> for {length}<br>from {format_time(session['from'])}<br>{how}"
        here.append((session["from"], until, row, _STAY, stay))
        for gap in session["lost"]:
            back = gap["until"] if gap["until"] is not None else until
            away, reason = format_duration(back - gap["from"]), escape(shorten(gap["reason"] or ""))
            said = f"<b>{name}</b> was away for {away}<br>{reason}"
            lost.append((gap["from"], back, row, _STAY, said))
    traces = [bars("here", COLOURS[0], here), *([bars("connection lost, rights kept", WARN, lost)] if lost else [])]
    names = [shorten(f"{space}/{who}" if with_space else who, 24) for space, who in rows]
    y = lanes_axis([len(rows) - 0.4, -0.6], list(rows.values()), [escape(name) for name in names])
    height = 86 + _ROW_PIXELS * len(rows)
    return _over_time(span, traces, y, height=height, barmode="overlay", margin={**_MARGIN, "l": 178})


# -- what they share ------------------------------------------------------------------------------


def _starts(span: Span) -> list[str]:
    return [iso(span.start_of(bucket)) for bucket in range(span.buckets)]


def _line(name: str, x: list[str], y: Sequence[float], hover: str, line: Figure, **more: Any) -> Figure:
    shown = {"name": name, "x": x, "y": y, "line": line, "hovertemplate": f"{hover}<extra></extra>"}
    return {"type": "scatter", "mode": "lines", **shown, **more}


def _counted_from_zero(title: str) -> Figure:
    return {"title": {"text": title}, "rangemode": "tozero"}


def _over_time(span: Span, traces: list[Figure], y: Figure, **more: Any) -> Figure:
    axes = {"xaxis": time_axis(span.begin, span.end), "yaxis": y}
    layout = {"height": 280, "margin": _MARGIN, **axes, "legend": LEGEND, "hovermode": "closest", **more}
    return {"data": traces, "layout": layout}
