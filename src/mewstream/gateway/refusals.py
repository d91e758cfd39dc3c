"""Refusals of a space: recorded like everything else, or only counted and answered.

Refusals are only counted if their sender causes too many (:mod:`.refusal_flood`), and while the journal cannot be
written. They are recorded later, as a sum.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from mewstream.gateway.broadcast import Broadcast
from mewstream.gateway.invitations import Invitations
from mewstream.gateway.membership import Membership
from mewstream.gateway.metrics import SpaceMetrics
from mewstream.gateway.refusal_flood import MAX_IDS, RefusalFloods, Treatment
from mewstream.protocol import commands, kinds
from mewstream.protocol.decide import Decision
from mewstream.protocol.errors import JournalUnavailable, PeerError
from mewstream.protocol.identifiers import gateway_message_id
from mewstream.protocol.records import Refused
from mewstream.protocol.render import render
from mewstream.protocol.state import SpaceState

#: How many refusals are kept for those who watch the space.
RECENT = 500


def cannot_record() -> JournalUnavailable:
    return JournalUnavailable("the gateway cannot record at the moment: nothing was done, try again later")


class Refusals:
    """The refusals of one space. ``record`` records a sum of them, or returns False if that is impossible now."""

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
        self.recent: deque[Refused] = deque(maxlen=RECENT)
        """The newest that were recorded, one by one or as a sum."""
        self._numbers = itertools.count(1)

    def settle(self, decision: Decision) -> Decision:
        """Count the refusal in a decision, if there is one. If it is part of a flood, the returned decision is not to
        be recorded, its sender was answered if necessary, and nothing else is left to do."""
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
        if treatment is Treatment.ANSWERED:
            self._answer(last)
        elif self.floods.ids_waiting(last.sender) >= MAX_IDS:
            self.tell_sums(last.sender)
        return Decision(decision.written, is_recorded=False, undecided=decision.undecided)

    def unavailable(self, command: commands.Command, now: int) -> Decision:
        """Refuse a command of a participant because the journal cannot be written. Others are dropped silently."""
        undecided: Sequence[bytes] = ()
        version = None
        match command:
            case commands.Send(sender=sender, envelope=envelope):
                kind, id = envelope.kind, envelope.id
            case commands.Refuse(sender=sender, kind=kind, id=id):
                pass
            case commands.SendFrames(sender=sender, data=data, id=id):
                kind, version, undecided = "frame", 0, data[1:]
            case _:
                return Decision([], is_recorded=False)
        refused = self._refused(sender, kind, cannot_record(), now, id=id)
        if self.floods.treat(refused, version=version, may_record=False) is Treatment.ANSWERED:
            self._answer(refused, overtakes=True)
        elif self.floods.ids_waiting(sender) >= MAX_IDS:
            self.tell_sums(sender, overtakes=True)
        return Decision([refused], is_recorded=False, undecided=undecided)

    def count(self, sender: str, kind: str, flaw: PeerError, now: int) -> None:
        """Count a refusal whose sender is answered elsewhere."""
        self.floods.treat(self._refused(sender, kind, flaw, now), may_record=False)

    def _refused(self, sender: str, kind: str, flaw: PeerError, now: int, *, id: str | None = None) -> Refused:
        """A refusal that is not recorded by itself, so that it has the number of the newest record."""
        self._metrics.refused(flaw.code)
        ts = max(now, self._state.ts)
        return Refused(self._state.seq, ts, None, sender=sender, kind=kind, id=id, **flaw.fields)

    def _rights_version(self, refused: Refused) -> int | None:
        """The version of the rights on the stream of a refused frame, or 0 if there is no such stream. None for any
        other message, which is always answered."""
        if refused.kind != "frame" or refused.stream_id is None:
            return None
        stream = self._state.find_stream(refused.stream_id)
        return stream.version + 1 if stream is not None else 0

    # -- answers without a record -----------------------------------------------------------------

    def tell_sums(self, participant: str, *, overtakes: bool = False) -> None:
        """Tell a participant of the refused frames with ids that it was not told of."""
        for refuse in self.floods.take_untold(participant):
            fields = msgspec.structs.asdict(refuse) | {"excerpt": ""}
            self._answer(Refused(self._state.seq, self._state.ts, None, **fields), overtakes=overtakes)

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
        body = render(self._state.id, self._state.epoch, refused, id=id)
        assert body is not None
        return body
