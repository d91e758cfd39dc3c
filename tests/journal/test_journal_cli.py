"""``mewstream journal``: as a user runs it, on real journals, beside a real gateway."""

from __future__ import annotations

import base64
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from making import encode

from mewstream.cli.journal_records import cat
from mewstream.gateway.identity import InvitedTokens
from mewstream.journal.erase import ERASING_FILE, erase, refuse_half_erased, with_tombstones
from mewstream.journal.errors import JournalError
from mewstream.journal.export import ROW_GROUP_ROWS
from mewstream.journal.files import Files
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader, partition_of
from mewstream.journal.retention import commit_consumer
from mewstream.journal.schema import SCHEMA, UnknownRecord
from mewstream.journal.segments import ENTRY_BYTES
from mewstream.journal.verify import Verification
from mewstream.protocol import commands
from mewstream.protocol.decide import decide
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.fold import apply
from mewstream.protocol.records import Frame
from mewstream.protocol.state import SpaceState
from mewstream.protocol.times import SECOND, parse_rfc3339, rfc3339
from support import GatewayProcess, joined, space_config

NOON = parse_rfc3339("2026-01-31T12:00:00Z") or 0
SECRET = "the-cat-is-under-the-sofa"
COMMAND = [sys.executable, "-m", "mewstream.cli.main", "journal"]
TIMEOUT = 60


class Driver:
    """Spaces without a gateway: commands go through decide and apply, and into a journal."""

    def __init__(self, data: Path, *, segment_bytes: int = 64 << 20, partitions: int = 4) -> None:
        self.journal = LocalJournal(data, segment_bytes=segment_bytes, partitions=partitions)
        self.states: dict[str, SpaceState] = self.journal.recover()
        self.now = max([NOON, *(state.ts for state in self.states.values())])

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()

    def do(self, space: str, command: commands.Command) -> None:
        state = self.states.setdefault(space, SpaceState(space))
        self.now += SECOND
        for record in decide(state, self.now, command).records:
            self.journal.append(space, record)
            apply(state, record)

    def start(self, space: str, *participants: str) -> None:
        capabilities = {each: {"capabilities": [{"kind": "*"}]} for each in participants}
        self.do(space, commands.Start(self.journal.epoch, {"id": space, "participants": capabilities}))
        for each in participants:
            self.do(space, commands.Join(each, "websocket"))

    def say(self, space: str, sender: str, kind: str, payload: Any, **fields: Any) -> None:
        envelope = {"kind": kind, "payload": payload, **fields}
        self.do(space, commands.Send(sender, parse_envelope(json.dumps(envelope).encode(), max_id_bytes=256)))

    def frame(self, space: str, sender: str, data: bytes, opcode: int = 1, stream: str = "stream-1") -> None:
        state = self.states[space]
        self.now += SECOND
        for record in decide(state, self.now, commands.SendFrame(sender, stream, data, opcode)).records:
            self.journal.append(space, record)
            apply(state, record)

    def flush(self) -> None:
        for partition in self.journal.partitions:
            partition.flush()

    def seal(self) -> None:
        self.flush()
        for partition, name in self.journal.segments_to_seal():
            partition.seal(name)

    def snapshot(self) -> None:
        self.flush()
        for number in range(len(self.journal.partitions)):
            self.journal.write_snapshot(*self.journal.encode_snapshot(number, self.states))


def lively(data: Path, *spaces: str, frames: int = 30, segment_bytes: int = 4096, partitions: int = 1) -> None:
    """Spaces side by side in small segments, sealed but for the last, with a snapshot at the end."""
    with Driver(data, segment_bytes=segment_bytes, partitions=partitions) as driver:
        for space in spaces:
            driver.start(space, "alice", "bob")
            driver.say(space, "alice", "stream/request", {"direction": "upload"}, id="open-1")
            driver.say(space, "alice", "chat", {"text": f"{SECRET} {space}"})
        for number in range(frames):
            for space in spaces:
                driver.frame(space, "alice", f"{SECRET} {space} {number}".encode())
            driver.flush()
        driver.seal()
        driver.snapshot()


