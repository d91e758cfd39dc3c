"""The upgrade from HTTP to WebSocket: whether it is allowed, and how ``picows`` takes over the connection."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import sys
from typing import Any, NamedTuple

from picows import (
    WSAutoPingStrategy,
    WSProtocolError,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from mewstream.gateway.connections import RETRY_AFTER, Seat, let_go
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.http_message import HttpError, Request
from mewstream.gateway.identity import token_from_headers
from mewstream.gateway.inbound import FEW_BYTES, MANY_BYTES, Turns
from mewstream.gateway.joining import JoinRefused
from mewstream.gateway.origins import REFUSED, Origins
from mewstream.gateway.websocket import WebSocketMember
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.errors import InvalidRequest, LimitExceeded, Unauthorized, ValidationFailed

#: The initial read buffer of picows, which grows if needed. Thousands of idle connections stay small.
READ_BUFFER = 4096
VERSION = b"13"
#: Bytes of one read from a peer that has not joined. A join is small, and a flood must not make others wait.
STRANGER_READ_BYTES = 2 << 10

#: What picows is given in place of the request, which was checked here and may hold a token.
_HEAD = (
    b"GET / HTTP/1.1\r\nHost: -\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n"
)

_picows_logger = logging.getLogger("mewstream.picows")
_picows_logger.setLevel(logging.ERROR)
# picows logs a malformed frame while it handles its WSProtocolError. The peer is told of it on the wire, and in the log
# it would only be a way to fill a disk.
_picows_logger.addFilter(lambda record: not isinstance(sys.exception(), WSProtocolError))
#: An adapter, because picows replaces a plain logger by one of its own for each connection, without our filter.
_picows_log = logging.LoggerAdapter(_picows_logger)


class Accepted(NamedTuple):
    """An upgrade that may take place."""

    listener: WebSocketMember
    key: bytes
    subprotocol: str | None


def is_wanted(request: Request) -> bool:
    """Whether a request asks for WebSocket. Other protocols that it offers are ignored (RFC 9110, 7.8)."""
    return b"websocket" in request.tokens(b"upgrade")


def judge(gateway: Gateway, origins: Origins, request: Request, seat: Seat) -> Accepted:
    """Check the handshake, the origin and the subprotocol. The participant is identified by its join.

    A script cannot see why its browser was refused a connection. So a page is refused after the upgrade, by a close
    with a reason; anybody else is refused at once. Raises :class:`HttpError`."""
    key = _key_of(request)
    if gateway.draining:
        raise HttpError(503, InvalidRequest("the gateway is draining: reconnect to another or later"))
    if not seat.claim(request.values(b"x-forwarded-for")):
        text = "there are too many connections from your address: close some, or try again later"
        raise HttpError(503, LimitExceeded(text, limit="connections_per_address", retry_after=RETRY_AFTER))
    presented = token_from_headers(request.credentials())
    origin = request.values(b"origin")
    refusal = None
    if not origins.allows(request, is_proxied=seat.is_proxied):
        gateway.refused_visitors.page(origin[0].decode("latin-1"), seat.address)
        refusal = JoinRefused(Unauthorized(REFUSED), CloseReason.ORIGIN_REFUSED)
    elif presented.problem is not None:
        gateway.refused_visitors.token(seat.address, space=None, participant=None)
        if not origin:
            raise HttpError(401, Unauthorized(presented.problem))
        refusal = JoinRefused(Unauthorized(presented.problem), CloseReason.BAD_TOKEN)
    listener = WebSocketMember(
        gateway,
        space=request.query.get("space"),
        token=presented.token,
        join_follows=presented.join_follows,
        address=seat.address,
        refusal=refusal,
    )
    return Accepted(listener, key, presented.echo_subprotocol)


def _key_of(request: Request) -> bytes:
    """Check that a handshake has what RFC 6455 (4.2.1) demands, and return its key."""
    if request.method != "GET":
        raise HttpError(405, ValidationFailed("an upgrade to WebSocket must be a GET"), Allow="GET")
    if not request.is_http_1_1:
        raise HttpError(400, ValidationFailed("an upgrade to WebSocket must be HTTP/1.1"))
    if b"upgrade" not in request.tokens(b"connection"):
        text = "Connection: Upgrade is missing beside Upgrade: websocket: perhaps a proxy in between leaves it out"
        raise HttpError(400, ValidationFailed(text))
    if request.has_body:
        raise HttpError(400, ValidationFailed("an upgrade to WebSocket must have no body"))
    if list(request.values(b"sec-websocket-version")) != [VERSION]:
        text = "the Sec-WebSocket-Version is not known, expected 13"
        raise HttpError(426, ValidationFailed(text), Upgrade="websocket", Sec_WebSocket_Version="13")
    keys = request.values(b"sec-websocket-key")
    try:
        good = len(keys) == 1 and len(base64.b64decode(keys[0], validate=True)) == 16
    except binascii.Error:
        good = False
    if not good:
        raise HttpError(400, ValidationFailed("the Sec-WebSocket-Key is missing, or not 16 bytes in base64"))
    return keys[0]


#: The buffer for what a peer sends after it was refused.
_DISCARDED = memoryview(bytearray(MANY_BYTES))


class _WebSocket(WSProtocol):  # type: ignore[misc]
    """The protocol of picows with bounded reads and a bounded buffer.

    picows would grow its buffer to what the system holds for a flooding writer, which may be tens of MiB: seconds of
    work, for which everyone would wait. And it would keep the largest message of any space even for a peer that has not
    joined."""

    __slots__ = ("_asked", "_few", "_is_discarding", "_kept", "_loop", "_seat", "_turns")

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns, seat: Seat, **options: Any) -> None:
        super().__init__(**options)
        self._loop = loop
        self._turns = turns
        self._seat = seat
        self._asked = 0
        self._few = STRANGER_READ_BYTES
        self._kept = 0
        """Bytes read since the last whole frame, or all bytes read if the peer has not joined."""
        self._is_discarding = False

    def get_buffer(self, size_hint: int) -> memoryview:
        if self._is_discarding:
            return _DISCARDED
        most = MANY_BYTES if self._few == FEW_BYTES and self._turns.is_alone(self) else self._few
        buffer: memoryview = super().get_buffer(size_hint)[:most]
        self._asked = len(buffer)
        return buffer

    def buffer_updated(self, size: int) -> None:
        if self._is_discarding:
            return
        super().buffer_updated(size)
        self._turns.has_read(self)
        listener: WebSocketMember = self.listener
        if self.transport.is_close_frame_sent and listener.outbound.ending is None:
            # picows would parse the malformed frame again with every byte that follows it.
            self._is_discarding = True
            listener.closed_by_parser(self.transport.close_handshake.sent.code)
            return
        heard, listener.heard = listener.heard, False
        if heard:
            listener.heard_at = self._loop.time()
        if heard and listener.space is not None:
            self._kept = 0
            self._few = FEW_BYTES
        else:
            self._kept += size
            self._is_discarding = listener.is_too_much(self._kept)
        if size == self._asked and size >= self._few:
            listener.reading.take_turns()

    def connection_lost(self, exc: Exception | None) -> None:
        self._seat.leave()
        super().connection_lost(exc)
        let_go(self.transport.underlying_transport)


def hand_over(
    gateway: Gateway, turns: Turns, transport: asyncio.Transport, accepted: Accepted, rest: bytes, seat: Seat
) -> None:
    """Hand the connection over to picows, with what the peer has sent after its request."""

    def answer(request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
        headers = {} if accepted.subprotocol is None else {"Sec-WebSocket-Protocol": accepted.subprotocol}
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(headers), accepted.listener)

    protocol = _WebSocket(
        gateway.loop,
        turns,
        seat,
        is_client_side=False,
        host_port=None,  # this and the path only clients need
        ws_path=None,
        ws_listener_factory=answer,
        logger=_picows_log,
        disconnect_on_exception=True,
        websocket_handshake_timeout=5,  # seconds, of which none pass: the request was read already
        enable_auto_ping=False,  # the gateway pings, with one timer for all connections, so that these do nothing:
        auto_ping_idle_timeout=20,
        auto_ping_reply_timeout=20,
        auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
        enable_auto_pong=False,  # the gateway sends them, because everything is written by Outbound
        # Twice the limit, so that a message that is somewhat too large can be refused with an explanation.
        max_frame_size=2 * gateway.largest_message,
        extra_headers=None,
        read_buffer_init_size=READ_BUFFER,
    )
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    view = memoryview(_HEAD % accepted.key + rest)
    while view:
        buffer = protocol.get_buffer(-1)
        size = min(len(buffer), len(view))
        buffer[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]
