"""One writer at full speed to many readers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import msgspec

from mewstream.bench import wire
from mewstream.bench.metrics import Figures
from mewstream.bench.pattern import Pattern, PatternReader
from mewstream.bench.peer import PATIENCE, Peer
from mewstream.bench.readers import Outcome, ReaderPool
from mewstream.bench.resource_usage import cpu_seconds, own_cpu_seconds
from mewstream.bench.roster import Needs
from mewstream.bench.setup import joined, settle
from mewstream.bench.target import Live
from mewstream.bench.writers import Sent, for_seconds, send_saturated


class Fanout(msgspec.Struct, frozen=True, kw_only=True):
    """One writer and ``readers``. The writer gets its own frames too, if the gateway echoes them."""

    readers: int = 10
    size: int = 100
    seconds: float = 3.0
    binary: bool = False
    workers: int = 1

    @property
    def needs(self) -> Needs:
        return Needs(participants=self.readers + 1)

    def measure(self, live: Live) -> Figures:
        with joined(live, live.people) as peers:
            writer = peers[0]
            stream = writer.open_stream()
            opcode = wire.BINARY if self.binary else wire.TEXT
            recipients, _ = settle(writer, stream, peers, opcode=opcode)
            pattern = Pattern(stream, self.size, opcode=opcode)
            return saturate(live, writer, recipients, pattern, seconds=self.seconds, workers=self.workers)


def saturate(
    live: Live, writer: Peer, recipients: Sequence[Peer], pattern: Pattern, *, seconds: float, workers: int
) -> Figures:
    """Send as fast as the gateway accepts frames, and wait until every reader has received all of them."""
    pattern.received(pattern.opcode)  # computed once, not in every process
    with ReaderPool(recipients, partial(_readers, pattern), workers=workers, writers=frozenset({writer.id})) as pool:
        used = cpu_seconds(live.pid) if live.pid is not None else 0.0
        size, pieces = recipients[0].received()
        own = own_cpu_seconds()
        sent = send_saturated(writer.socket, pattern, for_seconds(seconds), progress=pool.progress, patience=PATIENCE)
        own = own_cpu_seconds() - own
        outcomes = pool.finish(sent.frames)
        figures = flow_figures(sent, outcomes, own)
        if live.pid is not None:
            figures |= cpu_figures(cpu_seconds(live.pid) - used, sent, outcomes)
        all_size, all_pieces = recipients[0].received()
        if all_pieces > pieces:
            figures["bytes_per_piece"] = (all_size - size) / (all_pieces - pieces)
    _, size = pattern.received(pattern.opcode)
    figures["megabytes_per_second"] = figures["deliveries_per_second"] * size / 1e6
    figures["opcode_changed"] = float(any(outcome.opcodes != {pattern.opcode} for outcome in outcomes))
    return figures


def _readers(pattern: Pattern, peers: list[Peer]) -> list[PatternReader]:
    return [PatternReader(peer.id, pattern) for peer in peers]


def flow_figures(sent: Sent, outcomes: Sequence[Outcome], own_cpu: float) -> Figures:
    seconds = _seconds(sent, outcomes)
    return {
        "frames": float(sent.frames),
        "frames_per_second": sent.frames / seconds,
        "deliveries_per_second": sum(outcome.deliveries for outcome in outcomes) / seconds,
        "generator_cpu": max(own_cpu, *(outcome.cpu_seconds for outcome in outcomes)) / seconds,
    }


def cpu_figures(used: float, sent: Sent, outcomes: Sequence[Outcome]) -> Figures:
    deliveries = sum(outcome.deliveries for outcome in outcomes)
    return {
        "cpu_ns_per_delivery": used / max(1, deliveries) * 1e9,
        "cpu_ns_per_frame": used / max(1, sent.frames) * 1e9,
        "gateway_cpu": used / _seconds(sent, outcomes),
    }


def _seconds(sent: Sent, outcomes: Sequence[Outcome]) -> float:
    """From the first frame sent to the last one received by the slowest reader."""
    finished = max((outcome.finished for outcome in outcomes), default=time.monotonic_ns())
    return max(1e-9, (finished - sent.started) / 1e9)
