"""Limits on open connections, in all and from one address, that leave enough descriptors for the journal.

Every connection takes a file descriptor, and so does every file of the journal. Anybody may open connections, but none
may take the descriptor that the journal needs for its next segment.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, IPv6Network

from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.proxies import Address, Proxies, parse_address
from mewstream.io.log_lines import event

#: Seconds after which a peer whose connection was refused may try again.
RETRY_AFTER = 5

log = logging.getLogger("mewstream.gateway")

#: Descriptors for standard streams, the listening sockets, the event loop, logs, and threads that read the journal.
_PROCESS_DESCRIPTORS = 64
#: Descriptors of a partition, which writes a segment and its index, and seals, snapshots and prunes meanwhile.
_PARTITION_DESCRIPTORS = 8
#: Descriptors for the logs of a space and for files that it opens briefly.
_SPACE_DESCRIPTORS = 2
#: At least this many connections are accepted, whatever the limits of the process are.
_FEWEST = 16
#: The default limit for one address, so that others can still connect when one has opened as many as it may.
_SHARE_OF_ONE_ADDRESS = 3 / 4
#: More descriptors than this are never needed, and some systems report "infinite" although they have a limit.
_MOST_DESCRIPTORS = 1 << 20


class Connections:
    """Counts the open connections. Each has a seat, which it leaves when it is lost."""

    def __init__(
        self, *, most: int, most_per_address: int, refused: Callable[[str], None], proxies: Proxies | None = None
    ) -> None:
        self.most = most
        self.most_per_address = most_per_address
        self.proxies = proxies or Proxies()
        self._refused = refused
        self._count = 0
        self._by_address: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    def admit(self, peer: object) -> Seat | None:
        """Count a new connection. ``peer`` is the address of its other end, as the socket reports it.

        Returns its seat, or None if there are too many connections."""
        if self._count >= self.most:
            self._refused("connections")
            return None
        address = parse_address(str(peer[0])) if isinstance(peer, tuple) and peer else None
        is_proxy = address is not None and self.proxies.has(address)
        name = _name_of(address)
        if not is_proxy and not self.take(name):
            return None
        self._count += 1
        return Seat(self, name, is_proxy=is_proxy)

    def take(self, name: str) -> bool:
        """Count one more connection of an address. Returns False if it has too many."""
        of_address = self._by_address.get(name, 0)
        if of_address >= self.most_per_address:
            self._refused("connections_per_address")
            return False
        self._by_address[name] = of_address + 1
        return True

    def leave(self, name: str | None) -> None:
        self._count -= 1
        if name is not None:
            left = self._by_address[name] - 1
            if left:
                self._by_address[name] = left
            else:
                del self._by_address[name]


class Seat:
    """The place of one connection among those that are counted."""

    __slots__ = ("_connections", "_is_counted", "_name", "is_proxied")

    def __init__(self, connections: Connections, name: str, *, is_proxy: bool) -> None:
        self._connections: Connections | None = connections
        self._name = name
        self.is_proxied = is_proxy
        """It comes from a trusted proxy."""
        self._is_counted = not is_proxy
        """Connections of a trusted proxy carry requests of many clients, so they count for no address."""

    def claim(self, forwarded: Sequence[bytes]) -> bool:
        """Count the connection for the client that has it alone from now on. If it comes from a trusted proxy, the
        lines of ``X-Forwarded-For`` name that client. Returns False if the client has too many connections."""
        if self._is_counted or self._connections is None:
            return True
        client = self._connections.proxies.client_of(forwarded)
        if client is not None:
            self._name = _name_of(client)
        self._is_counted = self._connections.take(self._name)
        return self._is_counted

    @property
    def address(self) -> str:
        """The address or, for IPv6, the network that the connection is counted for; empty if it is not known."""
        return self._name

    def leave(self) -> None:
        """End the count of this connection. Further calls do nothing."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.leave(self._name if self._is_counted else None)


class _Nobody(asyncio.BufferedProtocol):
    """The protocol of a transport that has lost its connection."""


def let_go(transport: asyncio.BaseTransport) -> None:
    """Release the protocol of a transport whose connection is lost.

    Over TLS, uvloop's transport refers to methods of the protocol, which refers to the transport. Without this, a
    quarter of a MiB would stay in memory until the next garbage collection, which is rare."""
    transport.set_protocol(_Nobody())


def _name_of(address: Address | None) -> str:
    """The name that connections are counted by. For IPv6 it is the /64 network, which mostly belongs to one client."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> 64 << 64, 64)))
    return "" if address is None else str(address)


# -- descriptors ----------------------------------------------------------------------------------


def raise_descriptor_limit() -> int:
    """Raise the limit on descriptors as far as the system allows. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # the system has a lower limit that it does not report
            pass
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, _MOST_DESCRIPTORS)


def connection_limits(config: GatewayConfig, descriptors: int) -> tuple[int, int]:
    """The number of connections that are allowed, in all and from one address."""
    kept_back = _PROCESS_DESCRIPTORS + sum(
        _SPACE_DESCRIPTORS + sum(each.output_log is not None for each in space.participants.values())
        for space in config.spaces.values()
    )
    if config.data is not None:
        kept_back += _PARTITION_DESCRIPTORS * config.journal.partitions
    possible = max(descriptors - kept_back, _FEWEST)
    most = possible if config.connections is None else config.connections
    if most > possible or descriptors - kept_back < _FEWEST:
        log.warning(
            "this process may have %d descriptors, which is enough for %d connections beside the journal: "
            "raise the limit (ulimit -n)",
            descriptors,
            possible,
            extra=event("few_descriptors"),
        )
        most = min(most, possible)
    per_address = config.connections_per_address
    if per_address is None:
        per_address = max(1, int(most * _SHARE_OF_ONE_ADDRESS))
    return most, min(per_address, most)
