"""``mewstream query``: SQL over the tables of a warehouse."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mewstream.cli.output import complain, print_table, quietly
from mewstream.cli.spark import json_rows, warehouse_option, warehouse_session
from mewstream.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@click.command()
@warehouse_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, all rows.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="How many rows are shown; --json shows all.",
)
@click.argument("sql", required=False)
@quietly
def query(warehouse: Path, as_json: bool, limit: int, sql: str | None) -> None:
    """Ask the tables something, in Spark SQL.

    Every table is known by its plain name (frames, streams, authorizations, ...; see docs/tables.md), and every
    announced format by a view of its own, content_NAME. Without SQL, or with SHOW TABLES, it lists them; - reads the
    SQL from stdin. Times are UTC. A pipeline may be running: all tables are as of the same batch.

    \b
    Examples:
      mewstream query --warehouse ./warehouse
      mewstream query --warehouse ./warehouse "SELECT space, verdict, frames FROM space_summary"
      mewstream query --warehouse ./warehouse "SELECT code, sum(count) FROM refusals GROUP BY code"
      mewstream query --warehouse ./warehouse --json "SELECT * FROM handoffs" | jq .waited_ms
    """
    if sql == "-":
        sql = sys.stdin.read()
    with warehouse_session(warehouse) as (spark, opened):
        known = opened.register_views(spark)
        if sql is None or not sql.strip():
            _list_tables(known, as_json)
            return
        found = _ask(spark, sql.strip().rstrip(";"), known)
        if as_json:
            for line in json_rows(found):
                click.echo(line)
        else:
            _print(found, limit)


def _ask(spark: SparkSession, sql: str, known: list[str]) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        found = spark.sql(sql)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        missing = (error.getMessageParameters() or {}).get("relationName", "that").strip("`")
        raise PipelineError(f"there is no table {missing}: there are {', '.join(known)}") from None
    if not found.columns:
        raise PipelineError("this gives no rows: expected a SELECT")
    return found.toDF(*_distinct(found.columns))


def _list_tables(known: list[str], as_json: bool) -> None:
    from mewstream.pipeline.tables import BY_NAME

    rows = [
        (name, str(BY_NAME[name].layer), BY_NAME[name].meaning)
        if name in BY_NAME
        else (name, "view", "What frames of this format say, as columns.")
        for name in known
    ]
    if as_json:
        for name, layer, meaning in rows:
            click.echo(msgspec.json.encode({"table": name, "layer": layer, "meaning": meaning}))
    else:
        print_table("Tables", ["table", "layer", "meaning"], rows)


def _distinct(names: list[str]) -> list[str]:
    """A join may give the same name twice, which an object cannot hold."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    repeated = {name: itertools.count(1) for name, count in seen.items() if count > 1}
    return [f"{name}_{next(repeated[name])}" if name in repeated else name for name in names]


def _print(found: DataFrame, limit: int) -> None:
    rows = [msgspec.json.decode(line) for line in json_rows(found.limit(limit + 1))]
    shown = [[_cell(value) for value in row.values()] for row in rows[:limit]]
    print_table(f"{len(shown)} rows" if len(shown) != 1 else "1 row", found.columns, shown)
    if len(rows) > limit:
        complain(f"only the first {limit} rows are shown: give --limit, or --json for all")


def _cell(value: Any) -> Any:
    """What is not a number or a text is shown as JSON."""
    if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool)):
        return value
    return msgspec.json.encode(value).decode()
