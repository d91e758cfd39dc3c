"""Bounds on HTTP answers that their readers have not taken yet: for the whole gateway, and for each participant.

Large answers may take only a part of the whole, and those of one participant a small share of that. So clients that
request much and do not read it get in the way of others that do the same, but never of small answers.
"""

from __future__ import annotations

from mewstream.gateway.http_message import HttpError
from mewstream.protocol.errors import LimitExceeded

#: Requests for large answers that one participant may have open at the same time.
READS_PER_PARTICIPANT = 4
#: The parts of the whole that large answers may take: those of one participant, and those of all.
PARTICIPANT_SHARE = 1 / 8
READS_SHARE = 3 / 4
RETRY_AFTER = 1

Reader = tuple[str, str]
"""A space and a participant of it."""


class UnsentAnswers:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_large = int(max_bytes * READS_SHARE)
        self._max_of_reader = int(max_bytes * PARTICIPANT_SHARE)
        self.small = 0
        self.large = 0
        """Bytes of answers that have not left yet; large answers count from the moment they are requested."""
        self.of_readers: dict[Reader, list[Reservation]] = {}

    @property
    def size(self) -> int:
        """Bytes of all answers that have not left yet."""
        return self.small + self.large

    def require_room(self, patience: float = 1.0) -> None:
        """Raise :class:`HttpError` (503) if too much is unsent. ``patience`` multiplies the limit."""
        # A page may turn out larger than its reservation, which must not count against small answers.
        if self.small + min(self.large, self._max_large) >= self._max_bytes * patience:
            raise self._no_room(self._max_bytes, "answers")

    def reserve(self, size: int) -> Reservation:
        """Count a small answer."""
        return Reservation(self, None, size)

    def reserve_large(self, reader: Reader, size: int) -> Reservation:
        """Count an answer that may be large, of about this size at most. Raises an error if there is no room for it.

        One is always possible, for each participant and in all, because a small limit would allow none otherwise."""
        open_ = self.of_readers.get(reader, [])
        if len(open_) >= READS_PER_PARTICIPANT:
            raise LimitExceeded(
                f"more than {READS_PER_PARTICIPANT} requests for much at the same time: wait for their answers",
                limit="reads_per_participant",
                retry_after=RETRY_AFTER,
            )
        if open_ and sum(each.size for each in open_) + size > self._max_of_reader:
            raise LimitExceeded(
                f"more than {self._max_of_reader} bytes of your answers wait to be taken: read them first",
                limit="unsent_http_bytes",
                retry_after=RETRY_AFTER,
            )
        if self.large and self.large + size > self._max_large:
            raise self._no_room(self._max_large, "large answers")
        reservation = Reservation(self, reader, size)
        self.of_readers.setdefault(reader, []).append(reservation)
        return reservation

    def _no_room(self, max_bytes: int, what: str) -> HttpError:
        flaw = LimitExceeded(
            f"more than {max_bytes} bytes of {what} wait to be taken by their readers: try again later",
            limit="unsent_http_bytes",
            retry_after=RETRY_AFTER,
        )
        return HttpError(503, flaw)


class Reservation:
    """The room of one answer. It must be released when the answer has left, or never can."""

    __slots__ = ("_answers", "_reader", "size")

    def __init__(self, answers: UnsentAnswers, reader: Reader | None, size: int) -> None:
        self._answers = answers
        self._reader = reader
        self.size = 0
        self.resize(size)

    def resize(self, size: int) -> None:
        """Set the size of the answer, now that it is known."""
        if self._reader is None:
            self._answers.small += size - self.size
        else:
            self._answers.large += size - self.size
        self.size = size

    def release(self) -> None:
        self.resize(0)
        if self._reader is not None:
            of_readers = self._answers.of_readers
            of_readers[self._reader].remove(self)
            if not of_readers[self._reader]:
                del of_readers[self._reader]
