"""The report: one self-contained HTML page about what the tables hold."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mewstream.query.asking import Questions
from mewstream.query.report.choosing import Chosen
from mewstream.query.report.data import collect
from mewstream.query.report.page import page

__all__ = ["Chosen", "write_report"]


def write_report(asked: Questions, out: Path, chosen: Chosen | None = None) -> None:
    """Write the page, of everything or of what is chosen. An older page is replaced when the new one is complete."""
    text = page(collect(asked, chosen), generated=time.time_ns() // 1_000_000)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(out)
    finally:
        scratch.unlink(missing_ok=True)
