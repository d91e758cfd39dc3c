"""How long to wait before each attempt to reconnect."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays before reconnecting: random between 0 and a bound that doubles with every attempt, so that clients
    which lost their connections together do not return together."""

    first: float = 0.2
    """The bound before the first attempt, in seconds."""
    most: float = 20.0
    """The bound that is never exceeded, in seconds."""
    attempts: int | None = None
    """How many attempts may fail in a row before the SDK gives up; None: any number."""

    def __post_init__(self) -> None:
        if self.first < 0 or self.most < 0:
            raise ValueError(f"a backoff of {self.first} to {self.most} seconds: expected no negative times")

    def delay(self, attempt: int) -> float:
        """A random delay in seconds before this attempt; the first is 0."""
        bound = min(self.most, self.first * 2.0 ** min(attempt, 60))
        return random.uniform(0, bound)  # noqa: S311  # spreading load is no secret

    def is_over(self, failures: int) -> bool:
        """Whether to give up after this many failures in a row."""
        return self.attempts is not None and failures >= self.attempts
