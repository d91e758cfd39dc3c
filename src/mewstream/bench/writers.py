"""Sending frames: one writer as fast as possible, or several at a steady rate."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mewstream.bench.errors import BenchError
from mewstream.bench.order import Stamped
from mewstream.bench.pattern import Pattern

_CHUNK = 1 << 18
_SECOND = 1_000_000_000
#: The shortest sleep. Frames that are due meanwhile are sent together.
_NAP = 0.0001
#: How far a writer at full speed may be ahead of its readers: in seconds, and a minimum in frames.
_AHEAD = 0.25
_LEAST_AHEAD = 256


class Sent(NamedTuple):
    frames: int
    started: int
    """Time of the first frame, in nanoseconds of the monotonic clock."""
    late: float
    """The share of frames that were sent late, because the load generator was too slow."""


def send_saturated(
    connection: socket.socket,
    pattern: Pattern,
    go_on: Callable[[], bool],
    *,
    progress: Callable[[], int],
    patience: float,
) -> Sent:
    """Send as fast as the gateway forwards the frames, and stop at the end of a frame.

    The writer is never more than a quarter of a second ahead of ``progress``, the number of delivered frames. The
    buffers of the system could hold many seconds' worth, which a slow gateway would have to process afterwards."""
    connection.setblocking(False)
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    view = memoryview(pattern.sent)
    size = pattern.sent_size
    at = frames = 0
    started = time.monotonic_ns()
    stopping = False
    end = len(view)
    while True:
        if not stopping and not go_on():
            stopping = True
            end = -(-at // size) * size  # to the end of the current frame
        if stopping and at >= end:
            return Sent(frames + at // size, started, 0.0)
        through = progress()
        window = max(_LEAST_AHEAD, int(through * _AHEAD * _SECOND / (time.monotonic_ns() - started + 1)))
        room = (through + window - frames) * size - at
        if room <= 0 and not stopping:
            time.sleep(_NAP)
            continue
        if not poll.poll(patience * 1000):
            raise BenchError(f"the gateway took nothing from the writer for {patience:g} seconds")
        try:
            at += connection.send(view[at : min(at + (_CHUNK if stopping else min(_CHUNK, room)), end)])
        except BlockingIOError:
            continue
        except OSError as error:
            raise BenchError(f"the gateway cut off the writer after {frames + at // size} frames: {error}") from None
        if at == len(view):
            frames += pattern.period
            at = 0
            if stopping:
                return Sent(frames, started, 0.0)


def send_at_rate(
    connections: Sequence[socket.socket],
    frames: Stamped,
    per_second: float,
    go_on: Callable[[], bool],
    *,
    patience: float,
) -> Sent:
    """Send frames at an even rate, which is the sum over all writers; the writers take turns.

    A frame is stamped when it is created, even if the gateway does not accept it at once. So the time that frames wait
    for a slow gateway is part of the latency."""
    for connection in connections:
        connection.setblocking(False)
    writers = len(connections)
    waiting: list[bytes] = [b""] * writers
    started = time.monotonic_ns()
    made = late = 0
    while go_on():
        now = time.monotonic_ns()
        due = int((now - started) * per_second / _SECOND)
        late += max(0, due - made - 1 - int(per_second * 0.001))
        batches: dict[int, list[bytes]] = {}
        for index in range(made, due):
            writer = index % writers
            batches.setdefault(writer, []).append(frames.message(writer, index // writers, now))
        made = max(made, due)
        for writer, batch in batches.items():
            waiting[writer] = _send(connections[writer], waiting[writer] + b"".join(batch))
        for writer, rest in enumerate(waiting):
            if rest and writer not in batches:
                waiting[writer] = _send(connections[writer], rest)
        next_due = started + (made + 1) * _SECOND / per_second
        time.sleep(max(_NAP, (next_due - time.monotonic_ns()) / _SECOND))
    deadline = time.monotonic() + patience
    while any(waiting):
        if time.monotonic() > deadline:
            raise BenchError(f"the gateway did not take what its writers had to send for {patience:g} seconds")
        waiting = [_send(connection, rest) for connection, rest in zip(connections, waiting, strict=True)]
        time.sleep(0.001)
    return Sent(made, started, late / made if made else 0.0)


def _send(connection: socket.socket, data: bytes) -> bytes:
    if not data:
        return data
    try:
        return data[connection.send(data) :]
    except BlockingIOError:
        return data
    except OSError as error:
        raise BenchError(f"the gateway cut off a writer: {error}") from None


def for_seconds(seconds: float) -> Callable[[], bool]:
    """A condition that is true for this many seconds from now."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() < deadline
