"""A pipeline in a process of its own, for tests that kill or stop it.

    python pipeline_process.py DATA WAREHOUSE '{"continuous": true, "max_records": 50}'

It prints a line for each batch, and the number of batches and of records at its end.
"""

from __future__ import annotations

import json
import sys

from mewstream.pipeline.runner import Progress, Settings, run, stopping_on_signals
from mewstream.protocol.errors import MewError


def main() -> int:
    data, warehouse, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

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


if __name__ == "__main__":
    sys.exit(main())
