"""``mewstream report``: one HTML page about what happened."""

from __future__ import annotations

from pathlib import Path

import click

from mewstream.cli.output import quietly
from mewstream.cli.values import moment
from mewstream.cli.warehouses import open_tables, refuse_unknown, spaces_option, warehouse_option


@click.command()
@warehouse_option
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The file; an older one is replaced when the new one is complete.",
)
@spaces_option
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help="Only what happened from then on: RFC 3339, a day (UTC), or 15m (ago).",
)
@click.option("--until", metavar="TIME", callback=moment, help="Only what happened before then.")
@quietly
def report(warehouse: str, out: Path, spaces: tuple[str, ...], since: int | None, until: int | None) -> None:
    """Write a page with pictures: activity, who wrote to which stream when, rates, latency, refusals, the verdict.

    The page is one file that needs nothing else and asks nobody for anything. Names and texts of participants are in
    it, so give it to those only who may know them.

    \b
    Examples:
      mewstream report --warehouse ./warehouse
      mewstream report --warehouse ./warehouse --space demo --out demo.html
      mewstream report --warehouse ./warehouse --since 2026-01-31 --until 2026-02-01
    """
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since is not before --until: nothing could be shown")
    with open_tables(warehouse, "drawing") as database:
        from mewstream.query.report import Selection, write_report

        refuse_unknown(database, spaces, warehouse)
        write_report(database, out, Selection(spaces=spaces, since=since, until=until))
    click.echo(f"written: {out}")
