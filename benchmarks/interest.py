"""What interest saves: 100 busy streams, and 200 readers that want one each.

Each of three runs sends the same frames: without readers, to readers that get everything, and to readers that have
subscribed to one stream. It shows the bytes to them, and the CPU of the gateway beyond the run without readers.

    python benchmarks/interest.py
    python benchmarks/interest.py --writers 100
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time
from typing import NamedTuple

import msgspec

from mewstream.bench import wire
from mewstream.bench.peer import Peer
from mewstream.bench.resource_usage import cpu_seconds, need_files
from mewstream.bench.roster import Needs, Participant
from mewstream.bench.target import Live, our_gateway

STREAMS = 100
READERS = 200
#: Frames of each stream in a burst, and their bytes.
BURST, SIZE = 100, 500
#: How many bursts there are: fewer where everything goes to everybody, which takes far longer.
FEW, MANY = 4, 40


class Outcome(NamedTuple):
    """For each frame that was sent."""

    bytes: float
    cpu: float


class Choosing(Peer):
    """A participant that gets no frames but those of ``streams``; of all if that is None."""

    def join_choosing(self, streams: list[str] | None) -> None:
        participant: Participant = self.participant
        join = {"type": "join", "participantId": participant.id, "space": participant.space, "token": participant.token}
        if streams is not None:
            join |= {"extensions": ["interest"], "interest": {"streams": streams}}
        self.socket.sendall(wire.client_message(wire.TEXT, msgspec.json.encode(join)))
        self.welcome = self.receive("system/welcome")


class Drain(threading.Thread):
    """Takes what comes to many sockets, and counts its bytes. It looks again and again and is never woken: to wake a
    reader on the same machine would be counted as work of the gateway."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__(daemon=True)
        self.taken = 0
        self.is_over = False
        self._sockets = sockets
        for each in sockets:
            each.settimeout(None)

    def run(self) -> None:
        buffer = bytearray(1 << 20)
        while not self.is_over:
            before = self.taken
            for each in self._sockets:
                with contextlib.suppress(BlockingIOError):
                    self.taken += each.recv_into(buffer, 0, socket.MSG_DONTWAIT)
            if self.taken == before:
                time.sleep(0.002)


def measure(readers: int, bursts: int, *, chooses: bool, writers: int = 1) -> Outcome:
    needs = Needs(participants=STREAMS + READERS, unattended=600.0)
    with our_gateway(journal=False).running(needs) as live:
        sources = [_joined(live, each, []) for each in live.people[:writers]]
        streams = [sources[place % writers].open_stream() for place in range(STREAMS)]
        people = live.people[STREAMS : STREAMS + readers]
        theirs = [
            _joined(live, each, [streams[place % STREAMS]] if chooses else None) for place, each in enumerate(people)
        ]
        for each in (*sources, *theirs):  # what the joins of the others have sent
            each.send("mcp/response", {"marker": "settled"})
        drain = Drain([each.socket for each in (*sources, *theirs)])
        drain.start()
        _until_quiet(drain)
        before, cpu = drain.taken, cpu_seconds(live.pid or 0)
        for _ in range(bursts):
            for place, stream in enumerate(streams):
                frame = wire.client_message(wire.TEXT, b"#%b#%b" % (stream.encode(), b"x" * SIZE))
                sources[place % writers].socket.sendall(frame * BURST)
            _until_quiet(drain)
        taken, used = drain.taken - before, cpu_seconds(live.pid or 0) - cpu
        deliveries = sum(1 if chooses else STREAMS for _ in theirs) * BURST * bursts
        assert taken >= deliveries * SIZE, "some frames were dropped"
        drain.is_over = True
        drain.join()
        for each in (*sources, *theirs):
            each.close()
        frames = STREAMS * BURST * bursts
        return Outcome(taken / frames, used / frames)


def _joined(live: Live, participant: Participant, streams: list[str] | None) -> Choosing:
    peer = Choosing(live.address, participant)
    peer.join_choosing(streams)
    return peer


def _until_quiet(drain: Drain) -> None:
    taken = -1
    while taken != drain.taken:
        taken = drain.taken
        time.sleep(0.5)


def main() -> None:
    need_files(2 * (STREAMS + READERS))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=1, help="connections that write (default: 1, as a game server)")
    writers = parser.parse_args().writers
    nobody = measure(0, MANY, chooses=True, writers=writers)
    everything = measure(READERS, FEW, chooses=False, writers=writers)
    one = measure(READERS, MANY, chooses=True, writers=writers)
    print(
        f"{STREAMS} streams of {writers}, bursts of {BURST} frames of {SIZE} bytes, {READERS} readers; for each frame:"
    )
    for name, outcome in (("no reader", nobody), ("all frames to each", everything), ("one stream each", one)):
        print(f"{name:>20}: {outcome.bytes:10,.0f} bytes to them, {outcome.cpu * 1e6:8.2f} us of CPU")
    print(f"bytes: 1/{everything.bytes / one.bytes:.0f}")
    print(f"CPU beyond that without readers: 1/{(everything.cpu - nobody.cpu) / max(1e-12, one.cpu - nobody.cpu):.0f}")


if __name__ == "__main__":
    main()
