"""How lively each stream was, window by window.

Time never runs back in a space, so at most one window of it is open; what is in that window is carried
from batch to batch, with the time of every frame, so that percentiles are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from mewstream.history.durations import WINDOW_SECONDS
from mewstream.history.flow import OfStream, grouped
from mewstream.history.records import Integers
from mewstream.history.state import Stream, Window

_LENGTH = WINDOW_SECONDS * 1_000_000
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_Key = tuple[str, int | None, int]


class Windows:
    def __init__(self, open_ones: Iterable[Window]) -> None:
        self._windows: dict[_Key, Window] = {(each.stream_id, each.ready_seq, each.start): each for each in open_ones}
        self._times: dict[_Key, Integers] = {}

    def drop(self, stream_id: str, ts: int, count: int) -> None:
        self._window(stream_id, None, ts - ts % _LENGTH, None).drops += count

    def add(self, frames: OfStream, found: Integers, lives: list[Stream], last_ts: dict[int, int | None]) -> None:
        """``found`` is the life of the stream that each frame is in, and ``last_ts`` the time of the last frame of each
        life before the batch."""
        starts = frames.ts - frames.ts % _LENGTH
        for number, inside in grouped(found):
            order = inside[np.argsort(frames.ts[inside], kind="stable")]
            ready = lives[number].ready_seq if number >= 0 else None
            previous = last_ts[number] if number >= 0 else None
            cuts = np.flatnonzero(np.diff(starts[order])) + 1
            for places in np.split(order, cuts):
                window = self._window(frames.stream_id, ready, int(starts[places[0]]), previous)
                window.frames += len(places)
                window.bytes += int(frames.size[places].sum())
                writers = {frames.senders[each] for each in np.unique(frames.sender[places]).tolist()}
                window.writers = sorted({*window.writers, *writers})
                if number >= 0:
                    self._times[frames.stream_id, ready, window.start] = frames.ts[places]
                    previous = int(frames.ts[places[-1]])

    def _window(self, stream_id: str, ready: int | None, start: int, previous: int | None) -> Window:
        key = (stream_id, ready, start)
        if key not in self._windows:
            self._windows[key] = Window(stream_id, ready, start, writers=[], times=[], previous=previous)
        return self._windows[key]

    def open_until(self, now: int) -> list[Window]:
        """Those that are not over by the last record of the space, for the next batch."""
        left = [window for window in self._windows.values() if window.start + _LENGTH > now]
        for window in left:
            more = self._times.get((window.stream_id, window.ready_seq, window.start))
            if more is not None:
                window.times = sorted([*window.times, *more.tolist()])
        return left

    def rows(self, now: int) -> Iterator[dict[str, Any]]:
        """To be asked for before :meth:`open_until`. Lives of one stream share its windows."""
        together: dict[tuple[str, int], list[Window]] = defaultdict(list)
        for window in self._windows.values():
            together[window.stream_id, window.start].append(window)
        for (stream_id, start), windows in together.items():
            waits = np.sort(np.concatenate([self._waits(each) for each in windows]))
            frames, bytes = sum(each.frames for each in windows), sum(each.bytes for each in windows)
            yield {
                "stream_id": stream_id,
                "window_start": start,
                "window_end": start + _LENGTH,
                "frames": frames,
                "bytes": bytes,
                "rate": frames / WINDOW_SECONDS,
                "byte_rate": bytes / WINDOW_SECONDS,
                "writers": len({who for each in windows for who in each.writers}),
                **{f"interarrival_{name}_ms": _percentile(waits, share) for name, share in _SHARES.items()},
                "drops": sum(each.drops for each in windows),
                "is_open": start + _LENGTH > now,
            }

    def _waits(self, window: Window) -> Integers:
        """The times between frames, that before the window included."""
        parts = [np.asarray(window.times, dtype=np.int64)]
        more = self._times.get((window.stream_id, window.ready_seq, window.start))
        if more is not None:
            parts.append(more)
        times = np.sort(np.concatenate(parts))
        if window.previous is not None:
            times = np.concatenate([np.asarray([window.previous]), times])
        return np.diff(times)


def _percentile(waits: Integers, share: float) -> float | None:
    """In milliseconds, between two neighbours as Spark's own ``percentile`` has it."""
    if not len(waits):
        return None
    place = (len(waits) - 1) * share
    low = int(place)
    lower, upper = int(waits[low]), int(waits[min(low + 1, len(waits) - 1)])
    return (lower + (upper - lower) * (place - low)) / 1000
