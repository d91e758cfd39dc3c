"""``space_summary``: each space in one row, by adding what a batch brought to what was there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.spaces import Space
from mewstream.pipeline.tables import SPACE_SUMMARY

_ENDS = ("first_seq", "first_ts", "last_seq", "last_ts")
_SUMS = tuple(name for name in SPACE_SUMMARY.names if name not in {"space", "verdict", *_ENDS})


def summaries(
    spaces: Iterable[Space], before: Mapping[str, dict[str, Any]], more: Mapping[str, Mapping[str, int]]
) -> list[dict[str, Any]]:
    """The rows of the spaces of a batch after it. ``before`` are their rows of before, and ``more`` what else the batch
    adds, by space."""
    return [_summary(each, before.get(each.space), more.get(each.space, {})) for each in spaces]


def _summary(space: Space, before: dict[str, Any] | None, more: Mapping[str, int]) -> dict[str, Any]:
    (first_seq, last_seq), (first_ts, last_ts) = space.seqs, space.times
    row: dict[str, Any] = {"space": space.space} | dict.fromkeys(_SUMS, 0)
    row |= {"first_seq": first_seq, "first_ts": first_ts, "last_seq": last_seq, "last_ts": last_ts}
    if before is not None:
        _refuse_second_beginning(space, before)
        row |= before
        row["first_seq"], row["last_seq"] = min(row["first_seq"], first_seq), max(row["last_seq"], last_seq)
        row["first_ts"], row["last_ts"] = min(row["first_ts"], first_ts), max(row["last_ts"], last_ts)
    for added in (space.sums, more):
        for name, count in added.items():
            row[name] += count
    row |= space.current
    return row | {"verdict": "flawed" if row["findings"] else "sound"}


def _refuse_second_beginning(space: Space, before: dict[str, Any]) -> None:
    """Its numbers would mean two things, and what is carried over of it would be taken for what it is now."""
    if space.seqs[0] == 1:
        raise WarehouseError(
            f"space {space.space!r} begins with seq 1 again in the journal, and the tables have it up to seq "
            f"{before['last_seq']}: it was erased from the journal alone. Erase it from the tables, `mewstream erase "
            f"--space {space.space} --warehouse ...`, then run the pipeline"
        )
