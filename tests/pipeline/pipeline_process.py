"""A pipeline in a process of its own, for tests that kill or stop it.

    python pipeline_process.py DATA WAREHOUSE '{"continuous": true, "max_records": 50}'

It prints a line for each batch, and the number of batches and of records at its end. With ``"kill_after": 7`` it kills
itself after the seventh commit to a Delta table, before the next one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from mewstream.pipeline.delta import DeltaLog
from mewstream.pipeline.runner import Progress, Settings, run, stopping_on_signals
from mewstream.protocol.errors import MewError


def main() -> int:
    data, warehouse, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    if (left := settings.pop("kill_after", None)) is not None:
        _kill_after(left)

    def progress(now: Progress) -> None:
        print(f"batch {now.batch} {now.records} {now.lag}", flush=True)

    try:
        with stopping_on_signals() as stop:
            result = run(Settings(data=data, warehouse=warehouse, **settings), progress, stop=stop)
    except MewError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"end {result.batches} {result.records} {result.stopped}", flush=True)
    return 0


def _kill_after(commits: int) -> None:
    real = DeltaLog.commit
    left = commits

    def commit(log: DeltaLog, *arguments: Any, **options: Any) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        real(log, *arguments, **options)

    DeltaLog.commit = commit  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
