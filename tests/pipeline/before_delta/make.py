"""How this directory was made, by the last commit that wrote warehouses without Delta Lake (2480705).

    PYTHONPATH=CHECKOUT/src:CHECKOUT/tests/pipeline python make.py DIRECTORY

It holds a journal, and of its warehouse what a later version needs: the commits, and bronze.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from journals import lively, write_journal

from mewstream.pipeline.runner import Settings, run


def main() -> None:
    root = Path(sys.argv[1])
    data = write_journal(root / "data", lively(60, seed=1), lively(40, space="other", seed=2), partitions=2)
    run(Settings(data=str(data), warehouse=root / "warehouse", max_records=40))
    for directory in (root / "warehouse").iterdir():
        if directory.name not in ("_commits", "records"):
            shutil.rmtree(directory) if directory.is_dir() else directory.unlink()
    for consumer in (data / "journal" / "consumers").glob("*"):
        consumer.unlink()


if __name__ == "__main__":
    main()
