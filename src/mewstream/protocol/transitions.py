"""The life of a stream and the rights on it: every transition, in one table.

A row says in which state an event is valid, who may cause it, what state follows, which message everyone gets, and
with which code others are refused. An event without a row for a state is ``invalid_operation`` there; for a stream that
has ended every event is ``stream_not_found``.

The table drives: the rules look up who may cause an event, the refusal and the next state, ``fold`` the next state, and
``render`` the kind of the message. The diagram in ``docs/stream-states.md`` is drawn from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from mewstream.protocol import kinds


class Status(StrEnum):
    NONE = "none"
    READY = "ready"
    LIVE = "live"
    ENDED = "ended"


class Who(StrEnum):
    CAPABLE = "a holder of the capability"
    OWNER = "the owner"
    OWNER_OR_MANAGER = "the owner, or a holder of space/manage-streams"
    GRANTER = "the owner, a holder of space/manage-streams, or a delegate for what is below it"
    WRITER = "an authorized writer"
    ANYONE = "anyone who is present and may not write yet"
    GATEWAY = "the gateway"


class Transition(NamedTuple):
    source: Status
    event: str
    """The kind of the envelope that causes it, or one of the gateway's own events below."""
    who: Who
    target: Status
    emits: str
    """The kind of the message that tells of it."""
    refusal: str
    """The code of the error for participants that may not cause it; empty if only the gateway causes it."""


FRAME = "frame"
START_TIMEOUT = "start timeout"
REUSE = "request (if_exists: reuse)"
REPLACE = "request (if_exists: replace)"
IDLE_TIMEOUT = "idle timeout"
GRANT_SPENT = "grant expired or spent"
WRITER_LEFT = "writer left"
DELEGATION_ENDED = "delegation ended"
OWNER_LEFT_TRANSFER = "owner left (transfer)"
OWNER_LEFT_CLOSE = "owner left (close)"

_NONE, _READY, _LIVE, _ENDED = Status.NONE, Status.READY, Status.LIVE, Status.ENDED


def _rows() -> list[Transition]:
    rows = [
        Transition(_NONE, kinds.STREAM_REQUEST, Who.CAPABLE, _LIVE, kinds.STREAM_OPEN, "capability_violation"),
        Transition(_NONE, kinds.STREAM_ANNOUNCE, Who.CAPABLE, _READY, kinds.STREAM_READY, "capability_violation"),
        Transition(_READY, kinds.STREAM_START, Who.OWNER, _LIVE, kinds.STREAM_START, "unauthorized"),
        Transition(_LIVE, FRAME, Who.WRITER, _LIVE, "the frame", "unauthorized_stream_write"),
        Transition(_LIVE, kinds.STREAM_COMPLETE, Who.OWNER, _ENDED, kinds.STREAM_COMPLETE, "unauthorized"),
        Transition(_READY, START_TIMEOUT, Who.GATEWAY, _ENDED, kinds.STREAM_ERROR, ""),
    ]
    for state in (_READY, _LIVE):
        rows += [
            Transition(state, kinds.GRANT_WRITE, Who.GRANTER, state, kinds.WRITE_GRANTED, "unauthorized"),
            Transition(state, kinds.REVOKE_WRITE, Who.GRANTER, state, kinds.WRITE_REVOKED, "unauthorized"),
        ]
        rows += [
            Transition(state, event, Who.OWNER_OR_MANAGER, state, emits, "unauthorized")
            for event, emits in (
                (kinds.TRANSFER_OWNERSHIP, kinds.OWNERSHIP_TRANSFERRED),
                (kinds.GRANT_READ, kinds.READ_GRANTED),
                (kinds.REVOKE_READ, kinds.READ_REVOKED),
                (kinds.DENY_WRITE, kinds.WRITE_DENIED),
            )
        ]
        rows += [
            Transition(state, kinds.REQUEST_WRITE, Who.ANYONE, state, kinds.REQUEST_WRITE, "capability_violation"),
            Transition(state, kinds.STREAM_ERROR, Who.OWNER, _ENDED, kinds.STREAM_ERROR, "unauthorized"),
            Transition(state, kinds.STREAM_CLOSE, Who.OWNER_OR_MANAGER, _ENDED, kinds.STREAM_CLOSE, "unauthorized"),
            Transition(state, REUSE, Who.OWNER, state, kinds.STREAM_OPEN, "already_exists"),
            Transition(state, REPLACE, Who.OWNER_OR_MANAGER, _ENDED, kinds.STREAM_CLOSE, "unauthorized"),
            Transition(state, IDLE_TIMEOUT, Who.GATEWAY, _ENDED, kinds.STREAM_CLOSE, ""),
            Transition(state, GRANT_SPENT, Who.GATEWAY, state, kinds.WRITE_REVOKED, ""),
            Transition(state, WRITER_LEFT, Who.GATEWAY, state, kinds.WRITE_REVOKED, ""),
            Transition(state, DELEGATION_ENDED, Who.GATEWAY, state, kinds.WRITE_REVOKED, ""),
            Transition(state, OWNER_LEFT_TRANSFER, Who.GATEWAY, state, kinds.OWNERSHIP_TRANSFERRED, ""),
            Transition(state, OWNER_LEFT_CLOSE, Who.GATEWAY, _ENDED, kinds.STREAM_CLOSE, ""),
        ]
    return rows


TRANSITIONS: tuple[Transition, ...] = tuple(_rows())

#: Who may cause an event, how others are refused and what it emits are the same in every state, so that a right can be
#: checked before the state is.
WHO: dict[str, Who] = {row.event: row.who for row in TRANSITIONS}
REFUSAL: dict[str, str] = {row.event: row.refusal for row in TRANSITIONS}
EMITS: dict[str, str] = {row.event: row.emits for row in TRANSITIONS}

#: An event is valid in the states for which it has a row here.
BY_EVENT_AND_STATE: dict[tuple[str, Status], Transition] = {(row.event, row.source): row for row in TRANSITIONS}


def states_allowing(event: str) -> list[str]:
    return [str(row.source) for row in TRANSITIONS if row.event == event]
