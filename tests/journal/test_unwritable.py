# ruff: noqa: ASYNC110 - there is a state to wait for
"""Whatever goes wrong on the way to the disk is a failure of the journal: it is said, refused and recovered from.
Nobody is told of anything that is not recorded."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import oracle
import pyarrow as pa
import pytest
from driven import Driven
from making import POSITIONS, SPACE, JournaledGateway, QuickFiles, journaled, lively, open_journal, seq_of
from test_disk_failure import Disk, in_journal, serving, until_failing, until_status
from test_disk_failure import disk as disk  # a fixture of theirs

from mewstream.journal import file_journal
from mewstream.journal import partition as partition_module
from mewstream.journal import rows as rows_module
from mewstream.journal.errors import RecordTooLarge
from mewstream.journal.reader import JournalReader
from mewstream.journal.rows import Rows
from mewstream.protocol.records import EnvelopeAccepted, Frame, FrameBlock, Record, StreamOpened, StreamPolicy
from support import Client, space_config

CONFIG = space_config("ann", "bob", "cy", "dee")

ERRORS = (
    pa.ArrowInvalid("offset overflow while concatenating arrays"),
    pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes"),
    OverflowError("value too large to convert to int32_t"),
    MemoryError(),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    OSError(5, "Input/output error"),
    RuntimeError("anything else"),
)


class Broken:
    """Something that raises as long as it is told to."""

    def __init__(self, error: Exception, real: Any) -> None:
        self.error: Exception | None = error
        self.real = real
        self.calls = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.real(*arguments, **options)


#: The places at which it goes wrong: making a batch, compressing it, writing it, syncing it.
PLACES = ("encode", "compress", "write", "sync", "begin a segment")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", PLACES)
async def test_any_failure_is_a_failure_of_the_journal(
    tmp_path: Path, place: str, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(partition_module, "COMPRESSED_ROWS", 3)
    driven = Driven(tmp_path, QuickFiles(), durability="fsync" if place == "sync" else "flush", segment_bytes=9000)
    made = lively(60).records
    told: list[int] = []
    again: list[bool] = []
    driven.recorder.on_recovery(lambda: again.append(driven.recorder.failing))

    def record(each: Record) -> None:
        driven.recorder.append(SPACE, each)
        driven.recorder.commit(SPACE, lambda: told.append(each.seq))

    for each in made[:10]:
        record(each)
    async with asyncio.timeout(10):
        while len(told) < 10:
            await asyncio.sleep(0.001)
    owner, name = {
        "encode": (Rows, "encode"),
        "compress": (partition_module, "compressed"),
        "write": (driven.journal.partitions[0]._files, "write_at"),
        "sync": (driven.journal.partitions[0], "sync"),
        "begin a segment": (driven.journal.partitions[0], "_create"),
    }[place]
    broken = Broken(error, getattr(owner, name))
    if owner is Rows:
        monkeypatch.setattr(Rows, "encode", lambda self, offset: broken(self, offset))
    else:
        monkeypatch.setattr(owner, name, broken)
    later = iter(made[10:])
    async with asyncio.timeout(10):
        while not driven.recorder.failing:
            # Frames alone, many at once, go another way than control records.
            for _ in range(4 if place == "compress" else 1):
                driven.recorder.append(SPACE, next(later))
            driven.recorder.commit(SPACE, lambda: None)
            await asyncio.sleep(0.005)
    while (calls := broken.calls) < 2:
        await asyncio.sleep(0.01)
    assert driven.metrics.journal_failing._value.get() == 1
    said = [each for each in caplog.records if "the journal cannot be written" in each.message]
    assert len(said) == 1
    waiting = len(told)
    record(next(later))
    await asyncio.sleep(0.05)
    assert len(told) == waiting, "told, and not recorded"
    assert broken.calls < calls + 20, "it spins"

    broken.error = None
    async with asyncio.timeout(10):
        while driven.recorder.failing or len(told) == waiting:
            await asyncio.sleep(0.005)
    assert driven.metrics.journal_failing._value.get() == 0
    assert again == [False]
    for each in later:
        record(each)
    driven.recorder.close()
    assert [entry.record for entry in JournalReader(tmp_path / "journal").read(SPACE)] == made


async def test_what_can_never_be_written_is_said_and_tried_ever_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(file_journal, "MAX_RETRY_SECONDS", 10.0)
    driven = Driven(tmp_path, QuickFiles(), durability="flush")
    broken = Broken(pa.ArrowInvalid("poison"), None)
    monkeypatch.setattr(Rows, "encode", lambda self, offset: broken(self, offset))
    driven.recorder.append(SPACE, lively(1).records[0])
    driven.recorder.commit(SPACE, lambda: None)
    assert driven.recorder.failing
    await asyncio.sleep(1.0)
    assert 2 < broken.calls < 12
    [said] = [each for each in caplog.records if each.name == "mewstream.gateway"]
    assert "the records for offset 0 to 0 cannot be encoded" in said.message
    assert "restart the gateway to continue without them" in said.message
    driven.die()


# -- what is too large ----------------------------------------------------------------------------


def test_a_batch_is_bounded_in_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "BATCH_BYTES", 100_000)
    journal = open_journal(tmp_path, files=QuickFiles())
    made: list[Record] = []
    for seq in range(1, 301):
        data = bytes(9_000)
        if seq % 3:
            made.append(Frame(seq, seq, None, "stream-1", "ann", seq, 2, 1, data))
        else:
            made.append(EnvelopeAccepted(seq, seq, None, "ann", "chat", f"{seq}", 0, data))
        journal.append(SPACE, made[-1])
    block = FrameBlock(301, 301, "stream-1", "ann", 301, 2, 1, [bytes(3_000)] * 60, None, None)
    journal.partitions[0].append(SPACE, journal.epoch, block)
    after = Frame(361, 361, None, "stream-1", "ann", 361, 2, 1, b"")
    journal.append(SPACE, after)
    journal.close()
    batches = [batch.rows.nbytes for batch in JournalReader(tmp_path / "journal").batches(0)]
    assert len(batches) > 20
    assert max(batches) < 300_000
    found = [entry.record for entry in JournalReader(tmp_path / "journal").entries(0)]
    assert found == [*made, *block.frames(), after]


def test_frames_that_repeat_a_large_reader_set_are_several_batches(tmp_path: Path) -> None:
    """They could be more than a column holds, and nothing was recorded any more."""
    readers = tuple(f"reader-{number:04}-{'x' * 110}" for number in range(2_000))
    block = FrameBlock(1, 1, "stream-1", "ann", 1, 2, 1, [b"%d" % place for place in range(1_000)], readers, None)
    few = FrameBlock(1_001, 1, "stream-1", "ann", 1_001, 2, 1, [b""] * 31, readers, None)
    journal = open_journal(tmp_path, files=QuickFiles())
    for each in (block, few):
        journal.partitions[0].append(SPACE, journal.epoch, each)
    assert journal.partitions[0].pending_bytes > 200 << 20
    journal.close()
    sizes = []
    seqs: list[int] = []
    for batch in JournalReader(tmp_path / "journal").batches(0):
        sizes.append(batch.rows.nbytes)
        seqs += batch.rows.column("seq").to_pylist()
    assert max(sizes) < 2.5 * partition_module.BATCH_BYTES
    assert seqs == list(range(1, 1_032))
    found = [entry.record for entry in JournalReader(tmp_path / "journal").read(SPACE)]
    assert found == [*block.frames(), *few.frames()]


def test_sealed_batches_are_bounded_in_bytes_too(tmp_path: Path) -> None:
    """Of whatever a segment holds: what compresses well may be many times its size."""
    journal = open_journal(tmp_path, segment_bytes=200_000, files=QuickFiles())
    made = [Frame(seq, seq, None, "stream-1", "ann", seq, 2, 1, bytes(100_000)) for seq in range(1, 1001)]
    for place, record in enumerate(made, 1):
        journal.append(SPACE, record)
        if place % 600 == 0:
            journal.partitions[0].flush()
    journal.partitions[0].flush()
    for partition, name in journal.segments_to_seal():
        partition.seal(name)
    journal.close()
    sizes = [batch.rows.nbytes for batch in JournalReader(tmp_path / "journal").batches(0) if batch.segment.name.sealed]
    assert sum(sizes) > 50 << 20
    assert max(sizes) < 10 << 20
    assert [entry.record for entry in JournalReader(tmp_path / "journal").read(SPACE)] == made


def test_a_record_that_is_too_large_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_RECORD_BYTES", 10_000)
    journal = open_journal(tmp_path, files=QuickFiles())
    made = lively(20).records
    policy = StreamPolicy("keep", 1.0, "latest", "off")
    huge = StreamOpened(21, 21, None, "s", "live", "ann", "r", {"pad": "x" * 20_000}, policy, ["ann"])
    for record in made:
        journal.append(SPACE, record)
    with pytest.raises(RecordTooLarge, match=r"seq 21 of 'demo', a stream-opened of 20\d\d\d bytes"):
        journal.append(SPACE, huge)
    pending = journal.partitions[0].pending
    assert pending == len(made)
    journal.close()
    assert [entry.record for entry in JournalReader(tmp_path / "journal").read(SPACE)] == made


# -- refusals are counted -------------------------------------------------------------------------


def refusals(data: Path, code: str = "journal_unavailable") -> dict[tuple[str, str | None], int]:
    """How many were recorded, by sender and kind."""
    found: dict[tuple[str, str | None], int] = {}
    for row in oracle.space_rows(data):
        if row["record"] == "refused" and row["outcome"] == code:
            key = (row["sender"], row["kind"])
            found[key] = found.get(key, 0) + row["detail"].get("count", 1)
    return found


async def test_every_refusal_of_a_full_disk_is_recorded(tmp_path: Path, disk: Disk) -> None:
    """2,000 were reported as one. The sums are those of the metric, of the senders, and of the log."""
    async with serving(tmp_path, disk) as gateway:
        ann, bob, cy = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "cy")]
        stream = await ann.open_stream()
        await until_failing(gateway, disk, ann, stream)
        before = await refused_by_metric(gateway)
        for number in range(2000):
            await bob.frame(stream, f"{number}")
        for number in range(30):
            await cy.send("chat" if number % 2 else "custom", {"text": "no"})
        status, _ = await gateway.post("dee", {"kind": "chat", "payload": {"text": "no"}})
        assert status == 503
        async with asyncio.timeout(30):
            while await refused_by_metric(gateway) < before + 2031:
                await asyncio.sleep(0.05)
        # Longer than the window within which a flood is summed up, and one who leaves meanwhile.
        await asyncio.sleep(1.2)
        for _ in range(100):
            await bob.frame(stream, "more")
        async with asyncio.timeout(30):
            while await refused_by_metric(gateway) < before + 2131:
                await asyncio.sleep(0.05)
        # Each message was answered at once, and of the frames the first.
        await asyncio.sleep(0.2)
        disk.free(gateway)
        await until_status(gateway, "ok")
        for client in (ann, bob, cy):
            await client.settle()
        total = int(await refused_by_metric(gateway))
        await gateway.end("term")
    found = refusals(disk.path / "data")
    assert found["bob", "frame"] == 2100
    assert (found["cy", "chat"], found["cy", "custom"]) == (15, 15)
    assert found["dee", "chat"] == 1
    assert sum(found.values()) == total
    answered = [each for each in cy.got if isinstance(each, dict) and each["kind"] == "system/error"]
    assert sum("correlation_id" in each for each in answered) == 30
    told = [each["payload"] for each in bob.got if isinstance(each, dict) and each["kind"] == "system/error"]
    assert [(each["error"], each.get("count", 1)) for each in told] == [
        ("journal_unavailable", 1),
        ("journal_unavailable", 2099),
    ]
    in_journal(disk.path / "data", ann, bob, cy)


async def test_questions_wait_for_nothing_either(tmp_path: Path, disk: Disk) -> None:
    """An answer would wait in memory for the journal, and questions could be asked without end."""
    async with serving(tmp_path, disk) as gateway:
        ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
        stream = await ann.open_stream()
        await until_failing(gateway, disk, ann, stream)
        id = await bob.send("stream/list", {})
        assert (await bob.error("journal_unavailable", of=id))["correlation_id"] == [id]
        disk.free(gateway)
        await until_status(gateway, "ok")
        await bob.send("stream/list", {})
        assert (await bob.receive("stream/listed"))["payload"]["total"] == 1


async def refused_by_metric(gateway: JournaledGateway) -> float:
    _, text = await gateway.http("GET", "/metrics")
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("mewstream_refusals_total{") and "journal_unavailable" in line
    )


async def test_a_flood_that_was_counted_before_is_not_forgotten(tmp_path: Path, disk: Disk) -> None:
    """Refusals of another sort whose sum falls due while nothing can be recorded."""
    async with serving(tmp_path, disk) as gateway:
        ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
        stream = await ann.open_stream()
        private = await ann.open_stream()
        for number in range(500):
            await bob.frame(private, f"{number}")
        await bob.error("unauthorized_stream_write")
        await until_failing(gateway, disk, ann, stream)
        await asyncio.sleep(1.5)
        disk.free(gateway)
        await until_status(gateway, "ok")
        for client in (ann, bob):
            await client.settle()
        await gateway.end("term")
    assert refusals(disk.path / "data", "unauthorized_stream_write") == {("bob", "frame"): 500}


# -- the data directory ---------------------------------------------------------------------------


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[JournaledGateway]:
    async with journaled(tmp_path, CONFIG, segment_bytes=40_000) as made:
        yield made


async def at_work(gateway: JournaledGateway) -> tuple[Client, Client, str]:
    ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
    stream = await ann.open_stream()
    for number in range(20):
        await ann.frame(stream, f"{number}")
    await ann.settle()
    await bob.settle()
    return ann, bob, stream


async def is_refused(gateway: JournaledGateway, ann: Client) -> None:
    await until_status(gateway, "journal_unavailable")
    _, metrics = await gateway.http("GET", "/metrics")
    assert "\nmewstream_journal_failing 1.0" in metrics
    id = await ann.send("chat", {"text": "refused"})
    await ann.error("journal_unavailable", of=id)
    assert gateway.log.read_text().count("the data directory was removed or replaced") == 1
    assert "put the directory back from a copy, and start it" in gateway.log.read_text()


def told_last(*clients: Client) -> int:
    return max(seq for client in clients for each in client.got if (seq := seq_of(each)) is not None)


async def test_a_data_directory_that_is_moved_away_and_back(gateway: JournaledGateway) -> None:
    """Everything that was told is there, and everything goes on."""
    ann, bob, stream = await at_work(gateway)
    aside = gateway.data.with_name("aside")
    gateway.data.rename(aside)
    await is_refused(gateway, ann)
    await asyncio.sleep(1.5)  # it looks again, and nothing has changed
    assert (await gateway.http("GET", "/health"))[1]["status"] == "journal_unavailable"
    assert not gateway.data.exists(), "nothing is written there"
    aside.rename(gateway.data)
    await until_status(gateway, "ok")
    await bob.send("chat", {"text": "after"})
    await ann.receive("chat", text="after")
    await ann.frame(stream, "after")
    await ann.settle()
    await bob.settle()
    last = told_last(ann, bob)
    await gateway.end("term")
    assert len(oracle.space_rows(gateway.data)) >= last
    in_journal(gateway.data, ann, bob)
    assert "the data directory is in its place again" in gateway.log.read_text()


@pytest.mark.parametrize("by", ["nothing", "an empty one", "a copy", "the segments alone"])
async def test_a_data_directory_that_is_removed(gateway: JournaledGateway, by: str) -> None:
    """It is no journal of this gateway's any more, whatever is there instead: a start must decide that."""
    ann, _, _ = await at_work(gateway)
    copy = gateway.data.with_name("copy")
    if by in ("a copy", "the segments alone"):
        shutil.copytree(gateway.data, copy)
    if by == "the segments alone":
        shutil.rmtree(gateway.data / "journal/p0")
        shutil.copytree(copy / "journal/p0", gateway.data / "journal/p0")
        shutil.rmtree(copy)
    else:
        shutil.rmtree(gateway.data)
        if by == "an empty one":
            gateway.data.mkdir()
        elif by == "a copy":
            copy.rename(gateway.data)
    there = sorted(gateway.data.rglob("*"))
    await is_refused(gateway, ann)
    await asyncio.sleep(1.2)
    assert sorted(gateway.data.rglob("*")) == there, "nothing is done to what is there instead"
    await asyncio.to_thread(gateway.stop, expect_clean_log=False)
    assert sorted(gateway.data.rglob("*")) == there, "not at the end either"
    assert "the end of the journal could not be written" in gateway.log.read_text()
    gateway.start()
    again = await gateway.join("ann", **POSITIONS)
    await again.send("chat", {"text": "anew"})
    await again.receive("chat", text="anew")
    await gateway.end("term")


