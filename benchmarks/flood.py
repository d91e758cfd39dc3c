"""A writer floods one space: what does the gateway's memory do, and the latency of another space?

In the flooded space some readers keep up and one never reads. In the other space a few participants
write at a steady rate and read each other; their latency is measured first without the flood, then with it.

    python benchmarks/flood.py
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import msgspec

from mewstream.bench.comparison import run_rounds
from mewstream.bench.metrics import METRICS, Figures, Metric
from mewstream.bench.pattern import Pattern
from mewstream.bench.peer import Peer
from mewstream.bench.rate import steady
from mewstream.bench.resource_usage import resident_bytes
from mewstream.bench.roster import Needs
from mewstream.bench.setup import joined, settle
from mewstream.bench.target import Live, our_gateway
from mewstream.bench.workers import FORK, end_on_sigterm, is_orphan
from mewstream.protocol.errors import ConfigError
from mewstream.protocol.policy import Delivery

METRICS |= {
    "calm_p99_ms": Metric("p99 in the other space, no flood", "ms", "less"),
    "flooded_p99_ms": Metric("p99 in the other space, flood", "ms", "less"),
    "p99_ratio": Metric("p99 with the flood to without", "", "less"),
    "growth_mib": Metric("growth of the gateway in the flood", "MiB", "less"),
    "bound_mib": Metric("what its settings allow", "MiB"),
    "flood_frames_per_second": Metric("frames of the flood", "/s"),
}
#: Growth that is nobody's queue: parse buffers, what the allocator keeps, the journal's batches.
_SLACK = 32 << 20


class Flood(msgspec.Struct, frozen=True, kw_only=True):
    readers: int = 10
    """Who keep up with the flood; one more does not read at all."""
    writers: int = 10
    """In the other space."""
    hz: float = 60.0
    seconds: float = 3.0

    @property
    def needs(self) -> Needs:
        # Not patient: a reader that never reads must not stop the flood.
        return Needs(participants=max(self.readers + 2, self.writers), spaces=2, is_patient=False)

    def measure(self, live: Live) -> Figures:
        if live.pid is None:
            raise ConfigError("flood reads the memory of the gateway: it needs its process")
        flooded, other = live.roster.spaces(live.needs)
        with joined(live, flooded[: self.readers + 2]) as crowd, joined(live, other[: self.writers]) as calm:
            before = self._latency(live, calm)
            flooder, *readers, deaf = crowd
            stream = flooder.open_stream()
            settle(flooder, stream, crowd)
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            start = resident_bytes(live.pid)
            processes = [
                _forked(_flood, flooder, Pattern(stream, 100)),
                _forked(_drain, [*readers, flooder]),
                _forked(_watch_memory, live.pid),
            ]
            try:
                time.sleep(self.seconds / 2)  # the flood is at its height
                began = time.monotonic()
                during = self._latency(live, calm)
                taken = time.monotonic() - began + self.seconds / 2
                frames, _, highest = (_ask(pipe) for _, pipe in processes)
            finally:
                for process, _ in processes:
                    process.kill()
                    process.join()
        delivery = Delivery()
        bound = len(crowd) * (delivery.queue_bytes + delivery.write_buffer_bytes) + _SLACK
        return {
            "calm_p99_ms": before["latency_p99_ms"],
            "flooded_p99_ms": during["latency_p99_ms"],
            "p99_ratio": during["latency_p99_ms"] / before["latency_p99_ms"],
            "growth_mib": (highest - start) / (1 << 20),
            "bound_mib": bound / (1 << 20),
            "flood_frames_per_second": frames / taken,
        }

    def _latency(self, live: Live, peers: Sequence[Peer]) -> Figures:
        for peer in peers:
            peer.socket.setblocking(True)
        return steady(live, peers, peers, hz=self.hz, size=100, seconds=self.seconds)


def _forked(target: object, *args: object) -> tuple[BaseProcess, Connection]:
    ours, pipe = FORK.Pipe()
    process = FORK.Process(target=target, args=(pipe, *args), daemon=True)  # type: ignore[arg-type]
    process.start()
    return process, ours


def _ask(pipe: Connection) -> int:
    """How far it has come."""
    pipe.send(None)
    answer: int = pipe.recv()
    return answer


def _step_back() -> None:
    """Who floods and who reads the flood are on other machines in earnest: here they take what the gateway and
    the other space leave over, or it would be the scheduler of two cores that is measured."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _flood(pipe: Connection, flooder: Peer, pattern: Pattern) -> None:
    """As fast as the socket takes it, whatever becomes of it."""
    view = memoryview(pattern.sent)
    at = total = 0
    flooder.socket.setblocking(False)
    _step_back()
    poll = select.poll()
    poll.register(flooder.socket, select.POLLOUT)
    while not pipe.poll() and not is_orphan():
        if not poll.poll(50):
            continue
        sent = flooder.socket.send(view[at : at + (1 << 14)])
        total += sent
        at = (at + sent) % len(view)
    pipe.send(total // pattern.sent_size)


def _drain(pipe: Connection, peers: Sequence[Peer]) -> None:
    _step_back()
    poll = select.epoll()
    places = {peer.socket.fileno(): peer.socket for peer in peers}
    for place, connection in places.items():
        connection.setblocking(False)
        poll.register(place, select.EPOLLIN)
    buffer = bytearray(1 << 15)
    received = 0
    while not pipe.poll() and not is_orphan():
        for place, _ in poll.poll(0.05):
            received += places[place].recv_into(buffer)
    pipe.send(received)


def _watch_memory(pipe: Connection, pid: int) -> None:
    highest = 0
    while not pipe.poll(0.02) and not is_orphan():
        highest = max(highest, resident_bytes(pid))
    pipe.send(highest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    end_on_sigterm()
    for label, value in run_rounds(Flood(seconds=options.seconds), [our_gateway()], options.rounds).rows():
        print(f"{label:40} {value}")


if __name__ == "__main__":
    main()
