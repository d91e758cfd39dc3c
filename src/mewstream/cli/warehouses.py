"""Asking a warehouse from a command, without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mewstream.cli.status_line import working
from mewstream.extras import require
from mewstream.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from mewstream.query.database import WarehouseDatabase

warehouse_option = click.option(
    "--warehouse",
    required=True,
    metavar="DIR|URL",
    help="Where the tables are, as given to `mewstream pipeline run`.",
)
spaces_option = click.option("--space", "spaces", multiple=True, help="Only this space; may be given several times.")


@contextlib.contextmanager
def open_tables(warehouse: str, what: str) -> Iterator[WarehouseDatabase]:
    """Open the database of a warehouse as it is now. ``what`` is shown if it takes long."""
    require("query")
    from mewstream.pipeline.warehouse import open_warehouse
    from mewstream.query.database import open_database

    with working(what), open_database(open_warehouse(warehouse)) as opened:
        yield opened


def refuse_unknown(database: WarehouseDatabase, spaces: tuple[str, ...], warehouse: str) -> None:
    if spaces:
        known = database.rows(
            "SELECT space FROM space_summary WHERE space IN (SELECT unnest($spaces))", spaces=list(spaces)
        )
        if missing := set(spaces) - {row["space"] for row in known}:
            from mewstream.pipeline.storage import store_at

            raise PipelineError(f"there is nothing of space {', '.join(sorted(missing))} in {store_at(warehouse)}")
