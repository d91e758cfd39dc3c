"""A reader set is written once, by the record that made it, and a frame names that record: whoever reads the journal
knows at every frame whom it was for, also when the record that made the set is gone."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import oracle
import pytest
from click.testing import CliRunner
from making import (
    PEOPLE,
    POSITIONS,
    SPACE,
    Crash,
    CrashingFiles,
    JournaledGateway,
    QuickFiles,
    Script,
    copy,
    journaled,
    lively,
    open_journal,
    position,
    positioned_frame,
    write,
)

from mewstream.cli.journal import journal as journal_command
from mewstream.journal import reader_sets
from mewstream.journal.erase import erase
from mewstream.journal.errors import CorruptJournal
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.journal.reader_sets import SetsInForce
from mewstream.journal.retention import PrunePlan, Retention, plan_pruning
from mewstream.journal.verify import Verification
from mewstream.protocol.fold import fold
from mewstream.protocol.records import Frame, Record
from mewstream.protocol.render import visible_to
from mewstream.protocol.snapshot import dump, load
from support import Client, space_config

QUICK = QuickFiles()


def prune_before(journal: LocalJournal, offset: int) -> int:
    """Forget whole segments below an offset. Where the journal begins now."""
    gone = [each for each in journal.reader.segments(0)[:-1] if each.next_offset <= offset]
    if gone:
        journal.prune(PrunePlan(segments=gone, begins_at={0: gone[-1].next_offset}))
    return journal.identity.pruned.get(0, 0)


def problems(data: Path) -> list[str]:
    found = [str(each) for each in Verification(data / "journal").run() if not each.is_note]
    return [each for each in found if "of another journal" not in each and "no sound snapshot" not in each]


def busy(seed: int, *, space: str = SPACE, steps: int = 120) -> Script:
    """A space in which readers come and go all the time."""
    script = Script(space, seed=seed, pauses=False).begin()
    chance = script.random
    script.send("ann", "stream/request", target=["ann", "bob"])
    script.send("bob", "stream/request", target=["bob"])
    for _ in range(steps):
        stream = chance.choice([*script.state.streams, "stream-1"])
        known = script.state.streams.get(stream)
        owner = known.owner if known is not None else "ann"
        match chance.randrange(8):
            case 0:
                script.send(owner, "stream/grant-read", stream_id=stream, participant_id=chance.choice(PEOPLE))
            case 1:
                script.send(owner, "stream/revoke-read", stream_id=stream, participant_id=chance.choice(PEOPLE))
            case 2 if len(script.state.streams) > 3:
                script.send(owner, "stream/close", stream_id=stream)
            case 2 | 3 if len(script.state.streams) < 8:
                script.send(chance.choice(PEOPLE), "stream/request", target=sorted({owner, chance.choice(PEOPLE)}))
            case 4:
                script.send(owner, "stream/transfer-ownership", stream_id=stream, new_owner=chance.choice(PEOPLE))
            case _:
                for number in range(chance.randrange(1, 50)):
                    script.frame(owner, stream, b"%d" % number)
    return script


def frames_with_sets(records: list[Record]) -> list[Frame]:
    return [each for each in records if isinstance(each, Frame) and each.readers is not None]


# -- what is written ------------------------------------------------------------------------------


def test_a_frame_names_the_record_that_made_its_set() -> None:
    for seed in range(5):
        made = busy(seed).records
        frames = frames_with_sets(made)
        assert len({each.readers for each in frames}) > 3
        by_seq = {each.seq: each for each in made}
        for frame in frames:
            assert frame.readers_seq is not None
            maker: Any = by_seq[frame.readers_seq]
            assert maker.stream_id == frame.stream_id
            assert tuple(maker.authorized_readers) == frame.readers
        assert all(each.readers_seq is None for each in made if isinstance(each, Frame) and each.readers is None)


def test_no_row_repeats_a_set(memory: Path) -> None:
    journal = open_journal(memory, files=QUICK)
    write(journal, [(SPACE, each) for each in busy(1).records])
    journal.close()
    for row in oracle.rows(memory):
        if row["record"] == "frame":
            assert "readers" not in row["detail"]
        else:
            assert row["readers_seq"] is None


def test_a_set_survives_a_snapshot() -> None:
    script = busy(2)
    state = load(dump(script.state))
    assert state == script.state
    assert any(stream.readers_seq for stream in state.streams.values())


@pytest.mark.parametrize("readers_seq", [None, 7])
def test_a_set_that_nobody_has_looked_up_is_shown_to_nobody(readers_seq: int | None) -> None:
    frame = Frame(9, 9, None, "s", "ann", 1, 2, 1, b"x", readers_seq=readers_seq)
    assert visible_to(frame, "ann") is (readers_seq is None)


# -- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sealed", [False, True])
def test_sets_are_found_from_any_place(memory: Path, seed: int, sealed: bool) -> None:
    script = busy(seed)
    journal = open_journal(memory, segment_bytes=9000, files=QUICK)
    write(journal, [(SPACE, each) for each in script.records], per_batch=6)
    for partition, name in journal.segments_to_seal() if sealed else ():
        partition.seal(name)
    chance = random.Random(seed)
    for _ in range(12):
        after = chance.randrange(len(script.records))
        # Each time anew: nothing is known from reading what was before.
        found = [entry.record for entry in JournalReader(memory / "journal").read(SPACE, after)]
        assert found == script.records[after:]
    journal.close()
    assert problems(memory) == []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [1, 7])
def test_sets_outlive_the_records_that_made_them(memory: Path, seed: int, steps: int) -> None:
    """However far it is pruned, and however many times on the way there."""
    script, other = busy(seed), busy(seed + 100, space="other", steps=30)
    journal = open_journal(memory, segment_bytes=9000, files=QUICK)
    mixed = random.Random(seed)
    queues = {SPACE: list(script.records), "other": list(other.records)}
    while any(queues.values()):
        space = mixed.choice([name for name, queue in queues.items() if queue])
        for record in queues[space][:5]:
            journal.append(space, record)
        del queues[space][:5]
        journal.partitions[0].flush()
    for partition, name in journal.segments_to_seal()[::2]:
        partition.seal(name)
    journal.write_snapshot(*journal.encode_snapshot(0, {SPACE: script.state, "other": other.state}))
    end = journal.partitions[0].next_offset
    carried = 0
    for step in range(1, steps + 1):
        begins_at = prune_before(journal, end * step // steps)
        reader = JournalReader(memory / "journal")
        for each in (script, other):
            found = [entry.record for entry in reader.read(each.state.id)]
            assert found == each.records[len(each.records) - len(found) :]
            gone = {record.seq for record in each.records[: len(each.records) - len(found)]}
            carried += sum(frame.readers_seq in gone for frame in frames_with_sets(found))
        left = [entry.record for entry in reader.entries(0, begins_at)]
        assert len(left) == end - begins_at
        assert problems(memory) == []
        files = list((memory / "journal/p0").glob("readers-*.json"))
        assert len(files) == 1, "the one of the last pruning"
    journal.close()
    if steps > 1:
        assert carried, "no frame refers to what is gone"
    reopened = open_journal(memory, files=QUICK)
    assert reopened.recover() == {SPACE: script.state, "other": other.state}
    reopened.close()


def pruned_with_a_set(data: Path) -> tuple[LocalJournal, Script]:
    """A stream whose set was made by a record that is gone, and frames for it that are there."""
    script = Script(seed=0, pauses=False).begin()
    script.send("ann", "stream/request", target=["ann", "bob"])
    for number in range(40):
        script.frame("ann", "stream-3", b"%d" % number)
    journal = open_journal(data, segment_bytes=6000, files=QUICK)
    write(journal, [(SPACE, each) for each in script.records], per_batch=3)
    assert prune_before(journal, journal.partitions[0].next_offset) > 12
    return journal, script


def test_where_nobody_knows_the_set_nothing_is_shown(memory: Path) -> None:
    journal, _ = pruned_with_a_set(memory)
    journal.close()
    [file] = (memory / "journal/p0").glob("readers-*.json")
    content = file.read_bytes()
    for damaged in (None, content[:-5], content.replace(b'"bob"', b'"eve"')):
        if damaged is None:
            file.unlink()
        else:
            file.write_bytes(damaged)
        with pytest.raises(CorruptJournal, match=r"the readers that seq \d+ of 'demo' set for stream-3"):
            list(JournalReader(memory / "journal").read(SPACE))
        assert problems(memory), "and it is found"
        # A start needs no readers of the past.
        journal = open_journal(memory, files=QUICK)
        assert list(journal.reader.entries(0, journal.identity.pruned[0], with_readers=False))
        journal.close()
        file.write_bytes(content)
    assert problems(memory) == []
    assert list(JournalReader(memory / "journal").read(SPACE))


def test_a_crash_while_it_is_pruned(memory: Path) -> None:
    journal, script = pruned_with_a_set(memory / "made")
    for number in range(40):
        script.frame("ann", "stream-3", b"more %d" % number)
    write(journal, [(SPACE, each) for each in script.records[-40:]], per_batch=3)
    journal.close()
    expected = JournalReader(memory / "made/journal")
    whole = [entry.record for entry in expected.read(SPACE)]
    for at in range(1, 100):
        data = copy(memory / "made", memory / f"crash-{at}")
        crashing = CrashingFiles(10_000)
        journal = LocalJournal(data, files=crashing)
        crashing._crash_at = crashing.count + at
        crashed = False
        try:
            prune_before(journal, journal.partitions[0].next_offset)
            journal.close()
        except Crash:
            crashed = True
        found = [entry.record for entry in JournalReader(data / "journal").read(SPACE)]
        assert found == whole[len(whole) - len(found) :]
        if not crashed:
            assert len(found) < len(whole)
            return
    pytest.fail("it never came to its end")


def test_what_is_remembered_is_bounded(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_sets, "MAX_CACHED_NAMES", 8)
    script = busy(3)
    journal = open_journal(memory, files=QUICK)
    write(journal, [(SPACE, each) for each in script.records])
    journal.close()
    reader = JournalReader(memory / "journal")
    assert [entry.record for entry in reader.read(SPACE)] == script.records
    assert reader.sets._names <= 8 + len(PEOPLE) + 1


def test_an_erased_space_leaves_no_names_behind(memory: Path) -> None:
    journal, script = pruned_with_a_set(memory)
    [file] = (memory / "journal/p0").glob("readers-*.json")
    assert b'"bob"' in file.read_bytes()
    journal.write_snapshot(*journal.encode_snapshot(0, {SPACE: script.state}))
    erase(journal, SPACE, {SPACE: script.state}, files=QUICK)
    journal.close()
    for each in memory.rglob("*"):
        if each.is_file() and not each.name.startswith("snapshot-"):
            assert b'"bob"' not in each.read_bytes(), each
    assert problems(memory) == []


# -- is it sound? ---------------------------------------------------------------------------------


def test_verify_compares_references_with_the_log(memory: Path) -> None:
    script = busy(4)
    frames = frames_with_sets(script.records)
    wrong = frames[len(frames) // 2]
    other = next(each.readers_seq for each in frames if each.readers_seq != wrong.readers_seq)
    made = [
        msgspec.structs.replace(each, readers_seq=other) if each.seq == wrong.seq else each for each in script.records
    ]
    journal = open_journal(memory, segment_bytes=9000, files=QUICK)
    write(journal, [(SPACE, each) for each in made])
    journal.close()
    [problem] = problems(memory)
    assert f"seq {wrong.seq}" in problem
    assert f"is for the readers of seq {other}, and in force were those of seq {wrong.readers_seq}" in problem


# -- for other programs ---------------------------------------------------------------------------


def printed(arguments: list[str]) -> list[dict[str, Any]]:
    done = CliRunner().invoke(journal_command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_lines_of_json_can_name_the_readers(memory: Path) -> None:
    journal, script = pruned_with_a_set(memory)
    journal.close()
    private = [each for each in script.records if isinstance(each, Frame) and each.stream_id == "stream-3"]
    for command in ("cat", "export"):
        arguments = [command, "--data", str(memory), *(["--json"] if command == "cat" else [])]
        plain, named = [printed([*arguments, *more]) for more in ([], ["--readers"])]
        assert plain
        assert all("readers" not in line for line in plain)
        assert {line["readers_seq"] for line in plain if line.get("stream_id") == "stream-3"} == {
            private[0].readers_seq
        }
        for line in named:
            assert line.get("readers") == (["ann", "bob"] if line.get("stream_id") == "stream-3" else None)
    for wrong in (["cat", "--readers"], ["export", "--readers", "--format", "parquet"]):
        done = CliRunner().invoke(journal_command, [wrong[0], "--data", str(memory), *wrong[1:]])
        assert done.exit_code == 2
        assert "--readers" in done.output


# -- by a gateway ---------------------------------------------------------------------------------

#: Names of 60 characters: a list of 1000 is 60 KB.
CROWD = [f"{number:04d}-{'reader' * 9}" for number in range(1000)]


def journal_bytes(data: Path) -> int:
    return sum(file.stat().st_size for file in data.rglob("*") if file.is_file())


async def until_written(gateway: JournaledGateway, rows: int) -> None:
    async with asyncio.timeout(30):
        while len(oracle.rows(gateway.data)) < rows:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("together", [False, True])
async def test_a_large_set_is_written_once(tmp_path: Path, together: bool) -> None:
    """200 frames of 10 bytes for a list of 60 KB wrote 11 MiB."""
    config = space_config("ann", *CROWD, mewstream={"limits": {"stream_metadata_bytes": 200_000}})
    async with journaled(tmp_path, config) as gateway:
        ann = await gateway.join("ann", **POSITIONS)
        size = len(json.dumps(CROWD))
        assert size > 60_000
        before = journal_bytes(gateway.data)
        stream = await ann.open_stream(target=CROWD)
        await ann.settle()
        opened = journal_bytes(gateway.data)
        # The request as it was sent, and what became of it: the request again, and the readers.
        assert opened - before < 4 * size
        rows = len(oracle.rows(gateway.data))
        if together:
            await asyncio.gather(*(ann.frame(stream, "0123456789") for _ in range(200)))
        else:
            for number in range(200):
                await ann.frame(stream, "0123456789")
                if number % 20 == 0:
                    await ann.settle()
        await ann.settle()
        await until_written(gateway, rows + 200)
        assert journal_bytes(gateway.data) - opened < 2 * size, "the list is repeated"
        await gateway.end("term")
    frames = [row for row in oracle.rows(gateway.data) if row["record"] == "frame"]
    assert len(frames) == 200
    assert len({row["readers_seq"] for row in frames}) == 1


def visible(rows: list[dict[str, Any]], who: str) -> dict[int, bytes]:
    """The frames that somebody could read, by their seq: told by the plain rows of the journal alone."""
    sets: dict[int, list[str]] = {}
    found = {}
    for row in rows:
        if row["detail"].get("authorized_readers") is not None:
            sets[row["seq"]] = row["detail"]["authorized_readers"]
        if row["record"] == "frame" and (row["readers_seq"] is None or who in sets[row["readers_seq"]]):
            found[row["seq"]] = row["data"]
    return found


async def change_readers(ann: Client, stream: str, chance: random.Random, steps: int) -> None:
    for step in range(steps):
        kind = chance.choice(["stream/grant-read", "stream/revoke-read"])
        id = await ann.send(kind, {"stream_id": stream, "participant_id": chance.choice(["bob", "cy", "dee"])})
        await ann.wait_for(lambda message, id=id: isinstance(message, dict) and id in message.get("correlation_id", ()))
        for number in range(chance.randrange(1, 6)):
            await ann.frame(stream, f"{step}/{number}")
    await ann.settle()


@pytest.mark.parametrize("how", ["memory", "journal", "pruned"])
async def test_who_comes_back_gets_what_it_could_read_then(tmp_path: Path, how: str) -> None:
    """Nothing is shown to one who was no reader at that seq, and nothing is withheld from one who was."""
    config = space_config("ann", "bob", "cy", "dee", mewstream={"limits": {"remembered_ids": 1}})
    async with journaled(tmp_path, config, segment_bytes=12_000) as gateway:
        ann, *others = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "cy", "dee")]
        stream = await ann.open_stream(target=["ann", "bob"])
        await change_readers(ann, stream, random.Random(1), 10)
        old: list[dict[str, Any]] = []
        if how == "pruned":
            # Of a set that is in force for long, so that its record goes and its frames stay.
            for number in range(60):
                await ann.frame(stream, f"long {number}")
                if number % 5 == 0:
                    await ann.settle()
        for client in others:
            await client.settle()
        positions = {client.participant: position(client) for client in others}
        if how == "pruned":
            await ann.settle()
            old = oracle.space_rows(gateway.data)
            middle = next(row["seq"] for row in old if row["data"] == b"long 30")
            positions = {who: {**at, "seq": middle} for who, at in positions.items()}
            await gateway.end("term")
            prune(gateway.data)
            gateway.start()
            ann = await gateway.join("ann", **POSITIONS)
        for client in others:
            await client.close()
        await change_readers(ann, stream, random.Random(2), 15)
        if how == "journal":
            await gateway.restart("kill")
            ann = await gateway.join("ann", **POSITIONS)
        new = oracle.space_rows(gateway.data, from_start=how != "pruned")
        if how == "pruned":
            maker = next(row["readers_seq"] for row in new if row["data"] == b"long 59")
            assert maker < new[0]["seq"], "the record that made the set is not gone"
        rows = [row for row in old if row["seq"] < new[0]["seq"]] + new
        sets = [row["detail"].get("authorized_readers") for row in rows]
        readers_now = [each for each in sets if each is not None][-1]
        for who in ("bob", "cy", "dee"):
            client = await gateway.join(who, **POSITIONS, resume=positions[who])
            assert client.welcome["payload"]["resume"]["recovered"], client.welcome["payload"]["resume"]
            await client.settle()
            got = {frame.seq: frame.data for each in client.got if (frame := positioned_frame(each)) is not None}
            since = positions[who]["seq"]
            assert got == {seq: data for seq, data in visible(rows, who).items() if seq > since}, who
            # Those who ask are shown the same, if they are readers now: the policy of the stream says so (``joined``).
            status, answer = await gateway.http("GET", f"/participants/{who}/messages", who, params={"since": since})
            assert status == 200
            polled = {each["seq"]: each["data"].encode() for each in answer["messages"] if each["kind"] == "frame"}
            assert polled == (got if who in readers_now else {}), who
        assert len({tuple(visible(rows, who)) for who in ("bob", "cy", "dee")}) > 1, "all could read the same"
        await gateway.end("term")
    assert problems(gateway.data) == []


def prune(data: Path) -> None:
    journal = LocalJournal(data)
    snapshots = journal.snapshot_offsets()
    plan = plan_pruning(journal.root, Retention(max_bytes=1), now=0, partitions=4, snapshots=snapshots)
    # Not the newest: what was missed must be there.
    keep = next(row["offset"] for row in oracle.rows(data) if row["data"] == b"long 30")
    segments = [each for each in plan.segments if each.next_offset <= keep]
    assert segments
    number = next(iter(plan.begins_at))
    journal.prune(PrunePlan(segments=segments, begins_at={number: segments[-1].next_offset}))
    journal.close()


async def test_rows_that_would_not_fit_into_one_batch(tmp_path: Path) -> None:
    """A set times the frames of a batch made more than 2 GiB, and nothing could be recorded until a restart."""
    crowd = [f"{number:05d}-{'x' * 90}" for number in range(6000)]
    limits = {"stream_metadata_bytes": 1_000_000, "stream_metadata_values": 10_000, "message_bytes": 2_000_000}
    config = space_config("ann", *crowd, mewstream={"limits": limits})
    async with journaled(tmp_path, config) as gateway:
        ann = await gateway.join("ann", **POSITIONS)
        stream = await ann.open_stream(target=crowd)
        assert len(json.dumps(crowd)) * 5000 > 2 << 30
        await asyncio.gather(*(ann.frame(stream, "0123456789") for _ in range(5000)))
        await ann.settle()
        assert (await gateway.http("GET", "/health"))[1]["status"] == "ok"
        await gateway.restart("term")
        ann = await gateway.join("ann", **POSITIONS)
        await gateway.end("term")
    assert sum(row["record"] == "frame" for row in oracle.rows(gateway.data)) == 5000


def test_the_state_of_a_set_is_what_the_log_says(memory: Path) -> None:
    """The same fold, from the records as they are read."""
    script = lively(200, seed=7)
    journal = open_journal(memory, files=QUICK)
    write(journal, [(SPACE, each) for each in script.records])
    journal.close()
    state = fold(SPACE, (entry.record for entry in JournalReader(memory / "journal").read(SPACE)))
    assert state == script.state


def test_what_pruning_leaves_is_what_a_fold_says(memory: Path) -> None:
    script = busy(5)
    journal = open_journal(memory, segment_bytes=9000, files=QUICK)
    write(journal, [(SPACE, each) for each in script.records], per_batch=6)
    begins_at = prune_before(journal, journal.partitions[0].next_offset * 2 // 3)
    journal.close()
    state = fold(SPACE, script.records[:begins_at])
    [file] = (memory / "journal/p0").glob("readers-*.json")
    carried = SetsInForce.parse(file.read_bytes())
    assert carried.offset == begins_at
    assert carried.sets.get(SPACE, {}) == {
        stream.id: (stream.readers_seq, stream.readers)
        for stream in state.streams.values()
        if stream.readers is not None
    }
