"""The sending side of one WebSocket: written at once while the peer keeps up, queued within bounds if it does not.

A connection that falls behind has a queue of its own. At the soft limit of that queue, reading from the writers whose
frames are in it pauses for a bounded time. At the hard limit, frames follow the policy of their stream, and a control
message that finds no room closes the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from picows import WSTransport

from mewstream.gateway import wsframes
from mewstream.gateway.back_pressure import BackPressure
from mewstream.gateway.fanout import Parcel
from mewstream.gateway.membership import Member
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.frames import Form
from mewstream.protocol.policy import Delivery

#: Seconds that a peer has to answer a close, and to read what was sent before it.
CLOSE_TIMEOUT = 2.0
#: Seconds for which a slow peer may hold up its writers, for each second that passes.
PAUSE_CREDIT_RATE = 0.1
#: How many times longer a peer may hold up its writers while many others are slow too.
COMMON_PATIENCE = 20
_CHUNK = 64 << 10
#: Unsent bytes up to which a connection that was replaced, or closed by its peer, still gets them and a close. With
#: more it is cut off, because a participant that reconnects again and again would make us keep more and more.
_KEPT_AT_THE_END = 64 << 10
_REPLACED = (CloseReason.REPLACED, CloseReason.REPLACED_BY_RECONNECT)
#: The part of its queue that a reader that is far behind may lose at once, to make room for frames that came together.
_DROPPED_TOGETHER = 1 / 16
#: Bytes that a queued message counts beside its own, so that a flood of tiny ones cannot outgrow the limit.
_ENTRY_BYTES = 160


@dataclass(frozen=True, slots=True)
class Drop:
    count: int
    first_seq: int
    last_seq: int
    policy: str


class Ending(Enum):
    """Why nothing more is written to a connection. Its participant may be a member for a moment longer, and the state
    of the connection as a whole is :class:`~mewstream.gateway.websocket.ConnectionState`."""

    CLOSED = "closed by the gateway"
    LOST = "lost, or closed by the peer"


class Outbound:
    """The messages for one peer that were not sent yet, within the limits of ``Delivery``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ws: WSTransport, delivery: Delivery) -> None:
        transport = ws.underlying_transport
        self._ws = ws
        self.positions = Form.PLAIN
        self.knows_close_codes = False
        self.drops: dict[str, Drop] = {}
        self.dropped_frames = 0
        self.ending: Ending | None = None
        """None until a close is sent or the connection is lost."""
        self.back_pressure: BackPressure | None = None
        """That of the space, while the peer is a member of one."""
        self.on_close: Callable[[CloseReason], None] | None = None
        self.on_caught_up: Callable[[], None] | None = None
        self._loop = loop
        self._transport = transport
        self._delivery = delivery
        self._is_paused = False
        """The transport's buffer is full."""
        self._owed_pong: bytes | None = None
        self._queue: deque[list[Parcel]] = deque()
        """Each entry is a list of one parcel, which becomes empty when the parcel is dropped."""
        self._droppable: deque[list[Parcel]] = deque()
        self._queued_bytes = 0
        self._dead = 0
        self._feeders: set[str] = set()
        """The participants whose frames are queued."""
        self._held_writers: list[Member] = []
        self._holding: asyncio.TimerHandle | None = None
        self._hold_started = 0.0
        self._is_stalled = False
        """The peer read nothing while it held up its writers. It may not hold them up again until it reads."""
        self._pause_credit = delivery.writer_pause
        self._credit_at = loop.time()
        transport.set_write_buffer_limits(high=delivery.write_buffer_bytes)

    @property
    def is_behind(self) -> bool:
        """Whether more messages would be queued."""
        return self._is_paused or bool(self._queue)

    @property
    def unsent_bytes(self) -> int:
        """Everything held in memory for this peer."""
        return self._queued_bytes + int(self._transport.get_write_buffer_size())

    def _may_write(self) -> bool:
        # picows sends a close by itself for malformed frames: nothing may follow it.
        return self.ending is None and not self._ws.is_close_frame_sent

    def use(self, delivery: Delivery) -> None:
        """Apply the settings of the space that the peer joins."""
        self._delivery = delivery
        self._pause_credit = delivery.writer_pause
        self._transport.set_write_buffer_limits(high=delivery.write_buffer_bytes)

    # -- sending ----------------------------------------------------------------------------------

    def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        # The same as _may_write, without a call, because this is called for every delivery.
        if self.ending is not None or self._ws.is_close_frame_sent:
            # Frames for a connection that was lost are not counted as dropped, because the peer can resume.
            if self.ending is Ending.CLOSED:
                for parcel in parcels:
                    if parcel.stream is not None:
                        self._count_drop(parcel)
        elif self._is_paused or self._queue:
            for parcel in parcels:
                if parcel.count > 1 and not self._takes_together(parcel):
                    for each in parcel.each():
                        self._enqueue(each)
                else:
                    self._enqueue(parcel)
        else:
            self._transport.write(data)

    def ping(self) -> None:
        if self._may_write() and not self.is_behind:
            self._transport.write(wsframes.control(wsframes.OP_PING))

    def pong(self, payload: bytes) -> None:
        """Answer a ping. While the peer is behind, only the last ping is answered, or pongs would accumulate."""
        if self._is_paused:
            self._owed_pong = payload
        elif self._may_write():
            self._transport.write(wsframes.control(wsframes.OP_PONG, payload))

    def close(self, reason: CloseReason, text: str | None = None) -> None:
        """Close the connection. What was written before is still sent, if the peer reads it."""
        if self.ending is not None:
            return
        self.ending = Ending.CLOSED
        text = text or reason.value.text
        if self.dropped_frames:
            text = f"{text}; {self.dropped_frames} frames were not delivered"
        self._end(reason.value.code_for(knows_ours=self.knows_close_codes), text, may_abort=reason in _REPLACED)
        if self.on_close is not None:
            self.on_close(reason)

    def answer_close(self, code: int) -> None:
        """Answer the close of the peer. Nothing follows it."""
        if self.ending is None:
            self._end(code, "", may_abort=True)

    def lost(self) -> None:
        """Drop everything that is queued, because the connection is lost."""
        self.ending = self.ending or Ending.LOST
        for entry in self._droppable:
            self._count_drop(entry[0])
        self._queue.clear()
        self._droppable.clear()
        self._queued_bytes = self._dead = 0
        self._release()

    def give_up(self) -> None:
        """Write nothing more, and abort the connection if the peer does not close it."""
        self.lost()
        self._loop.call_later(CLOSE_TIMEOUT, self._transport.abort)

    def _end(self, code: int, text: str, *, may_abort: bool) -> None:
        """``may_abort``: the peer does not read any more, so that a close behind much unsent data would reach
        nobody."""
        if may_abort and self._transport.get_write_buffer_size() > _KEPT_AT_THE_END:
            self.lost()
            self._transport.abort()
            return
        self.give_up()
        # picows remembers that it has sent a close, and does not answer that of the peer with a second one.
        self._ws.send_close(code, wsframes.close_reason(text))  # type: ignore[arg-type]
        if self._ws.close_handshake.recv is not None:
            self._transport.close()

    # -- falling behind ---------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._is_paused = True
        if self.back_pressure is not None:
            self.back_pressure.fell_behind(self)

    def resume_writing(self) -> None:
        self._is_paused = self._is_stalled = False
        owed, self._owed_pong = self._owed_pong, None
        if owed is not None:
            self.pong(owed)
        self._drain()

    def _drain(self) -> None:
        while self._queue and not self._is_paused and self._may_write():
            pieces: list[bytes] = []
            size = 0
            while self._queue and size < _CHUNK:
                entry = self._queue.popleft()
                if not entry:
                    self._dead -= 1
                    continue
                parcel = entry[0]
                if parcel.stream is not None:
                    # Entries leave both queues from the same end, so this is the first droppable one.
                    self._droppable.popleft()
                self._queued_bytes -= _weight(parcel)
                pieces += parcel.pieces(self.positions)
                size += parcel.size
            if pieces:
                self._transport.write(b"".join(pieces))
        if self._queued_bytes < self._delivery.soft_queue_bytes // 2:
            self._release(caught_up=True)
        if not self._queue and not self._is_paused:
            self._feeders.clear()
            if self.on_caught_up is not None:
                self.on_caught_up()

    def _takes_together(self, parcel: Parcel) -> bool:
        """Whether frames that came together are queued together, which shares their bytes with other readers.

        A reader that has kept up may even get more than its queue should hold, because it cannot help how much a writer
        sends at once, and the writer is held now. A reader that is far behind loses its oldest frames: to queue each
        frame alone would make a flood more expensive for readers that do not read than for those that do."""
        if parcel.on_slow == "latest":
            return False
        if self._queued_bytes <= self._delivery.soft_queue_bytes:
            return True
        weight = _weight(parcel)
        if parcel.on_slow == "drop-oldest" and weight <= self._delivery.queue_bytes * _DROPPED_TOGETHER:
            return True
        return self._queued_bytes + weight <= self._delivery.queue_bytes

    def _enqueue(self, parcel: Parcel) -> None:
        if self.ending is not None:  # another parcel of the same turn has closed the connection
            if parcel.stream is not None:
                self._count_drop(parcel)
            return
        is_too_much = self._queued_bytes + _weight(parcel) > self._delivery.queue_bytes
        kept_up = parcel.count > 1 and self._queued_bytes <= self._delivery.soft_queue_bytes
        if is_too_much and not kept_up and not self._make_room(parcel):
            return
        entry = [parcel]
        self._queue.append(entry)
        self._queued_bytes += _weight(parcel)
        if parcel.stream is not None:
            self._droppable.append(entry)
            if parcel.sender is not None:
                self._feeders.add(parcel.sender)
        if self._queued_bytes > self._delivery.soft_queue_bytes and self._holding is None:
            self._hold()

    def _make_room(self, parcel: Parcel) -> bool:
        """Apply the slow-reader policy. Returns whether the parcel may be queued now."""
        if parcel.stream is not None and parcel.on_slow == "disconnect":
            self._count_drop(parcel)
            self.close(CloseReason.SLOW_CONSUMER)
            return False
        if parcel.stream is not None and parcel.on_slow == "latest":
            for entry in self._droppable:
                if entry[0].stream == parcel.stream:
                    self._drop(entry)
            self._droppable = deque(entry for entry in self._droppable if entry)
        limit = self._delivery.queue_bytes - _weight(parcel)
        while self._droppable and self._queued_bytes > limit:
            self._drop(self._droppable.popleft())
        self._compact()
        if self._queued_bytes <= limit:
            return True
        if parcel.stream is not None:
            self._count_drop(parcel)
        else:
            self.close(CloseReason.SLOW_CONSUMER)
        return False

    def _drop(self, entry: list[Parcel]) -> None:
        parcel = entry.pop()
        self._dead += 1
        self._queued_bytes -= _weight(parcel)
        self._count_drop(parcel)

    def _count_drop(self, parcel: Parcel) -> None:
        assert parcel.stream is not None
        self.dropped_frames += parcel.count
        count, first, last = parcel.count, parcel.seq, parcel.last_seq
        before = self.drops.get(parcel.stream)
        if before is not None:
            count += before.count
            first, last = min(before.first_seq, first), max(before.last_seq, last)
        self.drops[parcel.stream] = Drop(count, first, last, parcel.on_slow)

    def _compact(self) -> None:
        """Remove the empty entries of dropped parcels when there are many of them."""
        if self._dead > 1024 and self._dead > len(self._queue) // 2:
            self._queue = deque(entry for entry in self._queue if entry)
            self._dead = 0

    # -- holding up the writers -------------------------------------------------------------------

    def _hold(self) -> None:
        now = self._loop.time()
        earned = (now - self._credit_at) * PAUSE_CREDIT_RATE
        self._pause_credit = min(self._delivery.writer_pause, self._pause_credit + earned)
        self._credit_at = now
        if self.back_pressure is None or self._is_stalled:
            return
        self.back_pressure.fell_behind(self)
        pause = self._delivery.writer_pause if self.back_pressure.are_many_behind() else self._pause_credit
        # Too short to help: the policy applies until there is more credit.
        if pause < self._delivery.writer_pause / 10:
            return
        self._hold_started = now
        self._holding = self._loop.call_later(pause, self._hold_longer, self._queued_bytes)
        self._held_writers = self.back_pressure.hold_writers(self, self._feeders)

    def _hold_longer(self, queued_bytes: int) -> None:
        """The pause is over. If many are behind, this one does not hold up the others, and the writers wait longer: as
        long as the peer keeps reading, or stopped only recently."""
        takes_something = self._queued_bytes < queued_bytes
        pause = self._delivery.writer_pause
        is_patient = takes_something or self._loop.time() - self._hold_started < pause * COMMON_PATIENCE
        if is_patient and self.back_pressure is not None and self.back_pressure.are_many_behind():
            self.back_pressure.fell_behind(self)
            self._holding = self._loop.call_later(pause, self._hold_longer, self._queued_bytes)
        else:
            self._is_stalled = not takes_something
            self._release()

    def _release(self, *, caught_up: bool = False) -> None:
        if self._holding is None:
            return
        self._holding.cancel()
        self._holding = None
        now = self._loop.time()
        # If many were behind and catch up, none of them is slow: the writer is too fast for the space, and its pauses
        # cost the readers nothing.
        if not caught_up or self.back_pressure is None or not self.back_pressure.are_many_behind():
            self._pause_credit = max(0.0, self._pause_credit - (now - self._hold_started))
        self._credit_at = now
        for member in self._held_writers:
            member.release_reading(self)
        self._held_writers = []


def _weight(parcel: Parcel) -> int:
    return parcel.size + _ENTRY_BYTES * parcel.count
