"""Record batches in amounts that suit."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mewstream.journal.batches import gathered


@given(st.lists(st.lists(st.integers(0, 50), max_size=8), max_size=8), st.integers(1, 6), st.integers(1, 400))
def test_all_rows_in_order_and_in_bounds(sizes: list[list[int]], most_rows: int, most_bytes: int) -> None:
    batches = [pa.RecordBatch.from_pydict({"data": pa.array([b"x" * n for n in each], pa.binary())}) for each in sizes]
    groups = [pa.Table.from_batches(each) for each in gathered(batches, most_rows=most_rows, most_bytes=most_bytes)]
    found = [len(value) for group in groups for value in group.column("data").to_pylist()]
    assert found == [size for each in sizes for size in each]
    assert all(0 < group.num_rows <= most_rows for group in groups)


def test_bytes() -> None:
    rows = pa.RecordBatch.from_pydict({"data": [b"x" * 1000] * 100})
    groups = [sum(part.num_rows for part in each) for each in gathered([rows] * 3, most_rows=1000, most_bytes=25_000)]
    assert sum(groups) == 300
    assert 20 <= max(groups) <= 25
    assert len(groups) <= 16


def test_small_ones_are_put_together() -> None:
    rows = pa.RecordBatch.from_pydict({"data": [b"x"]})
    assert [len(each) for each in gathered([rows] * 25, most_rows=10, most_bytes=1 << 20)] == [10, 10, 5]


def test_what_fits_is_not_copied() -> None:
    rows = pa.RecordBatch.from_pydict({"data": [b"x"] * 5})
    [[found]] = gathered([rows], most_rows=5, most_bytes=1 << 20)
    assert found is rows
