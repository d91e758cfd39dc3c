"""What ``/metrics`` shows to Prometheus. Labels are bounded: spaces, codes and kinds of record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

import mewstream
from mewstream.journal.interface import Usage
from mewstream.protocol.records import Record

#: Bounds of histograms: from what an idle machine needs to what people notice; from an empty welcome to the largest.
LATENCY_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WELCOME_BYTES = tuple(1 << power for power in range(9, 24, 2))


class JournalFigures(Protocol):
    """What is known of the journal, which was measured some time ago."""

    @property
    def current(self) -> Usage | None: ...

    @property
    def consumer_lag(self) -> Mapping[str, int]: ...


class Metrics:
    """The metrics of one gateway, in a registry of its own so that tests can run several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        space = ["space"]
        self.frames = self._counter("frames", "Stream frames accepted", space)
        self.frame_bytes = self._counter("frame_bytes", "Bytes of data in accepted frames", space)
        self.deliveries = self._counter("deliveries", "Frames times the recipients they were addressed to", space)
        self.dropped = self._counter("frames_dropped", "Frames that slow readers did not get", space)
        self.records = self._counter("records", "Records other than frames, by kind", ["space", "record"])
        self.refusals = self._counter("refusals", "Refused messages, by code", ["space", "code"])
        self.connected = self._gauge("connected_participants", "Participants connected now", space)
        self.streams = self._gauge("active_streams", "Streams that are ready or live", space)
        self.connections = self._gauge("connections", "Open WebSocket connections, joined or not", [])
        self.http_connections = self._gauge("http_connections", "Open connections that have not upgraded", [])
        self.http_unsent = self._gauge("http_unsent_bytes", "Bytes of HTTP answers that wait for their readers", [])
        self.connections_refused = self._counter("connections_refused", "Connections closed at once", ["limit"])
        self.http_timeouts = self._counter("http_timeouts", "HTTP connections whose time was over, by phase", ["phase"])
        self.closes = self._counter("closes", "Connections that the gateway closed, by reason", ["reason"])
        self.clock_jumps = self._counter("clock_jumps", "Times that the clock of the machine was set", [])
        self.clock_ahead = self._gauge(
            "clock_ahead_seconds", "How far the time of a space is before the clock's", space
        )
        self.journal_failing = self._gauge("journal_failing", "1 while the journal cannot be written", [])
        self._history_batches = self._counter(
            "history_batches_read", "Batches of the journal read to tell participants what was", []
        )
        self._history_bytes = self._counter("history_bytes_read", "Bytes of those, as they are on the disk", [])
        self.unsent = self._gauge("unsent_bytes", "Bytes waiting for connections that are behind", [])
        self.delivery_latency = self._histogram(
            "delivery_latency_seconds", "From accepting a message to writing it, sampled", LATENCY_SECONDS, space
        )
        self.commit_latency = self._histogram(
            "commit_latency_seconds", "How long messages waited for the journal", LATENCY_SECONDS, []
        )
        self.welcome_bytes = self._histogram("welcome_bytes", "Sizes of welcomes", WELCOME_BYTES, space)
        self._gauge("build_info", "1, with the version of the gateway", ["version"]).labels(mewstream.__version__).set(
            1
        )
        ProcessCollector(registry=self.registry)

    def history_read(self, size: int) -> None:
        """Count a batch of the journal that was read for a participant. Any thread may call this."""
        self._history_batches.inc()
        self._history_bytes.inc(size)

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(f"mewstream_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: list[str]) -> Gauge:
        return Gauge(f"mewstream_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], labels: list[str]) -> Histogram:
        return Histogram(f"mewstream_{name}", text, labels, buckets=buckets, registry=self.registry)

    def watch_journal(self, figures: JournalFigures) -> None:
        """Show what is known of the journal when the metrics are requested."""
        self.registry.register(_JournalCollector(figures))

    def watch_http(self, *, connections: Callable[[], float], unsent: Callable[[], float]) -> None:
        """Set the functions that return these values when the metrics are requested."""
        self.http_connections.set_function(connections)
        self.http_unsent.set_function(unsent)

    def space(self, space: str) -> SpaceMetrics:
        return SpaceMetrics(self, space)

    def exposition(self) -> bytes:
        return generate_latest(_WithoutCreated(self.registry))


class _JournalCollector:
    """What is not known is left out: a nought would be taken for a full disk."""

    def __init__(self, figures: JournalFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        size = GaugeMetricFamily("mewstream_journal_bytes", "The size of all files of the journal")
        free = GaugeMetricFamily("mewstream_journal_free_bytes", "What is left on the disk of the journal")
        lag = GaugeMetricFamily(
            "mewstream_consumer_lag_records", "Records that a named consumer has not read", labels=["consumer"]
        )
        if (usage := self._figures.current) is not None:
            size.add_metric([], usage.bytes)
            free.add_metric([], usage.free_bytes)
        for consumer, records in self._figures.consumer_lag.items():
            lag.add_metric([consumer], records)
        yield from (size, free, lag)


class _WithoutCreated(CollectorRegistry):
    """The metrics of a registry, without the time at which each was made, which would double their number."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family


class SpaceMetrics:
    """The metrics of one space. Frames are counted in plain integers, which are cheap, and are added to the metrics
    when these are requested."""

    def __init__(self, metrics: Metrics, space: str) -> None:
        self._metrics = metrics
        self._space = space
        self._frames = self._frame_bytes = self._deliveries = 0
        self.delivered_after: Callable[[float], None] = metrics.delivery_latency.labels(space).observe
        """Called with the seconds that a message took."""
        self.welcomed: Callable[[int], None] = metrics.welcome_bytes.labels(space).observe
        """Called with the size of a welcome."""

    def accepted_frames(self, count: int, size: int, recipients: int) -> None:
        """``size`` is the size of all their data, ``recipients`` the number of recipients of each."""
        self._frames += count
        self._frame_bytes += size
        self._deliveries += count * recipients

    def record(self, record: Record) -> None:
        self._metrics.records.labels(self._space, type(record).__struct_config__.tag).inc()

    def refused(self, code: str) -> None:
        self._metrics.refusals.labels(self._space, code).inc()

    def dropped(self, count: int) -> None:
        self._metrics.dropped.labels(self._space).inc(count)

    def connected(self, count: int) -> None:
        self._metrics.connected.labels(self._space).set(count)

    def publish(self, streams: int, *, ahead: float) -> None:
        """Add the counted frames to the metrics."""
        self._metrics.clock_ahead.labels(self._space).set(ahead)
        self._metrics.streams.labels(self._space).set(streams)
        self._metrics.frames.labels(self._space).inc(self._frames)
        self._metrics.frame_bytes.labels(self._space).inc(self._frame_bytes)
        self._metrics.deliveries.labels(self._space).inc(self._deliveries)
        self._frames = self._frame_bytes = self._deliveries = 0
