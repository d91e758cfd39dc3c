"""What may be said of a proposal, and by whom (spec 3.3.1).

A proposal itself needs no rule: it is relayed as any message is, and the fold remembers whose it is. A request that
fulfils one is an ordinary ``mcp/request`` that names it; whether somebody may make it is a matter of capabilities.
"""

from __future__ import annotations

from collections.abc import Callable

from mewstream.protocol import kinds
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import InvalidOperation, Unauthorized, ValidationFailed
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.stream_rules import require_capability


def _withdraw(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """All proposals that a withdrawal names must be the sender's, because clients may drop all of them."""
    named = _correlated(envelope)
    require_capability(ledger, sender, envelope)
    for id in named:
        proposer = ledger.state.proposals.proposers.get(id)
        if proposer is None:
            raise _unknown(ledger, id)
        if proposer != sender:
            raise Unauthorized(f"the proposal {id!r} is not yours: only its proposer withdraws it")
    ledger.accept(sender, envelope)


def _reject(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    """Any proposal may be rejected with the capability, and other messages may be named beside it."""
    named = _correlated(envelope)
    require_capability(ledger, sender, envelope)
    if not any(id in ledger.state.proposals.proposers for id in named):
        raise _unknown(ledger, named[0])
    ledger.accept(sender, envelope)


def _correlated(envelope: Envelope) -> list[str]:
    if not envelope.correlation_id:
        raise ValidationFailed(
            f"{envelope.kind} needs a correlation_id: the id of the proposal that it is about", field="correlation_id"
        )
    return envelope.correlation_id


def _unknown(ledger: Ledger, id: str) -> InvalidOperation:
    most = ledger.state.limits.proposals_per_participant
    return InvalidOperation(
        f"there is no proposal {id!r}: nobody made it, or more than {most} newer ones of its proposer came after it"
    )


PROPOSAL_RULES: dict[str, Callable[[Ledger, str, Envelope], None]] = {
    kinds.MCP_WITHDRAW: _withdraw,
    kinds.MCP_REJECT: _reject,
}
