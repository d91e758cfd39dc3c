"""One WebSocket connection: picows calls us, and we call a receiver. No user code runs here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from picows import (
    WSAutoPingStrategy,
    WSError,
    WSFrame,
    WSHandshakeError,
    WSListener,
    WSMsgType,
    WSTransport,
    ws_connect,
)

from mewstream.client.errors import ConnectError, JoinRefused

#: The largest message that is taken from a gateway.
MAX_MESSAGE_BYTES = 64 << 20
#: A connection that is silent for so long is asked whether it lives, and is given as long to answer.
PING_SECONDS = 20.0
#: More than this waiting to be sent holds up the sender.
WRITE_BUFFER_BYTES = 256 << 10
CLOSE_SECONDS = 2.0

_TEXT, _BINARY = WSMsgType.TEXT, WSMsgType.BINARY
_NO_CODE = 1005
#: The connection was lost without a close.
ABNORMAL = 1006

logger = logging.getLogger("mewstream.client")


class Receiver(Protocol):
    """Whoever listens to a connection."""

    def message_received(self, message: bytes, is_text: bool) -> None: ...

    def pong_received(self, payload: bytes) -> None: ...

    def connection_lost(self, connection: Connection, code: int, reason: str) -> None: ...


class Connection(WSListener):
    """``receiver`` may change while the connection is open: joining has one, the space another."""

    def __init__(self, receiver: Callable[[Connection], Receiver]) -> None:
        self.receiver = receiver(self)
        self._loop = asyncio.get_running_loop()
        self._fragments: list[bytes] | None = None
        self._fragments_size = 0
        self._fragments_are_text = False
        self._close: tuple[int, str] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._is_held = False
        self._gone = asyncio.Event()
        self.is_open = False

    # -- callbacks of picows ----------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self.is_open = True
        transport.underlying_transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind == _TEXT and frame.fin:
            self.receiver.message_received(frame.get_payload_as_bytes(), True)
        elif kind == _BINARY and frame.fin:
            self.receiver.message_received(frame.get_payload_as_bytes(), False)
        elif kind == WSMsgType.PONG:
            self.receiver.pong_received(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            payload = frame.get_payload_as_bytes()
            if self._close is None:
                code = int.from_bytes(payload[:2]) if len(payload) >= 2 else _NO_CODE
                self._close = (code, payload[2:].decode(errors="replace"))
            if not transport.is_close_frame_sent:
                transport.send_close()
            transport.disconnect()
        else:
            self._fragment(kind, frame.fin, frame.get_payload_as_bytes())

    def _fragment(self, kind: WSMsgType, is_last: bool, payload: bytes) -> None:
        if kind != WSMsgType.CONTINUATION:
            self._fragments, self._fragments_size = [], 0
            self._fragments_are_text = kind == WSMsgType.TEXT
        if self._fragments is None:
            self._break(1002, "the gateway sent the middle of a message without its beginning")
            return
        self._fragments.append(payload)
        # An empty fragment costs memory too.
        self._fragments_size += len(payload) + 64
        if self._fragments_size > MAX_MESSAGE_BYTES:
            self._break(1009, f"the gateway sent a message of more than {MAX_MESSAGE_BYTES} bytes")
        elif is_last:
            message = b"".join(self._fragments)
            self._fragments = None
            self.receiver.message_received(message, self._fragments_are_text)

    def _break(self, code: int, reason: str) -> None:
        """The gateway speaks no WebSocket. It may do better next time, so this is a loss and not an end."""
        self._fragments = None
        logger.warning("%s (%d): the connection is cut", reason, code)
        self._close = self._close or (ABNORMAL, reason)
        self._transport.disconnect(False)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.is_open = False
        self._gone.set()
        self.resume_writing()
        # What picows has found wrong with the connection is in its log; nobody else asks for it.
        self._loop.create_task(_retrieve(transport))
        self.receiver.connection_lost(self, *(self._close or (ABNORMAL, "it ended without a close")))

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def is_user_specific_pong(self, frame: WSFrame) -> bool:
        """The answer to a ping of picows, which is empty: others are answers to pings of ours."""
        if frame.msg_type != WSMsgType.PONG or frame.payload_size:
            return False
        self.receiver.pong_received(b"")
        return True

    def send_user_specific_ping(self, transport: WSTransport) -> None:
        if self._is_held:
            # While we do not read we cannot hear the answer; picows expects it right after this call.
            self._loop.call_soon(transport.notify_user_specific_pong_received)
        else:
            transport.send_ping()

    # -- sending ----------------------------------------------------------------------------------

    def send(self, message: bytes, *, is_text: bool) -> None:
        self._transport.send(WSMsgType.TEXT if is_text else WSMsgType.BINARY, message)

    def ping(self, payload: bytes) -> None:
        self._transport.send_ping(payload)

    async def writable(self) -> None:
        """Wait while more waits to be sent than should."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    @property
    def is_full(self) -> bool:
        return self._writable is not None

    # -- holding and closing ----------------------------------------------------------------------

    def hold_reading(self) -> None:
        if not self._is_held and self.is_open:
            self._is_held = True
            self._transport.notify_user_specific_pong_received()
            # We are in the middle of a read: a TLS transport that is paused there keeps what it has not handed over
            # yet, and after a resume gives it only when the gateway sends more.
            self._loop.call_soon(self._hold_or_release)

    def release_reading(self) -> None:
        if self._is_held:
            self._is_held = False
            self._hold_or_release()

    def _hold_or_release(self) -> None:
        transport = self._transport.underlying_transport
        if not self.is_open or transport.is_closing():
            return
        if self._is_held:
            transport.pause_reading()
        else:
            transport.resume_reading()

    async def close(self, code: int = 1000) -> None:
        """Say goodbye; do not wait for ever for the answer."""
        if not self.is_open:
            return
        try:
            self._close = self._close or (code, "")
            self._transport.send_close(code)  # type: ignore[arg-type]
            self.release_reading()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), CLOSE_SECONDS)
        finally:
            self.abort()

    def abort(self) -> None:
        if self.is_open:
            self._transport.disconnect(False)


