"""One Spark session for all tests of a run: it takes seconds to start.

A test that asks for ``spark`` carries the marker ``spark`` by itself.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from journals import PEOPLE, POSITION_FORMAT, Play, lively, write_journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
LONG_RUN = 150
#: A word that everything of one space of the sample has in it, and nothing of the other.
MARK = "private"


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


class Sample(NamedTuple):
    """A journal of two spaces, one of them marked, and the tables that the pipeline made of it in several batches."""

    data: Path
    warehouse: Path
    records: int

    def copied_to(self, directory: Path) -> Sample:
        """For who changes it."""
        shutil.copytree(self.data.parent, directory)
        return Sample(directory / "data", directory / "warehouse", self.records)


@pytest.fixture(scope="session")
def sample(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    from running import bring_up_to_date

    root = tmp_path_factory.mktemp("sample")
    people = tuple(f"{name}-{MARK}" for name in PEOPLE)
    marked = lively(200, space=f"{MARK}-space", seed=72, people=people)
    stream = marked.announce(people[0], formats=[{**POSITION_FORMAT, "id": f"position-{MARK}"}])
    marked.data(people[0], stream, {"x": 1, "label": f"data {MARK}"})
    marked.data(people[0], stream, {"label": f"no x {MARK}"})
    marked.frame(people[0], stream, f'{{"x":2,"label":"frame {MARK}"}}'.encode(), opcode=1)
    marked.send(people[1], "chat", text=f"words {MARK}")
    plays = [lively(250, space="first-space", seed=71), marked]
    data = write_journal(root / "data", *plays)
    records = sum(len(play.records) for play in plays)
    bring_up_to_date(spark, data, root / "warehouse", max_records=records // 3 + 1)
    return Sample(data, root / "warehouse", records)


@pytest.fixture
def journal_of(tmp_path: Path) -> Callable[..., Path]:
    """``journal_of(play, ..., per_batch=5, seal=True)``: a new journal that holds these plays, as a data directory."""
    numbers = itertools.count(1)

    def make(*plays: Play, **options: Any) -> Path:
        return write_journal(tmp_path / f"data-{next(numbers)}", *plays, **options)

    return make
