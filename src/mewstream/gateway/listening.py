"""The listening sockets, which accept connections, and close them at once if there are too many.

asyncio's own server would report a TLS connection only after its handshake, so that peers that never finish one could
take any number of descriptors. Therefore connections are accepted here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Any

from mewstream.gateway.connections import RETRY_AFTER, Connections, Seat
from mewstream.gateway.http_message import Response
from mewstream.io.log_lines import event
from mewstream.protocol.errors import ConfigError

log = logging.getLogger("mewstream.gateway")

BACKLOG = 4096
#: Connections that are accepted in one turn of the event loop.
ACCEPTED_PER_TURN = 32
#: Seconds for which nothing is accepted after an error of the system, which mostly has no descriptor or memory left.
PAUSE = 0.2
#: Seconds that a peer has to confirm the end of a TLS connection.
TLS_SHUTDOWN_TIMEOUT = 2.0

#: Errors of accept() that concern one connection only, which has failed before it was accepted.
_OF_ONE_CONNECTION = frozenset(
    {
        *(errno.ENETDOWN, errno.EPROTO, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.EHOSTUNREACH),
        *(errno.EOPNOTSUPP, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EPERM),
    }
)


class Listening:
    """Bound sockets. Connections wait in the queue of the system until :meth:`start` is called."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._is_complaining = False
        host, self.port = sockets[0].getsockname()[:2]
        self.host = f"[{host}]" if ":" in host else host
        self.is_local = all(ip_address(each.getsockname()[0]).is_loopback for each in sockets)
        """Only programs on this machine can connect."""

    def start(
        self,
        connections: Connections,
        protocol: Callable[[Seat], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_timeout: float,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Accept connections, and make a protocol for each."""
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
                self._refuse(accepted)
            else:
                self._spawn(self._connect(accepted, seat))

    async def _connect(self, accepted: socket.socket, seat: Seat) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._protocol(seat), accepted, **self._options)
        except OSError:
            # The peer has closed the connection, takes too long for the handshake, or does not speak TLS.
            seat.leave()

    def _refuse(self, accepted: socket.socket) -> None:
        """Close a connection, because there are too many. Over TLS there is no way to say so."""
        if self._tls is None:
            head = Response(status=503, headers=(("Retry-After", str(RETRY_AFTER)),)).head(close=True)
            try:
                accepted.send(head)
            except OSError:
                pass
        accepted.close()

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Accept nothing for a while. Connections wait in the queue of the system."""
        if not self._is_complaining:
            self._is_complaining = True
            log.error("connections cannot be accepted at the moment: %s", error.strerror, extra=event("cannot_accept"))
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(PAUSE, self._listen_to, listening)


async def listen(host: str, port: int) -> Listening:
    """Bind every address of a host. Raises :class:`ConfigError` if that is impossible."""
    sockets: list[socket.socket] = []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            if family in (socket.AF_INET, socket.AF_INET6):
                sockets.append(socket.create_server(address, family=family, backlog=BACKLOG))
                sockets[-1].setblocking(False)
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
