"""Writers at a steady rate, everyone reads: latency, and the rate at which it becomes too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from mewstream.bench import wire
from mewstream.bench.errors import BenchError, Overloaded
from mewstream.bench.fanout import cpu_figures, flow_figures
from mewstream.bench.metrics import Figures
from mewstream.bench.order import OrderReader, SharedOrder, Stamped, percentile
from mewstream.bench.peer import PATIENCE, Peer
from mewstream.bench.readers import ReaderPool
from mewstream.bench.resource_usage import cpu_seconds, own_cpu_seconds
from mewstream.bench.roster import Needs
from mewstream.bench.setup import joined, settle
from mewstream.bench.target import Live
from mewstream.bench.writers import for_seconds, send_at_rate

#: The ramp multiplies the rate by this factor until one fails, and then halves the interval this many times.
_FACTOR = 1.5
_HALVINGS = 3
_MOST_STEPS = 40
#: A rate is too high if it fails this many times in a row. A single failure may be the fault of the machine.
_TRIES = 3
#: The ramp gives up at a rate this many times below the first one.
_GIVE_UP = 100


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Writers send at a steady rate, and everyone reads everything. ``readers`` are additional and only read."""

    writers: int = 20
    readers: int = 0
    hz: float = 60.0
    """Frames per second of each writer; with ``ramp``, the first rate that is tried."""
    size: int = 100
    seconds: float = 3.0
    ramp: bool = False
    bound_ms: float = 5.0
    """The highest acceptable p99 latency, in milliseconds."""
    binary: bool = False
    workers: int = 1

    @property
    def needs(self) -> Needs:
        return Needs(participants=self.writers + self.readers)

    def measure(self, live: Live) -> Figures:
        return self._climb(live) if self.ramp else self._at(live, self.hz)

    def _at(self, live: Live, hz: float) -> Figures:
        with joined(live, live.people) as peers:
            return steady(
                live,
                peers[: self.writers],
                peers,
                hz=hz,
                size=self.size,
                seconds=self.seconds,
                opcode=wire.BINARY if self.binary else wire.TEXT,
                workers=self.workers,
            )

    def _climb(self, live: Live) -> Figures:
        """Find the highest rate at which the p99 is within the bound and all frames are delivered."""
        best: Figures | None = None
        good, bad, hz = 0.0, 0.0, self.hz
        for _ in range(_MOST_STEPS):
            tries = (self._try(live, hz) for _ in range(_TRIES))
            figures = next((found for found in tries if found is not None), None)
            if figures is not None:
                best, good = figures, hz
            else:
                bad = hz
            if not bad:
                hz *= _FACTOR
            elif not good:
                hz /= _FACTOR * 2
                if hz < self.hz / _GIVE_UP:
                    break
            elif bad / good < _FACTOR ** (1 / 2**_HALVINGS) * 1.001:
                break
            else:
                hz = (good * bad) ** 0.5
        if best is None:
            raise BenchError(
                f"no rate was found at which the p99 is below {self.bound_ms:g} ms: raise --bound, lower --hz, "
                "or let the machine do nothing else"
            )
        return best | {"knee_deliveries_per_second": best["deliveries_per_second"]}

    def _try(self, live: Live, hz: float) -> Figures | None:
        """The figures at a rate; None if the gateway does not keep up."""
        try:
            figures = self._at(live, hz)
        except Overloaded:
            return None
        asked = figures["offered_deliveries_per_second"]
        kept_up = figures["latency_p99_ms"] <= self.bound_ms and figures["deliveries_per_second"] >= asked * 0.9
        return figures if kept_up else None


def steady(
    live: Live,
    writers: Sequence[Peer],
    peers: Sequence[Peer],
    *,
    hz: float,
    size: int,
    seconds: float,
    opcode: int = wire.TEXT,
    workers: int = 1,
) -> Figures:
    """Send ``hz`` frames per second from each writer to all of ``peers``."""
    streams = [writer.open_stream() for writer in writers]
    recipients, received = settle(writers[0], streams[0], peers, opcode=opcode)
    silent = {peer.id for peer in peers} - {peer.id for peer in recipients}
    if silent and len(writers) > 1:
        raise BenchError("this gateway does not echo frames to their writer: measure with one writer and --readers")
    frames = Stamped(streams, size, opcode=opcode, received=received)

    def make(theirs: list[Peer]) -> list[OrderReader]:
        shared = SharedOrder(frames)
        return [OrderReader(peer.id, shared) for peer in theirs]

    with ReaderPool(recipients, make, workers=workers, writers=frozenset(each.id for each in writers)) as pool:
        used = cpu_seconds(live.pid) if live.pid is not None else 0.0
        own = own_cpu_seconds()
        sockets = [writer.socket for writer in writers]
        sent = send_at_rate(sockets, frames, hz * len(writers), for_seconds(seconds), patience=PATIENCE)
        own = own_cpu_seconds() - own
        outcomes = pool.finish(sent.frames)
        figures = flow_figures(sent, outcomes, own)
        if live.pid is not None:
            figures |= cpu_figures(cpu_seconds(live.pid) - used, sent, outcomes)
    latencies: Counter[int] = Counter()
    for outcome in outcomes:
        latencies.update(outcome.latencies)
    return figures | {
        "offered_deliveries_per_second": hz * len(writers) * len(recipients),
        "latency_p50_ms": percentile(latencies, 0.5),
        "latency_p99_ms": percentile(latencies, 0.99),
        "latency_p999_ms": percentile(latencies, 0.999),
        "generator_late": sent.late,
        "opcode_changed": float(received != opcode),
    }
