"""The timers of a space: what falls due, and when. The earliest is found in constant time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

Timer = tuple[str, str, str]
"""What falls due: (``expire``, stream, writer), (``absent``, stream, writer), (``start``, stream, ""),
(``owner``, stream, ""), (``idle``, stream, ""), (``rejoin``, participant, ""), (``pause``, participant, "")."""


class Timers(dict[Timer, int]):
    """When each falls due. A heap beside the dict finds the earliest. It may hold outdated times, which
    :meth:`earliest` removes."""

    __slots__ = ("_heap",)

    def __init__(self, timers: Mapping[Timer, int] | None = None) -> None:
        super().__init__(timers or {})
        self._build()

    def __setitem__(self, timer: Timer, due: int) -> None:
        super().__setitem__(timer, due)
        heapq.heappush(self._heap, (due, timer))
        # A timer that is set again and again leaves its old times behind.
        if len(self._heap) > 2 * len(self) + 64:
            self._build()

    def earliest(self) -> tuple[int, Timer] | None:
        """The time and the timer; of several that fall due together, the first by name."""
        heap = self._heap
        while heap and self.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _build(self) -> None:
        self._heap = [(due, timer) for timer, due in self.items()]
        heapq.heapify(self._heap)

    def __reduce__(self) -> tuple[type[Timers], tuple[dict[Timer, int]]]:
        return Timers, (dict(self),)
