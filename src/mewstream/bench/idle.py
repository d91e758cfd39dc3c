"""Memory of the gateway for connections that do nothing."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

import msgspec

from mewstream.bench.metrics import Figures
from mewstream.bench.peer import Peer
from mewstream.bench.resource_usage import cpu_seconds, resident_bytes
from mewstream.bench.roster import Needs
from mewstream.bench.setup import joined
from mewstream.bench.target import Live
from mewstream.protocol.errors import ConfigError


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 1000
    spaces: int = 10
    seconds: float = 3.0
    """How long the connections are idle before the memory is measured."""

    @property
    def needs(self) -> Needs:
        return Needs(participants=-(-self.connections // self.spaces), spaces=self.spaces)

    def measure(self, live: Live) -> Figures:
        if live.pid is None:
            raise ConfigError("idle reads the memory of the gateway: give its process with --pid, or use --spawn")
        spaces = live.roster.spaces(live.needs)
        # In turns, so that all spaces grow evenly.
        people = [each for turn in zip(*spaces, strict=True) for each in turn][: self.connections]
        before = resident_bytes(live.pid)
        with joined(live, people) as peers:
            _attend(peers, self.seconds / 2)
            used = cpu_seconds(live.pid)
            _attend(peers, self.seconds / 2)
            after = resident_bytes(live.pid)
            used = cpu_seconds(live.pid) - used
        return {
            "connections": float(len(people)),
            "kib_per_connection": (after - before) / 1024 / len(people),
            "gateway_mib": after / (1 << 20),
            "gateway_cpu": used / (self.seconds / 2),
        }


def _attend(peers: Sequence[Peer], seconds: float) -> None:
    """Read what arrives and answer pings, so that the gateway closes no connection."""
    poll = select.epoll()
    places = {peer.socket.fileno(): peer for peer in peers}
    for place in places:
        poll.register(place, select.EPOLLIN)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        for place, _ in poll.poll(left):
            places[place].attend()
