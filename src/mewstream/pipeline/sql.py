"""Transforms as SQL over DataFrames.

One text is parsed and analysed once. The same as a chain of calls would be analysed once for each call, and a
small batch would take longer to plan than to run.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


def query(text: str, **given: DataFrame | str) -> DataFrame:
    """``text`` has names in braces: of frames, and of parts of the text, which may hold names that come later."""
    for name, part in given.items():
        if isinstance(part, str):
            text = text.replace(f"{{{name}}}", part)
    frames: dict[str, Any] = {name: value for name, value in given.items() if not isinstance(value, str)}
    return next(iter(frames.values())).sparkSession.sql(text, **frames)  # type: ignore[no-any-return]
