"""The listening sockets: connections are let in, or closed at once where there are too many.

They are accepted here and not by the event loop, which hands a TLS connection over only when its handshake is done:
until then strangers could hold any number of descriptors.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from mewstream.gateway.connections import RETRY_AFTER, Connections, Seat
from mewstream.gateway.http_message import Response
from mewstream.protocol.errors import ConfigError

log = logging.getLogger("mewstream.gateway")

BACKLOG = 4096
#: So many connections are accepted in one turn of the loop.
ACCEPTED_PER_TURN = 32
#: How long nothing is accepted after the system could not do it: most often it has no descriptor left, or no memory.
PAUSE = 0.2
#: How long a peer may take to say that it has seen the end of a TLS connection.
TLS_SHUTDOWN_TIMEOUT = 2.0

#: What Linux reports of a connection that has failed before it was accepted. It says nothing of the others.
_OF_ONE_CONNECTION = frozenset(
    {
        *(errno.ENETDOWN, errno.EPROTO, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.EHOSTUNREACH),
        *(errno.EOPNOTSUPP, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EPERM),
    }
)


class Listening:
    """Sockets that are bound. Connections wait in them until :meth:`start`."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._is_complaining = False
        host, self.port = sockets[0].getsockname()[:2]
        self.host = f"[{host}]" if ":" in host else host

    def start(
        self,
        connections: Connections,
        protocol: Callable[[Seat], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_timeout: float,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Let connections in, each with the seat that it has been given."""
        self._connections = connections
        self._protocol = protocol
        self._tls = tls
        self._spawn = spawn
        self._options: dict[str, Any] = {}
        if tls is not None:
            self._options = {
                "ssl": tls,
                "ssl_handshake_timeout": handshake_timeout,
                "ssl_shutdown_timeout": TLS_SHUTDOWN_TIMEOUT,
            }
        for each in self._sockets:
            self._listen_to(each)

    def close(self) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
            each.close()
        self._sockets = []

    def _listen_to(self, listening: socket.socket) -> None:
        if listening in self._sockets:  # it may have been closed during a pause
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue
            except OSError as error:
                if error.errno in _OF_ONE_CONNECTION:
                    continue
                self._pause(listening, error)
                return
            self._is_complaining = False
            accepted.setblocking(False)
            seat = self._connections.admit(peer)
            if seat is None:
                self._turn_away(accepted)
            else:
                self._spawn(self._connect(accepted, seat))

    async def _connect(self, accepted: socket.socket, seat: Seat) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._protocol(seat), accepted, **self._options)
        except OSError:
            # A peer's affair: it went away, took too long for a handshake, or does not speak TLS.
            seat.leave()

    def _turn_away(self, accepted: socket.socket) -> None:
        """There are too many. Over TLS there is no way to say so."""
        if self._tls is None:
            head = Response(status=503, headers=(("Retry-After", str(RETRY_AFTER)),)).head(close=True)
            try:
                accepted.send(head)
            except OSError:
                pass
        accepted.close()

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Connections wait in the queue of the system meanwhile."""
        if not self._is_complaining:
            self._is_complaining = True
            log.error("connections cannot be accepted at the moment: %s", error.strerror)
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(PAUSE, self._listen_to, listening)


async def listen(host: str, port: int) -> Listening:
    """Bind every address of a host."""
    sockets: list[socket.socket] = []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            if family in (socket.AF_INET, socket.AF_INET6):
                sockets.append(_bound(family, address))
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, "the name has no address")
        return Listening(sockets)
    except OSError as error:
        for each in sockets:
            each.close()
        where = f"{host}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"cannot listen on {where}: the port is taken; stop the other program or use --port"
            ) from None
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from None


def _bound(family: int, address: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
