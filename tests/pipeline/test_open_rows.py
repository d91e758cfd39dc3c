"""Open rows are replaced for the spaces that a batch touches, and files without any of them are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from committed import batch_of, new_tables

from mewstream.pipeline import open_rows
from mewstream.pipeline.files import DataFile, write_rows
from mewstream.pipeline.open_rows import OpenRows
from mewstream.pipeline.storage import Store
from mewstream.pipeline.tables import SPACE_SUMMARY, STREAMS, Table


def written(store: Store, table: Table, *spaces: str) -> DataFile:
    rows: list[dict[str, Any]] = [{"space": space, "stream_id": "stream-1", "is_open": True} for space in spaces]
    [file] = write_rows(store, table, batch_of(table, rows))
    return file


def spaces_in(store: Store, *files: DataFile) -> list[str]:
    found: list[str] = []
    for file in files:
        found += pq.read_table(file.path, filesystem=store.filesystem(file.table), columns=["space"])[
            "space"
        ].to_pylist()
    return sorted(found)


class TestWithout:
    def test_files_of_other_spaces_stay_and_the_rest_of_a_file_is_written_again(self, tmp_path: Path) -> None:
        store = new_tables(tmp_path).store
        files = [written(store, STREAMS, "a", "b"), written(store, STREAMS, "c")]
        gone, made = OpenRows(store).without(STREAMS, files, {"a"})
        assert gone == files[:1]
        assert all(file.is_open for file in made)
        assert spaces_in(store, *made) == ["b"]

    def test_nothing_is_written_where_nothing_is_left(self, tmp_path: Path) -> None:
        store = new_tables(tmp_path).store
        files = [written(store, SPACE_SUMMARY, "a")]
        assert OpenRows(store).without(SPACE_SUMMARY, files, {"a"}) == (files, [])
        assert OpenRows(store).without(SPACE_SUMMARY, files, {"x"}) == ([], [])

    def test_many_small_files_become_one(self, tmp_path: Path) -> None:
        store = new_tables(tmp_path).store
        files = [written(store, STREAMS, f"space-{number}") for number in range(open_rows._MANY)]
        gone, made = OpenRows(store).without(STREAMS, files, {"another"})
        assert gone == files
        assert len(made) == 1
        assert spaces_in(store, *made) == sorted(f"space-{number}" for number in range(open_rows._MANY))

    def test_a_file_is_looked_into_once(self, tmp_path: Path) -> None:
        store = new_tables(tmp_path).store
        file = written(store, STREAMS, "a")
        known = OpenRows(store)
        assert known.holding([file], {"a"}) == [file]
        store.filesystem(STREAMS.name).delete_file(file.path)
        assert known.holding([file], {"a"}) == [file]
        assert known.holding([file], {"b"}) == []


def test_rows_of_some_spaces(tmp_path: Path) -> None:
    store = new_tables(tmp_path).store
    files = [written(store, SPACE_SUMMARY, "a", "b"), written(store, SPACE_SUMMARY, "c")]
    found = OpenRows(store).of_spaces(SPACE_SUMMARY, files, {"b", "c", "d"})
    assert [row["space"] for row in found] == ["b", "c"]
