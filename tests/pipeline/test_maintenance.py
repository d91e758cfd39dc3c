"""Living with the tables: files stay few whatever their sizes, old rows and files go, questions skip what they can."""

from __future__ import annotations

import os
import secrets
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from committed import NOON, at, batch_of, commit, new_tables, seen
from deltalake import DeltaTable

from mewstream.pipeline.committing import Change, Tables
from mewstream.pipeline.files import files_told, write_files
from mewstream.pipeline.maintenance import COMPACT_EVERY, FAN_IN, SIZES, after_batch, before_batch, compact, retain
from mewstream.pipeline.tables import COMMITS, FRAMES, SPACES
from mewstream.pipeline.warehouse import open_warehouse
from mewstream.query.database import open_database

DAY = timedelta(days=1)


def live_files(root: Path, name: str) -> int:
    return len(DeltaTable(root / name).file_uris())


# -- compaction -----------------------------------------------------------------------------------


def frames(first: int, count: int, *, begin: datetime = NOON) -> pa.RecordBatch:
    """Frames as they are in a journal of many streams, one a millisecond."""
    seqs = pa.array(range(first, first + count), pa.int64())
    micros = pc.add(int(begin.timestamp() * 1_000_000), pc.multiply(seqs, 1000))
    known = {
        "space": pc.binary_join_element_wise("space-", pc.cast(pc.bit_wise_and(seqs, 3), pa.string()), ""),
        "seq": seqs,
        "ts": micros.cast(pa.timestamp("us", "UTC")),
        "stream_id": pc.binary_join_element_wise("stream-", pc.cast(pc.bit_wise_and(seqs, 63), pa.string()), ""),
        "sender": pa.repeat("ann", count),
        "stream_seq": seqs,
        "size": pa.repeat(pa.scalar(60, pa.int32()), count),
        "kind": pa.repeat("frame", count),
    }
    empty = batch_of(FRAMES, []).schema
    arrays = [known.get(field.name, pa.nulls(count, field.type)) for field in empty]
    return pa.RecordBatch.from_arrays(arrays, schema=empty)


def commit_frames(tables: Tables, first: int, count: int) -> None:
    before_batch(tables)
    written = files_told(write_files(tables.store, [FRAMES.name], None, 0, iter([frames(first, count)])))
    tables.commit({FRAMES.name: Change(written)}, at(first + count), records=count)
    after_batch(tables)


def counting(root: Path) -> float:
    """CPU seconds of a count over the table, with opening it; the least of many."""
    taken = []
    for _ in range(25):
        began = time.process_time()
        with open_database(open_warehouse(root)) as database:
            database.rows("SELECT count(*) FROM frames")
        taken.append(time.process_time() - began)
    return min(taken)


def small_after_large(root: Path, *, large: int, batches: int, rows: int) -> tuple[float, float]:
    """Returns how long a count takes after the first batch, and after the last."""
    tables, most = new_tables(root), 0
    commit_frames(tables, 0, large)
    first = counting(root)
    for number in range(batches):
        commit_frames(tables, large + number * rows, rows)
        most = max(most, live_files(root, "frames")) if number % 50 == 0 else most
    found = [live_files(root, name) for name in ("frames", "commits")]
    assert max(most, *found) < 200, (most, found)
    last = counting(root)
    print(f"{most} files at most, {found} at the end; a count took {first:.3f} s of CPU, and {last:.3f} s at the end")
    with open_database(open_warehouse(root)) as database:
        total = large + batches * rows
        assert database.rows("SELECT count(*) AS n, count(DISTINCT seq) AS seqs, max(seq) AS last FROM frames") == [
            {"n": total, "seqs": total, "last": total - 1}
        ]
        assert database.rows("SELECT count(*) AS n, max(batch) AS last FROM commits") == [
            {"n": batches + 2, "last": batches + 1}
        ]
    return first, last


