"""The page: one HTML file with everything in it, that asks nobody for anything.

Every text that came from a participant goes through :func:`~mewstream.query.report.formatting.escape`. The page forbids
itself the network by its own Content-Security-Policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from string import Template
from typing import Any, NamedTuple

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from mewstream.query.database import Rows
from mewstream.query.report import figures
from mewstream.query.report.data import MOST_LISTED, TOP_PEOPLE, ReportData, Span
from mewstream.query.report.formatting import (
    Figure,
    escape,
    format_bytes,
    format_count,
    format_duration,
    format_time,
    shorten,
)
from mewstream.query.report.timeline import timeline

_PEN = 'fill="none" stroke="currentColor" stroke-linecap="round"'
_TICK = f'<path d="M14 28l9 9 19-20" stroke-width="5" {_PEN}/>'
_CROSS = f'<path d="M18 18l20 20M38 18L18 38" stroke-width="5" {_PEN}/>'
_DASH = f'<path d="M18 28h20" stroke-width="5" {_PEN}/>'
_RING = f'<circle cx="28" cy="28" r="25" stroke-width="4" {_PEN}/>'


def page(data: ReportData, *, generated: int) -> str:
    """The whole document. ``generated`` is the time of making it, in milliseconds."""
    drawn: dict[str, Figure] = {}
    many = data.space_count > 1

    def figure(name: str, made: Figure | None, otherwise: str) -> str:
        if made is None:
            return f'<p class="empty">{otherwise}</p>'
        drawn[name] = made
        # The room is there before the picture is, so that nothing jumps.
        return f'<div class="figure" id="{name}" style="height:{made["layout"]["height"]}px"></div>'

    body = [
        _verdict(data),
        _findings(data),
        _keys(data),
        _section(
            "Activity",
            "Frames and messages per second, and how many participants were here.",
            figure("activity", figures.activity(data), "Nothing has happened yet."),
        ),
        _section(
            "Who wrote to which stream when",
            _about_timeline(data),
            figure("timeline", timeline(data), "No stream was ever opened."),
            '<p class="key"><b></b>wrote<b class="held"></b>held the right to write<b class="own"></b>owned it</p>'
            if data.streams
            else "",
        ),
        _section(
            "Rates",
            _about_rates(data),
            figure("rates", figures.rates(data), "No frame was ever sent."),
            _table(_streams(data.span), data.streams, with_space=many),
        ),
        '<div class="pair">',
        _section(
            "Latency",
            "From the time that a writer put into its payload to the gateway's clock.",
            figure("latency", figures.latency(data), "No payload carries a time of its writer."),
        ),
        _section(
            "Handoffs",
            _about_handoffs(data),
            figure("handoffs", figures.handoffs(data), "No right to write was passed on and used."),
        ),
        '</div><div class="pair">',
        _section(
            "Refusals by code",
            "What was not accepted, and which kinds of messages that were.",
            figure("refusals-by-code", figures.refusals_by_code(data), "Nothing was refused."),
        ),
        _section(
            "Refusals over time",
            "When that was.",
            figure("refusals-over-time", figures.refusals_over_time(data), "Nothing was refused."),
        ),
        "</div>",
        _section(
            "Gaps",
            "Sequence numbers that a writer skipped, and those that came later after all.",
            _table(_GAPS, data.gaps, with_space=many, otherwise="No writer skipped a number."),
        ),
        _section(
            "Quarantine",
            _about_quarantine(data),
            _table(_QUARANTINE, data.quarantine, with_space=many, otherwise="Everything fits its format."),
        ),
        _section(
            "Sessions",
            _about_sessions(data),
            figure("sessions", figures.sessions(data), "Nobody was ever here."),
        ),
        _section("Spaces", "Each space in one row.", _table(_SPACES, data.spaces, with_space=True)) if many else "",
    ]
    heading = _heading(data)
    return Template(_asset("page.html")).substitute(
        title=f"{heading} - mewstream report",
        heading=heading,
        about=_about(data),
        body="\n".join(part for part in body if part),
        footer=f"Made by mewstream on {format_time(generated)} from the tables of a warehouse. Times are UTC. "
        "Drag in a picture to look closer, double-click to look at everything again.",
        style=_asset("style.css"),
        script=_asset("script.js"),
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        figures=_embedded(drawn),
    )


def _asset(name: str) -> str:
    return resources.files("mewstream.query.report").joinpath(name).read_text(encoding="utf-8")


def _embedded(value: Any) -> str:
    """JSON that cannot end the element it stands in, whatever it holds."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# -- texts ----------------------------------------------------------------------------------------


