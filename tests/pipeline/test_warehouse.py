"""Where tables live: commits, what readers see, repeated and unfinished batches, two writers, locks. Without Spark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from committed import at, changes, commit, new_tables, seen
from deltalake import DeltaTable

from mewstream.pipeline.commits import append_commit, newest_commit
from mewstream.pipeline.delta import APPLICATION, DeltaLog
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.storage import locked, store_at
from mewstream.pipeline.tables import ALL, BY_NAME, COMMITS, PUBLIC, SPACES, STREAMS
from mewstream.pipeline.warehouse import open_warehouse

ANN = {"space": "ann"}


class TestCommits:
    def test_every_table_is_a_delta_table_also_when_it_is_empty(self, tmp_path: Path) -> None:
        new_tables(tmp_path)
        for table in (*ALL, COMMITS):
            delta = DeltaTable(tmp_path / table.name)
            protocol = delta.protocol()
            assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
            assert (protocol.reader_features, protocol.writer_features) == (None, None)
            assert [field.name for field in delta.schema().fields] == [each.name for each in table.all_columns]
        for table in PUBLIC:
            assert open_warehouse(tmp_path).table(table.name).num_rows == 0

    def test_nothing_is_seen_before_the_commit(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        written = changes(tables, {"refusals": [{"seq": 1}, {"seq": 2}], SPACES.name: [ANN]})
        assert seen(tmp_path, "refusals", "seq") == []
        tables.commit(written, at(2), records=2)
        assert seen(tmp_path, "refusals", "seq") == [1, 2]
        newest = newest_commit(tables.store)
        assert newest is not None
        assert (newest.batch, newest.operation, newest.records, newest.offsets) == (1, "run", 2, {0: 2})
        assert newest.epochs == {0: "epoch-1"}

    def test_each_commit_carries_the_number_of_its_batch(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        for seq in (1, 2, 3):
            commit(tables, refusals=[{"seq": seq}])
        assert DeltaTable(tmp_path / "refusals").transaction_version(APPLICATION) == 3
        assert DeltaTable(tmp_path / "commits").transaction_version(APPLICATION) == 3
        rows = open_warehouse(tmp_path).table("commits").to_pylist(maps_as_pydicts="strict")
        assert sorted(row["batch"] for row in rows) == [0, 1, 2, 3]
        assert [row["versions"]["refusals"] for row in sorted(rows, key=lambda row: row["batch"])] == [0, 1, 2, 3]

    def test_open_rows_are_replaced_and_final_ones_added_in_one_commit(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        commit(tables, streams=[{"stream_id": "a", "is_open": True}, {"stream_id": "b", "is_open": True}])
        commit(tables, streams=[{"stream_id": "a"}, {"stream_id": "b", "is_open": True}])
        commit(tables, streams=[{"stream_id": "b"}, {"stream_id": "c", "is_open": True}])
        assert seen(tmp_path, "streams", "stream_id") == ["a", "b", "c"]
        assert DeltaTable(tmp_path / "streams").version() == 3
        # Whoever knows nothing of `commits` sees the same.
        assert sorted(DeltaTable(tmp_path / "streams").to_pyarrow_table()["stream_id"].to_pylist()) == ["a", "b", "c"]
        assert tables.rows["streams"] == 3

    def test_what_is_not_replaced_stays(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        commit(tables, **{SPACES.name: [ANN]})
        commit(tables, refusals=[{"seq": 1}])
        assert sum(file.rows for file in tables.open_files(SPACES)) == 1
        commit(tables, **{SPACES.name: []})
        assert tables.open_files(SPACES) == []
        assert new_tables(tmp_path).open_files(SPACES) == []

    def test_a_reader_keeps_what_it_opened(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        commit(tables, refusals=[{"seq": 1}], streams=[{"stream_id": "a", "is_open": True}])
        before = open_warehouse(tmp_path)
        commit(tables, refusals=[{"seq": 2}], streams=[{"stream_id": "b", "is_open": True}])
        assert before.table("refusals")["seq"].to_pylist() == [1]
        assert before.table("streams")["stream_id"].to_pylist() == ["a"]

    def test_making_it_was_interrupted(self, tmp_path: Path) -> None:
        new_tables(tmp_path)
        for name in ("commits", "streams", "state_spaces"):
            shutil.rmtree(tmp_path / name)
        with pytest.raises(WarehouseError, match="there is no warehouse"):
            open_warehouse(tmp_path)
        commit(new_tables(tmp_path), streams=[{"stream_id": "a"}])
        assert seen(tmp_path, "streams", "stream_id") == ["a"]


class TestUnfinished:
    """A run was killed between the commits of two tables."""

    def broken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        tables = new_tables(tmp_path)
        commit(tables, records=[{"seq": 1}], streams=[{"stream_id": "a", "is_open": True}], refusals=[{"seq": 1}])
        written = changes(
            tables,
            {"records": [{"seq": 2}], "streams": [{"stream_id": "a"}], "refusals": [{"seq": 2}]},
        )
        done, real = [], DeltaLog.commit

        def until_killed(log: DeltaLog, *arguments: object, **options: object) -> None:
            if len(done) == after:
                raise KeyboardInterrupt
            real(log, *arguments, **options)  # type: ignore[arg-type]
            done.append(log.table.name)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(DeltaLog, "commit", until_killed)
            tables.commit(written, at(20), records=1)
        assert done[:1] in ([], ["records"])

    @pytest.mark.parametrize("after", range(4))
    def test_readers_see_nothing_of_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.broken(tmp_path, monkeypatch, after)
        assert seen(tmp_path, "refusals", "seq") == [1]
        assert seen(tmp_path, "streams", "is_open") == [True]

    @pytest.mark.parametrize("after", range(4))
    def test_it_is_repeated_and_changes_nothing_where_it_was_done(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        self.broken(tmp_path, monkeypatch, after)
        tables = new_tables(tmp_path)
        unfinished = tables.unfinished()
        assert (unfinished is None) == (after == 0)
        # The state before it is what a repetition begins with.
        assert [file.rows for file in tables.open_files(STREAMS)] == [1]
        written = changes(tables, {"streams": [{"stream_id": "a"}], "refusals": [{"seq": 2}]})
        if unfinished is not None:
            assert unfinished.position == at(20)
            assert [file.rows for file in unfinished.bronze] == [1]
            written["records"] = changes(tables, {"records": []})["records"]
            written["records"].add = unfinished.bronze
        else:
            written |= changes(tables, {"records": [{"seq": 2}]})
        tables.commit(written, at(20), records=1)
        for name in ("records", "refusals"):
            assert seen(tmp_path, name, "seq") == [1, 2]
        assert seen(tmp_path, "streams", "is_open") == [False]
        assert seen(tmp_path, "commits", "batch") == [0, 1, 2]
        assert (tables.rows["refusals"], tables.rows["streams"]) == (2, 1)
        assert tables.unfinished() is None
        commit(tables, streams=[{"stream_id": "c", "is_open": True}], refusals=[{"seq": 3}])
        assert seen(tmp_path, "streams", "stream_id") == ["a", "c"]

    @pytest.mark.parametrize("after", range(4))
    def test_it_can_be_undone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.broken(tmp_path, monkeypatch, after)
        tables = new_tables(tmp_path)
        tables.roll_back()
        assert tables.unfinished() is None
        for name in ("records", "refusals"):
            assert DeltaTable(tmp_path / name).to_pyarrow_table()["seq"].to_pylist() == [1]
        commit(tables, records=[{"seq": 2}], streams=[{"stream_id": "a"}], refusals=[{"seq": 2}])
        assert seen(tmp_path, "refusals", "seq") == [1, 2]
        assert seen(tmp_path, "streams", "is_open") == [False]
        batches = seen(tmp_path, "commits", "batch")
        assert batches == list(range(len(batches)))


class TestTwoWriters:
    """In an object store nothing locks; here two have got past the lock."""

    def test_one_of_two_is_refused(self, tmp_path: Path) -> None:
        new_tables(tmp_path)
        first, second = new_tables(tmp_path), new_tables(tmp_path)
        commit(first, records=[{"seq": 1}], refusals=[{"seq": 1}])
        with pytest.raises(WarehouseError, match="written by another pipeline, which was faster"):
            commit(second, records=[{"seq": 1}], refusals=[{"seq": 1}])
        assert seen(tmp_path, "records", "seq") == seen(tmp_path, "refusals", "seq") == [1]
        commit(first, refusals=[{"seq": 2}])
        assert seen(tmp_path, "commits", "batch") == [0, 1, 2]

    def test_also_where_both_repeat_an_unfinished_batch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        TestUnfinished().broken(tmp_path, monkeypatch, 1)
        both = [new_tables(tmp_path), new_tables(tmp_path)]
        written = []
        for tables in both:
            unfinished = tables.unfinished()
            assert unfinished is not None
            made = changes(tables, {"streams": [{"stream_id": "a"}], "refusals": [{"seq": 2}], "records": []})
            made["records"].add = unfinished.bronze
            written.append(made)
        both[0].commit(written[0], at(20), records=1)
        with pytest.raises(WarehouseError, match="another pipeline"):
            both[1].commit(written[1], at(20), records=1)
        assert seen(tmp_path, "refusals", "seq") == [1, 2]
        assert seen(tmp_path, "commits", "batch") == [0, 1, 2]

    def test_another_engine_may_put_files_together_meanwhile(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        for seq in range(3):
            commit(tables, refusals=[{"seq": seq}])
        DeltaTable(tmp_path / "refusals").optimize.compact()
        commit(tables, refusals=[{"seq": 3}])
        assert seen(tmp_path, "refusals", "seq") == [0, 1, 2, 3]


class TestOpening:
    def test_there_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(WarehouseError, match=r"there is no warehouse in .*: make one with"):
            open_warehouse(tmp_path)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("version", "advice"), [(0, "--full-refresh"), (99, "update mewstream")])
    def test_another_version(self, tmp_path: Path, version: int, advice: str) -> None:
        tables = new_tables(tmp_path)
        append_commit(tables.commits, msgspec.structs.replace(tables.newest, batch=1, schema_version=version))
        with pytest.raises(WarehouseError, match=advice):
            open_warehouse(tmp_path)

    def test_the_kind_of_before_is_refused_in_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "_commits").mkdir()
        with pytest.raises(WarehouseError, match=r"before Delta Lake: .*--full-refresh") as refused:
            open_warehouse(tmp_path)
        assert "\n" not in str(refused.value)

    def test_paths(self, tmp_path: Path) -> None:
        assert store_at(f"file://{tmp_path}") == store_at(tmp_path)
        assert store_at("s3://bucket/warehouse/").uri("frames") == "s3://bucket/warehouse/frames"
        assert "secret" not in str(store_at("s3://key:secret@bucket/warehouse"))

    @pytest.mark.parametrize(
        ("user", "shown"),
        [("lake@", "lake@"), ("lake:Secret@", "lake@"), (":Secret@", ""), ("lake%3ASecret@", ""), ("", "")],
    )
    def test_a_container_of_azure_is_shown_and_no_password(self, user: str, shown: str) -> None:
        host = "account.dfs.core.windows.net"
        assert str(store_at(f"abfss://{user}{host}/w?sig=Secret")) == f"abfss://{shown}{host}/w"

    def test_what_is_gone_is_one_line(self, tmp_path: Path) -> None:
        commit(new_tables(tmp_path), refusals=[{"seq": 1}], audit=[{"seq": 1}])
        (tmp_path / "audit" / "_delta_log" / "00000000000000000001.json").unlink()
        shutil.rmtree(tmp_path / "refusals")
        opened = open_warehouse(tmp_path)
        for name in ("audit", "refusals"):
            with pytest.raises(WarehouseError, match=f"the table {name} is not there at version 1") as gone:
                opened.table(name)
            assert "\n" not in str(gone.value)


class TestLock:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        by = rf"another pipeline \(process {os.getpid()}\)"
        store = store_at(tmp_path)
        with locked(store), pytest.raises(WarehouseError, match=by), locked(store):
            pass
        with locked(store):
            pass

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(WarehouseError, match="cannot use"), locked(store_at(tmp_path / "file")):
            pass


def test_columns_by_which_files_are_skipped_are_plain() -> None:
    for table in (*ALL, COMMITS):
        types = {column.name: column.type for column in BY_NAME[table.name].columns}
        assert all("<" not in types[name] for name in table.statistics), table.name
        assert table.statistics, table.name
