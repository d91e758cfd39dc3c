"""One WebSocket connection to a gateway, between picows and a receiver. No code of the user's runs here."""

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
from mewstream.client.state import State
from mewstream.io.reading import Reading
from mewstream.protocol import close_codes
from mewstream.protocol.errors import LimitExceeded
from mewstream.protocol.fragments import CONTINUATION, Assembler, FragmentError
from mewstream.protocol.frames import BINARY, TEXT

#: The largest message that is accepted from a gateway.
MAX_MESSAGE_BYTES = 64 << 20
#: A connection that has been silent for this long is pinged, and has as long again to answer.
PING_SECONDS = 20.0
#: Senders wait while more than this is buffered.
WRITE_BUFFER_BYTES = 256 << 10
CLOSE_SECONDS = 2.0

_OPCODES = {WSMsgType.TEXT: TEXT, WSMsgType.BINARY: BINARY, WSMsgType.CONTINUATION: CONTINUATION}

logger = logging.getLogger("mewstream.client")


class Receiver(Protocol):
    """Gets what a connection receives. None of these methods may block."""

    def message_received(self, message: bytes, is_text: bool) -> None: ...

    def pong_received(self, payload: bytes) -> None: ...

    def connection_lost(self, connection: Connection, code: int, reason: str) -> None: ...


class Connection(WSListener):
    """One WebSocket. It has one receiver while joining, and another after :meth:`joined`."""

    def __init__(self, receiver: Callable[[Connection], Receiver]) -> None:
        self.state = State.NEW
        self._receiver = receiver(self)
        self._loop = asyncio.get_running_loop()
        self._assembler = Assembler()
        self._close: tuple[int, str] | None = None
        """The code and the reason with which the connection ends, once it is known."""
        self.is_full = False
        """Too much is buffered: senders should wait."""
        self._has_room = asyncio.Event()

    def joined(self, receiver: Receiver) -> None:
        """Note that we have joined. Everything that follows goes to ``receiver``."""
        self.state = State.JOINED
        self._receiver = receiver

    @property
    def is_open(self) -> bool:
        return self.state in (State.JOINING, State.JOINED)

    # -- callbacks of picows ----------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._reading = Reading(self._loop, transport.underlying_transport)
        self.state = State.JOINING
        transport.underlying_transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind == WSMsgType.TEXT and frame.fin:
            self._receiver.message_received(frame.get_payload_as_bytes(), True)
        elif kind == WSMsgType.BINARY and frame.fin:
            self._receiver.message_received(frame.get_payload_as_bytes(), False)
        elif kind == WSMsgType.PONG:
            self._receiver.pong_received(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            payload = frame.get_payload_as_bytes()
            code = int.from_bytes(payload[:2]) if len(payload) >= 2 else close_codes.NO_CODE
            self._ends_with(code, payload[2:].decode(errors="replace"))
            if not transport.is_close_frame_sent:
                transport.send_close()
            transport.disconnect()
        else:
            self._fragment(_OPCODES[kind], frame.fin, frame.get_payload_as_bytes())

    def _fragment(self, opcode: int, is_last: bool, payload: bytes) -> None:
        try:
            whole = self._assembler.add(opcode, is_last, payload, MAX_MESSAGE_BYTES)
        except (FragmentError, LimitExceeded, UnicodeDecodeError) as flaw:
            # The gateway may do better next time, so this connection is lost and the space is not closed.
            logger.warning("the gateway sent fragments that make no message: %s: the connection is cut", flaw)
            self._ends_with(close_codes.ABNORMAL, f"the gateway sent fragments that make no message: {flaw}")
            self.abort()
        else:
            if whole is not None:
                self._receiver.message_received(whole[1], whole[0] == TEXT)

    def _ends_with(self, code: int, reason: str) -> None:
        """Note why the connection is about to end. The first reason counts."""
        self.state = State.CLOSING
        self._close = self._close or (code, reason)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._ends_with(close_codes.ABNORMAL, "it ended without a close")
        self.state = State.GONE
        self.resume_writing()
        # picows has logged what was wrong with the connection. Its exception must be retrieved all the same.
        self._loop.create_task(_retrieve(transport))
        assert self._close is not None
        self._receiver.connection_lost(self, *self._close)

    def pause_writing(self) -> None:
        self.is_full = True
        self._has_room.clear()

    def resume_writing(self) -> None:
        self.is_full = False
        self._has_room.set()

    def is_user_specific_pong(self, frame: WSFrame) -> bool:
        """Whether a pong answers a ping of picows, which is empty. Pings of the link are not."""
        if frame.msg_type != WSMsgType.PONG or frame.payload_size:
            return False
        self._receiver.pong_received(b"")
        return True

    def send_user_specific_ping(self, transport: WSTransport) -> None:
        if self._reading.is_held:
            # While reading is paused the answer cannot be received; picows expects it right after this call.
            self._loop.call_soon(transport.notify_user_specific_pong_received)
        else:
            transport.send_ping()

    # -- sending ----------------------------------------------------------------------------------

    def send(self, message: bytes, *, is_text: bool) -> None:
        self._transport.send(WSMsgType.TEXT if is_text else WSMsgType.BINARY, message)

    def ping(self, payload: bytes) -> None:
        self._transport.send_ping(payload)

    async def writable(self) -> None:
        """Wait while too much is buffered."""
        while self.is_full:
            await self._has_room.wait()

    # -- pausing and closing ----------------------------------------------------------------------

    def hold_reading(self) -> None:
        if self.is_open and not self._reading.is_held:
            self._transport.notify_user_specific_pong_received()
            self._reading.hold(self)

    def release_reading(self) -> None:
        self._reading.release(self)

    async def close(self) -> None:
        """Close in order, and cut the connection if the gateway does not answer the close in time."""
        if not self.is_open:
            return
        self._ends_with(close_codes.NORMAL, "")
        try:
            self._transport.send_close(close_codes.NORMAL)  # type: ignore[arg-type]
            self.release_reading()
            async with asyncio.timeout(CLOSE_SECONDS):
                await _retrieve(self._transport)
        except TimeoutError:
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Cut the connection, if there is one."""
        if self.state not in (State.NEW, State.GONE):
            self.state = State.CLOSING
            self._transport.disconnect(False)


async def _retrieve(transport: WSTransport) -> None:
    """Wait for the end of a connection, and ignore why it ended: the listener knows that already."""
    with contextlib.suppress(Exception):
        await transport.wait_disconnected()


async def open_connection(
    url: str, receiver: Callable[[Connection], Receiver], *, ssl_context: ssl.SSLContext | None, timeout: float
) -> Connection:
    """Connect and upgrade to a WebSocket. Raises :class:`JoinRefused` if the gateway refuses us already (HTTP 401
    or 403), and :class:`ConnectError` for everything that may be better next time."""
    connection = Connection(receiver)
    try:
        async with asyncio.timeout(timeout):
            await ws_connect(
                lambda: connection,
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
        connection.abort()
        raise
    if not connection.is_open:
        raise ConnectError(f"{_shown(url)} closed the connection at once. Is it a gateway?")
    return connection


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
    """Return the address of the gateway's WebSocket: ``http`` becomes ``ws``, ``https`` becomes ``wss``, and an empty
    path becomes ``/ws``. Raises :class:`ConnectError` if this is not an address, or if it contains a secret."""
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
    """Return the address without its query, which might hold a secret."""
    return url.partition("?")[0]
