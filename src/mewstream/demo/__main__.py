"""``python -m mewstream.demo``: plays the session, runs the pipeline over it, and shows what came out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mewstream.cli.output import print_table, printable
from mewstream.cli.spark import session, without_warnings
from mewstream.cli.status_line import working
from mewstream.demo.gateway import SPACE, DemoGateway
from mewstream.demo.live import play_live
from mewstream.demo.play import perform
from mewstream.extras import require
from mewstream.pipeline.java import find_java
from mewstream.protocol.errors import MewError

if TYPE_CHECKING:
    from mewstream.query.database import WarehouseDatabase

_MARKER = ".mewstream-demo"
"""In a directory of ours, which a later demo may empty."""
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Where the journal, the tables and the report go. That of an earlier demo is replaced.",
)
@click.option("--live", "is_live", is_flag=True, help="Play it slowly, again and again, for the console.")
def demo(directory: Path, is_live: bool) -> None:
    """Play a session of people, agents and a game server, and show what the pipeline makes of it.

    The session goes through a real gateway. It takes a minute or two, and ends by itself. It needs Spark and Java,
    and says at once where one is missing. The exit code is 1 where the audit finds anything.

    With --live, it goes on until Ctrl-C, and you watch it in the console, in your browser. That needs no Spark.

    \b
    Examples:
      mewstream demo
      mewstream demo --dir /tmp/demo
      mewstream demo --live
    """
    if is_live:
        require("gateway")
        _make_room(directory)
        play_live(directory, _narrator())
        return
    require("gateway", "query", "spark")
    without_warnings()
    find_java()
    began = time.monotonic()
    _make_room(directory)
    with _part("1. A session, through a real gateway"), DemoGateway(directory) as gateway:
        asyncio.run(perform(gateway, _narrator()))
    report = directory / "report.html"
    with _part("2. The pipeline: tables of everything that flowed"):
        _run_pipeline(gateway.data, directory / "warehouse")
    from mewstream.pipeline.warehouse import open_warehouse
    from mewstream.query.database import open_database
    from mewstream.query.report import write_report

    with open_database(open_warehouse(directory / "warehouse")) as database:
        with _part("3. The audit: was everything allowed?"):
            is_sound = _print_audit(database)
        with _part("4. What happened, in numbers"):
            _print_summary(database)
        with _part("5. The report"), working("drawing"):
            write_report(database, report)
    click.echo()
    click.echo(f"{click.style(f'The report is in {report.absolute()}', bold=True)}: open it in a browser.")
    click.echo("Go on with what is there:")
    for line in (
        f"mewstream state --data {gateway.data} --at 300",
        f"mewstream query --warehouse {directory / 'warehouse'}",
        f"mewstream journal cat --data {gateway.data} --record refused",
    ):
        click.secho(f"  {line}", fg="cyan")
    click.secho(f"{time.monotonic() - began:.0f} seconds in all", dim=True)
    if not is_sound:
        raise SystemExit(1)


def _make_room(directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()):
        if not (directory / _MARKER).exists():
            raise click.UsageError(f"{directory} is not empty, and not of a demo: give another --dir")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MARKER).touch()


@contextlib.contextmanager
def _part(title: str) -> Iterator[None]:
    click.echo()
    click.secho(title, bold=True)
    began = time.monotonic()
    yield
    click.secho(f"{time.monotonic() - began:.1f} s", dim=True)


def _narrator() -> Callable[[str, str], None]:
    began = time.monotonic()
    colours: dict[str, str] = {}

    def say(who: str, what: str) -> None:
        colour = colours.setdefault(who, _COLOURS[len(colours) % len(_COLOURS)])
        at = click.style(f"{time.monotonic() - began:5.1f} s", dim=True)
        click.echo(f"{at}  {click.style(f'{who:<17}', fg=colour)}{printable(what)}")

    return say


def _run_pipeline(data: Path, warehouse: Path) -> None:
    from mewstream.pipeline import runner

    with working("starting Spark, reading the journal, writing the tables"), session() as spark:
        result = runner.run(runner.Settings(data=str(data), warehouse=warehouse), spark=spark)
    print_table("Tables", ["table", "rows"], list(result.rows.items()))


def _print_audit(database: WarehouseDatabase) -> bool:
    kinds = ("frames", "changes", "refusals", "welcomes")
    columns = ", ".join(f"{kind}_judged" for kind in kinds)
    [row] = database.rows(f"SELECT verdict, {columns} FROM space_summary WHERE space = $space", space=SPACE)
    is_sound = bool(row["verdict"] == "sound")
    verdict = click.style(row["verdict"], fg="green" if is_sound else "red", bold=True)
    *most, last = (f"{row[f'{kind}_judged']} {kind}" for kind in kinds)
    click.echo(f"{verdict} - {', '.join(most)} and {last} judged")
    for finding in database.rows("SELECT seq, rule, reason FROM audit ORDER BY seq LIMIT 20"):
        click.secho(f"seq {finding['seq']}  {finding['rule']}  {printable(str(finding['reason']))}", fg="red")
    return is_sound


def _print_summary(database: WarehouseDatabase) -> None:
    for title, sql in _QUESTIONS.items():
        if found := database.rows(sql):
            print_table(title, list(found[0]), [list(row.values()) for row in found])


_QUESTIONS = {
    "Streams": """
        SELECT stream_id, left(coalesce(alias, description), 24) AS what, status, owner, len(owners) AS owners, frames
        FROM streams ORDER BY ready_seq
    """,
    "Handoffs": """
        SELECT stream_id, how, "by", writer, outcome, CAST(waited_ms AS BIGINT) AS waited_ms FROM handoffs ORDER BY seq
    """,
    "Refusals": """
        SELECT code, sender, CAST(sum(count) AS BIGINT) AS count FROM refusals
        GROUP BY code, sender ORDER BY count DESC, code, sender
    """,
    "Quarantine": """
        SELECT seq, sender, format_id, reasons[1].rule AS rule, reasons[1].message AS message
        FROM quarantine ORDER BY seq
    """,
}


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    try:
        demo()
    except MewError as error:
        raise SystemExit(f"mewstream: {error}") from None


if __name__ == "__main__":
    main()
