"""The table ``commits``: a row for each batch, written when all tables have it.

It is how readers pin all tables to one point, and the one truth about how far the journal has been read.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from mewstream.pipeline.column_types import arrow_type
from mewstream.pipeline.delta import APPLICATION, DeltaLog
from mewstream.pipeline.files import write_rows
from mewstream.pipeline.position import Position
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import COMMITS, SCHEMA_VERSION

_SCHEMA = pa.schema([(column.name, arrow_type(column.type)) for column in COMMITS.columns])


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A row: its fields are the columns."""

    batch: int
    operation: str
    records: int
    journal: str
    offsets: dict[int, int]
    epochs: dict[int, str]
    versions: dict[str, int]
    schema_version: int = SCHEMA_VERSION
    committed_at: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))

    @property
    def position(self) -> Position:
        return Position(self.journal, self.offsets, self.epochs)


def newest_commit(store: Store) -> Commit | None:
    """None where there is no warehouse, or one that is just being made."""
    try:
        log = DeltaLog(store, COMMITS)
    except TableNotFoundError:
        return None
    return newest_in(log)


def newest_in(log: DeltaLog) -> Commit | None:
    actions = pa.table(log.delta.get_add_actions(flatten=True))
    if not actions.num_rows:
        return None
    last = pc.max(actions.column("max.batch"))
    [path] = actions.filter(pc.equal(actions.column("max.batch"), last)).column("path").to_pylist()
    rows = pq.read_table(path, filesystem=log.store.filesystem(COMMITS.name))
    [row] = rows.filter(pc.equal(rows.column("batch"), last)).to_pylist(maps_as_pydicts="strict")
    return msgspec.convert(row, Commit)


def append_commit(log: DeltaLog, commit: Commit) -> None:
    row = pa.RecordBatch.from_pylist([msgspec.structs.asdict(commit)], _SCHEMA)
    log.commit(write_rows(log.store, COMMITS, row), transactions={APPLICATION: commit.batch})
