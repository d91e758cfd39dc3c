"""The cost of checking a writer's right, as the number of writers grows."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mewstream.bench.errors import CheckFailed
from mewstream.bench.fanout import saturate
from mewstream.bench.metrics import Figures
from mewstream.bench.pattern import Pattern
from mewstream.bench.peer import Peer
from mewstream.bench.resource_usage import need_files
from mewstream.bench.roster import Needs, Participant
from mewstream.bench.setup import joined, settle
from mewstream.bench.target import Live
from mewstream.bench.workers import FORK, is_orphan

#: Grants that may be unanswered at a time. Each answer names all writers, so many answers would fill the buffers.
_AT_ONCE = 8


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """For each number of writers, one of them sends to one reader as fast as it can."""

    writers: tuple[int, ...] = (1, 100, 10_000)
    size: int = 100
    seconds: float = 3.0

    @property
    def needs(self) -> Needs:
        return Needs(participants=2, bystanders=max(self.writers) - 1)

    def measure(self, live: Live) -> Figures:
        figures: Figures = {}
        others = live.roster.bystanders(live.needs)
        first, second = live.people
        with joined(live, [first]) as (writer,), _present(live, others):
            with joined(live, [second]) as (reader,):
                stream = writer.open_stream(target=[reader.id])
            granted = 1
            for writers in sorted(self.writers):
                # Without the reader, which would otherwise receive the answer to every grant.
                _grant(writer, stream, others[granted - 1 : writers - 1])
                granted = max(granted, writers)
                with joined(live, [second]) as (reader,):
                    recipients, _ = settle(writer, stream, [reader])
                    pattern = Pattern(stream, self.size)
                    run = saturate(live, writer, recipients, pattern, seconds=self.seconds, workers=1)
                    writer.socket.setblocking(True)
                for key in ("frames_per_second", "cpu_ns_per_frame", "generator_cpu"):
                    if key in run:
                        figures[f"{key}[{writers} writer{'s' * (writers > 1)}]"] = run[key]
        return figures


def _grant(owner: Peer, stream: str, participants: Sequence[Participant]) -> None:
    answer: dict[str, Any] | None = None
    for start in range(0, len(participants), _AT_ONCE):
        asked = [
            owner.send("stream/grant-write", {"stream_id": stream, "participant_id": each.id})
            for each in participants[start : start + _AT_ONCE]
        ]
        for id in asked:
            answer = owner.receive("stream/write-granted", id)
    if answer is not None and participants[-1].id not in answer["payload"]["authorized_writers"]:
        raise CheckFailed(f"{participants[-1].id} was granted {stream} and is not among its writers")


@contextlib.contextmanager
def _present(live: Live, participants: Sequence[Participant]) -> Iterator[None]:
    """Connect the participants that are not present without a connection. A separate process reads for them."""
    absent = [each for each in participants if not each.is_present]
    if not absent:
        yield
        return
    need_files(len(absent))
    ready = FORK.Event()
    process = FORK.Process(target=_sit, args=(live, absent, ready), daemon=True)
    process.start()
    try:
        while not ready.wait(0.2):
            if not process.is_alive():
                raise CheckFailed(f"not all of {len(absent)} participants could join")
        yield
    finally:
        process.kill()
        process.join()


def _sit(live: Live, participants: Sequence[Participant], ready: Any) -> None:
    poll = select.epoll()
    peers: dict[int, Peer] = {}
    for each in participants:
        peer = Peer.join(live.address, each)
        peers[peer.socket.fileno()] = peer
        poll.register(peer.socket.fileno(), select.EPOLLIN)
        _drain(poll, peers, 0)
    ready.set()
    while not is_orphan():
        _drain(poll, peers, 1.0)
        time.sleep(0.01)


def _drain(poll: select.epoll, peers: dict[int, Peer], timeout: float) -> None:
    for place, _ in poll.poll(timeout):
        if not peers[place].socket.recv(1 << 20):
            poll.unregister(place)