def _heading(data: ReportData) -> str:
    if data.space_count == 0:
        return "Nothing to show"
    if data.space_count == 1:
        return f"Space {escape(data.spaces[0]['space'])}"
    names = ", ".join(escape(each["space"]) for each in data.spaces[:3])
    more = data.space_count - 3
    return f"Spaces {names}" + (f" and {format_count(more)} more" if more > 0 else "")


def _about(data: ReportData) -> str:
    if data.span is None:
        return "Nothing has been recorded yet."
    begin = min(each["begin"] for each in data.spaces)
    return f"{format_time(begin)} to {format_time(data.span.end)}, {format_duration(data.span.end - begin)}"


def _verdict(data: ReportData) -> str:
    totals = data.totals
    frames, refusals = format_count(totals["frames_judged"]), _count(totals["refusals_judged"], "record", "of refusals")
    said = f"{frames} frames and {refusals} were judged by what the log itself says of rights"
    if totals["findings"] or totals["flawed"]:
        count = totals["findings"]
        name, icon, text = "flawed", _CROSS, f"Flawed: {format_count(count)} {'finding' if count == 1 else 'findings'}"
        said += ". What was found is listed below."
    elif totals["judged"]:
        name, icon, text = "sound", _TICK, "Sound"
        said += ": all of these were right."
    else:
        name, icon, text = "none", _DASH, "Nothing to judge"
        said = "There is no record that the audit could judge."
    unknown = []
    if totals["frames_not_judged"]:
        unknown.append(_count(totals["frames_not_judged"], "frame"))
    if totals["refusals_not_judged"]:
        unknown.append(_count(totals["refusals_not_judged"], "record", "of refusals"))
    if unknown:
        said += f" The log is not enough to judge {' and '.join(unknown)}."
    others = _unjudged(totals) - totals["refusals_not_judged"]
    if others > 0:
        said += f" {_count(others, 'record', 'of refusals')} of other messages than those about streams are not judged."
    svg = f'<svg viewBox="0 0 56 56" aria-hidden="true">{_RING}{icon}</svg>'
    return f'<section class="verdict {name}">{svg}<div><strong>{text}</strong><p>{said}</p></div></section>'


def _keys(data: ReportData) -> str:
    totals = data.totals
    keys = [
        (format_count(totals["frames"]), "frames"),
        (format_bytes(totals["bytes"]), "in frames"),
        (format_count(totals["envelopes"]), "messages"),
        (format_count(totals["streams"]), f"streams, {format_count(totals['open_streams'])} open"),
        (format_count(data.participant_count), "participants"),
        (format_count(totals["refusals"]), _about_refusals(totals)),
        (format_count(totals["drops"]), "frames dropped for slow readers"),
        (format_count(totals["quarantined"]), "frames quarantined"),
    ]
    tiles = "".join(f"<div><b>{big}</b><span>{small}</span></div>" for big, small in keys)
    return f'<div class="keys">{tiles}</div>'


def _about_refusals(totals: dict[str, int]) -> str:
    """The sum, and what it is made of: a record may sum up a flood of the same, and the audit judges records."""
    if not totals["refusal_records"]:
        return "refusals"
    judged = f"{format_count(totals['refusals_judged'])} judged, {format_count(_unjudged(totals))} not"
    return f"refusals, in {_count(totals['refusal_records'], 'record')}: {judged}"


def _unjudged(totals: dict[str, int]) -> int:
    return max(totals["refusal_records"] - totals["refusals_judged"], 0)


def _count(number: int, what: str, more: str = "") -> str:
    return f"{format_count(number)} {what}{'' if number == 1 else 's'} {more}".rstrip()


def _about_rates(data: ReportData) -> str:
    said = "Frames per second of each stream, one upon the other"
    return said + (f", counted in steps of {format_duration(data.span.step)}." if data.span is not None else ".")


def _about_quarantine(data: ReportData) -> str:
    said = "Frames that do not fit the format of their stream."
    listed = sum(each["frames"] for each in data.quarantine)
    return said + (" One that breaks several rules is in several rows." if listed > data.totals["quarantined"] else "")


