"""Erasing a space from journal and warehouse: afterwards no file below either, decoded, has a word of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from committed import at, changes, commit, new_tables, seen
from journals import append, lively, opened
from pyspark.sql import SparkSession
from running import assert_same, bring_up_to_date, rows, tables_of
from samples import MARK, Sample

from mewstream.journal.reader import JournalReader
from mewstream.pipeline.erasing import erase_space, is_interrupted, survey
from mewstream.pipeline.errors import WarehouseError
from mewstream.pipeline.tables import ALL, COMMITS, REFRESH

SPACE = f"{MARK}-space"
MEWSTREAM = [sys.executable, "-m", "mewstream.cli.main"]


def run(*arguments: str | Path, code: int = 0, input: str = "") -> str:
    """What a command says, on either output."""
    done = subprocess.run([*MEWSTREAM, *map(str, arguments)], input=input, capture_output=True, text=True)
    assert done.returncode == code, done
    return done.stdout + done.stderr


# -- everything that is on the disk, decoded --------------------------------------------------------


def decoded(root: Path) -> Iterator[tuple[str, str]]:
    """(file, text) of every file: as it is, and what is in it."""
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        name = str(file.relative_to(root))
        yield name, name
        yield name, file.read_bytes().decode("latin-1")
        if file.suffix == ".parquet":
            # Data, and checkpoints of the logs with the statistics of every file; the footer has statistics too.
            yield name, _texts(pq.read_table(file).to_pylist())
            yield name, _texts(_footer(file))
        elif file.parent.name == "_delta_log" and file.suffix == ".json":
            for line in file.read_text().splitlines():
                action = msgspec.json.decode(line)
                yield name, _texts(action)
                if stats := action.get("add", {}).get("stats"):
                    yield name, _texts(msgspec.json.decode(stats))


def decoded_journal(data: Path) -> Iterator[tuple[str, str]]:
    yield from decoded(data)
    reader = JournalReader(data / "journal")
    for number in range(reader.identity().partitions):
        for batch in reader.batches(number, 0):
            yield str(batch.segment.name), _texts(batch.rows.to_pylist())


def _footer(file: Path) -> list[Any]:
    metadata = pq.read_metadata(file)
    columns = [
        metadata.row_group(group).column(at)
        for group in range(metadata.num_row_groups)
        for at in range(metadata.num_columns)
    ]
    return [column.to_dict() for column in columns]


def _texts(value: Any) -> str:
    """With bytes as the characters that they are."""
    match value:
        case bytes():
            return value.decode("latin-1")
        case dict():
            return "\n".join(f"{_texts(key)}: {_texts(each)}" for key, each in value.items())
        case list() | tuple():
            return "\n".join(map(_texts, value))
    return str(value)


def holding(found: Iterator[tuple[str, str]]) -> set[str]:
    return {name for name, text in found if MARK in text}


# -- erasing --------------------------------------------------------------------------------------


def test_no_file_holds_a_word_of_it(spark: SparkSession, sample: Sample, tmp_path: Path) -> None:
    data, warehouse, _ = sample.copied_to(tmp_path / "copy")
    before = holding(decoded(warehouse))
    # The test can see what it looks for: in data, in logs, and in files that are no longer live.
    for table in ("records", "frames", "streams", "content", "sessions", "authorizations", "space_summary"):
        assert any(name.startswith(f"{table}/") and name.endswith(".parquet") for name in before), table
        assert any(name.startswith(f"{table}/_delta_log/") for name in before), table
    assert holding(decoded_journal(data))
    others = {name: [row for row in found if MARK not in row] for name, found in tables_of(warehouse).items()}

    said = run("erase", "--space", SPACE, "--data", data, "--warehouse", warehouse, "--yes")

    assert f"erased space '{SPACE}'" in said and "old files removed" in said
    assert holding(decoded(warehouse)) == set()
    assert holding(decoded_journal(data)) == set()
    left = tables_of(warehouse)
    for name in left.keys() - {"records", "space_summary"}:
        assert left[name] == others[name], name
    assert set(others["records"]) < set(left["records"])
    # The range is marked, by a hash, and it is what a pipeline makes of the erased journal.
    assert [row.space.partition("-")[0] for row in rows(warehouse, "space_summary")] == ["erased", "first"]
    assert bring_up_to_date(spark, data, warehouse).batches == 0
    bring_up_to_date(spark, data, tmp_path / "fresh")
    assert_same(left, tables_of(tmp_path / "fresh"))
    assert rows(warehouse, "commits")[-1].operation == "erase"


def test_the_space_may_be_served_again(spark: SparkSession, sample: Sample, tmp_path: Path) -> None:
    data, warehouse, _ = sample.copied_to(tmp_path / "copy")
    run("erase", "--space", SPACE, "--data", data, "--warehouse", warehouse, "--yes")
    with opened(data) as journal:
        append(journal, lively(40, space=SPACE, seed=9))
    bring_up_to_date(spark, data, warehouse)
    bring_up_to_date(spark, data, tmp_path / "fresh")
    assert_same(tables_of(warehouse), tables_of(tmp_path / "fresh"))
    run("erase", "--space", SPACE, "--data", data, "--warehouse", warehouse, "--yes")
    assert holding(decoded(warehouse)) | holding(decoded_journal(data)) == set()


def test_a_space_that_was_erased_from_the_journal_alone(spark: SparkSession, sample: Sample, tmp_path: Path) -> None:
    """Served again it begins with seq 1, and the tables still have what it was: nothing is mixed with that, nothing is
    counted twice, and nothing is left out in the end."""
    data, warehouse, _ = sample.copied_to(tmp_path / "copy")
    run("journal", "erase", "--space", SPACE, "--data", data, "--yes")
    assert bring_up_to_date(spark, data, warehouse).batches == 0
    with opened(data) as journal:
        append(journal, lively(40, space=SPACE, seed=9))
    before = tables_of(warehouse)
    with pytest.raises(WarehouseError, match=f"space '{SPACE}' begins with seq 1 again .* erase --space {SPACE}"):
        bring_up_to_date(spark, data, warehouse)
    assert tables_of(warehouse) == before

    said = run("erase", "--space", SPACE, "--warehouse", warehouse, "--yes")
    assert f"erased space '{SPACE}'" in said and "records" in said
    assert holding(decoded_journal(data)), "the journal is as it was"
    bring_up_to_date(spark, data, warehouse)
    bring_up_to_date(spark, data, tmp_path / "fresh")
    assert_same(tables_of(warehouse), tables_of(tmp_path / "fresh"))
    places = [(row.space, row.seq) for row in rows(warehouse, "records")]
    assert len(set(places)) == len(places)


def test_mistakes_are_one_line(sample: Sample, tmp_path: Path) -> None:
    where = ["--data", sample.data, "--warehouse", sample.warehouse]
    assert "there is nothing of space 'nowhere'" in run("erase", "--space", "nowhere", *where, "--yes", code=2)
    before = tables_of(sample.warehouse)
    assert "--yes" in run("erase", "--space", SPACE, *where, code=2)
    new_tables(tmp_path / "other")
    said = run("erase", "--space", SPACE, "--data", sample.data, "--warehouse", tmp_path / "other", "--yes", code=2)
    assert "another journal" in said and said.count("\n") == 1
    assert tables_of(sample.warehouse) == before


@pytest.mark.parametrize("name", ["my warehouse", "a#b", "a?b", "é", "100%"])
def test_whatever_the_directory_is_called(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    spaces = [{"space": each, "seq": seq} for seq, each in enumerate((SPACE, "other"))]
    commit(new_tables(root), refusals=spaces, streams=[{**each, "is_open": True} for each in spaces])
    said = run("erase", "--space", SPACE, "--warehouse", root, "--yes")
    assert f"erased space '{SPACE}': 2 rows in 2 tables" in said
    assert holding(decoded(root)) == set()
    assert seen(root, "refusals", "space") == seen(root, "streams", "space") == ["other"]


def test_files_that_cannot_hold_it_are_not_looked_into(tmp_path: Path) -> None:
    tables = new_tables(tmp_path)
    for space in ("a", SPACE, "z"):
        commit(tables, refusals=[{"space": space}])
    log = tables.logs["refusals"]
    [file] = log.files_with("space", SPACE)
    assert survey(tables, SPACE) == {"refusals": [(file, 1)]} and len(log.files()) == 3


def test_what_is_left_is_not_called_erased(tmp_path: Path) -> None:
    """Statistics that are wrong hide rows from the survey, and not from the look at the end."""
    tables = new_tables(tmp_path)
    change = changes(tables, {"refusals": [{"space": SPACE}]})["refusals"]
    change.add = [msgspec.structs.replace(each, stats=each.stats.replace(SPACE, "other")) for each in change.add]
    tables.commit({"refusals": change}, at(10), records=10)
    assert survey(tables, SPACE) == {}
    with pytest.raises(WarehouseError, match=f"rows of space '{SPACE}' are left in refusals"):
        erase_space(tables, SPACE)
    assert is_interrupted(new_tables(tmp_path))


# -- interrupted ----------------------------------------------------------------------------------

_ERASE_AND_DIE = """
import os, signal, sys
sys.path.insert(0, {here!r})
from committed import new_tables
from mewstream.pipeline import erasing
from mewstream.pipeline.delta import DeltaLog

