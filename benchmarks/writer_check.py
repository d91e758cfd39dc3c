"""What the decision on one frame costs with 1 and with 10,000 authorized writers, without a network.

python benchmarks/writer_check.py
"""

from __future__ import annotations

import gc
import statistics
import time

from mewstream.protocol import commands
from mewstream.protocol.decide import decide
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.fold import apply
from mewstream.protocol.records import Frame
from mewstream.protocol.state import SpaceState

NOW = 1_800_000_000_000_000
FRAMES = 20_000


def space_with(writers: int) -> SpaceState:
    """A space with one stream, which so many may write to: its owner is one of them."""
    state = SpaceState("bench")
    people = [f"p{number}" for number in range(writers)]

    def do(command: commands.Command) -> None:
        for record in decide(state, NOW, command).records:
            apply(state, record)

    do(commands.Start("epoch", {"participants": {id: {"capabilities": [{"kind": "*"}]} for id in people}}))
    for id in people:
        do(commands.Join(id, "websocket"))
    do(commands.Send(people[0], parse_envelope(b'{"kind":"stream/request","payload":{}}', max_id_bytes=128)))
    for id in people[1:]:
        grant = b'{"kind":"stream/grant-write","payload":{"stream_id":"stream-1","participant_id":"%b"}}' % id.encode()
        do(commands.Send(people[0], parse_envelope(grant, max_id_bytes=128)))
    assert len(state.streams["stream-1"].authorized_writers()) == writers
    return state


def nanoseconds_per_frame(state: SpaceState, writer: str) -> float:
    command = commands.SendFrame(writer, "stream-1", b"x" * 100, 1)
    started = time.process_time_ns()
    for _ in range(FRAMES):
        decide(state, NOW, command)
    return (time.process_time_ns() - started) / FRAMES


def compare(few: int = 1, many: int = 10_000, rounds: int = 15) -> tuple[float, float]:
    """CPU nanoseconds of one decision with few and with many writers, in turn; the median of each."""
    small, large = space_with(few), space_with(many)
    last_of_small, last_of_large = f"p{few - 1}", f"p{many - 1}"
    for state, writer in ((small, last_of_small), (large, last_of_large)):
        (record,) = decide(state, NOW, commands.SendFrame(writer, "stream-1", b"", 1)).records
        assert isinstance(record, Frame)  # accepted, not refused
    gc.collect()
    gc.freeze()
    times: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        times[0].append(nanoseconds_per_frame(small, last_of_small))
        times[1].append(nanoseconds_per_frame(large, last_of_large))
    gc.unfreeze()
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    few, many = compare()
    print(f"1 writer {few:.0f} ns, 10,000 writers {many:.0f} ns per frame, ratio {many / few:.3f}")


if __name__ == "__main__":
    main()
