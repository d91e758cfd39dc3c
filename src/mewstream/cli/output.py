"""What commands print: tables, one line of complaint, a progress bar, and a quiet end."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec

import click

from mewstream.protocol.errors import ConfigError, MewError

P = ParamSpec("P")


def quietly(command: Callable[P, None]) -> Callable[P, None]:
    """For a command that prints: a reader that went away, as ``head`` does, and Ctrl-C are no errors;
    a file that cannot be read is one line."""

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
        except MewError:
            raise  # also where it is a TimeoutError, which is an OSError to Python
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise ConfigError(f"{where}{error.strerror or error}") from None

    return run


def complain(text: object) -> None:
    """One line to stderr."""
    click.echo(f"mewstream: {text}", err=True)


def print_json(value: object) -> None:
    """One line."""
    import msgspec

    click.echo(msgspec.json.encode(value).decode())


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
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal, nothing elsewhere. ``total`` bytes; None: nobody knows."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda size: bar.advance(task, size)
