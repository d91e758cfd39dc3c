"""The files that workers write by themselves: whole or not there, and never more in memory than is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mewstream.pipeline import parquet_tables
from mewstream.pipeline.parquet_tables import CHANGE_BYTES, GROUP_BYTES, _changed, _write_file


def batch(*numbers: int, size: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"seq": list(numbers), "space": ["s"] * len(numbers), "data": [b"x" * size] * len(numbers)}
    )


def written(directory: Path, number: int, *batches: pa.RecordBatch) -> int:
    [told] = _write_file(str(directory), number, iter(batches))
    rows: int = told.to_pylist()[0]["rows"]
    return rows


def numbers(directory: Path) -> list[int]:
    found: list[int] = pq.read_table(directory).column("seq").to_pylist()
    return sorted(found)


def test_one_file_for_each_piece_of_work(tmp_path: Path) -> None:
    assert written(tmp_path, 0, batch(1, 2), batch(), batch(3)) == 3
    assert written(tmp_path, 1, batch(4)) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["part-00000.parquet", "part-00001.parquet"]
    assert numbers(tmp_path) == [1, 2, 3, 4]


def test_a_task_that_is_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        assert written(tmp_path, 0, batch(1, 2)) == 2
    assert numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize("batches", [[], [batch()]])
def test_no_rows_are_no_file(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    assert written(tmp_path, 0, *batches) == 0
    assert list(tmp_path.iterdir()) == []


def test_work_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(*range(parquet_tables.GROUP_ROWS))
        raise OSError("the journal is gone")

    with pytest.raises(OSError, match="gone"):
        list(_write_file(str(tmp_path), 0, broken()))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_worker_left_is_not_seen(tmp_path: Path) -> None:
    work = _write_file(str(tmp_path), 0, iter([batch(1)]))
    next(work)
    (tmp_path / ".part-00001.parquet-1234abcd").write_bytes(b"PAR1 and no more")
    assert numbers(tmp_path) == [1]


def test_large_payloads_are_in_groups_of_their_own(tmp_path: Path) -> None:
    large = GROUP_BYTES // 4
    written(tmp_path, 0, batch(*range(100)), *(batch(1000 + each, size=large) for each in range(10)))
    metadata = pq.read_metadata(tmp_path / "part-00000.parquet")
    sizes = [metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups)]
    assert len(sizes) > 2
    assert max(sizes) < GROUP_BYTES + 2 * large


def test_so_much_is_changed_at_once(tmp_path: Path) -> None:
    size = CHANGE_BYTES // 4
    written(tmp_path, 0, *(batch(number, size=size) for number in range(20)))
    seen: list[int] = []

    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(rows.column("data").nbytes)
        return rows.select(["seq"])

    found = list(_changed(str(tmp_path / "part-00000.parquet"), ("seq", "data"), change))
    assert [number for each in found for number in each.column("seq").to_pylist()] == list(range(20))
    assert max(seen) <= CHANGE_BYTES + size


def test_texts_are_numbers_of_a_dictionary(tmp_path: Path) -> None:
    """And remain texts in what is written."""
    written(tmp_path, 0, batch(1, 2, 3))
    [read] = _changed(str(tmp_path / "part-00000.parquet"), ("seq", "space"), lambda rows: rows)
    assert pa.types.is_dictionary(read.column("space").type)
    (tmp_path / "again").mkdir()
    written(tmp_path / "again", 0, read)
    schema = pq.read_schema(tmp_path / "again" / "part-00000.parquet")
    assert schema.field("space").type == pa.string()
