"""What commands print: tables, JSON, error lines and progress bars."""

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
    """Decorates a command that prints.

    It ends without an error when the reader of its output goes away, as ``head`` does, and with exit code 130 after
    Ctrl-C. A file that cannot be read gives one line."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes stdout again at exit, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            sys.exit(130)
        except MewError:
            raise  # first, because some of them are also TimeoutError, which is an OSError
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise ConfigError(f"{where}{error.strerror or error}") from None

    return run


def complain(text: object) -> None:
    """Print one line to stderr."""
    click.echo(f"mewstream: {text}", err=True)


def print_json(value: object) -> None:
    """Print a value as JSON on one line."""
    import msgspec

    click.echo(msgspec.json.encode(value).decode())


def printable(text: str) -> str:
    """Escape control characters, so that text from other participants cannot control the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: with colours and lines on a terminal, otherwise as aligned plain text."""
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
    """A progress bar on stderr, if that is a terminal. ``total`` is in bytes; None if it is not known."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda size: bar.advance(task, size)
