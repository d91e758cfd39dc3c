"""The report: right numbers, hostile names, empty tables, many streams, and a real browser that draws it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from warehouses import START, Rows, both, session, tables

from mewstream.query.report import Selection, write_report
from mewstream.query.report.data import (
    MOST_BUCKETS,
    MOST_ROWS,
    TOP_STREAMS,
    TOP_WRITERS,
    ReportData,
    Span,
    collect,
)
from mewstream.query.report.formatting import format_duration
from mewstream.query.report.page import page

FIGURES = {
    *("activity", "timeline", "rates", "latency", "handoffs", "refusals-by-code", "refusals-over-time", "sessions"),
}
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "%{x} ${y} {z} $title " + "long" * 20,
    "\"'&lt;b&gt;",
    "<b>bold</b><a href='javascript:alert(3)'>link</a>",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def written(rows: Rows, out: Path, **chosen: Any) -> str:
    with tables(rows) as database:
        write_report(database, out, Selection(**chosen))
    return out.read_text(encoding="utf-8")


def collected(rows: Rows, **chosen: Any) -> ReportData:
    with tables(rows) as database:
        return collect(database, Selection(**chosen))


def figures_in(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


class _Elements(HTMLParser):
    """What elements a browser would make of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    written(session(seed=1), out)
    return out


# -- what is in it --------------------------------------------------------------------------------


def test_every_figure_is_there_and_is_one_that_plotly_knows(plain: Path) -> None:
    figures = figures_in(plain.read_text())
    assert set(figures) == FIGURES
    for figure in figures.values():
        go.Figure(figure)  # raises at what plotly does not know


def test_the_page_is_whole_and_asks_nobody(plain: Path) -> None:
    text = plain.read_text()
    page_elements = _Elements(text.replace(_plotly_in(text), ""))
    assert page_elements.tags.count("script") == 3
    assert not [each for each in page_elements.attributes if each[0] == "src"]
    assert [each[1] for each in page_elements.attributes if each[0] == "href"] == ["data:,"]
    assert "default-src 'none'" in text
    assert text.count("plotly.js v") == 1
    assert not list(plain.parent.glob(".*.tmp"))


def _plotly_in(text: str) -> str:
    begin = text.index("<script>", text.index('id="figures"'))
    return text[begin + len("<script>") : text.index("</script>", begin)]


def test_the_numbers_are_those_of_the_tables() -> None:
    rows = session(seed=2, streams=3)
    data = collected(rows)
    frames = len(rows["frames"])
    assert data.totals["frames"] == frames
    assert sum(each["frames"] for each in data.rates) == frames
    assert sum(each["frames"] for each in data.writes) == frames
    assert sum(each["frames"] for each in data.streams) == frames
    assert sum(each["envelopes"] for each in data.messages) == len(rows["envelopes"])
    refused = sum(each["count"] for each in rows["refusals"])
    assert sum(each["count"] for each in data.refusals) == sum(each["count"] for each in data.refusal_codes) == refused
    assert sum(each["frames"] for each in data.latency) == sum(
        each["latency_ms"] is not None for each in rows["frames"]
    )
    assert len(data.handoffs) == len(rows["handoffs"])
    assert len(data.rights) == len(rows["authorizations"])
    assert data.participant_count == 5
    assert {(each["sender"], each["missing"], each["still_missing"]) for each in data.gaps} == {
        ("character-server", 4, 0),
        ("player1", 12, 3),
    }


def test_the_peak_is_the_highest_point_of_the_picture() -> None:
    """The same unit and the same steps as in the picture above it, and the column says which."""
    data = collected(session(seed=2, streams=3))
    text = page(data, generated=0)
    assert data.span is not None
    step = format_duration(data.span.step)
    assert f'<th class="number">peak rate in {step}</th>' in text
    assert f"counted in steps of {step}" in text
    drawn = figures_in(text)["rates"]
    assert drawn["layout"]["yaxis"]["title"]["text"] == f"frames/s, in {step}"
    for stream, trace in zip(data.streams, drawn["data"], strict=True):
        assert stream["peak_rate"] == max(trace["y"]) > 0
        assert f'<td class="number">{stream["peak_rate"]:,.4g}/s</td>' in text


def test_refusals_add_up() -> None:
    """A record may sum up a flood, and the audit judges records: the tile says how the numbers belong together."""
    rows = session(seed=2, streams=3)
    refused = rows["refusals"]
    [summary] = rows["space_summary"]
    total, records = sum(each["count"] for each in refused), len(refused)
    assert total > records > 5
    summary |= {"refusals": total, "refusals_judged": records - 5, "refusals_not_judged": 2}
    text = page(collected(rows), generated=0)
    tile = f"<b>{total}</b><span>refusals, in {records} records: {records - 5} judged, 5 not</span>"
    assert tile in text
    assert f"and {records - 5} records of refusals were judged" in text
    assert "The log is not enough to judge 2 records of refusals." in text
    assert "3 records of refusals of other messages than those about streams are not judged." in text


