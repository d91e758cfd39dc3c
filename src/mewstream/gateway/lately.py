"""Who was seen within the last moments, counted without walking through everyone."""

from __future__ import annotations

from collections import Counter, deque


class LatelySeen:
    """How many different ones were added within the last ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._added: deque[tuple[float, object]] = deque()
        self._times: Counter[object] = Counter()

    def add(self, who: object, now: float) -> None:
        self._forget(now)
        self._added.append((now, who))
        self._times[who] += 1

    def count(self, now: float) -> int:
        self._forget(now)
        return len(self._times)

    def _forget(self, now: float) -> None:
        while self._added and self._added[0][0] < now - self._seconds:
            _, who = self._added.popleft()
            self._times[who] -= 1
            if not self._times[who]:
                del self._times[who]