def _about_timeline(data: ReportData) -> str:
    said = "Each lane is a participant on a stream; point at a piece or a mark to see what it is."
    shown, all_streams = len(data.streams), data.totals["streams"]
    return said + (
        f" The {shown} busiest streams of {format_count(all_streams)} are shown." if all_streams > shown else ""
    )


def _about_handoffs(data: ReportData) -> str:
    unused = sum(each["outcome"] == "unused" for each in data.handoffs)
    said = "From a grant or a transfer to the first frame of the new writer."
    return said + (f" {format_count(unused)} were never used." if unused else "")


def _about_sessions(data: ReportData) -> str:
    more = data.participant_count - TOP_PEOPLE
    said = "Who was here, from joining to leaving."
    return said + (f" The first {TOP_PEOPLE} of {format_count(data.participant_count)} are shown." if more > 0 else "")


# -- tables ---------------------------------------------------------------------------------------


class _Column(NamedTuple):
    title: str
    cell: Callable[[dict[str, Any]], str]
    """From a row to HTML."""
    is_number: bool = False


def _name(title: str, key: str | None = None, longest: int = 40) -> _Column:
    return _Column(title, lambda row: "" if row[key or title] is None else escape(shorten(row[key or title], longest)))


def _number(title: str, key: str, form: Callable[[Any], str] = format_count) -> _Column:
    return _Column(title, lambda row: "" if row[key] is None else form(row[key]), is_number=True)


def _flag(text: str, *, is_bad: bool) -> str:
    return f'<span class="{"bad" if is_bad else "good"}">{text}</span>'


_FINDINGS = (
    *(_number("seq", "seq", str), _Column("when", lambda row: format_time(row["at"])), _name("rule")),
    *(_name("stream", "stream_id"), _name("participant"), _name("what was found", "reason", 300)),
)
_GAPS = (
    *(_name("stream", "stream_id"), _name("writer", "sender"), _number("gaps", "gaps"), _number("skipped", "missing")),
    _number("never came", "still_missing", lambda count: _flag(format_count(count), is_bad=count > 0)),
)
_QUARANTINE = (
    *(_name("stream", "stream_id"), _name("format", "format_id"), _name("writer", "sender"), _name("rule")),
    *(_number("frames", "frames"), _name("for example", "example", 120)),
)
_SPACES = (
    _Column("verdict", lambda row: _flag(escape(row["verdict"] or ""), is_bad=row["verdict"] == "flawed")),
    *(_number("frames", "frames"), _number("bytes", "bytes", format_bytes), _number("streams", "streams")),
    *(_number("participants", "participants"), _number("refusals", "refusals"), _number("dropped", "drops")),
    _Column("last record", lambda row: format_time(row["end"])),
)


def _streams(span: Span | None) -> Sequence[_Column]:
    window = f" in {format_duration(span.step)}" if span is not None else ""
    return (
        _name("stream", "stream_id"),
        _Column("what it is", lambda row: escape(shorten(row["alias"] or row["description"] or "", 60))),
        *(_name("status"), _name("owner"), _number("frames", "frames"), _number("bytes", "bytes", format_bytes)),
        _number(f"peak rate{window}", "peak_rate", lambda rate: f"{rate:,.4g}/s"),
        *(_number("worst p99 pause", "worst_pause", format_duration), _number("dropped", "drops")),
    )


def _table(columns: Sequence[_Column], rows: Rows, *, with_space: bool, otherwise: str = "") -> str:
    """``otherwise`` is shown if there are no rows."""
    if not rows:
        return otherwise and f'<p class="empty">{otherwise}</p>'
    columns = [*([_name("space")] if with_space else []), *columns]
    style = [' class="number"' if column.is_number else "" for column in columns]
    head = "".join(f"<th{each}>{column.title}</th>" for column, each in zip(columns, style, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{each}>{column.cell(row)}</td>" for column, each in zip(columns, style, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _section(title: str, says: str, *parts: str) -> str:
    return f'<section><h2>{title}</h2><p class="says">{says}</p>{"".join(parts)}</section>'


def _findings(data: ReportData) -> str:
    if not data.findings:
        return ""
    count = data.totals["findings"]
    says = (
        f"The first {MOST_LISTED} of {format_count(count)}."
        if count > MOST_LISTED
        else "What the log does not justify."
    )
    return _section("Findings of the audit", says, _table(_FINDINGS, data.findings, with_space=data.space_count > 1))
