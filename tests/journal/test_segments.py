"""What is on disk comes back as it was written, or the reader is told where it is not."""

from __future__ import annotations

import json
import logging
import random
import shutil
import typing
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from making import (
    SPACE,
    QuickFiles,
    copy,
    encode,
    entries,
    every_record,
    lively,
    make_journal,
    memory_directory,
    open_journal,
    records,
    segment_files,
    write,
)

from mewstream.journal.errors import CorruptJournal, JournalError
from mewstream.journal.identity import FEATURES, Identity
from mewstream.journal.local import LocalJournal
from mewstream.journal.reader import JournalReader
from mewstream.journal.schema import UnknownRecord, decode
from mewstream.journal.segments import ENTRY_BYTES, HEADER, parse_index
from mewstream.protocol.fold import fold
from mewstream.protocol.records import AnyRecord, Frame, FrameBlock, Record, Refused

QUICK = QuickFiles()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as directory:
        yield directory


# -- as it was ------------------------------------------------------------------------------------


def test_there_is_a_record_of_every_type_to_test_with() -> None:
    assert {type(record) for record in every_record()} == set(typing.get_args(AnyRecord))


@pytest.mark.parametrize("record", every_record(), ids=lambda record: f"{type(record).__name__}-{record.seq}")
def test_a_record_becomes_a_row_and_the_same_record_again(record: Record) -> None:
    batch = encode([(SPACE, "e-1", record)], 41)
    batch.validate(full=True)
    [entry] = decode(batch)
    assert entry.record == record
    assert type(entry.record) is type(record)
    assert (entry.offset, entry.space, entry.epoch) == (41, SPACE, "e-1")
    assert batch.column("seq")[0].as_py() == record.seq
    assert batch.column("outcome")[0].as_py() == (record.code if isinstance(record, Refused) else "accepted")


@pytest.mark.parametrize("sealed", [False, True])
def test_every_record_survives_the_disk(tmp_path: Path, sealed: bool) -> None:
    journal = open_journal(tmp_path, segment_bytes=4000)
    made = every_record()
    write(journal, [(SPACE, record) for record in made], per_batch=4)
    if sealed:
        waiting = journal.segments_to_seal()
        assert waiting
        for partition, name in waiting:
            partition.seal(name)
    epoch = journal.epoch
    journal.close()
    found = entries(tmp_path)
    assert [entry.record for entry in found] == made
    assert [entry.offset for entry in found] == list(range(len(made)))
    assert {entry.epoch for entry in found} == {epoch}
    assert bool(list((tmp_path / "journal/p0").glob("*.sealed.arrow"))) is sealed


def test_segments_are_arrow_streams_that_anyone_can_read(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, segment_bytes=6000)
    made = lively(60).records
    write(journal, [(SPACE, record) for record in made])
    for partition, name in journal.segments_to_seal()[:1]:
        partition.seal(name)
    journal.close()
    seqs = []
    for file in segment_files(tmp_path, suffix="arrow"):
        with pa.OSFile(str(file)) as source:
            table = pa.ipc.open_stream(source).read_all()
        table.validate(full=True)
        seqs += table.column("seq").to_pylist()
    assert seqs == [record.seq for record in made]


def test_spaces_share_partitions_and_keep_their_order(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, partitions=4)
    scripts = [lively(40, space=f"space-{number}", seed=number) for number in range(9)]
    mixed = random.Random(1)
    queues = {script.state.id: list(script.records) for script in scripts}
    while queues:
        space = mixed.choice(sorted(queues))
        journal.append(space, queues[space].pop(0))
        if not queues[space]:
            del queues[space]
        if mixed.random() < 0.1:
            journal.partition(space).flush()
    journal.close()
    reader = JournalReader(tmp_path / "journal")
    for script in scripts:
        assert [entry.record for entry in reader.read(script.state.id)] == script.records
        for after in (1, 17, script.records[-2].seq, script.records[-1].seq):
            assert [entry.record for entry in reader.read(script.state.id, after)] == script.records[after:]
    for number in range(4):
        assert [entry.offset for entry in reader.entries(number)] == list(range(reader.next_offset(number)))


def test_offsets_select_exactly(tmp_path: Path) -> None:
    made = make_journal(tmp_path, lively(50).records, segment_bytes=6000)
    reader = JournalReader(tmp_path / "journal")
    for start, end in [(0, 1), (3, 7), (5, 5), (12, None), (len(made) - 1, None), (len(made), None), (4, 31)]:
        assert [entry.record for entry in reader.entries(0, start, end)] == made[start:end]


