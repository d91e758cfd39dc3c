"""The files of the tables: written by the workers, which tell the driver of them; and read again.

A file counts when a commit names it. Its name is used once, so that what a killed run or a task that was tried twice
has left is never mistaken for anything; vacuum removes it.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mewstream.journal.batches import gathered
from mewstream.pipeline.arrow_work import Batches, Change
from mewstream.pipeline.column_types import arrow_type
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.storage import STORAGE_ERRORS, Store
from mewstream.pipeline.tables import BY_NAME, IS_OPEN, Layout, Table

#: Columns in which hardly a value comes twice. A dictionary of them would be begun and thrown away, in every file.
_DISTINCT = frozenset({"offset", "seq", "ts", "stream_seq", "sent_at", "latency_ms", "data", "body"})
#: What is put into a row group, and what is changed at once.
GROUP_ROWS = 1 << 20
GROUP_BYTES = 64 << 20
CHANGE_ROWS = 1 << 16
CHANGE_BYTES = 8 << 20
#: So many files of a task are open at the same time: days that are over have theirs closed.
_OPEN_FILES = 8
_LONGEST_STATISTIC = 128


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table."""

    table: str
    path: str
    """Relative to the directory of the table."""
    size: int
    rows: int
    partition: str | None
    """The value of the table's partition column, as Delta writes it."""
    stats: str
    """As Delta writes them. Empty where they are not known here."""

    @property
    def is_open(self) -> bool:
        return BY_NAME[self.table].layout is Layout.CURRENT or self.partition == "true"


DATA_FILES = "table string, path string, size bigint, rows bigint, partition string, stats string"
TOLD = pa.schema(
    [(name, arrow_type(type)) for name, _, type in (each.strip().partition(" ") for each in DATA_FILES.split(","))]
)


# -- writing --------------------------------------------------------------------------------------


def write_files(store: Store, tables: Sequence[str], chosen_by: str | None, _: int, batches: Batches) -> Batches:
    """Write rows of a table, or of two: then a row is of the second one where the column ``chosen_by`` is true. Gives
    one batch, which tells of the files."""
    with OpenFiles(store) as files:
        for together in gathered(batches, most_rows=GROUP_ROWS, most_bytes=GROUP_BYTES):
            rows = pa.Table.from_batches(together)
            if chosen_by is None:
                files.write(BY_NAME[tables[0]], rows)
            else:
                chosen = pc.fill_null(rows.column(chosen_by), False)
                files.write(BY_NAME[tables[0]], rows.filter(pc.invert(chosen)))
                files.write(BY_NAME[tables[1]], rows.filter(chosen))
        told = files.finish()
    yield pa.RecordBatch.from_pylist([msgspec.structs.asdict(each) for each in told], TOLD)


def write_rows(store: Store, table: Table, rows: pa.RecordBatch) -> list[DataFile]:
    """The same for a few rows, in this process."""
    return files_told(write_files(store, [table.name], None, 0, iter([rows])))


def files_told(batches: Batches) -> list[DataFile]:
    return [DataFile(**row) for batch in batches for row in batch.to_pylist()]


class OpenFiles:
    """Where something goes wrong, what was written is removed again."""

    def __init__(self, store: Store, *, most: int = _OPEN_FILES) -> None:
        self._store = store
        self._most = most
        self._open: dict[tuple[str, str | None], _File] = {}
        self._done: list[DataFile] = []

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for file in self._open.values():
                file.abandon()
            for done in self._done:
                with contextlib.suppress(*STORAGE_ERRORS):
                    self._store.filesystem(done.table).delete_file(done.path)

    def write(self, table: Table, rows: pa.Table) -> None:
        for value, part in _parts(table, rows):
            file = self._open.pop((table.name, value), None)
            if file is None:
                if len(self._open) >= self._most:
                    self._done.append(self._open.pop(next(iter(self._open))).close())
                file = _File(self._store, table, value, part.schema)
            self._open[table.name, value] = file
            file.write(part)

    def finish(self) -> list[DataFile]:
        while self._open:
            place, file = next(iter(self._open.items()))
            self._done.append(file.close())
            del self._open[place]
        return self._done


