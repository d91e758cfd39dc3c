"""Running the pipeline: progress, plans, stops, repeated batches, refreshes, and what it says when it cannot."""

from __future__ import annotations

import gc
import shutil
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from journals import Play, append, frame_fields, lively, opened, prune_before, rows_of, write_journal
from pyspark.sql import SparkSession
from running import PipelineProcess, assert_same, bring_up_to_date, rows, tables_of

from mewstream.journal.errors import PositionGone
from mewstream.journal.reader import JournalReader
from mewstream.journal.retention import consumers
from mewstream.pipeline.errors import PipelineError, WarehouseError
from mewstream.pipeline.maintenance import COMPACT_EVERY
from mewstream.pipeline.runner import Plan, Progress, Result, Settings, consumer_name, plan, run
from mewstream.pipeline.storage import locked, store_at
from mewstream.pipeline.tables import ALL, COMMITS
from mewstream.pipeline.warehouse import open_warehouse
from mewstream.protocol.errors import MewError
from mewstream.protocol.records import Frame


@pytest.fixture
def journal(journal_of: Callable[..., Path]) -> Path:
    return journal_of(lively(160, seed=21), lively(100, space="other", seed=22))


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def settings(data: Path, warehouse: Path, **more: Any) -> Settings:
    return Settings(data=str(data), warehouse=warehouse, **more)


def records_in(data: Path) -> int:
    found: int = rows_of(data).num_rows
    return found


class Finished(NamedTuple):
    """A run that several tests look at."""

    journal: Path
    warehouse: Path
    result: Result
    progress: list[Progress]


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    path = tmp_path_factory.mktemp("finished")
    data = write_journal(path / "data", lively(160, seed=21), lively(100, space="other", seed=22))
    seen: list[Progress] = []
    result = run(settings(data, path / "warehouse", max_records=150), seen.append, spark=spark)
    return Finished(data, path / "warehouse", result, seen)


class TestProgress:
    def test_after_each_batch(self, finished: Finished) -> None:
        seen, result = finished.progress, finished.result
        total = records_in(finished.journal)
        assert len(seen) > 1
        assert [each.batch for each in seen] == list(range(1, len(seen) + 1))
        assert sum(each.records for each in seen) == total == result.records == result.rows["records"]
        assert [each.lag for each in seen] == [total - each.total for each in seen]
        assert all(each.records_per_second > 0 for each in seen)
        assert (result.batches, result.stopped) == (len(seen), False)

    def test_the_program_ends_as_any_other(self, finished: Finished) -> None:
        """What is frozen is not taken apart at the end, and DuckDB would tell of hundreds of leaks then."""
        assert finished.result.batches and gc.get_freeze_count() == 0

    def test_the_journal_knows_how_far_it_was_read(self, finished: Finished) -> None:
        [(name, consumer)] = consumers(finished.journal / "journal").items()
        assert name == consumer_name(store_at(finished.warehouse))
        assert consumer.offsets == open_warehouse(finished.warehouse).commit.offsets
        assert sum(consumer.offsets.values()) == records_in(finished.journal)

    def test_each_warehouse_is_a_consumer_of_its_own(self, tmp_path: Path) -> None:
        assert consumer_name(store_at(tmp_path / "a" / "tables")) != consumer_name(store_at(tmp_path / "b" / "tables"))
        assert consumer_name(store_at(tmp_path / "été & co")).isascii()


class TestPlan:
    def test_of_a_new_warehouse(self, journal: Path, warehouse: Path) -> None:
        found = plan(settings(journal, warehouse))
        assert (found.is_new, found.records, found.refreshed) == (True, records_in(journal), 0)
        assert not warehouse.exists()

    def test_of_the_rest(self, spark: SparkSession, tmp_path: Path, warehouse: Path) -> None:
        play = lively(50, seed=23)
        with opened(tmp_path / "data") as journal:
            append(journal, play)
            bring_up_to_date(spark, tmp_path / "data", warehouse)
            before = len(play.records)
            while len(play.records) < before + 30:
                play.step()
            append(journal, play)
        found = plan(settings(tmp_path / "data", warehouse, full_refresh=True))
        assert isinstance(found, Plan)
        assert (found.is_new, found.records, found.refreshed) == (False, len(play.records) - before, before)


