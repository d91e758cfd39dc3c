"""Answers that were made and not yet taken: bounded for the whole gateway, and large ones for each participant."""

from __future__ import annotations

from mewstream.gateway.http_message import HttpError
from mewstream.protocol.errors import LimitExceeded

#: Large answers that one participant may have been promised at the same time.
READS_PER_PARTICIPANT = 4
#: What a large answer counts as until its size is known.
LARGE_ANSWER_BYTES = 4 << 20
RETRY_AFTER = 1


class UnsentAnswers:
    def __init__(self, most: int) -> None:
        self._most = most
        self.size = 0
        """Bytes of all answers that wait for their peers, and of those that are promised."""
        self._readers: dict[tuple[str, str], int] = {}

    def require_room(self, patience: float = 1.0) -> None:
        """Who asks for more while so much is not taken is told to come back. ``patience`` is a factor of the bound."""
        if self.size >= self._most * patience:
            flaw = LimitExceeded(
                f"more than {self._most} bytes of answers wait to be taken by their readers: try again later",
                limit="unsent_http_bytes",
                retry_after=RETRY_AFTER,
            )
            raise HttpError(503, flaw)

    def add(self, size: int) -> None:
        self.size += size

    def remove(self, size: int) -> None:
        self.size -= size

    def promise(self, space: str, participant: str) -> Promise:
        """A participant asks for what may be a large answer."""
        reader = (space, participant)
        count = self._readers.get(reader, 0)
        if count >= READS_PER_PARTICIPANT:
            raise LimitExceeded(
                f"more than {READS_PER_PARTICIPANT} requests for much at the same time: wait for their answers",
                limit="reads_per_participant",
                retry_after=RETRY_AFTER,
            )
        self._readers[reader] = count + 1
        self.size += LARGE_ANSWER_BYTES
        return Promise(self, reader)

    def end_promise(self, reader: tuple[str, str]) -> None:
        left = self._readers[reader] - 1
        if left:
            self._readers[reader] = left
        else:
            del self._readers[reader]


class Promise:
    """A large answer, from the moment it is asked for until it has left."""

    __slots__ = ("_answers", "_is_made", "_reader")

    def __init__(self, answers: UnsentAnswers, reader: tuple[str, str]) -> None:
        self._answers = answers
        self._reader = reader
        self._is_made = False

    def made(self) -> None:
        """Its true size is counted from now on."""
        if not self._is_made:
            self._is_made = True
            self._answers.remove(LARGE_ANSWER_BYTES)

    def kept(self) -> None:
        """It has left, or can never leave."""
        self.made()
        self._answers.end_promise(self._reader)
