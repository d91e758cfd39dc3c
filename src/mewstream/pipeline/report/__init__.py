"""The report: one self-contained HTML page about what the tables hold."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from mewstream.pipeline.report.data import TableOf, collect
from mewstream.pipeline.report.page import page

__all__ = ["write_report"]


def write_report(table: TableOf, out: Path, *, spaces: Sequence[str] = ()) -> None:
    """Write the page, of all spaces or of some. ``table`` gives a table of the warehouse by its name. An older page is
    replaced when the new one is complete."""
    text = page(collect(table, spaces), generated=time.time_ns() // 1_000_000)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(out)
    finally:
        scratch.unlink(missing_ok=True)
