"""The chains of delegation in a stream's description, as changes of rights make them."""

from __future__ import annotations

from typing import Any

from mewstream.client import untrusted

Delegations = list[dict[str, Any]]


def changed(known: Delegations, participant: str, told: dict[str, Any]) -> Delegations:
    """After ``stream/write-granted`` or ``stream/write-revoked`` about a participant."""
    writers = untrusted.texts(told.get("authorized_writers"))
    others = [each for each in known if each.get("participant_id") != participant]
    depth = untrusted.number(untrusted.as_object(told.get("delegate")).get("depth")) or 0
    if participant in writers and (depth or told.get("parent") is not None):
        place = next((at for at, each in enumerate(known) if each.get("participant_id") == participant), len(known))
        others.insert(place, {"participant_id": participant, "by": told.get("by"), "depth": depth})
    return _narrowed([each for each in others if each.get("participant_id") in writers], participant)


def transferred(known: Delegations, new_owner: str) -> Delegations:
    """After a transfer: the new owner needs no delegation, and those at the end of a chain hold their right from it."""
    return [
        each
        for each in known
        if each.get("participant_id") != new_owner and (each.get("by") != new_owner or each.get("depth"))
    ]


def _narrowed(known: Delegations, participant: str) -> Delegations:
    """Nobody has more depth than one less than who it has the right from."""
    depths = {str(each.get("participant_id")): untrusted.number(each.get("depth")) or 0 for each in known}
    pending = [participant]
    while pending:
        above = pending.pop()
        for each in known:
            name = str(each.get("participant_id"))
            if each.get("by") == above and name != above and depths[name] >= depths.get(above, depths[name] + 1):
                depths[name] = max(0, depths[above] - 1)
                pending.append(name)
    return [{**each, "depth": depths[str(each.get("participant_id"))]} for each in known]
