"""A position in the log of a space, as clients know it."""

from __future__ import annotations

import msgspec


class Position(msgspec.Struct, frozen=True):
    """The record ``seq`` of the run ``epoch`` of a gateway. A client that has seen everything up to it can resume."""

    epoch: str
    seq: int
