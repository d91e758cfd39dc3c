"""The files of the tables: whole or not there, never more in memory than is bounded, laid out and described."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from mewstream.pipeline import files as module
from mewstream.pipeline.column_types import arrow_type
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.files import (
    CHANGE_BYTES,
    GROUP_BYTES,
    DataFile,
    changed_file,
    files_told,
    read_file,
    write_files,
)
from mewstream.pipeline.frames import COLUMNS, frames
from mewstream.pipeline.source import spark_schema
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import BY_NAME, CONTENT, QUARANTINE, RECORDS, REFUSALS, STREAMS, Table

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def rows_for(table: Table, *given: dict[str, Any], **more: pa.DataType) -> pa.RecordBatch:
    """Rows of a table that name only what matters; ``more`` are other columns."""
    schema = pa.schema([*((each.name, arrow_type(each.type)) for each in table.columns), *more.items()])
    return pa.RecordBatch.from_pylist([{"space": "s", "ts": NOON, **row} for row in given], schema)


def refusals(*seqs: int, **fields: Any) -> pa.RecordBatch:
    return rows_for(REFUSALS, *({"seq": seq, **fields} for seq in seqs))


def written(root: Path, *batches: pa.RecordBatch, tables: tuple[Table, ...] = (REFUSALS,)) -> list[DataFile]:
    """What a worker tells the driver."""
    names = [table.name for table in tables]
    chosen_by = "is_quarantined" if len(tables) > 1 else None
    return files_told(write_files(Store(str(root)), names, chosen_by, 0, iter(batches)))


def seqs(root: Path, files: list[DataFile]) -> list[int]:
    return [
        seq for file in files for batch in read_file(Store(str(root)), file, ["seq"]) for seq in batch[0].to_pylist()
    ]


def left_in(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


class TestWriting:
    def test_one_file_for_each_piece_of_work(self, tmp_path: Path) -> None:
        told = [*written(tmp_path, refusals(1, 2), refusals(), refusals(3)), *written(tmp_path, refusals(4))]
        assert [file.rows for file in told] == [3, 1]
        assert seqs(tmp_path, told) == [1, 2, 3, 4]
        assert {tmp_path / "refusals" / file.path for file in told} == set(left_in(tmp_path))
        assert [file.size for file in told] == [(tmp_path / "refusals" / file.path).stat().st_size for file in told]

    def test_a_task_that_is_tried_twice_writes_other_files(self, tmp_path: Path) -> None:
        """The driver hears of one of the two."""
        first, second = written(tmp_path, refusals(1)), written(tmp_path, refusals(1))
        assert first[0].path != second[0].path

    @pytest.mark.parametrize("batches", [[], [refusals()]])
    def test_no_rows_are_no_file(self, tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
        assert written(tmp_path, *batches) == []
        assert left_in(tmp_path) == []

    def test_work_that_fails_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "GROUP_ROWS", 2)
        there: list[Path] = []

        def broken() -> Iterator[pa.RecordBatch]:
            yield refusals(1, 2)
            yield refusals(3, 4)
            there.extend(left_in(tmp_path))
            raise OSError("the journal is gone")

        with pytest.raises(OSError, match="the journal is gone"):
            list(write_files(Store(str(tmp_path)), ["refusals"], None, 0, broken()))
        assert len(there) == 1
        assert left_in(tmp_path) == []

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "refusals").write_text("")
        with pytest.raises(WarehouseError, match=r"/refusals cannot be written by the worker on \S+: "):
            written(tmp_path, refusals(1))

    def test_a_file_that_cannot_be_written_to_its_end(self, tmp_path: Path) -> None:
        """As on a disk that is full."""
        rows = rows_for(QUARANTINE, *({"data": os.urandom(1000)} for _ in range(1000)))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            with pytest.raises(WarehouseError, match=r"cannot be written by the worker on \S+: .*File too large"):
                written(tmp_path, rows, tables=(QUARANTINE,))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert left_in(tmp_path) == []

    def test_large_payloads_are_in_groups_of_their_own(self, tmp_path: Path) -> None:
        large = GROUP_BYTES // 4
        rows = [rows_for(QUARANTINE, {"data": b"x" * large}) for _ in range(10)]
        [file] = written(
            tmp_path, rows_for(QUARANTINE, *({"seq": each} for each in range(100))), *rows, tables=(QUARANTINE,)
        )
        metadata = pq.read_metadata(tmp_path / "quarantine" / file.path)
        sizes = [metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups)]
        assert len(sizes) > 2
        assert max(sizes) < GROUP_BYTES + large


class TestLayout:
    def test_a_directory_for_each_day(self, tmp_path: Path) -> None:
        moments = [NOON, NOON + timedelta(days=1), NOON, NOON + timedelta(hours=12)]
        told = written(tmp_path, rows_for(REFUSALS, *({"seq": seq, "ts": ts} for seq, ts in enumerate(moments))))
        by_day = {file.partition: seqs(tmp_path, [file]) for file in told}
        assert by_day == {"2026-01-31": [0, 2], "2026-02-01": [1, 3]}
        assert all(file.path.startswith(f"date={file.partition}/") for file in told)
        assert "date" not in pq.read_schema(tmp_path / "refusals" / told[0].path).names

    def test_many_days_keep_few_files_open(self, tmp_path: Path) -> None:
        days = [NOON + timedelta(days=number) for number in range(100)]
        told = written(tmp_path, *(rows_for(REFUSALS, {"seq": place, "ts": ts}) for place, ts in enumerate(days)))
        assert len({file.partition for file in told}) == 100
        assert sorted(seqs(tmp_path, told)) == list(range(100))

    def test_open_and_final_rows_are_apart(self, tmp_path: Path) -> None:
        rows = rows_for(
            STREAMS,
            *({"stream_id": f"stream-{number}", "is_open": number % 2 == 0} for number in range(4)),
            is_open=pa.bool_(),
        )
        told = {file.is_open: file for file in written(tmp_path, rows, tables=(STREAMS,))}
        assert {is_open: file.partition for is_open, file in told.items()} == {True: "true", False: "false"}
        assert {is_open: file.rows for is_open, file in told.items()} == {True: 2, False: 2}

    def test_rows_of_two_tables_in_one_pass(self, tmp_path: Path) -> None:
        columns = {column.name: arrow_type(column.type) for column in (*CONTENT.columns, *QUARANTINE.columns)}
        schema = pa.schema([*columns.items(), ("is_quarantined", pa.bool_())])
        given = [{"space": "s", "seq": seq, "ts": NOON, "is_quarantined": seq == 2} for seq in range(4)]
        told = written(tmp_path, pa.RecordBatch.from_pylist(given, schema), tables=(CONTENT, QUARANTINE))
        assert {file.table: seqs(tmp_path, [file]) for file in told} == {"content": [0, 1, 3], "quarantine": [2]}
        for file in told:
            assert pq.read_schema(tmp_path / file.table / file.path).names == BY_NAME[file.table].names


class TestStatistics:
    def test_what_a_reader_skips_by(self, tmp_path: Path) -> None:
        moment = NOON + timedelta(microseconds=1)
        given = [{"seq": 5, "sender": "bob"}, {"seq": 2, "sender": "ann", "ts": moment}, {"seq": 9, "sender": None}]
        [file] = written(tmp_path, rows_for(REFUSALS, *given))
        stats = json.loads(file.stats)
        assert stats["numRecords"] == 3
        assert (stats["minValues"]["seq"], stats["maxValues"]["seq"]) == (2, 9)
        assert (stats["minValues"]["sender"], stats["maxValues"]["sender"]) == ("ann", "bob")
        assert stats["nullCount"]["sender"] == 1
        assert stats["maxValues"]["ts"] == "2026-01-31T12:00:00.000001Z"
        assert set(stats["nullCount"]) == set(REFUSALS.statistics)

    def test_over_several_groups(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "GROUP_ROWS", 2)
        [file] = written(tmp_path, refusals(5, 6), refusals(1, 2), refusals(8))
        stats = json.loads(file.stats)
        assert (stats["minValues"]["seq"], stats["maxValues"]["seq"]) == (1, 8)

    def test_nothing_is_told_of_long_texts_and_of_payloads(self, tmp_path: Path) -> None:
        """The beginning of the greatest value is not the greatest; and what people wrote is none of the log's."""
        [file] = written(tmp_path, refusals(1, kind="z" * 1000, excerpt="a secret", message="another"))
        stats = json.loads(file.stats)
        assert "kind" not in stats["maxValues"] and "kind" not in stats["minValues"]
        assert "secret" not in file.stats and "another" not in file.stats

    def test_nulls_only(self, tmp_path: Path) -> None:
        [file] = written(tmp_path, refusals(1, 2))
        stats = json.loads(file.stats)
        assert stats["nullCount"]["sender"] == 2 and "sender" not in stats["minValues"]


