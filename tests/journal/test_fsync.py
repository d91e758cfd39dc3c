# ruff: noqa: ASYNC110 - there is nothing to wait for but that it is so
"""With ``durability: fsync``: who was told, was told the truth, whatever the power does."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from driven import Driven
from making import SPACE, ForgetfulFiles, Script, abandon, lively, open_journal

from mewstream.gateway.clock import MachineClock
from mewstream.gateway.config import ParticipantConfig, SpaceConfig
from mewstream.gateway.fair_queue import FairQueue
from mewstream.gateway.fanout import Audience, Outbox, Parcel
from mewstream.gateway.reference_logs import SpaceLogs
from mewstream.gateway.replay_threads import ReplayThreads
from mewstream.gateway.space import Space
from mewstream.journal import file_journal
from mewstream.journal import partition as partition_module
from mewstream.journal.errors import CorruptJournal
from mewstream.journal.local import LocalJournal, read_snapshot
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.decide import Decision
from mewstream.protocol.envelope import parse_envelope
from mewstream.protocol.fold import fold
from mewstream.protocol.policy import Delivery, Limits, Policies
from mewstream.protocol.records import Frame, Record


class Load:
    """Several spaces write at the same time and note which of their control messages were acknowledged."""

    def __init__(self, driven: Driven, spaces: int, seed: int) -> None:
        self.driven = driven
        self.scripts = [lively(220, space=f"space-{number}", seed=seed * 10 + number) for number in range(spaces)]
        self.acknowledged: dict[str, int] = {}
        self.asked = 0
        self._random = random.Random(seed)

    async def run(self) -> None:
        await asyncio.gather(*(self._space(script) for script in self.scripts))

    async def _space(self, script: Script) -> None:
        recorder, space = self.driven.recorder, script.state.id
        done: list[Record] = []
        for record in script.records:
            while recorder.failing:
                await asyncio.sleep(0.001)
            recorder.append(space, record)
            done.append(record)
            self.driven.states[space] = None  # replaced when a snapshot is asked for
            if not isinstance(record, Frame):
                self.asked += 1
                recorder.commit(space, lambda seq=record.seq: self._acknowledge(space, seq))  # type: ignore[misc]
            if self._random.random() < 0.3:
                await asyncio.sleep(0)
            if self._random.random() < 0.05:
                await asyncio.sleep(0.002)

    def _acknowledge(self, space: str, seq: int) -> None:
        assert seq > self.acknowledged.get(space, 0), "acknowledged out of order"
        self.acknowledged[space] = seq

    def lost(self, data: Path) -> list[str]:
        """What was acknowledged and is not there."""
        journal = LocalJournal(data)
        try:
            missing = []
            for script in self.scripts:
                found = [entry.record for entry in journal.reader.read(script.state.id)]
                if found != script.records[: len(found)]:
                    missing.append(f"{script.state.id}: not what was written")
                acknowledged = self.acknowledged.get(script.state.id, 0)
                if len(found) < acknowledged:
                    missing.append(f"{script.state.id}: {acknowledged} were acknowledged, {len(found)} are there")
            return missing
        finally:
            journal.close()


def _slow(files: ForgetfulFiles, seconds: float = 0.001) -> None:
    files.before_sync = lambda path: time.sleep(seconds)


# -- the power fails ------------------------------------------------------------------------------


@pytest.fixture
def written_beside(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Every second seed: what few records there are is written in the thread for many."""
    if seed % 2:
        monkeypatch.setattr(partition_module, "COMPRESSED_ROWS", 3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("written_beside")
async def test_what_was_acknowledged_survives_a_lost_power(memory: Path, seed: int) -> None:
    """Nothing that was not synced survives."""
    files = ForgetfulFiles()
    _slow(files)
    driven = Driven(memory, files, partitions=2, snapshot_every=10**9)
    load = Load(driven, 3, seed)
    running = asyncio.ensure_future(load.run())
    enough = random.Random(seed).randrange(20, 200)
    while sum(load.acknowledged.values()) < enough and not running.done():
        await asyncio.sleep(0.001)
    driven.die()
    files.crash()
    running.cancel()
    assert load.acknowledged
    assert load.lost(memory) == []


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("written_beside")
async def test_what_was_acknowledged_survives_whatever_else_does(memory: Path, seed: int) -> None:
    """Of what was not synced, any part may have reached the disk. A start that then refuses must
    name a place behind all that was acknowledged."""
    files = ForgetfulFiles()
    _slow(files)
    driven = Driven(memory, files, snapshot_every=10**9)
    load = Load(driven, 1, seed)
    running = asyncio.ensure_future(load.run())
    chance = random.Random(seed)
    enough = chance.randrange(20, 200)
    while load.acknowledged.get("space-0", 0) < enough and not running.done():
        await asyncio.sleep(0.001)
    driven.die()
    files.crash(lambda: chance.random() < 0.6)
    running.cancel()
    try:
        assert load.lost(memory) == []
    except CorruptJournal as error:
        assert error.offset >= load.acknowledged["space-0"], error


async def test_a_start_after_a_lost_power_needs_nobody(memory: Path) -> None:
    """Frames alone are not synced one by one. Several batches of them may have reached the index and
    not the data: that is a torn tail, and no reason not to start."""
    script = lively(60, pauses=False)
    for survivor in ("index", "arrow"):
        data = memory / survivor
        files = ForgetfulFiles()
        driven = Driven(data, files, segment_bytes=10**6)
        acknowledged = asyncio.Event()
        for record in script.records:
            driven.recorder.append(SPACE, record)
        driven.recorder.commit(SPACE, acknowledged.set)
        await acknowledged.wait()
        # Three flushes of frames that no control message follows.
        before = files.syncs
        for number in range(3):
            for frame in script.frame(script.state.streams["stream-1"].owner, "stream-1", b"%d" % number):
                driven.recorder.append(SPACE, frame)
            driven.journal.partitions[0].flush()
        assert files.syncs == before
        count = len(script.records) - 3
        driven.die()
        for path in list(files._writes):
            if path.suffix != f".{survivor}":
                files._writes[path] = []
        files.crash(lambda: True)
        journal = open_journal(data)
        try:
            found = [entry.record for entry in journal.reader.read(SPACE)]
            assert found[:count] == script.records[:count]
            assert journal.recover() == {SPACE: fold(SPACE, found)}
        finally:
            journal.close()
        script.records = script.records[:count]
        script.state = fold(SPACE, script.records)


def test_what_is_flushed_while_a_sync_is_under_way(memory: Path) -> None:
    """A sync is of two files, and writing goes on meanwhile: the index of a batch may become safe before
    its data does. However many of those there are, the next start cuts them off by itself."""
    for flushes in (1, 2, 5):
        data = memory / str(flushes)
        files = ForgetfulFiles()
        script = lively(40, pauses=False)
        journal = LocalJournal(data, partitions=1, synced_commits=True, files=files)
        [partition] = journal.partitions
        rest = iter(script.records[20:])

        def meanwhile(
            path: Path, files: Any = files, partition: Any = partition, rest: Any = rest, count: int = flushes
        ) -> None:
            if path.suffix == ".index":
                files.before_sync = lambda path: None
                for _ in range(count):
                    partition.append(SPACE, "e-1", next(rest))
                    partition.flush(may_roll=False)

        for record in script.records[:20]:
            partition.append(SPACE, "e-1", record)
        partition.flush()
        files.before_sync = meanwhile
        partition.sync()
        abandon(journal)
        files.crash()
        journal = open_journal(data)
        try:
            found = [entry.record for entry in journal.reader.read(SPACE)]
            assert found[:20] == script.records[:20]
            assert found == script.records[: len(found)]
        finally:
            journal.close()


async def test_a_sync_fails_while_a_segment_is_rolled(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames wait unsynced in a full segment when the next control message makes it roll."""
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.005)
    files = ForgetfulFiles()
    driven = Driven(memory, files, segment_bytes=4000, flush_interval=60)
    # Sealing comes later, and beside the loop: the power may fail before it does.
    driven.running.sealer.seal = lambda: None  # type: ignore[method-assign]
    script = Script().begin()
    partition = driven.journal.partitions[0]
    acknowledged = asyncio.Event()
    for record in script.records:
        driven.recorder.append(SPACE, record)
    for number in range(4):
        for frame in script.frame("ann", "stream-1", b"%d" % number):
            driven.recorder.append(SPACE, frame)
        partition.flush(may_roll=False)
    assert files.durable_end() == 0
    failures = 0

    def fail(path: Path) -> int | None:
        nonlocal failures
        failures += 1
        return errno.EIO if failures == 1 else None

    files.fail_sync = fail
    for record in script.send("ann", "chat", text="x"):
        driven.recorder.append(SPACE, record)
    driven.recorder.commit(SPACE, acknowledged.set)
    async with asyncio.timeout(5):
        await acknowledged.wait()
    driven.die()
    files.crash()
    journal = open_journal(memory)
    try:
        assert [entry.record for entry in journal.reader.read(SPACE)] == script.records
    finally:
        journal.close()


async def test_frames_alone_reach_the_disk_too(memory: Path) -> None:
    """The table of the recorder: a lost power loses up to ``flush_interval`` of frames, not an hour."""
    files = ForgetfulFiles()
    driven = Driven(memory, files)
    script = Script().begin()
    for record in script.records:
        driven.recorder.append(SPACE, record)
    for number in range(10):
        for frame in script.frame("ann", "stream-1", b"%d" % number):
            driven.recorder.append(SPACE, frame)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.5):
            while files.durable_end() < len(script.records):
                await asyncio.sleep(0.01)
    durable = files.durable_end()
    driven.die()
    assert durable == len(script.records), "no control message came, so nothing was ever synced"


async def test_the_directories_of_a_new_journal_are_synced(memory: Path) -> None:
    """A file is as safe as the name of the directory that it is in."""
    files = ForgetfulFiles()
    journal = LocalJournal(memory / "data", partitions=2, files=files)
    journal.close()
    root = memory / "data/journal"
    assert {"p0", "p1"} <= files._names.get(root, set()), "the partitions were made after the last sync of journal/"
    assert "journal" in files._names.get(memory / "data", set())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("written_beside")
async def test_sealing_and_snapshots_keep_what_was_acknowledged(memory: Path, seed: int) -> None:
    files = ForgetfulFiles()
    driven = Driven(memory, files, segment_bytes=4000)
    chance = random.Random(seed)
    script = lively(150, seed=seed, pauses=False)
    acknowledged: list[int] = []
    stop_at = chance.randrange(60, 150)
    for place, record in enumerate(script.records[:stop_at], 1):
        driven.recorder.append(SPACE, record)
        driven.recorder.commit(SPACE, lambda seq=record.seq: acknowledged.append(seq))  # type: ignore[misc]
        if place % 40 == 0:
            while len(acknowledged) < place:
                await asyncio.sleep(0.001)
            states = {SPACE: fold(SPACE, script.records[:place])}
            driven.journal.write_snapshot(*driven.journal.encode_snapshot(0, states))
        await asyncio.sleep(0)
    driven.die()
    files.crash(lambda: chance.random() < 0.5)
    journal = open_journal(memory)
    try:
        found = [entry.record for entry in journal.reader.read(SPACE)]
        assert found == script.records[: len(found)]
        assert len(found) >= len(acknowledged)
        assert journal.recover() == {SPACE: fold(SPACE, found)}
    finally:
        journal.close()


# -- a sync that fails ----------------------------------------------------------------------------


async def test_a_sync_fails_once_anywhere(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed sync leaves of the pages is unknown, and the next one says nothing: so all that it
    concerned is written again before anybody is told."""
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.005)
    wrong = []
    for at in range(1, 40):
        files = ForgetfulFiles()
        data = memory / f"at-{at}"
        driven = Driven(data, files, segment_bytes=6000, snapshot_every=10**9)
        first = files.syncs
        failed: list[Path] = []

        def fail(path: Path, files: Any = files, at: int = first + at, failed: Any = failed) -> Any:
            if files.syncs + 1 == at:
                failed.append(path)
                return errno.EIO
            return None

        files.fail_sync = fail
        script = lively(60, space="space-0", seed=at)
        acknowledged: list[int] = []
        asked = 0
        try:
            async with asyncio.timeout(5):
                for record in script.records:
                    while driven.recorder.failing:
                        await asyncio.sleep(0.001)
                    driven.recorder.append("space-0", record)
                    if not isinstance(record, Frame):
                        asked += 1
                        driven.recorder.commit("space-0", partial(acknowledged.append, record.seq))
                    if record.seq % 3 == 0:
                        await asyncio.sleep(0.0015)
                while len(acknowledged) < asked:
                    await asyncio.sleep(0.001)
        except TimeoutError:
            wrong.append(f"sync {at} ({[each.name for each in failed]}): it never recovers")
        driven.die()
        files.crash()
        try:
            journal = LocalJournal(data)
            found = [entry.record for entry in journal.reader.read("space-0")]
            journal.close()
            if len(found) < max(acknowledged, default=0):
                lost = f"{max(acknowledged)} were acknowledged, {len(found)} are there"
                wrong.append(f"sync {at} ({[each.name for each in failed]}): {lost}")
        except CorruptJournal as error:
            wrong.append(f"sync {at} ({[each.name for each in failed]}): {error}")
        if not failed:
            break
    assert not wrong, f"{len(wrong)} times: " + "\n".join(wrong[:6])


# -- a space over the recorder --------------------------------------------------------------------


class FakeMember:
    """Notes what it is handed and when."""

    positions = True
    transport_name = "websocket"
    is_listening = True
    is_reconnect = False
    extensions: list[str] | None = None
    interest = None

    def __init__(self, participant: str, on_push: Callable[[Parcel], None] = lambda parcel: None) -> None:
        self.participant = participant
        self.connection: int | None = None
        self.session = 0
        self.got: list[Parcel] = []
        self.closed: list[CloseReason] = []
        self._on_push = on_push

    def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        assert data == b"".join(piece for parcel in parcels for piece in parcel.pieces(True))
        for parcel in parcels:
            self._on_push(parcel)
            self.got.append(parcel)

    def ask_for_positions(self) -> None: ...

    def close(self, reason: CloseReason, text: str | None = None) -> None:
        self.closed.append(reason)

    def hold_reading(self, why: object) -> None: ...

    def release_reading(self, why: object) -> None: ...

    @property
    def bodies(self) -> str:
        return b"\n".join(body for parcel in self.got for body in parcel.bodies).decode(errors="replace")


def make_space(driven: Driven, *people: str) -> Space:
    config = SpaceConfig(
        id=SPACE,
        name=SPACE,
        description="",
        participants={
            each: ParticipantConfig(id=each, tokens=(each,), capabilities=[{"kind": "*"}]) for each in people
        },
        limits=Limits(),
        policies=Policies(),
        delivery=Delivery(),
        envelope_history=False,
        capability_decisions=False,
        default_capabilities=[],
        source=Path("space.yaml"),
    )
    space = Space(
        config,
        loop=asyncio.get_running_loop(),
        recorder=driven.recorder,
        recovered=driven.journal.recover().get(SPACE),
        metrics=driven.metrics.space(SPACE),
        logs=SpaceLogs(SPACE, None, None),
        threads=ReplayThreads(asyncio.get_running_loop()),
        mint_token=lambda participant: f"token-{participant}",
        forget_token=lambda participant: None,
        connection_url="ws://x",
        work=FairQueue(asyncio.get_running_loop()),
        clock=MachineClock(),
    )
    driven.states[SPACE] = space.state
    return space


def say(space: Space, sender: str, message: bytes) -> Decision:
    return space.envelope(sender, parse_envelope(message, max_id_bytes=128))


@pytest.fixture
async def settled() -> AsyncIterator[Callable[[Callable[[], bool]], Any]]:
    async def wait(ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not ready():
                await asyncio.sleep(0.001)

    yield wait


async def test_nobody_is_told_before_the_disk_has_it(memory: Path, settled: Any) -> None:
    files = ForgetfulFiles()
    _slow(files, 0.002)
    driven = Driven(memory, files)
    space = make_space(driven, "ann", "bob", "cy")
    early: list[tuple[int, int]] = []

    def check(parcel: Parcel) -> None:
        # One space in one partition: the record with seq n is at offset n - 1.
        if parcel.stream is None and parcel.seq > (durable := files.durable_end()):
            early.append((parcel.seq, durable))

    members = [FakeMember(each, check) for each in ("ann", "bob")]
    for member in members:
        assert space.join(member) is None
    ann = members[0]
    say(space, "ann", b'{"id":"r","kind":"stream/request","payload":{}}')
    chance = random.Random(4)
    for number in range(300):
        match chance.randrange(5):
            case 0:
                say(space, "ann", b'{"id":"c-%d","kind":"chat","payload":{"text":"x"}}' % number)
            case 1 if number % 7 == 0:
                what = b"grant" if number % 2 else b"revoke"
                say(
                    space,
                    "ann",
                    b'{"kind":"stream/%b-write","payload":{"stream_id":"stream-1","participant_id":"bob"}}' % what,
                )
            case 2:
                space.frames(members[1], "stream-1", [b"from bob"], 1)
            case _:
                space.frames(ann, "stream-1", [b"%d" % number], 2)
        if chance.random() < 0.4:
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.004)))
    say(space, "ann", b'{"id":"last","kind":"chat","payload":{"text":"x"}}')
    last = space.state.seq
    await settled(lambda: all(member.got and member.got[-1].seq >= last for member in members))
    assert early == [], f"{len(early)} control messages were told before they were durable (seq, durable): {early[:5]}"
    for member in members:
        seqs = [parcel.seq for parcel in member.got]
        assert seqs == sorted(seqs), "something was overtaken"
        mine = [parcel.seq for parcel in member.got if b'"system/welcome"' not in parcel.bodies[0]]
        assert len(mine) == len(set(mine)), "something was told twice"
    frames = [parcel.seq for parcel in ann.got if parcel.stream is not None]
    assert frames == [parcel.seq for parcel in members[1].got if parcel.stream is not None]
    assert len(frames) > 100
    space.stop()
    driven.die()


