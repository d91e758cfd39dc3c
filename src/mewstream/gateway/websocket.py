"""One WebSocket connection: it identifies a participant, and is then a member of a space.

``picows`` parses WebSocket frames and calls :meth:`WebSocketMember.on_ws_frame`. Everything that is sent goes through
:class:`~mewstream.gateway.outbound.Outbound`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport

from mewstream.gateway.fanout import Parcel
from mewstream.gateway.history_reader import HistoryReader
from mewstream.gateway.joining import EXPECTED, JoinRefused, JoinRequest, parse_join
from mewstream.gateway.outbound import CLOSE_TIMEOUT, Ending, Outbound
from mewstream.gateway.replay import Backlog, ResumeRefused
from mewstream.gateway.space import Newcomer, Space
from mewstream.gateway.token_expiry import TokenExpiry
from mewstream.io.log_lines import event
from mewstream.io.reading import Reading
from mewstream.protocol import frames, kinds
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.envelope import Envelope, parse_envelope
from mewstream.protocol.errors import LimitExceeded, PeerError, ValidationFailed
from mewstream.protocol.fragments import Assembler, FragmentError
from mewstream.protocol.interest import Interest, interest_of_join
from mewstream.protocol.policy import Delivery
from mewstream.protocol.position import Position
from mewstream.protocol.utf8 import is_utf8

if TYPE_CHECKING:
    from mewstream.gateway.gateway import Gateway

log = logging.getLogger("mewstream.gateway")

#: Bytes that a peer may send before it has joined. A join is small.
STRANGER_MESSAGE_BYTES = 64 << 10
#: What a message that waits for the welcome counts beyond its size, so that empty ones are bounded too.
EARLY_MESSAGE_BYTES = 32

_KINDS = {frames.TEXT: WSMsgType.TEXT, frames.BINARY: WSMsgType.BINARY}
_OPCODES = {WSMsgType.TEXT: frames.TEXT, WSMsgType.BINARY: frames.BINARY, WSMsgType.CONTINUATION: 0}


class ConnectionState(IntEnum):
    """How far a connection has come. It may skip a state, and never goes back."""

    NEW = auto()
    """It is not identified, and may only join."""
    JOINING = auto()
    """It is identified, and its backlog is being read. Messages that it sends meanwhile wait."""
    JOINED = auto()
    """It is a member of its space."""
    CLOSING = auto()
    """One side has decided to close it. What the peer sends is ignored; what was decided before is still sent."""
    GONE = auto()
    """It is lost."""


_CLOSING = ConnectionState.CLOSING


class WebSocketMember(WSListener):
    """One peer. ``space`` is None unless it is a member of one."""

    transport_name = "websocket"
    is_listening = True
    push: Callable[[bytes, Sequence[Parcel]], None]
    """The method of ``outbound``, which saves a call for every delivery."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        space: str | None,
        token: str | None,
        join_follows: bool = False,
        address: str = "",
        refusal: JoinRefused | None = None,
    ) -> None:
        self._gateway = gateway
        self._named_space = space
        """The space in the URL. A join message may name it instead."""
        self._token = token
        """The token from a header or a subprotocol. It is forgotten when the peer is identified."""
        self._join_follows = join_follows
        self._address = address
        self._refusal = refusal
        """Why the peer is refused as soon as it is connected."""
        self.connection: int | None = gateway.number_connection()
        """Its number in this run of the gateway, for the log."""
        self.state = ConnectionState.NEW
        self.space: Space | None = None
        self._who = ("", "")
        """The space and the participant that its token has identified."""
        self.participant = ""
        self.session = 0
        self.is_reconnect = False
        self.extensions: list[str] | None = None
        self.interest: Interest | None = None
        self.heard = False
        """Whether a frame has arrived since this was last reset."""
        self.heard_at = gateway.loop.time()
        self._early: list[tuple[int, bytes]] = []
        """Messages that arrived while it was joining, with their opcodes."""
        self._early_bytes = 0
        self._max_bytes = STRANGER_MESSAGE_BYTES
        self._assembler = Assembler()
        self._work = gateway.work
        self._history: HistoryReader | None = None
        self._deferred: deque[Callable[[], object]] = deque()
        """Work that waits for a later turn of the event loop. Reading pauses meanwhile, and what was already read waits
        behind it."""
        self._is_catching_up = False
        self._recorded_ping: bytes | None = None
        self._run: list[bytes] = []
        """Raw frames for one stream that arrived in one read, and are handled together."""
        self._run_stream = ""
        self._run_head = b""
        self._run_kind: WSMsgType | None = None
        self._run_opcode = 0
        self._form_after_join = frames.Form.POSITIONS
        """What a second join has asked for."""
        self._join_timer: asyncio.TimerHandle | None = None
        self._token_expiry = TokenExpiry(gateway.loop)

    def _advance(self, state: ConnectionState) -> None:
        """Go to a state, unless the connection has come further already."""
        self.state = max(self.state, state)

    @property
    def _is_ended(self) -> bool:
        return self.state >= _CLOSING

    # -- as a member ------------------------------------------------------------------------------

    @property
    def positions(self) -> frames.Form:
        return self.outbound.positions

    def close(self, reason: CloseReason, text: str | None = None) -> None:
        if not self._is_ended:
            self._advance(ConnectionState.CLOSING)
            self._end(partial(self.outbound.close, reason, text))

    def _end(self, end: Callable[[], None]) -> None:
        """Call ``end`` after everything that was decided before, but do not wait for ever for the journal."""
        if self.space is None:
            end()
            return
        self.space.outbox.then(end)
        if self.outbound.ending is None:
            self._gateway.loop.call_later(CLOSE_TIMEOUT, end)

    def read_history(self, envelope: Envelope, stream_id: str) -> None:
        assert self.space is not None
        if self._history is None:
            self._history = HistoryReader(self, self.space, self._gateway.spawn)
        self._history.ask(envelope, stream_id)

    def hold_reading(self, why: object) -> None:
        self.reading.hold(why)

    def release_reading(self, why: object) -> None:
        self.reading.release(why)

    def _event(self, name: str, reason: CloseReason | None = None) -> dict[str, Any]:
        """The ``extra`` of a log line about this connection."""
        space, participant = self._who
        why = reason.name.lower() if reason is not None else None
        return event(name, space=space or None, participant=participant or None, connection=self.connection, reason=why)

    # -- callbacks of the outbound side -----------------------------------------------------------

    def _caught_up(self) -> None:
        if self._history is not None:
            self._history.has_room()
        if self.space is not None and self.outbound.drops:
            self.space.report_drops(self.participant, self.outbound.drops)

    def _closed_by_us(self, reason: CloseReason) -> None:
        self._advance(ConnectionState.CLOSING)
        self._gateway.metrics.closes.labels(reason.name.lower()).inc()
        log.debug("a WebSocket is closed: %s", reason.name.lower(), extra=self._event("closed", reason))
        # Later, because a slow connection is closed in the middle of a fan-out, which must end first.
        self._gateway.loop.call_soon(self._leave)

    # -- callbacks of picows ----------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        loop = self._gateway.loop
        self.outbound = Outbound(loop, transport, Delivery())
        self.push = self.outbound.push
        self.outbound.on_close = self._closed_by_us
        self.outbound.on_caught_up = self._caught_up
        self.reading = Reading(loop, transport.underlying_transport)
        self._gateway.connected(self)
        ids = event("connected", connection=self.connection, address=self._address or None)
        log.debug("a WebSocket was opened, from %s", self._address or "a socket without an address", extra=ids)
        if self._refusal is not None:
            self._refuse_and_close(self._refusal.flaw, self._refusal.reason)
            return
        self._join_timer = loop.call_later(self._gateway.config.join_timeout, self._join_timed_out)
        # A token in the header and a known space identify the peer already, unless it says that a join follows.
        is_known = self._named_space is not None or len(self._gateway.spaces) == 1
        if self._token is not None and is_known and not self._join_follows:
            self._join(JoinRequest())

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._end_run()
        self.outbound.lost()
        self._gateway.disconnected(self)
        log.debug("a WebSocket was lost", extra=self._event("disconnected"))
        # Without these references there is no cycle, and the memory is free at once.
        self.outbound.on_caught_up = self.outbound.on_close = None
        if self._deferred:
            self._wait(self._lost)  # behind everything that was read before
        else:
            self._lost()

    def _lost(self) -> None:
        self._advance(ConnectionState.GONE)
        self._leave()

    def pause_writing(self) -> None:
        self.outbound.pause_writing()

    def resume_writing(self) -> None:
        self.outbound.resume_writing()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if self.state >= _CLOSING:
            if kind == WSMsgType.CLOSE and self.outbound.ending is Ending.CLOSED:
                transport.underlying_transport.close()  # the peer has answered our close
            return
        self.heard = True
        if kind == self._run_kind and frame.fin and not (frame.rsv1 or frame.rsv2 or frame.rsv3):
            # The hot path: more frames of the stream that the last one was for.
            message = frame.get_payload_as_bytes()
            if (
                message.startswith(self._run_head)
                and len(message) <= self._max_bytes
                and (kind == WSMsgType.BINARY or message.isascii() or is_utf8(message))
            ):
                self._run.append(message)
                if frame.last_in_buffer:
                    self._end_run()
                return
        if self._run:
            self._end_run()
        reserved = bool(frame.rsv1 or frame.rsv2 or frame.rsv3)
        if self._deferred:
            self._wait(partial(self._take, kind, frame.fin, reserved, frame.get_payload_as_bytes()))
            return
        self._take(kind, frame.fin, reserved, frame.get_payload_as_bytes())
        if self._run and frame.last_in_buffer:
            self._end_run()

    def _take(self, kind: WSMsgType, fin: bool, has_reserved_bits: bool, payload: bytes) -> None:
        """Handle one WebSocket frame."""
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
            pass  # a ping only asks whether the peer is alive
        elif kind == WSMsgType.CLOSE:
            self._closed_by_peer(payload)
        else:
            self._fragment(_OPCODES[kind], fin, payload)

    # -- in turns with others ---------------------------------------------------------------------

    def _in_turn(self, action: Callable[[], object]) -> None:
        """Do something now if this turn has time, nothing waits, and the rate limits allow it; otherwise later."""
        if self._is_catching_up or (
            not self._deferred and self._work.admits(self._who) and not self._throttle.seconds_owed()
        ):
            action()
        else:
            self._wait(action)

    def _wait(self, action: Callable[[], object], *, first: bool = False) -> None:
        """Do something in a later turn of the event loop. ``first``: before everything else that waits, because it is
        the rest of what was being done."""
        self._run_kind = None  # no frame may overtake what waits
        if first:
            self._deferred.appendleft(action)
        else:
            self._deferred.append(action)
        if len(self._deferred) == 1 and not self._is_catching_up:
            self.reading.hold(self._work)
            self._catch_up_later()

    def _catch_up_later(self) -> None:
        owed = self._throttle.seconds_owed()
        if owed:
            self._gateway.loop.call_later(owed, self._catch_up_later)
        else:
            self._work.put(self._who, self._catch_up)

    def _catch_up(self) -> None:
        """Do the first thing that waits, and leave the rest for the next turn."""
        action = self._deferred.popleft()
        self._is_catching_up = True
        try:
            if action == self._lost or not self._is_ended:
                action()
                self._end_run()
        finally:
            self._is_catching_up = False
            if self._deferred:
                self._run_kind = None
                self._catch_up_later()
            else:
                self.reading.release(self._work)

    def _pinged(self, payload: bytes) -> None:
        """Answer a ping, if it asks for that only when everything before it is recorded. Of several that wait, only the
        last is answered, which answers the others too."""
        if self.space is None or not payload.startswith(frames.RECORDED_PING):
            self.outbound.pong(payload)
            return
        self.space.refusals.tell_sums(self.participant)
        waits, self._recorded_ping = self._recorded_ping, payload
        if waits is None:
            self.space.outbox.when_recorded(partial(self._recorded, payload))

    def _recorded(self, payload: bytes) -> None:
        self.outbound.pong(payload)
        newer, self._recorded_ping = self._recorded_ping, None
        if newer is not None and newer is not payload and self.space is not None:
            self._recorded_ping = newer
            self.space.outbox.when_recorded(partial(self._recorded, newer))

    def _closed_by_peer(self, payload: bytes) -> None:
        """Answer the close of the peer, after everything that was decided before it."""
        self._advance(ConnectionState.CLOSING)
        code = int.from_bytes(payload[:2]) if payload else 1000
        self._end(partial(self.outbound.answer_close, code if _may_stand_in_a_close(code) else 1002))
        self._leave()

    def closed_by_parser(self, code: int) -> None:
        """End a connection that picows has closed, because of a malformed frame or an internal error."""
        self._advance(ConnectionState.CLOSING)
        self._gateway.metrics.closes.labels(CloseReason.of(code).name.lower()).inc()
        self.outbound.give_up()
        self._leave()

    def is_too_much(self, size: int) -> bool:
        """Whether ``size`` bytes are too many for one message, or for everything that a peer sends before it has
        joined. If so, the connection is closed. Twice the limit is read, so that a message that is a little too large
        can be refused with an explanation."""
        if size <= 2 * self._max_bytes:
            return False
        if not self._is_ended:
            self._refuse_and_close(self._too_large(), CloseReason.TOO_BIG)
        return True

    def _too_large(self) -> LimitExceeded:
        return LimitExceeded(f"the message is larger than {self._max_bytes} bytes", limit="message_bytes")

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
        reading = self._gateway.identities.newer_keys((self._token, request.token))
        if reading is None:
            self._join_identified(request)
        else:
            self._advance(ConnectionState.JOINING)
            self._after(reading, partial(self._join_identified, request))

    def _after(self, reading: asyncio.Task[None], action: Callable[[], None]) -> None:
        """Do something when newer keys have been read. Nothing is read from the peer meanwhile."""
        self.reading.hold(reading)

        def go_on(reading: asyncio.Task[None]) -> None:
            self.reading.release(reading)
            if not self._is_ended:
                action()
                self._take_early()

        reading.add_done_callback(go_on)

    def _join_identified(self, request: JoinRequest) -> None:
        try:
            space, identity = self._gateway.identify(request, named_space=self._named_space, header_token=self._token)
            participant = identity.participant
            self._who = (space.id, participant)
            space.check_joins(participant)
        except JoinRefused as refusal:
            if refusal.reason is CloseReason.BAD_TOKEN:
                name = self._named_space if request.space is None else request.space
                self._gateway.log_wrong_token(name, request.participant, self._address, self.connection)
            else:
                self._log_refused_join(refusal.reason)
            self._refuse_and_close(refusal.flaw, refusal.reason)
            return
        try:
            self.interest = interest_of_join(request.interest, space.config.limits)
        except PeerError as flaw:
            self._refuse_and_close(flaw, CloseReason.PROTOCOL_ERROR)
            return
        self._advance(ConnectionState.JOINING)
        self._token = None
        self._token_expiry.claims = identity.claims
        if self._join_timer is not None:
            self._join_timer.cancel()
        self.participant = participant
        self.is_reconnect = request.resume is not None
        self.extensions = sorted(request.extensions) if request.knows_extensions else None
        self._max_bytes = space.config.limits.message_bytes
        self._throttle = space.throttle(participant, self.reading)
        self.outbound.positions = request.form
        self.outbound.use(space.config.delivery)
        if request.resume is None:
            self._enter(space, None)
        else:
            self._resume(space, request.resume)

    def _log_refused_join(self, reason: CloseReason) -> None:
        self._gateway.refused_visitors.join(
            self._address,
            reason.name.lower(),
            space=self._who[0] or None,
            participant=self._who[1] or None,
            connection=self.connection,
        )

    def _enter(self, space: Space, backlog: Backlog | ResumeRefused | None) -> None:
        refusal = space.join(self, backlog, self._token_expiry.claims)
        if refusal is None:
            self.space = space
            self._token_expiry.watch(space, self)
            self.outbound.back_pressure = space.back_pressure
            self._advance(ConnectionState.JOINED)
        else:
            self._log_refused_join(refusal.reason)
            self._refuse_and_close(refusal.flaw, refusal.reason)

    def _resume(self, space: Space, resume: Position) -> None:
        """Read the backlog of the peer, in a thread if necessary, and then join the space."""
        if not self.outbound.positions:
            self._enter(space, ResumeRefused("resume needs the extension positions"))
            return
        # Messages that are in the read buffer still arrive. They wait, so that none is taken for a second join.
        self.reading.hold(resume)
        backlog = space.replay.backlog(self.participant, resume, lambda: not self._is_ended, self.positions)
        self._gateway.spawn(backlog).add_done_callback(partial(self._resumed, space, resume))

    def _resumed(self, space: Space, resume: Position, task: asyncio.Task[Backlog | ResumeRefused]) -> None:
        self.reading.release(resume)
        if self._is_ended:
            return
        if task.exception() is not None:
            log.error(
                "the journal could not be read for a resume: %s",
                task.exception(),
                extra=self._event("journal_unreadable"),
            )
            self._enter(space, ResumeRefused("the journal could not be read"))
        else:
            self._enter(space, task.result())
        self._take_early()

    def _take_early(self) -> None:
        """Handle what the peer sent before it was a member."""
        if self.state is not ConnectionState.JOINED:
            return
        early, self._early = self._early, []
        for opcode, message in early:
            if not self._is_ended:
                self._end_run()
                self._message(opcode, message)
        self._end_run()

    def _join_again(self, space: Space, request: JoinRequest) -> None:
        """Handle a join of a peer that its token has identified before. It must agree, and may ask for
        extensions."""
        reading = self._gateway.identities.newer_keys((request.token,))
        if reading is not None:
            self._after(reading, partial(self._join_again, space, request))
            return
        try:
            identity = self._gateway.confirm(request, space, self.participant)
        except JoinRefused as refusal:
            self._refuse_and_close(refusal.flaw, refusal.reason)
            return
        if identity is not None and identity.claims is not None:
            self._token_expiry.refresh(space, self, identity.claims)
        self.outbound.knows_close_codes |= request.knows_extensions
        asked = request.extensions.difference(self.extensions or ())
        if not asked:
            return
        try:
            self.interest = interest_of_join(request.interest, space.config.limits)
        except PeerError as flaw:
            self._refuse_and_close(flaw, CloseReason.PROTOCOL_ERROR)
            return
        if request.form > self.outbound.positions:
            self._form_after_join = request.form
        self.extensions = sorted(asked.union(self.extensions or ()))
        no = ResumeRefused("resume in the first join, not after it") if request.resume is not None else None
        space.change_extensions(Newcomer(self, no))

    def ask_for_positions(self) -> None:
        self.outbound.positions = self._form_after_join

    def _join_timed_out(self) -> None:
        if self.state is ConnectionState.NEW:
            seconds = self._gateway.config.join_timeout
            flaw = ValidationFailed(f"no join within {seconds:g} seconds: {EXPECTED}")
            self._refuse_and_close(flaw, CloseReason.JOIN_TIMEOUT)

    def _leave(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()
        self._token_expiry.cancel()
        space = self.space
        if self._history is not None:
            self._history.stop()
            self._history = None
        if space is not None:
            space.leave(self, heir=self._gateway.heir_of(space, self.participant))
            self.space = None
            self.outbound.back_pressure = None
            space.report_drops(self.participant, self.outbound.drops)

    # -- messages ---------------------------------------------------------------------------------

    def _fragment(self, opcode: int, fin: bool, payload: bytes) -> None:
        self._run_kind = None  # until the last fragment, no whole message may follow
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
            self._refuse_and_close(self._too_large(), CloseReason.TOO_BIG)
            return
        # Text is delivered as text, and readers would have to close their connections if it is not UTF-8.
        if opcode == frames.TEXT and not message.isascii() and not is_utf8(message):
            self._refuse_and_close(_not_text(), CloseReason.INVALID_TEXT)
            return
        if self.state is ConnectionState.JOINING:
            self._early.append((opcode, message))
            self._early_bytes += len(message) + EARLY_MESSAGE_BYTES
            if self._early_bytes > STRANGER_MESSAGE_BYTES:
                too_much = LimitExceeded("too much was sent before the welcome", limit="message_bytes")
                self._refuse_and_close(too_much, CloseReason.TOO_BIG)
            return
        space = self.space
        if space is None:
            self._first_message(message)
        elif message[:1] != b"#":
            self._in_turn(partial(self._envelope, space, message))
        elif self._throttle.watches_frames or self._deferred:
            self._in_turn(partial(self._begin_run, space, opcode, message))
        else:
            self._begin_run(space, opcode, message)

    def _envelope(self, space: Space, message: bytes) -> None:
        try:
            self._throttle.charge(len(message))
            request = None
            try:
                envelope = parse_envelope(message, max_id_bytes=space.config.limits.id_bytes)
            except PeerError:
                # The older form of a join has a type and no kind. It is small.
                request = parse_join(message) if len(message) <= STRANGER_MESSAGE_BYTES else None
                if request is None:
                    raise
            if request is None and envelope.kind == kinds.JOIN:
                request = parse_join(message) or JoinRequest()
            if request is not None:
                self._join_again(space, request)
            else:
                space.envelope(self.participant, envelope)
            self._throttle.caused(space.broadcast.caused_bytes)
        except PeerError as flaw:
            space.refuse(self.participant, "", flaw, message)

    def _begin_run(self, space: Space, opcode: int, message: bytes) -> None:
        """Begin a run with the first frame for a stream. Frames that follow in the same read are handled together with
        it. A malformed frame is refused in turn, because a refusal takes far longer than a frame."""
        try:
            self._run_stream, start = frames.split_frame(
                message, max_id_bytes=space.config.limits.id_bytes, has_id=bool(self.outbound.positions)
            )
        except PeerError as flaw:
            self._run_kind = None
            self._in_turn(partial(space.refuse, self.participant, "frame", flaw, message))
            return
        self._run_head = message[:start]
        self._run_kind, self._run_opcode = _KINDS[opcode], opcode
        self._run.append(message)

    def _end_run(self) -> None:
        """Handle the frames that arrived together."""
        if not self._run:
            return
        messages, self._run = self._run, []
        if self._throttle.watches_frames:
            self._throttle.charge(sum(map(len, messages)), frames=len(messages))
        start = len(self._run_head)
        self._send_frames(self._run_stream, [message[start:] for message in messages], self._run_opcode)

    def _send_frames(self, stream: str, data: Sequence[bytes], opcode: int) -> None:
        if self.space is not None and (left := self.space.frames(self, stream, data, opcode)):
            self._wait(partial(self._send_frames, stream, left, opcode), first=True)

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
