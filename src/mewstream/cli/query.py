"""``mewstream query``: SQL over the tables of a warehouse."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import click
import msgspec

from mewstream.cli.output import complain, print_table, quietly
from mewstream.cli.status_line import working
from mewstream.cli.warehouses import open_tables, warehouse_option
from mewstream.extras import require

#: Numbers stay numbers, however long they are.
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Answer(NamedTuple):
    columns: list[str]
    rows: Iterator[list[Any]]
    """As JSON can hold them."""


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
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="Whose SQL it is. Spark takes many seconds to start.",
)
@click.argument("sql", required=False)
@quietly
def query(warehouse: str, as_json: bool, limit: int, engine: str, sql: str | None) -> None:
    """Ask the tables something, in SQL.

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
    require("query", *(["spark"] if engine == "spark" else []))
    sql = (sys.stdin.read() if sql == "-" else sql or "").strip().rstrip(";")
    if not sql or sql.lower().split() == ["show", "tables"]:
        with open_tables(warehouse, "looking for tables") as database:
            _list_tables(database.table_names(), as_json)
        return
    with (_with_duckdb if engine == "duckdb" else _with_spark)(warehouse, sql) as answer:
        columns = _distinct(answer.columns)
        if as_json:
            for row in answer.rows:
                click.echo(_encode(dict(zip(columns, row, strict=True))))
        else:
            _print(columns, answer.rows, limit)


@contextlib.contextmanager
def _with_duckdb(warehouse: str, sql: str) -> Iterator[Answer]:
    from mewstream.query.database import plain_rows

    with contextlib.ExitStack() as stack:
        database = stack.enter_context(open_tables(warehouse, "running the query"))
        stack.enter_context(database.one_line_errors())
        found = database.query(sql)
        yield Answer(found.schema.names, itertools.chain.from_iterable(map(plain_rows, found)))


@contextlib.contextmanager
def _with_spark(warehouse: str, sql: str) -> Iterator[Answer]:
    from mewstream.cli.spark import json_rows, session
    from mewstream.pipeline.warehouse import open_warehouse
    from mewstream.query.with_spark import register_views, run_query

    opened = open_warehouse(warehouse)
    with working("starting Spark"), session() as spark:
        found = run_query(spark, sql, register_views(spark, opened))
        columns = found.columns
        numbered = found.toDF(*map(str, range(len(columns))))
        rows = (list(msgspec.json.decode(line).values()) for line in json_rows(numbered))
        yield Answer(columns, rows)


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
            click.echo(_encode({"table": name, "layer": layer, "meaning": meaning}))
    else:
        print_table("Tables", ["table", "layer", "meaning"], rows)


def _distinct(names: list[str]) -> list[str]:
    """A join may give the same name twice, which an object cannot hold."""
    repeated = {name: itertools.count(1) for name in names if names.count(name) > 1}
    return [f"{name}_{next(repeated[name])}" if name in repeated else name for name in names]


def _print(columns: list[str], rows: Iterator[list[Any]], limit: int) -> None:
    shown = [[_cell(value) for value in row] for row in itertools.islice(rows, limit)]
    print_table(f"{len(shown)} rows" if len(shown) != 1 else "1 row", columns, shown)
    if next(rows, None) is not None:
        complain(f"only the first {limit} rows are shown: give --limit, or --json for all")


def _cell(value: Any) -> Any:
    """What is not a number or a text is shown as JSON."""
    if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool)):
        return value
    return _encode(value).decode()