class TestRefusals:
    def test_two_at_a_time(self, spark: SparkSession, journal: Path, warehouse: Path) -> None:
        with locked(store_at(warehouse)), pytest.raises(WarehouseError, match="another pipeline"):
            bring_up_to_date(spark, journal, warehouse)

    def test_another_journal(self, spark: SparkSession, finished: Finished, tmp_path: Path) -> None:
        other = write_journal(tmp_path / "other", Play(begin=True))
        for attempt in (plan, lambda given: run(given, spark=spark)):
            with pytest.raises(WarehouseError, match=r"tables of another journal .* another --warehouse"):
                attempt(settings(other, finished.warehouse))

    def test_no_journal(self, spark: SparkSession, tmp_path: Path, warehouse: Path) -> None:
        with pytest.raises(PipelineError, match="there is no journal in"):
            bring_up_to_date(spark, tmp_path / "nothing", warehouse)
        assert not warehouse.exists()

    def test_pruned_past_the_position(self, spark: SparkSession, tmp_path: Path, warehouse: Path) -> None:
        """Whoever removes the consumer lets the journal forget what was not read: that is said, and nothing skipped."""
        data, play = tmp_path / "data", lively(60, seed=24)
        with opened(data, partitions=1, segment_bytes=4000) as journal:
            append(journal, play)
            bring_up_to_date(spark, data, warehouse)
            before = tables_of(warehouse)
            while len(play.records) < 300:
                play.step()
            append(journal, play)
            assert prune_before(journal, 0, 250) > 60
        with pytest.raises(PositionGone, match=r"were pruned before they were read.* give another --warehouse"):
            bring_up_to_date(spark, data, warehouse)
        assert_same(tables_of(warehouse), before)

    def test_a_damaged_journal(self, spark: SparkSession, journal_of: Callable[..., Path], warehouse: Path) -> None:
        """It is said where; nothing of the batch counts, and what was mended is read as if nothing had been."""
        play = lively(200, seed=27)
        data = journal_of(play, partitions=1, segment_bytes=20_000)
        segment = JournalReader(data / "journal").segments(0)[-1]
        entry, file = segment.batches[0], Path(segment.data_path)
        sound = file.read_bytes()
        damaged = bytearray(sound)
        damaged[entry.position + entry.length // 2] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(MewError) as failure:
            bring_up_to_date(spark, data, warehouse)
        assert str(failure.value) == f"{file}: offset {entry.first_offset}: the checksum of this batch is wrong"
        assert open_warehouse(warehouse).commit.batch == 0
        file.write_bytes(sound)
        assert bring_up_to_date(spark, data, warehouse).records == len(play.records)


class TestPosition:
    def test_the_tables_alone_say_how_far_the_journal_was_read(
        self, spark: SparkSession, tmp_path: Path, warehouse: Path
    ) -> None:
        """A copy of the tables, and of nothing else, is gone on with elsewhere."""
        data, play = tmp_path / "data", lively(100, seed=25)
        before = len(play.records)
        with opened(data) as journal:
            append(journal, play)
            bring_up_to_date(spark, data, warehouse)
            assert {path.name for path in warehouse.iterdir()} == {*(table.name for table in (*ALL, COMMITS)), "_lock"}
            shutil.copytree(warehouse, tmp_path / "copy", ignore=shutil.ignore_patterns("_lock"))
            while len(play.records) < 160:
                play.step()
            append(journal, play)
        assert bring_up_to_date(spark, data, tmp_path / "copy").records == len(play.records) - before
        bring_up_to_date(spark, data, tmp_path / "expected")
        assert_same(tables_of(tmp_path / "copy"), tables_of(tmp_path / "expected"))

    def test_a_journal_that_lost_its_end(self, spark: SparkSession, tmp_path: Path, warehouse: Path) -> None:
        data, play = tmp_path / "data", lively(60, seed=28)
        with opened(data, partitions=1) as journal:
            append(journal, play)
        shutil.copytree(data, tmp_path / "older")
        with opened(data, partitions=1) as journal:
            while len(play.records) < 120:
                play.step()
            append(journal, play)
        bring_up_to_date(spark, data, warehouse)
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "older", data)
        with pytest.raises(PositionGone, match=r"lost its end .* give another --warehouse"):
            bring_up_to_date(spark, data, warehouse)


