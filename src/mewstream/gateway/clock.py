"""The time of a space: that of the machine, but it never runs back, and no jump of the machine's clock stops a timer.

Every record has a time, and deadlines are times of that kind: they are compared with nothing else. Where the clock of
the machine is set back, the time of a space goes on from where it was; it is *ahead* of the machine then, and runs a
tenth slower until it is not. The same holds after a start with a clock that is behind the log. Where the clock is set
forward, the time of a space follows at once: a right that expires at that time has expired. But what was promised for
a number of seconds (a grace period, a pause, the time for a start) gets those seconds: its deadline moves with the
clock. A jump is found by comparison with a clock that cannot be set. Smaller steps, as a time service makes them, are
simply followed.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from mewstream.protocol.times import SECOND

log = logging.getLogger("mewstream.gateway")

#: A step of this size is a jump, in microseconds.
JUMP = SECOND
#: Seconds between two checks of the clock.
WATCH_SECONDS = 1.0
#: Two clocks cannot be read at the same moment. After an interruption longer than this between them, both are read
#: again.
_TOGETHER = SECOND // 100
_ATTEMPTS = 10
#: A space that is ahead runs slower by one part in this many, until it is not.
_MADE_UP = 10


class MachineClock:
    """The clock of one gateway, which checks it once a second and whenever a time is doubtful."""

    def __init__(self) -> None:
        self._offset, self.checked_at = _read()
        self.jumped = 0
        """The sum of all jumps so far, in microseconds."""

    def check(self) -> None:
        """Find out whether the clock has jumped since it was last checked."""
        offset, self.checked_at = _read()
        step, self._offset = offset - self._offset, offset
        if abs(step) >= JUMP:
            self.jumped += step
            way = "forward" if step > 0 else "back"
            log.warning("the clock of this machine has jumped %s by %.1f seconds", way, abs(step) / SECOND)

    def is_doubtful(self, wall: int) -> bool:
        """Whether a time of this clock may be after a jump that was not found yet."""
        return not -JUMP < wall - self.checked_at < JUMP + WATCH_SECONDS * SECOND


def _read() -> tuple[int, int]:
    """How far the clock is ahead of the one that cannot be set, and its time."""
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
    """``last`` is the time of the newest record of the space."""

    def __init__(self, machine: MachineClock, last: int) -> None:
        self._machine = machine
        self._seen = machine.jumped
        self.ahead = max(0, last - machine.checked_at)
        """How far the time of the space is before that of the machine, in microseconds."""

    def now(self) -> int:
        """The time of the space. It may be after a jump that was not found yet, which does no harm to frames."""
        return time.time_ns() // 1000 + self.ahead

    def check(self) -> Jump | None:
        """Return the jump since this was last called, if there was one."""
        if self._machine.is_doubtful(time.time_ns() // 1000):
            self._machine.check()
        by, self._seen = self._machine.jumped - self._seen, self._machine.jumped
        if not by:
            return None
        made_up = min(by, self.ahead)
        self.ahead -= made_up
        return Jump(by, by - made_up)

    def make_up(self, micros: int) -> None:
        """Let a space that is ahead make up for some of it, after ``micros`` have passed."""
        self.ahead = max(0, self.ahead - micros // _MADE_UP)
