"""What commands print: tables, JSON and error lines, and nothing when nobody reads it."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
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
        from mewstream.cli.tables import print_framed

        print_framed(title, columns, rows)
        return
    texts = [[printable(str(cell)) if cell not in (None, "") else "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    click.echo(f"{title}:")
    for line in [list(columns), *texts]:
        click.echo("  " + "  ".join(map(str.ljust, line, widths)).rstrip())
    click.echo()
