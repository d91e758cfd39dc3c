"""The rules about who may be in a space: invitations and their end, kicks and bans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mewstream.protocol import kinds
from mewstream.protocol.capabilities import is_privileged
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import (
    AlreadyExists,
    LimitExceeded,
    ParticipantNotFound,
    Unauthorized,
    ValidationFailed,
)
from mewstream.protocol.giving import pattern_list, patterns_of, require_held
from mewstream.protocol.identifiers import describe, flaw_in_participant_id, required_id
from mewstream.protocol.ledger import Ledger
from mewstream.protocol.records import Banned, Invited, Left, Unbanned, Uninvited
from mewstream.protocol.right_rules import require_present, revoke_on_leave
from mewstream.protocol.stream_rules import require_capability
from mewstream.protocol.times import SECOND, rfc3339

#: The longest time for which an invitation waits, or a ban lasts.
MAX_SECONDS = 10 * 365 * 86_400


def leave(ledger: Ledger, participant: str, reason: str, cause: int | None = None) -> None:
    left = ledger.write(Left, cause, participant=participant, reason=reason)
    revoke_on_leave(ledger, participant, reason, left.seq)


def banned(until: int) -> Unauthorized:
    """The error for whoever is banned."""
    return Unauthorized(f"you are banned from this space until {rfc3339(until)}", banned_until=rfc3339(until))


def access_timer_due(ledger: Ledger, what: str, participant: str) -> None:
    if what == "ban":
        ledger.write(Unbanned, participant=participant, by=kinds.GATEWAY)
    else:
        ledger.write(Uninvited, participant=participant, by=kinds.GATEWAY, reason="expired")


def _invite(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    invitee = required_id(payload, "participant_id", max_bytes=state.limits.id_bytes)
    if flaw := flaw_in_participant_id(invitee, max_bytes=state.limits.id_bytes):
        raise ValidationFailed(f"payload.participant_id {flaw}", field="participant_id")
    given = payload.get("capabilities", payload.get("initial_capabilities"))
    if given is not None:
        pattern_list(given)
    seconds = _seconds(payload, "expires_in")
    require_capability(ledger, sender, envelope)
    patterns = list(state.config.get("default_capabilities", []))
    if given is not None:
        patterns = patterns_of(given, state.limits).as_list()
        must_be_held = patterns if state.policies.invites == "held" else list(filter(is_privileged, patterns))
        require_held(state, sender, must_be_held, "you cannot give what you do not hold")
    if invitee in state.roster:
        raise AlreadyExists(f"{invitee!r} is a participant of this space already", participant_id=invitee)
    if len(state.invited) >= state.limits.invitations:
        raise LimitExceeded("too many invitations in this space", limit="invitations")
    accepted = ledger.accept(sender, envelope)
    ledger.write(
        Invited,
        accepted.seq,
        participant=invitee,
        capabilities=patterns,
        by=sender,
        request_id=accepted.id,
        expires_at=None if seconds is None else ledger.now + round(seconds * SECOND),
    )


def _uninvite(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    target = required_id(envelope.payload, "participant_id", max_bytes=ledger.state.limits.id_bytes)
    require_capability(ledger, sender, envelope)
    if target not in ledger.state.invited:
        raise ParticipantNotFound(f"{target!r} was not invited to this space", participant_id=target)
    accepted = ledger.accept(sender, envelope)
    ledger.write(Uninvited, accepted.seq, participant=target, by=sender, reason="withdrawn")
    if ledger.state.is_present(target):
        leave(ledger, target, "kicked", accepted.seq)


def _kick(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    state, payload = ledger.state, envelope.payload
    target = required_id(payload, "participant_id", max_bytes=state.limits.id_bytes)
    seconds = _seconds(payload, "ban")
    require_capability(ledger, sender, envelope)
    if seconds is None:
        require_present(state, target)
    elif target not in state.roster:
        raise ParticipantNotFound(f"{target!r} is not a participant of this space", participant_id=target)
    elif len(state.banned) >= state.limits.bans and target not in state.banned:
        raise LimitExceeded(f"{state.limits.bans} participants of this space are banned", limit="bans")
    accepted = ledger.accept(sender, envelope)
    if seconds is not None:
        until = ledger.now + round(seconds * SECOND)
        reason = payload.get("reason")
        ledger.write(
            Banned,
            accepted.seq,
            participant=target,
            until=until,
            by=sender,
            reason=reason if isinstance(reason, str) else None,
        )
    if state.is_present(target):
        leave(ledger, target, "kicked", accepted.seq)


def _unban(ledger: Ledger, sender: str, envelope: Envelope) -> None:
    target = required_id(envelope.payload, "participant_id", max_bytes=ledger.state.limits.id_bytes)
    require_capability(ledger, sender, envelope)
    if target not in ledger.state.banned:
        raise ParticipantNotFound(f"{target!r} is not banned from this space", participant_id=target)
    accepted = ledger.accept(sender, envelope)
    ledger.write(Unbanned, accepted.seq, participant=target, by=sender)


def _seconds(payload: Mapping[str, Any], key: str) -> float | None:
    """A duration in a payload, cut to :data:`MAX_SECONDS`."""
    value = payload.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValidationFailed(f"payload.{key} must be a positive number of seconds, got {describe(value)}", field=key)
    return float(min(value, MAX_SECONDS))


ACCESS_RULES = {
    kinds.INVITE: _invite,
    kinds.UNINVITE: _uninvite,
    kinds.KICK: _kick,
    kinds.UNBAN: _unban,
}
