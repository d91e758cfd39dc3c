"""Grants, revokes and transfers, one after the other, while frames flow."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from mewstream.bench import wire
from mewstream.bench.errors import BenchError, CheckFailed
from mewstream.bench.metrics import Figures
from mewstream.bench.order import OrderReader, SharedOrder, Stamped
from mewstream.bench.peer import PATIENCE, Peer, describe_close, refuse_errors
from mewstream.bench.readers import ReaderPool
from mewstream.bench.resource_usage import cpu_seconds, own_cpu_seconds
from mewstream.bench.roster import Needs
from mewstream.bench.setup import joined, settle
from mewstream.bench.target import Live
from mewstream.bench.workers import FORK
from mewstream.bench.writers import Sent, send_at_rate


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """Each of ``pairs`` passes its own stream back and forth, while one writer sends frames to ``readers``."""

    pairs: int = 4
    readers: int = 10
    hz: float = 1000.0
    """Frames per second that are sent meanwhile, to everyone."""
    size: int = 100
    seconds: float = 3.0
    workers: int = 1

    @property
    def needs(self) -> Needs:
        return Needs(participants=1 + self.readers + 2 * self.pairs)

    def measure(self, live: Live) -> Figures:
        with joined(live, live.people) as peers:
            writer, *readers = peers[: 1 + self.readers]
            others = peers[1 + self.readers :]
            pairs = [Pair(*others[number : number + 2]) for number in range(0, len(others), 2)]
            stream = writer.open_stream()
            recipients, received = settle(writer, stream, peers)
            listening = [peer for peer in recipients if peer is writer or peer in readers]
            frames = Stamped([stream], self.size, received=received)

            def make(theirs: list[Peer]) -> list[OrderReader]:
                shared = SharedOrder(frames)
                return [OrderReader(peer.id, shared) for peer in theirs]

            with ReaderPool(listening, make, workers=self.workers, writers=frozenset({writer.id})) as pool:
                stop = FORK.Event()
                ours, pipe = FORK.Pipe()
                sender = FORK.Process(target=_flow, args=(pipe, writer, frames, self.hz, stop), daemon=True)
                sender.start()
                try:
                    used = cpu_seconds(live.pid) if live.pid is not None else 0.0
                    own = own_cpu_seconds()
                    started = time.monotonic()
                    trips = _exchange(pairs, self.seconds)
                    seconds = time.monotonic() - started
                    own = own_cpu_seconds() - own
                    used = cpu_seconds(live.pid) - used if live.pid is not None else 0.0
                    stop.set()
                    sent = ours.recv()
                    if isinstance(sent, BenchError):
                        raise sent
                    pool.finish(sent.frames)
                finally:
                    sender.kill()
                    sender.join()
        trips.sort()
        figures = {
            "round_trips_per_second": len(trips) / seconds,
            "round_trip_p50_ms": trips[len(trips) // 2] / 1e6,
            "round_trip_p99_ms": trips[min(len(trips) - 1, len(trips) * 99 // 100)] / 1e6,
            "frames_per_second": sent.frames / seconds,
            "generator_cpu": own / seconds,
        }
        if live.pid is not None:
            figures["gateway_cpu"] = used / seconds
        return figures


def _flow(pipe: Any, writer: Peer, frames: Stamped, hz: float, stop: Any) -> None:
    try:
        sent: Sent | BenchError = send_at_rate(
            [writer.socket], frames, hz, lambda: not stop.is_set(), patience=PATIENCE
        )
    except BenchError as error:
        sent = error
    pipe.send(sent)


class Pair:
    """Two participants that pass a stream back and forth. Every answer is checked before the next step."""

    def __init__(self, first: Peer, second: Peer) -> None:
        self.peers = (first, second)
        self._stream = first.open_stream()
        self._step = 0
        self._asked = ""
        self._sent_at = 0
        self.trips: list[int] = []
        """The duration of each round trip in nanoseconds."""

    def ask(self) -> None:
        """Send the next request: grant, revoke, transfer, transfer back."""
        first, second = self.peers
        sender = second if self._step == 3 else first
        kind, payload = (
            ("stream/grant-write", {"participant_id": second.id}),
            ("stream/revoke-write", {"participant_id": second.id}),
            ("stream/transfer-ownership", {"new_owner": second.id}),
            ("stream/transfer-ownership", {"new_owner": first.id}),
        )[self._step]
        self._asked, message = sender.envelope(kind, {"stream_id": self._stream, **payload})
        self._sent_at = time.monotonic_ns()
        sender.socket.setblocking(True)
        sender.socket.sendall(message)
        sender.socket.setblocking(False)

    def take(self, peer: Peer, message: bytes) -> bool:
        """Whether this is the expected answer. Raises CheckFailed if it is wrong."""
        if not self._asked or message[:1] != b"{" or self._asked.encode() not in message:
            return False
        envelope: dict[str, Any] = msgspec.json.decode(message)
        refuse_errors(peer.id, envelope)
        kinds = ("stream/write-granted", "stream/write-revoked", "stream/ownership-transferred")
        if envelope.get("kind") != kinds[min(self._step, 2)] or self._asked not in envelope["correlation_id"]:
            return False  # the request itself, which is relayed to everyone
        if peer is not self.peers[1 if self._step == 3 else 0]:
            return False  # the other participant gets it too
        self.trips.append(time.monotonic_ns() - self._sent_at)
        first, second = (each.id for each in self.peers)
        expected = ({first, second}, {first}, {second}, {first})[self._step]
        writers = envelope["payload"].get("authorized_writers")
        if not isinstance(writers, list) or set(writers) != expected or len(writers) != len(expected):
            raise CheckFailed(f"{self._stream}: after {envelope['kind']} the writers are {writers}, not {expected}")
        self._step = (self._step + 1) % 4
        self._asked = ""
        return True


def _exchange(pairs: Sequence[Pair], seconds: float) -> list[int]:
    poll = select.epoll()
    places: dict[int, tuple[Pair, Peer, wire.Messages]] = {}
    for pair in pairs:
        for peer in pair.peers:
            peer.socket.setblocking(False)
            places[peer.socket.fileno()] = pair, peer, wire.Messages(peer.unread())
            poll.register(peer.socket.fileno(), select.EPOLLIN)
    for pair in pairs:
        pair.ask()
    deadline = time.monotonic() + seconds
    open_questions = len(pairs)
    while open_questions:
        events = poll.poll(PATIENCE)
        if not events:
            raise BenchError(f"no answer to a grant, revoke or transfer within {PATIENCE:g} seconds")
        for place, _ in events:
            pair, peer, messages = places[place]
            data = peer.socket.recv(1 << 18)
            if not data:
                raise CheckFailed(f"{peer.id} was disconnected")
            messages.feed(data)
            for opcode, message in messages.take():
                if opcode == wire.CLOSE:
                    raise CheckFailed(f"{peer.id} was disconnected: {describe_close(message)}")
                if opcode == wire.PING:
                    peer.socket.send(wire.client_message(wire.PONG, message))
                elif pair.take(peer, message):
                    if time.monotonic() < deadline:
                        pair.ask()
                    else:
                        open_questions -= 1
    return [trip for pair in pairs for trip in pair.trips]