async def test_an_outbox_lets_nothing_overtake(settled: Any) -> None:
    """The gate opens late and one at a time; frames, control messages and actions keep their order."""
    waiting: list[Callable[[], None]] = []
    outbox = Outbox(asyncio.get_running_loop(), 1 << 16, waiting.append)
    member = FakeMember("ann")
    audience = Audience((member,))
    done: list[int] = []

    def add(seq: int, stream: str | None) -> None:
        outbox.add(Parcel(audience, 1, [b"x"], None, seq, stream))

    add(1, "s")
    outbox.flush()
    assert [parcel.seq for parcel in member.got] == [1], "a frame alone waits for nobody"
    add(2, None)
    outbox.flush()
    add(3, "s")
    outbox.flush()
    outbox.then(lambda: done.append(len(member.got)))
    add(4, None)
    add(5, "s")
    await asyncio.sleep(0)
    add(6, "s")
    outbox.flush()
    assert [parcel.seq for parcel in member.got] == [1]
    assert len(waiting) == 1, "one question at a time"
    waiting.pop()()
    assert [parcel.seq for parcel in member.got] == [1, 2, 3]
    assert done == [3]
    assert len(waiting) == 1
    waiting.pop()()
    assert [parcel.seq for parcel in member.got] == [1, 2, 3, 4, 5, 6]
    add(7, "s")
    outbox.flush()
    assert [parcel.seq for parcel in member.got][-1] == 7
    assert not waiting


