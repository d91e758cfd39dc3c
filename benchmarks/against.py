"""Whether the gateway became slower: this checkout against an older commit, as CPU time per delivery.

python benchmarks/against.py [COMMIT] [--pairs 9] [--only fanout-10,lone] [--seconds 2]

The two gateways are measured in pairs, one right after the other, and the order alternates from pair to pair, so that
a machine whose speed changes does so for both. Each pair gives one ratio: the CPU time of the older gateway to that
of this one, so that above 1 this one is cheaper. Printed are the median of the ratios and the interval that holds the
true median with about 95 % certainty. A line fails when even the upper end of that interval is below 0.95.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import comb
from pathlib import Path
from typing import NamedTuple

from mewstream.bench.comparison import Measurement
from mewstream.bench.fanout import Fanout
from mewstream.bench.rate import Rate
from mewstream.bench.resource_usage import need_files
from mewstream.bench.target import Spawned
from mewstream.bench.workers import end_on_sigterm

ROOT = Path(__file__).resolve().parent.parent
BASE_COMMIT = "2480705"
FAILS_BELOW = 0.95
CERTAINTY = 0.95


class Line(NamedTuple):
    what: str
    measurement: Measurement
    journal: bool = True


def lines(seconds: float) -> dict[str, Line]:
    return {
        "fanout-10": Line("fan-out to 10 readers", Fanout(readers=10, seconds=seconds)),
        "fanout-100": Line("fan-out to 100 readers", Fanout(readers=100, seconds=seconds)),
        "fanout-1000": Line("fan-out to 1,000 readers", Fanout(readers=1000, seconds=seconds)),
        "lone": Line("a lone frame, 60 Hz to 1,000 readers", Rate(writers=1, readers=1000, hz=60, seconds=seconds)),
        "rate": Line("20 writers at 60 Hz who read each other", Rate(writers=20, hz=60, seconds=seconds)),
        "journal": Line("the journal: fan-out to 1 reader", Fanout(readers=1, seconds=seconds)),
        "no-journal": Line("without a journal: fan-out to 1 reader", Fanout(readers=1, seconds=seconds), journal=False),
    }


def gateway_of(checkout: Path, name: str, *, journal: bool) -> Spawned:
    """``mewstream serve`` of a checkout, under this interpreter."""
    command = ["env", f"PYTHONPATH={checkout / 'src'}", sys.executable, "-m", "mewstream.cli.main", "serve"]
    command += ["--config", "{config}", "--port", "{port}", "--log-level", "warning"]
    if journal:
        command += ["--data", "{data}", "--durability", "flush"]
    return Spawned(name, shlex.join(command))


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mewstream-against-") as directory:
        checkout = Path(directory) / "older"
        _git("worktree", "add", "--quiet", "--detach", str(checkout), commit)
        try:
            yield checkout
        finally:
            _git("worktree", "remove", "--force", str(checkout))


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True)


def cpu_per_delivery(gateway: Spawned, measurement: Measurement) -> float:
    with gateway.running(measurement.needs) as live:
        return float(measurement.measure(live)["cpu_ns_per_delivery"])


def interval(ratios: list[float]) -> tuple[float, float]:
    """The order statistics between which the median lies with the wanted certainty; for nine, the second and eighth."""
    ordered, count = sorted(ratios), len(ratios)
    skipped = 0
    while 2 * (skipped + 1) < count:
        outside = 2 * sum(comb(count, each) for each in range(skipped + 2)) / 2**count
        if 1 - outside < CERTAINTY:
            break
        skipped += 1
    return ordered[skipped], ordered[-1 - skipped]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("commit", nargs="?", default=BASE_COMMIT)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", help="some of the lines, by name")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    known = lines(options.seconds)
    chosen = options.only.split(",") if options.only else list(known)
    if unknown := set(chosen) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    end_on_sigterm()
    load = os.getloadavg()[0]
    if load > 1:
        print(f"warning: the load of this machine is {load:.1f}: the figures are doubtful", file=sys.stderr)
    results: dict[str, list[tuple[float, float]]] = {}
    failed = False
    with checked_out(options.commit) as checkout:
        for name in chosen:
            line = known[name]
            need_files(line.measurement.needs.participants)
            pair = [
                gateway_of(checkout, options.commit, journal=line.journal),
                gateway_of(ROOT, "this checkout", journal=line.journal),
            ]
            results[name] = []
            for number in range(options.pairs):
                print(f"  {name}: pair {number + 1} of {options.pairs}", file=sys.stderr, flush=True)
                order = (0, 1) if number % 2 == 0 else (1, 0)
                used = {each: cpu_per_delivery(pair[each], line.measurement) for each in order}
                results[name].append((used[0], used[1]))
            ratios = [older / newer for older, newer in results[name]]
            low, high = interval(ratios)
            slower = high < FAILS_BELOW
            failed |= slower
            older, newer = (statistics.median(each) for each in zip(*results[name], strict=True))
            print(
                f"{'SLOWER' if slower else 'held':7} {line.what}: {statistics.median(ratios):.2f} "
                f"({low:.2f} to {high:.2f}), {older:,.0f} to {newer:,.0f} ns per delivery",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"commit": options.commit, "load": load, "pairs": results}, indent=1))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
