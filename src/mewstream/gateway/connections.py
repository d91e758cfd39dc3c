"""How many connections may be open, in all and from one address, and the descriptors that are kept from them.

Every connection has a descriptor, and so has every file of the journal. Strangers may open connections as long as they
like; they must never get the descriptor that the journal needs for its next segment.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, IPv6Network

from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.proxies import Address, Proxies, parse_address

#: Seconds after which a peer that was turned away may try again.
RETRY_AFTER = 5

log = logging.getLogger("mewstream.gateway")

#: For standard streams, the listening socket, the event loop, logs, threads that read history.
_PROCESS_DESCRIPTORS = 64
#: A partition writes a segment and its index, and seals, snapshots and prunes beside that.
_PARTITION_DESCRIPTORS = 8
#: Logs and whatever else a space opens for a moment.
_SPACE_DESCRIPTORS = 2
#: At least this many connections are taken, whatever the limits of the process are.
_FEWEST = 16
#: The default for one address: the others can still connect while somebody opens as many as it gets.
_SHARE_OF_ONE_ADDRESS = 3 / 4
#: More than this is no limit in practice, and some systems say "infinite" where they have one.
_MOST_DESCRIPTORS = 1 << 20


class Connections:
    """The connections that are open. Each has a seat, which it leaves when it is lost."""

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
        """``peer`` is the name of the other end, as the transport gives it. None: there are too many."""
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
        """One more of this address, if there may be one."""
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
    """The place of one connection."""

    __slots__ = ("_connections", "_is_counted", "_name")

    def __init__(self, connections: Connections, name: str, *, is_proxy: bool) -> None:
        self._connections: Connections | None = connections
        self._name = name
        self._is_counted = not is_proxy
        """A proxy's own connections carry requests of many: they count for no address."""

    def claim(self, forwarded: Sequence[bytes]) -> bool:
        """The connection becomes one peer's own. Where a proxy stands between, that peer's address is counted from now
        on, as the lines of ``X-Forwarded-For`` tell it. False: it has too many."""
        if self._is_counted or self._connections is None:
            return True
        client = self._connections.proxies.client_of(forwarded)
        if client is not None:
            self._name = _name_of(client)
        self._is_counted = self._connections.take(self._name)
        return self._is_counted

    def leave(self) -> None:
        """Once or more often."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.leave(self._name if self._is_counted else None)


class _Nobody(asyncio.BufferedProtocol):
    """Of a transport that has lost its connection."""


def let_go(transport: asyncio.BaseTransport) -> None:
    """A connection is lost. Over TLS, uvloop keeps the methods of the protocol, which has the transport: neither would
    go before the collector of cycles comes by, which is seldom, and meanwhile they keep a quarter of a MiB."""
    transport.set_protocol(_Nobody())


def _name_of(address: Address | None) -> str:
    """The address that connections are counted by. For IPv6 it is the /64 network, which mostly belongs to one peer."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> 64 << 64, 64)))
    return "" if address is None else str(address)


# -- descriptors ----------------------------------------------------------------------------------


def raise_descriptor_limit() -> int:
    """Take as many descriptors as the system allows this process; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # the system has a bound that it does not tell
            pass
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, _MOST_DESCRIPTORS)


def connection_limits(config: GatewayConfig, descriptors: int) -> tuple[int, int]:
    """How many connections there may be, in all and from one address."""
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
        )
        most = min(most, possible)
    per_address = config.connections_per_address
    if per_address is None:
        per_address = max(1, int(most * _SHARE_OF_ONE_ADDRESS))
    return most, min(per_address, most)