def test_a_position_in_time(tmp_path: Path) -> None:
    made = make_journal(tmp_path, lively(60).records, segment_bytes=6000)
    reader = JournalReader(tmp_path / "journal")
    for micros in (made[0].ts, made[1].ts, made[30].ts, made[30].ts + 1, made[-1].ts + 1):
        expected = max((record.seq for record in made if record.ts < micros), default=0)
        assert reader.seq_before(SPACE, micros) == expected


def test_a_record_of_a_newer_version_is_kept_and_has_no_effect(tmp_path: Path) -> None:
    batch = encode([(SPACE, "e-1", every_record()[0])], 0)
    names, detail = batch.schema.names, '{"record":"moved","x":1}'
    batch = batch.set_column(names.index("record"), batch.schema.field("record"), pa.array(["moved"]))
    batch = batch.set_column(names.index("detail"), batch.schema.field("detail"), pa.array([detail]))
    [entry] = decode(batch)
    assert isinstance(entry.record, UnknownRecord)
    assert (entry.record.seq, entry.record.name, entry.record.detail) == (1, "moved", '{"record":"moved","x":1}')
    assert fold(SPACE, [entry.record]).seq == 1


def rewrite_identity(data: Path, **changes: Any) -> None:
    """As a newer version would have written it, with checksums that are right."""
    file = data / "journal/journal.json"
    identity = msgspec.json.decode(file.read_bytes(), type=Identity)
    file.write_bytes(msgspec.structs.replace(identity, **changes).encode())


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"schema_version": 9}, "schema 9, this reads up to 2"), ({"features": ["dreams", FEATURES[0]]}, "uses dreams:")],
)
def test_a_newer_journal_is_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    make_journal(tmp_path, every_record())
    rewrite_identity(tmp_path, **changes)
    for attempt in (lambda: open_journal(tmp_path), lambda: JournalReader(tmp_path / "journal").identity()):
        with pytest.raises(JournalError) as caught:
            attempt()
        assert "\n" not in str(caught.value)
        assert said in str(caught.value)
        assert str(caught.value).endswith("update mewstream")


def test_what_version_1_checks_is_right_for_it(tmp_path: Path) -> None:
    """So that the code before this one says that it is too old, and not that the journal is damaged."""
    make_journal(tmp_path, every_record())
    fields = json.loads((tmp_path / "journal/journal.json").read_bytes())
    first = ("id", "partitions", "created", "schema_version", "runs", "tag", "pruned")
    version_1 = {**{name: fields[name] for name in first}, "check": 0}
    assert fields["check"] == zlib.crc32(msgspec.json.encode(version_1))
    assert fields["schema_version"] == 2
    assert fields["features"] == list(FEATURES)


# -- torn tails -----------------------------------------------------------------------------------


@pytest.fixture
def torn(tmp_path: Path) -> tuple[Path, list[Record]]:
    """A journal whose last batch holds one record."""
    made = every_record()[:9]
    return tmp_path / "torn", make_journal(tmp_path / "torn", made, per_batch=4)


def _reopened(data: Path) -> list[Record]:
    """What is there after a start, and that it can be gone on with."""
    journal = open_journal(data, files=QUICK)
    try:
        before = [entry.record for entry in journal.reader.entries(0)]
        assert journal.partitions[0].next_offset == len(before)
        more = every_record()[20]
        journal.append(SPACE, more)
        journal.partitions[0].flush()
        assert [entry.record for entry in journal.reader.entries(0)] == [*before, more]
    finally:
        journal.close()
    return before


