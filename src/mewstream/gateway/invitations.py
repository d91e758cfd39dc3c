"""Invitations: the token of each invited participant, and the answer that goes to the inviter alone.

A token can be told again until the invited participant has joined; until then it is kept in memory. On disk there is
only its digest, so that after a restart a new token replaces the old one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mewstream.io.log_lines import event
from mewstream.protocol import kinds
from mewstream.protocol.decide import Decision
from mewstream.protocol.errors import AlreadyExists
from mewstream.protocol.identifiers import gateway_message_id
from mewstream.protocol.records import Invited, Refused
from mewstream.protocol.render import gateway_envelope
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import rfc3339

log = logging.getLogger("mewstream.gateway")


class Invitations:
    """The invitations of one space. ``mint`` makes a participant's token, which replaces any that it had; ``forget``
    makes its token invalid."""

    def __init__(
        self, state: SpaceState, mint: Callable[[str], str], forget: Callable[[str], None], connection_url: str
    ) -> None:
        self._state = state
        self._mint = mint
        self._forget = forget
        self._connection_url = connection_url
        self._tokens: dict[str, str] = {}
        """The tokens of participants that were invited in this run and have not joined yet."""

    def without_token(self, decision: Decision) -> Invited | None:
        """Make the tokens of the invitations in a decision, before these are recorded or acknowledged again. Returns
        the first invitation whose token could not be stored."""
        invited = [record for record in decision.written if isinstance(record, Invited)]
        if decision.repetition is not None:
            invited += [
                record
                for record in decision.repetition.answer.records
                if isinstance(record, Invited) and not self._has_joined(record)
            ]
        return next((record for record in invited if not self._has_token(record)), None)

    def _has_token(self, record: Invited) -> bool:
        if record.participant not in self._tokens:
            try:
                self._tokens[record.participant] = self._mint(record.participant)
            except OSError as error:
                log.error(
                    "the token of an invitation cannot be stored: %s",
                    error,
                    extra=event("invitation_not_stored", space=self._state.id),
                )
                return False
        return True

    def _has_joined(self, record: Invited) -> bool:
        first = self._state.first_joins.get(record.participant, 0)
        return first > record.seq or self._state.is_present(record.participant)

    def joined(self, participant: str) -> None:
        """A participant who has joined has its token, which is never told again."""
        self._tokens.pop(participant, None)

    def ended(self, participant: str) -> None:
        """An invitation was taken back, or has expired: its token is not valid any more."""
        self._tokens.pop(participant, None)
        try:
            self._forget(participant)
        except OSError as error:
            # It is not valid now, and a start drops it because the log says that the invitation has ended.
            log.error(
                "the token of an invitation that has ended cannot be removed from its file: %s",
                error,
                extra=event("invitation_not_removed", space=self._state.id),
            )

    def answer(self, record: Invited) -> dict[str, Any]:
        """The answer to the inviter. It holds the token, unless the invited participant has joined, so it must reach
        nobody else, no log and no record."""
        answer = {"status": "created", "participant_id": record.participant}
        if (token := self._tokens.get(record.participant)) is not None:
            answer["token"] = token
        if record.expires_at is not None:
            answer["expires_at"] = rfc3339(record.expires_at)
        return {**answer, "connection_url": self._connection_url}

    def acknowledgement(self, record: Invited) -> bytes:
        """``space/invite-ack`` for an invitation."""
        return self._acknowledge(record.by, self.answer(record), record, record.request_id)

    def refusal(self, record: Refused, number: str = "") -> bytes:
        """``space/invite-ack`` for an invitation that was refused (spec 3.6.6), beside the usual ``system/error``.
        ``number`` tells apart the answers to refusals that have no record of their own."""
        status = AlreadyExists.code if record.code == AlreadyExists.code else "error"
        answer = {"status": status, "error": record.code, "message": record.message}
        if (participant := record.details.get("participant_id")) is not None:
            answer["participant_id"] = participant
        return self._acknowledge(record.sender, answer, record, record.id, number)

    def _acknowledge(
        self, inviter: str, answer: dict[str, Any], record: Invited | Refused, request_id: str | None, number: str = ""
    ) -> bytes:
        return gateway_envelope(
            kinds.INVITE_ACK,
            answer,
            id=f"{gateway_message_id(self._state.epoch, record.seq)}-ack{number}",
            ts=record.ts,
            to=[inviter],
            correlation_id=request_id,
        )
