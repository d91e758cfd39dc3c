"""The files that workers write by themselves: whole or not there, and never more in memory than is bounded."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from mewstream.pipeline import parquet_tables
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.frames import COLUMNS, frames
from mewstream.pipeline.manifest import Piece
from mewstream.pipeline.parquet_tables import (
    CHANGE_BYTES,
    GROUP_BYTES,
    ParquetTables,
    _changed,
    _put_in_place,
    _write_file,
)
from mewstream.pipeline.source import spark_schema


def batch(*numbers: int, size: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"seq": list(numbers), "space": ["s"] * len(numbers), "data": [b"x" * size] * len(numbers)}
    )


def written(directory: Path, number: int, *batches: pa.RecordBatch) -> dict[str, int]:
    """What a worker tells the driver: the file that it has written, and how many rows are in it."""
    [told] = _write_file(str(directory), number, iter(batches))
    [row] = told.to_pylist()
    return {row["file"]: row["rows"]} if row["rows"] else {}


def read(spark: SparkSession, directory: Path) -> list[int]:
    return sorted(row.seq for row in spark.read.parquet(str(directory)).collect())


def test_one_file_for_each_piece_of_work(spark: SparkSession, tmp_path: Path) -> None:
    told = written(tmp_path, 0, batch(1, 2), batch(), batch(3)) | written(tmp_path, 1, batch(4))
    assert sorted(told.values()) == [1, 3]
    assert _put_in_place(tmp_path, told) == 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["part-00000.parquet", "part-00001.parquet"]
    assert read(spark, tmp_path) == [1, 2, 3, 4]


def test_of_a_task_that_was_tried_twice_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path, 0, batch(1, 2))
    assert _put_in_place(tmp_path, written(tmp_path, 0, batch(1, 2))) == 2
    assert read(spark, tmp_path) == [1, 2]
    assert len(list(tmp_path.iterdir())) == 1


def test_an_attempt_that_comes_late_is_seen_by_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """Its executor was given up for lost."""
    _put_in_place(tmp_path, written(tmp_path, 0, batch(1, 2)))
    written(tmp_path, 0, batch(1, 2))
    assert read(spark, tmp_path) == [1, 2]
    assert ParquetTables(tmp_path.parent, "tag")._piece(tmp_path.name) == Piece(tmp_path.name, 2)


@pytest.mark.parametrize("batches", [[], [batch()]])
def test_no_rows_are_no_file(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    assert written(tmp_path, 0, *batches) == {}
    assert list(tmp_path.iterdir()) == []


def test_work_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_tables, "GROUP_ROWS", 2)
    there: list[Path] = []

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(1, 2)
        yield batch(3, 4)
        there.extend(tmp_path.iterdir())
        raise OSError("the journal is gone")

    with pytest.raises(OSError, match="the journal is gone"):
        list(_write_file(str(tmp_path), 0, broken()))
    assert len(there) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_a_worker_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match=r"written by the worker on \S+: a warehouse is on a path that .* share"):
        written(tmp_path / "elsewhere", 0, batch(1))


def test_a_file_that_cannot_be_written_to_its_end(tmp_path: Path) -> None:
    """As on a disk that is full."""
    rows = pa.RecordBatch.from_pydict({"data": [os.urandom(1000) for _ in range(1000)]})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(WarehouseError, match=r"cannot be written by the worker on \S+: .*File too large"):
            written(tmp_path, 0, rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_large_payloads_are_in_groups_of_their_own(tmp_path: Path) -> None:
    large = GROUP_BYTES // 4
    file = written_at_once(tmp_path, batch(*range(100)), *(batch(1000 + each, size=large) for each in range(10)))
    metadata = pq.read_metadata(file)
    sizes = [metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups)]
    assert len(sizes) > 2
    assert max(sizes) < GROUP_BYTES + large


def test_so_much_is_changed_at_once(tmp_path: Path) -> None:
    size = CHANGE_BYTES // 4
    file = written_at_once(tmp_path, *(batch(number, size=size) for number in range(20)))
    seen: list[int] = []

    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(rows.column("data").nbytes)
        return rows.select(["seq"])

    found = list(_changed(str(file), ("seq", "data"), change))
    assert [number for each in found for number in each.column("seq").to_pylist()] == list(range(20))
    assert max(seen) <= CHANGE_BYTES + size


def test_texts_are_numbers_of_a_dictionary(tmp_path: Path) -> None:
    """And remain texts in what is written."""
    file = written_at_once(tmp_path, batch(1, 2, 3))
    [read] = _changed(str(file), ("seq", "space"), lambda rows: rows)
    assert pa.types.is_dictionary(read.column("space").type)
    (tmp_path / "again").mkdir()
    again = written_at_once(tmp_path / "again", read)
    assert pq.read_schema(again).field("space").type == pa.string()


@pytest.mark.parametrize("setting", ["INT96", "TIMESTAMP_MICROS"])
def test_frames_of_bronze_that_spark_has_written(spark: SparkSession, tmp_path: Path, setting: str) -> None:
    """As it is after compaction; and in warehouses of before the workers wrote, with times of another age."""
    now = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    given = {"space": "s", "seq": 1, "ts": now, "record": "frame", "kind": "frame", "data": b'{"ts":1699999999250}'}
    required = {"offset": 1, "epoch": "e", "outcome": "accepted"}
    row = [{**given, **required}.get(name) for name in spark_schema().names]
    name, before = "spark.sql.parquet.outputTimestampType", spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set(name, setting)
    try:
        spark.createDataFrame([row], spark_schema()).coalesce(1).write.parquet(str(tmp_path / "bronze"))
    finally:
        spark.conf.set(name, before)
    [file] = (tmp_path / "bronze").glob("*.parquet")
    assert ("int96" in str(pq.ParquetFile(file).schema)) == (setting == "INT96")
    [made] = _changed(str(file), COLUMNS, frames)
    assert made.schema.field("ts").type == pa.timestamp("us", "UTC")
    [frame] = made.to_pylist()
    assert (frame["ts"], frame["latency_ms"]) == (now, 750.0)


def written_at_once(directory: Path, *batches: pa.RecordBatch) -> Path:
    [file] = written(directory, 0, *batches)
    return directory / file
