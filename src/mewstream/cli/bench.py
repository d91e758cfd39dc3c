"""``mewstream bench``: measure a MEW gateway, ours or another."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mewstream.bench.auth import Auth
from mewstream.bench.comparison import Measurement, run_rounds
from mewstream.bench.control import Control
from mewstream.bench.errors import CheckFailed, Refused, Unreachable
from mewstream.bench.fanout import Fanout
from mewstream.bench.idle import Idle
from mewstream.bench.join import Join
from mewstream.bench.order import MIN_SIZE
from mewstream.bench.pattern import DIGITS
from mewstream.bench.rate import Rate
from mewstream.bench.roster import Needs, Roster, roster_of_files, roster_of_template
from mewstream.bench.target import Remote, Spawned, Target, our_gateway
from mewstream.bench.workers import end_on_sigterm
from mewstream.cli.output import complain, print_json, print_table, quietly
from mewstream.cli.values import size_in_bytes, time_span
from mewstream.extras import require

REFUSED, NO_CONNECTION = 1, 3
_ROUNDS_OF_A_COMPARISON = 5

_TARGET_OPTIONS = (
    click.option("--url", help="The gateway, for instance ws://127.0.0.1:8080/ws."),
    click.option(
        "--config",
        "configs",
        multiple=True,
        type=click.Path(path_type=Path),
        help="A space.yaml whose participants and tokens are used; may be given several times.",
    ),
    click.option(
        "--token-template",
        envvar="MEW_BENCH_TOKEN",
        help="Without --config: the token of each participant, with {id} in it. Better in MEW_BENCH_TOKEN.",
    ),
    click.option(
        "--participants",
        "ids",
        default="bench-{n}",
        show_default=True,
        help="Without --config: the participants' ids, with {n} in it.",
    ),
    click.option(
        "--space",
        default="bench",
        show_default=True,
        help="Without --config: the space; with {s} in it where several are needed.",
    ),
    click.option("--pid", type=int, help="Process of the gateway at --url, on this machine: CPU and memory are read."),
    click.option("--spawn", is_flag=True, help="Start mewstream serve for each round, with a space made for it."),
    click.option(
        "--spawn-command",
        help="Start another gateway for each round: a command with {config}, {port} and {data} in it.",
    ),
    click.option(
        "--durability",
        type=click.Choice(["none", "flush", "fsync"]),
        default="flush",
        show_default=True,
        help="Of the journal, with --spawn.",
    ),
    click.option("--no-journal", is_flag=True, help="With --spawn: no journal at all."),
    click.option("--compare", "compare_url", help="A second gateway that is measured in turn with the first."),
    click.option("--compare-command", help="The same, started for each round: as --spawn-command."),
    click.option(
        "--compare-config",
        "compare_configs",
        multiple=True,
        type=click.Path(path_type=Path),
        help="As --config, for the second.  [default: that of the first]",
    ),
    click.option("--compare-pid", type=int, help="As --pid, for the second."),
    click.option("--rounds", type=click.IntRange(1), help="How often each is measured.  [default: 1, comparing 5]"),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object: every round, medians, ratios."),
)


def _measure(measurement: Measurement, options: dict[str, Any]) -> None:
    """Run a measurement as the common options say, and print its figures."""
    end_on_sigterm()
    targets = _targets(options)
    rounds = options["rounds"] or (_ROUNDS_OF_A_COMPARISON if len(targets) > 1 else 1)
    quiet = options["as_json"]
    tell = None if quiet or rounds * len(targets) == 1 else complain
    try:
        comparison = run_rounds(measurement, targets, rounds, tell=tell)
    except CheckFailed as failed:
        complain(f"the gateway did not pass the check: {failed}")
        sys.exit(REFUSED)
    except (Refused, Unreachable) as error:
        complain(error)
        sys.exit(REFUSED if isinstance(error, Refused) else NO_CONNECTION)
    if quiet:
        print_json(comparison.as_json())
        return
    settings = ", ".join(f"{key} {value}" for key, value in comparison.settings.items())
    columns = [f"median of {rounds}" if rounds > 1 else "", *comparison.targets]
    if len(targets) > 1:
        columns.append("ratio")
    print_table(f"{comparison.measurement} ({settings})", columns, comparison.rows())
    for warning in comparison.warnings:
        complain(warning)


def _targets(options: dict[str, Any]) -> list[Target]:
    if sum(bool(options[way]) for way in ("url", "spawn", "spawn_command")) != 1:
        raise click.UsageError("say which gateway: one of --url, --spawn or --spawn-command")
    if options["compare_url"] and options["compare_command"]:
        raise click.UsageError("--compare and --compare-command are two ways to say the same: give one of them")
    targets: list[Target] = []
    if options["url"]:
        targets.append(Remote(options["url"], _roster_of(options["configs"], options), pid=options["pid"]))
    elif options["spawn"]:
        require("gateway")
        targets.append(our_gateway(durability=options["durability"], journal=not options["no_journal"]))
    else:
        targets.append(Spawned(_name(options["spawn_command"]), options["spawn_command"]))
    if options["compare_url"]:
        configs = options["compare_configs"] or options["configs"]
        targets.append(Remote(options["compare_url"], _roster_of(configs, options), pid=options["compare_pid"]))
    elif options["compare_command"]:
        targets.append(Spawned(_name(options["compare_command"]), options["compare_command"]))
    return targets


def _roster_of(configs: tuple[Path, ...], options: dict[str, Any]) -> Callable[[Needs], Roster]:
    if configs:
        roster = roster_of_files(list(configs))
        return lambda needs: roster
    if not options["token_template"]:
        raise click.UsageError(
            "the participants need tokens: give --config space.yaml, or set MEW_BENCH_TOKEN to a template with {id}"
        )
    return lambda needs: roster_of_template(
        needs, space=options["space"], ids=options["ids"], token=options["token_template"]
    )


def _name(command: str) -> str:
    """Return a short name for a column: the script or program."""
    words = command.split()
    return Path(next((word for word in words if word.endswith((".py", ".js"))), words[0])).name


def _measured(command: Callable[..., Measurement]) -> Callable[..., None]:
    """Turn a function that returns a measurement into a command that runs it."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        common = {name: options.pop(name) for name in _COMMON}
        _measure(command(**options), common)

    wrapped: Callable[..., None] = quietly(run)
    for option in reversed(_TARGET_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


_COMMON = (
    *("url", "configs", "token_template", "ids", "space", "pid", "spawn", "spawn_command", "durability", "no_journal"),
    *("compare_url", "compare_command", "compare_configs", "compare_pid", "rounds", "as_json"),
)

_seconds = click.option(
    "--seconds",
    callback=time_span(least=0.1),
    metavar="TIME",
    default="3",
    show_default=True,
    help="How long each run sends: 3, 10s, 2m.",
)
_workers = click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that read for the readers."
)
_binary = click.option("--binary", is_flag=True, help="Send binary frames instead of text.")


