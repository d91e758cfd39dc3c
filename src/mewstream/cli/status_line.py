"""A line on a terminal that is written again and again, and is gone at the end: progress bars and signs of life."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

#: Seconds between two changes of a progress bar.
_SHOW_EVERY = 0.1
#: After so many seconds of silence something is shown.
_PATIENCE = 2.0
_BAR = 24
#: The width of a terminal that does not tell its own.
_COLUMNS = 80


class StatusLine:
    """The last line of stderr, if that is a terminal; otherwise nothing is shown."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Replace the line. It is cut to the width of the terminal, because a second line could not be replaced."""
        if self._is_shown:
            self._write(text[: _columns() - 1])

    def clear(self) -> None:
        if self._is_shown:
            self._write("")

    def _write(self, text: str) -> None:
        with self._lock:
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS


@contextlib.contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar. ``total`` is in bytes; None if it is not known. The block calls the function that it gets with
    the number of bytes that are done since the last call."""
    line = StatusLine()
    began = shown = time.monotonic()
    done = 0

    def show() -> None:
        nonlocal shown
        shown = time.monotonic()
        line.show(f"{what} {progress_bar(done, total)} {megabytes(done)}{_remaining(done, total, shown - began)}")

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if time.monotonic() - shown >= _SHOW_EVERY:
            show()

    show()
    try:
        yield advance
        show()
    finally:
        line.clear()


def progress_bar(done: int, total: int | None) -> str:
    """A bar such as ``━━━━━━      50%``; nothing if the total is not known."""
    if not total:
        return ""
    share = min(1.0, done / total)
    return f"{'━' * int(share * _BAR):{_BAR}} {share:4.0%}"


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _remaining(done: int, total: int | None, elapsed: float) -> str:
    if not total or not done:
        return ""
    minutes, seconds = divmod(int(elapsed * max(0, total - done) / done), 60)
    return f" of {megabytes(total)}, {minutes}:{seconds:02} left"


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """What takes longer than two seconds says so, and for how long it has been at it."""
    line, done, began = StatusLine(), threading.Event(), time.monotonic()

    def show() -> None:
        if done.wait(_PATIENCE):
            return
        line.show(what)
        while not done.wait(0.5):
            line.show(f"{what}: {time.monotonic() - began:.0f} s")
        line.clear()

    thread = threading.Thread(target=show, name="working", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
