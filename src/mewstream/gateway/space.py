"""The sequencer of one space: decide -> number -> record -> tell, one command at a time.

Every command of a participant goes through :meth:`Space.handle`, whichever transport it came by: a join, a frame, an
envelope over a socket or over HTTP. What the gateway itself causes is never refused and needs no answer, so it is
decided and committed directly: a start, what falls due, a jump of the clock, a sum of refusals. Questions change
nothing and are answered from the state. The parts of a space have modules of their own:

| module | what it is for |
|---|---|
| :mod:`.membership` | the connected participants, and the audiences of messages |
| :mod:`.broadcast` | the messages of records |
| :mod:`.replay` | earlier messages, for participants that resume or poll |
| :mod:`.refusals` | refusals, recorded one by one or counted |
| :mod:`.invitations` | tokens of invited participants, and answers to inviters |
| :mod:`.deadlines` | the timer |
| :mod:`.back_pressure` | writers that wait for slow readers |
| :mod:`.space_log` | log lines |
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mewstream.gateway.back_pressure import BackPressure
from mewstream.gateway.broadcast import Broadcast
from mewstream.gateway.claims import Claims
from mewstream.gateway.clock import JUMP, MachineClock, SpaceClock
from mewstream.gateway.config import SpaceConfig
from mewstream.gateway.deadlines import Deadline
from mewstream.gateway.delivery_latency import DeliveryLatency
from mewstream.gateway.fair_queue import FairQueue
from mewstream.gateway.fanout import Outbox
from mewstream.gateway.inbound import ParticipantRates, Throttle
from mewstream.gateway.invitations import Invitations
from mewstream.gateway.joining import JoinRefused
from mewstream.gateway.listing import answer_question
from mewstream.gateway.membership import Member, Membership
from mewstream.gateway.metrics import SpaceMetrics
from mewstream.gateway.outbound import Drop
from mewstream.gateway.recorder import Recorder
from mewstream.gateway.reference_logs import SpaceLogs
from mewstream.gateway.refusals import Refusals, cannot_record
from mewstream.gateway.replay import Backlog, Replay, ResumeRefused
from mewstream.gateway.replay_threads import ReplayThreads
from mewstream.gateway.space_log import SpaceLog
from mewstream.gateway.stream_history import StreamHistory
from mewstream.io.log_lines import event
from mewstream.io.reading import Reading
from mewstream.journal.memory import RecentRecords
from mewstream.protocol import commands, frames, kinds
from mewstream.protocol.admission_rules import TOKEN_EXPIRED
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.decide import Decision, Repetition, decide
from mewstream.protocol.envelope import Envelope, parse_envelope
from mewstream.protocol.errors import InvalidRequest, JournalUnavailable, LimitExceeded, PeerError, Unauthorized
from mewstream.protocol.fold import apply
from mewstream.protocol.frames import Form
from mewstream.protocol.identifiers import gateway_message_id
from mewstream.protocol.records import (
    AdmissionEnded,
    Admitted,
    CapabilitiesGranted,
    CapabilitiesRevoked,
    Frame,
    FrameBlock,
    Invited,
    Joined,
    Left,
    Record,
    Refused,
    StreamEnded,
    Suspended,
    Uninvited,
)
from mewstream.protocol.render import gateway_envelope, render
from mewstream.protocol.state import SpaceState
from mewstream.protocol.stream_rules import find_stream
from mewstream.protocol.times import SECOND, rfc3339

log = logging.getLogger("mewstream.gateway")

#: Seconds for which an answer over HTTP waits for a journal that cannot be written.
COMMIT_TIMEOUT = 5.0
#: Joins of one participant that may come at once, before the rate applies. Each join costs a welcome and a record, and
#: everyone is told of it.
JOIN_BURST = 100
#: Standing grants that count as one more join, if a join brings them into force: each is recorded and told to everyone,
#: and so is its end when the participant leaves.
GRANTS_PER_JOIN = 8
#: Frames that must be judged one at a time are offered to ``decide`` in portions of this many.
FEW_FRAMES = 32


class Newcomer(NamedTuple):
    """A connection that joins, and its backlog if it asked to resume."""

    member: Member
    backlog: Backlog | ResumeRefused | None = None


class Space:
    def __init__(
        self,
        config: SpaceConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        recorder: Recorder,
        recovered: SpaceState | None,
        metrics: SpaceMetrics,
        logs: SpaceLogs,
        threads: ReplayThreads,
        mint_token: Callable[[str], str],
        forget_token: Callable[[str], None],
        connection_url: str,
        work: FairQueue,
        clock: MachineClock,
    ) -> None:
        self.config = config
        self.id = config.id
        self.state = recovered or SpaceState(config.id)
        self.metrics = metrics
        self.clock = SpaceClock(clock, self.state.ts)
        self._loop = loop
        self._recorder = recorder
        self._logs = logs
        self._log = SpaceLog(config.id)
        self._work = work
        self._by_http = False
        """The command that is being handled came over HTTP."""
        self._answers = itertools.count(1)
        self.outbox = Outbox(loop, config.delivery.flush_bytes, lambda done: recorder.commit(self.id, done))
        self.members = Membership(self.state)
        self._recent = RecentRecords()
        self.replay = Replay(self.state, self._recent, recorder, threads)
        self.history = StreamHistory(self.state, self._recent, recorder, threads)
        self.invitations = Invitations(self.state, mint_token, forget_token, connection_url)
        self.back_pressure = BackPressure(loop, self.members)
        self.broadcast = Broadcast(self.state, self.members, self.outbox, logs, metrics.welcomed)
        self._latency = DeliveryLatency(loop, self.broadcast, self.outbox, metrics.delivered_after)
        self.refusals = Refusals(
            self.state,
            loop=loop,
            members=self.members,
            broadcast=self.broadcast,
            invitations=self.invitations,
            metrics=metrics,
            record=self._record_sum,
        )
        joins = config.limits.joins_per_second
        self._join_rates = ParticipantRates(loop, "joins_per_second", joins, burst=JOIN_BURST)
        caused = config.limits.caused_bytes_per_second
        self._caused_rates = ParticipantRates(loop, "caused_bytes_per_second", caused, burst=4 * caused)
        self._deadline = Deadline(loop, self.clock.now, self._wake, recorder)
        recorder.on_recovery(self.refusals.floods.sum_up_all)
        self._begin()

    def _begin(self) -> None:
        self._sequence(commands.Start(self._recorder.epoch(self.id), self.config.public()))
        if self.clock.ahead >= JUMP:
            log.warning(
                "the newest record of %s is %.1f seconds ahead of the clock",
                self.id,
                self.clock.ahead / SECOND,
                extra=event("clock_behind_log", space=self.id),
            )
            self.handle(commands.ClockJump(-self.clock.ahead, 0, self.clock.ahead))
        # Participants that were present when the last run ended may come back for a while, with all their rights.
        for participant in list(self.state.participants):
            self.handle(commands.Suspend(participant, "restart"))

    # -- the sequencer ----------------------------------------------------------------------------

    def handle(self, command: commands.Command, newcomer: Newcomer | None = None) -> Decision:
        """Carry out one command, after everything that was due before it.

        The decision that is returned says what happened. A refusal is a decision too, not an exception. ``newcomer``
        belongs to a ``Join``."""
        if self._recorder.failing:
            if not isinstance(command, commands.Disconnect | commands.Suspend):
                return self.refusals.unavailable(command, self.clock.now())
            self.follow_clock(while_failing=True)
        now = self.clock.now()
        # Frames have no deadlines of their own, so that the clock of the machine need not be checked for each.
        if not isinstance(command, commands.SendFrames) or now >= self._deadline.due:
            self._run_due()
            now = self.clock.now()
        self.broadcast.caused_bytes = 0
        decision = decide(self.state, now, command)
        if len(decision.written) == 1 and type(block := decision.written[0]) is FrameBlock:
            self._commit_frames(block)  # accepted frames need no token, are no refusal, and change no deadline
            return decision
        without_token = self.invitations.without_token(decision)
        if without_token is not None:
            flaw = cannot_record()
            flaw.envelope_id = without_token.request_id
            return self.refuse(without_token.by, kinds.INVITE, flaw)
        decision = self.refusals.settle(decision)
        if decision.is_recorded:
            self._commit(decision.written, newcomer)
            if decision.repetition is not None:
                self._answer_again(decision.repetition)
            self._deadline.set(self.state.next_deadline())
        return decision

    def _sequence(self, command: commands.Command) -> None:
        """Carry out what comes from the gateway itself and is never refused."""
        self._commit(decide(self.state, self.clock.now(), command).written)
        self._deadline.set(self.state.next_deadline())

    def _commit(self, written: Sequence[Record | FrameBlock], newcomer: Newcomer | None = None) -> None:
        for record in written:
            if isinstance(record, FrameBlock):
                self._commit_frames(record)
                continue
            if record.seq != self.state.seq + 1:
                raise _out_of_order(self.state, record)
            size = self._recorder.append(self.id, record)
            self._recent.append(record, size)
            apply(self.state, record)
            if isinstance(record, Frame):
                self.metrics.accepted_frames(1, len(record.data), record.recipients)
                self.broadcast.data(record)
                continue
            self.metrics.record(record)
            if isinstance(record, Refused):
                self.refusals.recent.append(record)
                self._log.refused(record)
            if self._logs.enabled:
                self._logs.recorded(record, "http" if self._by_http else "websocket", self.state)
            self.broadcast.record(record)
            self._follow(record, newcomer)

    def _commit_frames(self, block: FrameBlock) -> None:
        """Raw frames have a path of their own, from here to :meth:`Broadcast.frames`, because frames that arrived
        together are recorded, applied and sent as one block: that is what makes them cheap. A ``stream/data`` envelope
        cannot be part of a block, because it has an id and a sequence number of its own. It is a :class:`Frame`."""
        if block.seq != self.state.seq + 1:
            raise _out_of_order(self.state, block)
        size = sum(map(len, block.data))
        self._recorder.append(self.id, block)
        self._recent.append(block, size)
        apply(self.state, block)
        self.metrics.accepted_frames(len(block.data), size, block.recipients)
        self.broadcast.frames(block, size)

    def _follow(self, record: Record, newcomer: Newcomer | None) -> None:
        """What a record means for connections and tokens, beyond the message that it sends."""
        match record:
            case Joined(participant=participant, seq=seq):
                self._log.joined(record, newcomer.member.connection if newcomer is not None else None)
                self.invitations.joined(participant)
                if newcomer is not None:
                    newcomer.member.session = seq
                    self._let_in(newcomer)
            case Left(participant=participant, reason=reason):
                self._log.left(record)
                if (member := self.members.get(participant)) is not None:
                    # It did not leave by itself: it was removed.
                    self._remove(member)
                    if reason == TOKEN_EXPIRED:
                        member.close(CloseReason.TOKEN_EXPIRED)
                    else:
                        is_banned = participant in self.state.banned
                        member.close(CloseReason.BANNED if is_banned else CloseReason.KICKED)
            case Suspended():
                self._log.suspended(record)
            case Uninvited(participant=participant):
                self.invitations.ended(participant)
            case (
                CapabilitiesGranted(participant=participant)
                | CapabilitiesRevoked(participant=participant)
                | Admitted(participant=participant)
                | AdmissionEnded(participant=participant)
            ):
                if (member := self.members.get(participant)) is not None:
                    self.broadcast.welcome(member)
            case StreamEnded(stream_id=stream_id):
                self.members.forget_stream(stream_id)
            case Invited() | Refused(kind=kinds.INVITE):
                self._answer_inviter(record)

    def _answer_inviter(self, record: Invited | Refused) -> None:
        member = self.members.get(record.by if isinstance(record, Invited) else record.sender)
        if member is None:
            return
        if isinstance(record, Invited):
            self.broadcast.send(member, self.invitations.acknowledgement(record), record.seq, is_secret=True)
        elif record.count > record.told:
            self.broadcast.send(member, self.invitations.refusal(record), record.seq)

    def _answer_again(self, repetition: Repetition) -> None:
        """Answer an envelope whose id was used before, as it was answered the first time. Only its sender is told."""
        member = self.members.get(repetition.sender)
        if member is None:
            return
        answer = repetition.answer
        for record in answer.records:
            if not isinstance(record, Invited):
                body = render(self.id, self.state.epoch, record)
                if body is not None:
                    self.broadcast.caused_bytes += len(body)
                    self.broadcast.send(member, body, record.seq)
            if isinstance(record, Invited) or (isinstance(record, Refused) and record.kind == kinds.INVITE):
                self._answer_inviter(record)
        if not answer.records:
            envelope = repetition.envelope
            assert envelope.id is not None
            echo = envelope.encode(id=envelope.id, ts=rfc3339(answer.ts), sender=repetition.sender)
            self.broadcast.caused_bytes += len(echo)
            self.broadcast.send(member, echo, answer.seq)

    # -- time -------------------------------------------------------------------------------------

    def _run_due(self) -> None:
        """Carry out everything that has fallen due, one after another."""
        self.follow_clock()
        now = self.clock.now()
        while not self._recorder.failing and (due := self.state.next_deadline()) is not None and due <= now:
            self._commit(decide(self.state, now, commands.Tick()).written)

    def follow_clock(self, *, while_failing: bool = False) -> None:
        """Record a jump of the machine's clock, if there was one. Nothing falls due for that reason alone. While the
        journal fails this waits, unless something else is about to happen at the new time."""
        if self._recorder.failing and not while_failing:
            return
        jump = self.clock.check()
        if jump is not None:
            self._sequence(commands.ClockJump(jump.by, jump.shift, self.clock.ahead))

    def _wake(self) -> None:
        self._run_due()
        self._deadline.set(self.state.next_deadline())

    # -- commands of participants -----------------------------------------------------------------

    def post(self, sender: str, data: bytes) -> Decision:
        """Carry out an envelope that came over HTTP."""
        self._by_http = True
        try:
            envelope = parse_envelope(data, max_id_bytes=self.config.limits.id_bytes)
            return self.envelope(sender, envelope)
        except PeerError as flaw:
            return self.refuse(sender, "", flaw, data)
        finally:
            self._by_http = False

    def envelope(self, sender: str, envelope: Envelope) -> Decision:
        if envelope.kind == kinds.STREAM_READ:
            return self._read_history(sender, envelope)
        # While the journal fails a question is refused too: its answer would wait in memory until that is over.
        if envelope.kind not in kinds.QUESTIONS or self._recorder.failing:
            return self.handle(commands.Send(sender, envelope))
        try:
            self._answer_question(sender, envelope)
        except PeerError as flaw:
            flaw.envelope_id = envelope.id
            return self.refuse(sender, envelope.kind, flaw)
        return Decision([], is_recorded=False)

    def _read_history(self, sender: str, envelope: Envelope) -> Decision:
        """Judge a read, and begin it if it is allowed. Its record follows when the frames are found."""
        if not self.state.knows_extensions(sender):
            return self.handle(commands.Send(sender, envelope))
        member = self.members.get(sender)
        if member is None or self._by_http:
            flaw = InvalidRequest(f"{envelope.kind} is for sockets: HTTP has GET /participants/{{id}}/messages")
            flaw.envelope_id = envelope.id
            return self.refuse(sender, envelope.kind, flaw)
        decision = self.handle(commands.Send(sender, envelope))
        if not decision.written:
            stream = find_stream(self.state, envelope.kind, envelope.payload)
            member.read_history(envelope, stream.id)
        return decision

    def tell_history_complete(self, member: Member, stream_id: str, request_id: str | None) -> None:
        """Tell a reader that it has got everything up to now, and that what follows is live."""
        state = self.state
        notice = {"notice": "history_complete", "stream_id": stream_id, "seq": state.seq}
        body = gateway_envelope(
            kinds.NOTICE,
            notice,
            id=f"{gateway_message_id(state.epoch, state.seq)}-history-{next(self._answers)}",
            ts=state.ts,
            to=[member.participant],
            correlation_id=request_id,
        )
        self.broadcast.send_unrecorded(member, body, state.seq)

    def _answer_question(self, sender: str, envelope: Envelope) -> None:
        """Send the answer to its sender alone. It describes the state at the current seq, so it keeps its place among
        the other messages."""
        member = self.members.get(sender)
        if member is None or self._by_http:
            raise InvalidRequest(f"{envelope.kind} is for sockets: HTTP has GET /streams and GET /participants")
        if envelope.kind == kinds.STREAM_SYNC:
            self.refusals.tell_sums(sender)
        body = answer_question(
            self.state,
            sender,
            envelope,
            describe_stream=self.broadcast.welcomes.stream,
            id=f"{gateway_message_id(self.state.epoch, self.state.seq)}-answer-{next(self._answers)}",
        )
        self.broadcast.caused_bytes = len(body)
        self.broadcast.send(member, body, self.state.seq)

    def frames(self, member: Member, stream: str, data: Sequence[bytes], opcode: int) -> Sequence[bytes]:
        """Carry out raw frames that arrived together for one stream, which is named by its id or alias.

        Returns the frames that must wait, because the time of this turn of the event loop is used up."""
        id = None
        if "|" in stream and member.positions:
            stream, id = frames.split_reference(stream)
            if flaw := frames.flaw_in_frame_id(id, max_bytes=self.config.limits.id_bytes):
                self.refuse(member.participant, "frame", flaw, data[0])
                return data[1:]
        place, most = 0, len(data)
        while place < len(data) and self.members.is_current(member):
            if self._work.is_over:
                return data[place:]
            portion = data[place : place + most]
            decision = self.handle(commands.SendFrames(member.participant, stream, portion, opcode, id))
            place += len(portion) - len(decision.undecided)
            if decision.undecided:
                most = FEW_FRAMES  # to offer all the others again and again would take quadratic time
            first = decision.written[0]
            # Refusing a frame, or checking it against a schema, takes a while.
            is_slow = type(first) is not FrameBlock or first.format_id is not None
            if is_slow and not self._work.has_time():
                return data[place:]
        return ()

    def refuse(self, sender: str, kind: str, flaw: PeerError, data: bytes = b"") -> Decision:
        """Refuse a message that did not become a command."""
        return self.handle(commands.Refuse(sender=sender, kind=kind, id=flaw.envelope_id, excerpt=data, **flaw.fields))

    def _record_sum(self, refuse: commands.Refuse) -> bool:
        """Record refusals that were counted. Returns False while nothing can be recorded."""
        if self._recorder.failing:
            return False
        self._run_due()
        self._sequence(refuse)
        return True

    def report_drops(self, participant: str, drops: dict[str, Drop]) -> None:
        """Record and count the frames that a slow reader did not get, and notify that reader."""
        if self._recorder.failing:
            return  # they stay counted, and are reported when the journal is back
        counted = dict(drops)
        drops.clear()  # more may be dropped while these are reported
        for stream_id, drop in counted.items():
            self.metrics.dropped(drop.count)
            self._log.dropped(participant, stream_id, drop.count)
            self.handle(
                commands.ReportDrop(participant, stream_id, drop.count, drop.first_seq, drop.last_seq, drop.policy)
            )

    # -- joining and leaving ----------------------------------------------------------------------

    def check_joins(self, participant: str) -> None:
        """Count a join. Raises :class:`JoinRefused` for a participant that joins too often."""
        rate = self._join_rates.of(participant)
        if rate is None:
            return
        cost = 1.0
        if not self.state.is_present(participant):
            cost += len(self.state.standing.get(participant, ())) / GRANTS_PER_JOIN
        wait = rate.wait_for(cost, self._loop.time())
        if wait:
            most = f"{JOIN_BURST} joins of {participant!r} at once, or {rate.per_second:g} per second"
            flaw = rate.exceeded(f"more than {most}", wait)
            self.refusals.count(participant, kinds.JOIN, flaw, self.clock.now())
            raise JoinRefused(flaw, CloseReason.JOINS_TOO_OFTEN)
        rate.take(cost, self._loop.time())

    def throttle(self, participant: str, reading: Reading | None) -> Throttle:
        """The rate limits of one connection of a participant. What the participant causes counts for all of its
        connections together."""
        return Throttle(self._loop, reading, self.config.limits, caused=self._caused_rates.of(participant))

    def admit(self, claims: Claims) -> PeerError | None:
        """Record what a signed token gives its holder. Returns the reason if that was refused."""
        command = commands.Admit(claims.participant, claims.capabilities, claims.expires_at, claims.issuer)
        decision = self.handle(command)
        if not decision.is_recorded:
            return cannot_record()
        if decision.written and isinstance(decision.written[0], Refused):
            return LimitExceeded(decision.written[0].message, limit="admissions")
        return None

    def notify(self, member: Member, notice: dict[str, Any]) -> None:
        """Send a member a notice that is about its connection, and not part of the log."""
        if self.members.is_current(member):
            body = gateway_envelope(
                kinds.NOTICE,
                notice,
                id=f"{gateway_message_id(self.state.epoch, self.state.seq)}-notice-{next(self._answers)}",
                ts=self.clock.now(),
                to=[member.participant],
            )
            self.broadcast.send(member, body, self.state.seq)

    def join(
        self, member: Member, backlog: Backlog | ResumeRefused | None = None, claims: Claims | None = None
    ) -> JoinRefused | None:
        """Make a connection a member. It first gets its welcome, and then its backlog. ``claims`` are those of the
        signed token that has identified it.

        Returns the reason if it was refused."""
        if claims is None:
            if member.participant in self.state.admitted:
                self.handle(commands.EndAdmission(member.participant))
        elif (refusal := self.admit(claims)) is not None:
            unavailable = isinstance(refusal, JournalUnavailable)
            return JoinRefused(refusal, CloseReason.JOURNAL_UNAVAILABLE if unavailable else CloseReason.SPACE_FULL)
        decision = self.handle(self._join_of(member, continues=member.is_reconnect), Newcomer(member, backlog))
        if not decision.written:
            return JoinRefused(cannot_record(), CloseReason.JOURNAL_UNAVAILABLE)
        first = decision.written[0]
        if isinstance(first, Refused):
            if first.code == Unauthorized.code:
                return JoinRefused(Unauthorized(first.message, **first.details), CloseReason.BANNED)
            limit = LimitExceeded(first.message, limit="participants_per_space")
            return JoinRefused(limit, CloseReason.SPACE_FULL)
        return None

    @staticmethod
    def _join_of(member: Member, *, continues: bool) -> commands.Join:
        return commands.Join(
            member.participant,
            member.transport_name,
            continues=continues,
            extensions=member.extensions,
            interest=member.interest,
        )

    def _let_in(self, newcomer: Newcomer) -> None:
        member = newcomer.member
        replaced = self.members.add(member)
        self.metrics.connected(len(self.members))
        if replaced is not None:
            self.outbox.flush()
            replaced.close(CloseReason.REPLACED_BY_RECONNECT if member.is_reconnect else CloseReason.REPLACED)
        self._welcome(newcomer)

    def _welcome(self, newcomer: Newcomer) -> None:
        """Send the welcome, and after it the backlog up to the very seq that the welcome describes."""
        member, backlog = newcomer
        messages = (
            self.replay.complete(member.participant, backlog, Form(member.positions))
            if isinstance(backlog, Backlog)
            else backlog
        )
        match messages:
            case None:
                self.broadcast.welcome(member)
            case ResumeRefused(reason=reason):
                self.broadcast.welcome(member, {"recovered": False, "reason": reason})
            case _:
                assert isinstance(backlog, Backlog)
                resume = {"recovered": True, "from_seq": backlog.after + 1, "to_seq": self.state.seq}
                self.broadcast.welcome(member, resume)
                self.broadcast.replay(member, messages)

    def change_extensions(self, newcomer: Newcomer) -> None:
        """Give a member the extensions that it asks for after it has joined. It joins once more, so that the log knows
        of them, and a new welcome says where they begin."""
        member = newcomer.member

        def change() -> None:
            if not self.members.is_current(member):
                return
            joined = next(iter(self.handle(self._join_of(member, continues=True)).written), None)
            if isinstance(joined, Joined):
                member.session = joined.seq
                if "positions" in (member.extensions or ()):
                    member.ask_for_positions()
                self.members.refresh()
                self._welcome(newcomer)

        # Messages that were made for it without positions go first.
        self.outbox.then(change)

    def leave(self, member: Member, *, heir: Member | None = None, is_final: bool = False) -> None:
        """Remove a connection that has ended, unless it was replaced. ``is_final``: it was closed, and not lost. If
        there is an ``heir``, the participant stays, and is connected by that."""
        if self.members.is_current(member):
            self.refusals.floods.finish(member.participant)
            self._remove(member)
            if heir is None or self.join(heir) is not None:
                self.handle(commands.Disconnect(member.participant, member.session, is_final=is_final))

    def suspend(self, member: Member, reason: str) -> None:
        """Remove a connection because the gateway stops. The participant keeps its rights for a while."""
        if self.members.is_current(member):
            self.refusals.floods.finish(member.participant)
            self._remove(member)
            self.handle(commands.Suspend(member.participant, reason))

    def _remove(self, member: Member) -> None:
        # Messages that were decided while it was connected are still for it.
        self.outbox.flush()
        self.members.remove(member)
        self.metrics.connected(len(self.members))

    # -- waiting ----------------------------------------------------------------------------------

    async def committed(self) -> bool:
        """Wait until everything so far is as durable as the settings demand. Returns False if the journal cannot be
        written."""
        done = asyncio.Event()
        self._recorder.commit(self.id, done.set)
        try:
            await asyncio.wait_for(done.wait(), COMMIT_TIMEOUT)
        except TimeoutError:
            return False
        return True

    async def messages_since(self, participant: str, after: int, limit: int) -> tuple[list[bytes], int]:
        """A page of the messages that a participant would have received since a position, and the position at its end.
        Messages that are not recorded yet are not shown."""
        is_recorded = not self._recorder.failing and await self.committed()
        return await self.replay.messages_since(participant, after, limit, from_memory=is_recorded)

    def stop(self) -> None:
        if left := self.refusals.floods.finish_all():
            log.error(
                "%s: %d refusals could not be recorded", self.id, left, extra=event("refusals_lost", space=self.id)
            )
        self._deadline.cancel()
        self._latency.stop()
        self.outbox.flush()


def _out_of_order(state: SpaceState, record: Record | FrameBlock) -> RuntimeError:
    """The error for a record whose number is taken, which must not be recorded."""
    return RuntimeError(f"seq {record.seq} cannot follow {state.seq}")
