"""A warehouse that several tests look at: see the fixture ``sample``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from journals import PEOPLE, POSITION_FORMAT, lively, write_journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A word that everything of one space of the sample has in it, and nothing of the other.
MARK = "private"


class Sample(NamedTuple):
    """A journal of two spaces, one of them marked, and the tables that the pipeline made of it in several batches."""

    data: Path
    warehouse: Path
    records: int

    def copied_to(self, directory: Path) -> Sample:
        """For who changes it."""
        shutil.copytree(self.data.parent, directory)
        return Sample(directory / "data", directory / "warehouse", self.records)


def make_sample(spark: SparkSession, root: Path) -> Sample:
    from running import bring_up_to_date

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
