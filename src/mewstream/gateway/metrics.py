"""What ``/metrics`` shows to Prometheus. Labels are bounded: spaces, codes and kinds of record."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from mewstream.protocol.records import Record


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

    def history_read(self, size: int) -> None:
        """Count a batch of the journal that was read for a participant. Any thread may call this."""
        self._history_batches.inc()
        self._history_bytes.inc(size)

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(f"mewstream_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: list[str]) -> Gauge:
        return Gauge(f"mewstream_{name}", text, labels, registry=self.registry)

    def watch_http(self, *, connections: Callable[[], float], unsent: Callable[[], float]) -> None:
        """Set the functions that return these values when the metrics are requested."""
        self.http_connections.set_function(connections)
        self.http_unsent.set_function(unsent)

    def space(self, space: str) -> SpaceMetrics:
        return SpaceMetrics(self, space)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


class SpaceMetrics:
    """The metrics of one space. Frames are counted in plain integers, which are cheap, and are added to the metrics
    when these are requested."""

    def __init__(self, metrics: Metrics, space: str) -> None:
        self._metrics = metrics
        self._space = space
        self._frames = self._frame_bytes = self._deliveries = 0

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