def _size(least: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--size",
        callback=size_in_bytes(least=least),
        metavar="SIZE",
        default="100",
        show_default=True,
        help="Bytes of data in a frame: 100, 4KiB.",
    )


@click.group()
def bench() -> None:
    """Measure a MEW gateway, ours or another, and check everything it delivers.

    All measurements speak plain v0.4. Every run checks that each reader got every frame, in order and
    unchanged; if not, the exit code is 1 and there are no figures. If the process of the gateway is known
    (--pid, --spawn), its CPU time is measured too. The load generator also reports its own CPU time.

    \b
    Examples:
      mewstream bench fanout --spawn --readers 100
      mewstream bench rate --url ws://127.0.0.1:8080 --config space.yaml --writers 2 --ramp
      mewstream bench fanout --spawn --compare-command "node gateway.js --config {config} --port {port}"
    """


@bench.command()
@click.option("--readers", type=click.IntRange(1), default=10, show_default=True, help="Besides the writer.")
@_size(DIGITS)
@_seconds
@_binary
@_workers
@_measured
def fanout(readers: int, size: int, seconds: float, binary: bool, workers: int) -> Measurement:
    """Measure one writer at full speed, with many readers.

    \b
    Examples:
      mewstream bench fanout --spawn --readers 1000
      mewstream bench fanout --spawn --no-journal --size 1000 --json
    """
    return Fanout(readers=readers, size=size, seconds=seconds, binary=binary, workers=workers)