async def _retrieve(transport: WSTransport) -> None:
    with contextlib.suppress(Exception):
        await transport.wait_disconnected()


async def open_connection(
    url: str, receiver: Callable[[Connection], Receiver], *, ssl_context: ssl.SSLContext | None, timeout: float
) -> Connection:
    """Connect, and upgrade to a WebSocket."""
    made: list[Connection] = []

    def make() -> Connection:
        made.append(Connection(receiver))
        return made[0]

    try:
        async with asyncio.timeout(timeout):
            await ws_connect(
                make,
                url,
                ssl_context=ssl_context,
                websocket_handshake_timeout=timeout,
                enable_auto_ping=True,
                auto_ping_idle_timeout=PING_SECONDS,
                auto_ping_reply_timeout=PING_SECONDS,
                auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
                max_frame_size=MAX_MESSAGE_BYTES,
                max_redirects=0,
                logger_name=logger,
            )
    except TimeoutError:
        raise ConnectError(f"{_shown(url)} did not answer within {timeout:g} seconds") from None
    except ssl.SSLError as error:
        raise ConnectError(f"cannot speak TLS with {_shown(url)}: {_tls_reason(error)}") from None
    except OSError as error:
        raise ConnectError(
            f"cannot connect to {_shown(url)}: {error.strerror or error}. Is the gateway running there?"
        ) from None
    except UnicodeError:
        raise ConnectError(f"cannot connect to {_shown(url)}: that is no name of a host") from None
    except WSHandshakeError as error:
        raise _not_upgraded(url, error) from None
    except WSError as error:
        raise ConnectError(f"{_shown(url)} did not accept a WebSocket: {error}") from None
    except BaseException:
        for connection in made:
            connection.abort()
        raise
    if not made or not made[0].is_open:
        raise ConnectError(f"{_shown(url)} closed the connection at once. Is it a gateway?")
    return made[0]


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    return str(error.reason or error)


def _not_upgraded(url: str, error: WSHandshakeError) -> ConnectError:
    status = error.response.status if error.response is not None else None
    if status is None:
        return ConnectError(f"{_shown(url)} did not accept a WebSocket. Is it a gateway?")
    text = f"{_shown(url)} did not accept a WebSocket: HTTP {int(status)} {status.phrase}"
    return JoinRefused(text, code=int(status)) if status in (401, 403) else ConnectError(text)


def websocket_url(url: str) -> str:
    """``http`` means ``ws`` and ``https`` means ``wss``; without a path it is ``/ws``."""
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    if parts.username or parts.password or "token=" in parts.query:
        raise ConnectError("there is a secret in the address: give it as token= instead, so that no log has it")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    try:
        is_usable = scheme in ("ws", "wss") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConnectError(f"{url!r} is no address of a gateway: expected something like ws://127.0.0.1:8080")
    return urlunsplit((scheme, parts.netloc, parts.path if parts.path not in ("", "/") else "/ws", parts.query, ""))


def _shown(url: str) -> str:
    """Without the query: nobody knows what is in it."""
    return url.partition("?")[0]
