"""Folding logs without files and without Spark.

folded = fold_all(play)                    # in one batch
folded = fold_all(play, cuts=[10, 57])     # in three
folded.rows["streams"], folded.findings
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from journals import Play

from mewstream.history.reading import by_space, narrow
from mewstream.journal.rows import Rows
from mewstream.journal.schema import SCHEMA
from mewstream.pipeline.spaces import Carried, fold
from mewstream.protocol.records import Record, SpaceStarted


class Folded(NamedTuple):
    rows: dict[str, list[dict[str, Any]]]
    """Final ones, and those that are open in the end."""
    sums: Counter[str]
    carried: Carried

    @property
    def findings(self) -> list[tuple[int, str]]:
        return [(each["seq"], each["rule"]) for each in self.rows["audit"]]


def fold_all(play: Play, *, cuts: Sequence[int] = (), records: Sequence[Record] | None = None) -> Folded:
    records = play.records if records is None else records
    carried, sums = Carried(), Counter[str]()
    final: dict[str, list[dict[str, Any]]] = defaultdict(list)
    last: dict[str, list[dict[str, Any]]] = {}
    for begin, end in itertools.pairwise([0, *cuts, len(records)]):
        [space] = by_space(table_of(play.space, records[begin:end], begin))
        made = fold(space, carried)
        last = {name: [row for row in rows if row.get("is_open")] for name, rows in made.rows.items()}
        for name, rows in made.rows.items():
            final[name] += [row for row in rows if not row.get("is_open")]
        sums.update(made.told.sums)
        carried = made.carried
    return Folded({name: rows + last[name] for name, rows in final.items()}, sums, carried)


def table_of(space: str, records: Sequence[Record], offset: int = 0) -> pa.Table:
    batch = Rows()
    epoch = ""
    for record in records:
        epoch = record.epoch if isinstance(record, SpaceStarted) else epoch
        batch.append(space, epoch, record)
    whole = batch.encode(offset)
    return pa.Table.from_batches([narrow(each) for each in pa.Table.from_batches([whole], SCHEMA).to_batches()])


def comparable(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    return {name: sorted(map(repr, each)) for name, each in rows.items()}
