"""Writes ``docs/tables.md`` from the declarations of the tables."""

from __future__ import annotations

import sys
from pathlib import Path

from mewstream.pipeline.tables import SHOWN, Layer

_HEADER = """\
# Tables

This page is generated from `src/mewstream/pipeline/tables.py` by `make docs`; a test fails when it is stale.

`mewstream pipeline run` makes these tables from a journal, and `mewstream query` knows each by its name. Bronze is what
was recorded, silver are typed facts, gold is what people usually ask for. Times are UTC. Each table is a Delta table
in the directory of its name, and any engine that reads Delta Lake
[reads it](pipeline.md#the-tables-in-other-engines).
"""


def document() -> str:
    parts = [_HEADER]
    parts += [
        f"- {layer}: " + ", ".join(f"[`{table.name}`](#{table.name})" for table in SHOWN if table.layer is layer)
        for layer in (Layer.BRONZE, Layer.SILVER, Layer.GOLD, Layer.LOG)
    ]
    for table in SHOWN:
        keys = ", ".join(f"`{key}`" for key in table.keys)
        parts.append(f"\n## {table.name}\n\n{table.meaning} Layer: {table.layer}. Key: {keys}.\n")
        parts.append("| column | type | meaning |\n|---|---|---|")
        parts += [f"| `{column.name}` | `{column.type}` | {column.meaning} |" for column in table.all_columns]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
