"""Processes that read many connections and check every frame."""

from __future__ import annotations

import gc
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, MutableSequence, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple, Protocol, TypeVar

from mewstream.bench.errors import BenchError, CheckFailed, Overloaded
from mewstream.bench.peer import PATIENCE
from mewstream.bench.resource_usage import own_cpu_seconds
from mewstream.bench.workers import FORK, is_orphan

_BUFFER = 1 << 18
#: Seconds after the last expected frame in which a surplus frame would be noticed.
_AFTERMATH = 0.05


class Source(Protocol):
    """A connection that readers take over; a :class:`~mewstream.bench.peer.Peer` is one."""

    id: str
    socket: socket.socket

    def unread(self) -> bytes: ...


SourceT = TypeVar("SourceT", bound=Source)


class Reader(Protocol):
    participant: str
    opcode: int
    replies: list[bytes]

    @property
    def frames(self) -> int: ...

    def feed(self, data: memoryview, now: int) -> None: ...


class Outcome(NamedTuple):
    """The result of one process of readers."""

    finished: int
    """When the last reader got the last frame, in nanoseconds of the monotonic clock."""
    deliveries: int
    cpu_seconds: float
    latencies: Counter[int]
    opcodes: set[int]


class ReaderPool:
    """Readers, distributed over processes. They answer pings, except on connections that ``writers`` send on."""

    def __init__(
        self,
        peers: Sequence[SourceT],
        make_reader: Callable[[list[SourceT]], Sequence[Reader]],
        *,
        workers: int = 1,
        writers: frozenset[str] = frozenset(),
        patience: float = PATIENCE,
    ) -> None:
        self._patience = patience
        self._workers: list[tuple[BaseProcess, Connection]] = []
        self._progress = FORK.RawArray("q", max(1, min(workers, len(peers))))
        gc.freeze()
        for number in range(min(workers, len(peers))):
            theirs = list(peers[number::workers])
            ours, pipe = FORK.Pipe()
            process = FORK.Process(
                target=_work, args=(pipe, theirs, make_reader, writers, patience, self._progress, number), daemon=True
            )
            process.start()
            pipe.close()
            self._workers.append((process, ours))

    def __enter__(self) -> ReaderPool:
        return self

    def __exit__(self, *_: object) -> None:
        for process, pipe in self._workers:
            pipe.close()
            process.kill()
            process.join()

    def progress(self) -> int:
        """The number of frames that have arrived, measured by one reader of each process."""
        return int(min(self._progress))

    def check(self) -> None:
        """Raise the error of a reader that has found one."""
        for _, pipe in self._workers:
            if pipe.poll():
                _result(pipe)

    def finish(self, frames: int) -> list[Outcome]:
        """Wait until every reader has received this number of frames, and return the results."""
        for _, pipe in self._workers:
            try:
                pipe.send(frames)
            except BrokenPipeError:
                pass  # it has sent an error
        return [_result(pipe) for _, pipe in self._workers]


def _result(pipe: Connection) -> Outcome:
    try:
        result = pipe.recv()
    except EOFError:
        raise BenchError("a process of the load generator ended without a result") from None
    if isinstance(result, BenchError):
        raise result
    assert isinstance(result, Outcome)
    return result


def _work(
    pipe: Connection,
    peers: list[SourceT],
    make_reader: Callable[[list[SourceT]], Sequence[Reader]],
    writers: frozenset[str],
    patience: float,
    progress: MutableSequence[int],
    number: int,
) -> None:
    try:
        pipe.send(_read_all(pipe, peers, make_reader(peers), writers, patience, progress, number))
    except BenchError as error:
        pipe.send(error)
    except (KeyboardInterrupt, BrokenPipeError, EOFError):
        pass  # the parent process is gone


def _read_all(
    pipe: Connection,
    peers: Sequence[Source],
    readers: Sequence[Reader],
    writers: frozenset[str],
    patience: float,
    progress: MutableSequence[int],
    number: int,
) -> Outcome:
    poll = select.epoll()
    places: dict[int, tuple[socket.socket, Reader]] = {}
    for peer, reader in zip(peers, readers, strict=True):
        peer.socket.setblocking(False)
        places[peer.socket.fileno()] = peer.socket, reader
        poll.register(peer.socket.fileno(), select.EPOLLIN)
        if left := peer.unread():
            reader.feed(memoryview(left), time.monotonic_ns())
    control = pipe.fileno()
    poll.register(control, select.EPOLLIN)
    buffer = bytearray(_BUFFER)
    view = memoryview(buffer)
    waiting: set[int] | None = None
    total = finished = 0
    cpu = own_cpu_seconds()
    heard = time.monotonic()

    def read(place: int) -> None:
        connection, reader = places[place]
        try:
            size = connection.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            raise CheckFailed(f"{reader.participant} was cut off after {reader.frames} frames: {error}") from None
        if not size:
            raise Overloaded(f"{reader.participant} was disconnected after {reader.frames} frames")
        reader.feed(view[:size], time.monotonic_ns())
        if reader.replies:
            if reader.participant not in writers:  # another process may be sending a frame on this connection
                connection.send(b"".join(reader.replies))
            reader.replies.clear()

    while waiting is None or waiting:
        events = poll.poll(0.5)
        for place, _ in events:
            if place == control:
                total = pipe.recv()
                waiting = {each for each, (_, reader) in places.items() if reader.frames < total}
                continue
            read(place)
            if waiting is not None and places[place][1].frames >= total:
                waiting.discard(place)
        if events:
            heard = time.monotonic()
            progress[number] = readers[-1].frames
        elif is_orphan():
            raise EOFError
        elif waiting and time.monotonic() - heard > patience:
            late = places[next(iter(waiting))][1]
            raise CheckFailed(
                f"{len(waiting)} of {len(places)} readers did not get everything: "
                f"{late.participant} has {late.frames} of {total} frames, and nothing more came in {patience:g} s"
            )
    finished = time.monotonic_ns()
    cpu = own_cpu_seconds() - cpu
    for place, _ in poll.poll(_AFTERMATH):
        if place != control:
            read(place)
    latencies: Counter[int] = Counter()
    for _, reader in places.values():
        if reader.frames != total:
            raise CheckFailed(f"{reader.participant} got {reader.frames} frames, {total} were sent")
        latencies.update(getattr(reader, "latencies", {}))
    return Outcome(finished, total * len(places), cpu, latencies, {reader.opcode for _, reader in places.values()})
