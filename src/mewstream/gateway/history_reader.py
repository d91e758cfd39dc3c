"""Sends the history of streams to one connection, as fast as its peer reads.

One read at a time: the peer gets ``stream/history``, then the frames before it, then those that came meanwhile, and
then it is among the live readers again. Until then the live frames of that stream do not go to this connection. They
wait in the log and are read from there, so that nothing is kept for a peer that is slow, and nothing is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mewstream.gateway.fanout import FRAMED, Audience, Parcel
from mewstream.gateway.outbound import Drop
from mewstream.gateway.stream_history import AGAIN_SECONDS, Encode, Found, View, encoder
from mewstream.protocol import commands, kinds
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.envelope import Envelope
from mewstream.protocol.errors import LimitExceeded, PeerError
from mewstream.protocol.frames import Form
from mewstream.protocol.history_rules import is_reader, parse_start
from mewstream.protocol.records import HistoryRead

if TYPE_CHECKING:
    from mewstream.gateway.space import Space
    from mewstream.gateway.websocket import WebSocketMember

#: A reader of live frames that is further behind than this, in records of the space, and further behind than it was
#: when its history ended, does not keep up with the stream.
SLOW_RECORDS = 50_000


class _Question(NamedTuple):
    envelope: Envelope
    stream_id: str


class _Hold:
    """Live frames that a connection does not get, because it gets them as part of a read."""

    __slots__ = ("above", "stream_id", "upto")

    def __init__(self, stream_id: str, above: int) -> None:
        self.stream_id = stream_id
        self.above = above
        self.upto: int | None = None

    def covers(self, parcel: Parcel) -> bool:
        return (
            parcel.stream == self.stream_id
            and parcel.seq > self.above
            and (self.upto is None or parcel.seq <= self.upto)
        )


class HistoryReader:
    """The reads of one connection."""

    def __init__(self, member: WebSocketMember, space: Space, spawn: Callable[..., asyncio.Task[None]]) -> None:
        self._member = member
        self._space = space
        self._spawn = spawn
        self._waiting: deque[_Question] = deque()
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._holds: list[_Hold] = []

    def ask(self, envelope: Envelope, stream_id: str) -> None:
        """Begin a read that was judged already, when those before it have ended."""
        most = self._space.config.limits.reads_waiting
        if len(self._waiting) >= most:
            flaw = LimitExceeded(f"{most} reads of this connection wait already", limit="reads_waiting")
            flaw.envelope_id = envelope.id
            self._space.refuse(self._member.participant, envelope.kind, flaw)
            return
        self._waiting.append(_Question(envelope, stream_id))
        if self._task is None:
            self._task = self._spawn(self._serve())

    def has_room(self) -> None:
        """The peer has read everything that was sent."""
        self._room.set()

    def stop(self) -> None:
        """Read nothing more, because the connection has ended."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        try:
            while self._waiting:
                question = self._waiting.popleft()
                try:
                    await self._read(question)
                except PeerError as flaw:
                    flaw.envelope_id = question.envelope.id
                    self._space.refuse(self._member.participant, kinds.STREAM_READ, flaw)
                if not self._is_member:
                    return
        finally:
            self._task = None

    @property
    def _is_member(self) -> bool:
        return self._space.members.is_current(self._member)

    async def _read(self, question: _Question) -> None:
        space, reader = self._space, self._member.participant
        start = parse_start(question.envelope.payload["from"])
        at = await space.replay.position_at(reader, start.micros) if start.micros is not None else 0
        found = Found.nothing(space.state.seq)
        stream = space.state.streams.get(question.stream_id)
        if stream is not None:  # otherwise it has ended, and the read is refused
            view = View(stream.id, reader, stream.policy.history)
            found = await space.history.find(view, start, at)
            while not space.history.is_near(found.upto):
                found = await space.history.find_more(view, found)
            found = space.history.rest(view, found)
        if not self._is_member:
            return
        record = self._record(question, found)
        if record is None:
            return
        self._hold(record.stream_id, record.seq)
        try:
            await self._deliver(question, view, found.after, record.to_seq)
        except PeerError:
            # The frames are not kept any more, or cannot be read. What is live from now on comes all the same.
            self._splice([])
            raise

    def _record(self, question: _Question, found: Found) -> HistoryRead | None:
        """Record the read, unless it is refused by now."""
        reader, id = self._member.participant, question.envelope.id
        decision = self._space.handle(
            commands.ReadHistory(reader, question.stream_id, found.after + 1, None, found.frames, "websocket", id)
        )
        record = decision.written[-1] if decision.written else None
        return record if isinstance(record, HistoryRead) else None

    # -- sending ----------------------------------------------------------------------------------

    async def _deliver(self, question: _Question, view: View, after: int, to_seq: int) -> None:
        """Send the frames above ``after``: first those that are history, then those that came meanwhile."""
        space = self._space
        encode = encoder(Form(self._member.positions))
        cursor = min(after, to_seq)
        while cursor < to_seq:
            await self._await_room()
            stream = space.state.streams.get(view.stream_id)
            if stream is not None and not is_reader(stream, view.reader):
                self._record(question, Found.nothing(cursor))  # which is refused
                cursor = to_seq
                break
            cursor = await self._send_portion(view, cursor, to_seq, encode)
        # Whoever was a reader when a live frame was sent gets it, as if it had not had to wait.
        live = view._replace(history="joined")
        behind = space.state.seq - cursor
        while True:
            await self._await_room()
            rest = space.history.newest(live, cursor, encode)
            if rest is not None:
                self._splice(rest)
                self._space.tell_history_complete(self._member, view.stream_id, question.envelope.id)
                return
            lag = space.state.seq - cursor
            if lag > max(SLOW_RECORDS, 2 * behind):
                await self._fall_behind(live, cursor)
                return
            behind = min(behind, lag)
            cursor = await self._send_portion(live, cursor, space.state.seq, encode)

    async def _send_portion(self, view: View, after: int, upto: int, encode: Encode) -> int:
        portion = await self._space.history.portion(view, after, upto, encode)
        if portion.messages:
            self._send(b"".join(portion.messages), portion.seqs[-1])
        if portion.cursor == after:
            await asyncio.sleep(AGAIN_SECONDS)  # it is not written yet
        return portion.cursor

    def _send(self, framed: bytes, last_seq: int) -> None:
        """Send frames after everything that was decided before."""
        member = self._member
        parcel = Parcel(Audience((member,)), FRAMED, [framed], None, last_seq)
        self._space.outbox.then(partial(member.outbound.push, framed, [parcel]))

    async def _await_room(self) -> None:
        """Wait until the peer has read what was sent."""
        await asyncio.sleep(0)  # a transport says in its next turn that it is full
        while self._member.outbound.is_behind:
            self._room.clear()
            await self._room.wait()
        if not self._is_member:
            raise asyncio.CancelledError

    async def _fall_behind(self, view: View, cursor: int) -> None:
        """Treat a reader that does not keep up as any slow reader."""
        space, member = self._space, self._member
        missed = Found.nothing(cursor)
        while not space.history.is_near(missed.upto):
            missed = await space.history.find_more(view, missed)
        missed = space.history.rest(view, missed)
        self._splice([])
        stream = space.state.streams.get(view.stream_id)
        if stream is not None and stream.policy.on_slow == "disconnect":
            member.outbound.close(CloseReason.SLOW_CONSUMER)
        elif missed.frames:
            policy = stream.policy.on_slow if stream is not None else ""
            drop = Drop(missed.frames, cursor + 1, missed.upto, policy)
            space.report_drops(member.participant, {view.stream_id: drop})

    # -- live frames ------------------------------------------------------------------------------

    def _hold(self, stream_id: str, above: int) -> None:
        """Give no live frames of a stream to this connection."""
        self._holds.append(_Hold(stream_id, above))
        self._member.push = self._push

    def _splice(self, rest: Sequence[bytes]) -> None:
        """Send the rest, up to the newest frame, and give the connection live frames from there on."""
        hold, seq = self._holds[-1], self._space.state.seq
        if rest:
            self._send(b"".join(rest), seq)
        hold.upto = seq
        self._space.outbox.then(partial(self._release, hold))  # when none of those up to there is left in the outbox

    def _release(self, hold: _Hold) -> None:
        self._holds.remove(hold)
        if not self._holds:
            self._member.push = self._member.outbound.push

    def _push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        """Take the place of the connection's own method while live frames are held."""
        outbound = self._member.outbound
        kept = [parcel for parcel in parcels if not any(hold.covers(parcel) for hold in self._holds)]
        if len(kept) == len(parcels):
            outbound.push(data, parcels)
        elif kept:
            pieces = [piece for parcel in kept for piece in parcel.pieces(outbound.positions)]
            outbound.push(b"".join(pieces), kept)
