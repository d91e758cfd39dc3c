"""Asking a warehouse from a command: without Spark, and with a sign of life where it takes long."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mewstream.cli.installing import how_to_install
from mewstream.pipeline.errors import PipelineError
from mewstream.protocol.errors import ConfigError

if TYPE_CHECKING:
    from mewstream.query.database import WarehouseDatabase

warehouse_option = click.option(
    "--warehouse",
    required=True,
    metavar="DIR|URL",
    help="Where the tables are, as given to `mewstream pipeline run`.",
)
spaces_option = click.option("--space", "spaces", multiple=True, help="Only this space; may be given several times.")
#: After so many seconds something is shown.
_PATIENCE = 2.0


@contextlib.contextmanager
def open_tables(warehouse: str, what: str) -> Iterator[WarehouseDatabase]:
    """Open the database of a warehouse as it is now. ``what`` is shown if it takes long."""
    require_query()
    from mewstream.pipeline.warehouse import open_warehouse
    from mewstream.query.database import open_database

    with working(what), open_database(open_warehouse(warehouse)) as opened:
        yield opened


def require_query() -> None:
    try:
        import deltalake  # noqa: F401
        import duckdb  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"this command needs {error.name}, which is not installed: {how_to_install('query')}"
        ) from None


def refuse_unknown(database: WarehouseDatabase, spaces: tuple[str, ...], warehouse: str) -> None:
    if spaces:
        known = database.rows(
            "SELECT space FROM space_summary WHERE space IN (SELECT unnest($spaces))", spaces=list(spaces)
        )
        if missing := set(spaces) - {row["space"] for row in known}:
            from mewstream.pipeline.storage import store_at

            raise PipelineError(f"there is nothing of space {', '.join(sorted(missing))} in {store_at(warehouse)}")


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """On a terminal, what takes longer than two seconds says so, and for how long it has been at it."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    console, done, began = Console(stderr=True), threading.Event(), time.monotonic()

    def show() -> None:
        if done.wait(_PATIENCE):
            return
        with console.status(what) as status:
            while not done.wait(0.5):
                status.update(f"{what}: {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=show, name="working", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
