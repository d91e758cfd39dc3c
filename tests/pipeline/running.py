"""Running the pipeline in tests, and looking at what it made.

bring_up_to_date(spark, data, warehouse)          # one run, in one batch
bring_up_to_date(spark, data, warehouse, max_records=50)
tables_of(spark, warehouse)                       # {"frames": ["{...}", ...], ...}: comparable, in one order
assert_same(tables_of(...), tables_of(...))
rows(spark, warehouse, "streams")                 # [Row(...), ...] by the table's key
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, Row, SparkSession

from mewstream.pipeline.runner import Result, Settings, run
from mewstream.pipeline.tables import BY_NAME, PUBLIC
from mewstream.pipeline.warehouse import open_warehouse

Tables = dict[str, list[str]]
#: Java compiles thoroughly for runs that go on: those of tests end before it pays.
QUICK = "-XX:TieredStopAtLevel=1"


def bring_up_to_date(spark: SparkSession, data: Path | str, warehouse: Path, **settings: Any) -> Result:
    return run(Settings(data=str(data), warehouse=warehouse, **settings), spark=spark)


def tables_of(spark: SparkSession, warehouse: Path) -> Tables:
    """Every table as JSON texts in one order. Nothing is left out: a VARIANT becomes its JSON, bytes become base64."""
    opened = open_warehouse(warehouse)
    return {table.name: sorted(as_text(opened.table(spark, table.name))) for table in PUBLIC}


def as_text(rows: DataFrame) -> list[str]:
    names = [f"to_json({name}) AS {name}" if type == "variant" else f"`{name}`" for name, type in rows.dtypes]
    return [row[0] for row in rows.selectExpr(*names).selectExpr("to_json(struct(*))").coalesce(1).collect()]


def assert_same(found: Tables, expected: Tables) -> None:
    """Table by table, so that a failure says which and where."""
    assert found.keys() == expected.keys()
    for name in expected:
        surplus = sorted(set(found[name]) - set(expected[name]))
        missing = sorted(set(expected[name]) - set(found[name]))
        assert (surplus[:3], missing[:3]) == ([], []), name
        assert found[name] == expected[name], f"{name} has rows twice"


def rows(spark: SparkSession, warehouse: Path, name: str, where: str = "true") -> list[Row]:
    found = open_warehouse(warehouse).table(spark, name).where(where)
    return found.orderBy(*BY_NAME[name].keys).collect()


class PipelineProcess:
    """A pipeline in a process of its own. Use as a context: nothing of it survives."""

    def __init__(self, data: Path, warehouse: Path, log: Path, **settings: Any) -> None:
        script = Path(__file__).with_name("pipeline_process.py")
        command = [sys.executable, str(script), str(data), str(warehouse), json.dumps(settings)]
        self.errors = log
        environ = {**os.environ, "JDK_JAVA_OPTIONS": QUICK}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ)

    def __enter__(self) -> PipelineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_for(self, word: str) -> list[str]:
        """The next line that begins with a word, as words. Fails where the process ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line.split()
        raise AssertionError(f"the pipeline ended without {word!r}: {self.errors.read_text()[-2000:]}")

    def kill(self) -> None:
        """``kill -9`` of the driver and of everything that it started: the JVM and the workers."""
        try:
            whole = [*psutil.Process(self.process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            whole = []
        self.process.kill()
        for each in whole:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait()
        psutil.wait_procs(whole, timeout=30)
        if self.process.stdout is not None:
            self.process.stdout.close()
