"""Why a connection is closed, as codes that tell the other side whether it may reconnect.

The gateway closes with these codes and the SDK obeys them, so the rule stands here once:

==============  =====================================================================================
4000 to 4499    the client may reconnect
4500 to 4999    it must not reconnect unchanged: the same join would be refused again
1000 to 1015    the standard's own codes; those in ``FINAL_STANDARD_CODES`` must not be retried either
==============  =====================================================================================

A client that joins without ``extensions`` knows only the standard codes, so it is sent the ``standard``
code of a reason. ``docs/protocol.md`` shows this table; a test keeps the two the same.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

#: The code that stands for a connection that ended without a close frame. It is never sent.
ABNORMAL = 1006
#: The code that stands for a close frame that carries none. It is never sent either.
NO_CODE = 1005
#: An orderly end.
NORMAL = 1000
#: The first of our codes that forbid a reconnect.
FIRST_FINAL_CODE = 4500
#: Protocol error, unsupported data, invalid text, policy violation, missing extension.
FINAL_STANDARD_CODES = frozenset({1002, 1003, 1007, 1008, 1010})


def may_reconnect(code: int) -> bool:
    """Whether a client whose connection was closed with ``code`` may connect again without changing anything."""
    return code < FIRST_FINAL_CODE and code not in FINAL_STANDARD_CODES


class Close(NamedTuple):
    """One row of the table."""

    code: int
    standard: int
    """The code for a client that knows only the standard's."""
    text: str

    def code_for(self, *, knows_ours: bool) -> int:
        return self.code if knows_ours else self.standard


class CloseReason(Enum):
    """Every reason for which the gateway closes a connection."""

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
    ORIGIN_REFUSED = Close(4505, 4505, "pages of this origin may not connect: see gateway.allowed_origins")
    TOKEN_EXPIRED = Close(4506, 4506, "the token has expired: connect again with a new one")
    BANNED = Close(4507, 4507, "banned from the space for a while")
    JOIN_TIMEOUT = Close(1008, 1008, "no join within the time allowed")
    INVALID_TEXT = Close(1007, 1007, "a text message that is not UTF-8")
    TOO_BIG = Close(1009, 1009, "the message is larger than this gateway takes")
    BAD_FRAMING = Close(1002, 1002, "fragments out of order, or reserved bits")
    INTERNAL_ERROR = Close(1011, 1011, "an internal error of the gateway")

    @classmethod
    def of(cls, code: int) -> CloseReason:
        """The reason that has this code of ours."""
        return next(each for each in cls if each.value.code == code)

    @property
    def may_reconnect(self) -> bool:
        return may_reconnect(self.value.code)
