"""A warehouse written through the committing code alone, without Spark and without a journal.

tables = new_tables(tmp_path)                        # an empty warehouse
commit(tables, refusals=[{"seq": 1}], streams=[{"stream_id": "stream-1", "is_open": True}])
seen(tmp_path, "refusals", "seq")                    # [1], as a reader sees it
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from mewstream.pipeline.column_types import arrow_type
from mewstream.pipeline.committing import Change, Tables
from mewstream.pipeline.files import write_rows
from mewstream.pipeline.position import Position
from mewstream.pipeline.storage import store_at
from mewstream.pipeline.tables import BY_NAME, IS_OPEN, Layout, Table
from mewstream.pipeline.warehouse import open_warehouse

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(offset: int) -> Position:
    return Position("j", {0: offset}, {0: "epoch-1"})


def new_tables(root: Path | str) -> Tables:
    return Tables(store_at(root), lambda: at(0))


def batch_of(table: Table, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows that name only what matters."""
    columns = [*table.columns, *([IS_OPEN] if table.layout is Layout.OPEN_AND_FINAL else [])]
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    filled = [{"space": "s", "ts": NOON, IS_OPEN.name: False, **row} for row in rows]
    return pa.RecordBatch.from_pylist(filled, schema)


def changes(tables: Tables, rows: dict[str, list[dict[str, Any]]]) -> dict[str, Change]:
    """Files are written, in place of all open rows of their tables; nothing is committed."""
    return {
        name: Change(
            write_rows(tables.store, BY_NAME[name], batch_of(BY_NAME[name], each)),
            [file.path for file in tables.open_files(BY_NAME[name])],
        )
        for name, each in rows.items()
    }


def commit(tables: Tables, **rows: list[dict[str, Any]]) -> None:
    offset = tables.newest.offsets[0] + 10
    tables.commit(changes(tables, rows), at(offset), records=10)


def seen(root: Path | str, name: str, column: str) -> list[Any]:
    return sorted(open_warehouse(root).table(name).column(column).to_pylist())
