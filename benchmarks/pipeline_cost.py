"""What a run of the pipeline costs: this checkout against an older commit, as CPU time of everything that it starts.

python benchmarks/pipeline_cost.py [COMMIT] [--pairs 5] [--frames 4000000] [--batches 50] [--only large,small]
python benchmarks/pipeline_cost.py --only ended --batches 200

``large`` is one run over a journal of 4,000,000 frames. ``small`` are 50 batches of 1,000 records of all kinds, after
ten more that warm up Java; it tells how many jobs of Spark a batch took. ``ended`` is of this checkout alone: batches
of 500 new spaces each, which end, and what the last of them cost to those around the tenth. Both checkouts run in
processes of their own, one right after the other, and the order alternates. Counted is the CPU time of the driver, of
the JVM and of all Python workers, also of those that have ended. Each pair gives one ratio, this checkout to the older
one: below 1 this one is cheaper.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BASE_COMMIT = "2480705"
BATCH_RECORDS = 1000
WARM_UP = 10
SPACES = 5
ENDED_SPACES = 500
RECORDS_OF_A_SPACE = 8
#: So many batches are looked at together.
WINDOW = 6
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("commit", nargs="?", default=BASE_COMMIT)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--frames", type=int, default=4_000_000)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--only", default="large,small")
    parser.add_argument("--journals", type=Path, help="keep the journals here, and use those that are there")
    options = parser.parse_args()
    from against import checked_out, interval

    # Workers whose parent has ended become ours, so that their CPU time is counted too.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with checked_out(options.commit) as older, tempfile.TemporaryDirectory(prefix="mewstream-cost-") as scratch:
        checkouts = {"older": older, "this": HERE.parent}
        journals = options.journals or Path(scratch)
        for line in options.only.split(","):
            size = options.frames if line == "large" else (WARM_UP + options.batches) * BATCH_RECORDS
            if line == "ended":
                size = options.batches
            data = journals / f"{line}-{size}"
            if not data.exists():
                # By the older checkout: the newer one reads what it writes.
                _child(older, "write", line, str(data), str(size))
            if line == "ended":
                ratio = _child(HERE.parent, "run", line, str(data), f"{scratch}/ended")
                print(
                    f"{line}: batches {size - WINDOW + 1} to {size} cost {ratio:.3f} times those around the tenth",
                    flush=True,
                )
                continue
            ratios = []
            for pair in range(options.pairs):
                cost = {}
                for name in ("older", "this") if pair % 2 == 0 else ("this", "older"):
                    with tempfile.TemporaryDirectory(dir=scratch) as warehouse:
                        cost[name] = _child(checkouts[name], "run", line, str(data), f"{warehouse}/tables")
                ratios.append(cost["this"] / cost["older"])
                print(f"{line} {pair + 1}: older {cost['older']:.1f} s, this {cost['this']:.1f} s", flush=True)
            low, high = interval(ratios) if len(ratios) > 1 else (ratios[0], ratios[0])
            print(f"{line}: ratio {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})", flush=True)


def _child(checkout: Path, *arguments: str) -> float:
    """Run this script with the code of a checkout, and return the CPU seconds that it tells, or that it took."""
    before = _used()
    environ = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{checkout / 'tests/pipeline'}"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", *arguments]
    done = subprocess.run(command, env=environ, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    told = done.stdout.strip()
    return float(told) if told else _used() - before


def _used() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


# -- in a process of its own, with the code of one checkout -----------------------------------------


def child(what: str, line: str, data: str, last: str) -> None:
    if what == "write":
        write(line, Path(data), int(last))
    elif line == "large":
        from mewstream.pipeline.runner import Settings, run

        assert run(Settings(data=data, warehouse=Path(last))).batches == 1
    elif line == "ended":
        costs = costs_of_batches(data, Path(last), ENDED_SPACES * RECORDS_OF_A_SPACE)
        early = costs[WARM_UP - WINDOW // 2 : WARM_UP + WINDOW // 2]
        print(statistics.median(costs[-WINDOW:]) / statistics.median(early))
    else:
        print(sum(costs_of_batches(data, Path(last), BATCH_RECORDS)[WARM_UP:]))


def write(line: str, data: Path, size: int) -> None:
    sys.path.insert(0, str(Path.cwd() / "benchmarks"))
    if line == "large":
        from pipeline_speed import write as write_frames

        write_frames(data, size)
        return
    if line == "ended":
        write_ended(data, size)
        return
    from journals import lively, write_journal

    plays = [lively(size // SPACES, space=f"space-{number}", seed=number) for number in range(SPACES)]
    write_journal(data, *plays, per_batch=50)


def write_ended(data: Path, batches: int) -> None:
    """Spaces that begin, have a stream with a frame, and end."""
    from journals import Play, append, opened

    with opened(data) as journal:
        for batch in range(batches):
            spaces = []
            for number in range(ENDED_SPACES):
                play = Play(f"space-{batch}-{number}", people=("ann",), begin=True)
                play.open("ann")
                play.frame("ann", "stream-1")
                play.send("ann", "stream/close", stream_id="stream-1")
                play.leave("ann")
                assert len(play.records) == RECORDS_OF_A_SPACE, len(play.records)
                spaces.append(play)
            append(journal, *spaces, per_batch=500)


def costs_of_batches(data: str, warehouse: Path, records: int) -> list[float]:
    """CPU seconds of each batch."""
    from mewstream.pipeline.runner import Progress, Settings, run
    from mewstream.pipeline.session import spark_session

    spark = spark_session(config={"spark.driver.memory": "3g"})
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    marks, jobs = [_of_the_tree()], [0]

    def progress(_: Progress) -> None:
        marks.append(_of_the_tree())
        jobs.append(scheduler.numTotalJobs())

    run(Settings(data=data, warehouse=warehouse, max_records=records), progress, spark=spark)
    per_batch = [after - before for before, after in itertools.pairwise(jobs)]
    print(
        f"  {len(marks) - 1} batches, {time.process_time():.1f} s in the driver, "
        f"{statistics.median(per_batch[WARM_UP:] or per_batch)} jobs in a batch",
        file=sys.stderr,
    )
    return [after - before for before, after in itertools.pairwise(marks)]


def _of_the_tree() -> float:
    """Of this process and of everything below it, with what has ended there."""
    import psutil

    me = psutil.Process()
    return sum(sum(each.cpu_times()[:4]) for each in [me, *me.children(recursive=True)])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        sys.path.insert(0, str(HERE))
        main()
