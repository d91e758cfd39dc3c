"""``mewstream report``: one HTML page about what happened."""

from __future__ import annotations

from pathlib import Path

import click

from mewstream.cli.output import quietly
from mewstream.cli.spark import warehouse_option, warehouse_session
from mewstream.pipeline.errors import PipelineError


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
@click.option("--space", "spaces", multiple=True, help="Only this space; may be given several times.")
@quietly
def report(warehouse: Path, out: Path, spaces: tuple[str, ...]) -> None:
    """Write a page with pictures: activity, who wrote to which stream when, rates, latency, refusals, the verdict.

    The page is one file that needs nothing else and asks nobody for anything. Names and texts of participants are in
    it, so give it to those only who may know them.

    \b
    Examples:
      mewstream report --warehouse ./warehouse
      mewstream report --warehouse ./warehouse --space demo --out demo.html
    """
    with warehouse_session(warehouse) as (spark, opened):
        from pyspark.sql import functions as F

        from mewstream.pipeline.report import write_report

        if spaces:
            known = opened.table(spark, "space_summary").where(F.col("space").isin(*spaces)).select("space").collect()
            if missing := set(spaces) - {row[0] for row in known}:
                raise PipelineError(f"there is nothing of space {', '.join(sorted(missing))} in {warehouse}")
        write_report(lambda name: opened.table(spark, name), out, spaces=spaces)
    click.echo(f"written: {out}")
