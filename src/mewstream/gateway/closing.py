"""Why the gateway closes a connection, as codes that tell a client what to do next.

4000 to 4499: the client may reconnect. 4500 to 4999: it must not without a change of its own.
Clients that join without ``extensions`` know the standard codes only, so a drain is 1001 to them;
whoever never joined gets standard codes where there are some.
``docs/protocol.md`` shows this table; a test keeps the two the same.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Close(NamedTuple):
    code: int
    standard: int
    """What a client gets that has shown no knowledge of ours."""
    text: str

    def code_for(self, *, knows_ours: bool) -> int:
        return self.code if knows_ours else self.standard


class CloseReason(Enum):
    DRAINING = Close(4000, 1001, "the gateway is going away: reconnect")
    SLOW_CONSUMER = Close(4001, 4001, "too slow: more was waiting than a connection may queue")
    REPLACED_BY_RECONNECT = Close(4002, 4002, "replaced: the same participant came back on a new connection")
    JOURNAL_UNAVAILABLE = Close(4003, 4003, "the gateway cannot record at the moment")
    PING_TIMEOUT = Close(4004, 4004, "no answer to a ping")
    SPACE_FULL = Close(4005, 4005, "the space has as many participants as it may")
    JOINS_TOO_OFTEN = Close(4006, 1013, "joined too often within a short time: wait before you reconnect")
    BAD_TOKEN = Close(4500, 4500, "the token is missing or is not of this participant in this space")
    KICKED = Close(4501, 4501, "removed from the space")
    REPLACED = Close(4502, 4502, "replaced: the same participant connected again")
    PROTOCOL_ERROR = Close(4503, 4503, "not a join: the first message identifies the participant")
    UNKNOWN_SPACE = Close(4504, 4504, "this gateway has no such space, or serves several and none was named")
    JOIN_TIMEOUT = Close(1008, 1008, "no join within the time allowed")
    INVALID_TEXT = Close(1007, 1007, "a text message that is not UTF-8")
    TOO_BIG = Close(1009, 1009, "the message is larger than this gateway takes")
    BAD_FRAMING = Close(1002, 1002, "fragments out of order, or reserved bits")
    INTERNAL_ERROR = Close(1011, 1011, "an error of the gateway's own")

    @property
    def may_reconnect(self) -> bool:
        return self.value.code < 4500