class TestCompaction:
    def test_a_large_file_and_many_small_ones(self, tmp_path: Path) -> None:
        small_after_large(tmp_path, large=400_000, batches=150, rows=500)

    @pytest.mark.long
    def test_two_million_rows_and_five_thousand_batches(self, tmp_path: Path) -> None:
        first, last = small_after_large(tmp_path, large=2_100_000, batches=5000, rows=500)
        assert last <= 2 * first

    def test_few_are_left_alone_and_enough_become_one(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        for number in range(FAN_IN):
            assert live_files(tmp_path, "refusals") == number
            compact(tables.logs["refusals"])
            commit(tables, refusals=[{"seq": number}])
        compact(tables.logs["refusals"])
        assert live_files(tmp_path, "refusals") == 1
        commit(tables, refusals=[{"seq": FAN_IN}])
        assert seen(tmp_path, "refusals", "seq") == list(range(FAN_IN + 1))

    def test_a_row_is_rewritten_a_few_times_at_most(self, tmp_path: Path) -> None:
        tables, written = new_tables(tmp_path), 0
        log = tables.logs["refusals"]
        for number in range(FAN_IN**2):
            commit(tables, refusals=[{"seq": number, "excerpt": secrets.token_hex(20_000)}])
            before = {file.path for file in log.files()}
            compact(log)
            written += sum(file.rows for file in log.files() if file.path not in before)
        assert written <= 6 * FAN_IN**2
        assert live_files(tmp_path, "refusals") < len(SIZES) * FAN_IN

    def test_a_day_that_is_over_becomes_one_file(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        for day in range(3):
            for number in range(3):
                commit(tables, refusals=[{"seq": day * 10 + number, "ts": NOON + day * DAY}])
        compact(tables.logs["refusals"])
        by_day = [file.partition for file in tables.logs["refusals"].files()]
        assert sorted(by_day) == ["2026-01-31", "2026-02-01", *["2026-02-02"] * 3]

    def test_open_rows_are_left_alone(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        for number in range(FAN_IN + 1):
            commit(tables, streams=[{"stream_id": f"{number:02}"}, {"stream_id": "z", "is_open": True}])
        compact(tables.logs["streams"])
        files = tables.logs["streams"].files()
        assert sorted(file.is_open for file in files) == [False, True]
        commit(tables, streams=[{"stream_id": "z"}])
        assert seen(tmp_path, "streams", "stream_id") == [*(f"{number:02}" for number in range(FAN_IN + 1)), "z"]

    def test_a_reader_of_before_is_not_disturbed(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        for number in range(FAN_IN):
            commit(tables, refusals=[{"seq": number}])
        before = open_warehouse(tmp_path)
        compact(tables.logs["refusals"])
        assert before.table("refusals").num_rows == FAN_IN

    def test_statistics_stay(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        for number in range(FAN_IN):
            commit(tables, refusals=[{"seq": number, "sender": "ann", "excerpt": "what somebody wrote"}])
        compact(tables.logs["refusals"])
        actions = pa.table(DeltaTable(tmp_path / "refusals").get_add_actions(flatten=True))
        assert (actions["min.seq"].to_pylist(), actions["max.seq"].to_pylist()) == ([0], [FAN_IN - 1])
        assert "max.excerpt" not in actions.column_names


# -- statistics -----------------------------------------------------------------------------------


class TestSkipping:
    @pytest.mark.parametrize(
        ("where", "files"),
        [
            ("space = 'space-5'", 1),
            ("ts >= '2026-01-31 14:00:00+00' AND ts < '2026-01-31 15:00:00+00'", 1),
            ("date = '2026-02-01'", 4),
            ("seq > 55 AND seq < 57", 1),
            ("true", 12),
        ],
    )
    def test_a_question_reads_only_the_files_that_may_answer_it(self, tmp_path: Path, where: str, files: int) -> None:
        tables = new_tables(tmp_path)
        for number in range(12):
            rows = [{"seq": number * 10 + each, "space": f"space-{number}"} for each in range(10)]
            moment = NOON + timedelta(hours=number if number < 8 else number + 12)
            commit(tables, refusals=[{**row, "ts": moment} for row in rows])
        dataset = open_warehouse(tmp_path).dataset("refusals")
        uris = DeltaTable(tmp_path / "refusals").file_uris(file_pruning_predicate=where.replace("+00", "Z"))
        assert len(uris) == files
        # Others are damaged: who reads them fails.
        for file in set(dataset.files) - {str(Path(uri).relative_to(tmp_path / "refusals")) for uri in uris}:
            (tmp_path / "refusals" / file).write_bytes(b"damaged")
        with open_database(open_warehouse(tmp_path)) as database:
            expected = 1 if "seq" in where else files * 10
            assert database.rows(f"SELECT count(sender) + count(seq) AS n FROM refusals WHERE {where}") == [
                {"n": expected}
            ]


# -- what goes ------------------------------------------------------------------------------------


class TestRetention:
    def old_and_new(self, root: Path) -> Tables:
        tables = new_tables(root)
        for age in (100, 91, 89, 1):
            moment = NOON - age * DAY
            commit(
                tables,
                refusals=[{"seq": age, "ts": moment}],
                audit=[{"seq": age, "ts": moment}],
                streams=[
                    {"stream_id": f"ended-{age}", "ended_ts": moment},
                    {"stream_id": "lives", "ready_ts": NOON - 100 * DAY, "is_open": True},
                ],
            )
        return tables

    def test_by_age(self, tmp_path: Path) -> None:
        tables = self.old_and_new(tmp_path)
        assert retain(tables, {"*": 90 * DAY}, now=NOON) == 6
        assert seen(tmp_path, "refusals", "seq") == seen(tmp_path, "audit", "seq") == [1, 89]
        assert seen(tmp_path, "streams", "stream_id") == ["ended-1", "ended-89", "lives"]
        assert tables.rows["streams"] == 3
        assert tables.newest.operation == "retain"
        commit(tables, streams=[{"stream_id": "lives", "ended_ts": NOON}])
        assert seen(tmp_path, "streams", "stream_id") == ["ended-1", "ended-89", "lives"]
        assert seen(tmp_path, "commits", "batch") == list(range(7))

    def test_of_some_tables(self, tmp_path: Path) -> None:
        tables = self.old_and_new(tmp_path)
        retain(tables, {"*": 365 * DAY, "refusals": 30 * DAY}, now=NOON)
        assert seen(tmp_path, "refusals", "seq") == [1]
        assert seen(tmp_path, "audit", "seq") == [1, 89, 91, 100]

    def test_nothing_too_old_is_no_commit(self, tmp_path: Path) -> None:
        tables = self.old_and_new(tmp_path)
        assert retain(tables, {"*": 3650 * DAY}, now=NOON) == 0
        assert tables.newest.operation == "run"

    def test_days_are_dropped_without_a_look_into_the_files(self, tmp_path: Path) -> None:
        tables = self.old_and_new(tmp_path)
        for file in (tmp_path / "refusals").glob("date=2025-*/*.parquet"):
            file.write_bytes(b"damaged")
        retain(tables, {"refusals": 30 * DAY}, now=NOON)
        assert seen(tmp_path, "refusals", "seq") == [1]


class TestVacuum:
    def test_after_the_safety_period_and_once_a_day(self, tmp_path: Path) -> None:
        tables = new_tables(tmp_path)
        for _ in range(3):
            commit(tables, streams=[{"stream_id": "a", "is_open": True}], **{SPACES.name: [{}]})
        stray = tmp_path / "refusals" / "date=2026-01-31" / "left-by-a-killed-run.parquet"
        stray.parent.mkdir()
        stray.write_bytes(b"")
        files = lambda name: len(list((tmp_path / name).rglob("*.parquet")))  # noqa: E731
        before_batch(tables)
        assert stray.exists() and files("streams") >= 3
        vacuumed = tables.commits.version
        before_batch(tables)
        assert tables.commits.version == vacuumed
        self.grow_old(tmp_path, days=8)
        tables = new_tables(tmp_path)
        before_batch(tables, now=datetime.now(UTC) + DAY)
        assert not stray.exists()
        assert tables.commits.version > vacuumed
        commit(tables, streams=[{"stream_id": "b", "is_open": True}])
        assert seen(tmp_path, "streams", "stream_id") == ["b"]

    @staticmethod
    def grow_old(root: Path, *, days: int) -> None:
        then = time.time() - days * 86_400
        for file in root.rglob("*.parquet"):
            os.utime(file, (then, then))

    def test_logs_of_many_commits_are_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """However fast they came; and who reads, or follows a little behind, is not disturbed."""
        monkeypatch.setattr("mewstream.pipeline.maintenance.KEPT_COMMITS", 20)
        tables = new_tables(tmp_path)
        for number in range(COMPACT_EVERY * 5):
            before = open_warehouse(tmp_path)
            commit(tables, **{SPACES.name: [{"space": f"p-{number}"}]})
            after_batch(tables)
            assert before.table(SPACES.name).num_rows <= 1
        for name in (SPACES.name, COMMITS.name):
            left = sorted(int(file.stem) for file in (tmp_path / name / "_delta_log").glob("*.json"))
            assert 20 <= len(left) <= 20 + COMPACT_EVERY + 10
            assert left == list(range(left[0], left[-1] + 1))
            assert DeltaTable(tmp_path / name, version=left[-1] - 20).version() == left[-1] - 20

    def test_logs_do_not_grow_for_ever(self, tmp_path: Path) -> None:
        """Commits that have expired are forgotten, and the newest version is read as before."""
        tables = new_tables(tmp_path)
        log = tables.logs[SPACES.name]
        for number in range(COMPACT_EVERY * 4):
            commit(tables, **{SPACES.name: [{"space": f"p-{number}"}]})
        names = sorted((tmp_path / SPACES.name / "_delta_log").glob("*.json"))
        then = time.time() - 2 * 86_400
        for file in (tmp_path / SPACES.name / "_delta_log").iterdir():
            os.utime(file, (then, then))
        after_batch(tables)
        left = sorted((tmp_path / SPACES.name / "_delta_log").glob("*.json"))
        assert len(left) < len(names) / 2
        assert log.version == COMPACT_EVERY * 4
        assert seen(tmp_path, SPACES.name, "space") == [f"p-{COMPACT_EVERY * 4 - 1}"]