class TestWhileItRuns:
    def test_findings_are_told_once_and_old_rows_go(
        self, spark: SparkSession, journal_of: Callable[..., Path], warehouse: Path
    ) -> None:
        play, told = Play(begin=True), []
        stream = play.open("ann")
        play.frame("ann", stream)
        fault = play.plant(Frame, **frame_fields(play, stream, "cy"))
        data = journal_of(play)

        def tell(findings: list[dict[str, Any]]) -> bool:
            told.extend((row["seq"], row["participant"]) for row in findings)
            return True

        bring_up_to_date(spark, data, warehouse, on_finding=tell)
        assert told == [(fault, "cy")] and len(rows(warehouse, "frames")) == 2
        # What is played happened years ago.
        bring_up_to_date(spark, data, warehouse, on_finding=tell, retention={"*": timedelta(days=30)})
        assert told == [(fault, "cy")]
        assert rows(warehouse, "frames") == rows(warehouse, "records") == []
        assert [row.is_open for row in rows(warehouse, "streams")] == [True]
        assert rows(warehouse, "commits")[-1].operation == "retain"


class TestStopping:
    @pytest.mark.long
    def test_a_stop_is_clean_and_a_run_goes_on_after_it(
        self, spark: SparkSession, journal: Path, warehouse: Path, tmp_path: Path
    ) -> None:
        stop = threading.Event()
        result = run(settings(journal, warehouse, max_records=60), lambda _: stop.set(), stop=stop, spark=spark)
        assert (result.stopped, result.batches) == (True, 1)
        assert open_warehouse(warehouse).commit.batch == 1
        assert bring_up_to_date(spark, journal, warehouse).records == records_in(journal) - result.records
        bring_up_to_date(spark, journal, tmp_path / "expected")
        assert_same(tables_of(warehouse), tables_of(tmp_path / "expected"))

    @pytest.mark.spark
    @pytest.mark.long
    def test_sigterm(self, journal: Path, warehouse: Path, tmp_path: Path) -> None:
        """That a run goes on after a stop as if nothing had been is shown above."""
        with PipelineProcess(journal, warehouse, tmp_path / "log", continuous=True, max_records=100) as pipeline:
            pipeline.wait_for("batch")
            pipeline.process.send_signal(signal.SIGTERM)
            assert pipeline.wait_for("end")[-1] == "True"
            assert pipeline.process.wait() == 0
        made = open_warehouse(warehouse)
        assert made.rows("records") == sum(made.commit.offsets.values()) > 0


class TestCompaction:
    @pytest.mark.long
    def test_many_batches_stay_few_files(self, spark: SparkSession, tmp_path: Path, warehouse: Path) -> None:
        data, play = tmp_path / "data", Play(begin=True)
        stream = play.open("ann")
        for _ in range(60):
            play.frame("ann", stream)
        write_journal(data, play, per_batch=1)
        result = bring_up_to_date(spark, data, warehouse, max_records=3)
        assert result.batches > COMPACT_EVERY
        assert len(open_warehouse(warehouse).files("records")) < COMPACT_EVERY
        bring_up_to_date(spark, data, tmp_path / "expected")
        assert_same(tables_of(warehouse), tables_of(tmp_path / "expected"))
