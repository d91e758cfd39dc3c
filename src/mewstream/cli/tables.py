"""Tables with colours and lines, for a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

import click

from mewstream.cli.output import printable

#: A column is not made narrower than this, however narrow the terminal is.
_NARROWEST = 4


def print_framed(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table that is no wider than the terminal; long cells are folded, numbers are on the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    numbers = [
        bool(rows) and all(isinstance(row[place], int) or row[place] is None for row in rows)
        for place in range(len(columns))
    ]
    wanted = [max(map(_width, column)) for column in zip(columns, *cells, strict=True)]
    widths = _fitted(wanted, shutil.get_terminal_size().columns - 3 * len(columns) - 1)
    click.secho(title, bold=True)
    click.echo(_rule("┏┳┓", "━", widths))
    for line in _lines(columns, widths, numbers):
        click.echo(f"┃ {' ┃ '.join(click.style(cell, fg='cyan', bold=True) for cell in line)} ┃")
    click.echo(_rule("┡╇┩", "━", widths))
    for row in cells:
        for line in _lines(row, widths, numbers):
            click.echo(f"│ {' │ '.join(line)} │")
    click.echo(_rule("└┴┘", "─", widths))


def _rule(corners: str, line: str, widths: Sequence[int]) -> str:
    return corners[0] + corners[1].join(line * (width + 2) for width in widths) + corners[2]


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _fitted(wanted: Sequence[int], room: int) -> list[int]:
    """Make the widest columns narrower, one place at a time, until all fit."""
    widths = list(wanted)
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _lines(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> Iterator[list[str]]:
    """Yield the lines of one row: a cell that is too long goes on in the next."""
    folded = [list(_folded(cell, width)) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, folded))):
        line = []
        for parts, width, is_number in zip(folded, widths, numbers, strict=True):
            part = parts[number] if number < len(parts) else ""
            space = " " * (width - _width(part))
            line.append(space + part if is_number else part + space)
        yield line


def _folded(text: str, width: int) -> Iterator[str]:
    part, used = "", 0
    for char in text:
        size = _width(char)
        if used + size > width and part:
            yield part
            part, used = "", 0
        part, used = part + char, used + size
    yield part


def _width(text: str) -> int:
    """The number of columns that a text takes on a terminal: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    return max(0, wcswidth(text))
