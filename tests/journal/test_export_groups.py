"""What is put into one row group of Parquet."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mewstream.journal.export import row_groups


@given(st.lists(st.lists(st.integers(0, 50), max_size=8), max_size=8), st.integers(1, 6), st.integers(1, 400))
def test_all_rows_in_order_and_no_more_than_is_asked_for(
    sizes: list[list[int]], most_rows: int, most_bytes: int
) -> None:
    batches = [pa.RecordBatch.from_pydict({"data": pa.array([b"x" * n for n in each], pa.binary())}) for each in sizes]
    groups = list(row_groups(batches, most_rows=most_rows, most_bytes=most_bytes))
    found = [len(value) for group in groups for value in group.column("data").to_pylist()]
    assert found == [size for each in sizes for size in each]
    assert all(0 < group.num_rows <= most_rows for group in groups)
    largest = max((batch.nbytes for batch in batches), default=0)
    assert all(group.nbytes < most_bytes + largest + 8 * most_rows for group in groups)
