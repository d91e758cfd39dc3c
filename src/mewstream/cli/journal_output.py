"""What the commands of ``mewstream journal`` share: options, tables, and a quiet end."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ParamSpec

import click

from mewstream.journal.errors import JournalError
from mewstream.journal.reader import JournalReader
from mewstream.protocol.times import SECOND, parse_rfc3339

P = ParamSpec("P")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"": 1, "b": 1} | {
    unit: factor**power
    for power, letter in enumerate("kmgt", 1)
    for unit, factor in ((letter, 1000), (f"{letter}b", 1000), (f"{letter}ib", 1024))
}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\Z")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\Z")

data_option = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The data directory of the gateway; the journal is in its directory 'journal'.",
)


def age(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A time span in seconds: ``90s``, ``15m``, ``12h``, ``7d``, ``2w``."""
    if value is None:
        return None
    match = _AGE.match(value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is no age: expected for instance 90s, 15m, 12h, 7d or 2w")
    return float(match[1]) * _SECONDS[match[2]]


def size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Bytes: ``10GB`` are 10^10, ``10GiB`` are 10 * 2^30."""
    if value is None:
        return None
    match = _SIZE.match(value.strip().lower())
    if match is None or match[2] not in _BYTES:
        raise click.BadParameter(f"{value!r} is no size: expected for instance 500MB, 10GB or 64MiB")
    return int(float(match[1]) * _BYTES[match[2]])


def moment(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A time in microseconds: RFC 3339, a day (UTC), ``now``, or an age such as ``15m`` before now."""
    if value is None:
        return None
    text = value.strip()
    now = time.time_ns() // 1000
    if text.lower() == "now":
        return now
    if match := _AGE.match(text.lower()):
        return now - int(float(match[1]) * _SECONDS[match[2]] * SECOND)
    micros = parse_rfc3339(f"{text}T00:00:00Z" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text)
    if micros is None:
        raise click.BadParameter(
            f"{value!r} is no time: expected for instance 2026-01-31T12:00:00Z (with a time zone), "
            "2026-01-31, 15m (ago) or now"
        )
    return micros


def open_reader(data: Path) -> JournalReader:
    """The journal of a data directory, or an error that says that there is none."""
    reader = JournalReader(data / "journal")
    reader.identity()
    return reader


def quietly(command: Callable[P, None]) -> Callable[P, None]:
    """A reader that went away, as ``head`` does, and Ctrl-C are no errors; a file that cannot be
    read is one line."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes once more at its end: there must be something that takes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            sys.exit(130)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise JournalError(f"{where}{error.strerror or error}") from None

    return run


def complain(text: object) -> None:
    """One line to stderr."""
    click.echo(f"mewstream: {text}", err=True)


def printable(text: str) -> str:
    """What peers wrote must not steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """With colours and lines on a terminal; aligned plain text with whole numbers elsewhere."""
    if sys.stdout.isatty():
        _print_rich_table(title, columns, rows)
        return
    texts = [[printable(str(cell)) if cell not in (None, "") else "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    click.echo(f"{title}:")
    for line in [list(columns), *texts]:
        click.echo("  " + "  ".join(map(str.ljust, line, widths)).rstrip())
    click.echo()


def _print_rich_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold cyan")
    for place, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[place], int) or row[place] is None for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(each)) for each in row))
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda size: bar.advance(task, size)
