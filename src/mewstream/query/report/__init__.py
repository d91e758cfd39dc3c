"""The report: one self-contained HTML page about what the tables hold."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mewstream.query.database import WarehouseDatabase
from mewstream.query.report.data import collect
from mewstream.query.report.page import page
from mewstream.query.report.selection import Selection

__all__ = ["Selection", "write_report"]


def write_report(database: WarehouseDatabase, out: Path, selection: Selection | None = None) -> None:
    """Write the page, of everything or of a selection. An older page is replaced when the new one is complete."""
    text = page(collect(database, selection), generated=time.time_ns() // 1_000_000)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(out)
    finally:
        scratch.unlink(missing_ok=True)
