"""A warehouse in an object store: made, killed, gone on with, database, erased. No jar is needed for any of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from committed import commit, new_tables, seen
from journals import append, lively, opened
from pyarrow import fs
from pyspark.sql import SparkSession
from running import PipelineProcess, assert_same, bring_up_to_date, tables_of
from s3_server import BUCKET, SECRET, environment, s3_server, with_environment

from mewstream.pipeline import storage
from mewstream.pipeline.commits import newest_commit
from mewstream.pipeline.erasing import erase_space
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.maintenance import COMPACT_EVERY, FAN_IN, after_batch, before_batch, compact
from mewstream.pipeline.storage import store_at
from mewstream.pipeline.warehouse import open_warehouse
from mewstream.query.database import open_database

WAREHOUSE = f"s3://{BUCKET}/some/warehouse"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    # A process keeps its connections to a place, and this server is another than that of the test before.
    storage._filesystem.cache_clear()
    with s3_server(tmp_path / "s3.log") as server, with_environment(environment(server)):
        yield server


def test_everything_but_spark(store: str) -> None:
    with pytest.raises(WarehouseError, match=f"there is no warehouse in {WAREHOUSE}"):
        open_warehouse(WAREHOUSE)
    tables = new_tables(WAREHOUSE)
    for seq in range(FAN_IN):
        before_batch(tables)
        commit(tables, refusals=[{"seq": seq, "space": f"space-{seq % 2}"}], streams=[{"is_open": True}])
    compact(tables.logs["refusals"])
    assert len(tables.logs["refusals"].files()) == 1
    with open_database(open_warehouse(WAREHOUSE)) as database:
        found = database.rows("SELECT space, count(*) AS n FROM refusals GROUP BY space ORDER BY space")
    assert found == [{"space": "space-0", "n": FAN_IN // 2}, {"space": "space-1", "n": FAN_IN // 2}]
    other = new_tables(WAREHOUSE)
    commit(tables, refusals=[{"seq": FAN_IN}])
    with pytest.raises(WarehouseError, match="another pipeline"):
        commit(other, refusals=[{"seq": FAN_IN}])
    erase_space(tables, "space-0")
    assert seen(WAREHOUSE, "refusals", "space") == ["s", *["space-1"] * (FAN_IN // 2)]
    batches = seen(WAREHOUSE, "commits", "batch")
    assert batches == list(range(len(batches)))


@pytest.mark.parametrize("command", [["erase", "--yes"], ["audit"], ["report"]])
def test_a_mistake_shows_no_key(store: str, command: list[str]) -> None:
    commit(new_tables(WAREHOUSE), refusals=[{"seq": 1}])
    given = WAREHOUSE.replace("://", f"://somebody:{SECRET}@")
    done = subprocess.run(
        [sys.executable, "-m", "mewstream.cli.main", *command, "--space", "nowhere", "--warehouse", given],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert "there is nothing of space" in done.stderr and WAREHOUSE in done.stderr
    assert SECRET not in done.stderr


def test_old_commits_are_forgotten(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mewstream.pipeline.maintenance.KEPT_COMMITS", 12)
    tables = new_tables(WAREHOUSE)
    for seq in range(4 * COMPACT_EVERY):
        commit(tables, refusals=[{"seq": seq}])
        after_batch(tables)
    log = tables.store.filesystem("refusals").get_file_info(fs.FileSelector("_delta_log"))
    versions = sorted(int(info.base_name[:20]) for info in log if info.base_name.endswith(".json"))
    assert versions == list(range(versions[0], 4 * COMPACT_EVERY + 1)) and versions[0] > 1
    assert seen(WAREHOUSE, "refusals", "seq") == list(range(4 * COMPACT_EVERY))


def test_a_bucket_that_is_not_there_is_one_line(store: str) -> None:
    with pytest.raises(WarehouseError) as refused:
        open_warehouse("s3://nowhere/warehouse")
    assert str(refused.value).isprintable()
    assert str(refused.value).startswith("s3://nowhere/warehouse: ")
    assert SECRET not in str(refused.value)


def test_the_pipeline_runs_is_killed_and_goes_on(spark: SparkSession, store: str, tmp_path: Path) -> None:
    data, play = tmp_path / "data", lively(150, seed=51)
    with opened(data) as journal:
        append(journal, play)
        settings = {"continuous": True, "max_records": 60, "interval": 0.1, "kill_after": 30}
        with PipelineProcess(data, WAREHOUSE, tmp_path / "log", **settings) as pipeline:
            assert pipeline.process.wait(600) == -9, (tmp_path / "log").read_text()[-2000:]
        newest = newest_commit(store_at(WAREHOUSE))
        assert newest is not None and 0 < newest.batch < 4
        while len(play.records) < 250:
            play.step()
        append(journal, play)
    with PipelineProcess(data, WAREHOUSE, tmp_path / "log", max_records=100) as pipeline:
        pipeline.wait_for("end")
        assert pipeline.process.wait() == 0
    bring_up_to_date(spark, data, tmp_path / "expected")
    assert_same(tables_of(WAREHOUSE), tables_of(tmp_path / "expected"))
    command = [sys.executable, "-m", "mewstream.cli.main", "audit", "--warehouse", WAREHOUSE, "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert json.loads(told.stdout.splitlines()[0])["verdict"] == "sound"
