"""Where a connection comes from: proxies that are trusted say for whom they stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Some proxies write a port behind an address: ``192.0.2.1:5000``, ``[2001:db8::1]:5000``.
_WITH_PORT = re.compile(r"\[([^\]]*)\](?::\d+)?|([^:]*):\d+")


def parse_address(text: str) -> Address | None:
    """None: it is no address. One of IPv4 in the clothes of IPv6 is what it is."""
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
    """The proxies whose word counts. Anybody else may write ``X-Forwarded-For``, and nobody reads it."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = networks

    def has(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def client_of(self, forwarded: Iterable[bytes]) -> Address | None:
        """The last one in the lines of ``X-Forwarded-For`` that is no proxy of ours: that one may have made up what
        stands before it. None: they do not say."""
        for entry in reversed(b",".join(forwarded).decode("latin-1").split(",")):
            address = parse_address(entry.strip())
            if address is None or not self.has(address):
                return address
        return None
