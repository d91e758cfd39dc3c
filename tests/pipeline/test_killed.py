"""``kill -9`` at any moment: in a batch, between two, and exactly between the commits of two tables."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from journals import Play, append, lively, opened
from pyspark.sql import SparkSession
from running import PipelineProcess, assert_same, bring_up_to_date, rows, tables_of

from mewstream.pipeline.commits import newest_commit
from mewstream.pipeline.storage import store_at
from mewstream.pipeline.tables import ALL, PUBLIC

#: A batch commits to about so many tables.
COMMITS_OF_A_BATCH = 18


def batch_of(warehouse: Path) -> int:
    newest = newest_commit(store_at(warehouse))
    return newest.batch if newest else 0


def files_of_bronze(warehouse: Path) -> int:
    return sum(1 for _ in (warehouse / "records").rglob("*.parquet"))


def is_unfinished(warehouse: Path) -> bool:
    """Some tables have a batch that others have not."""
    return DeltaTable(warehouse / "records").transaction_version("mewstream-pipeline") == batch_of(warehouse) + 1


def kill_at_random(spark: SparkSession, path: Path, *, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    data, warehouse, log = path / "data", path / "warehouse", path / "log"
    play = lively(200, seed=seed, capabilities={"eve": [{"kind": "*"}]})
    killed_at, unfinished = [], 0
    with opened(data) as journal:
        for number in range(rounds):
            write_more(play, 100)
            append(journal, play)
            settings = {"continuous": True, "max_records": 40, "interval": 0.1}
            if number % 3 == 1:
                # Between the commits of two tables, of the first batch or of the second.
                settings["kill_after"] = chance.randrange(1, 2 * COMMITS_OF_A_BATCH)
                with PipelineProcess(data, warehouse, log, **settings) as pipeline:
                    assert pipeline.process.wait(600) == -9, log.read_text()[-2000:]
                unfinished += is_unfinished(warehouse)
            else:
                # After a commit, in a batch or between two; or while the first batch is being written.
                has_begun = files_of_bronze if number % 3 else batch_of
                before = has_begun(warehouse)
                with PipelineProcess(data, warehouse, log, **settings) as pipeline:
                    while has_begun(warehouse) == before:
                        assert pipeline.process.poll() is None, log.read_text()[-2000:]
                        time.sleep(0.05)
                    time.sleep(chance.uniform(0, 10))
                    pipeline.kill()
            killed_at.append(batch_of(warehouse))
        write_more(play, 50)
        append(journal, play)
    assert killed_at == sorted(killed_at)
    assert len(set(killed_at)) >= (rounds + 2) // 3
    assert unfinished >= rounds // 6
    bring_up_to_date(spark, data, warehouse)
    bring_up_to_date(spark, data, path / "expected")
    found = tables_of(warehouse)
    assert len(found["records"]) == len(play.records)
    assert_same(found, tables_of(path / "expected"))
    assert_no_hole_and_no_orphan(warehouse)


def assert_no_hole_and_no_orphan(warehouse: Path) -> None:
    commits = rows(warehouse, "commits")
    assert [row.batch for row in commits] == list(range(len(commits)))
    assert sum(row.records for row in commits) == len(rows(warehouse, "records"))
    assert commits[-1].versions == {table.name: DeltaTable(warehouse / table.name).version() for table in ALL}
    for table in PUBLIC:
        # What the newest version names is all there, and is what the pinned one gives: nothing of a killed run counts.
        newest = DeltaTable(warehouse / table.name)
        counted = sum(pq.read_metadata(uri).num_rows for uri in newest.file_uris())
        assert counted == newest.count() == len(rows(warehouse, table.name))


def write_more(play: Play, records: int) -> None:
    goal = len(play.records) + records
    while len(play.records) < goal:
        play.step()


def test_three_times(spark: SparkSession, tmp_path: Path) -> None:
    kill_at_random(spark, tmp_path, rounds=3, seed=31)


@pytest.mark.long
def test_twenty_times(spark: SparkSession, tmp_path: Path) -> None:
    kill_at_random(spark, tmp_path, rounds=20, seed=32)


@pytest.mark.long
@pytest.mark.parametrize("commits", [23, 24, 30, 35, 40])
def test_after_so_many_commits(spark: SparkSession, tmp_path: Path, commits: int) -> None:
    """The first of them make the tables of the warehouse; then come those of the first batches, one by one."""
    data, play = tmp_path / "data", lively(120, seed=commits)
    with opened(data) as journal:
        append(journal, play)
    settings = {"max_records": 60, "kill_after": commits}
    with PipelineProcess(data, tmp_path / "warehouse", tmp_path / "log", **settings) as pipeline:
        assert pipeline.process.wait(600) == -9
    bring_up_to_date(spark, data, tmp_path / "warehouse", max_records=100)
    bring_up_to_date(spark, data, tmp_path / "expected")
    assert_same(tables_of(tmp_path / "warehouse"), tables_of(tmp_path / "expected"))
    assert_no_hole_and_no_orphan(tmp_path / "warehouse")
