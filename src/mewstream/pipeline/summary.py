"""``space_summary``: each space in one row, by adding what a batch brought to what was there."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from mewstream.pipeline.events import KNOWN
from mewstream.pipeline.sql import query
from mewstream.pipeline.tables import SPACE_SUMMARY

#: Counted anew in each batch, from what is open after it.
_CURRENT = frozenset({"participants", "present", "open_streams"})
_SUMS = tuple(
    name
    for name in SPACE_SUMMARY.names
    if name not in {"space", "verdict", "first_seq", "first_ts", "last_seq", "last_ts"}
)

#: What a control record adds to the refusals, and to the drops.
REFUSED = "IF(record = 'refused', coalesce(d.count, 1), 0)"
DROPPED = "IF(record = 'frames-dropped', d.count, 0)"

_RECORDS = """
SELECT space, min(first_seq) AS first_seq, min(first_ts) AS first_ts, max(last_seq) AS last_seq,
    max(last_ts) AS last_ts,
    sum(count) AS records,
    sum(IF(record IN ({known}), 0, count)) AS unknown_records,
    sum(IF(record = 'envelope', count, 0)) AS envelopes,
    sum(IF(record = 'frame', count, 0)) AS frames,
    sum(IF(record = 'stream-opened', count, 0)) AS streams
FROM {statistics}
GROUP BY space
"""

_SUMMARY = """
SELECT *, IF(findings > 0, 'flawed', 'sound') AS verdict
FROM (
    SELECT space, min(first_seq) AS first_seq, min(first_ts) AS first_ts, max(last_seq) AS last_seq,
        max(last_ts) AS last_ts, {sums}
    FROM {rows}
    GROUP BY space
)
"""


def of_records(statistics: DataFrame) -> DataFrame:
    """What the number of records of each kind says. ``statistics`` has a row for each space and kind."""
    return query(_RECORDS, known=", ".join(f"'{kind}'" for kind in sorted(KNOWN)), statistics=statistics)


def total(rows: DataFrame, name: str, value: str = "1") -> DataFrame:
    """A value of all rows, summed up by space, under the name of a column of the summary. The value is SQL."""
    return query("SELECT space, sum({value}) AS {name} FROM {rows} GROUP BY space", value=value, name=name, rows=rows)


def summary(carried: DataFrame, *additions: DataFrame) -> DataFrame:
    before = carried.drop("verdict", *_CURRENT)
    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), [before, *additions])
    sums = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in _SUMS)
    return query(_SUMMARY, sums=sums, rows=rows).select(SPACE_SUMMARY.names)
