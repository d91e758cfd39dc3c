"""Journals at the edges: empty, one record, a thousand streams, records from a newer version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from journals import Play, opened
from pyspark.sql import SparkSession
from running import bring_up_to_date, rows, tables_of

from mewstream.pipeline.tables import PUBLIC, SHOWN
from mewstream.pipeline.warehouse import open_warehouse
from mewstream.protocol.records import Frame
from mewstream.query.database import open_database
from mewstream.query.with_spark import register_views


def test_an_empty_journal(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path / "data"):
        pass
    result = bring_up_to_date(spark, tmp_path / "data", tmp_path / "warehouse")
    assert (result.batches, result.records) == (0, 0)
    assert tables_of(tmp_path / "warehouse") == {table.name: [] for table in PUBLIC}
    made = open_warehouse(tmp_path / "warehouse")
    with open_database(made) as database:
        assert database.table_names() == [table.name for table in SHOWN]
        question = "SELECT count(*) AS count FROM frames JOIN streams USING (space, stream_id)"
        assert database.rows(question) == [{"count": 0}]
    assert register_views(spark, made) == [table.name for table in SHOWN]
    assert spark.sql(question).first()[0] == 0


def test_one_record(spark: SparkSession, journal_of: Callable[..., Path], tmp_path: Path) -> None:
    play = Play(people=())
    assert len(play.records) == 1
    bring_up_to_date(spark, journal_of(play), tmp_path / "warehouse")
    [summary] = rows(tmp_path / "warehouse", "space_summary")
    assert (summary.records, summary.first_seq, summary.last_seq, summary.verdict) == (1, 1, 1, "sound")
    assert len(rows(tmp_path / "warehouse", "records")) == 1


def test_a_thousand_streams(spark: SparkSession, journal_of: Callable[..., Path], tmp_path: Path) -> None:
    play = Play(people=("ann",), begin=True, limits={"streams_per_space": 2000, "streams_per_participant": 2000})
    streams = [play.open("ann") for _ in range(1000)]
    for stream in streams:
        play.frame("ann", stream)
    bring_up_to_date(spark, journal_of(play, per_batch=100), tmp_path / "warehouse", max_records=2000)
    found = rows(tmp_path / "warehouse", "streams")
    assert [row.frames for row in found] == [1] * 1000
    assert {row.stream_id for row in found} == set(streams)
    [summary] = rows(tmp_path / "warehouse", "space_summary")
    assert (summary.open_streams, summary.findings) == (1000, 0)
    assert summary.frames_judged == sum(isinstance(each, Frame) for each in play.records)


def test_records_of_a_newer_version(spark: SparkSession, journal_of: Callable[..., Path], tmp_path: Path) -> None:
    play = Play(begin=True)
    stream = play.open("ann")
    unknown = [play.plant_unknown("moved", to="elsewhere"), play.plant_unknown("frame-2", stream_id=stream)]
    play.frame("ann", stream)
    bring_up_to_date(spark, journal_of(play), tmp_path / "warehouse", max_records=15)
    [summary] = rows(tmp_path / "warehouse", "space_summary")
    assert (summary.unknown_records, summary.records, summary.frames) == (2, len(play.records), 1)
    kept = rows(tmp_path / "warehouse", "records", "record IN ('moved', 'frame-2')")
    assert [row.seq for row in kept] == unknown


def test_a_log_that_begins_in_the_middle(spark: SparkSession, journal_of: Callable[..., Path], tmp_path: Path) -> None:
    """What was pruned before the first run is not known, and nobody is accused for it."""
    play = Play(begin=True)
    stream = play.open("ann")
    play.frame("ann", stream)
    play.written = len(play.records) - 1
    play.frame("ann", stream)
    bring_up_to_date(spark, journal_of(play), tmp_path / "warehouse")
    [summary] = rows(tmp_path / "warehouse", "space_summary")
    assert (summary.first_seq, summary.frames, summary.findings) == (play.records[-2].seq, 2, 0)
    assert rows(tmp_path / "warehouse", "streams") == []
