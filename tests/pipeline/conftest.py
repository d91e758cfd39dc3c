"""One Spark session for all tests of a run: it takes seconds to start.

A test that asks for ``spark`` carries the marker ``spark`` by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from journals import Play, write_journal
from samples import Sample, make_sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
LONG_RUN = 150


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from mewstream.pipeline.session import spark_session

    session = spark_session(
        # A task may be tried again: on a busy machine a worker of Python may not be ready in the time that Spark gives.
        "local[2, 3]",
        "tests",
        # Java's thorough compiler pays after some minutes: a run of all tests has them, a few tests do not.
        is_short=len(request.session.items) < LONG_RUN,
        config={
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.streaming.pollingDelay": "10ms",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def sample(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """For who only reads it; others take a copy."""
    return make_sample(spark, tmp_path_factory.mktemp("sample"))


@pytest.fixture
def journal_of(tmp_path: Path) -> Callable[..., Path]:
    """``journal_of(play, ..., per_batch=5, seal=True)``: a new journal that holds these plays, as a data directory."""
    numbers = itertools.count(1)

    def make(*plays: Play, **options: Any) -> Path:
        return write_journal(tmp_path / f"data-{next(numbers)}", *plays, **options)

    return make
