"""The newest records of a space, in memory: what most who come back have missed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from mewstream.protocol.records import EnvelopeAccepted, Frame, Record

#: What a record weighs beside its data.
_OVERHEAD = 256


class RecentRecords:
    """A window of bounded weight; older records are forgotten, here but not in the journal."""

    def __init__(self, max_bytes: int = 8 << 20) -> None:
        self._max_bytes = max_bytes
        self._records: deque[Record] = deque()
        self._weights: deque[int] = deque()
        self._bytes = 0

    def append(self, record: Record) -> None:
        weight = _weight(record)
        self._records.append(record)
        self._weights.append(weight)
        self._bytes += weight
        while self._bytes > self._max_bytes:
            self._records.popleft()
            self._bytes -= self._weights.popleft()

    def reaches(self, after: int) -> bool:
        """Whether everything above a position is here."""
        return bool(self._records) and self._records[0].seq <= after + 1

    def read(self, after: int) -> Iterator[Record]:
        """Records above a position, in order."""
        if not self._records:
            return iter(())
        skipped = max(0, after + 1 - self._records[0].seq)
        return (self._records[place] for place in range(skipped, len(self._records)))


def _weight(record: Record) -> int:
    if type(record) is Frame or type(record) is EnvelopeAccepted:
        return len(record.data) + _OVERHEAD
    # Objects take several times the room of their JSON.
    return 4 * len(msgspec.json.encode(record)) + _OVERHEAD
