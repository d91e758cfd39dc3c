"""The session: what it is set to, and what it says when it cannot be had."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mewstream.pipeline.errors import SourceError, own_words
from mewstream.pipeline.session import spark_session

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
