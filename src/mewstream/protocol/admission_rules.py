"""Admissions: participants that a signed token names, and what it gives them until it expires (decision 30).

The gateway checks the token, and says here what is in it. From then on the end of the token is a time of the log, like
the end of a conditional right: whoever is still present then leaves.
"""

from __future__ import annotations

from mewstream.protocol import commands, kinds
from mewstream.protocol.errors import LimitExceeded
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.records import AdmissionEnded, Admitted
from mewstream.protocol.refusals import write_refusal

EXPIRED = "expired"
REPLACED = "replaced"
#: The reason of a leave at the end of a token.
TOKEN_EXPIRED = "token_expired"  # noqa: S105


def admit(ledger: Ledger, command: commands.Admit) -> None:
    state, id = ledger.state, command.participant
    known = state.admitted.get(id)
    if known is None and len(state.admitted) >= state.limits.admissions:
        flaw = LimitExceeded(f"{state.limits.admissions} signed tokens are in use in this space", limit="admissions")
        write_refusal(ledger, flaw, sender=id, kind=kinds.JOIN)
        return
    capabilities = command.capabilities
    if capabilities is None:
        otherwise = state.roster_without_admission(id)
        capabilities = state.config.get("default_capabilities", []) if otherwise is None else otherwise
    if known is None or (known.capabilities, known.until) != (capabilities, command.until):
        ledger.write(Admitted, participant=id, capabilities=capabilities, until=command.until, issuer=command.issuer)


def end_admission(ledger: Ledger, participant: str, reason: str) -> AdmissionEnded:
    return ledger.write(AdmissionEnded, participant=participant, reason=reason)
