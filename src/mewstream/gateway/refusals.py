"""Refusals of a space: recorded like everything else, or only counted and answered.

A refusal is only counted where its sender causes too many (:mod:`.refusal_flood`), and while the journal cannot be
written. Those are recorded later, as a sum.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from mewstream.gateway.broadcast import Broadcast
from mewstream.gateway.invitations import Invitations
from mewstream.gateway.membership import Membership
from mewstream.gateway.metrics import SpaceMetrics
from mewstream.gateway.refusal_flood import RefusalFloods, Treatment
from mewstream.protocol import commands, kinds
from mewstream.protocol.decide import Decision
from mewstream.protocol.errors import JournalUnavailable, PeerError
from mewstream.protocol.fold import gateway_message_id
from mewstream.protocol.records import Refused
from mewstream.protocol.render import unrecorded_refusal
from mewstream.protocol.state import SpaceState


def cannot_record() -> JournalUnavailable:
    return JournalUnavailable("the gateway cannot record at the moment: nothing was done, try again later")


class Refusals:
    """``record`` puts a sum of counted refusals into the log; it returns False where that is impossible now."""

    def __init__(
        self,
        state: SpaceState,
        *,
        loop: asyncio.AbstractEventLoop,
        members: Membership,
        broadcast: Broadcast,
        invitations: Invitations,
        metrics: SpaceMetrics,
        record: Callable[[commands.Refuse], bool],
    ) -> None:
        self._state = state
        self._members = members
        self._broadcast = broadcast
        self._invitations = invitations
        self._metrics = metrics
        self.floods = RefusalFloods(loop, record)
        self._numbers = itertools.count(1)

    def admit(self, decision: Decision) -> Decision:
        """Count the refusal in a decision. The decision that is returned is not to be recorded where its refusal came
        in a flood: then its sender has been answered, if at all, and nothing else is left to do."""
        last = decision.written[-1] if decision.written else None
        if not isinstance(last, Refused):
            return decision
        self._metrics.refused(last.code)
        if len(decision.written) > 1:
            return decision  # something else has happened, such as the end of a right
        treatment = self.floods.treat(last, version=self._rights_version(last))
        if treatment is Treatment.RECORDED:
            return decision
        last.seq = self._state.seq
        if treatment is Treatment.TOLD:
            self._answer(last)
        return Decision(decision.written, is_recorded=False, undecided=decision.undecided)

    def unavailable(self, command: commands.Command, now: int) -> Decision:
        """Refuse a command because the journal cannot be written. What does not come from a participant is left."""
        undecided = command.data[1:] if isinstance(command, commands.SendFrames) else ()
        match command:
            case commands.Send(sender=sender, envelope=envelope):
                kind, id, version = envelope.kind, envelope.id, None
            case commands.Refuse(sender=sender, kind=kind, id=id):
                version = None
            case commands.SendFrames(sender=sender):
                kind, id, version = "frame", None, 0
            case _:
                return Decision([], is_recorded=False)
        refused = self._count(sender, kind, cannot_record(), now, id=id, version=version, overtakes=True)
        return Decision([refused], is_recorded=False, undecided=undecided)

    def count(self, sender: str, kind: str, flaw: PeerError, now: int) -> None:
        """Count a refusal whose sender is answered elsewhere."""
        self._count(sender, kind, flaw, now, version=None, is_answered=True)

    def _count(
        self,
        sender: str,
        kind: str,
        flaw: PeerError,
        now: int,
        *,
        id: str | None = None,
        version: int | None,
        overtakes: bool = False,
        is_answered: bool = False,
    ) -> Refused:
        refused = Refused(
            self._state.seq,
            max(now, self._state.ts),
            None,
            sender=sender,
            kind=kind,
            code=flaw.code,
            message=flaw.message,
            http_status=flaw.http_status,
            details=flaw.details,
            id=id,
        )
        self._metrics.refused(flaw.code)
        treatment = self.floods.treat(refused, version=version, may_record=False)
        if treatment is Treatment.TOLD and not is_answered:
            self._answer(refused, overtakes=overtakes)
        return refused

    def _rights_version(self, refused: Refused) -> int | None:
        """The version of the rights on the stream that a refused frame was for, 0 where there is no such stream. None
        for anything but a frame for a stream: that is always answered."""
        if refused.kind != "frame" or refused.stream_id is None:
            return None
        stream = self._state.find_stream(refused.stream_id)
        return stream.version + 1 if stream is not None else 0

    # -- answers without a record -----------------------------------------------------------------

    def _answer(self, refused: Refused, *, overtakes: bool = False) -> None:
        member = self._members.get(refused.sender)
        if member is None:
            return
        bodies = [self.message(refused)]
        if refused.kind == kinds.INVITE:
            bodies.append(self._invitations.refusal(refused, f"-{next(self._numbers)}"))
        for body in bodies:
            self._broadcast.send_unrecorded(member, body, refused.seq, overtakes=overtakes)

    def message(self, refused: Refused) -> bytes:
        """``system/error`` with an id of its own, because the id of a record belongs to that record's message."""
        id = f"{gateway_message_id(self._state.epoch, refused.seq)}-refused-{next(self._numbers)}"
        return unrecorded_refusal(refused, id=id)
