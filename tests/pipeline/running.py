"""Running the pipeline in tests, and looking at what it made.

bring_up_to_date(spark, data, warehouse)          # one run, in one batch
bring_up_to_date(spark, data, warehouse, max_records=50)
tables_of(warehouse)                              # {"frames": ["{...}", ...], ...}: comparable, in one order
assert_same(tables_of(...), tables_of(...))
rows(warehouse, "streams")                        # [Found(...), ...] by the table's key
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from mewstream.pipeline.tables import BY_NAME, PUBLIC
from mewstream.pipeline.warehouse import open_warehouse
from mewstream.query.database import open_database, plain_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mewstream.pipeline.runner import Result

Tables = dict[str, list[str]]
#: Java compiles thoroughly for runs that go on: those of tests end before it pays.
QUICK = "-XX:TieredStopAtLevel=1"


def bring_up_to_date(spark: SparkSession, data: Path | str, warehouse: Path | str, **settings: Any) -> Result:
    from mewstream.pipeline.runner import Settings, run

    return run(Settings(data=str(data), warehouse=warehouse, **settings), spark=spark)


def tables_of(warehouse: Path | str) -> Tables:
    """Every table as JSON texts in one order. Nothing is left out: bytes become base64."""
    opened = open_warehouse(warehouse)
    return {table.name: _texts(opened.table(table.name)) for table in PUBLIC}


def _texts(table: Any) -> list[str]:
    names = table.column_names
    found = (row for batch in table.to_batches() for row in plain_rows(batch))
    return sorted(msgspec.json.encode(dict(zip(names, row, strict=True))).decode() for row in found)


def assert_same(found: Tables, expected: Tables) -> None:
    """Table by table, so that a failure says which and where."""
    assert found.keys() == expected.keys()
    for name in expected:
        surplus = sorted(set(found[name]) - set(expected[name]))
        missing = sorted(set(expected[name]) - set(found[name]))
        assert (surplus[:3], missing[:3]) == ([], []), name
        assert found[name] == expected[name], f"{name} has rows twice"


class Found(dict[str, Any]):
    """A row, whose columns are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def found(value: Any) -> Any:
    match value:
        case dict():
            return Found({name: found(each) for name, each in value.items()})
        case list():
            return [found(each) for each in value]
    return value


def rows(warehouse: Path | str, name: str, where: str = "true") -> list[Found]:
    keys = ", ".join(f'"{key}"' for key in BY_NAME[name].keys)
    with open_database(open_warehouse(warehouse)) as database:
        return [found(row) for row in database.rows(f"SELECT * FROM {name} WHERE {where} ORDER BY {keys}")]


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
