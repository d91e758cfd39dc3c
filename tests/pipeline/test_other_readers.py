"""The tables are Delta: others read them with no code of ours. What docs/pipeline.md shows is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from samples import Sample

from mewstream.pipeline.tables import SHOWN
from mewstream.pipeline.warehouse import open_warehouse
from mewstream.query.database import open_database

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"
NUMBERS = ("bigint", "int", "tinyint", "double")
Totals = dict[str, list[float]]
"""For each table the number of its rows, and the sum of each of its columns of numbers."""


def numbers_of(name: str) -> list[str]:
    [table] = [each for each in SHOWN if each.name == name]
    return [column.name for column in table.all_columns if column.type in NUMBERS]


def sums(name: str, *, quote: str = '"') -> list[str]:
    return ["count(*)", *(f"coalesce(sum({quote}{column}{quote}), 0)" for column in numbers_of(name))]


@pytest.fixture(scope="module")
def expected(sample: Sample) -> Totals:
    with open_database(open_warehouse(sample.warehouse)) as database:
        told = {
            table.name: list(database.rows(f"SELECT {', '.join(sums(table.name))} FROM {table.name}")[0].values())
            for table in SHOWN
        }
    assert told["records"][0] == sample.records
    return told


def assert_equal(found: Totals, expected: Totals) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        # Sums of floating point depend on the order a little.
        assert found[name] == pytest.approx(values, rel=1e-9), name


def test_duckdb(sample: Sample, expected: Totals) -> None:
    found = {}
    for table in SHOWN:
        rows = DeltaTable(sample.warehouse / table.name).to_pyarrow_dataset()
        with duckdb.connect() as connection:
            connection.register("given", rows)
            found[table.name] = list(
                connection.execute(f"SELECT {', '.join(sums(table.name))} FROM given").fetchall()[0]
            )
    assert_equal(found, expected)


def test_polars(sample: Sample, expected: Totals) -> None:
    found = {}
    for table in SHOWN:
        rows = polars.read_delta(str(sample.warehouse / table.name))
        found[table.name] = [rows.height, *(rows[name].cast(polars.Float64).sum() for name in numbers_of(table.name))]
    assert_equal(found, expected)


def test_pandas(sample: Sample, expected: Totals) -> None:
    found = {}
    for table in SHOWN:
        rows = DeltaTable(sample.warehouse / table.name).to_pandas()
        found[table.name] = [len(rows), *(float(rows[name].sum()) for name in numbers_of(table.name))]
    assert_equal(found, expected)


def test_readers_need_no_feature(sample: Sample) -> None:
    """Reader version 1 and writer version 2 are what every implementation of Delta has."""
    for table in SHOWN:
        protocol = DeltaTable(sample.warehouse / table.name).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), table.name
        assert not protocol.reader_features and not protocol.writer_features


# -- what the document shows ----------------------------------------------------------------------


def shown(engine: str) -> str:
    """The three lines of Python below the name of an engine."""
    found = re.search(rf"^{engine}:\n\n```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None and len(found[1].splitlines()) == 3, engine
    return found[1]


def run_shown(code: str, directory: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, env=plainly())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def plainly() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}


@pytest.mark.parametrize("engine", ["DuckDB", "Polars", "pandas"])
def test_what_the_document_shows(sample: Sample, expected: Totals, engine: str) -> None:
    size = 1 + numbers_of("frames").index("size")
    printed = run_shown(shown(engine), sample.warehouse.parent)
    assert printed == f"({expected['frames'][0]}, {expected['frames'][size]:.0f})"


@pytest.mark.delta
def test_spark_with_the_jars_of_delta(sample: Sample, expected: Totals) -> None:
    """In a process of its own, for the session of the tests has no jars."""
    every = "\n".join(
        f"told[{table.name!r}] = list(spark.read.format('delta').load('warehouse/{table.name}')"
        f".selectExpr({', '.join(map(repr, sums(table.name, quote='`')))}).first())"
        for table in SHOWN
    )
    sql = [sys.executable, "-m", "mewstream.cli.main", "warehouse", "sql", "--dialect", "spark", "--warehouse"]
    statements = subprocess.run([*sql, str(sample.warehouse)], capture_output=True, text=True, check=True).stdout
    register = "\n".join(f"spark.sql({each!r})" for each in statements.split(";\n")[:-1])
    counted = "told['content_position'] = list(spark.sql('SELECT count(*) FROM mewstream.content_position').first())"
    code = f"{shown('Spark')}\ntold = {{}}\n{every}\n{register}\n{counted}\nprint(told)"
    code = code.replace("config(map={", "config(map={**quick, ")
    quick: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    found = run_shown(f"quick = {quick}\n{code}", sample.warehouse.parent)
    told = eval(found)  # what was printed a moment ago
    with open_database(open_warehouse(sample.warehouse)) as database:
        assert database.rows("SELECT count(*) AS n FROM content_position") == [{"n": told.pop("content_position")[0]}]
    assert_equal(told, expected)