class TestReading:
    def test_so_much_is_changed_at_once(self, tmp_path: Path) -> None:
        size = CHANGE_BYTES // 4
        given = ({"seq": number, "data": b"x" * size} for number in range(20))
        [file] = written(tmp_path, *(rows_for(QUARANTINE, each) for each in given), tables=(QUARANTINE,))
        seen: list[int] = []

        def change(rows: pa.RecordBatch) -> pa.RecordBatch:
            seen.append(rows.column("data").nbytes)
            return rows.select(["seq"])

        changed = list(changed_file(Store(str(tmp_path)), file, ("seq", "data"), change))
        assert [number for each in changed for number in each.column("seq").to_pylist()] == list(range(20))
        assert max(seen) <= CHANGE_BYTES + size

    def test_texts_are_numbers_of_a_dictionary(self, tmp_path: Path) -> None:
        """And remain texts in what is written."""
        [file] = written(tmp_path, refusals(1, 2, 3))
        [read] = changed_file(Store(str(tmp_path)), file, tuple(REFUSALS.names), lambda rows: rows)
        assert pa.types.is_dictionary(read.column("space").type)
        [again] = written(tmp_path, read)
        assert pq.read_schema(tmp_path / "refusals" / again.path).field("space").type == pa.string()

    def test_a_column_that_is_newer_than_the_file(self, tmp_path: Path) -> None:
        [file] = written(tmp_path, refusals(1))
        path = tmp_path / "refusals" / file.path
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["excerpt"]), path)
        [batch] = read_file(Store(str(tmp_path)), file, [column.name for column in REFUSALS.all_columns])
        [row] = batch.to_pylist()
        assert (row["seq"], row["excerpt"], str(row["date"])) == (1, None, "2026-01-31")

    @pytest.mark.parametrize("setting", ["INT96", "TIMESTAMP_MICROS"])
    def test_frames_of_bronze_that_spark_has_written(self, spark: SparkSession, tmp_path: Path, setting: str) -> None:
        """As in warehouses of before Delta, some with times of another age."""
        given = {"space": "s", "seq": 1, "ts": NOON, "record": "frame", "kind": "frame"}
        given |= {"data": b'{"ts":1769860799250}', "offset": 1, "epoch": "e", "outcome": "accepted"}
        row = [given.get(name) for name in spark_schema().names]
        rows = spark.createDataFrame([row], spark_schema()).coalesce(1)
        before = spark.conf.get("spark.sql.parquet.outputTimestampType")
        spark.conf.set("spark.sql.parquet.outputTimestampType", setting)
        try:
            rows.write.parquet(str(tmp_path / "records"))
        finally:
            spark.conf.set("spark.sql.parquet.outputTimestampType", str(before))
        [path] = (tmp_path / "records").glob("*.parquet")
        assert ("int96" in str(pq.ParquetFile(path).schema)) == (setting == "INT96")
        file = DataFile(RECORDS.name, path.name, 0, 1, None, "")
        [made] = changed_file(Store(str(tmp_path)), file, COLUMNS, frames)
        [frame] = made.to_pylist()
        assert (frame["ts"], frame["latency_ms"]) == (NOON, 750.0)