left = {steps}
def counted(real):
    def step(*arguments, **options):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return real(*arguments, **options)
    return step
DeltaLog.commit = counted(DeltaLog.commit)
erasing._purge = counted(erasing._purge)
erasing.erase_space(new_tables({root!r}), {space!r})
"""


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5, 10, 22])
def test_killed_and_erased_again(tmp_path: Path, steps: int) -> None:
    tables = new_tables(tmp_path)
    for seq in range(3):
        spaces = [
            {"space": each, "seq": seq, "offset": 2 * seq + at, "epoch": "e", "record": "x"}
            for at, each in enumerate((SPACE, "other"))
        ]
        commit(tables, records=[*spaces], refusals=[*spaces], streams=[{**each, "is_open": True} for each in spaces])
    (tmp_path / REFRESH.name).mkdir()
    (tmp_path / REFRESH.name / "draft").write_text(SPACE)
    code = _ERASE_AND_DIE.format(here=str(Path(__file__).parent), steps=steps, root=str(tmp_path), space=SPACE)
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    tables = new_tables(tmp_path)
    assert steps == 0 or is_interrupted(tables)
    for name in ("refusals", "streams", "records"):
        assert seen(tmp_path, name, "space")  # readers are not disturbed
    erase_space(tables, SPACE)
    assert not is_interrupted(tables) and not survey(tables, SPACE)
    assert holding(decoded(tmp_path)) == set()
    assert seen(tmp_path, "refusals", "space") == ["other"] * 3
    assert seen(tmp_path, "streams", "space") == ["other"]
    assert len(seen(tmp_path, "records", "space")) == 6
    batches = seen(tmp_path, COMMITS.name, "batch")
    assert batches == list(range(len(batches)))
    commit(new_tables(tmp_path), refusals=[{"seq": 9, "space": "other"}])
    assert seen(tmp_path, "refusals", "seq") == [0, 1, 2, 9]
    assert pa.table(tables.logs[ALL[0].name].delta.get_add_actions(flatten=True)).num_rows
