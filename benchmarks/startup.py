"""How long a gateway takes to start on a journal of 50 thousand and of 5 million records.

make bench-startup
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import yaml

from mewstream.journal.local import LocalJournal
from mewstream.protocol import commands
from mewstream.protocol.decide import decide
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.fold import apply
from mewstream.protocol.state import SpaceState
from support import space_config

SNAPSHOT_EVERY = 100_000
TAIL = 40_000
BATCH = 2_000
ROUNDS = 5


def fill(data: Path, records: int) -> None:
    """A journal as a gateway would have left it when it was killed: snapshots, and a tail after the last."""
    journal = LocalJournal(data)
    state = SpaceState("demo")
    now = time.time_ns() // 1000

    def do(command: commands.Command) -> None:
        for record in decide(state, now, command).records:
            journal.append("demo", record)
            apply(state, record)

    do(commands.Start(journal.epoch, {"participants": {"server": {"capabilities": [{"kind": "*"}]}}}))
    do(commands.Join("server", "websocket"))
    for _ in range(50):
        do(commands.Send("server", parse_envelope(b'{"kind":"stream/request","payload":{}}', max_id_bytes=128)))
    partition = journal.partition("demo")
    number = journal.partitions.index(partition)
    streams = list(state.streams)
    data_bytes = b"x" * 100
    # The tail is the same for both sizes: it is what a snapshot cannot save.
    last_snapshot = records - TAIL
    while state.seq < records:
        for _ in range(min(BATCH, records - state.seq)):
            stream = streams[state.seq % len(streams)]
            for record in decide(state, now, commands.SendFrame("server", stream, data_bytes, 1)).records:
                journal.append("demo", record)
                apply(state, record)
        partition.flush()
        for waiting, name in journal.segments_to_seal():
            waiting.seal(name)
        if (state.seq % SNAPSHOT_EVERY < BATCH and state.seq < last_snapshot) or state.seq == last_snapshot:
            journal.write_snapshot(*journal.encode_snapshot(number, {"demo": state}))
    # Not close(): that would leave a snapshot of the end. A killed gateway leaves none.
    partition.sync()


def start_seconds(directory: Path, data: Path) -> float:
    config = directory / "space.yaml"
    config.write_text(yaml.safe_dump(space_config("server")))
    command = [sys.executable, "-m", "mewstream.cli.main", "serve", "--port", "0"]
    command += ["--config", str(config), "--data", str(data)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as gateway:
        assert gateway.stdout is not None
        assert "listening on http" in gateway.stdout.readline()
        seconds = time.perf_counter() - started
        gateway.kill()  # so that the next start finds the same tail
    return seconds


def main() -> None:
    sizes = [50_000, 5_000_000]
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        for size in sizes:
            child = directory / str(size)
            child.mkdir()
            filled = time.perf_counter()
            import multiprocessing

            worker = multiprocessing.get_context("spawn").Process(target=fill, args=(child / "data", size))
            worker.start()
            worker.join()
            assert worker.exitcode == 0
            print(f"{size:10,} records written in {time.perf_counter() - filled:.1f} s", flush=True)
        (directory / "empty").mkdir()
        taken: dict[str, list[float]] = {name: [] for name in ("empty", *map(str, sizes))}
        for round_ in range(ROUNDS):
            for name in taken:
                data = directory / name / "data" if name != "empty" else directory / "empty" / f"data-{round_}"
                taken[name].append(start_seconds(directory / name, data))
        print(f"start to ready, median of {ROUNDS}, the same tail of {TAIL:,} records after the last snapshot")
        for name, seconds in taken.items():
            print(f"{name:>10} {statistics.median(seconds):6.2f} s")
        small, large = (statistics.median(taken[str(size)]) for size in sizes)
        print(f"ratio of {sizes[1]:,} to {sizes[0]:,}: {large / small:.2f}")


if __name__ == "__main__":
    main()
