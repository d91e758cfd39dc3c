"""The figures of a measurement: labels, units, and whether more is better."""

from __future__ import annotations

from typing import Literal

import msgspec

Figures = dict[str, float]
"""The figures of one run. Those that could not be measured, for lack of a pid, are left out."""


class Metric(msgspec.Struct, frozen=True):
    label: str
    unit: str
    better: Literal["more", "less", ""] = ""


METRICS: dict[str, Metric] = {
    "frames": Metric("frames sent", ""),
    "frames_per_second": Metric("frames", "/s", "more"),
    "deliveries_per_second": Metric("deliveries", "/s", "more"),
    "offered_deliveries_per_second": Metric("deliveries asked for", "/s"),
    "megabytes_per_second": Metric("delivered", "MB/s", "more"),
    "latency_p50_ms": Metric("latency p50", "ms", "less"),
    "latency_p99_ms": Metric("latency p99", "ms", "less"),
    "latency_p999_ms": Metric("latency p99.9", "ms", "less"),
    "knee_deliveries_per_second": Metric("knee, deliveries", "/s", "more"),
    "round_trips_per_second": Metric("control round trips", "/s", "more"),
    "round_trip_p50_ms": Metric("round trip p50", "ms", "less"),
    "round_trip_p99_ms": Metric("round trip p99", "ms", "less"),
    "joins_per_second": Metric("joins", "/s", "more"),
    "welcome_p50_ms": Metric("welcome p50", "ms", "less"),
    "welcome_p99_ms": Metric("welcome p99", "ms", "less"),
    "welcome_megabytes": Metric("welcomes", "MB"),
    "presences": Metric("presence messages delivered", ""),
    "cpu_ns_per_presence": Metric("gateway CPU per presence message", "ns", "less"),
    "cpu_ns_per_welcome_byte": Metric("gateway CPU per byte of welcome", "ns", "less"),
    "cpu_seconds": Metric("gateway CPU time", "s"),
    "cpu_us_per_join": Metric("gateway CPU per join", "us", "less"),
    "connections": Metric("connections", ""),
    "kib_per_connection": Metric("gateway memory per connection", "KiB", "less"),
    "gateway_mib": Metric("gateway memory", "MiB", "less"),
    "cpu_ns_per_delivery": Metric("gateway CPU per delivery", "ns", "less"),
    "cpu_ns_per_frame": Metric("gateway CPU per frame", "ns", "less"),
    "bytes_per_piece": Metric("average piece on the network", "B"),
    "gateway_cpu": Metric("gateway CPU", "cores", ""),
    "generator_cpu": Metric("busiest generator process", "cores", ""),
    "generator_late": Metric("frames sent late by the generator", "share", ""),
    "opcode_changed": Metric("text came as binary or the reverse", "", "less"),
}


def metric(key: str) -> Metric:
    """The metric of a key, which may name a part of the run: ``cpu_ns_per_frame[10000 writers]``."""
    base, bracket, rest = key.partition("[")
    known = METRICS[base]
    return msgspec.structs.replace(known, label=f"{known.label}, {rest.rstrip(']')}") if bracket else known
