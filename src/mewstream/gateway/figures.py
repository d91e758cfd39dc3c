"""The figures of the whole gateway as JSON, for those who watch it: ``GET /gateway``.

The counters are those of ``/metrics``. Rates are not here: who asks twice can divide.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import mewstream
from mewstream.gateway.gateway import Gateway
from mewstream.protocol.times import rfc3339

#: Seconds for which an answer is good for everyone who asks, so that many who watch cost no more than one.
FRESH_SECONDS = 1.0
MAX_SLOW_READERS = 50

_Counts = Mapping[str, float]


class Figures:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._began = time.time_ns() // 1000
        self._made = -FRESH_SECONDS
        self._current: dict[str, Any] = {}

    async def current(self) -> dict[str, Any]:
        await self._gateway.journal_usage.measure()
        now = self._gateway.loop.time()
        if now - self._made >= FRESH_SECONDS:
            self._made = now
            self._current = self._describe()
        return self._current

    def _describe(self) -> dict[str, Any]:
        gateway = self._gateway
        gateway.publish_metrics()
        counts = self._counts()
        return {
            "version": mewstream.__version__,
            "status": gateway.status,
            "started": rfc3339(self._began),
            "uptime": round(time.monotonic() - gateway.started, 3),
            "process": _process(),
            "connections": {
                "websocket": len(gateway.peers),
                "http": _value(counts, "http_connections"),
                "unsent_bytes": sum(peer.outbound.unsent_bytes for peer in gateway.peers),
                "unsent_http_bytes": _value(counts, "http_unsent_bytes"),
                "refused": counts["connections_refused_total"],
                "closed": counts["closes_total"],
            },
            "journal": self._journal(),
            "spaces": [
                {
                    "id": space.id,
                    "name": space.config.name,
                    "seq": space.state.seq,
                    "participants": len(space.state.participants),
                    "connected": len(space.members),
                    "streams": len(space.state.streams),
                    "frames": int(counts["frames_total"].get(space.id, 0)),
                    "frame_bytes": int(counts["frame_bytes_total"].get(space.id, 0)),
                    "deliveries": int(counts["deliveries_total"].get(space.id, 0)),
                    "frames_dropped": int(counts["frames_dropped_total"].get(space.id, 0)),
                    "refusals": int(counts["refusals_total"].get(space.id, 0)),
                }
                for space in gateway.spaces.values()
            ],
            "slow_readers": self._slow_readers(),
        }

    def _counts(self) -> dict[str, dict[str, int]]:
        """The samples of the metrics by name and by their first label: the space, the reason, the limit."""
        counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for metric in self._gateway.metrics.registry.collect():
            for sample in metric.samples:
                name = sample.name.removeprefix("mewstream_")
                counts[name][next(iter(sample.labels.values()), "")] += int(sample.value)
        return counts

    def _journal(self) -> dict[str, Any]:
        recorder, config = self._gateway.recorder, self._gateway.config
        if config.data is None:
            return {"status": "none"}
        journal: dict[str, Any] = {
            "status": "failing" if recorder.failing else "ok",
            "durability": config.journal.durability,
        }
        usage = self._gateway.journal_usage.current
        if usage is not None:
            journal |= usage._asdict()
        return journal

    def _slow_readers(self) -> list[dict[str, Any]]:
        behind = [peer for peer in self._gateway.peers if peer.space is not None and peer.outbound.is_behind]
        behind.sort(key=lambda peer: peer.outbound.unsent_bytes, reverse=True)
        return [
            {
                "space": peer.space.id,
                "participant": peer.participant,
                "unsent_bytes": peer.outbound.unsent_bytes,
                "frames_dropped": peer.outbound.dropped_frames,
            }
            for peer in behind[:MAX_SLOW_READERS]
            if peer.space is not None
        ]


def _value(counts: Mapping[str, _Counts], name: str) -> int:
    return int(counts[name].get("", 0))


def _process() -> dict[str, Any]:
    process: dict[str, Any] = {"cpu_seconds": round(time.process_time(), 3)}
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # no path of ours
            process["memory_bytes"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass  # not Linux
    return process
