"""The newest records of a space in memory, which is all that most resuming participants have missed."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator

import msgspec

from mewstream.protocol.records import EnvelopeAccepted, Frame, FrameBlock, Record

#: The bytes of memory that a record takes beside its data.
_OVERHEAD = 256


class RecentRecords:
    """A window of bounded size; older records are only in the journal. The frames of a block leave it together."""

    def __init__(self, max_bytes: int = 8 << 20) -> None:
        self._max_bytes = max_bytes
        self._parts: deque[tuple[Record | FrameBlock, int]] = deque()
        self._bytes = 0

    def append(self, part: Record | FrameBlock, size: int = 0) -> None:
        """``size`` is the size of its JSON, or of the data of a block, or 0 if that was not measured."""
        if isinstance(part, FrameBlock):
            weight = (size or sum(map(len, part.data))) + len(part.data) * _OVERHEAD
        elif type(part) is Frame or type(part) is EnvelopeAccepted:
            weight = len(part.data) + _OVERHEAD
        else:
            # Objects take several times the memory of their JSON.
            weight = 4 * (size or len(msgspec.json.encode(part))) + _OVERHEAD
        self._parts.append((part, weight))
        self._bytes += weight
        while self._bytes > self._max_bytes:
            self._bytes -= self._parts.popleft()[1]

    def reaches(self, after: int) -> bool:
        """Return whether the window has every record above a position."""
        return bool(self._parts) and self._parts[0][0].seq <= after + 1

    def seq_before(self, micros: int) -> int | None:
        """Return the last position before a time, or None if that is older than the window."""
        parts = [part for part, _ in self._parts]
        later = bisect.bisect_left(parts, micros, key=lambda part: part.ts)
        if not later:
            return None
        part = parts[later - 1]
        return part.last_seq if isinstance(part, FrameBlock) else part.seq

    def parts_above(self, after: int) -> list[Record | FrameBlock]:
        """Return everything that ends above a position, in order. The list is a copy, which a thread may read."""
        parts = [part for part, _ in self._parts]
        return parts[bisect.bisect_right(parts, after, key=_last_seq) :]

    @property
    def first_seq(self) -> int | None:
        """The oldest record in the window."""
        return self._parts[0][0].seq if self._parts else None

    def read(self, after: int) -> Iterator[Record]:
        """Yield the records above a position, in order."""
        for part, _ in tuple(self._parts):
            if isinstance(part, FrameBlock):
                if part.last_seq > after:
                    yield from part.frames()[max(0, after + 1 - part.seq) :]
            elif part.seq > after:
                yield part


def _last_seq(part: Record | FrameBlock) -> int:
    return part.last_seq if isinstance(part, FrameBlock) else part.seq
