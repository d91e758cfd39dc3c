"""What can go wrong in a measurement.

MewError
└── BenchError          the run could not be made: its text says why
    ├── Unreachable     no connection, or it was lost before the run
    └── CheckFailed     the gateway lost, repeated, reordered or changed something
"""

from __future__ import annotations

from mewstream.protocol.errors import MewError


class BenchError(MewError):
    """The measurement could not be made."""


class Unreachable(BenchError):
    """The gateway does not answer, or not as a gateway does."""


class Refused(BenchError):
    """The gateway answered with an error: a wrong token, a missing capability, a limit."""


class CheckFailed(BenchError):
    """The gateway did something that none may do: its figures are worth nothing."""
