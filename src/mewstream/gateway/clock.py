"""The time of a space, which is that of the machine but never goes backwards.

Every record has such a time, and deadlines are compared with it.

- If the clock of the machine is set back, the time of a space continues from where it was. It is *ahead* of the machine
  then, and runs a tenth slower until it is not. The same happens if the gateway starts with a clock behind its log.
- If the clock is set forward, the time of a space follows at once, and a right that expires at a given time has
  expired. Deadlines that were given as a number of seconds (a grace period, a pause, a start timeout) move with the
  clock.

A jump is found by comparison with the monotonic clock. Smaller steps, such as those of a time service, are followed.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from mewstream.io.log_lines import event
from mewstream.protocol.times import SECOND

log = logging.getLogger("mewstream.gateway")

#: A step of this size is a jump, in microseconds.
JUMP = SECOND
#: Seconds between two checks of the clock.
WATCH_SECONDS = 1.0
#: The two clocks are read one after the other. If more time than this passes in between, both are read again.
_TOGETHER = SECOND // 100
_ATTEMPTS = 10
#: A space that is ahead of the machine runs slower by one part in this many.
_MADE_UP = 10


class MachineClock:
    """The clock of the machine. The gateway checks it once a second, and a space whenever its time is implausible."""

    def __init__(self) -> None:
        self._offset, self.checked_at = _read()
        self.jumped = 0
        """The sum of all jumps so far, in microseconds."""

    def check(self) -> None:
        """Find out whether the clock has jumped since the last check."""
        offset, self.checked_at = _read()
        step, self._offset = offset - self._offset, offset
        if abs(step) >= JUMP:
            self.jumped += step
            way = "forward" if step > 0 else "back"
            log.warning(
                "the clock of this machine has jumped %s by %.1f seconds",
                way,
                abs(step) / SECOND,
                extra=event("clock_jumped"),
            )


def _read() -> tuple[int, int]:
    """How far the clock is ahead of the monotonic clock, and its time, in microseconds."""
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < _TOGETHER * 1000:
            break
    return (wall - after) // 1000, wall // 1000


class Jump(NamedTuple):
    """``by``: how far the clock jumped; ``shift``: how far the time of the space did."""

    by: int
    shift: int


class SpaceClock:
    """The clock of one space. ``last`` is the time of its newest record."""

    def __init__(self, machine: MachineClock, last: int) -> None:
        self._machine = machine
        self._seen = machine.jumped
        self.ahead = max(0, last - machine.checked_at)
        """How far the time of the space is ahead of the machine, in microseconds."""

    def now(self) -> int:
        """The time of the space. It may be after a jump that was not found yet, which does not matter for frames."""
        return time.time_ns() // 1000 + self.ahead

    def check(self) -> Jump | None:
        """Return the jump since the last call, if there was one."""
        # A time that the last check of the machine's clock does not explain may be after a jump that was not found yet.
        since_check = time.time_ns() // 1000 - self._machine.checked_at
        if not -JUMP < since_check < JUMP + WATCH_SECONDS * SECOND:
            self._machine.check()
        by, self._seen = self._machine.jumped - self._seen, self._machine.jumped
        if not by:
            return None
        made_up = min(by, self.ahead)
        self.ahead -= made_up
        return Jump(by, by - made_up)

    def make_up(self, micros: int) -> None:
        """Reduce the lead of a space that is ahead, after ``micros`` have passed."""
        self.ahead = max(0, self.ahead - micros // _MADE_UP)
