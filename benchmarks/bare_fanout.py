"""The ceiling of a fan-out: a bare loop that writes pre-encoded batches to sockets, and does nothing else.

The readers are those of ``mewstream bench fanout``, and check as much.

    python benchmarks/bare_fanout.py --readers 100
"""

from __future__ import annotations

import argparse
import socket
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from mewstream.bench.fanout import flow_figures
from mewstream.bench.metrics import Figures
from mewstream.bench.pattern import Pattern, PatternReader
from mewstream.bench.readers import ReaderPool
from mewstream.bench.resource_usage import need_files, own_cpu_seconds
from mewstream.bench.workers import FORK, end_on_sigterm, is_orphan
from mewstream.bench.writers import Sent

#: What our gateway writes at once to a connection under full load (`delivery.flush_bytes`).
BATCH_BYTES = 64 << 10


@dataclass
class Plain:
    """A connection without a handshake: nothing but the bytes of the frames comes."""

    id: str
    socket: socket.socket

    def unread(self) -> bytes:
        return b""


def bare_fanout(readers: int, *, size: int = 100, seconds: float = 3.0, batch_bytes: int = BATCH_BYTES) -> Figures:
    """Deliveries a second of the bare loop, in the terms of ``mewstream bench fanout``."""
    need_files(2 * readers)
    pattern = Pattern("stream-1", size)
    pattern.received(pattern.opcode)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        plain: list[Plain] = []
        accepted: list[socket.socket] = []
        for number in range(readers):
            plain.append(Plain(f"reader-{number}", socket.create_connection(listener.getsockname())))
            accepted.append(listener.accept()[0])
            accepted[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        with ReaderPool(plain, lambda theirs: [PatternReader(each.id, pattern) for each in theirs]) as pool:
            ours, pipe = FORK.Pipe()
            process = FORK.Process(target=_write, args=(pipe, accepted, pattern, seconds, batch_bytes), daemon=True)
            process.start()
            try:
                frames, started, used = ours.recv()
                sent = Sent(frames, started, 0.0)
                outcomes = pool.finish(sent.frames)
            finally:
                process.kill()
                process.join()
    finally:
        for each in (*accepted, *(one.socket for one in plain)):
            each.close()
    figures = flow_figures(sent, outcomes, 0.0)
    figures["cpu_ns_per_delivery"] = used / (sent.frames * readers) * 1e9
    return figures


def _write(
    pipe: Connection, connections: list[socket.socket], pattern: Pattern, seconds: float, batch_bytes: int
) -> None:
    data, size = pattern.received(pattern.opcode)
    step = max(1, batch_bytes // size) * size
    batches = [data[start : start + step] for start in range(0, len(data), step)]
    for connection in connections:
        connection.setblocking(True)
    cpu = own_cpu_seconds()
    started = time.monotonic_ns()
    deadline = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < deadline:
        batch = batches[sent % len(batches)]
        for connection in connections:
            connection.sendall(batch)
        sent += 1
    periods, rest = divmod(sent, len(batches))
    frames = periods * pattern.period + sum(map(len, batches[:rest])) // size
    pipe.send((frames, started, own_cpu_seconds() - cpu))
    while not is_orphan():  # the connections stay open until everything is read
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description="The ceiling of a fan-out on this machine.")
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES)
    options = parser.parse_args()
    end_on_sigterm()
    figures = bare_fanout(options.readers, size=options.size, seconds=options.seconds, batch_bytes=options.batch_bytes)
    print(
        f"{figures['deliveries_per_second']:,.0f} deliveries/s, {figures['cpu_ns_per_delivery']:.0f} ns CPU each, "
        f"readers used {figures['generator_cpu']:.0%} of a core"
    )


if __name__ == "__main__":
    main()
