"""Which rows a report is about: those of some spaces and of a period of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mewstream.query.database import WarehouseDatabase
from mewstream.query.dialects import DUCKDB

#: The time of a row; for rows that last, their beginning and their end, which is null until then.
_MOMENTS = {
    **dict.fromkeys(("envelopes", "frames", "refusals", "content", "quarantine", "audit"), "ts"),
    **dict.fromkeys(("sequence_gaps", "handoffs"), "ts"),
    "stream_metrics": "window_start",
}
_SPANS = {
    "authorizations": ("from_ts", "until_ts"),
    "sessions": ("joined_ts", "left_ts"),
    "streams": ("ready_ts", "ended_ts"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    spaces: Sequence[str] = ()
    """All spaces if empty."""
    since: int | None = None
    until: int | None = None
    """Microseconds since 1970, the end not included."""

    @property
    def is_part_of_time(self) -> bool:
        return self.since is not None or self.until is not None

    def condition(self, begin: str, end: str) -> str:
        parts = [f"space IN ({', '.join(map(DUCKDB.text, self.spaces))})"] if self.spaces else []
        if self.since is not None:
            parts.append(f"({end} IS NULL OR {end} >= make_timestamptz({self.since}))")
        if self.until is not None:
            parts.append(f"{begin} < make_timestamptz({self.until})")
        return " AND ".join(parts) or "true"


def create_views(database: WarehouseDatabase, selection: Selection) -> None:
    """Create views of selected rows: ``the_frames`` of ``frames`` and so on, ``the_summary`` of ``space_summary``."""
    for name in (*_MOMENTS, *_SPANS):
        begin, end = _SPANS[name] if name in _SPANS else (_MOMENTS[name], _MOMENTS[name])
        _view(database, f"the_{name}", f"SELECT * FROM {name} WHERE {selection.condition(begin, end)}")
    summary = f"SELECT * FROM space_summary WHERE {selection.condition('first_ts', 'last_ts')}"
    if selection.is_part_of_time:
        low = "first_ts" if selection.since is None else f"greatest(first_ts, make_timestamptz({selection.since}))"
        high = "last_ts" if selection.until is None else f"least(last_ts, make_timestamptz({selection.until - 1}))"
        counted = " UNION ALL BY NAME ".join(_COUNTED)
        summary = _OF_A_TIME.format(summary=summary, counted=counted, low=low, high=high)
        streams = f"SELECT * FROM streams WHERE {selection.condition(*_SPANS['streams'])}"
        _view(database, "the_streams", _STREAMS_OF_A_TIME.format(streams=streams))
    _view(database, "the_summary", summary)


def _view(database: WarehouseDatabase, name: str, select: str) -> None:
    database.rows(f"CREATE OR REPLACE TEMP VIEW {name} AS {select}")


#: What the summary of a space counts, counted for a period of time.
_COUNTED = (
    "SELECT space, count(*) AS frames, sum(size) AS bytes FROM the_frames GROUP BY space",
    "SELECT space, count(*) AS envelopes FROM the_envelopes GROUP BY space",
    "SELECT space, sum(count) AS refusals, count(*) AS refusal_records FROM the_refusals GROUP BY space",
    "SELECT space, sum(drops) AS drops FROM the_stream_metrics GROUP BY space",
    "SELECT space, count(DISTINCT participant) AS participants FROM the_sessions GROUP BY space",
    "SELECT space, count(*) AS streams, count(*) FILTER (is_open) AS open_streams FROM the_streams GROUP BY space",
    "SELECT space, count(*) AS content FROM the_content GROUP BY space",
    "SELECT space, count(*) AS quarantined FROM the_quarantine GROUP BY space",
    "SELECT space, count(*) AS findings FROM the_audit GROUP BY space",
)
_NAMES = (
    *("frames", "bytes", "envelopes", "refusals", "refusal_records", "drops", "participants", "streams"),
    *("open_streams", "content", "quarantined", "findings"),
)
#: The audit does not say of a single frame whether it was judged: as many were as can have been.
_OF_A_TIME = f"""
WITH counted AS (
    SELECT space, {", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in _NAMES)}
    FROM ({{counted}}) GROUP BY space
), whole AS (
    SELECT summary.* REPLACE (
        {", ".join(f"coalesce(counted.{name}, 0) AS {name}" for name in _NAMES if name != "refusal_records")},
        {{low}} AS first_ts, {{high}} AS last_ts,
        least(refusals_judged, coalesce(refusal_records, 0)) AS refusals_judged,
        least(refusals_not_judged, coalesce(refusal_records, 0)) AS refusals_not_judged
    )
    FROM ({{summary}}) AS summary LEFT JOIN counted USING (space)
)
SELECT * REPLACE (
    least(frames_judged, frames) AS frames_judged,
    greatest(frames - frames_judged, 0) AS frames_not_judged,
    IF(findings > 0, 'flawed', IF(verdict IS NULL, NULL, 'sound')) AS verdict
)
FROM whole
"""
#: Streams with the frames of that period only.
_STREAMS_OF_A_TIME = """
SELECT streams.* REPLACE (coalesce(counted.frames, 0) AS frames, coalesce(counted.bytes, 0) AS bytes)
FROM ({streams}) AS streams
LEFT JOIN (
    SELECT space, stream_id, count(*) AS frames, CAST(sum(size) AS BIGINT) AS bytes FROM the_frames
    GROUP BY space, stream_id
) AS counted USING (space, stream_id)
"""
