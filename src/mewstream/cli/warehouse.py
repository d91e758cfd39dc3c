"""``mewstream warehouse``: the tables for other engines."""

from __future__ import annotations

import click

from mewstream.cli.output import quietly
from mewstream.cli.warehouses import open_tables, warehouse_option


@click.group()
def warehouse() -> None:
    """Make the tables known to other engines."""


@warehouse.command("sql")
@warehouse_option
@click.option("--dialect", type=click.Choice(["spark", "duckdb", "trino"]), required=True, help="Whose SQL it is.")
@click.option("--schema", default="mewstream", show_default=True, help="The schema (database) that gets the tables.")
@click.option(
    "--catalog", help="The catalog of that schema, where it is not the current one.  [default: none; trino: delta]"
)
@quietly
def print_sql(warehouse: str, dialect: str, schema: str, catalog: str | None) -> None:
    """Print the statements that register every table, and a typed view for each announced format.

    Run them in the engine: Spark with Delta's jars, DuckDB with its extension delta, Trino with the connector for
    Delta Lake. The tables stay where they are, and follow the pipeline. A format that is announced later gets its view
    when the statements are run again.

    \b
    Examples:
      mewstream warehouse sql --warehouse ./warehouse --dialect duckdb | duckdb analysis.db
      mewstream warehouse sql --warehouse s3://bucket/warehouse --dialect trino --schema cats
    """
    with open_tables(warehouse, "reading the formats") as database:
        from mewstream.pipeline.storage import store_at
        from mewstream.pipeline.tables import SHOWN
        from mewstream.query.dialects import DIALECTS

        chosen, store = DIALECTS[dialect], store_at(warehouse)
        catalog = catalog or ("delta" if dialect == "trino" else None)
        statements = [
            *chosen.schema(catalog, schema),
            *(chosen.table(catalog, schema, table.name, store.uri(table.name)) for table in SHOWN),
        ]
        content = chosen.place(catalog, schema, "content")
        for view in database.typed_views():
            statements.append(chosen.view(catalog, schema, view.name, view.select(chosen, content)))
    for statement in statements:
        click.echo(f"{statement};")
