"""Everything that the gateway must show, in one run, against the baseline and the bare loop.

make bench, or python benchmarks/compare.py [--only fanout,rate] [--rounds 5] [--quick] [--json FILE]

Each line is printed with its aim and whether it is held; the exit code is 1 where one is not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import writer_check
from bare_fanout import bare_fanout
from flood import Flood

from mewstream.bench.comparison import Comparison, Measurement, run_rounds
from mewstream.bench.fanout import Fanout
from mewstream.bench.idle import Idle
from mewstream.bench.join import Join
from mewstream.bench.metrics import Figures
from mewstream.bench.rate import Rate
from mewstream.bench.resource_usage import need_files
from mewstream.bench.target import Spawned, our_gateway
from mewstream.bench.workers import end_on_sigterm
from mewstream.protocol.errors import MewError

BASELINE = Spawned(
    "baseline",
    shlex.join(
        [sys.executable, str(Path(__file__).parent / "baseline_gateway.py"), "--config", "{config}", "--port", "{port}"]
    ),
)
OURS = our_gateway(durability="flush")
#: Storms of joins in each round: short, and many, for single ones differ much.
_STORMS = 4
#: Seconds for which those of one gateway may wait while the others have their storms.
_UNATTENDED = 600


class Line(NamedTuple):
    what: str
    value: str
    aim: str
    held: bool | None
    """None: nothing is asked of it."""


class Run:
    """Settings of this run, and all that was measured."""

    def __init__(self, rounds: int, quick: bool) -> None:
        self.rounds = rounds
        self.quick = quick
        self.seconds = 0.5 if quick else 3.0
        self.results: dict[str, Any] = {}

    def scaled(self, size: int) -> int:
        """A tenth where it must be quick: to see that everything works, not how well."""
        return max(5, size // 10) if self.quick else size

    def both(self, name: str, measurement: Measurement) -> Comparison:
        return self._keep(name, run_rounds(measurement, [OURS, BASELINE], self.rounds, tell=_tell(name)))

    def ours(self, name: str, measurement: Measurement) -> Comparison:
        return self._keep(name, run_rounds(measurement, [OURS], self.rounds, tell=_tell(name)))

    def in_turn(self, name: str, joins: dict[str, Join]) -> list[dict[str, Figures]]:
        """A gateway for each, and a storm in each of them in turn, again and again: the speed of a machine changes
        within seconds, and what is the difference of two storms must have had the same."""
        need_files(sum(each.needs.participants for each in joins.values()))
        with contextlib.ExitStack() as stack:
            storms: dict[str, Callable[[], Figures]] = {}
            for part, each in joins.items():
                _tell(name)(f"preparing {part}")
                needs = msgspec.structs.replace(each.needs, unattended=_UNATTENDED)
                storms[part] = stack.enter_context(each.prepared(stack.enter_context(OURS.running(needs))))
            rounds = []
            for number in range(self.rounds * _STORMS):
                _tell(name)(f"storm {number + 1} of {self.rounds * _STORMS}, {len(storms)} times")
                rounds.append({part: storm() for part, storm in storms.items()})
        self.results[name] = rounds
        return rounds

    def _keep(self, name: str, comparison: Comparison) -> Comparison:
        self.results[name] = comparison.as_json()
        for warning in comparison.warnings:
            print(f"  {name}: {warning}", file=sys.stderr)
        return comparison


def _tell(name: str) -> Callable[[str], None]:
    return lambda text: print(f"  {name}: {text}", file=sys.stderr, flush=True)


def at_least(what: str, value: float | None, aim: float, detail: str = "") -> Line:
    assert value is not None, what
    return Line(what, f"{value:.2f}x {detail}".rstrip(), f"at least {aim:g}x", value >= aim)


def at_most(what: str, value: float | None, aim: float, detail: str = "", unit: str = "x") -> Line:
    assert value is not None, what
    return Line(what, f"{value:.2f}{unit} {detail}".rstrip(), f"at most {aim:g}{unit}", value <= aim)


# -- the list of issue 6 --------------------------------------------------------------------------


def fanout(run: Run) -> Iterator[Line]:
    """Saturated fan-out."""
    for readers, aim in ((10, 20), (100, 80), (1000, 100)):
        count = run.scaled(readers)
        result = run.both(f"fanout-{readers}", Fanout(readers=count, seconds=run.seconds))
        key = "deliveries_per_second"
        detail = f"({result.median(0, key):,.0f} to {result.median(1, key):,.0f} deliveries/s)"
        yield at_least(f"fan-out to {count} readers, to the baseline", result.ratio(key), aim, detail)


def bare(run: Run) -> Iterator[Line]:
    """Fan-out at 100 readers beside a loop that only writes."""
    readers = run.scaled(100)
    ours, loop, batches = [], [], []
    for number in range(run.rounds):
        _tell("bare")(f"round {number + 1} of {run.rounds}")
        ((figures,),) = run_rounds(Fanout(readers=readers, seconds=run.seconds), [OURS], 1).rounds
        ours.append(figures["deliveries_per_second"])
        # The same average size as our gateway has just written.
        batches.append(int(figures["bytes_per_piece"]))
        bare_figures = bare_fanout(readers, seconds=run.seconds, batch_bytes=batches[-1])
        loop.append(bare_figures["deliveries_per_second"])
    run.results["bare"] = {"ours": ours, "bare": loop, "batch_bytes": batches}
    mine, most = statistics.median(ours), statistics.median(loop)
    detail = f"({mine:,.0f} of {most:,.0f} deliveries/s, batches of {statistics.median(batches):,.0f} B)"
    yield at_least(f"fan-out to {readers} readers, to a bare loop", mine / most, 0.5, detail)


def rate(run: Run) -> Iterator[Line]:
    """20 writers who read each other: the knee, and the latency far below it."""
    writers = run.scaled(20)
    bound = 500.0 if run.quick else 5.0
    knee = run.both("rate-ramp", Rate(writers=writers, hz=30, ramp=True, bound_ms=bound, seconds=min(1.5, run.seconds)))
    key = "knee_deliveries_per_second"
    detail = f"({knee.median(0, key):,.0f} to {knee.median(1, key):,.0f} deliveries/s with p99 below {bound:g} ms)"
    yield at_least(f"knee of {writers} x {writers}, to the baseline", knee.ratio(key), 5, detail)
    calm = run.both("rate-24000", Rate(writers=writers, hz=24_000 / writers**2, seconds=run.seconds))
    p50 = "latency_p50_ms"
    detail = f"({calm.median(0, p50):.2f} to {calm.median(1, p50):.2f} ms)"
    yield at_most("p50 at 24,000 deliveries/s, to the baseline", calm.ratio(p50), 1.2, detail)


def single(run: Run) -> Iterator[Line]:
    """One writer at 60 Hz: nothing to put together."""
    readers = run.scaled(1000)
    result = run.both("single-60hz", Rate(writers=1, readers=readers, hz=60, seconds=run.seconds))
    key = "cpu_ns_per_delivery"
    detail = f"({result.median(0, key):,.0f} to {result.median(1, key):,.0f} ns)"
    yield at_most(f"CPU per delivery, 60 Hz to {readers} readers, to the baseline", result.ratio(key), 0.7, detail)


def check(run: Run) -> Iterator[Line]:
    """The writer check, alone."""
    many = run.scaled(10_000)
    one, all_ = writer_check.compare(1, many)
    run.results["writer-check"] = {"ns_1_writer": one, f"ns_{many}_writers": all_}
    yield at_most(f"decision on a frame, {many} writers to 1", all_ / one, 1.1, f"({all_:.0f} to {one:.0f} ns)")


def idle(run: Run) -> Iterator[Line]:
    """Connections that do nothing."""
    connections, spaces = run.scaled(5000), run.scaled(50)
    result = run.ours("idle", Idle(connections=connections, spaces=spaces, seconds=run.seconds))
    what = f"memory of each of {connections} idle connections over {spaces} spaces"
    yield at_most(what, result.median(0, "kib_per_connection"), 20, unit=" KiB")


def join(run: Run) -> Iterator[Line]:
    """A storm of joins into 200 active streams: every welcome is checked, so to finish is to pass."""
    streams, sizes = run.scaled(200), [run.scaled(size) for size in (500, 1000, 2000)]
    storms = [run.ours(f"join-{size}", Join(participants=size, streams=streams)) for size in sizes]
    last = storms[-1]
    yield Line(
        f"join storm of {sizes[-1]} into {streams} streams",
        f"{last.median(0, 'joins_per_second'):,.0f} joins/s, welcome p99 {last.median(0, 'welcome_p99_ms'):,.0f} ms",
        "all welcomed, none wrong",
        True,
    )
    for what, key in (("byte of welcome", "cpu_ns_per_welcome_byte"), ("presence message", "cpu_ns_per_presence")):
        yield _constant(f"{what}, all of a storm", sizes, [storm.median(0, key) or 0.0 for storm in storms])
    # As many join each time, so that what a join costs anyway is in no difference. What is longer in a welcome than
    # an empty space would make it costs its bytes; who is there with a connection, and not without, costs being told.
    few, waves = run.scaled(400), 8
    variants = {"empty": Join(participants=few, waves=waves, streams=1)}
    for size in sizes:
        variants[f"bystanders-{size}"] = Join(participants=few, waves=waves, streams=streams, bystanders=size)
        variants[f"listeners-{size}"] = Join(participants=few, waves=waves, streams=streams, listeners=size)
    rounds = run.in_turn("join", variants)
    for what, more, less, count, in_one in (
        ("further byte of welcome", "bystanders-{}", "empty", "welcome_megabytes", 1e6),
        ("further presence message", "listeners-{}", "bystanders-{}", "presences", 1),
    ):
        costs = [
            statistics.median(_further(each, more.format(size), less.format(size), count) for each in rounds) / in_one
            for size in sizes
        ]
        yield _constant(what, sizes, costs)


def _further(figures: dict[str, Figures], more: str, less: str, what: str) -> float:
    """Nanoseconds of CPU for each further one."""
    used = figures[more]["cpu_seconds"] - figures[less]["cpu_seconds"]
    return used * 1e9 / (figures[more][what] - figures[less][what])


def _constant(what: str, sizes: list[int], costs: list[float]) -> Line:
    """``costs``: in nanoseconds, at every size."""
    detail = "(" + ", ".join(f"{cost:,.1f}" for cost in costs) + " ns)"
    if min(costs) <= 0:
        return Line(f"CPU per {what}", f"cannot be told {detail}", "at most 1.2x", False)
    return at_most(f"CPU per {what}, {sizes[-1]} participants to {sizes[0]}", costs[-1] / costs[0], 1.2, detail)


def flood(run: Run) -> Iterator[Line]:
    """A writer that floods another space."""
    result = run.ours("flood", Flood(seconds=run.seconds))
    calm, flooded = result.median(0, "calm_p99_ms"), result.median(0, "flooded_p99_ms")
    detail = f"({flooded:.2f} to {calm:.2f} ms)"
    yield at_most("p99 of another space during a flood, to without", result.median(0, "p99_ratio"), 3, detail)
    bound = result.median(0, "bound_mib")
    assert bound is not None
    yield at_most("growth of the gateway during a flood", result.median(0, "growth_mib"), round(bound), unit=" MiB")


PARTS: dict[str, Callable[[Run], Iterator[Line]]] = {
    each.__name__: each for each in (fanout, bare, rate, single, check, idle, join, flood)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size: to see that it works")
    parser.add_argument("--json", type=Path, help="write every figure of every round to this file")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}")
    end_on_sigterm()
    load = os.getloadavg()[0]
    if load > 1:
        print(f"warning: the load of this machine is {load:.1f}: the figures are doubtful", file=sys.stderr)
    run = Run(options.rounds, options.quick)
    lines: list[Line] = []
    for name in chosen:
        try:
            for line in PARTS[name](run):
                lines.append(line)
                print(f"{_verdict(line):8} {line.what}: {line.value} (aim: {line.aim})", flush=True)
        except MewError as error:
            lines.append(Line(name, f"failed: {error}", "", False))
            print(f"{'FAILED':8} {name}: {error}", flush=True)
        except Exception:
            traceback.print_exc()
            lines.append(Line(name, "an error of the benchmark itself", "", False))
    held = sum(line.held is True for line in lines)
    print(f"{held} of {len(lines)} held; median of {run.rounds} rounds; load at the start {load:.1f}")
    if options.json:
        report = {"load": load, "lines": [line._asdict() for line in lines], "results": run.results}
        options.json.write_text(json.dumps(report, indent=1))
    sys.exit(0 if held == len(lines) else 1)


def _verdict(line: Line) -> str:
    return "held" if line.held else "NOT HELD"


if __name__ == "__main__":
    main()
