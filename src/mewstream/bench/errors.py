"""What can go wrong in a measurement.

MewError
└── BenchError          the run could not be made: its text says why
    ├── Unreachable     no connection, or it was lost before the run
    ├── Refused         the gateway answered with an error
    └── CheckFailed     the gateway lost, repeated, reordered or changed something
        └── Overloaded  it dropped frames of a slow reader or closed its connection
"""

from __future__ import annotations

from mewstream.protocol.errors import MewError


class BenchError(MewError):
    """The measurement could not be made."""


class Unreachable(BenchError):
    """The gateway does not answer, or the answer is not that of a MEW gateway."""


class Refused(BenchError):
    """The gateway answered with an error: a wrong token, a missing capability, a limit."""


class CheckFailed(BenchError):
    """The gateway violated the protocol, so its figures mean nothing."""


class Overloaded(CheckFailed):
    """The gateway dropped frames of a reader or closed its connection, as it may when the reader is too slow."""