def test_latency_percentiles_are_those_of_the_frames() -> None:
    rows = session(seed=4, streams=1)
    data = collected(rows)
    [first, *_] = data.latency
    span = Span.over(int(START.timestamp() * 1000), int(START.timestamp() * 1000) + 60_000, 48)
    mine = sorted(
        each["latency_ms"]
        for each in rows["frames"]
        if first["at"] <= each["ts"].timestamp() * 1000 < first["at"] + span.step
    )
    assert len(mine) == first["frames"]
    assert first["p50"] in mine and mine[0] <= first["p50"] <= first["p95"] <= first["p99"] <= mine[-1]


def test_times_are_utc(plain: Path) -> None:
    assert "2026-03-14 15:09:26 UTC to 2026-03-14 15:10:26 UTC, 60 s" in plain.read_text()


@pytest.mark.parametrize(
    ("findings", "verdict", "text"),
    [(0, "sound", "Sound"), (1, "flawed", "Flawed: 1 finding"), (3, "flawed", "Flawed: 3 findings")],
)
def test_the_verdict_is_large(tmp_path: Path, findings: int, verdict: str, text: str) -> None:
    found = written(session(seed=1, findings=findings), tmp_path / "report.html")
    assert f'<section class="verdict {verdict}">' in found
    assert f"<strong>{text}</strong>" in found
    assert found.count("wrote after its right was revoked") == findings


def test_spaces_can_be_chosen(tmp_path: Path) -> None:
    rows = both(session(seed=1), session(seed=2, space="lobby", people=("zoe", "yan")))
    everything = written(rows, tmp_path / "all.html")
    one = written(rows, tmp_path / "one.html", spaces=("lobby",))
    assert re.search("<h1>Spaces (arena, lobby|lobby, arena)</h1>", everything) and "arena/stream-1" in everything
    assert "<h1>Space lobby</h1>" in one and "arena" not in one.replace(_plotly_in(one), "")


def test_a_part_of_the_time(tmp_path: Path) -> None:
    rows = both(session(seed=3, seconds=60, findings=30), session(seed=2, space="lobby", people=("zoe", "yan")))
    since, until = START + timedelta(seconds=20), START + timedelta(seconds=40)
    micros = {"since": round(since.timestamp() * 1e6), "until": round(until.timestamp() * 1e6)}

    def within(name: str) -> list[dict[str, Any]]:
        return [row for row in rows[name] if row["space"] == "arena" and since <= row["ts"] < until]

    data = collected(rows, spaces=("arena",), **micros)
    frames = within("frames")
    assert 0 < len(frames) < len(rows["frames"])
    assert data.totals["frames"] == sum(each["frames"] for each in data.rates) == len(frames)
    assert data.totals["bytes"] == sum(row["size"] for row in frames)
    assert data.totals["refusals"] == sum(row["count"] for row in within("refusals"))
    assert data.totals["findings"] == len(within("audit")) == 10
    assert data.span is not None
    assert micros["since"] // 1000 - data.span.step <= data.span.begin <= data.span.end <= micros["until"] // 1000
    before = round((START - timedelta(days=1)).timestamp() * 1e6)
    assert figures_in(written(rows, tmp_path / "none.html", until=before)) == {}


# -- hostile, empty, many -------------------------------------------------------------------------


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    rows = session(seed=3, streams=2, people=HOSTILE, space="<i>space</i>", findings=2)
    for stream in rows["streams"]:
        stream["description"] = stream["alias"] = HOSTILE[1]
    text = written(rows, tmp_path / "report.html")
    own = text.replace(_plotly_in(text), "")
    elements = _Elements(own)
    assert not {"img", "i", "a"} & set(elements.tags)
    assert elements.tags.count("script") == 3
    assert not [each for each in elements.attributes if each[0].startswith("on")]
    assert html.escape("<i>space</i>") in own
    for each in _texts(figures_in(text)):
        # Plotly reads texts as HTML: of ours there are few tags, and no attribute but a style.
        for tag in re.findall(r"<[^>]*>", each):
            assert tag in ("<b>", "</b>", "<br>", "</span>", "<extra>", "</extra>", "<span style='opacity:0.7'>"), each


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for each in value for text in _texts(each)]
        case dict():
            return [text for each in value.values() for text in _texts(each)]
    return []


def test_templates_of_plotly_hold_no_name(tmp_path: Path) -> None:
    """A name such as %{x} would be filled in."""
    text = written(session(seed=3, streams=2, people=HOSTILE), tmp_path / "report.html")
    for figure in figures_in(text).values():
        for trace in figure["data"]:
            assert "long" not in trace.get("hovertemplate", "")


def test_empty_tables_say_so(tmp_path: Path) -> None:
    text = written({}, tmp_path / "report.html")
    assert figures_in(text) == {}
    assert "Nothing to show" in text and "Nothing to judge" in text
    assert text.count('class="empty"') == 10


def test_one_record_and_nothing_else(tmp_path: Path) -> None:
    summary = session(seed=1)["space_summary"][0] | {"last_ts": START, "streams": 0, "frames": 0}
    text = written({"space_summary": [summary]}, tmp_path / "report.html")
    assert figures_in(text) == {}
    assert "<strong>Sound</strong>" in text


