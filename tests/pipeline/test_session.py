"""The session: what it is set to, and what it says when it cannot be had."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mewstream.pipeline.errors import JarsUnavailable, SourceError, own_words
from mewstream.pipeline.jars import jars_of
from mewstream.pipeline.java import use_java
from mewstream.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_it_is_set_to(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"  # by the tests: `config` has the last word
    assert spark.sparkContext.master == "local[2]"
    [worker] = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert worker == sys.executable


def test_only_the_user_can_speak_to_the_workers(spark: SparkSession) -> None:
    directory = Path(spark.conf.get("spark.python.unix.domain.socket.dir") or "")
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert any(each.is_socket() for each in directory.iterdir())


@pytest.mark.parametrize(("long", "sockets"), [(False, True), (True, False)])
def test_sockets_where_their_paths_are_short_enough_and_nothing_is_left(long: bool, sockets: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        place = Path(short) / ("x" * 60 if long else "x")
        place.mkdir()
        told = subprocess.run(
            [sys.executable, "-c", "from mewstream.pipeline import session; print(session._ways_to_python())"],
            env={**os.environ, "TMPDIR": str(place)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert ("socket.dir" in told) == sockets
        assert list(place.iterdir()) == []


def test_a_session_that_is_there_is_used(spark: SparkSession) -> None:
    assert spark_session("local[2]").sparkContext is spark.sparkContext


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


@pytest.mark.spark
def test_jars_that_cannot_be_had_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_java()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(JarsUnavailable) as caught:
        jars_of("mewstream.invalid:nothing:1.0")
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith("the jars of mewstream.invalid:nothing:1.0 could not be had from Maven Central (")
    assert "not found" in said
    assert "table format parquet" in said
    assert list((tmp_path / "mewstream").iterdir()) == []
