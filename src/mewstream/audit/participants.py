"""What follows from envelopes about participants: capabilities, invitations, kicks and bans, pauses."""

from __future__ import annotations

from typing import Any

from mewstream.audit.capabilities import included, is_ordinary
from mewstream.audit.case import WEEK, Case, is_name
from mewstream.audit.records import Expected, need, rule
from mewstream.audit.state import SECOND
from mewstream.protocol import kinds


@rule("Giving and taking capabilities", kinds.CAPABILITY_GRANT)
def capability_grant(case: Case) -> list[Expected]:
    """Capabilities granted that the sender does not hold, that were not asked for, or to somebody who is absent."""
    recipient, grants = case.name("recipient"), case.space.grants
    patterns = case.given_patterns(case.payload.get("capabilities"))
    case.capability()
    case.check_patterns(patterns, case.space.patterns(recipient))
    denial = any(each["kind"].startswith("!") for each in patterns)
    need(not denial, "invalid_operation", "a denial cannot be granted")
    case.hold(patterns)
    need(not any(case.id in each for each in grants.values()), "already_exists", "there is a grant with this id")
    case.room(sum(map(len, grants.values())) + 1, "capability_grants")
    case.present(recipient)
    given = {"grant_id": case.id, "participant": recipient, "capabilities": patterns, "by": case.sender}
    return [Expected("capabilities-granted", given)]


@rule("Giving and taking capabilities", kinds.CAPABILITY_REVOKE)
def capability_revoke(case: Case) -> list[Expected]:
    """Capabilities revoked that the sender may not take, or other ones than were asked for."""
    by_id, grants = case.payload.get("grant_id") is not None, case.space.grants
    recipient = case.name("recipient") if not by_id or case.payload.get("recipient") is not None else None
    remaining: dict[str, list[Any]] = {}
    if by_id:
        grant_id = case.name("grant_id")
        case.capability()
        holders = [who for who, granted in grants.items() if grant_id in granted]
        is_known = case.space.has(bool(holders)) and recipient in (None, holders[0])
        need(is_known, "invalid_operation", "there is no such grant")
        recipient, remaining[grant_id] = holders[0], []
    else:
        revoked = case.given_patterns(case.payload.get("capabilities"))
        case.capability()
        case.check_patterns(revoked, [])
        for id, granted in grants.get(recipient or "", {}).items():
            kept = [each for each in granted if not included(each, revoked)]
            if len(kept) < len(granted):
                remaining[id] = kept
    for id, kept in remaining.items():
        if case.sender not in (recipient, case.space.granters.get(id)):
            case.hold([each for each in grants[recipient or ""][id] if each not in kept])
    return [Expected("capabilities-revoked", {"participant": recipient, "remaining": remaining, "by": case.sender})]


@rule("Giving and taking capabilities", kinds.INVITE)
def invite(case: Case) -> list[Expected]:
    """Somebody invited with capabilities that the inviter may not give or did not name, or under a
    name that is taken."""
    invitee, given = case.name("participant_id"), case.payload.get("capabilities")
    given = case.payload.get("initial_capabilities") if "capabilities" not in case.payload else given
    is_possible = is_name(invitee) and not any(part in invitee for part in ("/", "\\", ".."))
    is_possible = is_possible and invitee != "gateway" and not invitee.startswith("system:")
    need(is_possible, "validation_error", "nobody can have that name")
    patterns, seconds = (case.space.config or {}).get("default_capabilities", []), case.seconds("expires_in")
    if given is not None:
        patterns = case.given_patterns(given)
    case.capability()
    if given is not None:
        case.check_patterns(patterns, [])
        held = case.space.setting("policies", "invites") == "held"
        case.hold([each for each in patterns if held or not is_ordinary(each)])
    need(invitee not in case.space.roster, "already_exists", "the name is taken")
    case.space.has(False)
    case.room(len(case.space.invited) + 1, "invitations")
    invited = {"participant": invitee, "capabilities": patterns, "by": case.sender, "request_id": case.id}
    return [Expected("invited", {"expires_at": _after(case, seconds), **invited})]


def _after(case: Case, seconds: float | None) -> int | None:
    """The time after so many seconds, which are a week at most."""
    return None if seconds is None else case.ts + round(min(seconds, WEEK) * SECOND)


@rule("Who is in the space", kinds.KICK)
def kick(case: Case) -> list[Expected]:
    """Somebody kicked or banned by a participant that may not, or who was not there, or who did not leave."""
    target, seconds, reason = case.name("participant_id"), case.seconds("ban"), case.payload.get("reason")
    case.capability()
    if seconds is None:
        case.present(target)
        return _leaves(case, target)
    need(case.space.has(target in case.space.roster), "participant_not_found", f"{target} is no participant")
    case.room(len(case.space.banned | {target: 0}), "bans")
    told = {"until": _after(case, seconds), "reason": reason if isinstance(reason, str) else None}
    return [Expected("banned", {"participant": target, "by": case.sender, **told}), *_leaves(case, target)]


def _leaves(case: Case, target: str) -> list[Expected]:
    return [Expected("left", {"participant": target, "reason": "kicked"})] if case.space.is_present(target) else []


@rule("Who is in the space", kinds.UNINVITE)
def uninvite(case: Case) -> list[Expected]:
    """An invitation taken back by a participant that may not, or of one who was not invited, or who did not leave."""
    target = case.name("participant_id")
    case.capability()
    need(case.space.has(target in case.space.invited), "participant_not_found", f"{target} was not invited")
    told = {"participant": target, "by": case.sender, "reason": "withdrawn"}
    return [Expected("uninvited", told), *_leaves(case, target)]


@rule("Who is in the space", kinds.UNBAN)
def unban(case: Case) -> list[Expected]:
    """A ban ended by a participant that may not, or of one who was not banned."""
    target = case.name("participant_id")
    case.capability()
    need(case.space.has(target in case.space.banned), "participant_not_found", f"{target} is not banned")
    return [Expected("unbanned", {"participant": target, "by": case.sender})]


def _targets(case: Case) -> list[str]:
    targets = case.field("to")
    if not targets and case.kind == kinds.RESUME and case.space.is_present(case.sender):
        targets = [case.sender]
    need(bool(targets), "validation_error", "it is addressed to nobody")
    case.capability()
    for target in targets:
        case.present(target)
    return targets


@rule("Paused and shut down", kinds.PAUSE)
def pause(case: Case) -> list[Expected]:
    """A pause by a participant that may not, of others than were named, or for another time."""
    seconds = case.payload.get("timeout_seconds")
    is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
    need(seconds is None or is_time, "validation_error", "timeout_seconds is no time")
    until = None if seconds is None else case.ts + round(min(seconds, WEEK) * SECOND)
    paused = {"until": until, "by": case.sender, "request_id": case.id}
    return [Expected("paused", {"participant": each, **paused}) for each in _targets(case)]


@rule("Paused and shut down", kinds.RESUME)
def resume(case: Case) -> list[Expected]:
    """A pause ended by a participant that may not, or of others than were named, or not ended."""
    targets = [each for each in _targets(case) if each in case.space.paused]
    return [Expected("unpaused", {"participant": each, "by": case.sender}) for each in targets]


@rule("Paused and shut down", kinds.SHUTDOWN)
def shutdown(case: Case) -> list[Expected]:
    """A participant shut down by one that may not, or others than were named."""
    return [Expected("shut-down", {"participant": each, "by": case.sender}) for each in _targets(case)]
