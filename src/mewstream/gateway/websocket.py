"""One WebSocket connection: identification first, then a member of a space.

``picows`` parses frames and hands them over; everything sent goes through :class:`Outbound`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport

from mewstream.gateway.closing import CloseReason
from mewstream.gateway.inbound import Assembler, FragmentError, Reading, Throttle
from mewstream.gateway.joining import EXPECTED, JoinRefused, JoinRequest, Resume, parse_join
from mewstream.gateway.outbound import CLOSE_TIMEOUT, Outbound
from mewstream.gateway.resume import CannotResume, Missed
from mewstream.gateway.space import Member, Space
from mewstream.protocol import frames, kinds
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.errors import LimitExceeded, PeerError, ValidationFailed
from mewstream.protocol.policy import Delivery

if TYPE_CHECKING:
    from mewstream.gateway.gateway import Gateway

log = logging.getLogger("mewstream.gateway")

#: A stranger may send a join and nothing else: that is small.
STRANGER_MESSAGE_BYTES = 64 << 10

_KINDS = {frames.TEXT: WSMsgType.TEXT, frames.BINARY: WSMsgType.BINARY}
_OPCODES = {WSMsgType.TEXT: frames.TEXT, WSMsgType.BINARY: frames.BINARY, WSMsgType.CONTINUATION: 0}


class WebSocketMember(WSListener):
    """A peer. Before it has joined, ``space`` is None and only a join is understood."""

    transport_name = "websocket"
    is_listening = True

    def __init__(self, gateway: Gateway, *, space: str | None, token: str | None) -> None:
        self._gateway = gateway
        self._named_space = space
        """From the URL; a join message may name it instead."""
        self._token = token
        """From a header or a subprotocol, until the peer has joined; then it is forgotten."""
        self.space: Space | None = None
        self.participant = ""
        self.session = 0
        self.is_reconnect = False
        self.heard = False
        """A frame has come since the connection was last read."""
        self.heard_at = gateway.loop.time()
        self._gone = False
        self._deaf = False
        """It is being closed, perhaps when the disk has answered: nothing more is heard from it."""
        self._waiting: list[tuple[int, bytes]] | None = None
        """Messages that came while a join was being carried out."""
        self._max_bytes = STRANGER_MESSAGE_BYTES
        self._assembler = Assembler()
        self._work = gateway.work
        self._backlog: deque[Callable[[], None]] = deque()
        """What was read and waits for a later turn of the loop. Nothing is read meanwhile, and all that was read
        already waits behind it."""
        self._is_catching_up = False
        self._recorded_ping: bytes | None = None
        self._run: list[bytes] = []
        """Frames that came together, until the last of them is here."""
        self._run_head = b""
        self._run_kind: WSMsgType | None = None
        self._run_opcode = 0
        self._held_writers: list[Member] = []
        self._join_timer: asyncio.TimerHandle | None = None

    # -- as a member ------------------------------------------------------------------------------

    @property
    def positions(self) -> bool:
        return self.outbound.positions

    def push(self, data: bytes, parcels: Any) -> None:
        self.outbound.push(data, parcels)

    def close(self, reason: CloseReason, text: str | None = None) -> None:
        if self._deaf:
            return
        self._deaf = True
        self._end(partial(self.outbound.close, reason, text))

    def _end(self, end: Callable[[], None]) -> None:
        """When all that was decided before it has been handed over; and a disk that does not answer keeps nobody."""
        if self.space is None:
            end()
            return
        self.space.then(end)
        if self.outbound.is_open:
            self._gateway.loop.call_later(CLOSE_TIMEOUT, end)

    def hold_reading(self, why: object) -> None:
        self.reading.hold(why)

    def release_reading(self, why: object) -> None:
        self.reading.release(why)

    # -- callbacks of the outbound side -----------------------------------------------------------

    def hold_writers(self, outbound: Outbound, writers: set[str]) -> None:
        if self.space is not None:
            self._held_writers = self.space.hold_writers(self, writers)

    def release_writers(self, outbound: Outbound) -> None:
        for member in self._held_writers:
            member.release_reading(self)
        self._held_writers = []

    def is_behind(self, outbound: Outbound) -> None:
        if self.space is not None:
            self.space.is_behind(self)

    def is_common(self) -> bool:
        return self.space is not None and self.space.are_many_behind()

    def caught_up(self, outbound: Outbound) -> None:
        if self.space is not None and outbound.drops:
            self.space.report_drops(self.participant, outbound.drops)

    def _closed_by_us(self, reason: CloseReason) -> None:
        self._gateway.metrics.closes.labels(reason.name.lower()).inc()
        # Not now: a slow connection is closed in the middle of a fan-out, which must end first.
        self._gateway.loop.call_soon(self._leave)

    # -- callbacks of picows ----------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        loop = self._gateway.loop
        self.outbound = Outbound(loop, transport, Delivery())
        self.outbound.watcher = self
        self.outbound.on_close = self._closed_by_us
        self.reading = Reading(loop, transport.underlying_transport)
        self._gateway.connected(self)
        self._join_timer = loop.call_later(self._gateway.config.join_timeout, self._join_timed_out)
        # A token in the header and a known space identify the peer already.
        if self._token is not None and (self._named_space is not None or len(self._gateway.spaces) == 1):
            self._join(JoinRequest())

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._end_run()
        self.outbound.lost()
        self._gateway.disconnected(self)
        # What refers to itself would stay until the collector of cycles comes by.
        self.outbound.watcher = self.outbound.on_close = None
        self._in_order(self._lost)

    def _lost(self) -> None:
        self._gone = True
        self._leave()

    def pause_writing(self) -> None:
        self.outbound.pause_writing()

    def resume_writing(self) -> None:
        self.outbound.resume_writing()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if self._gone or self._deaf or self.outbound.closing is not None:
            if kind == WSMsgType.CLOSE and self.outbound.closing is not None:
                transport.underlying_transport.close()
            return
        self.heard = True
        if kind == self._run_kind and frame.fin and not (frame.rsv1 or frame.rsv2 or frame.rsv3):
            # The hot path: more frames of the stream that the last one was for.
            message = frame.get_payload_as_bytes()
            if (
                message.startswith(self._run_head)
                and len(message) <= self._max_bytes
                and (kind == WSMsgType.BINARY or message.isascii() or _is_utf8(message))
            ):
                self._run.append(message)
                if frame.last_in_buffer:
                    self._end_run()
                return
        self._end_run()
        reserved = bool(frame.rsv1 or frame.rsv2 or frame.rsv3)
        if self._backlog:
            self._wait(partial(self._take, kind, frame.fin, reserved, frame.get_payload_as_bytes()))
            return
        self._take(kind, frame.fin, reserved, frame.get_payload_as_bytes())
        if frame.last_in_buffer:
            self._end_run()

    def _take(self, kind: WSMsgType, fin: bool, has_reserved_bits: bool, payload: bytes) -> None:
        """One WebSocket frame."""
        if has_reserved_bits:
            flaw = ValidationFailed("a frame with reserved bits: no extension of WebSocket was agreed on")
            self._refuse_and_close(flaw, CloseReason.BAD_FRAMING)
        elif fin and kind == WSMsgType.BINARY and not self._assembler.is_open:
            self._message(frames.BINARY, payload)
        elif fin and kind == WSMsgType.TEXT and not self._assembler.is_open:
            self._message(frames.TEXT, payload)
        elif kind == WSMsgType.PING:
            self._pinged(payload)
        elif kind == WSMsgType.PONG:
            pass  # it was heard, which is all that was asked for
        elif kind == WSMsgType.CLOSE:
            self._closed_by_peer(payload)
        else:
            self._fragment(_OPCODES[kind], fin, payload)

    # -- in turns with others ---------------------------------------------------------------------

    def _in_order(self, action: Callable[[], None]) -> None:
        """Behind all that waits, or at once where nothing does."""
        if self._backlog:
            self._wait(action)
        else:
            action()

    def _wait(self, action: Callable[[], None]) -> None:
        """The time of this turn is over, or other things of this connection wait."""
        self._backlog.append(action)
        if len(self._backlog) == 1:
            self._run_kind = None  # no frame may go past what waits
            self.reading.hold(self._work)
            self._catch_up_later()

    def _catch_up_later(self) -> None:
        owed = self._throttle.seconds_owed()
        if owed:
            self._gateway.loop.call_later(owed, self._catch_up_later)
        else:
            self._work.put(self._who, self._catch_up)

    def _catch_up(self) -> None:
        """Carry out what waits first, and leave the rest for the next turn."""
        action = self._backlog[0]
        self._is_catching_up = True
        try:
            if action == self._lost or not (self._gone or self._deaf or self.outbound.closing is not None):
                action()
        finally:
            self._is_catching_up = False
            self._backlog.popleft()
            if self._backlog:
                self._catch_up_later()
            else:
                self.reading.release(self._work)

    def _pinged(self, payload: bytes) -> None:
        """A ping that asks for it is answered when all that came before it is recorded. Of several that
        wait the last one counts, which answers for the others too."""
        if self.space is None or not payload.startswith(frames.RECORDED_PING):
            self.outbound.pong(payload)
            return
        waits, self._recorded_ping = self._recorded_ping, payload
        if waits is None:
            self.space.when_recorded(partial(self._recorded, payload))

    def _recorded(self, payload: bytes) -> None:
        self.outbound.pong(payload)
        newer, self._recorded_ping = self._recorded_ping, None
        if newer is not None and newer is not payload and self.space is not None:
            self._recorded_ping = newer
            self.space.when_recorded(partial(self._recorded, newer))

    def _closed_by_peer(self, payload: bytes) -> None:
        """Answer a close in kind, behind what was decided before it, and hear nothing more."""
        self._gone = True
        code = int.from_bytes(payload[:2]) if payload else 1000
        self._end(partial(self.outbound.answer_close, code if _may_stand_in_a_close(code) else 1002))
        self._leave()

    @property
    def is_ending(self) -> bool:
        return self._gone or self.outbound.closing is not None

    def is_closed_by_parser(self, code: int) -> None:
        """picows has sent a close: a frame was broken, or an error of ours came out of its hands."""
        self._gone = True
        (reason,) = (each for each in CloseReason if each.value.code == code)
        self._gateway.metrics.closes.labels(reason.name.lower()).inc()
        self.outbound.give_up()
        self._leave()

    def has_kept(self, size: int) -> bool:
        """So much was read of the peer and is no whole message yet; of one that has not joined, so much in all.
        Twice the limit is read, so that what is somewhat too large is refused in words. True: it is too much."""
        if size <= 2 * self._max_bytes:
            return False
        if self._gone or self._deaf:
            return True
        flaw = LimitExceeded(f"the message is larger than {self._max_bytes} bytes", limit="message_bytes")
        self._refuse_and_close(flaw, CloseReason.TOO_BIG)
        return True

    # -- joining ----------------------------------------------------------------------------------

    def _first_message(self, message: bytes) -> None:
        try:
            request = parse_join(message)
        except ValidationFailed as flaw:
            self._refuse_and_close(flaw, CloseReason.PROTOCOL_ERROR)
            return
        if request is None:
            stranger = ValidationFailed(f"the first message must identify you: {EXPECTED}")
            self._refuse_and_close(stranger, CloseReason.PROTOCOL_ERROR)
        else:
            self._join(request)

    def _join(self, request: JoinRequest) -> None:
        self.outbound.knows_close_codes = request.knows_extensions
        try:
            space, participant = self._gateway.identify(
                request, named_space=self._named_space, header_token=self._token
            )
            space.check_joins(participant)
        except JoinRefused as refusal:
            self._refuse_and_close(refusal.flaw, refusal.reason)
            return
        self._token = None
        if self._join_timer is not None:
            self._join_timer.cancel()
        self._who = (space.id, participant)
        self.participant = participant
        self.is_reconnect = request.resume is not None
        self._max_bytes = space.config.limits.message_bytes
        self._throttle = Throttle(self._gateway.loop, self.reading, space.config.limits)
        self.outbound.positions = "positions" in request.extensions
        self.outbound.use(space.config.delivery)
        if request.resume is None:
            self._enter(space, None)
        else:
            self._read_missed(space, request.resume, partial(self._enter, space))

    def _enter(self, space: Space, missed: Missed | CannotResume | None) -> None:
        refusal = space.join(self, missed)
        if refusal is None:
            self.space = space
        else:
            self._refuse_and_close(refusal.flaw, refusal.reason)

    def _read_missed(self, space: Space, resume: Resume, then: Callable[[Missed | CannotResume], None]) -> None:
        """Find what the peer has missed, beside the loop if need be; until then nothing is read from it."""
        if not self.outbound.positions:
            then(CannotResume("resume needs the extension positions"))
            return
        self.reading.hold(resume)
        # What is in the buffer already comes all the same: it waits, and above all is no second join.
        self._waiting = []

        def done(task: asyncio.Task[Missed | CannotResume]) -> None:
            waiting, self._waiting = self._waiting or [], None
            self.reading.release(resume)
            if self._gone or self._deaf:
                return
            if task.exception() is not None:
                log.error("the journal could not be read for a resume: %s", task.exception())
                then(CannotResume("the journal could not be read"))
            else:
                then(task.result())
            for opcode, message in waiting:
                if not (self._gone or self._deaf):
                    self._end_run()
                    self._message(opcode, message)
            self._end_run()

        missed = space.missed(self.participant, resume, lambda: not (self._gone or self._deaf))
        self._gateway.spawn(missed).add_done_callback(done)

    def _join_again(self, space: Space, request: JoinRequest) -> None:
        """A join after the header has identified the peer: it must say the same, and may ask for more."""
        header_only = JoinRequest(participant=request.participant, space=request.space, token=request.token)
        try:
            self._gateway.confirm(header_only, space, self.participant)
        except JoinRefused as refusal:
            self._refuse_and_close(refusal.flaw, refusal.reason)
            return
        self.outbound.knows_close_codes |= request.knows_extensions
        if "positions" in request.extensions and not self.outbound.positions:
            space.change_positions(
                self, CannotResume("resume in the first join, not after it") if request.resume else None
            )

    def ask_for_positions(self) -> None:
        self.outbound.positions = True

    def _join_timed_out(self) -> None:
        if self.space is None:
            seconds = self._gateway.config.join_timeout
            flaw = ValidationFailed(f"no join within {seconds:g} seconds: {EXPECTED}")
            self._refuse_and_close(flaw, CloseReason.JOIN_TIMEOUT)

    def _leave(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()
        space = self.space
        if space is not None:
            space.leave(self, heir=self._gateway.heir_of(space, self.participant))
            self.space = None
            space.report_drops(self.participant, self.outbound.drops)

    # -- messages ---------------------------------------------------------------------------------

    def _fragment(self, opcode: int, fin: bool, payload: bytes) -> None:
        self._run_kind = None  # no whole message may come before the last fragment
        try:
            whole = self._assembler.add(opcode, fin, payload, self._max_bytes)
        except FragmentError as flaw:
            self._refuse_and_close(ValidationFailed(str(flaw)), CloseReason.BAD_FRAMING)
        except UnicodeDecodeError:
            self._refuse_and_close(_not_text(), CloseReason.INVALID_TEXT)
        except LimitExceeded as flaw:
            self._refuse_and_close(flaw, CloseReason.TOO_BIG)
        else:
            if whole is not None:
                self._message(*whole)

    def _message(self, opcode: int, message: bytes) -> None:
        if len(message) > self._max_bytes:
            too_big = LimitExceeded(f"the message is larger than {self._max_bytes} bytes", limit="message_bytes")
            self._refuse_and_close(too_big, CloseReason.TOO_BIG)
            return
        # Text goes out as text, and a peer that checks would blame us for what is not UTF-8.
        if opcode == frames.TEXT and not message.isascii() and not _is_utf8(message):
            self._refuse_and_close(_not_text(), CloseReason.INVALID_TEXT)
            return
        if self._waiting is not None:
            self._waiting.append((opcode, message))
            if sum(len(each) for _, each in self._waiting) > STRANGER_MESSAGE_BYTES:
                too_much = LimitExceeded("too much was sent before the welcome", limit="message_bytes")
                self._refuse_and_close(too_much, CloseReason.TOO_BIG)
            return
        space = self.space
        if space is None:
            self._first_message(message)
        elif self._is_catching_up:
            self._carry_out(space, opcode, message)
        elif self._backlog:
            self._wait(partial(self._carry_out, space, opcode, message))
        elif message[:1] == b"#":
            if self._throttle.watches_frames or not self._begin_run(message, opcode):
                self._carry_out(space, opcode, message)
        elif self._work.admits(self._who) and not self._throttle.seconds_owed():
            self._carry_out(space, opcode, message)
        else:
            self._wait(partial(self._carry_out, space, opcode, message))

    def _carry_out(self, space: Space, opcode: int, message: bytes) -> None:
        try:
            if message[:1] == b"#":
                if self._throttle.watches_frames:
                    self._throttle.frame(len(message))
                space.frame(self, message, opcode)
            else:
                self._throttle.envelope(len(message))
                self._envelope(space, message)
                self._throttle.caused(space.caused_bytes)
        except PeerError as flaw:
            space.refuse(self.participant, "", flaw, message)

    def _begin_run(self, message: bytes, opcode: int) -> bool:
        """Frames that come in one piece for one stream are judged together. False: it is no sound frame."""
        end = message.find(b"#", 1)
        if end < 2:
            return False
        self._run_head = message[: end + 1]
        self._run_kind, self._run_opcode = _KINDS[opcode], opcode
        self._run.append(message)
        return True

    def _end_run(self) -> None:
        run = self._run
        if run:
            self._run = []
            space = self.space
            if space is not None:
                for message in space.frames(self, self._run_head, run, self._run_opcode):
                    self._wait(partial(self._carry_out, space, self._run_opcode, message))

    def _envelope(self, space: Space, message: bytes) -> None:
        try:
            envelope = parse_envelope(message, max_id_bytes=space.config.limits.id_bytes)
        except PeerError:
            # The older form of a join has a type and no kind. It is small.
            request = parse_join(message) if len(message) <= STRANGER_MESSAGE_BYTES else None
            if request is None:
                raise
            self._join_again(space, request)
            return
        if envelope.kind == kinds.JOIN:
            self._join_again(space, parse_join(message) or JoinRequest())
        else:
            space.envelope(self.participant, envelope)

    def _refuse_and_close(self, flaw: PeerError, reason: CloseReason) -> None:
        if self.space is not None:
            self.space.refuse(self.participant, "", flaw)
        else:
            self._gateway.tell_stranger(self, flaw)
        self.close(reason)


def _may_stand_in_a_close(code: int) -> bool:
    """RFC 6455, section 7.4, and the registry."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def _not_text() -> ValidationFailed:
    return ValidationFailed("a text message must be UTF-8: send binary data as a binary message")


def _is_utf8(message: bytes) -> bool:
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True
