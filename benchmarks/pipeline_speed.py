"""How fast the pipeline is, as ratios of durations in one run on one journal:

* the whole pipeline (all tables and the audit) to a bare Spark job that copies the journal to Parquet;
* a scan of the journal by our source to Spark's own scan of the same rows in Parquet;
* the whole pipeline on twice the journal;
* the CPU time of the executors, with that of their Python, for equal micro-batches: the last ten to the first ten after
  a warm-up.

make bench-pipeline
python benchmarks/pipeline_speed.py --frames 400000      # a quick look
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "pipeline"))

import psutil
from journals import POSITION_FORMAT, Play, append, opened, seal_segments
from pyspark.sql import SparkSession

from mewstream.pipeline.runner import DRIVER_MEMORY, Progress, Settings, run
from mewstream.pipeline.session import spark_session
from mewstream.pipeline.warehouse import open_warehouse
from mewstream.protocol import commands
from mewstream.protocol.decide import decide
from mewstream.protocol.fold import apply
from mewstream.protocol.records import FrameBlock

STREAMS = 50
SPACES = 5
WRITERS = ("ann", "bob", "cy", "dee")
RUN_OF_FRAMES = 20
MICROS_BETWEEN_RUNS = 36_000
SCANS = 3
WARM_UP = 10
STEPS = 25
STEP_RECORDS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frames", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="of copy, scans and pipeline, in turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure(Path(directory), options.frames, options.rounds)


def measure(root: Path, frames: int, rounds: int) -> None:
    once, twice, steps = root / "once", root / "twice", root / "steps"
    write(once, frames)
    write(twice, 2 * frames)
    write(steps, (WARM_UP + STEPS) * STEP_RECORDS)
    spark = spark_session(config={"spark.driver.memory": DRIVER_MEMORY, "spark.ui.retainedStages": "300"})
    copied = root / "copy"

    def copy() -> None:
        spark.read.format("mew").load(str(once)).write.mode("overwrite").parquet(str(copied))

    def scan_journal() -> None:
        spark.read.format("mew").load(str(once)).write.format("noop").mode("overwrite").save()

    def scan_parquet() -> None:
        spark.read.parquet(str(copied)).write.format("noop").mode("overwrite").save()

    copies, ours, theirs, pipelines = [], [], [], []
    for number in range(rounds):
        copies.append(seconds(copy))
        for _ in range(SCANS):
            ours.append(seconds(scan_journal))
            theirs.append(seconds(scan_parquet))
        warehouse = root / f"once-tables-{number}"
        pipelines.append(seconds(lambda: bring_up_to_date(spark, once, warehouse)))  # noqa: B023 - called at once
        check(spark, warehouse, frames)
        scans = ", ".join(f"{mine:.1f}/{its:.1f}" for mine, its in zip(ours[-SCANS:], theirs[-SCANS:], strict=True))
        print(
            f"round {number + 1}: copy {copies[-1]:.1f} s, scans {scans} s, pipeline {pipelines[-1]:.1f} s", flush=True
        )
    doubled = seconds(lambda: bring_up_to_date(spark, twice, root / "twice-tables"))
    check(spark, root / "twice-tables", 2 * frames)
    sizes = cpu_of_steps(spark, steps, root / "steps-tables")
    spark.stop()

    copied_in, ran_in = statistics.median(copies), statistics.median(pipelines)
    ours_in, theirs_in = statistics.median(ours), statistics.median(theirs)
    first, last = statistics.median(sizes[:10]), statistics.median(sizes[-10:])
    print(f"{frames:,} frames of {STREAMS} streams in {SPACES} spaces, a fifth with a JSON Schema")
    by_round = ", ".join(f"{ran / its_copy:.1f}" for ran, its_copy in zip(pipelines, copies, strict=True))
    print(f"bare copy {copied_in:6.1f} s   pipeline {ran_in:6.1f} s   ratio {ran_in / copied_in:.2f} (at most 5)")
    print(f"          by rounds {by_round}")
    print(f"scan      {ours_in:6.1f} s   Parquet  {theirs_in:6.1f} s   rate  {theirs_in / ours_in:.2f} (at least 0.5)")
    print(f"twice     {doubled:6.1f} s   ratio {doubled / pipelines[-1]:.2f} to the last round (at most 2.2)")
    print(f"CPU of a micro-batch: first {first:.2f} s, last {last:.2f} s, ratio {last / first:.2f} (0.75 to 1.25)")


# -- the journal ----------------------------------------------------------------------------------


def write(data: Path, frames: int) -> None:
    """A journal as a gateway would have left it: sealed segments, and a tail."""
    plays = [Play(f"space-{number}", people=WRITERS) for number in range(SPACES)]
    streams = []
    for number in range(STREAMS):
        play, owner = plays[number % SPACES], WRITERS[number % len(WRITERS)]
        if not play.state.is_present(owner):
            for each in WRITERS:
                play.join(each)
        formats = [POSITION_FORMAT] if number % 5 == 0 else []
        streams.append((play, owner, play.announce(owner, formats=formats)))
    with opened(data) as journal:
        append(journal, *plays, per_batch=100)
        now = max(play.now for play in plays)
        for number in range(frames // RUN_OF_FRAMES):
            play, owner, stream = streams[number % STREAMS]
            now += MICROS_BETWEEN_RUNS
            data_of_frames = [
                json.dumps({"x": number + each / 7, "label": f"player-{each}", "ts": now // 1000}).encode()
                for each in range(RUN_OF_FRAMES)
            ]
            (block,) = decide(play.state, now, commands.SendFrames(owner, stream, data_of_frames, 1)).written
            assert isinstance(block, FrameBlock)
            apply(play.state, block)
            partition = journal.partition(play.space)
            partition.append(play.space, "play-1", block)
            if partition.pending_bytes > 1 << 20:
                partition.flush()
        for partition in journal.partitions:
            partition.flush()
        seal_segments(journal)


# -- what is measured -----------------------------------------------------------------------------


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def bring_up_to_date(spark: SparkSession, data: Path, warehouse: Path) -> None:
    run(Settings(data=str(data), warehouse=warehouse), spark=spark)


def check(spark: SparkSession, warehouse: Path, frames: int) -> None:
    """Nothing is fast that is wrong."""
    tables = open_warehouse(warehouse)
    summary = tables.table(spark, "space_summary").selectExpr("sum(frames)", "sum(frames_judged)", "sum(findings)")
    assert tuple(summary.first() or ()) == (frames, frames, 0)
    formatted = frames // 5
    assert tables.table(spark, "content").count() == formatted


def cpu_of_steps(spark: SparkSession, data: Path, warehouse: Path) -> list[float]:
    """Seconds of CPU of the executors and their Python workers for each micro-batch after the warm-up."""
    newest, workers = -1, cpu_of_python(spark)
    batches: list[float] = []

    def progress(_: Progress) -> None:
        nonlocal newest, workers
        stages = [stage for stage in stages_of(spark) if stage[0] > newest]
        newest = max(number for number, _ in stages)
        before, workers = workers, cpu_of_python(spark)
        batches.append(sum(cpu for _, cpu in stages) + workers - before)

    run(Settings(data=str(data), warehouse=warehouse, max_records=STEP_RECORDS), progress, spark=spark)
    return batches[WARM_UP:]


def cpu_of_python(spark: SparkSession) -> float:
    """Of all that Spark started: the workers that live, and those that have ended, which their parent counts."""
    java = psutil.Process(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    return sum(sum(each.cpu_times()[:4]) for each in java.children(recursive=True))


def stages_of(spark: SparkSession) -> list[tuple[int, float]]:
    """The stages that Spark remembers, each with its CPU time in seconds."""
    context = spark.sparkContext
    no_list = context._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)  # type: ignore[union-attr]
    stages = context._jsc.sc().statusStore().stageList(no_list, False, False, no_quantiles, no_list)
    every = [stages.apply(place) for place in range(stages.size())]
    return [(each.stageId(), each.executorCpuTime() / 1e9) for each in every]


if __name__ == "__main__":
    main()
