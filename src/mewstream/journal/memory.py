"""A bounded window of the newest records of each space, in memory."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator

from mewstream.protocol.records import EnvelopeAccepted, Frame, Record

#: What a record weighs beside its data.
_OVERHEAD = 256


class MemoryJournal:
    """Keeps the newest records of each space up to ``bytes_per_space``; older ones are forgotten.

    ``epoch`` names this run: positions of another run mean nothing here.
    """

    def __init__(self, *, bytes_per_space: int = 16 << 20) -> None:
        self.epoch = secrets.token_hex(6)
        self._bytes_per_space = bytes_per_space
        self._records: dict[str, deque[Record]] = {}
        self._bytes: dict[str, int] = {}

    def append(self, space: str, record: Record) -> None:
        records = self._records.get(space)
        if records is None:
            records = self._records[space] = deque()
            self._bytes[space] = 0
        records.append(record)
        size = self._bytes[space] + _weight(record)
        while size > self._bytes_per_space:
            size -= _weight(records.popleft())
        self._bytes[space] = size

    def first_seq(self, space: str) -> int:
        """The oldest position that can still be read; one past the end where there is none."""
        records = self._records.get(space)
        return records[0].seq if records else 1

    def read(self, space: str, after: int) -> Iterator[Record]:
        """Records with a ``seq`` above ``after``, in order."""
        records = self._records.get(space, ())
        return (record for record in records if record.seq > after)


def _weight(record: Record) -> int:
    if isinstance(record, Frame | EnvelopeAccepted):
        return len(record.data) + _OVERHEAD
    return 4 * _OVERHEAD
