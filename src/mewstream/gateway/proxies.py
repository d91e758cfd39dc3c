"""Trusted proxies, and the addresses of the clients behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Some proxies append a port to an address: ``192.0.2.1:5000``, ``[2001:db8::1]:5000``.
_WITH_PORT = re.compile(r"\[([^\]]*)\](?::\d+)?|([^:]*):\d+")


def parse_address(text: str) -> Address | None:
    """Parse an address, with or without a port. Returns None if it is none. IPv4-mapped addresses become IPv4."""
    found = _WITH_PORT.fullmatch(text)
    if found is not None:
        text = found[1] or found[2] or ""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class Proxies:
    """The trusted proxies. ``X-Forwarded-For`` is ignored if it comes from anybody else."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = networks

    def has(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def client_of(self, forwarded: Iterable[bytes]) -> Address | None:
        """The client that ``X-Forwarded-For`` names: the last address in it that is not a trusted proxy, because that
        one may have invented everything before it. None if there is no valid address."""
        for entry in reversed(b",".join(forwarded).decode("latin-1").split(",")):
            address = parse_address(entry.strip())
            if address is None or not self.has(address):
                return address
        return None
