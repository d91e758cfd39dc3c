"""One space of the gateway: decide -> number -> journal -> fan out, in order, one at a time.

Everything that happens in a space goes through :meth:`Space.handle` or :meth:`Space.frame`, from
whichever transport it came: the socket and HTTP share one code path.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mewstream.gateway import invitations
from mewstream.gateway.clock import JUMP, MachineClock, SpaceClock
from mewstream.gateway.closing import CloseReason
from mewstream.gateway.config import SpaceConfig
from mewstream.gateway.fair_queue import FairQueue
from mewstream.gateway.fanout import FRAMED, Audience, Endpoint, FrameParcel, Outbox, Parcel
from mewstream.gateway.history import SpaceHistory
from mewstream.gateway.history_reads import HistoryReads
from mewstream.gateway.invitations import Invitations
from mewstream.gateway.join_rate import JoinRate
from mewstream.gateway.joining import JoinRefused, Resume
from mewstream.gateway.lately import LatelySeen
from mewstream.gateway.listing import answer_question
from mewstream.gateway.metrics import SpaceMetrics
from mewstream.gateway.outbound import Drop
from mewstream.gateway.past import Past
from mewstream.gateway.recorder import Recorder
from mewstream.gateway.refusal_flood import RefusalFloods, Treatment
from mewstream.gateway.resume import CannotResume, Epochs, Missed, Viewer, tell_again
from mewstream.gateway.welcomes import Welcomes
from mewstream.gateway.wsframes import header
from mewstream.protocol import commands, frames, kinds
from mewstream.protocol.decide import Decision, Repetition, decide
from mewstream.protocol.envelope import Envelope, parse_envelope
from mewstream.protocol.errors import InvalidRequest, JournalUnavailable, LimitExceeded, PeerError
from mewstream.protocol.fold import apply, apply_block, gateway_message_id
from mewstream.protocol.frame_rules import decide_frame, decide_run
from mewstream.protocol.records import (
    CapabilitiesGranted,
    CapabilitiesRevoked,
    EnvelopeAccepted,
    Frame,
    Invited,
    Joined,
    Left,
    Record,
    Refused,
    StreamEnded,
)
from mewstream.protocol.render import (
    gateway_envelope,
    private_to,
    render,
    unrecorded_refusal,
    untold_of,
    visible_to,
    with_seq,
)
from mewstream.protocol.state import SpaceState, Stream
from mewstream.protocol.times import SECOND, rfc3339

log = logging.getLogger("mewstream.gateway")

#: Seconds for which a timer of the event loop is set at most: what is due in years is looked at again meanwhile.
LONGEST_SLEEP = 3600.0
#: Messages of the past that are handed over as one, so that many small ones cost little.
HISTORY_CHUNK = 256
#: Seconds for which an answer over HTTP waits for a journal that cannot be written.
COMMIT_TIMEOUT = 5.0
#: Connections that fell behind within so many seconds count together.
SLOW_SECONDS = 1.0
#: Fewer than these are never many, unless they are most of the space.
FEW = 3


class Member(Endpoint, Protocol):
    """An endpoint that a participant has joined by."""

    participant: str
    session: int
    transport_name: str
    is_listening: bool
    """What it is sent goes somewhere."""
    is_reconnect: bool
    """It says that it comes back: whoever it replaces was its own older connection."""

    def ask_for_positions(self) -> None: ...

    def close(self, reason: CloseReason, text: str | None = None) -> None: ...

    def hold_reading(self, why: object) -> None: ...

    def release_reading(self, why: object) -> None: ...


class Space:
    def __init__(
        self,
        config: SpaceConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        recorder: Recorder,
        recovered: SpaceState | None,
        metrics: SpaceMetrics,
        history: SpaceHistory,
        reads: HistoryReads,
        mint_token: Callable[[str], str],
        connection_url: str,
        work: FairQueue,
        clock: MachineClock,
    ) -> None:
        self.config = config
        self.id = config.id
        self.state = recovered or SpaceState(config.id)
        self.members: dict[str, Member] = {}
        self.metrics = metrics
        self.clock = SpaceClock(clock, self.state.ts)
        self._loop = loop
        self._recorder = recorder
        self._past = Past(config.id, recorder, reads)
        self._history_log = history
        self._invitations = Invitations(mint_token, connection_url)
        self._outbox = Outbox(loop, config.delivery.flush_bytes, lambda done: recorder.commit(self.id, done))
        self._welcomes = Welcomes(self.state)
        self._everyone = Audience()
        self._audiences: dict[str, tuple[int, Audience, Audience]] = {}
        """Of streams with a reader set: (version, everyone it was made from, the readers)."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: int | None = None
        self._by_http = False
        self._work = work
        self._floods = RefusalFloods(loop, self._record_sum)
        recorder.on_recovery(self._floods.sum_up_all)
        self._unrecorded = itertools.count(1)
        self._join_rate = JoinRate(loop, config.limits.joins_per_second)
        self.caused_bytes = 0
        """What was told because of the last command, beyond the message that it was."""
        self._slow = LatelySeen(SLOW_SECONDS)
        self.handle(commands.Start(recorder.epoch, config.public()))
        if self.clock.ahead >= JUMP:
            log.warning(
                "the newest record of %s is %.1f seconds ahead of the clock", self.id, self.clock.ahead / SECOND
            )
            self.handle(commands.ClockJump(-self.clock.ahead, 0, self.clock.ahead))
        # Whoever was here when the last run ended may come back for a while, with all its rights.
        for participant in list(self.state.participants):
            self.handle(commands.Suspend(participant, "restart"))

    # -- what happens -----------------------------------------------------------------------------

    def handle(self, command: commands.Command) -> Decision:
        """Carry out one command: what was due before it first, then the command."""
        if self._recorder.failing and not isinstance(command, commands.Disconnect | commands.Suspend):
            return self._unavailable(command)
        if not isinstance(command, commands.Start):  # nothing of a run comes before its start
            self._run_due()
        self.caused_bytes = 0
        now = self.clock.now()
        decision = decide(self.state, now, command)
        if len(decision.records) == 1 and isinstance(decision.records[0], Refused):
            return self._refused(decision.records[0])
        for record in self._invitations_of(decision):
            if not self._invitations.has_token(record):
                flaw = _cannot_record()
                flaw.envelope_id = record.request_id
                return self.refuse(record.by, kinds.INVITE, flaw)
        self._commit(decision.records)
        if decision.repetition is not None:
            self._answer_again(decision.repetition)
        self._set_timer()
        return decision

    def join(self, member: Member, missed: Missed | CannotResume | None = None) -> JoinRefused | None:
        """Let a connection in. Its welcome is the first thing it gets, then what it has missed.
        The answer is why it was not let in, or None."""
        if self._recorder.failing:
            return JoinRefused(_cannot_record(), CloseReason.JOURNAL_UNAVAILABLE)
        self._run_due()
        decision = decide(
            self.state, self.clock.now(), commands.Join(member.participant, member.transport_name, member.is_reconnect)
        )
        if isinstance(decision.records[0], Refused):
            refused = decision.records[0]
            self._refused(refused)
            limit = LimitExceeded(refused.message, limit="participants_per_space")
            return JoinRefused(limit, CloseReason.SPACE_FULL)
        self._commit(decision.records, attach=member, missed=missed)
        self._set_timer()
        return None

    def check_joins(self, participant: str) -> None:
        """Raises :class:`JoinRefused` for a participant that joins too often."""
        try:
            self._join_rate.check(participant)
        except LimitExceeded as flaw:
            refuse = commands.Refuse(participant, kinds.JOIN, flaw.code, flaw.message, flaw.http_status, flaw.details)
            (refused,) = decide(self.state, self.clock.now(), refuse).records
            assert isinstance(refused, Refused)
            self.metrics.refused(refused.code)
            self._floods.treat(refused, may_record=False)
            raise JoinRefused(flaw, CloseReason.JOINS_TOO_OFTEN) from None

    def leave(self, member: Member, *, heir: Member | None = None) -> None:
        """A connection is gone. One that was replaced meanwhile takes nothing with it; where there
        is an heir, the participant stays by that."""
        if self.members.get(member.participant) is member:
            self._floods.finish(member.participant)
            self._detach(member)
            if heir is None or self.join(heir) is not None:
                self.handle(commands.Disconnect(member.participant, member.session))

    def suspend(self, member: Member, reason: str) -> None:
        """The gateway goes away: the participant keeps its rights for a while."""
        if self.members.get(member.participant) is member:
            self._floods.finish(member.participant)
            self._detach(member)
            self.handle(commands.Suspend(member.participant, reason))

    def post(self, sender: str, data: bytes) -> Decision:
        """An envelope that came by HTTP."""
        self._by_http = True
        try:
            envelope = parse_envelope(data, max_id_bytes=self.config.limits.id_bytes)
            return self.envelope(sender, envelope)
        except PeerError as flaw:
            return self.refuse(sender, "", flaw, data)
        finally:
            self._by_http = False

    def envelope(self, sender: str, envelope: Envelope) -> Decision:
        if envelope.kind not in kinds.QUESTIONS:
            return self.handle(commands.Send(sender, envelope))
        try:
            self._answer_question(sender, envelope)
        except PeerError as flaw:
            flaw.envelope_id = envelope.id
            return self.refuse(sender, envelope.kind, flaw)
        return Decision([], is_recorded=False)

    def _answer_question(self, sender: str, envelope: Envelope) -> None:
        """To the asker alone, in order with all that it is told: it describes the state at this very place."""
        member = self.members.get(sender)
        if member is None or self._by_http:
            raise InvalidRequest(f"{envelope.kind} is for sockets: use GET /streams or GET /participants")
        body = answer_question(
            self.state,
            sender,
            envelope,
            describe_stream=self._welcomes.stream,
            id=f"{gateway_message_id(self.state.epoch, self.state.seq)}-listed-{next(self._unrecorded)}",
        )
        self.caused_bytes = len(body)
        self._send_to(member, body, self.state.seq)

    def frame(self, member: Member, message: bytes, opcode: int) -> None:
        """A raw frame from a connection: the hot path."""
        try:
            reference, start = frames.split_frame(message, max_id_bytes=self.config.limits.id_bytes)
        except PeerError as flaw:
            self.refuse(member.participant, "frame", flaw, message)
            return
        if self._recorder.failing:
            self._unavailable(commands.SendFrame(member.participant, reference, b"", opcode))
            return
        now = self.clock.now()
        if self._timer_due is not None and now >= self._timer_due:
            self._run_due()
        records = decide_frame(self.state, now, member.participant, reference, message[start:], opcode)
        if len(records) == 1 and type(records[0]) is Frame:
            record = records[0]
            self._record(record)
            self._tell_frame(record, self.state.streams[record.stream_id])
            if record.format_id is not None:
                self._work.has_time()  # it may have been checked against a schema, which takes a while
            return
        self._work.has_time()
        last = records[-1]
        if len(records) == 1 and isinstance(last, Refused):
            stream = self.state.find_stream(reference)
            self._refused(last, version=stream.version + 1 if stream else 0)
            return
        if isinstance(last, Refused):
            self.metrics.refused(last.code)
        self._commit(records)
        self._set_timer()

    def frames(self, member: Member, head: bytes, messages: Sequence[bytes], opcode: int) -> Sequence[bytes]:
        """Raw frames that came in one piece from a connection, all with the same ``head``, ``#<stream_id>#``. The
        answer is what is left of them, where the time of this turn is over."""
        start = len(head)
        block = None
        if len(messages) > 1 and not self._recorder.failing:
            now = self.clock.now()
            if self._timer_due is not None and now >= self._timer_due:
                self._run_due()
            data = [message[start:] for message in messages]
            reference = head[1:-1].decode(errors="surrogateescape")
            block = decide_run(self.state, now, member.participant, reference, data, opcode)
        if block is None:
            for place, message in enumerate(messages):
                if self._work.is_over:
                    return messages[place:]
                if self.members.get(member.participant) is member:
                    self.frame(member, message, opcode)
            return ()
        size = sum(map(len, messages))
        data_bytes = size - len(messages) * start
        self._check_next(block.seq)
        self._recorder.extend(self.id, block, data_bytes)
        self._past.extend(block, data_bytes)
        apply_block(self.state, block)
        self.metrics.frame_block(len(block), data_bytes, block.recipients)
        stream = self.state.streams[block.stream_id]
        audience = self._audience_of(stream)
        if audience:
            if reference != stream.id:  # it was named by its alias
                messages = [frames.frame(stream.id, each) for each in data]
            self._outbox.add(FrameParcel(audience, block, messages, size, stream.policy.on_slow))
        return ()

    def refuse(self, sender: str, kind: str, flaw: PeerError, data: bytes = b"") -> Decision:
        """A message that did not become a command."""
        return self.handle(
            commands.Refuse(
                sender=sender,
                kind=kind,
                code=flaw.code,
                message=flaw.message,
                http_status=flaw.http_status,
                details=flaw.details,
                id=flaw.envelope_id,
                excerpt=data,
            )
        )

    def _refused(self, refused: Refused, *, version: int | None = None) -> Decision:
        """A refusal that changes nothing: recorded, or counted where there are many."""
        self.metrics.refused(refused.code)
        treatment = self._floods.treat(refused, version=version)
        if treatment is Treatment.RECORDED:
            self._commit([refused])
            self._set_timer()
            return Decision([refused])
        refused.seq = self.state.seq
        member = self.members.get(refused.sender)
        if treatment is Treatment.TOLD and member is not None:
            for body in self._unrecorded_answer(refused):
                self._outbox.add(Parcel(Audience((member,)), frames.TEXT, body, None, refused.seq))
        return Decision([refused], is_recorded=False)

    def _unrecorded_answer(self, refused: Refused) -> list[bytes]:
        """What the sender of something is told, where that is not recorded by itself."""
        told = [self.unrecorded_refusal(refused)]
        if refused.kind == kinds.INVITE:
            told.append(self._refused_ack(refused, f"-{next(self._unrecorded)}"))
        return told

    def unrecorded_refusal(self, refused: Refused) -> bytes:
        """Under an id of its own: that of a record belongs to what the record tells."""
        id = f"{gateway_message_id(self.state.epoch, refused.seq)}-refused-{next(self._unrecorded)}"
        return unrecorded_refusal(refused, id=id)

    def _record_sum(self, refuse: commands.Refuse) -> bool:
        """Refusals that were counted, as one record; False while nothing can be recorded."""
        if self._recorder.failing:
            return False
        self._run_due()
        self._commit(decide(self.state, self.clock.now(), refuse).records)
        self._set_timer()
        return True

    def report_drops(self, participant: str, drops: dict[str, Drop]) -> None:
        """Frames that a slow reader did not get: a record, a metric, and a notice to that reader."""
        if self._recorder.failing:
            return  # they stay counted, and are reported when the journal is back
        counted = dict(drops)
        drops.clear()  # more may be dropped while these are told
        for stream_id, drop in counted.items():
            self.metrics.dropped(drop.count)
            self.handle(
                commands.ReportDrop(participant, stream_id, drop.count, drop.first_seq, drop.last_seq, drop.policy)
            )

    def then(self, action: Callable[[], None]) -> None:
        """Do something when all that was told before has been handed over."""
        self._outbox.then(action)

    def when_recorded(self, action: Callable[[], None]) -> None:
        """The same, and not before everything that has happened so far is recorded."""
        self._outbox.when_recorded(action)

    def stop(self) -> None:
        if left := self._floods.finish_all():
            log.error("%s: %d refusals could not be recorded", self.id, left)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._outbox.flush()

    async def committed(self, decision: Decision) -> bool:
        """Wait until a decision is as safe as was asked for. False: the journal cannot be written, and
        it is not known when it can."""
        if not decision.is_recorded:
            return True  # nothing was done, and that needs no record
        done: asyncio.Future[None] = self._loop.create_future()

        def committed() -> None:
            if not done.done():
                done.set_result(None)

        self._recorder.commit(self.id, committed)
        if done.done():
            return True
        try:
            await asyncio.wait_for(done, COMMIT_TIMEOUT)
        except TimeoutError:
            return False
        return True

    def _unavailable(self, command: commands.Command) -> Decision:
        """The journal cannot be written, so nothing may happen. The refusal is counted, and recorded in a sum later."""
        if not isinstance(command, commands.Send | commands.SendFrame | commands.Refuse):
            return Decision([])
        flaw = _cannot_record()
        envelope = command.envelope if isinstance(command, commands.Send) else None
        id = command.id if isinstance(command, commands.Refuse) else envelope.id if envelope is not None else None
        kind = envelope.kind if envelope is not None else "frame"
        if isinstance(command, commands.Refuse):
            kind = command.kind
        refused = Refused(
            self.state.seq,
            self.clock.now(),
            None,
            sender=command.sender,
            kind=kind,
            code=flaw.code,
            message=flaw.message,
            http_status=flaw.http_status,
            id=id,
        )
        self.metrics.refused(flaw.code)
        member = self.members.get(command.sender)
        treatment = self._floods.treat(
            refused, version=0 if isinstance(command, commands.SendFrame) else None, may_record=False
        )
        if member is not None and treatment is Treatment.TOLD:
            for body in self._unrecorded_answer(refused):
                self._send_unrecorded(member, body, refused.seq)
        return Decision([refused], is_recorded=False)

    def _send_unrecorded(self, member: Member, body: bytes, seq: int) -> None:
        """Past the outbox, which waits for the journal."""
        parcel = Parcel(Audience((member,)), frames.TEXT, body, None, seq)
        member.push(b"".join(parcel.pieces(False)), [parcel])

    # -- reading ----------------------------------------------------------------------------------

    async def missed(self, participant: str, resume: Resume, is_wanted: Callable[[], bool]) -> Missed | CannotResume:
        """What a participant has missed since a position."""
        return await self._past.missed(self.state, participant, resume, is_wanted)

    async def messages_since(self, participant: str, after: int, limit: int) -> tuple[list[bytes], int]:
        """What a participant would have got since a position, oldest first, and where that ends.
        Nothing is shown that is not recorded yet."""
        recorded = not self._recorder.failing and await self.committed(Decision([]))
        return await self._past.messages_since(self.state, participant, after, limit, from_memory=recorded)

    async def position_at(self, participant: str, micros: int) -> int:
        """The last position before a time, for a participant that asks."""
        return await self._past.position_at(participant, micros)

    # -- committing -------------------------------------------------------------------------------

    def _commit(
        self, records: list[Record], attach: Member | None = None, missed: Missed | CannotResume | None = None
    ) -> None:
        for record in records:
            self._record(record)
            if isinstance(record, Frame):
                self._tell_frame(record, self.state.streams[record.stream_id])
            elif isinstance(record, Joined) and attach is not None:
                self._tell(record)
                self._attach(attach, record, missed)
            else:
                self._tell(record)

    def _record(self, record: Record) -> None:
        self._check_next(record.seq)
        size = self._recorder.append(self.id, record)
        self._past.append(record, size)
        apply(self.state, record)

    def _check_next(self, seq: int) -> None:
        if seq != self.state.seq + 1:
            # Something happened between deciding and recording: better no record than two of a number.
            raise RuntimeError(f"seq {seq} cannot follow {self.state.seq}")

    def _run_due(self) -> None:
        """Whatever has fallen due, each in its turn; but nothing for the reason alone that the clock was set."""
        self.follow_clock()
        now = self.clock.now()
        while not self._recorder.failing and (due := self.state.next_deadline()) is not None and due <= now:
            self._commit(decide(self.state, now, commands.Tick()).records)

    def follow_clock(self) -> None:
        """Where the clock of the machine was set, that is recorded, and the time of the space goes on."""
        if self._recorder.failing:
            return  # nothing may happen before it is recorded
        jump = self.clock.look()
        if jump is not None:
            command = commands.ClockJump(jump.by, jump.shift, self.clock.ahead)
            self._commit(decide(self.state, self.clock.now(), command).records)
            self._set_timer()

    def _set_timer(self) -> None:
        due = self.state.next_deadline()
        if due == self._timer_due and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due is not None:
            delay = min(max(0.0, (due - self.clock.now()) / SECOND), LONGEST_SLEEP)
            if self._recorder.failing:
                delay = max(delay, 1.0)
            self._timer = self._loop.call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._run_due()
        self._set_timer()

    # -- members ----------------------------------------------------------------------------------

    def _attach(self, member: Member, joined: Joined, missed: Missed | CannotResume | None) -> None:
        replaced = self.members.get(member.participant)
        member.session = joined.seq
        self.members[member.participant] = member
        if replaced is not None:
            self._everyone = self._listening()
        elif member.is_listening:
            self._everyone = self._everyone.grown(member)
        self.metrics.connected(len(self.members))
        if replaced is not None:
            self._outbox.flush()
            replaced.close(CloseReason.REPLACED_BY_RECONNECT if member.is_reconnect else CloseReason.REPLACED)
        self._welcome_back(member, missed)

    def change_positions(self, member: Member, missed: Missed | CannotResume | None) -> None:
        """A member asks for positions after it was let in: a new welcome says from where they count."""

        def change() -> None:
            if self.members.get(member.participant) is member:
                member.ask_for_positions()
                self._everyone = self._listening()
                self._welcome_back(member, missed)

        # What was made for it without positions goes first.
        self._outbox.then(change)

    def _welcome_back(self, member: Member, missed: Missed | CannotResume | None) -> None:
        """The welcome, and after it what was missed up to the very seq that it describes."""
        if isinstance(missed, Missed) and not self._past.reaches(missed.upto):
            missed = CannotResume("the log moved on too fast to be read")
        if not isinstance(missed, Missed):
            self.welcome(member, {"recovered": False, "reason": missed.reason} if missed is not None else None)
            return
        viewer, epochs = Viewer(member.participant), Epochs(self.state)
        told = missed.told + [
            message
            for record in self._past.read(missed.upto)
            if (message := tell_again(self.id, epochs, record, viewer)) is not None
        ]
        most = self.config.delivery.queue_bytes * 3 // 4
        if sum(len(message.body) for message in told) > most:
            self.welcome(member, {"recovered": False, "reason": f"more than {most} bytes were missed"})
            return
        self.welcome(member, {"recovered": True, "from_seq": missed.after + 1, "to_seq": self.state.seq})
        audience = Audience((member,))
        for start in range(0, len(told), HISTORY_CHUNK):
            chunk = told[start : start + HISTORY_CHUNK]
            framed = b"".join(header(message.opcode, len(message.body)) + message.body for message in chunk)
            self._outbox.add(Parcel(audience, FRAMED, framed, None, chunk[-1].seq))

    def _detach(self, member: Member) -> None:
        # What was decided while it was here is still its own: hand that over before it goes.
        self._outbox.flush()
        del self.members[member.participant]
        self._everyone = self._listening()
        self._audiences.clear()
        self.metrics.connected(len(self.members))

    def welcome(self, member: Member, resume: dict[str, Any] | None = None) -> None:
        """The state at this very ``seq``, to one."""
        state = self.state
        payload = self._welcomes.payload(member.participant)
        if resume is not None:
            payload["resume"] = resume
        body = gateway_envelope(
            kinds.WELCOME,
            payload,
            id=f"{gateway_message_id(state.epoch, state.seq)}-welcome",
            ts=state.ts,
            to=[member.participant],
        )
        self.caused_bytes += len(body)
        self._send_to(member, body, state.seq)

    def _listening(self, but: Member | None = None) -> Audience:
        return Audience(each for each in self.members.values() if each.is_listening and each is not but)

    def _audience_of(self, stream: Stream) -> Audience:
        if stream.readers is None:
            return self._everyone
        known = self._audiences.get(stream.id)
        if known is not None and known[0] == stream.version and known[1] is self._everyone:
            return known[2]
        audience = Audience(self.members[reader] for reader in self.state.recipients(stream) if reader in self.members)
        self._audiences[stream.id] = (stream.version, self._everyone, audience)
        return audience

    # -- telling ----------------------------------------------------------------------------------

    def _tell_frame(self, record: Frame, stream: Stream) -> None:
        audience = self._audience_of(stream)
        self.metrics.frame(len(record.data), record.recipients)
        if not audience:
            return
        position = None
        if record.kind == kinds.STREAM_DATA:
            body = record.data
            if audience.wants_positions:
                position = with_seq(body, record.seq)
        else:
            body = frames.frame(record.stream_id, record.data)
            if audience.wants_positions:
                position = frames.frame_with_position(record.stream_id, record.seq, record.sender, record.data)
        self._outbox.add(
            Parcel(
                audience,
                record.opcode,
                body,
                position,
                record.seq,
                record.stream_id,
                record.sender,
                stream.policy.on_slow,
            )
        )

    def _tell(self, record: Record) -> None:
        self.metrics.record(record)
        if self._history_log.enabled:
            self._history_log.recorded(record, "http" if self._by_http else "websocket", self.state)
        body = render(self.id, self.state.epoch, record)
        if body is not None:
            if not isinstance(record, EnvelopeAccepted):
                self.caused_bytes += len(body)
            private = private_to(record)
            if private is None:
                self._send_to_all(body, record)
            elif (member := self.members.get(private)) is not None:
                self._send_to(member, body, record.seq)
        if isinstance(record, CapabilitiesGranted | CapabilitiesRevoked):
            if (member := self.members.get(record.participant)) is not None:
                self.welcome(member)
        elif isinstance(record, StreamEnded):
            self._audiences.pop(record.stream_id, None)
        elif isinstance(record, Invited):
            self._send_invitation(record)
        elif isinstance(record, Joined):
            self._invitations.taken_up(record.participant)
        elif isinstance(record, Refused) and record.kind == kinds.INVITE and record.count > record.told:
            self._send_invitation_refused(record)
        elif isinstance(record, Left) and (member := self.members.get(record.participant)) is not None:
            # It did not leave by itself: it was removed.
            self._detach(member)
            member.close(CloseReason.KICKED)

    def _send_to_all(self, body: bytes, record: Record) -> None:
        audience = self._everyone
        untold = self.members.get(untold_of(record) or "")
        if untold is not None:
            audience = self._listening(but=untold)
        if audience:
            self._add_control(audience, body, record.seq)
        if self._history_log.enabled:
            for member in self.members.values():
                if visible_to(record, member.participant):
                    self._history_log.delivered(member.participant, member.transport_name, body, record, record.ts)

    def _send_to(self, member: Member, body: bytes | None, seq: int) -> None:
        if body is not None:
            self._add_control(Audience((member,)), body, seq)
            if self._history_log.enabled:
                self._history_log.delivered(member.participant, member.transport_name, body, None, self.state.ts)

    def _add_control(self, audience: Audience, body: bytes, seq: int) -> None:
        position = with_seq(body, seq) if audience.wants_positions else None
        self._outbox.add(Parcel(audience, frames.TEXT, body, position, seq))

    def _answer_again(self, repetition: Repetition) -> None:
        """An envelope id came again: its sender alone is answered as before."""
        member = self.members.get(repetition.sender)
        if member is None:
            return
        answer = repetition.answer
        for record in answer.records:
            if isinstance(record, Invited):
                self._send_invitation(record)
            else:
                self._send_to(member, render(self.id, self.state.epoch, record), record.seq)
                if isinstance(record, Refused) and record.kind == kinds.INVITE:
                    self._send_invitation_refused(record)
        if not answer.records:
            envelope = repetition.envelope
            assert envelope.id is not None
            echo = envelope.encode(id=envelope.id, ts=rfc3339(answer.ts), sender=repetition.sender)
            self._send_to(member, echo, answer.seq)

    # -- invitations ------------------------------------------------------------------------------

    def _invitations_of(self, decision: Decision) -> list[Invited]:
        """Those for which a token must be told: one that was taken up is not needed again."""
        found = [record for record in decision.records if isinstance(record, Invited)]
        if decision.repetition is not None:
            found += [
                record
                for record in decision.repetition.answer.records
                if isinstance(record, Invited) and not invitations.has_come(self.state, record)
            ]
        return found

    def invitation(self, record: Invited) -> dict[str, Any]:
        """What the inviter is answered; there is a token in it, which goes to nobody else and into no record."""
        return self._invitations.accepted(record)

    def _send_invitation(self, record: Invited) -> None:
        if (member := self.members.get(record.by)) is not None:
            body = self._ack(record.by, self.invitation(record), record, record.request_id)
            # Not through _send_to: what holds a token is never written to a log.
            self._add_control(Audience((member,)), body, record.seq)

    def _send_invitation_refused(self, record: Refused) -> None:
        if (member := self.members.get(record.sender)) is not None:
            self._send_to(member, self._refused_ack(record), record.seq)

    def _refused_ack(self, record: Refused, number: str = "") -> bytes:
        return self._ack(record.sender, invitations.refused(record), record, record.id, number)

    def _ack(
        self, inviter: str, payload: dict[str, Any], record: Record, request_id: str | None, number: str = ""
    ) -> bytes:
        return gateway_envelope(
            kinds.INVITE_ACK,
            payload,
            id=f"{gateway_message_id(self.state.epoch, record.seq)}-ack{number}",
            ts=record.ts,
            to=[inviter],
            correlation_id=request_id,
        )

    # -- back-pressure ----------------------------------------------------------------------------

    def hold_writers(self, why: object, writers: set[str]) -> list[Member]:
        """Stop reading from those who feed a connection that is behind."""
        held = [member for writer in writers if (member := self.members.get(writer)) is not None]
        for member in held:
            member.hold_reading(why)
        return held

    def is_behind(self, who: object) -> None:
        self._slow.add(who, self._loop.time())

    def are_many_behind(self) -> bool:
        """A few slow ones must not hold up the others; where many are slow together, it is the writer that is fast."""
        slow = self._slow.count(self._loop.time())
        return slow * 2 > len(self.members) or (slow >= FEW and slow * 4 >= len(self.members))


def _cannot_record() -> JournalUnavailable:
    return JournalUnavailable("the gateway cannot record at the moment: nothing was done, try again later")
