"""``state``, ``pipeline run``, ``query``, ``audit``, ``report``: real processes; Spark for the pipeline alone."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from shell import MEWSTREAM, Done

from mewstream.pipeline.tables import PUBLIC, SHOWN
from mewstream.protocol.records import Frame
from pipeline.journals import Play, frame_fields, lively, write_journal

#: Spark takes seconds to start, and many more where others are at work on the machine.
TIMEOUT = 900
#: Without PYTHONWARNINGS=error: Spark's workers inherit it, and pandas has things to say.
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("MEW_", "PYTHONWARN"))}


def run(*arguments: str | Path, code: int = 0, input: str = "") -> Done:
    done = subprocess.run(
        [*MEWSTREAM, *map(str, arguments)],
        input=input,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env=ENVIRONMENT,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, (arguments, done)
    return Done(done.returncode, done.stdout, done.stderr)


class Made:
    """A journal of two spaces, one of which holds a frame that nobody might write, and its tables."""

    def __init__(self, directory: Path) -> None:
        self.sound = lively(200, space="sound", seed=4)
        self.flawed = Play("flawed", begin=True)
        stream = self.flawed.open("ann", description="\x1b[31mred\x1b[0m")
        self.flawed.frame("ann", stream)
        self.fault = self.flawed.plant(Frame, **frame_fields(self.flawed, stream, "cy"))
        self.data = write_journal(directory / "data", self.sound, self.flawed)
        self.warehouse = directory / "warehouse"
        self.records = len(self.sound.records) + len(self.flawed.records)
        self.first_run = run("pipeline", "run", "--data", self.data, "--warehouse", self.warehouse)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


# -- without Spark --------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> tuple[Path, Play]:
    play = lively(60, seed=1)
    return write_journal(tmp_path / "data", play), play


def test_state_for_people_and_for_programs(journal: tuple[Path, Play]) -> None:
    data, play = journal
    told = run("state", "--space", "demo", "--data", data, "--json").json
    expected = play.state.welcome("")
    del expected["you"]
    assert told == expected
    whole = run("state", "--space", "demo", "--data", data, "--as", "ann", "--json").json
    assert whole == play.state.welcome("ann")
    shown = run("state", "--space", "demo", "--data", data, "--at", str(play.state.seq)).out
    assert f"demo at seq {play.state.seq}" in shown
    for stream in play.state.streams.values():
        assert re.search(rf"{stream.id}\s.*{stream.owner}", shown)


def test_state_at_a_time(journal: tuple[Path, Play]) -> None:
    data, play = journal
    assert run("state", "--space", "demo", "--data", data, "--at", "now", "--json").json["seq"] == play.state.seq
    assert (
        "nothing of space 'demo'" in run("state", "--space", "demo", "--data", data, "--at", "2001-01-01", code=2).err
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["state", "--space", "demo"], "--data of a gateway, or --warehouse"),
        (["state", "--space", "demo", "--data", "D", "--warehouse", "W"], "--data of a gateway, or --warehouse"),
        (["state", "--space", "demo", "--data", "DATA", "--at", "soon"], "'soon' is no time"),
        (["state", "--space", "demo", "--data", "DATA", "--at", "100000"], "there is no seq 100000 yet"),
        (["state", "--space", "nowhere", "--data", "DATA"], "nothing of space 'nowhere'"),
        (["state", "--space", "demo", "--data", "nothing-here"], "there is no journal"),
        (["query", "--warehouse", "nothing-here", "SELECT 1"], "there is no warehouse"),
        (["audit", "--warehouse", "nothing-here"], "there is no warehouse"),
        (["report", "--warehouse", "nothing-here"], "there is no warehouse"),
        (["pipeline", "run", "--data", "nothing-here", "--warehouse", "W"], "journal"),
        (["pipeline", "run", "--data", "DATA", "--warehouse", "W", "--retain", "soon"], "'soon'"),
        (["pipeline", "run", "--data", "DATA", "--warehouse", "W", "--retain", "frmes=1d"], "frmes"),
        (["pipeline", "run", "--data", "DATA", "--warehouse", "W", "--metrics", "far"], "'far' is no address"),
        (["pipeline", "run", "--data", "DATA", "--warehouse", "W", "--on-finding", "'"], "cannot be read as a command"),
        (["pipeline", "run", "--data", "DATA", "--warehouse", "W", "--on-finding", ""], "names no command"),
        (["pipeline", "run", "--data", "DATA", "--warehouse", "a%20b"], "takes %20 in a path for another character"),
        (["query", "--warehouse", "a%2Fb", "SELECT 1"], "takes %2F in a path"),
        (["report", "--warehouse", "W", "--since", "2026-02-01", "--until", "2026-01-31"], "--since is not before"),
        (["warehouse", "sql", "--warehouse", "nothing-here", "--dialect", "trino"], "there is no warehouse"),
    ],
)
def test_mistakes_are_one_line(journal: tuple[Path, Play], arguments: list[str], says: str) -> None:
    done = run(*(str(journal[0]) if each == "DATA" else each for each in arguments), code=2)
    assert says in done.err and done.err.count("\n") == 1 and done.out == "", done


def test_a_dry_run_writes_nothing_and_needs_no_spark(journal: tuple[Path, Play], tmp_path: Path) -> None:
    data, play = journal
    done = run("pipeline", "run", "--data", data, "--warehouse", tmp_path / "warehouse", "--dry-run")
    assert f"{len(play.records)} records to read" in done.out
    assert not (tmp_path / "warehouse").exists()


# -- with Spark -----------------------------------------------------------------------------------


@pytest.mark.spark
def test_the_pipeline_runs_quietly(made: Made) -> None:
    assert f"up to date: {made.records} new records in 1 batch," in made.first_run.out
    for line in made.first_run.err.splitlines():
        assert re.fullmatch(r"mewstream: batch 1: \d+ records, \d+ records/s, lag 0, \d+ in all, 1 finding", line), line


@pytest.mark.spark
def test_query_lists_tables_and_answers(made: Made) -> None:
    listed = run("query", "--warehouse", made.warehouse).out
    for table in PUBLIC:
        assert table.name in listed
    sql = "SELECT space, count(*) AS n, max(ts) AS newest FROM records GROUP BY space ORDER BY space"
    rows = [json.loads(line) for line in run("query", "--warehouse", made.warehouse, "--json", sql).out.splitlines()]
    assert [(row["space"], row["n"]) for row in rows] == [
        ("flawed", len(made.flawed.records)),
        ("sound", len(made.sound.records)),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row["newest"]) for row in rows)


@pytest.mark.spark
def test_query_shows_a_table_from_stdin_and_cuts_it(made: Made) -> None:
    sql = "SELECT a.space, b.space, a.description, [1, 2] AS list FROM streams a JOIN streams b USING (stream_id);"
    done = run("query", "--warehouse", made.warehouse, "--limit", "1", "-", input=sql)
    assert done.out.startswith("1 row:\n  space_1") and "[1,2]" in done.out
    assert "\x1b" not in done.out
    assert "only the first 1 rows are shown" in done.err


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "sql", "says"),
    [
        ("duckdb", "SELECT * FROM frmes", "Table with name frmes does not exist"),
        ("duckdb", "SELECT * FROM frmes", "Tables are records, envelopes"),
        ("duckdb", "SELEC 1", 'syntax error at or near "SELEC" (LINE 1: SELEC 1)'),
        ("duckdb", "SELECT 1; SELECT 2", "expected one statement, found 2"),
        ("duckdb", "CREATE TABLE t (i INT)", "expected a SELECT"),
        ("duckdb", "SELECT * FROM read_csv('https://example.org/x')", ""),
        pytest.param("spark", "SELECT * FROM frmes", "there is no table frmes: there are", marks=pytest.mark.long),
        pytest.param("spark", "SELEC 1", "line 1, pos 0", marks=pytest.mark.long),
    ],
)
def test_mistakes_in_sql_are_clear(made: Made, engine: str, sql: str, says: str) -> None:
    done = run("query", "--warehouse", made.warehouse, "--json", "--engine", engine, sql, code=2)
    assert says in done.err and done.out == ""
    assert done.err.startswith("mewstream: ") and done.err.count("\n") == 1, done.err


@pytest.mark.spark
def test_audit_tells_the_verdict_by_its_exit_code(made: Made) -> None:
    lines = run("audit", "--warehouse", made.warehouse, "--json", code=1).out.splitlines()
    verdicts = {row["space"]: row for row in map(json.loads, lines) if "verdict" in row}
    findings = [row for row in map(json.loads, lines) if "rule" in row]
    assert {space: row["verdict"] for space, row in verdicts.items()} == {"sound": "sound", "flawed": "flawed"}
    assert verdicts["flawed"]["findings"] == len(findings) == 1
    assert (findings[0]["space"], findings[0]["seq"], findings[0]["participant"]) == ("flawed", made.fault, "cy")
    shown = run("audit", "--warehouse", made.warehouse, "--space", "sound").out
    judged = r"\nsound: [1-9]\d* frames, [1-9]\d* changes, \d+ refusals and [1-9]\d* welcomes were judged\n\Z"
    assert re.search(judged, shown) and "flawed" not in shown


@pytest.mark.spark
def test_report_writes_a_page(made: Made, tmp_path: Path) -> None:
    done = run("report", "--warehouse", made.warehouse, "--out", tmp_path / "page.html")
    assert done.out == f"written: {tmp_path / 'page.html'}\n" and done.err == ""
    text = (tmp_path / "page.html").read_text()
    assert "Flawed: 1 finding" in text and 'id="timeline"' in text


@pytest.mark.long
@pytest.mark.spark
def test_spark_answers_in_its_own_dialect(made: Made) -> None:
    sql = "SELECT space, {list} AS kinds, max(ts) AS newest FROM records GROUP BY space"
    asked = {"spark": "array_sort(collect_set(record))", "duckdb": "list_sort(list(DISTINCT record))"}
    spark, duck = (
        run("query", "--warehouse", made.warehouse, "--engine", engine, "--json", sql.format(list=how)).out
        for engine, how in asked.items()
    )
    assert sorted(spark.splitlines()) == sorted(duck.splitlines()) != []


# -- what they cost -------------------------------------------------------------------------------


def cost(*arguments: str | Path, code: int = 0) -> float:
    """CPU seconds of a command. It finds neither Spark nor Java, so that it can start neither."""
    command = "import sys; sys.modules['pyspark'] = None; from mewstream.cli.main import main; main()"
    environ = {**ENVIRONMENT, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    process = subprocess.Popen(
        [sys.executable, "-c", command, *map(str, arguments)], env=environ, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == code, arguments
    return used.ru_utime + used.ru_stime


@pytest.mark.spark
def test_asking_starts_no_jvm_and_takes_little(made: Made, tmp_path: Path) -> None:
    where = ("--warehouse", made.warehouse)
    assert cost("query", *where, "SELECT space, count(*), max(ts) FROM frames GROUP BY space") <= 2
    assert cost("query", *where, "SELECT count(*) FROM content_position") <= 2
    assert cost("audit", *where, code=1) <= 2
    assert cost("state", *where, "--space", "sound") <= 2
    assert cost("report", *where, "--out", tmp_path / "report.html") <= 4


@pytest.mark.spark
def test_statements_for_other_engines(made: Made) -> None:
    told = {
        dialect: run("warehouse", "sql", "--warehouse", made.warehouse, "--dialect", dialect).out.split(";\n")[:-1]
        for dialect in ("spark", "duckdb", "trino")
    }
    for dialect, statements in told.items():
        for table in SHOWN:
            assert any(str(made.warehouse / table.name) in each for each in statements), (dialect, table.name)
        assert any("content_position" in each for each in statements), dialect
    # DuckDB takes them, with a function in place of its extension, which must be downloaded.
    files = "read_parquet(location || '/**/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE MACRO delta_scan(location) AS TABLE SELECT * FROM {files}")
        for statement in told["duckdb"]:
            table = re.search(r"delta_scan\('(.*)'\)", statement)
            if statement not in ("INSTALL delta", "LOAD delta") and (
                table is None or any(Path(table[1]).rglob("*.parquet"))
            ):
                connection.execute(statement)
        found = connection.execute("SELECT count(*) FROM mewstream.content_position").fetchall()
    sql = "SELECT count(*) AS n FROM content_position"
    assert run("query", "--warehouse", made.warehouse, "--json", sql).json["n"] == found[0][0] > 0


@pytest.mark.spark
def test_a_report_of_a_part(made: Made, tmp_path: Path) -> None:
    """A time in which nothing happened, one space, and everything."""
    pages = {}
    for name, chosen in (
        ("nothing", ("--until", "2001-01-01")),
        ("sound", ("--space", "sound")),
        ("all", ("--since", "2001-01-01")),
    ):
        run("report", "--warehouse", made.warehouse, "--out", tmp_path / name, *chosen)
        pages[name] = (tmp_path / name).read_text()
    assert "Flawed: 1 finding" in pages["all"]
    assert "Flawed" not in pages["sound"] and "Flawed" not in pages["nothing"]
    assert 'id="timeline"' in pages["sound"] and 'id="timeline"' not in pages["nothing"]


def test_what_takes_long_says_so_on_a_terminal() -> None:
    code = """
