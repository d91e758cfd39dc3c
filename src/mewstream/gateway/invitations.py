"""Invitations: a token for each, which is told to the inviter alone, and what the inviter is answered.

A token can be told again as long as the one whom it is for has not come: until then it is kept in memory. It is on no
disk but as a digest, so that after a restart a new one takes the place of the old.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mewstream.protocol.errors import AlreadyExists
from mewstream.protocol.records import Invited, Refused
from mewstream.protocol.state import SpaceState

log = logging.getLogger("mewstream.gateway")


class Invitations:
    """Of one space. ``mint`` makes the token of a participant, instead of any that it had."""

    def __init__(self, mint: Callable[[str], str], connection_url: str) -> None:
        self._mint = mint
        self._connection_url = connection_url
        self._tokens: dict[str, str] = {}
        """Of those who were invited in this run and have not come yet: no more than there may be invitations."""

    def has_token(self, record: Invited) -> bool:
        """Make sure that there is a token to tell, before an invitation is a fact or is told again. False: it cannot be
        kept on the disk, and nothing was done."""
        if record.participant in self._tokens:
            return True
        try:
            self._tokens[record.participant] = self._mint(record.participant)
        except OSError as error:
            log.error("the token of an invitation cannot be kept: %s", error)
            return False
        return True

    def taken_up(self, participant: str) -> None:
        """Somebody has come, and so has its token: it is not told again."""
        self._tokens.pop(participant, None)

    def accepted(self, record: Invited) -> dict[str, Any]:
        """The answer to the inviter, with the token unless the one who was invited has come already."""
        answer = {"status": "created", "participant_id": record.participant}
        if (token := self._tokens.get(record.participant)) is not None:
            answer["token"] = token
        return {**answer, "connection_url": self._connection_url}


def refused(record: Refused) -> dict[str, Any]:
    """The answer to the inviter where there is no invitation (spec 3.6.6), beside the error that everyone knows."""
    status = AlreadyExists.code if record.code == AlreadyExists.code else "error"
    answer = {"status": status, "error": record.code, "message": record.message}
    if (participant := record.details.get("participant_id")) is not None:
        answer["participant_id"] = participant
    return answer


def has_come(state: SpaceState, record: Invited) -> bool:
    """Whether the one who was invited has made use of it."""
    came = state.first_joins.get(record.participant, 0)
    return came > record.seq or state.is_present(record.participant)
