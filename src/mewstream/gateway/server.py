"""The listening socket: WebSocket and HTTP on one port, TLS, and an orderly end.

A connection is looked at until its request head is complete, then handed to whoever speaks its
protocol: ``picows`` for an upgrade, ``aiohttp`` for everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import re
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import uvloop
from aiohttp import web
from picows import WSAutoPingStrategy
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.http import HttpApi
from mewstream.gateway.inbound import FEW_BYTES, MANY_BYTES, Turns
from mewstream.protocol.errors import ConfigError

log = logging.getLogger("mewstream.gateway")
#: aiohttp would log a traceback for every bad request; errors of our own are logged where they happen.
_silent = logging.getLogger("mewstream.aiohttp")
_silent.setLevel(logging.CRITICAL + 1)

_picows_logger = logging.getLogger("mewstream.picows")
_picows_logger.setLevel(logging.ERROR)


class _PicowsLog(logging.LoggerAdapter[logging.Logger]):
    """What picows says of our own mistakes. A peer's mistake is answered on the wire; in the log it
    would only be a way to fill a disk."""

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        if not str(msg).startswith("WS parser error"):
            super().error(msg, *args, **kwargs)


_picows_log = _PicowsLog(_picows_logger)

MAX_REQUEST_HEAD = 16 << 10
#: How long a drain waits for requests whose bodies do not come.
HTTP_SHUTDOWN_TIMEOUT = 1.0
HEAD_TIMEOUT = 10.0
BACKLOG = 4096
#: picows starts with this much and grows as it must: thousands of idle connections stay small.
READ_BUFFER = 4096
#: Messages make many short-lived objects and no cycles: the collector has little to find.
GC_THRESHOLDS = (20_000, 20, 20)


class _WebSocket(WSProtocol):  # type: ignore[misc]
    """Of picows, with bounded readings. It would grow its buffer to what the system holds for a flooding writer, which
    may be tens of MiB: seconds of work, for which everyone would wait."""

    __slots__ = ("_asked", "_turns")

    def __init__(self, turns: Turns, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turns = turns
        self._asked = 0

    def get_buffer(self, size_hint: int) -> memoryview:
        most = MANY_BYTES if self._turns.is_alone(self) else FEW_BYTES
        buffer: memoryview = super().get_buffer(size_hint)[:most]
        self._asked = len(buffer)
        return buffer

    def buffer_updated(self, size: int) -> None:
        super().buffer_updated(size)
        self._turns.has_read(self)
        if size == self._asked and size >= FEW_BYTES and self.listener is not None:
            self.listener.reading.take_turns()


class Doorman(asyncio.Protocol):
    """Reads one request head and hands the transport over."""

    def __init__(self, gateway: Gateway, turns: Turns, http: Callable[[], asyncio.Protocol]) -> None:
        self._gateway = gateway
        self._turns = turns
        self._http = http
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A transport of uvloop is none of asyncio's classes, only of their shape.
        self._transport = cast(asyncio.Transport, transport)
        self._timer = self._gateway.loop.call_later(HEAD_TIMEOUT, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end > MAX_REQUEST_HEAD or (end < 0 and len(self._received) > MAX_REQUEST_HEAD):
            self._refuse("431 Request Header Fields Too Large")
        elif end >= 0:
            self._stop_waiting()
            self._hand_over(self._received[: end + 2], self._received[end + 2 :])
            self._received = b""

    def _hand_over(self, head: bytes, rest: bytes) -> None:
        assert self._transport is not None
        if not _HEAD.fullmatch(head):
            # Refused here, for those behind us would quote what they do not understand, tokens included.
            self._refuse("400 Bad Request")
        elif _UPGRADE.search(head):
            self._to_websocket(_normalised(head) + rest)
        else:
            protocol = self._http()
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            protocol.data_received(head + rest)

    def _refuse(self, status: str) -> None:
        assert self._transport is not None
        self._transport.write(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
        self._transport.close()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _to_websocket(self, data: bytes) -> None:
        assert self._transport is not None
        protocol = _WebSocket(
            self._turns,
            None,  # host and path are a client's
            None,
            False,
            self._gateway.accept,
            _picows_log,
            True,  # disconnect on an exception of ours
            5,
            False,  # the gateway pings by itself: one timer for all connections
            20,
            20,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            False,  # and pongs by itself, so that nothing is written around Outbound
            # Twice: so that what is somewhat too large is read, and refused in words.
            2 * self._gateway.largest_message,
            None,
            READ_BUFFER,
        )
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        view = memoryview(data)
        while view:
            buffer = protocol.get_buffer(-1)
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            protocol.buffer_updated(size)
            view = view[size:]


_HEAD = re.compile(
    rb"[A-Z]{1,16} [\x21-\x7e]+ HTTP/1\.[01]\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*"
)
_UPGRADE = re.compile(rb"\r\nupgrade:[ \t]*websocket[ \t]*\r\n", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:([^\r]*)", re.IGNORECASE)


def _normalised(head: bytes) -> bytes:
    """picows wants exactly ``Connection: Upgrade``; browsers send ``keep-alive, Upgrade``."""

    def value(match: re.Match[bytes]) -> bytes:
        asked = {each.strip().lower() for each in match[1].split(b",")}
        return b"\r\nConnection: Upgrade" if b"upgrade" in asked else match[0]

    return _CONNECTION.sub(value, head)


class _RequestHandler(web.RequestHandler):
    """aiohttp's, without quoting what it did not understand: there may be a token in it."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        return super().handle_error(request, status, None, "the request cannot be understood")


