"""The newest records of a space, in memory: what most who come back have missed."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator

import msgspec

from mewstream.protocol.records import EnvelopeAccepted, Frame, FrameBlock, Record

#: What a record weighs beside its data.
_OVERHEAD = 256


class RecentRecords:
    """A window of bounded weight; older records are forgotten, here but not in the journal. Frames that
    came together are forgotten together."""

    def __init__(self, max_bytes: int = 8 << 20) -> None:
        self._max_bytes = max_bytes
        self._parts: deque[tuple[Record | FrameBlock, int]] = deque()
        self._bytes = 0

    def append(self, record: Record, size: int = 0) -> None:
        """``size`` is that of its JSON, where somebody has measured it."""
        self._add(record, _weight(record, size))

    def extend(self, block: FrameBlock, data_bytes: int) -> None:
        self._add(block, data_bytes + len(block) * _OVERHEAD)

    def _add(self, part: Record | FrameBlock, weight: int) -> None:
        self._parts.append((part, weight))
        self._bytes += weight
        while self._bytes > self._max_bytes:
            self._bytes -= self._parts.popleft()[1]

    def reaches(self, after: int) -> bool:
        """Whether everything above a position is here."""
        return bool(self._parts) and self._parts[0][0].seq <= after + 1

    def seq_before(self, micros: int) -> int | None:
        """The last position before a time; None where that is older than what is here."""
        parts = [part for part, _ in self._parts]
        later = bisect.bisect_left(parts, micros, key=lambda part: part.ts)
        if not later:
            return None
        part = parts[later - 1]
        return part.last_seq if isinstance(part, FrameBlock) else part.seq

    def read(self, after: int) -> Iterator[Record]:
        """Records above a position, in order."""
        for part, _ in tuple(self._parts):
            if isinstance(part, FrameBlock):
                if part.last_seq > after:
                    yield from part.frames()[max(0, after + 1 - part.seq) :]
            elif part.seq > after:
                yield part


def _weight(record: Record, size: int) -> int:
    if type(record) is Frame or type(record) is EnvelopeAccepted:
        return len(record.data) + _OVERHEAD
    # Objects take several times the room of their JSON.
    return 4 * (size or len(msgspec.json.encode(record))) + _OVERHEAD