async def test_a_failing_sync_is_said_and_gone_over(
    memory: Path, settled: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.05)
    files = ForgetfulFiles()
    driven = Driven(memory, files, segment_bytes=10**6)
    space = make_space(driven, "ann", "bob", "cy")
    ann, bob = FakeMember("ann"), FakeMember("bob")
    for member in (ann, bob):
        assert space.join(member) is None
    say(space, "ann", b'{"id":"r","kind":"stream/request","payload":{}}')
    await settled(lambda: "stream/open" in bob.bodies)
    broken = True
    files.fail_sync = lambda path: errno.EIO if broken else None
    say(space, "ann", b'{"id":"unsure","kind":"chat","payload":{"text":"unsure"}}')
    await settled(lambda: driven.recorder.failing)
    assert driven.is_failing
    assert "unsure" not in bob.bodies
    refused = say(space, "ann", b'{"id":"no","kind":"chat","payload":{"text":"refused"}}').records[-1]
    assert (refused.code, refused.http_status) == ("journal_unavailable", 503)  # type: ignore[attr-defined]
    assert ann.bodies.count("journal_unavailable") == 1
    space.frames(ann, "stream-1", [b"refused"], 1)
    assert ann.bodies.count("journal_unavailable") == 2
    refusal = space.join(FakeMember("cy"))
    assert refusal is not None
    assert refusal.reason is CloseReason.JOURNAL_UNAVAILABLE
    broken = False
    await settled(lambda: not driven.recorder.failing and "unsure" in bob.bodies)
    assert not driven.is_failing
    assert "refused" not in bob.bodies
    say(space, "ann", b'{"id":"after","kind":"chat","payload":{"text":"after"}}')
    await settled(lambda: "after" in bob.bodies)
    last = bob.got[-1].seq
    space.stop()
    driven.die()
    files.crash()
    journal = open_journal(memory)
    found = [entry.record for entry in journal.reader.read(SPACE)]
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    assert len(found) >= last
    journal.close()


