"""Backfill in one batch, many small steps and continuous mode give the same tables for the same journal."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import FAULTS, planted
from journals import Play, append, lively, opened
from pyspark.sql import SparkSession
from running import assert_same, bring_up_to_date, tables_of

from mewstream.pipeline.runner import Progress, Settings, run

RECORDS = 200


def plays(seed: int) -> list[Play]:
    """Two spaces in which a little of everything happens, one with a gateway that restarts."""
    first = lively(RECORDS, space=f"first-{seed}", seed=seed, capabilities={"eve": [{"kind": "*"}]})
    second = lively(RECORDS, space="second", seed=seed + 100, capabilities={"finn": [{"kind": "*"}]})
    second.restart(after=5)
    while len(second.records) < RECORDS + 100:
        second.step()
    lose_some(first, "eve", come_back=True)
    lose_some(second, "finn", come_back=False)
    return [first, second]


def lose_some(play: Play, who: str, *, come_back: bool) -> None:
    """Numbers are skipped, and some of them come when their writer is back."""
    play.join(who)
    stream = play.open(who)
    for number in (0, 1, 2, 6, 7, 20):
        play.data(who, stream, {"x": number}, sequence=number)
        play.step()
    if come_back:
        play.leave(who)
        play.join(who)
        for number in (3, 4, 5, 12, 30):
            play.data(who, stream, {"x": number}, sequence=number)
            play.step()


def assert_as_in_one_batch(spark: SparkSession, journal: Path, warehouse: Path, *, empty: set[str]) -> None:
    """``empty`` are the tables that may have no rows: all others must, or the comparison would say little."""
    expected = warehouse.with_name("expected")
    assert bring_up_to_date(spark, journal, expected).batches == 1
    tables = tables_of(expected)
    assert {name for name, rows in tables.items() if not rows} <= empty
    assert_same(tables_of(warehouse), tables)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_steps_of_one_run(spark: SparkSession, journal_of: Callable[..., Path], tmp_path: Path, seed: int) -> None:
    journal = journal_of(*plays(seed), per_batch=3)
    steps = random.Random(seed).randrange(120, 240)
    result = bring_up_to_date(spark, journal, tmp_path / "steps", max_records=steps)
    assert result.batches >= 3
    assert_as_in_one_batch(spark, journal, tmp_path / "steps", empty={"audit", "audit_unjudged"})


@pytest.mark.long
def test_a_run_now_and_then(spark: SparkSession, tmp_path: Path) -> None:
    """The journal grows, and somebody runs the pipeline whenever they like, with nothing new at times."""
    data, warehouse, chance = tmp_path / "data", tmp_path / "runs", random.Random(4)
    play = lively(20, seed=4)
    with opened(data) as journal:
        for _ in range(6):
            append(journal, play)
            result = bring_up_to_date(spark, data, warehouse)
            assert (result.batches, result.rows["records"]) == (1, len(play.records))
            assert bring_up_to_date(spark, data, warehouse).batches == 0
            goal = len(play.records) + chance.randrange(1, 150)
            while len(play.records) < goal:
                play.step()
    assert_as_in_one_batch(spark, data, warehouse, empty={"audit", "audit_unjudged", "sequence_gaps", "quarantine"})


def test_continuously(spark: SparkSession, tmp_path: Path) -> None:
    data, warehouse = tmp_path / "data", tmp_path / "continuous"
    whole = plays(5)
    beginnings = [Play(each.space) for each in whole]
    written = 0
    caught_up, stop = threading.Event(), threading.Event()

    def progress(now: Progress) -> None:
        if now.lag == 0:
            caught_up.set()

    with opened(data) as journal:
        for each in beginnings:
            each.records = []
        settings = Settings(data=str(data), warehouse=warehouse, continuous=True, interval=0.1)
        thread = threading.Thread(target=run, args=(settings, progress), kwargs={"stop": stop, "spark": spark})
        thread.start()
        try:
            for share in (0.1, 0.5, 1.0):
                for each, beginning in zip(whole, beginnings, strict=True):
                    beginning.records = each.records[: int(len(each.records) * share)]
                caught_up.clear()
                written += append(journal, *beginnings)
                assert caught_up.wait(300)
        finally:
            stop.set()
            thread.join(300)
    assert not thread.is_alive()
    assert written == sum(len(each.records) for each in whole)
    assert_as_in_one_batch(spark, data, warehouse, empty={"audit", "audit_unjudged"})


@pytest.mark.long
def test_logs_that_are_wrong(spark: SparkSession, journal_of: Callable[..., Path], tmp_path: Path) -> None:
    """What no gateway would write must not depend on where it is cut either."""
    journal = journal_of(*(planted(name)[0] for name in FAULTS), per_batch=2)
    assert bring_up_to_date(spark, journal, tmp_path / "steps", max_records=150).batches >= 4
    assert_as_in_one_batch(
        spark,
        journal,
        tmp_path / "steps",
        empty={"sequence_gaps", "content", "formats", "quarantine", "audit_unjudged"},
    )