def test_many_streams_and_writers_are_summed_up() -> None:
    people = tuple(f"participant-{number:03d}" for number in range(60))
    rows = session(seed=5, streams=50, people=people)
    crowd = [
        {**rows["frames"][0], "seq": 10**6 + place, "stream_id": "stream-1", "sender": f"crowd-{place}", "size": 1}
        for place in range(3000)
    ]
    rows["frames"] += crowd
    rows["streams"][0]["frames"] += len(crowd)
    data = collected(rows)
    assert len(data.streams) == TOP_STREAMS
    assert sum(each["frames"] for each in data.rates) == len(rows["frames"])
    assert {each["stream"] for each in data.rates} == {-1, *range(TOP_STREAMS)}
    for stream in range(TOP_STREAMS):
        named = {each["sender"] for each in data.writes if each["stream"] == stream} - {None}
        assert len(named) <= TOP_WRITERS
    busiest = [each for each in data.writes if each["stream"] == 0]
    assert sum(each["frames"] for each in busiest) == data.streams[0]["frames"]
    assert None in {each["sender"] for each in busiest}
    assert len(data.rates) <= (TOP_STREAMS + 1) * MOST_BUCKETS
    assert max(len(data.rights), len(data.handoffs), len(data.sessions), len(data.refusals)) <= MOST_ROWS
    figures = figures_in(page(data, generated=0))
    assert all(len(trace.get("y", ())) <= MOST_ROWS * 2 for each in figures.values() for trace in each["data"])


@pytest.mark.parametrize("length", [1, 60_000, 3_600_000, 86_400_000, 40 * 86_400_000, 4000 * 86_400_000])
def test_any_length_of_time_is_some_buckets(length: int) -> None:
    span = Span.over(1_700_000_000_123, 1_700_000_000_123 + length)
    assert span.begin <= 1_700_000_000_123 < span.begin + span.step
    assert 1 <= span.buckets <= MOST_BUCKETS + 1


# -- a real browser -------------------------------------------------------------------------------


def in_browser(page: Path) -> subprocess.CompletedProcess[str]:
    """What a browser makes of a page: the elements, and what it says."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.fail(f"none of {', '.join(BROWSERS)} is installed, and this must be tested: apt-get install chromium")
    return subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--enable-logging=stderr", f"--user-data-dir={page.parent / 'profile'}", "--window-size=1300,1000"),
            *("--virtual-time-budget=15000", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_a_few_frames_are_seen(tmp_path: Path) -> None:
    """Thirteen frames within a moment, in a lane of their own, right after the grant: a bar of some pixels, with no
    mark upon it."""
    rows = session(seed=1)
    granted = next(each for each in rows["authorizations"] if each["stream_id"] == "stream-1")
    moment = granted["from_ts"]
    rows["authorizations"].append({**granted, "participant": "old-sensor", "right": "write", "given_how": "grant"})
    rows["frames"] += [
        {**rows["frames"][0], "seq": 10**6 + place, "stream_id": "stream-1", "sender": "old-sensor", "ts": moment}
        for place in range(13)
    ]
    text = written(rows, tmp_path / "report.html")
    traces = figures_in(text)["timeline"]["data"]
    lane = next(each for each in traces if each.get("name") == "old-sensor" and "wrote 13 frames" in str(each))
    assert lane["marker"]["line"] == {"width": 3, "color": lane["marker"]["color"]}
    # The bar is within half its height of the middle of the lane, the mark of the grant stands above that.
    [y], [height] = lane["y"], lane["width"]
    grants = next(each for each in traces if each.get("name") == "grant")
    above = min(y - each for each in grants["y"] if abs(y - each) < 0.5)
    assert above > height / 2
    drawn = in_browser(tmp_path / "report.html").stdout
    timeline = drawn[drawn.index('id="timeline"') : drawn.index("<h2>Rates</h2>")]
    bars = re.findall(r'<path d="M[^"]*Z"[^>]*stroke-width: 3px[^>]*>', timeline)
    assert len(bars) == sum(len(each["y"]) for each in traces if "wrote" in str(each.get("customdata")))


@pytest.mark.parametrize("case", ["plain", "many", "hostile", "empty"])
def test_a_browser_draws_it(tmp_path: Path, case: str) -> None:
    rows: Rows = {
        "plain": lambda: session(seed=1),
        "many": lambda: session(seed=2, streams=50, people=tuple(f"participant-{place}" for place in range(50))),
        "hostile": lambda: session(seed=3, streams=2, people=HOSTILE, space="<i>space</i>"),
        "empty": dict,
    }[case]()
    text = written(rows, tmp_path / "report.html")
    done = in_browser(tmp_path / "report.html")
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not said
    expected = figures_in(text)
    assert f'data-drawn="{len(expected)}"' in done.stdout
    for name in expected:
        drawn = done.stdout[done.stdout.index(f'id="{name}"') :]
        assert 'class="main-svg"' in drawn[:6000], name
    if case == "hostile":
        assert not {"img", "i"} & set(
            _Elements(done.stdout[done.stdout.index("<body>") : done.stdout.index("<footer>")]).tags
        )
