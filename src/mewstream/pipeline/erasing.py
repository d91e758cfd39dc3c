"""Erasing one space from a warehouse: every table, the open rows, the old files, and what the Delta logs say of them.

In bronze its rows become tombstones, as they do in the journal (:mod:`mewstream.journal.erase`), so that offsets stay
without a hole; a hash stands for the space. From all other tables they go. Then every file that is not of the newest
version is removed at once, and every log begins at that version: the safety period of Delta, in which old versions can
still be read, is what an erase must not grant.

Interrupted at any moment, the tables are sound; erasing again completes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mewstream.journal.erase import erased_name, with_tombstones
from mewstream.pipeline.committing import Tables
from mewstream.pipeline.delta import DeltaLog, told
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.files import DataFile, changed_file, files_told, write_files
from mewstream.pipeline.tables import RECORDS, REFRESH, SPACE_SUMMARY

#: Applications whose numbers, in ``commits``, say which erase was begun, and which is complete.
_BEGUN, _COMPLETE = "mewstream-erase", "mewstream-erased"
_LOG = "_delta_log/"
#: A file, and how many rows of the space it holds.
_Holding = tuple[DataFile, int]


class Erased(NamedTuple):
    rows: dict[str, int]
    """How many rows of the space each table had."""
    files: int
    """Files that were removed from the disk, whether they held rows of the space or not."""


def survey(tables: Tables, space: str) -> dict[str, list[_Holding]]:
    """For each table the files that hold rows of the space, and how many."""
    return _found(tables, lambda log: _holding(log, log.files_with("space", space), space))


def _found(tables: Tables, look: Callable[[DeltaLog], list[_Holding]]) -> dict[str, list[_Holding]]:
    return {name: found for name, log in tables.logs.items() if (found := look(log))}


def _holding(log: DeltaLog, files: list[DataFile], space: str) -> list[_Holding]:
    filesystem, found = log.store.filesystem(log.table.name), []
    for file in files:
        column = pq.read_table(file.path, filesystem=filesystem, columns=["space"]).column("space")
        if count := pc.sum(pc.equal(column, space)).as_py():
            found.append((file, count))
    return found


def is_interrupted(tables: Tables) -> bool:
    """Whether an erase was begun that is not complete."""
    return tables.commits.committed(_BEGUN) > tables.commits.committed(_COMPLETE)


def erase_space(tables: Tables, space: str, *, progress: Callable[[str], None] = lambda table: None) -> Erased:
    """Erase a space. Nobody else may write meanwhile, and readers that have begun may fail."""
    tables.roll_back()
    tables.store.remove(REFRESH.name)  # a draft of the tables holds the space too, and can be begun anew
    number = tables.batch + 1
    tables.commits.commit([], transactions={_BEGUN: number})
    found = survey(tables, space)
    mark = _mark(tables, space, found)
    for name, files in found.items():
        progress(name)
        change = functools.partial(_CHANGES.get(name, _without), space=space, mark=mark)
        _rewrite(tables.logs[name], [file for file, _ in files], change)
    tables.record("erase", tables.newest.position)
    tables.reload()
    _refuse_leftovers(tables, space)
    removed = 0
    for log in (*tables.logs.values(), tables.commits):
        progress(log.table.name)
        removed += _purge(log)
    tables.commits.commit([], transactions={_COMPLETE: number})
    return Erased({name: sum(count for _, count in files) for name, files in found.items()}, removed)


def _refuse_leftovers(tables: Tables, space: str) -> None:
    """Look into every file, whatever its statistics say: an erase that left rows behind must not count as complete."""
    if left := _found(tables, lambda log: _holding(log, log.files(), space)):
        raise WarehouseError(
            f"{tables.store}: rows of space {space!r} are left in {', '.join(left)}, in files whose statistics do not "
            "show it. It is not erased: remove this warehouse, and make all tables anew in another one"
        )


def _mark(tables: Tables, space: str, found: dict[str, list[_Holding]]) -> str:
    """What stands for the space: the same as in the journal, where that has all of it too."""
    filesystem = tables.store.filesystem(RECORDS.name)
    first = []
    for file, _ in found.get(RECORDS.name, []):
        rows = pq.read_table(file.path, filesystem=filesystem, columns=["space", "offset"])
        first.append(pc.min(rows.filter(pc.equal(rows.column("space"), space)).column("offset")).as_py())
    newest = tables.newest
    return erased_name(newest.journal, space, min(first, default=0), len(newest.offsets))


# -- rows -----------------------------------------------------------------------------------------


def _without(rows: pa.RecordBatch, *, space: str, mark: str) -> pa.RecordBatch:
    return rows.filter(pc.not_equal(rows.column("space"), space))


def _summarised(rows: pa.RecordBatch, *, space: str, mark: str) -> pa.RecordBatch:
    """What the summary of nothing but tombstones is."""
    made = []
    for row in rows.to_pylist():
        if row["space"] == space:
            kept = ("first_seq", "last_seq", "records")
            row |= {name: 0 for name, value in row.items() if isinstance(value, int) and name not in kept}
            row |= {"space": mark, "unknown_records": row["records"], "verdict": "sound"}
        made.append(row)
    return pa.RecordBatch.from_pylist(made, rows.schema)


_CHANGES: dict[str, Callable[..., pa.RecordBatch]] = {RECORDS.name: with_tombstones, SPACE_SUMMARY.name: _summarised}


def _rewrite(log: DeltaLog, files: list[DataFile], change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    names = tuple(column.name for column in log.table.all_columns)
    made: list[DataFile] = []
    for file in files:
        rows = changed_file(log.store, file, names, change, with_dictionaries=False)
        made += files_told(write_files(log.store, [log.table.name], None, 0, rows))
    log.commit(made, files)


# -- what is left of it ---------------------------------------------------------------------------


def _purge(log: DeltaLog) -> int:
    """Remove all files but those of the newest version, and let the log begin there. That is no commit, for readers are
    sent to this very version."""
    with told(log.store):
        log.delta.create_checkpoint()
        log.forget(0)
    filesystem, live = log.store.filesystem(log.table.name), {file.path for file in log.files()}
    found = filesystem.get_file_info(fs.FileSelector("", recursive=True))
    files = [info.path for info in found if info.type is fs.FileType.File and not info.path.startswith(_LOG)]
    gone = [path for path in files if path not in live]
    for path in gone:
        filesystem.delete_file(path)
    log.sync()
    return len(gone)
