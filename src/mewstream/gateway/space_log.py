"""The log lines of one space: who comes and goes, what is refused, and who is too slow."""

from __future__ import annotations

import logging

from mewstream.gateway.bounded_log import BoundedLog
from mewstream.io.log_lines import event
from mewstream.protocol.records import Joined, Left, Refused, Suspended

log = logging.getLogger("mewstream.gateway")


class SpaceLog:
    def __init__(self, space: str) -> None:
        self._space = space
        self._slow = BoundedLog(logging.WARNING, "lost frames")

    def joined(self, record: Joined, connection: int | None) -> None:
        """``connection`` is the number of the WebSocket that joins, if it is one."""
        ids = event("joined", space=self._space, participant=record.participant, connection=connection)
        log.info("%s joined %s by %s", record.participant, self._space, record.transport, extra=ids)

    def left(self, record: Left) -> None:
        ids = event("left", space=self._space, participant=record.participant, reason=record.reason)
        log.info("%s left %s: %s", record.participant, self._space, record.reason, extra=ids)

    def suspended(self, record: Suspended) -> None:
        ids = event("suspended", space=self._space, participant=record.participant, reason=record.reason)
        log.info("%s is suspended in %s: %s", record.participant, self._space, record.reason, extra=ids)

    def refused(self, record: Refused) -> None:
        """What was refused may be anything, even a token in the wrong place: it is not named."""
        ids = event(
            "message_refused", space=self._space, participant=record.sender, code=record.code, count=record.count
        )
        text = "refused %d messages of %s in %s: %s"
        log.debug(text, record.count, record.sender, self._space, record.code, extra=ids)

    def dropped(self, participant: str, stream: str, count: int) -> None:
        """A slow reader did not get some frames."""
        text = f"{participant} in {self._space} is too slow: {count} frames of {stream} were dropped for it"
        self._slow.say("reader_slow", text, space=self._space, participant=participant, stream=stream, count=count)