async def test_a_disk_that_stays_broken_is_reported_once(
    memory: Path, settled: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sync that fails again and again: one line when it begins, one when it is over."""
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.01)
    files = ForgetfulFiles()
    driven = Driven(memory, files, segment_bytes=10**6)
    space = make_space(driven, "ann")
    ann = FakeMember("ann")
    space.join(ann)
    await settled(lambda: "welcome" in ann.bodies)
    failures = 0

    def fail(path: Path) -> int | None:
        nonlocal failures
        failures += 1
        return errno.EIO if failures <= 8 else None

    files.fail_sync = fail
    say(space, "ann", b'{"id":"x","kind":"chat","payload":{"text":"unsure"}}')
    await settled(lambda: "unsure" in ann.bodies)
    space.stop()
    driven.die()
    said = [each for each in caplog.messages if "cannot be written" in each]
    over = [each for each in caplog.messages if "can be written again" in each]
    assert (len(said), len(over)) == (1, 1), caplog.messages


async def test_one_failure_in_several_partitions_is_reported_once(
    memory: Path, settled: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_journal, "RETRY_SECONDS", 0.05)
    files = ForgetfulFiles()
    _slow(files, 0.005)
    driven = Driven(memory, files, partitions=4, segment_bytes=10**6)
    scripts = [lively(20, space=f"space-{number}", seed=number) for number in range(12)]
    broken = True
    files.fail_sync = lambda path: errno.EIO if broken else None
    acknowledged: set[str] = set()
    for script in scripts:
        for record in script.records:
            driven.recorder.append(script.state.id, record)
    for script in scripts:
        driven.recorder.commit(script.state.id, lambda id=script.state.id: acknowledged.add(id))  # type: ignore[misc]
    await settled(lambda: driven.recorder.failing)
    await asyncio.sleep(0.03)  # the other partitions fail as well
    broken = False
    await settled(lambda: len(acknowledged) == 12)
    await asyncio.sleep(0.2)
    driven.die()
    assert len([each for each in caplog.messages if "cannot be written" in each]) == 1
    assert len([each for each in caplog.messages if "can be written again" in each]) == 1, caplog.messages


# -- snapshots of a running space -----------------------------------------------------------------


@pytest.mark.parametrize("flush_bytes", [1, 500, 5000, 1 << 20])
async def test_a_snapshot_has_all_records_up_to_its_offset(memory: Path, flush_bytes: int) -> None:
    """Records are flushed early when many bytes wait; a snapshot at that moment must not miss the record
    that made it so many."""
    driven = Driven(memory, None, durability="flush", flush_bytes=flush_bytes, snapshot_every=7, flush_interval=0.001)
    space = make_space(driven, "ann", "bob")
    ann = FakeMember("ann")
    space.join(ann)
    say(space, "ann", b'{"id":"r","kind":"stream/request","payload":{}}')
    await asyncio.sleep(0)
    wrong = []
    for number in range(60):
        space.frames(ann, "stream-1", [bytes(100)], 2)
        if number % 9 == 0:
            say(space, "ann", b'{"id":"r-%d","kind":"stream/request","payload":{}}' % number)
        if number % 5 == 0:
            await asyncio.sleep(0.002)
    driven.flush()
    await asyncio.sleep(0.01)
    space.stop()
    driven.die()
    journal = open_journal(memory)
    try:
        found = [entry.record for entry in journal.reader.entries(0)]
        for file in sorted((memory / "journal/p0").glob("snapshot-*.json")):
            offset, states = read_snapshot(file, journal.identity.id)
            if states[SPACE] != fold(SPACE, found[:offset]):
                wrong.append(f"{file.name} is at offset {offset} and has the state of seq {states[SPACE].seq}")
        assert not wrong, wrong
        assert journal.recover() == {SPACE: fold(SPACE, found)}
    finally:
        journal.close()
