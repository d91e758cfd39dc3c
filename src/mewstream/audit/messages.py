"""What follows from messages that are relayed, proposals among them."""

from __future__ import annotations

from mewstream.audit.case import Case
from mewstream.audit.records import Expected, need, rule
from mewstream.protocol import kinds


@rule("Paused and shut down")
def paused_and_shut_down(case: Case) -> None:
    """An envelope from a participant that was paused, shut down or banned, and may not send it then."""
    need(case.sender not in case.space.banned, "unauthorized", f"{case.sender} is banned")
    until = case.space.paused.get(case.sender, (0, None))[0]
    shut_down = case.sender in case.space.shut_down and case.kind not in kinds.AFTER_SHUTDOWN
    need(not shut_down, "invalid_operation", f"{case.sender} was shut down")
    paused = (until is None or case.ts < until) and case.kind not in kinds.WHILE_PAUSED
    need(not paused, "invalid_operation", f"{case.sender} is paused")


@rule("Capabilities")
def relay(case: Case) -> list[Expected]:
    """A message that is only relayed (``chat``, ``mcp/*`` and all others) against the capabilities of its sender."""
    if case.kind not in kinds.ALWAYS_ALLOWED:
        case.capability()
    return []


@rule("MCP and proposals", kinds.MCP_WITHDRAW)
def withdraw(case: Case) -> list[Expected]:
    """A proposal withdrawn that is unknown, or not the sender's."""
    proposers = _proposers(case)
    need(None not in proposers, "invalid_operation", "there is no such proposal")
    need(set(proposers) == {case.sender}, "unauthorized", "the proposal is another participant's")
    return []


@rule("MCP and proposals", kinds.MCP_REJECT)
def reject(case: Case) -> list[Expected]:
    """A rejection that names no known proposal."""
    need(any(_proposers(case)), "invalid_operation", "there is no such proposal")
    return []


def _proposers(case: Case) -> list[str | None]:
    need(bool(case.field("correlation_id")), "validation_error", "it names no proposal")
    case.capability()
    proposers = [case.space.proposals.get(each) for each in case.field("correlation_id")]
    case.space.has(None not in proposers)
    return proposers
