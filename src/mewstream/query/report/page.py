"""The page: one HTML file with everything in it, that asks nobody for anything.

Every text that came from a participant goes through :func:`~mewstream.query.report.look.safe`. The page forbids
itself the network by its own Content-Security-Policy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any, NamedTuple

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from mewstream.query.report import figures
from mewstream.query.report.data import MOST_LISTED, TOP_PEOPLE, ReportData
from mewstream.query.report.look import Figure, amount, clock, lasting, safe, short, volume
from mewstream.query.report.timeline import timeline

_PEN = 'fill="none" stroke="currentColor" stroke-linecap="round"'
_TICK = f'<path d="M14 28l9 9 19-20" stroke-width="5" {_PEN}/>'
_CROSS = f'<path d="M18 18l20 20M38 18L18 38" stroke-width="5" {_PEN}/>'
_DASH = f'<path d="M18 28h20" stroke-width="5" {_PEN}/>'
_RING = f'<circle cx="28" cy="28" r="25" stroke-width="4" {_PEN}/>'


class _Column(NamedTuple):
    title: str
    is_number: bool = False


def page(data: ReportData, *, generated: int) -> str:
    """The whole document. ``generated`` is the time of making it, in milliseconds."""
    drawn: dict[str, Figure] = {}

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
            _streams(data),
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
        _section("Gaps", "Sequence numbers that a writer skipped, and those that came later after all.", _gaps(data)),
        _section("Quarantine", _about_quarantine(data), _quarantine(data)),
        _section(
            "Sessions",
            _about_sessions(data),
            figure("sessions", figures.sessions(data), "Nobody was ever here."),
        ),
        _section("Spaces", "Each space in one row.", _spaces(data)) if data.space_count > 1 else "",
    ]
    heading = _heading(data)
    return Template(_asset("page.html")).substitute(
        title=f"{heading} - mewstream report",
        heading=heading,
        about=_about(data),
        body="\n".join(part for part in body if part),
        footer=f"Made by mewstream on {clock(generated)} from the tables of a warehouse. Times are UTC. "
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
        return f"Space {safe(data.spaces[0]['space'])}"
    names = ", ".join(safe(each["space"]) for each in data.spaces[:3])
    more = data.space_count - 3
    return f"Spaces {names}" + (f" and {amount(more)} more" if more > 0 else "")


def _about(data: ReportData) -> str:
    if data.span is None:
        return "Nothing has been recorded yet."
    begin = min(each["begin"] for each in data.spaces)
    return f"{clock(begin)} to {clock(data.span.end)}, {lasting(data.span.end - begin)}"


def _verdict(data: ReportData) -> str:
    totals = data.totals
    frames, refusals = amount(totals["frames_judged"]), _count(totals["refusals_judged"], "record", "of refusals")
    said = f"{frames} frames and {refusals} were judged by what the log itself says of rights"
    if totals["findings"] or totals["flawed"]:
        count = totals["findings"]
        name, icon, text = "flawed", _CROSS, f"Flawed: {amount(count)} {'finding' if count == 1 else 'findings'}"
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
        (amount(totals["frames"]), "frames"),
        (volume(totals["bytes"]), "in frames"),
        (amount(totals["envelopes"]), "messages"),
        (amount(totals["streams"]), f"streams, {amount(totals['open_streams'])} open"),
        (amount(data.participant_count), "participants"),
        (amount(totals["refusals"]), _about_refusals(totals)),
        (amount(totals["drops"]), "frames dropped for slow readers"),
        (amount(totals["quarantined"]), "frames quarantined"),
    ]
    tiles = "".join(f"<div><b>{big}</b><span>{small}</span></div>" for big, small in keys)
    return f'<div class="keys">{tiles}</div>'


def _about_refusals(totals: dict[str, int]) -> str:
    """The sum, and what it is made of: a record may sum up a flood of the same, and the audit judges records."""
    if not totals["refusal_records"]:
        return "refusals"
    judged = f"{amount(totals['refusals_judged'])} judged, {amount(_unjudged(totals))} not"
    return f"refusals, in {_count(totals['refusal_records'], 'record')}: {judged}"


def _unjudged(totals: dict[str, int]) -> int:
    return max(totals["refusal_records"] - totals["refusals_judged"], 0)


def _count(number: int, what: str, more: str = "") -> str:
    return f"{amount(number)} {what}{'' if number == 1 else 's'} {more}".rstrip()


def _about_rates(data: ReportData) -> str:
    said = "Frames per second of each stream, one upon the other"
    return said + (f", counted in steps of {lasting(data.span.step)}." if data.span is not None else ".")


def _about_quarantine(data: ReportData) -> str:
    said = "Frames that do not fit the format of their stream."
    listed = sum(each["frames"] for each in data.quarantine)
    return said + (" One that breaks several rules is in several rows." if listed > data.totals["quarantined"] else "")


def _about_timeline(data: ReportData) -> str:
    said = "Each lane is a participant on a stream; point at a piece or a mark to see what it is."
    shown, all_streams = len(data.streams), data.totals["streams"]
    return said + (f" The {shown} busiest streams of {amount(all_streams)} are shown." if all_streams > shown else "")


def _about_handoffs(data: ReportData) -> str:
    unused = sum(each["outcome"] == "unused" for each in data.handoffs)
    said = "From a grant or a transfer to the first frame of the new writer."
    return said + (f" {amount(unused)} were never used." if unused else "")


def _about_sessions(data: ReportData) -> str:
    more = data.participant_count - TOP_PEOPLE
    said = "Who was here, from joining to leaving."
    return said + (f" The first {TOP_PEOPLE} of {amount(data.participant_count)} are shown." if more > 0 else "")


# -- tables ---------------------------------------------------------------------------------------


def _section(title: str, says: str, *parts: str) -> str:
    return f'<section><h2>{title}</h2><p class="says">{says}</p>{"".join(parts)}</section>'


def _table(columns: Sequence[_Column], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already."""
    style = [' class="number"' if column.is_number else "" for column in columns]
    head = "".join(f"<th{each}>{column.title}</th>" for column, each in zip(columns, style, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{each}>{cell}</td>" for cell, each in zip(row, style, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _findings(data: ReportData) -> str:
    if not data.findings:
        return ""
    rows = [
        [
            *([_name(each["space"])] if data.space_count > 1 else []),
            str(each["seq"]),
            clock(each["at"]),
            _name(each["rule"]),
            _name(each["stream_id"]),
            _name(each["participant"]),
            safe(short(each["reason"], 300)),
        ]
        for each in data.findings
    ]
    columns = [
        *([_Column("space")] if data.space_count > 1 else []),
        *(_Column("seq", True), _Column("when"), _Column("rule"), _Column("stream"), _Column("participant")),
        _Column("what was found"),
    ]
    return _section("Findings of the audit", _first_of(data.totals["findings"]), _table(columns, rows))


def _streams(data: ReportData) -> str:
    if not data.streams:
        return ""
    rows = [
        [
            *([_name(each["space"])] if data.space_count > 1 else []),
            _name(each["stream_id"]),
            safe(short(each["alias"] or each["description"] or "", 60)),
            safe(each["status"]),
            _name(each["owner"]),
            amount(each["frames"] or 0),
            volume(each["bytes"] or 0),
            "" if each["peak_rate"] is None else f"{each['peak_rate']:,.4g}/s",
            "" if each["worst_pause"] is None else lasting(each["worst_pause"]),
            amount(each["drops"] or 0),
        ]
        for each in data.streams
    ]
    window = f" in {lasting(data.span.step)}" if data.span is not None else ""
    columns = [
        *([_Column("space")] if data.space_count > 1 else []),
        *(_Column("stream"), _Column("what it is"), _Column("status"), _Column("owner")),
        *(_Column("frames", True), _Column("bytes", True), _Column(f"peak rate{window}", True)),
        *(_Column("worst p99 pause", True), _Column("dropped", True)),
    ]
    return _table(columns, rows)


def _gaps(data: ReportData) -> str:
    if not data.gaps:
        return '<p class="empty">No writer skipped a number.</p>'
    rows = [
        [
            _name(each["stream_id"]),
            _name(each["sender"]),
            amount(each["gaps"]),
            amount(each["missing"]),
            f'<span class="{"bad" if each["still_missing"] else "good"}">{amount(each["still_missing"])}</span>',
        ]
        for each in data.gaps
    ]
    columns = [
        *(_Column("stream"), _Column("writer"), _Column("gaps", True)),
        *(_Column("skipped", True), _Column("never came", True)),
    ]
    return _table(columns, rows)


def _quarantine(data: ReportData) -> str:
    if not data.quarantine:
        return '<p class="empty">Everything fits its format.</p>'
    rows = [
        [
            _name(each["stream_id"]),
            _name(each["format_id"]),
            _name(each["sender"]),
            _name(each["rule"]),
            amount(each["frames"]),
            safe(short(each["example"] or "", 120)),
        ]
        for each in data.quarantine
    ]
    columns = [
        *(_Column("stream"), _Column("format"), _Column("writer"), _Column("rule")),
        *(_Column("frames", True), _Column("for example")),
    ]
    return _table(columns, rows)


def _spaces(data: ReportData) -> str:
    rows = [
        [
            _name(each["space"]),
            f'<span class="{"bad" if each["verdict"] == "flawed" else "good"}">{safe(each["verdict"] or "")}</span>',
            amount(each["frames"]),
            volume(each["bytes"]),
            amount(each["streams"]),
            amount(each["participants"]),
            amount(each["refusals"]),
            amount(each["drops"]),
            clock(each["end"]),
        ]
        for each in data.spaces
    ]
    columns = [
        *(_Column("space"), _Column("verdict"), _Column("frames", True), _Column("bytes", True)),
        *(_Column("streams", True), _Column("participants", True), _Column("refusals", True)),
        *(_Column("dropped", True), _Column("last record")),
    ]
    return _table(columns, rows)


def _first_of(count: int) -> str:
    return f"The first {MOST_LISTED} of {amount(count)}." if count > MOST_LISTED else "What the log does not justify."


def _name(text: object) -> str:
    return "" if text is None else safe(short(text, 40))