def run(data: Path, command: str, *options: str, code: int = 0, **more: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, command, "--data", str(data), *options], capture_output=True, text=True, timeout=TIMEOUT, **more
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def found(data: Path, *options: str) -> list[dict[str, Any]]:
    """What ``cat --json`` prints; in this process, for it is asked for often."""
    done = CliRunner().invoke(cat, ["--data", str(data), "--json", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def seqs(records: list[dict[str, Any]]) -> list[int]:
    return [each["seq"] for each in records]


def files_of(data: Path, pattern: str) -> list[Path]:
    return sorted((data / "journal").glob(pattern))


def damage(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.write_bytes(content)


def problems(data: Path, code: int = 1) -> list[str]:
    *lines, summary = run(data, "verify", code=code).stdout.splitlines()
    assert summary.startswith("sound: " if code == 0 else f"{len(lines)} problem"), summary
    return lines


def contents(data: Path) -> bytes:
    """Every byte that any file of the journal holds, compressed batches unpacked."""
    everything = [file.read_bytes() for file in data.rglob("*") if file.is_file()]
    reader = JournalReader(data / "journal")
    for number in range(reader.identity().partitions):
        everything += [batch.rows.serialize().to_pybytes() for batch in reader.batches(number)]
    return b"\0".join(everything)


# -- ls -------------------------------------------------------------------------------------------


def test_ls_names_segments_spaces_snapshots_and_consumers(tmp_path: Path) -> None:
    lively(tmp_path, "demo", "arena")
    lively(tmp_path, "demo")
    commit_consumer(tmp_path / "journal", "bronze", {0: 7})
    text = run(tmp_path, "ls").stdout
    rows = [line.split() for line in text.splitlines()]
    reader = JournalReader(tmp_path / "journal")
    for segment in reader.segments(0):
        (row,) = [row for row in rows if row[1:2] == [f"{segment.name.first_offset:020d}"]]
        count = segment.next_offset - segment.name.first_offset
        state = "sealed" if segment.name.sealed else "open"
        assert row[2:5] == [state, str(count), str(segment.committed_bytes)]
        assert row[5:7] == [str(segment.name.first_offset), str(segment.next_offset - 1)]
        assert row[8] == rfc3339(segment.last_ts)
    (demo,) = [row for row in rows if row[:1] == ["demo"]]
    assert demo[1:6] == ["0", str(len(found(tmp_path, "--space", "demo"))), "0", "1", demo[2]]
    assert len(demo[8:]) == 2, "both epochs"
    (arena,) = [row for row in rows if row[:1] == ["arena"]]
    assert len(arena[8:]) == 1
    end = reader.next_offset(0)
    assert ["bronze", "0", "7", str(end - 7)] in rows
    assert any(row[:2] == ["0", str(end)] and row[-1] == "0" for row in rows), "the last snapshot"
    assert "\x1b" not in text


def test_ls_names_a_batch_that_cannot_be_read_and_goes_on(tmp_path: Path) -> None:
    lively(tmp_path, "demo")
    damage(files_of(tmp_path, "p0/*.arrow")[0], -40)
    done = run(tmp_path, "ls", code=1)
    assert "the checksum of this batch is wrong" in done.stderr
    assert "demo" in done.stdout


# -- cat ------------------------------------------------------------------------------------------


def test_json_has_every_column_that_is_not_null(tmp_path: Path) -> None:
    with Driver(tmp_path) as driver:
        driver.start("demo", "alice")
        driver.say("demo", "alice", "stream/request", {"direction": "upload"}, id="open-1")
        driver.frame("demo", "alice", "Grüße\nan alle".encode())
        driver.frame("demo", "alice", b"\xff\x00\xfe", opcode=2)
        driver.frame("demo", "mallory", b"no")
        state = driver.states["demo"]
    records = found(tmp_path, "--space", "demo")
    assert seqs(records) == list(range(1, state.seq + 1))
    assert [each for each in records if None in each.values()] == []
    text, binary = [each for each in records if each["record"] == "frame"]
    assert text["data"] == "Grüße\nan alle"
    assert base64.b64decode(binary["data_base64"]) == b"\xff\x00\xfe"
    assert "data" not in binary
    assert (text["kind"], text["sender"], text["stream_id"], text["stream_seq"]) == ("frame", "alice", "stream-1", 1)
    assert text["outcome"] == "accepted"
    assert text["space"] == "demo"
    assert parse_rfc3339(text["ts"])
    assert (records[0]["partition"], records[0]["offset"]) == (partition_of("demo", 4), 0)
    refused = records[-1]
    assert refused["outcome"] == "unauthorized_stream_write"
    assert refused["detail"]["code"] == "unauthorized_stream_write"
    opened = next(each for each in records if each["record"] == "stream-opened")
    assert opened["detail"]["owner"] == "alice"


def test_filters(tmp_path: Path) -> None:
    lively(tmp_path, "demo", "arena", partitions=4)
    everything = found(tmp_path)
    demo = [each for each in everything if each["space"] == "demo"]
    assert len(everything) == 2 * len(demo)
    assert found(tmp_path, "--space", "demo") == demo
    assert seqs(found(tmp_path, "--space", "demo", "--from-seq", "5", "--to-seq", "9")) == [5, 6, 7, 8, 9]
    assert seqs(found(tmp_path, "--space", "demo", "--from-seq", "30"))[0] == 30
    assert found(tmp_path, "--from-seq", "3", "--to-seq", "4") == [each for each in everything if each["seq"] in (3, 4)]
    assert found(tmp_path, "--space", "demo", "--limit", "3") == demo[:3]
    for option, column, value in (
        ("--stream", "stream_id", "stream-1"),
        ("--kind", "kind", "chat"),
        ("--sender", "sender", "alice"),
        ("--record", "record", "joined"),
    ):
        expected = [each for each in everything if each.get(column) == value]
        assert expected
        assert found(tmp_path, option, value) == expected
    several = found(tmp_path, "--kind", "stream/*", "--kind", "chat")
    assert several == [each for each in everything if str(each.get("kind")).startswith(("stream/", "chat"))]
    middle = demo[len(demo) // 2]["ts"]
    assert found(tmp_path, "--space", "demo", "--since", middle) == [each for each in demo if each["ts"] >= middle]
    assert found(tmp_path, "--until", middle) == [each for each in everything if each["ts"] < middle]
    assert found(tmp_path, "--since", "2026-01-31", "--until", "2026-02-01") == everything
    assert found(tmp_path, "--since", "now") == []
    assert found(tmp_path, "--space", "nowhere") == []


def test_every_selection_of_one_space_is_what_a_plain_filter_gives(tmp_path: Path) -> None:
    """Where reading begins and ends early, nothing may be missed."""
    lively(tmp_path, "demo", "arena", frames=12, segment_bytes=2500)
    demo = found(tmp_path, "--space", "demo")
    choice = random.Random(7)
    for _ in range(8):
        low, high = sorted(choice.choices(range(1, len(demo) + 1), k=2))
        since, until = sorted(choice.choices([each["ts"] for each in demo], k=2))
        options = ["--from-seq", str(low), "--to-seq", str(high), "--since", since, "--until", until]
        expected = [each for each in demo if low <= each["seq"] <= high and since <= each["ts"] < until]
        assert found(tmp_path, "--space", "demo", *options) == expected


def test_lines_for_people_cannot_steer_a_terminal(tmp_path: Path) -> None:
    with Driver(tmp_path) as driver:
        driver.start("demo", "alice")
        driver.say("demo", "alice", "stream/request", {"direction": "upload"}, id="open-1")
        driver.frame("demo", "alice", b"\x1b[2Jgone\r\nTwo [red]lines[/red]")
        driver.frame("demo", "alice", b"x" * 1000)
        driver.frame("demo", "alice", b"\xff\xff", opcode=2)
    lines = run(tmp_path, "cat").stdout.splitlines()
    assert len(lines) == len(found(tmp_path))
    assert lines[-3].endswith(r"\x1b[2Jgone\r\nTwo [red]lines[/red]")
    assert lines[-2].endswith("... (1000 characters)")
    assert lines[-1].endswith("(2 bytes)")
    assert "\x1b" not in "".join(lines)


def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    lively(tmp_path, "demo", frames=3000, segment_bytes=1 << 20)
    for command in (["cat", "--json"], ["cat"], ["export"], ["export", "--format", "parquet"]):
        process = subprocess.Popen(
            [*COMMAND, *command, "--data", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.wait(TIMEOUT) == 0
        assert process.stderr.read() == b""
        process.stderr.close()


def test_cat_stops_at_a_damaged_batch(tmp_path: Path) -> None:
    lively(tmp_path, "demo")
    file = files_of(tmp_path, "p0/*.arrow")[2]
    damage(file, -40)
    for options in ((), ("--space", "demo"), ("--space", "demo", "--from-seq", "3", "--since", "2026-01-31")):
        done = run(tmp_path, "cat", "--json", *options, code=1)
        records = [json.loads(line) for line in done.stdout.splitlines()]
        assert seqs(records)[-1] < len(records) + 3
        assert len(done.stderr.splitlines()) == 1
        assert f"{file}: offset " in done.stderr
    target = tmp_path / "out.jsonl"
    assert "is not written" in run(tmp_path, "export", "-o", str(target), code=1).stderr
    assert not target.exists()
    assert not list(tmp_path.glob(".out*"))


def test_cat_does_not_take_a_damaged_index_for_the_end(tmp_path: Path) -> None:
    lively(tmp_path, "demo", segment_bytes=1 << 20)
    (index,) = files_of(tmp_path, "p0/*.index")
    damage(index, 2 * ENTRY_BYTES)
    done = run(tmp_path, "cat", "--json", code=1)
    assert done.stdout
    assert "entry 2 of the index has a wrong checksum" in done.stderr


def test_mistakes_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    for command, *options in (
        ["ls"],
        ["cat"],
        ["verify"],
        ["export"],
        ["prune", "--max-age", "1d"],
        ["erase", "--space", "demo", "--yes"],
    ):
        assert "there is no journal in" in run(empty, command, *options, code=2).stderr
        assert not empty.exists()
    lively(tmp_path, "demo", frames=2)
    for command, options, text in (
        ("cat", ["--since", "yesterday"], "is no time"),
        ("cat", ["--since", "2026-01-31T12:00:00"], "with a time zone"),
        ("prune", [], "--max-age, --max-bytes, or both"),
        ("prune", ["--max-age", "7"], "is no age"),
        ("prune", ["--max-bytes", "10 parsecs"], "is no size"),
        ("erase", ["--space", "nowhere", "--yes"], "there is nothing of space 'nowhere'"),
        ("erase", ["--space", "demo"], "give --yes"),
        ("export", ["-o", str(tmp_path)], "is a directory"),
        ("export", ["-o", str(tmp_path / "no" / "file")], "No such file or directory"),
    ):
        done = run(tmp_path, command, *options, code=2, stdin=subprocess.DEVNULL)
        assert text in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["ls", "cat", "verify", "export", "prune", "erase"])
def test_help_has_examples(command: str) -> None:
    done = subprocess.run([*COMMAND, command, "--help"], capture_output=True, text=True, timeout=TIMEOUT, check=True)
    assert f"mewstream journal {command} --data ./data" in done.stdout


# -- verify ---------------------------------------------------------------------------------------


def test_a_sound_journal(tmp_path: Path) -> None:
    lively(tmp_path, "demo", "arena", "lobby", partitions=4)
    lively(tmp_path, "demo")
    commit_consumer(tmp_path / "journal", "bronze", {0: 1})
    done = run(tmp_path, "verify")
    assert done.stdout.startswith(f"sound: {len(found(tmp_path))} records of 3 spaces")
    assert done.stderr == ""


def test_what_a_crash_leaves_is_a_note(tmp_path: Path) -> None:
    lively(tmp_path, "demo")
    active = files_of(tmp_path, "p0/*[0-9].arrow")[-1]
    with active.open("ab") as file:
        file.write(b"half a batch")
    with active.with_suffix(".index").open("ab") as file:
        file.write(b"half")
    sealed = files_of(tmp_path, "p0/*.sealed.index")[0]
    for kind in ("arrow", "index"):
        copy = sealed.with_name(sealed.name.replace(".sealed.index", f".{kind}"))
        copy.write_bytes(sealed.with_suffix(f".{kind}").read_bytes())
    done = run(tmp_path, "verify")
    assert "cut short" in done.stderr
    assert "the next start removes this one" in done.stderr
    assert all(line.startswith("note: ") for line in done.stderr.splitlines())


def test_every_problem_is_found_and_named(tmp_path: Path) -> None:
    lively(tmp_path, "demo", frames=60)
    segments = JournalReader(tmp_path / "journal").segments(0)
    assert len(segments) > 5
    damage(Path(segments[1].data_path), -40)
    Path(segments[3].data_path).unlink()
    damage(Path(segments[4].data_path).with_suffix(".index"), 3)
    damage(files_of(tmp_path, "p0/snapshot-*.json")[-1], -3)
    lines = problems(tmp_path)
    for text in (
        f"{segments[1].data_path}: offset {segments[1].name.first_offset}: the checksum of this batch is wrong",
        f"{segments[3].data_path}: offset {segments[3].name.first_offset}: is missing, its index is there",
        f"{segments[4].data_path}: offset {segments[4].name.first_offset}: entry 0 of the index has a wrong checksum",
        "snapshot",
    ):
        assert [line for line in lines if text in line], (text, lines)
    first, last = segments[1].name.first_offset, segments[1].next_offset - 1
    assert [line for line in lines if "space 'demo'" in line and f"seq {first + 1} to {last + 1} are missing" in line]


def test_a_missing_and_a_repeated_segment(tmp_path: Path) -> None:
    lively(tmp_path, "demo", frames=60)
    segments = JournalReader(tmp_path / "journal").segments(0)
    for file in (segments[2].data_path, Path(segments[2].data_path).with_suffix(".index")):
        Path(file).unlink()
    missing = problems(tmp_path)
    first, last = segments[2].name.first_offset, segments[2].next_offset - 1
    assert f"offset {first}: records {first} to {last} are missing" in missing[0]
    assert f"seq {first + 1} to {last + 1} are missing" in missing[1]

    # The same records under another name: a copy by hand.
    for kind in ("arrow", "index"):
        source = Path(segments[1].data_path).with_suffix(f".{kind}")
        source.with_name(f"{first:020d}.sealed.{kind}").write_bytes(source.read_bytes())
    assert any("its name does not fit its content" in line for line in problems(tmp_path))


def test_rows_that_are_not_what_they_must_be(tmp_path: Path) -> None:
    """Whole batches, with right checksums, that a gateway would never write."""

    def frame(seq: int, ts: int) -> Frame:
        return Frame(seq, ts, None, "stream-1", "alice", seq, 1, 1, b"x")

    with Driver(tmp_path, partitions=4) as driver:
        partition = driver.journal.partition("demo")
        number = partition_of("demo", 4)
        for seq, ts in ((1, 100), (2, 90), (4, 110), (4, 120), (5, 130)):
            driver.journal.append("demo", frame(seq, NOON + ts))
        partition.flush()
        stranger = next(name for name in map(str, range(99)) if partition_of(name, 4) != number)
        for space, epoch, seq in ((stranger, driver.journal.epoch, 1), ("demo", "other-0", 6)):
            row = encode([(space, epoch, frame(seq, NOON + 200))], partition.next_offset)
            _append_batch(tmp_path / "journal" / f"p{number}", row)
            partition.next_offset += 1
    text = "\n".join(problems(tmp_path))
    for what in (
        "offset 1: space 'demo': seq 2: time runs back by 10 microseconds",
        "offset 2: space 'demo': seq 4: seq 3 to 3 are missing",
        "offset 3: space 'demo': seq 4: seq runs back: 4 came before it",
        f"offset 5: space {stranger!r}: seq 1: does not belong into partition {number}",
        "written by run 0 of the gateway, after run 1",
        "epoch other-0, which is of another journal",
    ):
        assert what in text, (what, text)


def _append_batch(directory: Path, rows: pa.RecordBatch) -> None:
    from mewstream.journal.segments import entry_for

    (data,) = directory.glob("*.arrow")
    body = rows.serialize().to_pybytes()
    offset, ts = rows.column("offset")[0].as_py(), rows.column("ts").cast(pa.int64())[-1].as_py()
    entry = entry_for(body, data.stat().st_size, offset, rows.num_rows, ts)
    with data.open("ab") as file:
        file.write(body)
    with data.with_suffix(".index").open("ab") as file:
        file.write(entry.encode())


def test_snapshots_are_compared_with_the_log(tmp_path: Path) -> None:
    lively(tmp_path, "demo", "arena")
    with Driver(tmp_path) as driver:
        driver.states["demo"].seq -= 1
        del driver.states["arena"]
        driver.states["ghost"] = SpaceState("ghost", seq=3)
        driver.snapshot()
        end = driver.states["demo"].seq
    lines = problems(tmp_path)
    assert [line for line in lines if f"holds the space at seq {end}, the log is at {end + 1} there" in line]
    assert [line for line in lines if "space 'arena'" in line and "holds the space at seq 0" in line]
    assert [line for line in lines if "space 'ghost'" in line and "the log does not know" in line]


def test_identity_snapshots_and_consumers(tmp_path: Path) -> None:
    lively(tmp_path, "demo")
    end = JournalReader(tmp_path / "journal").next_offset(0)
    commit_consumer(tmp_path / "journal", "bronze", {0: end + 5, 9: 1})
    (snapshot,) = files_of(tmp_path, "p0/snapshot-*.json")
    snapshot.rename(snapshot.with_name(f"snapshot-{end - 1:020d}.json"))
    lines = problems(tmp_path)
    assert [line for line in lines if f"is ahead of partition 0, which ends at {end}" in line]
    assert [line for line in lines if "reads partition 9, which is not there" in line]
    assert [line for line in lines if "its name does not fit its content" in line]
    (tmp_path / "journal" / "journal.json").write_text("{}")
    assert [line for line in problems(tmp_path) if "journal.json" in line]
    for file in files_of(tmp_path, "p0/*"):
        file.unlink()
    assert [line for line in problems(tmp_path) if "every segment is missing" in line]


def test_progress_is_told(tmp_path: Path) -> None:
    lively(tmp_path, "demo")
    steps: list[int] = []
    verification = Verification(tmp_path / "journal", advance=steps.append)
    assert list(verification.run()) == []
    assert 0 < sum(steps) <= verification.total_bytes


# -- export ---------------------------------------------------------------------------------------


def test_json_lines_are_those_of_cat(tmp_path: Path) -> None:
    lively(tmp_path, "demo", "arena")
    target = tmp_path / "out.jsonl"
    run(tmp_path, "export", "-o", str(target), "--space", "demo")
    assert target.read_text() == run(tmp_path, "cat", "--json", "--space", "demo").stdout
    assert run(tmp_path, "export", "--format", "jsonl", "-o", "-").stdout == run(tmp_path, "cat", "--json").stdout
    assert target.stat().st_mode & 0o077 == 0


def test_the_history_of_the_reference(tmp_path: Path) -> None:
    with Driver(tmp_path) as driver:
        driver.start("demo", "alice")
        driver.say("demo", "alice", "chat", {"text": "hello"}, id="one")
        driver.say("demo", "alice", "stream/close", {"stream_id": "stream-9"}, id="two")
        driver.say("demo", "alice", "stream/request", {"direction": "upload"}, id="three")
        driver.frame("demo", "alice", b"not in it")
    target = tmp_path / "history.jsonl"
    run(tmp_path, "export", "--format", "envelope-history", "-o", str(target))
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    keys = ["timestamp", "event", "id", "envelope", "participant", "space_id", "direction", "transport", "metadata"]
    assert [list(line) for line in lines] == [keys] * 3
    assert [(line["event"], line["id"]) for line in lines] == [
        ("received", "one"),
        ("rejected", "two"),
        ("received", "three"),
    ]
    assert lines[0]["envelope"]["payload"] == {"text": "hello"}
    assert lines[0]["transport"] == "websocket"
    assert lines[0]["direction"] == "inbound"
    assert lines[1]["envelope"] is None
    assert lines[1]["metadata"]["error"] == "stream_not_found"
    only = run(tmp_path, "export", "--format", "envelope-history", "--kind", "chat").stdout
    assert [json.loads(line)["transport"] for line in only.splitlines()] == ["websocket"]


def test_parquet_to_a_file_and_to_a_pipe(tmp_path: Path) -> None:
    lively(tmp_path, "demo", "arena", partitions=4)
    target = tmp_path / "out.parquet"
    run(tmp_path, "export", "--format", "parquet", "-o", str(target))
    table = pq.read_table(target)
    assert table.schema.names == SCHEMA.names
    reader = JournalReader(tmp_path / "journal")
    assert table.equals(
        pa.Table.from_batches([batch.rows for number in range(4) for batch in reader.batches(number)], SCHEMA)
    )
    piped = subprocess.run(
        [*COMMAND, "export", "--data", str(tmp_path), "--format", "parquet"],
        capture_output=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert piped.stdout == target.read_bytes()
    run(tmp_path, "export", "--format", "parquet", "-o", str(target), "--space", "nowhere")
    assert pq.read_table(target).num_rows == 0


def test_parquet_comes_in_row_groups(tmp_path: Path) -> None:
    with Driver(tmp_path, partitions=1) as driver:
        for batch in range(7):
            for seq in range(1, 10_001):
                frame = Frame(batch * 10_000 + seq, NOON, None, "stream-1", "alice", seq, 1, 1, b"x")
                driver.journal.append("demo", frame)
            driver.flush()
    target = tmp_path / "out.parquet"
    run(tmp_path, "export", "--format", "parquet", "-o", str(target))
    file = pq.ParquetFile(target)
    assert file.metadata.num_rows == 70_000
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    assert 2 <= len(sizes) <= 3
    assert max(sizes) <= ROW_GROUP_ROWS


# -- prune ----------------------------------------------------------------------------------------


def test_prune_removes_old_segments_and_says_which(tmp_path: Path) -> None:
    lively(tmp_path, "demo", frames=60)
    before = files_of(tmp_path, "p0/*")
    would = run(tmp_path, "prune", "--max-age", "1s", "--dry-run").stdout.splitlines()
    assert files_of(tmp_path, "p0/*") == before
    assert would[-1].endswith("would be removed")
    done = run(tmp_path, "prune", "--max-age", "1s").stdout.splitlines()
    assert done[:-1] == would[:-1]
    assert len(done) > 3
    (segment,) = JournalReader(tmp_path / "journal").segments(0)
    assert problems(tmp_path, code=0) == []
    assert seqs(found(tmp_path, "--space", "demo"))[0] == segment.name.first_offset + 1
    with Driver(tmp_path) as driver:
        assert driver.states["demo"].streams["stream-1"].frames == 60


def test_prune_by_size_leaves_the_newest(tmp_path: Path) -> None:
    lively(tmp_path, "demo", frames=60)
    last = seqs(found(tmp_path))[-1]
    total = sum(file.stat().st_size for file in files_of(tmp_path, "p0/*.arrow"))
    run(tmp_path, "prune", "--max-bytes", str(total // 2))
    assert sum(file.stat().st_size for file in files_of(tmp_path, "p0/*.arrow")) <= total // 2
    assert seqs(found(tmp_path))[-1] == last
    assert "0 segments, 0 bytes removed" in run(tmp_path, "prune", "--max-bytes", "10GB").stdout


def test_prune_trusts_sound_snapshots_only_and_waits_for_consumers(tmp_path: Path) -> None:
    lively(tmp_path, "demo", frames=60)
    commit_consumer(tmp_path / "journal", "bronze", {0: 3})
    assert "0 segments" in run(tmp_path, "prune", "--max-age", "1s").stdout
    commit_consumer(tmp_path / "journal", "bronze", {0: 1000})
    (snapshot,) = files_of(tmp_path, "p0/snapshot-*.json")
    damage(snapshot, -3)
    assert "0 segments" in run(tmp_path, "prune", "--max-age", "1s").stdout


def test_a_damaged_index_is_refused_and_nothing_is_cut(tmp_path: Path) -> None:
    lively(tmp_path, "demo", segment_bytes=1 << 20)
    (index,) = files_of(tmp_path, "p0/*.index")
    damage(index, 2 * ENTRY_BYTES)
    before = {file: file.read_bytes() for file in files_of(tmp_path, "p0/*")}
    for command in (["prune", "--max-age", "1s"], ["erase", "--space", "demo", "--yes"]):
        done = run(tmp_path, *command, code=2)
        assert "entry 2 of the index has a wrong checksum" in done.stderr
    assert {file: file.read_bytes() for file in files_of(tmp_path, "p0/*")} == before


# -- erase ----------------------------------------------------------------------------------------


def test_nothing_of_an_erased_space_stays(tmp_path: Path) -> None:
    lively(tmp_path, "demo", "arena", frames=40)
    invited = InvitedTokens(tmp_path / "invited.json")
    invited.put("demo", "guest", "token-1")
    invited.put("arena", "guest", "token-2")
    before = found(tmp_path)
    with Driver(tmp_path) as driver:
        arena = driver.states["arena"]
    assert f"{SECRET} demo".encode() in contents(tmp_path)

    done = run(tmp_path, "erase", "--space", "demo", "--yes")
    assert "erased space 'demo'" in done.stdout
    assert f"{SECRET} demo".encode() not in contents(tmp_path)
    after = found(tmp_path)
    for was, now in zip(before, after, strict=True):
        if was["space"] == "arena":
            assert now == was
        else:
            kept = {key: was[key] for key in ("seq", "epoch", "ts", "offset", "partition")}
            assert now == {**kept, "space": now["space"], "record": "erased", "outcome": "erased"}
    [mark] = {each["space"] for each in after} - {"arena"}
    assert mark.startswith("erased-") and not list(JournalReader(tmp_path / "journal").read("demo"))
    assert problems(tmp_path, code=0) == []
    assert InvitedTokens(tmp_path / "invited.json").for_space("demo") == {}
    assert InvitedTokens(tmp_path / "invited.json").for_space("arena")
    entries = list(JournalReader(tmp_path / "journal").read(mark))
    assert all(isinstance(entry.record, UnknownRecord) and entry.record.name == "erased" for entry in entries)

    # It begins anew, as if it had never been.
    with Driver(tmp_path) as driver:
        assert driver.states["arena"] == arena
        assert "demo" not in driver.states
        driver.start("demo", "carol")
        assert driver.states["demo"].seq == 2
    assert problems(tmp_path, code=0) == []
    listed = {line.split()[0]: line.split()[2:4] for line in run(tmp_path, "ls").stdout.splitlines() if line.split()}
    assert listed["demo"] == ["2", "0"] and listed[mark] == [str(len(entries))] * 2

    # Again, with the new part, which has a mark of its own; and without snapshots the log says the same.
    run(tmp_path, "erase", "--space", "demo", "--yes")
    marks = {each["space"] for each in found(tmp_path)} - {"arena"}
    assert len(marks) == 2 and mark in marks
    for file in files_of(tmp_path, "p0/snapshot-*.json"):
        file.unlink()
    with Driver(tmp_path) as driver:
        assert driver.states.keys() == {"arena", *marks}
        assert driver.states["arena"] == arena


def test_a_space_that_was_pruned_leaves_the_snapshots(tmp_path: Path) -> None:
    with Driver(tmp_path, partitions=1, segment_bytes=1) as driver:
        driver.start("demo", SECRET)
        driver.flush()
        driver.start("arena", "alice")
        driver.flush()
        driver.seal()
        driver.snapshot()
    run(tmp_path, "prune", "--max-age", "1s")
    assert found(tmp_path, "--space", "demo") == []
    assert SECRET.encode() in contents(tmp_path)
    run(tmp_path, "erase", "--space", "demo", "--yes")
    assert SECRET.encode() not in contents(tmp_path)
    with Driver(tmp_path) as driver:
        assert "demo" not in driver.states
    assert problems(tmp_path, code=0) == []


def test_erase_asks_first(tmp_path: Path) -> None:
    lively(tmp_path, "demo")
    before = found(tmp_path)
    done = run(tmp_path, "erase", "--space", "demo", code=1, input="n\n")
    assert "Erase space 'demo'" in done.stderr
    assert found(tmp_path) == before
    run(tmp_path, "erase", "--space", "demo", input="y\n")
    assert {each["record"] for each in found(tmp_path)} == {"erased"}


class _Crash(BaseException):
    pass


class _CrashingFiles(Files):
    """The process dies before the ``at``-th change."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Crash

    def truncate(self, handle: int, size: int) -> None:
        self._step()
        super().truncate(handle, size)

    def write_at(self, handle: int, data: bytes, position: int) -> None:
        self._step()
        super().write_at(handle, data, position)

    def replace(self, path: Path, data: bytes) -> None:
        self._step()
        super().replace(path, data)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)


def test_an_interrupted_erasure_is_said_and_completed_by_repeating_it(tmp_path: Path) -> None:
    crashes = 0
    for at in range(1000):
        data = tmp_path / str(at)
        lively(data, "demo", "arena", frames=6, segment_bytes=3000)
        with Driver(data) as driver:
            arena = driver.states["arena"]
            try:
                erase(driver.journal, "demo", driver.states, files=_CrashingFiles(at))
            except _Crash:
                crashes += 1
            else:
                break
        wrong = [problem for problem in Verification(data / "journal").run() if not problem.is_note]
        assert "arena" not in {problem.space for problem in wrong}
        if (data / "journal" / ERASING_FILE).exists():
            # Nobody goes on with what is half erased.
            assert "an erase was interrupted" in wrong[0].what
            with pytest.raises(JournalError, match="--space demo"):
                refuse_half_erased(data / "journal")
            with Driver(data) as driver, pytest.raises(JournalError, match="erasing space 'demo' from"):
                erase(driver.journal, "arena", driver.states)
        else:
            assert wrong == []
        with Driver(data) as driver:
            assert driver.states["arena"] == arena
            erase(driver.journal, "demo", driver.states)
        assert f"{SECRET} demo".encode() not in contents(data) and b'"demo"' not in contents(data)
        assert len({each["space"] for each in found(data)}) == 2  # one mark for all of it
        assert [problem for problem in Verification(data / "journal").run() if not problem.is_note] == []
    assert crashes > 20


def test_tombstones_keep_no_bytes_of_what_was_there() -> None:
    frame = Frame(1, NOON, None, "stream-1", "alice", 1, 1, 2, SECRET.encode())
    rows = with_tombstones(encode([("demo", "e-1", frame), ("other", "e-1", frame)], 7), "demo", "erased-1")
    assert rows.column("space").to_pylist() == ["erased-1", "other"] and b"demo" not in rows.serialize().to_pybytes()
    assert rows.serialize().to_pybytes().count(SECRET.encode()) == 1
    assert rows.slice(0, 1).to_pylist()[0]["data"] is None
    assert rows.slice(1, 1).to_pylist()[0]["data"] == SECRET.encode()


# -- beside a gateway -----------------------------------------------------------------------------


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    config = space_config("alice", "bob")
    process = GatewayProcess(tmp_path, config, options=("--data", str(tmp_path / "data"))).start()
    try:
        yield process
    finally:
        process.stop()


class Follower:
    """``cat --follow``, whose lines come by a queue."""

    def __init__(self, data: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "cat", "--data", str(data), "--json", "--follow", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
        )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def until(self, **values: Any) -> list[dict[str, Any]]:
        """Everything up to the first record with these values."""
        got = []
        while True:
            got.append(self._lines.get(timeout=TIMEOUT))
            if all(got[-1].get(key) == value for key, value in values.items()):
                return got

    def end(self, code: int) -> None:
        assert self.process.wait(TIMEOUT) == code
        self._thread.join()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        assert self.process.stderr.read() == b""
        self.process.stdout.close()
        self.process.stderr.close()


async def test_following_the_live_tail(gateway: GatewayProcess, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with joined(gateway, "alice") as [alice]:
        follower = Follower(data, "--space", "demo")
        stream = await alice.open_stream()
        got = follower.until(record="stream-opened")
        for number in range(3):
            await alice.frame(stream, f"frame {number}")
            got += follower.until(data=f"frame {number}")
        assert seqs(got) == list(range(1, len(got) + 1))
        follower.process.send_signal(signal.SIGINT)
        follower.end(130)

        limited = Follower(data, "--record", "frame", "--limit", "4")
        await alice.frame(stream, "frame 3")
        assert [each["data"] for each in limited.until(data="frame 3")] == [f"frame {number}" for number in range(4)]
        limited.end(0)

        last = got[-1]["seq"] + 1
        bounded = Follower(data, "--space", "demo", "--to-seq", str(last))
        assert seqs(bounded.until(seq=last)) == list(range(1, last + 1))
        bounded.end(0)


async def test_beside_a_running_gateway(gateway: GatewayProcess, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with joined(gateway, "alice") as [alice]:
        stream = await alice.open_stream()
        await alice.frame(stream, "hello")
        await alice.settle()
        assert run(data, "verify").stdout.startswith("sound")
        assert "demo" in run(data, "ls").stdout
        assert "0 segments" in run(data, "prune", "--max-age", "1s", "--dry-run").stdout
        for command in (["prune", "--max-age", "1s"], ["erase", "--space", "demo", "--yes"]):
            done = run(data, *command, code=2)
            (line,) = done.stderr.splitlines()
            assert f"is in use by a running gateway (process {gateway.pid}): stop it" in line
        await alice.frame(stream, "still here")
        assert await alice.receive_frame(stream) in ("hello", "still here")


async def test_a_gateway_goes_on_after_an_erasure(gateway: GatewayProcess, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with joined(gateway, "alice") as [alice]:
        await alice.open_stream()
        await alice.send("chat", {"text": SECRET})
        await alice.settle()
    gateway.stop()
    run(data, "erase", "--space", "demo", "--yes")
    assert SECRET.encode() not in contents(data)
    gateway.start()
    async with joined(gateway, "bob") as [bob]:
        assert bob.welcome["payload"]["active_streams"] == []
        await bob.send("chat", {"text": "anew"})
        await bob.settle()
        records = found(data, "--space", "demo")
        assert seqs(records) == list(range(1, len(records) + 1))
        assert "erased" not in {each["record"] for each in records}
    assert problems(data, code=0) == []