import time
from mewstream.cli import status_line
status_line._PATIENCE = 0.1
with status_line.working("counting sheep"):
    time.sleep(1.5)
"""
    here, there = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stderr=there)
    os.close(there)
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when nobody has the other end any more
        while piece := os.read(here, 65536):
            shown += piece
    os.close(here)
    assert process.wait() == 0 and b"counting sheep: " in shown, shown
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stderr == b""


@pytest.mark.spark
def test_state_is_the_same_from_journal_and_warehouse(made: Made) -> None:
    at = str(len(made.sound.records) // 2)
    from_tables = run("state", "--space", "sound", "--warehouse", made.warehouse, "--at", at, "--json").json
    assert from_tables == run("state", "--space", "sound", "--data", made.data, "--at", at, "--json").json
    for where in (("--warehouse", made.warehouse), ("--data", made.data)):
        assert "say which by --space. There are flawed, sound" in run("state", *where, code=2).err


@pytest.mark.long
@pytest.mark.spark
def test_continuous_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    data = write_journal(tmp_path / "data", lively(100, seed=2))
    command = [*MEWSTREAM, "pipeline", "run", "--data", str(data), "--warehouse", str(tmp_path / "warehouse")]
    process = subprocess.Popen(
        [*command, "--continuous"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("mewstream: batch 1: 100 records"), first
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert out.startswith("stopped: 100 new records in 1 batch,") and err == ""


@pytest.mark.long
@pytest.mark.spark
def test_a_terminal_sees_a_bar(made: Made) -> None:
    command = [*MEWSTREAM, "pipeline", "run", "--data", str(made.data), "--warehouse", str(made.warehouse)]
    here, there = pty.openpty()
    process = subprocess.Popen([*command, "--full-refresh"], stdout=subprocess.PIPE, stderr=there, env=ENVIRONMENT)
    os.close(there)
    shown = b""
    try:
        while True:
            try:
                piece = os.read(here, 65536)
            except OSError:
                break  # Linux says so when nobody has the other end any more
            if not piece:
                break
            shown += piece
        out, _ = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
        process.wait()
        os.close(here)
    assert process.returncode == 0, shown
    assert b"starting Spark" in shown and b"records/s, lag" in shown and b"ERROR" not in shown and b"WARN" not in shown
    assert out.startswith(b"up to date: 0 new records")
