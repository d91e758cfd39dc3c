"""Answers that were made and not yet taken: bounded for the whole gateway, and large ones for each participant.

Large answers can take a part of the room only, and one participant can take a small share of that. So those who ask for
much and do not take it are in the way of others who do the same, and never of what is small.
"""

from __future__ import annotations

from mewstream.gateway.http_message import HttpError
from mewstream.protocol.errors import LimitExceeded

#: Large answers that one participant may have been promised at the same time.
READS_PER_PARTICIPANT = 4
#: What the large answers of one participant may take of the room, and those of all.
PARTICIPANT_SHARE = 1 / 8
READS_SHARE = 3 / 4
RETRY_AFTER = 1


class UnsentAnswers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_reads = int(most * READS_SHARE)
        self._most_of_participant = int(most * PARTICIPANT_SHARE)
        self._small = 0
        self._large = 0
        """Bytes of answers that wait for their peers; of large ones those that are promised too."""
        self._readers: dict[tuple[str, str], list[Promise]] = {}

    @property
    def size(self) -> int:
        """Bytes of all answers that wait for their peers, and of those that are promised."""
        return self._small + self._large

    def require_room(self, patience: float = 1.0) -> None:
        """Who asks for more while so much is not taken is told to come back. ``patience`` is a factor of the bound."""
        # A page may turn out larger than was promised: that does not count against what is small.
        if self._small + min(self._large, self._most_of_reads) >= self._most * patience:
            raise self._no_room(self._most, "answers")

    def add(self, size: int) -> None:
        """An answer that was not promised."""
        self._small += size

    def remove(self, size: int) -> None:
        self._small -= size

    def promise(self, space: str, participant: str, size: int) -> Promise:
        """A participant asks for what may be a large answer, of about this size at most. One is always possible, of
        each participant and of all: else a small bound would allow none."""
        reader = (space, participant)
        promised = self._readers.get(reader, [])
        if len(promised) >= READS_PER_PARTICIPANT:
            raise LimitExceeded(
                f"more than {READS_PER_PARTICIPANT} requests for much at the same time: wait for their answers",
                limit="reads_per_participant",
                retry_after=RETRY_AFTER,
            )
        if promised and sum(each.size for each in promised) + size > self._most_of_participant:
            raise LimitExceeded(
                f"more than {self._most_of_participant} bytes of your answers wait to be taken: read them first",
                limit="unsent_http_bytes",
                retry_after=RETRY_AFTER,
            )
        if self._large and self._large + size > self._most_of_reads:
            raise self._no_room(self._most_of_reads, "large answers")
        promise = Promise(self, reader)
        self._readers.setdefault(reader, []).append(promise)
        promise.resize(size)
        return promise

    def _no_room(self, most: int, what: str) -> HttpError:
        flaw = LimitExceeded(
            f"more than {most} bytes of {what} wait to be taken by their readers: try again later",
            limit="unsent_http_bytes",
            retry_after=RETRY_AFTER,
        )
        return HttpError(503, flaw)

    def resized(self, change: int) -> None:
        """So many bytes more, or less, of large answers."""
        self._large += change

    def end_promise(self, reader: tuple[str, str], promise: Promise) -> None:
        self._readers[reader].remove(promise)
        if not self._readers[reader]:
            del self._readers[reader]


class Promise:
    """A large answer, from the moment it is asked for until it has left."""

    __slots__ = ("_answers", "_reader", "size")

    def __init__(self, answers: UnsentAnswers, reader: tuple[str, str]) -> None:
        self._answers = answers
        self._reader = reader
        self.size = 0
        """What was promised, or what was made."""

    def resize(self, size: int) -> None:
        self._answers.resized(size - self.size)
        self.size = size

    def kept(self) -> None:
        """It has left, or can never leave."""
        self.resize(0)
        self._answers.end_promise(self._reader, self)
