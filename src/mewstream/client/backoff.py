"""How long to wait before a lost connection is made again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds. A delay is anything between nothing and a bound that doubles with every attempt, so that
    those who lost their connection together do not come back together."""

    first: float = 0.2
    most: float = 20.0
    attempts: int | None = None
    """After so many failures in a row it is given up; None: never."""

    def __post_init__(self) -> None:
        if self.first < 0 or self.most < 0:
            raise ValueError(f"a backoff of {self.first} to {self.most} seconds: expected no negative times")

    def delay(self, attempt: int) -> float:
        """Before attempt 0, 1, 2, ..."""
        bound = min(self.most, self.first * 2.0 ** min(attempt, 60))
        return random.uniform(0, bound)  # noqa: S311  # spreading load is no secret

    def is_over(self, failures: int) -> bool:
        return self.attempts is not None and failures >= self.attempts