@pytest.mark.parametrize("file", ["lock", "journal/journal.json"])
async def test_a_file_that_others_go_by(gateway: JournaledGateway, file: str) -> None:
    """Without its lock a second gateway could have the directory, and without its identity it is no journal."""
    ann, _, _ = await at_work(gateway)
    content = (gateway.data / file).read_bytes()
    (gateway.data / file).unlink()
    await is_refused(gateway, ann)
    if file != "lock":
        (gateway.data / file).write_bytes(content)
        await until_status(gateway, "ok")
        await ann.send("chat", {"text": "after"})
        await ann.receive("chat", text="after")
    await asyncio.to_thread(gateway.stop, expect_clean_log=False)


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, partitions=3)
    assert journal.displaced() is None
    files = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and (path.suffix in (".arrow", ".index", ".json") or path.name == "lock")
    ]
    assert len(files) == 3 * 2 + 2
    for file in files:
        aside = file.with_name("aside")
        file.rename(aside)
        said = journal.displaced()
        assert said is not None
        assert str(file) in said or "journal.json" in said
        aside.rename(file)
        assert journal.displaced() is None
    for _ in range(3):
        journal.partitions[0].roll()
        assert journal.displaced() is None
    journal.close()


def test_one_who_looks_while_segments_change(tmp_path: Path) -> None:
    """A file that is gone because the next one is in use is no loss."""
    journal = open_journal(tmp_path, segment_bytes=1, files=QuickFiles())
    partition = journal.partitions[0]
    found: list[str | None] = []
    end = threading.Event()

    def look() -> None:
        while not end.is_set():
            found.append(journal.displaced())

    looking = threading.Thread(target=look)
    looking.start()
    for record in lively(300).records:
        journal.append(SPACE, record)
        partition.flush()
        for each, name in journal.segments_to_seal():
            each.seal(name)
    end.set()
    looking.join()
    journal.close()
    assert len(found) > 10
    assert set(found) == {None}
