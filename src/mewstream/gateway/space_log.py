"""The log lines of one space: who comes and goes, what is refused, and who is too slow."""

from __future__ import annotations

import logging

from mewstream.gateway.bounded_log import BoundedLog
from mewstream.io.log_lines import event
from mewstream.protocol.records import Joined, Left, Record, Refused, Suspended

log = logging.getLogger("mewstream.gateway")


class SpaceLog:
    def __init__(self, space: str) -> None:
        self._space = space
        self._slow = BoundedLog(logging.WARNING, "lost frames")

    def record(self, record: Record, connection: int | None) -> None:
        """Log what a record means for people. ``connection`` is the number of the one that joins."""
        match record:
            case Joined(participant=participant, transport=transport):
                ids = event("joined", space=self._space, participant=participant, connection=connection)
                log.info("%s joined %s by %s", participant, self._space, transport, extra=ids)
            case Left(participant=participant, reason=reason):
                ids = event("left", space=self._space, participant=participant, reason=reason)
                log.info("%s left %s: %s", participant, self._space, reason, extra=ids)
            case Suspended(participant=participant, reason=reason):
                ids = event("suspended", space=self._space, participant=participant, reason=reason)
                log.info("%s is suspended in %s: %s", participant, self._space, reason, extra=ids)
            case Refused(sender=sender, code=code, count=count):
                # What was refused may be anything, even a token in the wrong place.
                ids = event("message_refused", space=self._space, participant=sender, code=code, count=count)
                log.debug("refused %d messages of %s in %s: %s", count, sender, self._space, code, extra=ids)

    def dropped(self, participant: str, stream: str, count: int) -> None:
        """A slow reader did not get some frames."""
        text = f"{participant} in {self._space} is too slow: {count} frames of {stream} were dropped for it"
        self._slow.say("reader_slow", text, space=self._space, participant=participant, stream=stream, count=count)
