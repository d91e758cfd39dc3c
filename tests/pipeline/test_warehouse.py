"""Where tables live: commits, what readers see, compaction, locks. Without a pipeline."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from running import as_text

from mewstream.pipeline import manifest as commits
from mewstream.pipeline.delta_tables import COMPACT_EVERY
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.manifest import GRACE_SECONDS, Manifest
from mewstream.pipeline.parquet_tables import FAN_IN
from mewstream.pipeline.session import TableFormat
from mewstream.pipeline.tables import FRAMES, PARTICIPANTS, REFUSALS, STREAMS
from mewstream.pipeline.warehouse import Writer, local_path, locked, open_warehouse


def new_warehouse(spark: SparkSession, root: Path, table_format: TableFormat = "parquet") -> Writer:
    first = Manifest(number=0, batch=0, journal="j", offsets={0: 0}, table_format=table_format)
    return Writer(spark, root, commits.commit(root, first, None))


def people(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame([("s", name, 1) for name in names], PARTICIPANTS.schema)


def refusals(spark: SparkSession, *seqs: int) -> DataFrame:
    rows = [("s", seq) for seq in seqs]
    nulls = [f"CAST(NULL AS {each.type}) AS `{each.name}`" for each in REFUSALS.columns[2:]]
    return spark.createDataFrame(rows, "space string, seq bigint").selectExpr("space", "seq", *nulls)


def seqs(spark: SparkSession, root: Path) -> list[int]:
    return sorted(row.seq for row in open_warehouse(root).table(spark, "refusals").collect())


class TestCommits:
    def test_nothing_is_seen_before_the_commit(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        batch = writer.begin()
        batch.append(REFUSALS, refusals(spark, 1, 2))
        batch.replace(PARTICIPANTS, people(spark, "ann"))
        assert seqs(spark, tmp_path) == []
        batch.commit({0: 2})
        assert seqs(spark, tmp_path) == [1, 2]
        assert open_warehouse(tmp_path).manifest.offsets == {0: 2}

    def test_open_rows_are_replaced_and_final_ones_added(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        for number, names in enumerate((["ann"], ["ann", "bob"], ["bob"])):
            batch = writer.begin()
            batch.append(REFUSALS, refusals(spark, number))
            batch.replace(PARTICIPANTS, people(spark, *names))
            batch.commit({0: number})
        assert seqs(spark, tmp_path) == [0, 1, 2]
        found = open_warehouse(tmp_path).table(spark, PARTICIPANTS.name)
        assert [row.participant for row in found.collect()] == ["bob"]

    def test_what_is_not_replaced_stays(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        batch = writer.begin()
        batch.replace(PARTICIPANTS, people(spark, "ann"))
        batch.commit({0: 1})
        writer.begin().commit({0: 2})
        assert writer.begin().has_carried(PARTICIPANTS)
        assert writer.begin().carried(PARTICIPANTS).count() == 1

    def test_final_and_open_rows_in_one_job(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        batch = writer.begin()
        streams = spark.createDataFrame(
            [("s", "stream-1", True), ("s", "stream-2", False)], "space string, stream_id string, is_open boolean"
        )
        nulls = [f"CAST(NULL AS {each.type}) AS `{each.name}`" for each in STREAMS.columns[2:]]
        batch.split(STREAMS, streams.selectExpr("space", "stream_id", *nulls, "is_open"))
        manifest = batch.commit({0: 1})
        assert [piece.rows for piece in manifest.tables["streams"]] == [1]
        assert manifest.open["streams"].rows == 1
        found = open_warehouse(tmp_path).table(spark, "streams")
        assert sorted(row.stream_id for row in found.collect()) == ["stream-1", "stream-2"]
        assert found.columns == STREAMS.names

    def test_a_reader_keeps_what_it_opened(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        before = open_warehouse(tmp_path)
        batch = writer.begin()
        batch.append(REFUSALS, refusals(spark, 1))
        batch.commit({0: 1})
        assert before.table(spark, "refusals").count() == 0

    def test_what_came_to_nothing_is_not_seen_later_either(
        self, spark: SparkSession, tmp_path: Path, table_format: TableFormat
    ) -> None:
        """Also where the batch, when it is repeated, has nothing for a table that it had written to."""
        writer = new_warehouse(spark, tmp_path, table_format)
        for number in range(2):
            writer.begin().append(REFUSALS, refusals(spark, 10))
            writer.begin().commit({0: 1})
            batch = writer.begin()
            batch.append(REFUSALS, refusals(spark, number))
            batch.commit({0: 2})
        assert seqs(spark, tmp_path) == [0, 1]
        writer.begin().append(REFUSALS, refusals(spark, 10))
        writer.commit(msgspec.structs.replace(writer.manifest, batch=COMPACT_EVERY))
        writer.compact()
        assert seqs(spark, tmp_path) == [0, 1]

    def test_the_newest_commit_is_enough(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        for number in range(5):
            batch = writer.begin()
            batch.append(REFUSALS, refusals(spark, number))
            batch.commit({0: number})
        for old in sorted((tmp_path / commits.COMMITS).iterdir())[:-1]:
            old.unlink()
        assert seqs(spark, tmp_path) == [0, 1, 2, 3, 4]


class TestCompaction:
    def test_small_pieces_become_one(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        for number in range(FAN_IN):
            batch = writer.begin()
            batch.append(REFUSALS, refusals(spark, number))
            batch.commit({0: number})
            writer.compact()
        [piece] = open_warehouse(tmp_path).manifest.tables["refusals"]
        assert (piece.rows, piece.level) == (FAN_IN, 1)
        assert seqs(spark, tmp_path) == list(range(FAN_IN))

    def test_pieces_stay_few_and_each_row_is_moved_a_few_times(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        moved = 0
        for number in range(FAN_IN * 3 + 4):
            batch = writer.begin()
            batch.append(REFUSALS, refusals(spark, number))
            batch.commit({0: number})
            before = {piece.path for piece in writer.manifest.tables["refusals"]}
            writer.compact()
            moved += sum(p.rows for p in writer.manifest.tables["refusals"] if p.path not in before)
        assert [(piece.rows, piece.level) for piece in writer.manifest.tables["refusals"]] == [
            *[(FAN_IN, 1)] * 3,
            *[(1, 0)] * 4,
        ]
        assert moved == FAN_IN * 3

    def test_a_reader_of_before_is_not_disturbed(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        for number in range(FAN_IN):
            batch = writer.begin()
            batch.append(REFUSALS, refusals(spark, number))
            batch.commit({0: number})
        before = open_warehouse(tmp_path).table(spark, "refusals")
        writer.compact()
        assert before.count() == FAN_IN

    def test_what_no_commit_names_goes_later(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = new_warehouse(spark, tmp_path)
        for names in (["ann"], ["bob"]):
            batch = writer.begin()
            batch.replace(PARTICIPANTS, people(spark, *names))
            batch.commit({0: 1})
        directory = tmp_path / PARTICIPANTS.name
        assert len(list(directory.iterdir())) == 2
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + GRACE_SECONDS + 1)
        writer.begin().commit({0: 2})
        assert len(list(directory.iterdir())) == 1
        assert open_warehouse(tmp_path).table(spark, PARTICIPANTS.name).collect()[0].participant == "bob"

    def test_a_table_that_was_empty_for_a_while_stays(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: TableFormat
    ) -> None:
        writer = new_warehouse(spark, tmp_path, table_format)
        for names in (["ann"], [], ["bob"]):
            batch = writer.begin()
            batch.replace(PARTICIPANTS, people(spark, *names))
            batch.commit({0: 1})
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + GRACE_SECONDS + 1)
        writer.begin().commit({0: 2})
        [row] = open_warehouse(tmp_path).table(spark, PARTICIPANTS.name).collect()
        assert row.participant == "bob"


class TestSweep:
    def test_what_a_killed_run_left_is_removed(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = new_warehouse(spark, tmp_path)
        batch = writer.begin()
        batch.append(REFUSALS, refusals(spark, 1))
        batch.commit({0: 1})
        lost = writer.begin()
        lost.append(REFUSALS, refusals(spark, 2))
        lost.replace(PARTICIPANTS, people(spark, "ann"))
        Writer(spark, tmp_path, open_warehouse(tmp_path).manifest).sweep()
        assert seqs(spark, tmp_path) == [1]
        assert len(list((tmp_path / "refusals").iterdir())) == 1
        assert list((tmp_path / PARTICIPANTS.name).iterdir()) == []

    def test_two_runs_never_write_the_same_files(self, spark: SparkSession, tmp_path: Path) -> None:
        """A worker of a killed run may still be writing its batch when the next run writes the same one."""
        writer = new_warehouse(spark, tmp_path)
        writer.begin().append(REFUSALS, refusals(spark, 1))
        again = Writer(spark, tmp_path, open_warehouse(tmp_path).manifest)
        batch = again.begin()
        batch.append(REFUSALS, refusals(spark, 1))
        batch.commit({0: 1})
        assert seqs(spark, tmp_path) == [1]
        assert len(list((tmp_path / "refusals").iterdir())) == 2


class TestOpening:
    def test_there_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(WarehouseError, match=r"there is no warehouse in .*: make one with"):
            open_warehouse(tmp_path)

    @pytest.mark.parametrize(("version", "advice"), [(0, "--full-refresh"), (99, "update mewstream")])
    def test_another_version(self, tmp_path: Path, version: int, advice: str) -> None:
        manifest = Manifest(number=0, batch=0, journal="j", offsets={}, table_format="parquet", schema_version=version)
        commits.commit(tmp_path, manifest, None)
        with pytest.raises(WarehouseError, match=advice):
            open_warehouse(tmp_path)

    def test_a_damaged_commit(self, tmp_path: Path) -> None:
        (tmp_path / commits.COMMITS).mkdir()
        (tmp_path / commits.COMMITS / "00000000000000000001.json").write_text("{")
        with pytest.raises(WarehouseError, match="cannot be read"):
            open_warehouse(tmp_path)

    def test_paths(self, tmp_path: Path) -> None:
        assert local_path(f"file://{tmp_path}") == tmp_path
        with pytest.raises(WarehouseError, match="share"):
            local_path("s3://bucket/warehouse")

    def test_every_table_can_be_read_empty(self, spark: SparkSession, tmp_path: Path) -> None:
        new_warehouse(spark, tmp_path)
        assert as_text(open_warehouse(tmp_path).table(spark, FRAMES.name)) == []


class TestLock:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        by = rf"another pipeline \(process {os.getpid()}\)"
        with locked(tmp_path), pytest.raises(WarehouseError, match=by), locked(tmp_path):
            pass
        with locked(tmp_path):
            pass

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(WarehouseError, match="cannot use"), locked(tmp_path / "file"):
            pass
