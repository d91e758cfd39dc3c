"""A process that writes a journal as a gateway does: it appends, seals full segments, and prunes what was consumed.

``python live_writer.py DATA RECORDS SEED`` says ``ready`` when the journal is there, and begins when it is answered.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from journals import Play, append, lively, opened, seal_segments

from mewstream.journal.retention import Retention, consumers, plan_pruning

AHEAD = 1000
#: In all four partitions, one of them shared.
SPACES = ("demo", "other", "second", "s-3", "lobby")


def logs_of(records: int, seed: int) -> list[Play]:
    """What it writes, all in all."""
    return [lively(records // len(SPACES), space=each, seed=seed + place) for place, each in enumerate(SPACES)]


def consumed(data: Path) -> int:
    return min(sum(each.offsets.values()) for each in consumers(data / "journal").values())


def main(data: Path, records: int, seed: int) -> None:
    chance = random.Random(seed)
    plays = logs_of(records, seed)
    logs = [list(play.records) for play in plays]
    with opened(data, segment_bytes=30_000) as journal:
        print("ready", flush=True)
        sys.stdin.readline()
        done = 0
        while done < max(map(len, logs)):
            done += chance.randrange(1, 40)
            for play, log in zip(plays, logs, strict=True):
                play.records = log[:done]
            append(journal, *plays, per_batch=chance.randrange(1, 30))
            seal_segments(journal)
            ends = {number: partition.next_offset for number, partition in enumerate(journal.partitions)}
            retention, now = Retention(max_bytes=1), time.time_ns() // 1000
            plan = plan_pruning(data / "journal", retention, now=now, partitions=len(ends), snapshots=ends)
            journal.prune(plan)
            # Never far ahead of who reads it, so that it is pruned while it is read, however slow that is.
            while sum(ends.values()) - consumed(data) > AHEAD:
                time.sleep(0.01)
            time.sleep(chance.random() * 0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
