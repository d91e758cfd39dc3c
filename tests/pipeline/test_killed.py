"""``kill -9`` of the driver and its workers at random points of a continuous run: afterwards the tables are those of an
undisturbed run, with no duplicate and no loss."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from journals import Play, append, lively, opened
from pyspark.sql import SparkSession
from running import PipelineProcess, assert_same, bring_up_to_date, tables_of

from mewstream.pipeline import manifest as commits
from mewstream.pipeline.session import TableFormat


def batch_of(warehouse: Path) -> int:
    newest = commits.newest(warehouse)
    return newest.batch if newest else 0


def files_of_bronze(warehouse: Path) -> int:
    return sum(1 for _ in (warehouse / "records").rglob("*"))


def kill_at_random(spark: SparkSession, path: Path, table_format: TableFormat, *, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    data, warehouse, log = path / "data", path / "warehouse", path / "log"
    play = lively(200, seed=seed, capabilities={"eve": [{"kind": "*"}]})
    killed_at = []
    with opened(data) as journal:
        for number in range(rounds):
            write_more(play, 100)
            append(journal, play)
            # Some after a commit, in a batch or between two, and some while their first batch is being written.
            has_begun = files_of_bronze if number % 3 else batch_of
            before = has_begun(warehouse)
            settings = {"continuous": True, "max_records": 40, "interval": 0.1, "table_format": table_format}
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
    bring_up_to_date(spark, data, warehouse, table_format=table_format)
    bring_up_to_date(spark, data, path / "expected")
    found = tables_of(spark, warehouse)
    assert len(found["records"]) == len(play.records)
    assert_same(found, tables_of(spark, path / "expected"))


def write_more(play: Play, records: int) -> None:
    goal = len(play.records) + records
    while len(play.records) < goal:
        play.step()


def test_three_times(spark: SparkSession, tmp_path: Path, slow_table_format: TableFormat) -> None:
    kill_at_random(spark, tmp_path, slow_table_format, rounds=3, seed=31)


@pytest.mark.delta
def test_once_with_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Each time takes a minute and more: three and twenty of them are for ``make test-long``."""
    kill_at_random(spark, tmp_path, "delta", rounds=1, seed=33)


@pytest.mark.long
def test_twenty_times(spark: SparkSession, tmp_path: Path, table_format: TableFormat) -> None:
    kill_at_random(spark, tmp_path, table_format, rounds=20, seed=32)
