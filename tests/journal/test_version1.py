"""Journals that the code before version 2 wrote: read as they were, gone on with. ``version1/make.py`` made them."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import msgspec
import oracle
import pyarrow as pa
import pytest
from click.testing import CliRunner
from making import POSITIONS, Crash, CrashingFiles, JournaledGateway, journaled, positioned_frame

from mewstream.cli.journal import journal as journal_command
from mewstream.journal.identity import FEATURES
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.journal.reader_sets import SetsInForce
from mewstream.journal.retention import PrunePlan
from mewstream.journal.verify import Verification
from mewstream.protocol.fold import apply
from mewstream.protocol.records import AnyRecord, Frame, Joined, Record
from mewstream.protocol.render import visible_to
from mewstream.protocol.state import SpaceState, Stream
from support import space_config

MADE = Path(__file__).parent / "version1"
PEOPLE = ("ann", "bob", "cy", "dee")
NAMES = ("whole", "pruned")


def as_it_was(name: str) -> dict[str, list[Record]]:
    """What the old code read, by space."""
    found: dict[str, list[Record]] = {}
    for line in (MADE / f"{name}.jsonl").read_bytes().splitlines():
        space, record = msgspec.json.decode(line, type=tuple[str, AnyRecord])
        found.setdefault(space, []).append(record)
    return found


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(MADE / name, tmp_path / "data"))


def problems(data: Path) -> list[str]:
    """Without those that a play has, whose runs are not of a gateway."""
    found = [str(each) for each in Verification(data / "journal").run() if not each.is_note]
    return [each for each in found if "of another journal" not in each]


def everything(data: Path) -> dict[str, list[Record]]:
    reader = JournalReader(data / "journal")
    found: dict[str, list[Record]] = {}
    for number in range(reader.identity().partitions):
        for entry in reader.entries(number, reader.identity().pruned.get(number, 0)):
            found.setdefault(entry.space, []).append(entry.record)
    return found


def test_it_is_of_version_1(data: Path) -> None:
    identity = json.loads((data / "journal/journal.json").read_bytes())
    assert identity["schema_version"] == 1
    assert "features" not in identity
    for file in (data / "journal").glob("p*/*.arrow"):
        with pa.OSFile(str(file)) as source:
            schema = pa.ipc.open_stream(source).schema
        assert schema.metadata[b"mewstream.schema_version"] == b"1"
        assert "readers_seq" not in schema.names


def test_it_is_read_as_it_was(data: Path, name: str) -> None:
    expected = as_it_was(name)
    assert everything(data) == expected
    reader = JournalReader(data / "journal")
    for space, records in expected.items():
        assert [entry.record for entry in reader.read(space)] == records
        for place in (0, 5, len(records) - 2, len(records) - 1):
            after = records[place].seq
            assert [entry.record for entry in reader.read(space, after)] == records[place + 1 :]
            assert reader.seq_before(space, records[place].ts + 1) == max(
                each.seq for each in records if each.ts <= records[place].ts
            )
    sets = [each.readers for each in expected["demo"] if isinstance(each, Frame) and each.readers is not None]
    assert len(set(sets)) == (3 if name == "whole" else 1)
    assert problems(data) == []


def test_it_is_gone_on_with(data: Path, name: str) -> None:
    """Old rows stay what they were, new ones refer to sets, and every way of reading sees both."""
    expected = as_it_was(name)
    journal = LocalJournal(data)
    identity = json.loads((data / "journal/journal.json").read_bytes())
    assert identity["schema_version"] == 2
    assert identity["features"] == sorted(FEATURES)
    states = journal.recover()
    epoch = journal.epoch

    def add(space: str, count: int) -> None:
        """Frames of the private stream, with the set that the state has for it."""
        state = states[space]
        stream = state.find_stream("private")
        assert stream is not None
        for _ in range(count):
            frame = Frame(
                *(state.seq + 1, state.ts, None, stream.id, stream.owner, stream.frames + 1, 2, 1, b"new"),
                readers=stream.readers,
                readers_seq=stream.readers_seq,
            )
            journal.append(space, frame)
            apply(state, frame)
            expected[space].append(frame)

    for space in list(states):
        add(space, 40)
    for partition, segment in journal.segments_to_seal():
        partition.seal(segment)
    for space in list(states):
        add(space, 3)
    journal.close()

    assert everything(data) == expected
    reader = JournalReader(data / "journal")
    for space, records in expected.items():
        assert [entry.record for entry in reader.read(space)] == records
    new = [each for each in expected["demo"] if isinstance(each, Frame) and each.data == b"new"]
    # In the pruned one nobody knows any more which record made the set.
    assert {each.readers_seq is None for each in new} == {name == "pruned"}
    assert all(each.readers == ("ann", "cy") for each in new)
    assert problems(data) == []
    again = LocalJournal(data)
    assert again.recover() == states
    again.close()
    assert again.epoch != epoch


@pytest.mark.parametrize("name", NAMES[:1])
def test_a_start_that_was_interrupted_at_any_moment_of_the_upgrade(data: Path, name: str, tmp_path: Path) -> None:
    expected = as_it_was(name)
    for at in range(1, 1000):
        copy = Path(shutil.copytree(data, tmp_path / f"crash-{at}"))
        try:
            LocalJournal(copy, files=CrashingFiles(at)).close()
            crashed = False
        except Crash:
            crashed = True
        assert everything(copy) == expected
        LocalJournal(copy).close()
        assert everything(copy) == expected
        assert problems(copy) == []
        if not crashed:
            return
    pytest.fail("it never came to its end")


def test_the_commands_read_it(data: Path, name: str) -> None:
    runner = CliRunner()
    arguments = ["--data", str(data), "--space", "demo", "--record", "frame", "--stream", "stream-1", "--json"]
    shown = runner.invoke(journal_command, ["cat", *arguments])
    assert shown.exit_code == 0, shown.output
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    private = [each for each in as_it_was(name)["demo"] if isinstance(each, Frame) and each.stream_id == "stream-1"]
    assert [tuple(line["detail"]["readers"]) for line in lines] == [each.readers for each in private]
    listed = runner.invoke(journal_command, ["ls", "--data", str(data)])
    assert listed.exit_code == 0, listed.output


def served(data: Path, directory: Path) -> Any:
    return journaled(directory, space_config(*PEOPLE), data=data)


async def test_a_gateway_serves_it(data: Path, name: str, tmp_path: Path) -> None:
    """Whoever comes back gets what it could read at each place of the old log, and goes on in the new one."""
    records = as_it_was(name)["demo"]
    position = {"epoch": "play-1", "seq": records[0].seq}
    async with served(data, tmp_path) as gateway:
        assert isinstance(gateway, JournaledGateway)
        for who in ("ann", "bob", "cy"):
            client = await gateway.join(who, **POSITIONS, resume=position)
            welcome = client.welcome["payload"]
            assert welcome["resume"]["recovered"], welcome["resume"]
            await client.settle()
            joined = [each.seq for each in records if isinstance(each, Joined) and each.participant == who]
            first = max(records[0].seq, *joined[:1], 0)
            expected = {
                each.seq: each.data
                for each in records
                if isinstance(each, Frame) and each.kind == "frame" and each.seq > first and visible_to(each, who)
            }
            got = filter(None, map(positioned_frame, client.got))
            assert {frame.seq: frame.data for frame in got} == expected, who
            assert expected
        ann = await gateway.join("ann", **POSITIONS)
        await ann.frame("stream-1", "for those who may")
        await ann.settle()
        await gateway.end("term")
    rows = oracle.space_rows(data, from_start=name == "whole")
    [new] = [row for row in rows if row["data"] == b"for those who may"]
    if name == "whole":
        assert new["readers_seq"] is not None
        assert "readers" not in new["detail"]
    else:
        assert new["readers_seq"] is None
        assert new["detail"]["readers"] == ["ann", "cy"]
    assert problems(data) == []


class TestSnapshot:
    """An orderly end of the old code leaves a snapshot whose reader sets name no record. The log still knows it: else
    each frame would repeat its set for as long as that is not changed."""

    @pytest.fixture(params=NAMES[:1])
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def stopped(self, data: Path) -> Path:
        """With snapshots at its end, as version 1 wrote them."""
        journal = LocalJournal(data)
        states = journal.recover()
        self.made_by = {space: self.private(state).readers_seq for space, state in states.items()}
        assert len(self.made_by) == 2
        assert None not in self.made_by.values()
        for number in range(len(journal.partitions)):
            file, content = journal.encode_snapshot(number, states)
            journal.write_snapshot(file, self.as_version_1_wrote_it(content))
        journal.close()
        return data

    def as_version_1_wrote_it(self, content: bytes) -> bytes:
        body = json.loads(content.partition(b"\n")[2])
        body.pop("names_sets", None)
        for state in body["states"]:
            for stream in state["streams"].values():
                del stream["readers_seq"]
        old = json.dumps(body).encode()
        return b"%08x\n%b" % (zlib.crc32(old), old)

    def private(self, state: SpaceState) -> Stream:
        stream = state.find_stream("private")
        assert stream is not None
        assert stream.readers == ("ann", "cy")
        return stream

    def found(self, data: Path) -> dict[str, int | None]:
        journal = LocalJournal(data)
        states = journal.recover()
        journal.close()
        return {space: self.private(state).readers_seq for space, state in states.items()}

    def test_its_sets_are_found_in_the_log(self, stopped: Path) -> None:
        assert self.found(stopped) == self.made_by

    def test_and_in_what_pruning_left_of_it(self, stopped: Path) -> None:
        journal = LocalJournal(stopped)
        for number, partition in enumerate(journal.partitions):
            if gone := journal.reader.segments(number)[:-1]:
                journal.prune(PrunePlan(segments=gone, begins_at={number: gone[-1].next_offset}))
                assert journal.identity.pruned[number] == partition.next_offset
        assert journal.identity.pruned
        journal.close()
        assert self.found(stopped) == self.made_by

    def test_a_damaged_log_before_it_keeps_nobody_from_starting(
        self, stopped: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = stopped / "journal/p0/00000000000000000036.arrow"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        assert None in self.found(stopped).values()
        assert "repeat it until it is changed" in caplog.text

    def test_it_is_looked_for_once(self, stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also where it is not found: to read the whole log takes long."""
        looked_through: list[int] = []
        advance = LocalJournal._advance_sets

        def counted(journal: LocalJournal, sets: SetsInForce, number: int, offset: int) -> None:
            looked_through.append(number)
            advance(journal, sets, number, offset)

        monkeypatch.setattr(LocalJournal, "_advance_sets", counted)
        journal = LocalJournal(stopped)
        states = journal.recover()
        assert looked_through
        looked_through.clear()
        self.private(states["demo"]).readers_seq = None
        for number in range(len(journal.partitions)):
            journal.write_snapshot(*journal.encode_snapshot(number, states))
        journal.close()
        assert self.found(stopped) == {**self.made_by, "demo": None}
        assert not looked_through

    async def test_frames_of_a_gateway_refer_to_them(self, stopped: Path, tmp_path: Path) -> None:
        async with served(stopped, tmp_path) as gateway:
            ann = await gateway.join("ann", **POSITIONS)
            for _ in range(50):
                await ann.frame("stream-1", "for those who may")
            await ann.settle()
            await gateway.end("term")
        new = [row for row in oracle.space_rows(stopped) if row["data"] == b"for those who may"]
        assert len(new) == 50
        assert {row["readers_seq"] for row in new} == {self.made_by["demo"]}
        assert all("readers" not in (row["detail"] or {}) for row in new)
        assert problems(stopped) == []