def test_a_last_batch_cut_at_any_byte(
    torn: tuple[Path, list[Record]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, made = torn
    [index], [arrow] = segment_files(data), segment_files(data, suffix="arrow")
    batches, _ = parse_index(index.read_bytes())
    last = batches[-1]
    whole = arrow.read_bytes()
    assert len(whole) == last.position + last.length
    for size in range(last.position, len(whole) + 1):
        work = copy(data, tmp_path / "work")
        (work / arrow.relative_to(data)).write_bytes(whole[:size])
        caplog.clear()
        found = _reopened(work)
        if size == len(whole):
            assert found == made
        else:
            assert found == made[:-1]
            assert f"offsets {last.first_offset} to {last.last_offset} are lost" in caplog.text
            [aside] = (work / "journal/p0").glob("*.bad")
            assert aside.read_bytes() == whole[last.position : size]


def test_a_compressed_last_batch_cut_or_damaged(tmp_path: Path) -> None:
    """Many frames at once are compressed as they are written. A cut or a flipped bit in them is found all the same."""
    frames = [Frame(seq, 1000, None, "stream-1", "ann", seq, 2, 1, b"%d" % seq) for seq in range(1, 602)]
    data, made = tmp_path / "data", make_journal(tmp_path / "data", frames, per_batch=600)
    journal = open_journal(data, files=QUICK)
    block = FrameBlock(602, 1001, "stream-1", "ann", 602, 2, 1, [b"x"] * 600, None, None)
    journal.partition(SPACE).append(SPACE, journal.epoch, block)
    journal.partition(SPACE).flush()
    journal.close()
    [index], [arrow] = segment_files(data), segment_files(data, suffix="arrow")
    batches, _ = parse_index(index.read_bytes())
    whole, last = arrow.read_bytes(), batches[-1]
    assert [batch.length < 60 * 600 for batch in batches] == [True, True, True]  # 150 bytes and more a frame without
    assert [record.seq for record in records(data)] == list(range(1, 1202))
    for place in range(last.position, len(whole), last.length // 40):
        flipped = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        for damaged in (whole[:place], flipped):
            work = copy(data, tmp_path / "work")
            (work / arrow.relative_to(data)).write_bytes(damaged)
            assert _reopened(work) == made


def test_a_last_index_entry_cut_at_any_byte(
    torn: tuple[Path, list[Record]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, made = torn
    [index] = segment_files(data)
    whole = index.read_bytes()
    for size in range(len(whole) - ENTRY_BYTES, len(whole) + 1):
        work = copy(data, tmp_path / "work")
        (work / index.relative_to(data)).write_bytes(whole[:size])
        caplog.clear()
        # A reader that comes before the writer sees what is committed, and no more.
        assert records(work) == (made if size == len(whole) else made[:-1])
        found = _reopened(work)
        if size == len(whole):
            assert found == made
        else:
            assert found == made[:-1]
            assert "never committed" in caplog.text


def test_garbage_after_the_end_is_cut(torn: tuple[Path, list[Record]], caplog: pytest.LogCaptureFixture) -> None:
    data, made = torn
    [arrow] = segment_files(data, suffix="arrow")
    arrow.write_bytes(arrow.read_bytes() + b"\0" * 77)
    assert _reopened(data) == made
    assert "cut off 77 bytes" in caplog.text


# -- flipped bits ---------------------------------------------------------------------------------


class Damaged:
    """A journal with four segments (two of them sealed) and two snapshots, to be damaged."""

    def __init__(self, data: Path) -> None:
        self.data = data
        script = lively(75, seed=3, pauses=False)
        self.made = script.records
        journal = open_journal(data, segment_bytes=7000, files=QUICK)
        rest = [(SPACE, record) for record in self.made]
        for place in range(0, len(rest), 5):
            write(journal, rest[place : place + 5])
            if place in (30, 55):
                state = fold(SPACE, self.made[: place + 5])
                journal.write_snapshot(*journal.encode_snapshot(0, {SPACE: state}))
        for partition, name in journal.segments_to_seal()[:2]:
            partition.seal(name)
        self.identity = journal.identity.id
        journal.close()
        self.last_batch = parse_index(segment_files(data)[-1].read_bytes())[0][-1]
        names = {file.name.partition(".")[2] for file in (data / "journal/p0").iterdir()}
        assert {"arrow", "index", "sealed.arrow", "sealed.index", "json"} <= names, names
        assert len(segment_files(data)) >= 4

    def files(self, *patterns: str) -> list[Path]:
        return sorted(file for pattern in patterns for file in (self.data / "journal").glob(pattern))

    def verdict(self, work: Path, caplog: pytest.LogCaptureFixture) -> str | None:
        """What is wrong with how a damaged journal was taken; None where it was recovered or reported."""
        caplog.clear()
        flaw = self._read(work)
        try:
            journal = LocalJournal(work, partitions=1, files=QUICK)
        except JournalError as error:
            return flaw or _unnamed(error)
        except Exception as error:
            return f"opening raises {error!r}"
        try:
            found = [entry.record for entry in journal.reader.entries(0)]
            states = journal.recover()
        except JournalError as error:
            return flaw or _unnamed(error)
        except Exception as error:
            return f"recovering raises {error!r}"
        finally:
            journal.close()
        if journal.identity.id != self.identity:
            return "it has another identity and nobody is told"
        if found != self.made:
            if found != self.made[: self.last_batch.first_offset]:
                return f"{len(found)} of {len(self.made)} records, and it goes on as if that were all"
            if not any(record.levelno >= logging.WARNING for record in caplog.records):
                return "the last batch is gone and nobody is told"
        if states != {SPACE: fold(SPACE, found)}:
            return "the state is not the fold of the log"
        return flaw

    def _read(self, work: Path) -> str | None:
        """A reader without a writer: a prefix, or an error."""
        try:
            found = records(work)
        except JournalError:
            return None
        except Exception as error:
            return f"reading raises {error!r}"
        if found == self.made or found == self.made[: self.last_batch.first_offset]:
            return None
        if found == self.made[: len(found)]:
            return f"a reader gets {len(found)} of {len(self.made)} records and no error"
        return "a reader gets wrong records"


def _unnamed(error: JournalError) -> str | None:
    """An error must say where."""
    if isinstance(error, CorruptJournal):
        return None if Path(error.segment).name and error.offset >= 0 else f"{error} names no place"
    return None if "/" in str(error) else f"{error} names no file"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return Damaged(tmp_path_factory.mktemp("damaged") / "data")


def _flip(
    damaged: Damaged, tmp_path: Path, caplog: pytest.LogCaptureFixture, files: list[Path], flips: int
) -> list[str]:
    """Flip bits, one at a time; returns what went wrong."""
    chance = random.Random(25)
    wrong = []
    places = [(file, at) for file in files for at in range(file.stat().st_size)]
    for file, at in places if flips >= len(places) else chance.sample(places, flips):
        bit = chance.randrange(8)
        work = copy(damaged.data, tmp_path / "work")
        target = work / file.relative_to(damaged.data)
        content = bytearray(target.read_bytes())
        content[at] ^= 1 << bit
        target.write_bytes(content)
        verdict = damaged.verdict(work, caplog)
        if verdict is not None:
            wrong.append(f"{file.name} byte {at} bit {bit}: {verdict}")
    return wrong


def test_without_damage_nothing_is_reported(damaged: Damaged, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert damaged.verdict(copy(damaged.data, tmp_path / "work"), caplog) is None
    assert not caplog.records


def test_a_flipped_bit_in_the_data(damaged: Damaged, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = _flip(damaged, tmp_path, caplog, damaged.files("p0/*.arrow"), 250)
    assert not wrong, f"{len(wrong)} times: " + "\n".join(wrong[:8])


def test_a_flipped_bit_in_an_index(damaged: Damaged, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only the last entry of the last segment can be a torn tail: in front of it nothing may be cut."""
    wrong = _flip(damaged, tmp_path, caplog, damaged.files("p0/*.index"), 400)
    assert not wrong, f"{len(wrong)} times: " + "\n".join(wrong[:8])


def test_a_flipped_bit_in_a_snapshot(damaged: Damaged, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = _flip(damaged, tmp_path, caplog, damaged.files("p0/snapshot-*.json"), 120)
    assert not wrong, f"{len(wrong)} times: " + "\n".join(wrong[:8])


def test_a_flipped_bit_in_the_identity(damaged: Damaged, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = _flip(damaged, tmp_path, caplog, damaged.files("journal.json"), 300)
    assert not wrong, f"{len(wrong)} times: " + "\n".join(wrong[:8])


def test_a_flipped_bit_in_the_identity_never_prunes(
    damaged: Damaged, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was pruned is in that file: a wrong number there must not remove segments."""
    work = copy(damaged.data, tmp_path / "work")
    names = sorted(file.name for file in (work / "journal/p0").iterdir())
    identity = work / "journal/journal.json"
    content = identity.read_bytes()
    first = int(segment_files(damaged.data)[2].name[:20])
    assert b'"pruned":{}' in content
    identity.write_bytes(content.replace(b'"pruned":{}', b'"pruned":{"0":%d}' % first))
    with pytest.raises(JournalError):
        LocalJournal(work, partitions=1, files=QUICK).close()
    assert sorted(file.name for file in (work / "journal/p0").iterdir()) == names


# -- missing and repeated segments ----------------------------------------------------------------


def _place(files: list[Path], which: str) -> Path:
    return {"first": files[0], "middle": files[1], "last": files[-1]}[which]


@pytest.mark.parametrize("sealed", [False, True], ids=["as written", "sealed"])
@pytest.mark.parametrize("part", ["data", "index", "both"])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_missing_segment(
    tmp_path: Path, which: str, part: str, sealed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(tmp_path, segment_bytes=6000, files=QUICK)
    made = lively(60).records
    write(journal, [(SPACE, record) for record in made])
    if sealed:
        for partition, name in journal.segments_to_seal():
            partition.seal(name)
    journal.close()
    index = _place(segment_files(tmp_path), which)
    if part != "index":
        index.with_suffix(".arrow").unlink()
    if part != "data":
        index.unlink()
    left = {file.name: file.stat().st_size for file in (tmp_path / "journal/p0").iterdir()}

    def recover() -> list[Record]:
        journal = open_journal(tmp_path, files=QUICK)
        try:
            journal.recover()
            return [entry.record for entry in journal.reader.entries(0)]
        finally:
            journal.close()

    if which == "last" and part == "both" and not sealed:
        # As it was before the segment was begun: nothing tells the two apart.
        found = recover()
        assert found == made[: len(found)]
        return
    with pytest.raises(JournalError) as caught:
        recover()
    assert index.name[:20] in str(caught.value) or isinstance(caught.value, CorruptJournal)
    for name, size in left.items():
        assert (tmp_path / "journal/p0" / name).stat().st_size == size, f"{name} was changed by a failed start"


def test_a_missing_partition(tmp_path: Path) -> None:
    make_journal(tmp_path, lively(30).records, partitions=2)
    number = next(n for n in (0, 1) if JournalReader(tmp_path / "journal").next_offset(n))
    shutil.rmtree(tmp_path / f"journal/p{number}")
    with pytest.raises(JournalError):
        open_journal(tmp_path).close()


def test_a_missing_identity(tmp_path: Path) -> None:
    make_journal(tmp_path, lively(30).records)
    (tmp_path / "journal/journal.json").unlink()
    with pytest.raises(JournalError, match=r"no journal\.json"):
        open_journal(tmp_path)
    with pytest.raises(JournalError, match=r"expected journal\.json"):
        JournalReader(tmp_path / "journal").identity()


@pytest.mark.parametrize("to", ["between", "next", "beyond", "sealed"])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_segment_copied_under_another_name(tmp_path: Path, which: str, to: str) -> None:
    """The copy is reported, or left out; what was there stays as it was."""
    made = make_journal(tmp_path, lively(60).records, segment_bytes=6000)
    files = segment_files(tmp_path)
    index = _place(files, which)
    number = {
        "between": int(files[1].name[:20]) + 1,
        "next": len(made),
        "beyond": len(made) + 100,
        "sealed": int(files[-2].name[:20]) if which != "middle" else int(files[0].name[:20]),
    }[to]
    stem = f"{number:020d}{'.sealed' if to == 'sealed' else ''}"
    for suffix in ("arrow", "index"):
        shutil.copy(index.with_suffix(f".{suffix}"), index.with_name(f"{stem}.{suffix}"))
    try:
        journal = open_journal(tmp_path, files=QUICK)
    except JournalError:
        for file in files:
            assert file.exists()
        return
    try:
        found = [entry.record for entry in journal.reader.entries(0)]
    except JournalError:
        return
    finally:
        journal.close()
    assert found == made


def test_headers_alone_are_no_segment_of_their_own(tmp_path: Path) -> None:
    """What a crash while a segment is begun leaves."""
    made = make_journal(tmp_path, lively(30).records, segment_bytes=6000)
    new = tmp_path / "journal/p0" / f"{len(made):020d}.arrow"
    for content in (b"", HEADER[:10], HEADER):
        new.write_bytes(content)
        assert records(tmp_path) == made
        journal = open_journal(tmp_path, files=QUICK)
        assert journal.partitions[0].next_offset == len(made)
        journal.close()


def test_frames_of_several_streams_and_reader_sets_are_kept_apart_in_one_batch() -> None:
    """Columns that are constant in a run are written as constants, and only those."""
    sets: list[tuple[str, ...] | None] = [None, ("ann",), ("ann", "bob")]
    made = [
        Frame(
            seq,
            seq * 10,
            None,
            f"stream-{seq % stride}",
            f"writer-{seq % stride}",
            seq // 2,
            1 + seq % min(stride, 2),
            seq % stride,
            b"%d" % seq,
            readers=sets[seq % min(stride, 3)],
            format_id="f" if seq % stride else None,
        )
        for stride in (1, 2, 3)
        for seq in range(1, 40)
    ]
    for some in (made, made[:39], made[39:78]):
        batch = encode([(SPACE, "e-1", record) for record in some], 0)
        batch.validate(full=True)
        assert [entry.record for entry in decode(batch)] == some
