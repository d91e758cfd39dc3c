"""What tests do to a gateway from within its process: set its clock, and measure the turns of its event loop.

with fake_clock() as clock, running_gateway(config, prepare=clock.prepare) as gateway:
    clock.advance(3600)

with turn_meter() as turns, running_gateway(config, prepare=turns.prepare) as gateway:
    turns.reset()
    ...
    assert turns.longest < 0.1

The gateway knows nothing of this: its process is prepared by the tests before it begins.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

_CELL = struct.Struct("=q")


class SharedNumbers:
    """A few whole numbers that two processes see."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 64)

    def __getitem__(self, place: int) -> int:
        return int(_CELL.unpack_from(self._map, place * _CELL.size)[0])

    def __setitem__(self, place: int, value: int) -> None:
        _CELL.pack_into(self._map, place * _CELL.size, value)


@contextlib.contextmanager
def _shared_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "shared"
        path.write_bytes(bytes(64))
        yield path


def both(*prepare: Callable[[], None]) -> Callable[[], None]:
    return partial(_each, prepare)


def _each(prepare: tuple[Callable[[], None], ...]) -> None:
    for each in prepare:
        each()


# -- the clock ------------------------------------------------------------------------------------


class FakeClock:
    """The clock of the machine, as far as the gateway can see it. The one that cannot be set goes on as it was."""

    def __init__(self, path: Path) -> None:
        self._offset = SharedNumbers(path)
        self.prepare = partial(_use_fake_clock, path)

    def advance(self, seconds: float) -> None:
        """Set it forward, or back."""
        self._offset[0] += round(seconds * 1e9)

    def now(self) -> float:
        return (time.time_ns() + self._offset[0]) / 1e9


@contextlib.contextmanager
def fake_clock() -> Iterator[FakeClock]:
    with _shared_file() as path:
        yield FakeClock(path)


def _use_fake_clock(path: Path) -> None:
    offset = SharedNumbers(path)
    real = time.time_ns
    time.time_ns = lambda: real() + offset[0]
    time.time = lambda: time.time_ns() / 1e9


# -- turns of the loop ----------------------------------------------------------------------------

_LONGEST, _SPENT, _RESET = range(3)
#: Seconds between two looks. A turn takes no longer than the time between two of them, and hardly less if it is long.
_EVERY = 0.001


class TurnMeter:
    """CPU time of the thread that has the event loop."""

    def __init__(self, path: Path) -> None:
        self._numbers = SharedNumbers(path)
        self.prepare = partial(_measure_turns, path)

    def reset(self) -> None:
        self._numbers[_RESET] = 1
        while self._numbers[_RESET]:
            time.sleep(_EVERY)

    @property
    def longest(self) -> float:
        """Seconds of the longest turn since the last reset."""
        return self._numbers[_LONGEST] / 1e9

    @property
    def spent(self) -> float:
        """Seconds in all."""
        return self._numbers[_SPENT] / 1e9


@contextlib.contextmanager
def turn_meter() -> Iterator[TurnMeter]:
    with _shared_file() as path:
        yield TurnMeter(path)


def _measure_turns(path: Path) -> None:
    from mewstream.gateway.gateway import Gateway

    numbers = SharedNumbers(path)
    begin = Gateway.__init__

    def begin_and_measure(self: Gateway, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        loop = self.loop
        before = time.thread_time_ns()

        def look() -> None:
            nonlocal before
            now = time.thread_time_ns()
            if numbers[_RESET]:
                numbers[_LONGEST] = numbers[_RESET] = 0
            else:
                numbers[_LONGEST] = max(numbers[_LONGEST], now - before)
            numbers[_SPENT] = before = now
            loop.call_later(_EVERY, look)

        look()

    Gateway.__init__ = begin_and_measure  # type: ignore[method-assign]
