"""The states of a connection, and of a link that spans one connection after another."""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """A connection goes through these states in order, and never back.

    A link goes from JOINED back to JOINING whenever its connection is lost and may be made again.
    """

    NEW = auto()
    """Nothing has been opened yet."""
    JOINING = auto()
    """The gateway has not welcomed us yet: nothing can be sent."""
    JOINED = auto()
    """We are in the space."""
    CLOSING = auto()
    """We are leaving, or are being sent away: nothing more can be sent."""
    GONE = auto()
    """It is over for good."""
