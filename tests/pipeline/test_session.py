"""The session: what it is set to, what it reads, and what it says when it cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from committed import NOON, commit, new_tables

from mewstream.pipeline.errors import SourceError, own_words
from mewstream.pipeline.session import spark_session
from mewstream.pipeline.tables import BY_NAME
from mewstream.pipeline.warehouse import open_warehouse
from mewstream.query.with_spark import spark_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_it_is_set_to(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"  # by the tests: `config` has the last word
    assert spark.sparkContext.master == "local[2, 3]"
    [worker] = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert worker == sys.executable


def test_a_session_that_is_there_is_used(spark: SparkSession) -> None:
    assert spark_session("local[2, 3]").sparkContext is spark.sparkContext


@pytest.mark.parametrize("name", ["my warehouse", "a[b]", "{x,y}", "a*b", "é"])
def test_it_reads_tables_whatever_their_directory_is_called(spark: SparkSession, tmp_path: Path, name: str) -> None:
    commit(new_tables(tmp_path / name), refusals=[{"seq": 1}])
    found = spark_table(spark, open_warehouse(tmp_path / name), BY_NAME["refusals"])
    assert [(row.seq, row.date) for row in found.collect()] == [(1, NOON.date())]


def test_own_words_are_found_in_what_spark_raises(spark: SparkSession) -> None:
    assert own_words(SourceError("as it is")) == "as it is"
    with pytest.raises(Exception) as caught:
        spark.sql("SELECT nonsense")
    assert own_words(caught.value) is None
    with pytest.raises(Exception) as caught:
        spark.read.format("mew").load("/no/such/place")
    said = own_words(caught.value)
    assert said is not None
    assert said.startswith("there is no journal in /no/such/place: ")
    assert "SQLSTATE" not in said