async def serve(
    config: GatewayConfig,
    *,
    announce: Callable[[str], None],
    working_directory: Path | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT (or ``stop``), then drain. ``announce`` gets the ready line."""
    tls = _tls(config)
    loop = asyncio.get_running_loop()
    scheme = "https" if tls else "http"
    stop = stop or asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: whoever embeds us stops us
            loop.add_signal_handler(number, stop.set)

    listening = await _listen(config, tls)
    host, port = listening.host, listening.port
    gateway = Gateway(
        config,
        base_url=f"{'wss' if tls else 'ws'}://{_reachable(host)}:{port}",
        working_directory=working_directory or Path.cwd(),
    )
    runner = web.AppRunner(
        HttpApi(gateway).application, access_log=None, logger=_silent, shutdown_timeout=HTTP_SHUTDOWN_TIMEOUT
    )
    await runner.setup()
    server = runner.server
    assert server is not None

    def http() -> asyncio.Protocol:
        return _RequestHandler(server, loop=loop, **server._kwargs)

    turns = Turns(loop)
    listening.open(lambda: Doorman(gateway, turns, http))
    for name in config.unused:
        log.warning("%s is accepted and not used: it concerns the reference's process manager", name)
    gc.freeze()  # what is there now stays: the collector need not look at it again
    gc.set_threshold(*GC_THRESHOLDS)
    announce(f"mewstream listening on {scheme}://{host}:{port}")
    try:
        await stop.wait()
        log.info("draining: telling %d connections to reconnect", len(gateway.peers))
    finally:
        listening.server.close()
        await gateway.drain()
        await runner.cleanup()


def _reachable(host: str) -> str:
    """A wildcard is nothing to connect to: gateway.public_url says better, the machine's name is a guess."""
    return socket.gethostname() if host in ("0.0.0.0", "[::]") else host  # noqa: S104


class _Listening:
    """A bound port whose connections wait until the gateway behind it is there."""

    def __init__(self) -> None:
        self.server: asyncio.AbstractServer
        self.host = ""
        self.port = 0
        self._factory: Callable[[], asyncio.Protocol] | None = None

    def open(self, factory: Callable[[], asyncio.Protocol]) -> None:
        self._factory = factory

    def __call__(self) -> asyncio.Protocol:
        if self._factory is None:
            return _Closed()
        return self._factory()


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def _listen(config: GatewayConfig, tls: ssl.SSLContext | None) -> _Listening:
    listening = _Listening()
    loop = asyncio.get_running_loop()
    try:
        listening.server = server = await loop.create_server(
            listening, config.host, config.port, ssl=tls, backlog=BACKLOG
        )
    except OSError as error:
        where = f"{config.host}:{config.port}"
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"cannot listen on {where}: the port is taken; stop the other program or use --port"
            ) from None
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from None
    host, port = server.sockets[0].getsockname()[:2]
    listening.host = f"[{host}]" if ":" in host else host
    listening.port = port
    return listening


def _tls(config: GatewayConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the TLS certificate {config.tls_cert} with its key: {error}") from None
    return context


def run(config: GatewayConfig, *, announce: Callable[[str], None]) -> None:
    """``serve`` on uvloop, from a plain program."""
    uvloop.run(serve(config, announce=announce))
