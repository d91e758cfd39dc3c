"""All tables made anew, from bronze: the same tables, stopped and gone on with; and the kind of before taken over."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from journals import Play, append, lively, opened, prune_before, seal_segments, write_journal
from pyspark.sql import SparkSession
from running import assert_same, bring_up_to_date, rows, tables_of

from mewstream.pipeline.commits import append_commit
from mewstream.pipeline.committing import Tables
from mewstream.pipeline.delta import DeltaLog
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.refresh import OLD_COMMITS, Draft, OldBronze
from mewstream.pipeline.runner import Progress, Settings, plan, run
from mewstream.pipeline.storage import store_at
from mewstream.pipeline.warehouse import open_warehouse

BEFORE = Path(__file__).parent / "before_delta"


@pytest.fixture
def journal(journal_of: Callable[..., Path]) -> Path:
    return journal_of(lively(160, seed=21), lively(100, space="other", seed=22))


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def settings(data: Path, warehouse: Path, **more: Any) -> Settings:
    return Settings(data=str(data), warehouse=warehouse, **more)


class TestFullRefresh:
    @pytest.mark.long
    def test_the_same_tables(self, spark: SparkSession, journal: Path, warehouse: Path) -> None:
        bring_up_to_date(spark, journal, warehouse, max_records=70)
        before, opened_before = tables_of(warehouse), open_warehouse(warehouse)
        seen: list[Progress] = []
        run(settings(journal, warehouse, full_refresh=True, max_records=120), seen.append, spark=spark)
        after = open_warehouse(warehouse)
        assert all(each.refreshing for each in seen)
        assert len(seen) > 1
        assert after.commit.operation == "refresh"
        assert after.files("records") == opened_before.files("records")
        assert not set(after.files("frames")) & set(opened_before.files("frames"))
        assert not (warehouse / "_refresh").exists()
        assert_same(tables_of(warehouse), before)

    def test_after_pruning_and_then_it_catches_up(self, spark: SparkSession, tmp_path: Path, warehouse: Path) -> None:
        data, play = tmp_path / "data", lively(200, seed=26)
        before = len(play.records)
        with opened(data, partitions=1, segment_bytes=4000) as journal:
            append(journal, play)
            bring_up_to_date(spark, data, warehouse)
            assert prune_before(journal, 0, 150) > 50
            seal_segments(journal)
            while len(play.records) < 260:
                play.step()
            append(journal, play)
        result = bring_up_to_date(spark, data, warehouse, full_refresh=True)
        assert (result.records, result.rows["records"]) == (len(play.records) - before, len(play.records))
        whole = write_journal(tmp_path / "whole", play_again(play), partitions=1)
        bring_up_to_date(spark, whole, tmp_path / "expected")
        assert_same(tables_of(warehouse), tables_of(tmp_path / "expected"))

    def test_stopped_in_between_the_old_tables_stay(self, spark: SparkSession, journal: Path, warehouse: Path) -> None:
        bring_up_to_date(spark, journal, warehouse, max_records=70)
        before, number = tables_of(warehouse), open_warehouse(warehouse).commit.batch
        stop = threading.Event()
        result = run(
            settings(journal, warehouse, full_refresh=True, max_records=100),
            lambda _: stop.set(),
            stop=stop,
            spark=spark,
        )
        assert result.stopped
        assert open_warehouse(warehouse).commit.batch == number
        assert_same(tables_of(warehouse), before)
        # It goes on where it was: three portions and the first of them is not made again.
        seen: list[Progress] = []
        run(settings(journal, warehouse, full_refresh=True, max_records=100), seen.append, spark=spark)
        assert [each.batch for each in seen] == [2, 3]
        assert_same(tables_of(warehouse), before)
        assert open_warehouse(warehouse).commit.batch == number + 1

    @pytest.mark.long
    def test_tables_of_an_older_version(self, spark: SparkSession, journal: Path, warehouse: Path) -> None:
        bring_up_to_date(spark, journal, warehouse)
        before = tables_of(warehouse)
        tables = Tables(store_at(warehouse), lambda: open_warehouse(warehouse).commit.position)
        append_commit(tables.commits, msgspec.structs.replace(tables.newest, batch=tables.batch + 1, schema_version=0))
        with pytest.raises(WarehouseError, match="--full-refresh"):
            bring_up_to_date(spark, journal, warehouse)
        bring_up_to_date(spark, journal, warehouse, full_refresh=True)
        assert_same(tables_of(warehouse), before)

    @pytest.mark.long
    @pytest.mark.parametrize("commits", [1, 2, 3, 9, 17, 19])
    def test_killed_while_it_is_published(
        self, spark: SparkSession, journal: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch, commits: int
    ) -> None:
        bring_up_to_date(spark, journal, warehouse, max_records=150)
        before, number = tables_of(warehouse), open_warehouse(warehouse).commit.batch
        left, real = commits, DeltaLog.commit

        def commit(log: DeltaLog, *arguments: Any, **options: Any) -> None:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            real(log, *arguments, **options)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(DeltaLog, "commit", commit)
            bring_up_to_date(spark, journal, warehouse, full_refresh=True)
        assert_same(tables_of(warehouse), before)
        # Once it is complete, any run goes on with it.
        bring_up_to_date(spark, journal, warehouse, full_refresh=commits < 2)
        assert open_warehouse(warehouse).commit.batch == number + 1
        assert_same(tables_of(warehouse), before)
        assert not Draft.is_begun(store_at(warehouse))
        for name, version in open_warehouse(warehouse).commit.versions.items():
            assert DeltaTable(warehouse / name).version() == version

    @pytest.mark.long
    def test_a_draft_whose_files_are_gone_is_begun_anew(
        self, spark: SparkSession, journal: Path, warehouse: Path
    ) -> None:
        bring_up_to_date(spark, journal, warehouse)
        before = tables_of(warehouse)
        stop = threading.Event()
        run(
            settings(journal, warehouse, full_refresh=True, max_records=100),
            lambda _: stop.set(),
            stop=stop,
            spark=spark,
        )
        [file, *_] = Draft(store_at(warehouse)).files["frames"]
        (warehouse / "frames" / file.path).unlink()
        seen: list[Progress] = []
        run(settings(journal, warehouse, full_refresh=True, max_records=100), seen.append, spark=spark)
        assert [each.batch for each in seen] == [1, 2, 3]
        assert_same(tables_of(warehouse), before)


class TestTheKindOfBefore:
    """A journal and its warehouse, written by a mewstream of before Delta Lake."""

    @pytest.fixture
    def before(self, tmp_path: Path) -> Path:
        for name in ("data", "warehouse"):
            shutil.copytree(BEFORE / name, tmp_path / "before" / name)
        return tmp_path / "before"

    def test_it_is_refused(self, spark: SparkSession, before: Path) -> None:
        for attempt in (plan, lambda given: run(given, spark=spark)):
            with pytest.raises(WarehouseError, match=r"before Delta Lake: .* --full-refresh") as refused:
                attempt(settings(before / "data", before / "warehouse"))
            assert "\n" not in str(refused.value)
        planned = plan(settings(before / "data", before / "warehouse", full_refresh=True))
        assert (planned.is_new, planned.records, planned.refreshed) == (False, 0, 101)

    def test_its_files_are_found_whatever_its_directory_is_called(self, before: Path, tmp_path: Path) -> None:
        """Also those of a piece that is a Delta table, as the pipeline wrote them with --table-format delta."""
        expected = OldBronze.of(store_at(before / "warehouse")).files(store_at(before / "warehouse"))
        root = tmp_path / "my warehouse"
        (root / OLD_COMMITS).mkdir(parents=True)
        for file in expected:
            write_deltalake(
                root / "records" / "delta", pq.read_table(before / "warehouse/records" / file.path), mode="append"
            )
        version = DeltaTable(root / "records" / "delta").version()
        piece = {"path": "records/delta", "version": version}
        commit = {"journal": "j", "offsets": {}, "tables": {"records": [piece]}}
        (root / OLD_COMMITS / "000000000001.json").write_text(json.dumps(commit))
        found = OldBronze.of(store_at(root)).files(store_at(root))
        assert sum(file.rows for file in found) == sum(file.rows for file in expected) == 101
        assert all((root / "records" / file.path).is_file() for file in found)

    def test_its_bronze_is_taken_over(self, spark: SparkSession, before: Path, tmp_path: Path) -> None:
        """Also what the journal has forgotten; stopped in between; and then it goes on with the journal."""
        data, warehouse = before / "data", before / "warehouse"
        stop = threading.Event()
        given = settings(data, warehouse, full_refresh=True, max_records=40)
        assert run(given, lambda _: stop.set(), stop=stop, spark=spark).stopped
        with pytest.raises(WarehouseError, match="--full-refresh"):
            open_warehouse(warehouse)
        seen: list[Progress] = []
        run(given, seen.append, spark=spark)
        assert [each.batch for each in seen] == [2, 3]
        bring_up_to_date(spark, data, tmp_path / "expected")
        assert_same(tables_of(warehouse), tables_of(tmp_path / "expected"))
        assert not list(warehouse.glob("_[!l]*"))
        assert not list((warehouse / "records").glob("0*"))
        with opened(data, partitions=2) as journal:
            append(journal, lively(50, space="third", seed=3))
        assert bring_up_to_date(spark, data, warehouse).records == 50
        assert len(rows(warehouse, "records")) == 151


def play_again(play: Play) -> Play:
    """The same log, as if nothing of it had been written yet."""
    play.written = 0
    return play
