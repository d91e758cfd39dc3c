"""``python -m mewstream.demo``: plays the session, runs the pipeline over it, and shows what came out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from mewstream.cli.output import printable
from mewstream.cli.spark import require_spark, session
from mewstream.cli.warehouses import require_query
from mewstream.demo.gateway import SPACE, DemoGateway
from mewstream.demo.play import perform
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
def demo(directory: Path) -> None:
    """Play a session of people, agents and a game server, and show what the pipeline makes of it.

    The session goes through a real gateway. It takes a minute or two, and ends by itself. It needs Spark and Java,
    and says at once where one is missing. The exit code is 1 where the audit finds anything.

    \b
    Examples:
      mewstream demo
      mewstream demo --dir /tmp/demo
    """
    require_spark()
    require_query()
    find_java()
    began = time.monotonic()
    console = Console(highlight=False)
    _make_room(directory)
    with _part(console, "1. A session, through a real gateway"), DemoGateway(directory) as gateway:
        asyncio.run(perform(gateway, _narrator(console)))
    report = directory / "report.html"
    with _part(console, "2. The pipeline: tables of everything that flowed"):
        _run_pipeline(console, gateway.data, directory / "warehouse")
    from mewstream.pipeline.warehouse import open_warehouse
    from mewstream.query.database import open_database
    from mewstream.query.report import write_report

    with open_database(open_warehouse(directory / "warehouse")) as database:
        with _part(console, "3. The audit: was everything allowed?"):
            is_sound = _print_audit(console, database)
        with _part(console, "4. What happened, in numbers"):
            _print_summary(console, database)
        with _part(console, "5. The report"), console.status("drawing"):
            write_report(database, report)
    console.print(f"\n[bold]The report is in {report.absolute()}[/]: open it in a browser.")
    console.print("Go on with what is there:")
    for line in (
        f"mewstream state --data {gateway.data} --at 300",
        f"mewstream query --warehouse {directory / 'warehouse'}",
        f"mewstream journal cat --data {gateway.data} --record refused",
    ):
        console.print(f"  {line}", style="cyan", soft_wrap=True)
    console.print(f"[dim]{time.monotonic() - began:.0f} seconds in all[/]")
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
def _part(console: Console, title: str) -> Iterator[None]:
    console.print()
    console.print(Rule(Text(title, "bold"), align="left"))
    began = time.monotonic()
    yield
    console.print(f"[dim]{time.monotonic() - began:.1f} s[/]")


def _narrator(console: Console) -> Any:
    began = time.monotonic()
    colours: dict[str, str] = {}

    def say(who: str, what: str) -> None:
        colour = colours.setdefault(who, _COLOURS[len(colours) % len(_COLOURS)])
        line = Text(f"{time.monotonic() - began:5.1f} s  ", "dim")
        line.append(f"{who:<17}", colour)
        line.append(printable(what))
        console.print(line, soft_wrap=True)

    return say


def _run_pipeline(console: Console, data: Path, warehouse: Path) -> None:
    from mewstream.pipeline import runner

    with console.status("starting Spark, reading the journal, writing the tables"), session() as spark:
        result = runner.run(runner.Settings(data=str(data), warehouse=warehouse), spark=spark)
    table = Table("table", "rows", box=None, header_style="bold", pad_edge=False)
    table.columns[1].justify = "right"
    for name, rows in result.rows.items():
        table.add_row(name, f"{rows:,}")
    console.print(table)


def _print_audit(console: Console, database: WarehouseDatabase) -> bool:
    [row] = database.rows(
        "SELECT verdict, frames_judged, refusals_judged FROM space_summary WHERE space = $space", space=SPACE
    )
    style = "bold green" if row["verdict"] == "sound" else "bold red"
    console.print(
        Text(row["verdict"], style), f"- {row['frames_judged']} frames and {row['refusals_judged']} refusals judged"
    )
    for finding in database.rows("SELECT seq, rule, reason FROM audit ORDER BY seq LIMIT 20"):
        console.print(Text(f"seq {finding['seq']}  {finding['rule']}  {printable(str(finding['reason']))}", "red"))
    return bool(row["verdict"] == "sound")


def _print_summary(console: Console, database: WarehouseDatabase) -> None:
    for title, sql in _QUESTIONS.items():
        found = database.rows(sql)
        if found:
            table = Table(*found[0], title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
            for row in found:
                table.add_row(*(Text(_cell(value)) for value in row.values()))
            console.print(table)


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


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    try:
        demo()
    except MewError as error:
        raise SystemExit(f"mewstream: {error}") from None


if __name__ == "__main__":
    main()
