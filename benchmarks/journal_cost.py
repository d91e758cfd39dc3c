"""What the journal costs: the same saturated fan-out with and without it, interleaved in one run.

make bench-journal
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from saturate import Run, saturate

from support import GatewayProcess, space_config, token_of

READERS = 10
FRAMES = 300_000
ROUNDS = 5


def main() -> None:
    readers = [f"reader-{number}" for number in range(READERS)]
    config = space_config("writer", *readers)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateways: dict[str, GatewayProcess] = {}
        for name, options in {
            "without": (),
            "flush": ("--data", str(directory / "flush-data")),
            "fsync": ("--data", str(directory / "fsync-data"), "--durability", "fsync"),
        }.items():
            (directory / name).mkdir()
            gateways[name] = GatewayProcess(directory / name, config, options=options).start()
            stack.callback(gateways[name].stop)
        runs: dict[str, list[Run]] = {name: [] for name in gateways}
        for _ in range(ROUNDS):
            for name, gateway in gateways.items():
                runs[name].append(saturate(gateway.port, readers, "writer", FRAMES, gateway.pid, token_of))
        base = statistics.median(run.frames_per_second for run in runs["without"])
        print(f"1 writer, {READERS} readers, {FRAMES} frames of 100 bytes, median of {ROUNDS} rounds")
        for name, each in runs.items():
            rate = statistics.median(run.frames_per_second for run in each)
            cpu = statistics.median(run.cpu_seconds / run.frames / READERS for run in each)
            print(
                f"{name:8} {rate:10,.0f} frames/s {rate * READERS:12,.0f} deliveries/s  "
                f"{cpu * 1e9:6.0f} ns CPU per delivery  ratio {rate / base:.2f}"
            )


if __name__ == "__main__":
    main()