def _parts(table: Table, rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows by the value of the partition column, and the columns that the files have."""
    if not rows.num_rows:
        return
    columns = rows.select(table.names)
    if table.layout is Layout.OPEN_AND_FINAL:
        keys = rows.column(IS_OPEN.name)
    elif table.layout is Layout.DATES:
        keys = rows.column(str(table.time)).cast(pa.date32())
    else:
        yield None, columns
        return
    values = pc.unique(keys).to_pylist()
    for value in values:
        part = columns if len(values) == 1 else columns.filter(pc.equal(keys, pa.scalar(value, keys.type)))
        yield str(value).lower(), part


class _File:
    def __init__(self, store: Store, table: Table, value: str | None, schema: pa.Schema) -> None:
        self._store = store
        self._table = table
        self._value = value
        directory = f"{table.partition.name}={value}/" if table.partition else ""
        self._path = f"{directory}{secrets.token_hex(16)}.parquet"
        self._filesystem = store.filesystem(table.name)
        self._metadata: list[pq.FileMetaData] = []
        with self._told():
            if store.is_local:
                Path(store.uri(table.name), directory).mkdir(parents=True, exist_ok=True)
            self._stream = self._filesystem.open_output_stream(self._path)
            self._writer = pq.ParquetWriter(
                self._stream,
                schema,
                use_dictionary=[name for name in schema.names if name not in _DISTINCT],
                store_schema=False,
                metadata_collector=self._metadata,
            )

    def write(self, rows: pa.Table) -> None:
        with self._told():
            self._writer.write_table(rows)

    def close(self) -> DataFile:
        with self._told():
            self._writer.close()
            size = self._stream.tell()
            self._stream.close()
            # The journal may forget what bronze has: that is to be on the disk before a commit names it.
            self._store.sync(self._table.name, self._path)
        [metadata] = self._metadata
        stats = _statistics(metadata, self._table.statistics)
        return DataFile(self._table.name, self._path, size, metadata.num_rows, self._value, stats)

    def abandon(self) -> None:
        for step in (self._writer.close, self._stream.close):
            # One that could not be closed says so once more, in its own way.
            with contextlib.suppress(*STORAGE_ERRORS, RuntimeError):
                step()
        with contextlib.suppress(*STORAGE_ERRORS):
            self._filesystem.delete_file(self._path)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong in a worker reaches the user as a line of ours, or as the traceback of another process."""
        try:
            yield
        except STORAGE_ERRORS as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise WarehouseError(
                f"{self._store}/{self._table.name} cannot be written by the worker on {socket.gethostname()}: {reason}"
            ) from None


def _statistics(metadata: pq.FileMetaData, names: Sequence[str]) -> str:
    """The least and the greatest values and the number of nulls, by which readers know which files to open."""
    places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    least, greatest, nulls = {}, {}, {}
    for name in names:
        groups = [metadata.row_group(group).column(places[name]).statistics for group in range(metadata.num_row_groups)]
        if any(each is None or each.null_count is None for each in groups):
            continue
        nulls[name] = sum(each.null_count for each in groups)
        known = [each for each in groups if each.has_min_max]
        # A group without a least value has nulls only, or values too long to tell.
        if known and all(each.has_min_max or each.num_values == 0 for each in groups):
            low, high = _told_value(min(each.min for each in known)), _told_value(max(each.max for each in known))
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    told = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return msgspec.json.encode(told).decode()


def _told_value(value: Any) -> Any:
    """None for a text that is too long: a part of it would not be the greatest value."""
    if isinstance(value, str) and len(value) > _LONGEST_STATISTIC:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value


# -- reading --------------------------------------------------------------------------------------


def read_file(store: Store, file: DataFile, names: Sequence[str]) -> Batches:
    """The rows of a file, in a worker, with these columns of the table."""
    with pq.ParquetFile(file.path, filesystem=store.filesystem(file.table)) as source:
        for batch in source.iter_batches(columns=list(names)):
            yield _with_columns(batch, file.table, names, file.partition)


def changed_file(
    store: Store,
    file: DataFile,
    columns: Sequence[str],
    change: Change,
    keep: Change | None = None,
    *,
    with_dictionaries: bool = True,
) -> Batches:
    """What ``change`` makes of the rows of a file that ``keep`` leaves, in a worker. Texts that come again and again
    stay what they are in the file: numbers of a dictionary."""
    opened: Callable[..., pq.ParquetFile] = functools.partial(
        pq.ParquetFile, file.path, filesystem=store.filesystem(file.table)
    )
    texts = []
    if with_dictionaries:
        with opened() as source:
            texts = [each.name for each in source.schema_arrow if each.type == pa.string()]
    # Bronze of before has the times of another age, which would come as nanoseconds.
    with opened(read_dictionary=texts, coerce_int96_timestamp_unit="us") as source:
        for group in range(source.num_row_groups):
            extent = source.metadata.row_group(group)
            # Payloads are of any size, and only so much of them is to be in memory at once.
            rows = max(1, min(CHANGE_ROWS, CHANGE_BYTES * extent.num_rows // max(1, extent.total_byte_size)))
            for batch in source.iter_batches(rows, [group], columns):
                whole = _with_columns(batch, file.table, columns, file.partition)
                yield change(whole if keep is None else keep(whole))


def holds(store: Store, file: DataFile, keep: Change) -> bool:
    """Whether ``keep``, which looks at the spaces of rows, leaves anything of a file: its names alone are read."""
    with pq.ParquetFile(file.path, filesystem=store.filesystem(file.table), read_dictionary=["space"]) as source:
        return any(keep(batch).num_rows for batch in source.iter_batches(columns=["space"]))


def _with_columns(
    rows: pa.RecordBatch, table: str, names: Sequence[str], partition: str | None = None
) -> pa.RecordBatch:
    """The columns in their order. One that is newer than the file is null; that of the partition has its value."""
    if rows.schema.names == list(names):
        return rows
    declared = BY_NAME[table]
    arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
    for column in declared.all_columns:
        if column.name not in arrays:
            type = arrow_type(column.type)
            is_partition = column is declared.partition and partition is not None
            arrays[column.name] = (
                pa.repeat(pa.scalar(partition).cast(type), rows.num_rows)
                if is_partition
                else pa.nulls(rows.num_rows, type)
            )
    return pa.RecordBatch.from_arrays([arrays[name] for name in names], list(names))