@bench.command()
@click.option("--writers", type=click.IntRange(1, 9999), default=20, show_default=True, help="Each has a stream.")
@click.option("--readers", type=click.IntRange(0), default=0, show_default=True, help="Participants that only read.")
@click.option(
    "--hz", type=click.FloatRange(0.01), default=60.0, show_default=True, help="Frames a second of each writer."
)
@_size(MIN_SIZE)
@_seconds
@click.option("--ramp", is_flag=True, help="Raise the rate from --hz until the p99 exceeds the bound: the knee.")
@click.option(
    "--bound", type=click.FloatRange(0.1), default=5.0, show_default=True, help="Milliseconds of p99, with --ramp."
)
@_binary
@_workers
@_measured
def rate(
    writers: int,
    readers: int,
    hz: float,
    size: int,
    seconds: float,
    ramp: bool,
    bound: float,
    binary: bool,
    workers: int,
) -> Measurement:
    """Measure the latency at a steady rate, or the highest rate with a short latency.

    \b
    Examples:
      mewstream bench rate --spawn --writers 20 --hz 60
      mewstream bench rate --spawn --writers 1 --readers 1000 --hz 60
      mewstream bench rate --spawn --ramp --bound 5
    """
    return Rate(
        writers=writers,
        readers=readers,
        hz=hz,
        size=size,
        seconds=seconds,
        ramp=ramp,
        bound_ms=bound,
        binary=binary,
        workers=workers,
    )


@bench.command()
@click.option("--pairs", type=click.IntRange(1), default=4, show_default=True, help="Each hands a stream to and fro.")
@click.option(
    "--readers",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Participants that read the frames meanwhile.",
)
@click.option(
    "--hz", type=click.FloatRange(0.01), default=1000.0, show_default=True, help="Frames a second that flow meanwhile."
)
@_size(MIN_SIZE)
@_seconds
@_workers
@_measured
def control(pairs: int, readers: int, hz: float, size: int, seconds: float, workers: int) -> Measurement:
    """Measure grants, revokes and transfers per second while frames flow.

    \b
    Examples:
      mewstream bench control --spawn
      mewstream bench control --spawn --durability fsync --pairs 16
    """
    return Control(pairs=pairs, readers=readers, hz=hz, size=size, seconds=seconds, workers=workers)


@bench.command()
@click.option(
    "--joiners", type=click.IntRange(1), default=500, show_default=True, help="Participants that join at once."
)
@click.option("--streams", type=click.IntRange(1), default=50, show_default=True, help="Streams that are active.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Participants that wait for a welcome at any time.",
)
@click.option(
    "--bystanders",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Participants that are present without a connection (auto_connect).",
)
@click.option(
    "--listeners",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Participants that are connected and are told about every join.",
)
@click.option("--waves", type=click.IntRange(1), default=1, show_default=True, help="Join in this many waves.")
@_measured
def join(joiners: int, streams: int, concurrency: int, bystanders: int, listeners: int, waves: int) -> Measurement:
    """Measure a storm of joins, and check every welcome.

    \b
    Examples:
      mewstream bench join --spawn --joiners 2000 --streams 200
    """
    return Join(
        participants=joiners,
        streams=streams,
        concurrency=concurrency,
        bystanders=bystanders,
        listeners=listeners,
        waves=waves,
    )


@bench.command()
@click.option("--connections", type=click.IntRange(1), default=1000, show_default=True, help="How many.")
@click.option("--spaces", type=click.IntRange(1), default=10, show_default=True, help="Over which they are spread.")
@click.option(
    "--seconds",
    callback=time_span(least=0.1),
    metavar="TIME",
    default="3",
    show_default=True,
    help="For which they are left alone: 3, 10s, 2m.",
)
@_measured
def idle(connections: int, spaces: int, seconds: float) -> Measurement:
    """Measure the memory of the gateway for idle connections. Needs --spawn or --pid.

    \b
    Examples:
      mewstream bench idle --spawn --connections 5000 --spaces 50
    """
    return Idle(connections=connections, spaces=spaces, seconds=seconds)


@bench.command()
@click.option(
    "--writers",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 100, 10_000),
    show_default=True,
    help="Authorized writers of the stream; may be given several times.",
)
@_size(DIGITS)
@_seconds
@_measured
def auth(writers: tuple[int, ...], size: int, seconds: float) -> Measurement:
    """Measure the cost of a frame as the number of authorized writers grows.

    \b
    Examples:
      mewstream bench auth --spawn
      mewstream bench auth --spawn --writers 1 --writers 1000 --json
    """
    return Auth(writers=tuple(sorted(set(writers))), size=size, seconds=seconds)
