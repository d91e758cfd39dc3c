"""One WebSocket connection: picows calls us, and we call a receiver. No user code runs here."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from picows import WSAutoPingStrategy, WSError, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from mewstream.client.errors import ConnectError

#: The largest message that is taken from a gateway.
MAX_MESSAGE_BYTES = 64 << 20
#: A connection that is silent for so long is asked whether it lives, and is given as long to answer.
PING_SECONDS = 20.0
#: More than this waiting to be sent holds up the sender.
WRITE_BUFFER_BYTES = 256 << 10
CLOSE_SECONDS = 2.0

_TEXT, _BINARY = WSMsgType.TEXT, WSMsgType.BINARY
_NO_CODE = 1005
_ABNORMAL = 1006


class Receiver(Protocol):
    """Whoever listens to a connection."""

    def message_received(self, message: bytes, is_text: bool) -> None: ...

    def pong_received(self, payload: bytes) -> None: ...

    def connection_lost(self, code: int, reason: str) -> None: ...


class Connection(WSListener):
    """``receiver`` may change while the connection is open: joining has one, the space another."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._fragments: list[bytes] = []
        self._fragments_are_text = False
        self._close: tuple[int, str] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._held: set[object] = set()
        self.is_open = False

    # -- callbacks of picows ----------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
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
            self._fragments = []
            self._fragments_are_text = kind == WSMsgType.TEXT
        self._fragments.append(payload)
        if sum(map(len, self._fragments)) > MAX_MESSAGE_BYTES:
            self._close = (1009, f"the gateway sent a message of more than {MAX_MESSAGE_BYTES} bytes")
            self._transport.disconnect(False)
        elif is_last:
            message = b"".join(self._fragments)
            self._fragments = []
            self.receiver.message_received(message, self._fragments_are_text)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.is_open = False
        self.resume_writing()
        self.receiver.connection_lost(*(self._close or (_ABNORMAL, "the connection was lost")))

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

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

    def hold_reading(self, why: object) -> None:
        """Stop reading until everyone who asked for it has released."""
        if not self._held:
            self._transport.underlying_transport.pause_reading()
        self._held.add(why)

    def release_reading(self, why: object) -> None:
        self._held.discard(why)
        if not self._held and self.is_open:
            with contextlib.suppress(RuntimeError):
                self._transport.underlying_transport.resume_reading()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye; do not wait for ever for the answer."""
        if not self.is_open:
            return
        self._close = self._close or (code, reason)
        self._transport.send_close(code, reason.encode() or None)  # type: ignore[arg-type]
        self._held.clear()
        with contextlib.suppress(RuntimeError):
            self._transport.underlying_transport.resume_reading()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._transport.wait_disconnected()), CLOSE_SECONDS)
        self.abort()

    def abort(self) -> None:
        if self.is_open:
            self._transport.disconnect(False)


async def open_connection(
    url: str, receiver: Callable[[], Receiver], *, ssl_context: ssl.SSLContext | None, timeout: float
) -> Connection:
    """Connect, and upgrade to a WebSocket."""
    try:
        async with asyncio.timeout(timeout):
            _, connection = await ws_connect(
                lambda: Connection(receiver()),
                url,
                ssl_context=ssl_context,
                websocket_handshake_timeout=timeout,
                enable_auto_ping=True,
                auto_ping_idle_timeout=PING_SECONDS,
                auto_ping_reply_timeout=PING_SECONDS,
                auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
                max_frame_size=MAX_MESSAGE_BYTES,
                max_redirects=0,
                logger_name="mewstream.client",
            )
    except TimeoutError:
        raise ConnectError(f"{url} did not answer within {timeout:g} seconds") from None
    except ssl.SSLError as error:
        raise ConnectError(f"cannot speak TLS with {url}: {error.reason or error}") from None
    except OSError as error:
        raise ConnectError(
            f"cannot connect to {url}: {error.strerror or error}. Is the gateway running there?"
        ) from None
    except WSError as error:
        raise ConnectError(f"{url} did not accept a WebSocket: {error}") from None
    assert isinstance(connection, Connection)
    return connection


def websocket_url(url: str) -> str:
    """``http`` means ``ws`` and ``https`` means ``wss``; without a path it is ``/ws``."""
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.hostname:
        raise ConnectError(f"{url!r} is no address of a gateway: expected something like ws://127.0.0.1:8080")
    if parts.username or parts.password or "token=" in parts.query:
        raise ConnectError("there is a secret in the address: give it as token= instead, so that no log has it")
    return urlunsplit((scheme, parts.netloc, parts.path if parts.path not in ("", "/") else "/ws", parts.query, ""))
