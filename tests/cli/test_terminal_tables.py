"""Tables and status lines as a terminal shows them."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pyte
import pytest

from mewstream.cli.status_line import progress_bar


def on_a_terminal(program: str, *, columns: int = 60, lines: int = 40) -> list[str]:
    """Run a program whose output is a terminal: the lines of the screen at the end."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-W", "error", "-c", program]
    process = subprocess.Popen(command, stdout=there, stderr=there, env=environment | {"TERM": "xterm"})
    os.close(there)
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    while True:
        try:
            piece = os.read(here, 65536)
        except OSError:
            break  # Linux says so when nobody has the other end any more
        if not piece:
            break
        stream.feed(piece)
    os.close(here)
    assert process.wait(60) == 0, screen.display
    return [line.rstrip() for line in screen.display]


def test_a_table_has_lines_and_numbers_on_the_right() -> None:
    shown = on_a_terminal(
        "from mewstream.cli.output import print_table\n"
        "print_table('Streams', ['stream', 'frames'], [['stream-1', 1234567], ['stream-22', None]])"
    )
    assert shown[:7] == [
        "Streams",
        "┏━━━━━━━━━━━┳━━━━━━━━━━━┓",
        "┃ stream    ┃    frames ┃",
        "┡━━━━━━━━━━━╇━━━━━━━━━━━┩",
        "│ stream-1  │ 1,234,567 │",
        "│ stream-22 │           │",
        "└───────────┴───────────┘",
    ]


@pytest.mark.parametrize("columns", [30, 45, 60])
def test_long_cells_are_folded_to_the_width(columns: int) -> None:
    program = (
        "from mewstream.cli.output import print_table\n"
        "print_table('T', ['a', 'b', 'c'], [['x' * 100, 'short', '\u4f60\u597d' * 20], ['\\x1b[2J', 1, None]])"
    )
    shown = [line for line in on_a_terminal(program, columns=columns) if line]
    assert all(line[0] in "┏┃┡│└T" and line[-1] in "┓┃┩│┘T" for line in shown), shown
    text = "".join(shown)
    assert text.count("x") == 101 and text.count("\u4f60") == 20, "nothing is lost; one x is of the escape"
    assert r"\x1b[2J" in text, "nobody clears the screen of another"


def test_a_status_line_leaves_nothing_behind() -> None:
    program = (
        "import time\n"
        "from mewstream.cli.status_line import StatusLine, progress\n"
        "line = StatusLine(); line.show('x' * 500); line.clear()\n"
        "with progress('reading', 1000) as advance:\n"
        "    advance(500); time.sleep(0.2); advance(500)\n"
        "print('done')"
    )
    assert [line for line in on_a_terminal(program) if line] == ["done"]


@pytest.mark.parametrize(
    ("done", "total", "shown"), [(0, 10, "  0%"), (5, 10, " 50%"), (10, 10, "100%"), (20, 10, "100%"), (5, None, "")]
)
def test_a_bar(done: int, total: int | None, shown: str) -> None:
    assert progress_bar(done, total).endswith(shown)
