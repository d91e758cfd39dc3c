"""Coming back (decision 25): what was missed, once and in order, then the live flow; or a clear no."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from making import POSITIONS, JournaledGateway, is_welcome, journaled, position, positioned_frame, seq_of

from mewstream.journal.erase import erase
from mewstream.journal.local import LocalJournal
from mewstream.journal.retention import Retention, plan_pruning
from support import Client, space_config

CONFIG = space_config("ann", "bob", "cy", "dee")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[JournaledGateway]:
    async with journaled(tmp_path, CONFIG) as made:
        yield made


async def resume(gateway: JournaledGateway, participant: str, at: dict[str, Any]) -> Client:
    return await gateway.join(participant, **POSITIONS, resume=at)


def told(client: Client, *, after: int = 0) -> list[Any]:
    """What came after the welcome, in order, as (seq, what): the same for everyone who was told the same."""
    found = []
    for message in client.got:
        seq = seq_of(message)
        if is_welcome(message) or seq is None or seq <= after:
            continue
        frame = positioned_frame(message)
        found.append((seq, frame if frame is not None else json.dumps(message, sort_keys=True)))
    return found


def is_told_in_order(client: Client) -> bool:
    seqs = [seq for seq, _ in told(client)]
    return seqs == sorted(set(seqs))


async def talk(ann: Client, stream: str, count: int) -> None:
    for number in range(count):
        await ann.frame(stream, f"{number}" if number % 2 else b"%d" % number)
        if number % 7 == 0:
            await ann.send("chat", {"text": f"{number}"})


# -- exactly once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["connection", "kill", "term"])
async def test_what_was_missed_comes_once_and_in_order(gateway: JournaledGateway, how: str) -> None:
    """Compared with somebody who was connected all the time, or came back before anything happened."""
    ann, bob, cy = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "cy")]
    stream = await ann.open_stream()
    await talk(ann, stream, 20)
    await bob.settle()
    await ann.settle()
    await cy.settle()
    was = position(bob)
    await bob.close()
    await cy.receive("system/presence", event="leave")
    if how != "connection":
        cy_was = position(cy)
        await gateway.restart(how)
        cy = await resume(gateway, "cy", cy_was)
        assert cy.welcome["payload"]["resume"]["recovered"]
        ann = await gateway.join("ann", **POSITIONS)
    await talk(ann, stream, 40)
    id = await ann.send("stream/grant-write", {"stream_id": stream, "participant_id": "cy"})
    await ann.receive("stream/write-granted", of=id)
    await ann.settle()
    bob = await resume(gateway, "bob", was)
    recovery = bob.welcome["payload"]["resume"]
    assert recovery == {"recovered": True, "from_seq": was["seq"] + 1, "to_seq": bob.welcome["payload"]["seq"]}
    await ann.frame(stream, "live")
    await ann.send("chat", {"text": "live"})
    await bob.receive("chat", text="live")
    await cy.receive("chat", text="live")
    assert is_welcome(bob.got[0]), "the welcome comes first"
    assert is_told_in_order(bob)
    # Nothing is about oneself: one's own leave and return are told to the others only.
    mine = [entry for entry in told(bob) if '"id": "bob"' not in str(entry[1])]
    start = max(was["seq"], min(seq for seq, _ in told(cy)) - 1) if how != "connection" else was["seq"]
    theirs = [entry for entry in told(cy, after=start) if '"id": "bob"' not in str(entry[1])]
    mine = [entry for entry in mine if entry[0] > start]
    assert mine == [entry for entry in theirs if '"participant": {"id": "cy"' not in entry[1]] or _same(mine, theirs)
    live = [seq for seq, _ in told(bob) if seq > recovery["to_seq"]]
    assert len(live) == 2
    await gateway.end("term")


def _same(mine: list[Any], theirs: list[Any]) -> bool:
    """But for what each was told of the other's coming and going."""

    def presence(entry: Any) -> bool:
        return isinstance(entry[1], str) and '"system/presence"' in entry[1]

    return [entry for entry in mine if not presence(entry)] == [entry for entry in theirs if not presence(entry)]


async def test_frames_keep_flowing_during_the_resume(gateway: JournaledGateway) -> None:
    """Again and again, in the middle of a flow: no hole, no overlap, against one who never left."""
    ann, cy = [await gateway.join(each, **POSITIONS) for each in ("ann", "cy")]
    stream = await ann.open_stream()
    stop = asyncio.Event()

    async def flow() -> int:
        number = 0
        while not stop.is_set():
            await ann.frame(stream, f"{number}")
            if number % 10 == 0:
                await ann.send("chat", {"text": f"{number}"})
            number += 1
            if number % 3 == 0:
                await asyncio.sleep(0.001)
        return number

    async def drain(client: Client) -> None:
        while True:
            await client.next(60)

    keeping = asyncio.ensure_future(drain(cy))
    own = asyncio.ensure_future(drain(ann))
    flowing = asyncio.ensure_future(flow())
    chance = random.Random(2)
    bob = await gateway.join("bob", **POSITIONS)
    first = bob.welcome["payload"]["seq"]
    seen: dict[int, Any] = {}
    for round in range(8):
        for _ in range(chance.randrange(1, 120)):
            await bob.next()
        was = position(bob)
        for seq, what in told(bob):
            assert seq not in seen, f"seq {seq} was told twice"
            seen[seq] = what
        bob.connection.transport.abort()
        if chance.random() < 0.7:
            await asyncio.sleep(chance.random() * 0.1)
        bob = await resume(gateway, "bob", was)
        recovery = bob.welcome["payload"]["resume"]
        assert recovery["recovered"], (round, recovery)
        assert recovery["from_seq"] == was["seq"] + 1
    stop.set()
    assert await flowing > 500
    await bob.settle()
    for seq, what in told(bob):
        assert seq not in seen, f"seq {seq} was told twice"
        seen[seq] = what
    last = max(seen)
    async with asyncio.timeout(10):
        while max(seq_of(message) or 0 for message in cy.got[-5:]) < last:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for task in (keeping, own):
        task.cancel()
    # Presence is told to the others, a notice of drops to the one whose connection was lost.
    private = ('"system/presence"', '"system/notice"')

    def shared(what: Any) -> bool:
        return not (isinstance(what, str) and any(each in what for each in private))

    expected = {seq: what for seq, what in told(cy, after=first) if seq <= last and shared(what)}
    mine = {seq: what for seq, what in seen.items() if shared(what)}
    assert sorted(mine) == sorted(expected)
    assert mine == expected
    await gateway.end("term")


async def test_a_position_of_an_older_run(gateway: JournaledGateway) -> None:
    """Two restarts later it still means what it meant."""
    ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
    await bob.settle()
    was = position(bob)
    texts = []
    for how in ("kill", "term", "kill"):
        await ann.send("chat", {"text": how + str(len(texts))})
        texts.append(how + str(len(texts)))
        await ann.receive("chat")
        await gateway.restart(how)
        ann = await gateway.join("ann", **POSITIONS)
    bob = await resume(gateway, "bob", was)
    assert bob.welcome["payload"]["resume"]["from_seq"] == was["seq"] + 1
    await bob.settle()
    chats = [each for each in bob.got if isinstance(each, dict) and each["kind"] == "chat"]
    assert [each["payload"]["text"] for each in chats] == texts
    assert is_told_in_order(bob)
    await gateway.end("term")


async def test_a_long_absence(gateway: JournaledGateway) -> None:
    """Much was missed, all within ``resume_records``: it all comes, or none of it and the reason why. A client
    that comes back is never thrown out for what it has missed: it would come back to the same."""
    ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
    stream = await ann.open_stream()
    await bob.settle()
    was = position(bob)
    await bob.close()
    count, size = 3000, 8000
    for number in range(count):
        await ann.frame(stream, b"%08d" % number + bytes(size))
        if number % 50 == 0:
            await ann.settle()
    await ann.settle()
    bob = await resume(gateway, "bob", was)
    recovery = bob.welcome["payload"]["resume"]
    await bob.settle()
    frames = [frame for message in bob.got if (frame := positioned_frame(message)) is not None]
    assert recovery["recovered"] or "missed" in recovery["reason"]
    assert [int(frame.data[:8]) for frame in frames] == (list(range(count)) if recovery["recovered"] else [])
    await gateway.end("term")


async def test_frames_that_did_not_survive_leave_no_hole(tmp_path: Path) -> None:
    """A frame was told and not yet written when the gateway was killed. The next run writes other
    records under those positions before it is open: who has seen the frame must not miss them."""
    async with journaled(tmp_path, CONFIG, flush_interval=60) as gateway:
        ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
        stream = await ann.open_stream()
        soon = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()
        grant = {"stream_id": stream, "participant_id": "bob", "conditions": {"expires_at": soon}}
        id = await ann.send("stream/grant-write", grant)
        await bob.receive("stream/write-granted")
        await ann.receive("stream/write-granted", of=id)
        await ann.frame(stream, "told, and not written")
        await bob.wait_for(lambda message: positioned_frame(message) is not None)
        was = position(bob)
        await gateway.restart("kill", after=0.6)
        bob = await resume(gateway, "bob", was)
        recovery = bob.welcome["payload"]["resume"]
        await bob.settle()
        revoked = [each for each in bob.got if isinstance(each, dict) and each["kind"] == "stream/write-revoked"]
        assert revoked or not recovery["recovered"], f"{recovery}, and the revoke at seq {was['seq']} was never told"
        await gateway.end("term")


# -- what is not told -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["connection", "kill"])
async def test_only_what_one_could_read(gateway: JournaledGateway, how: str) -> None:
    ann, bob, _ = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "cy")]
    private = await ann.open_stream(target=["ann", "cy"])
    open_to_all = await ann.open_stream()
    await bob.settle()
    was = position(bob)
    await bob.close()
    await ann.receive("system/presence", event="leave")
    if how == "kill":
        await gateway.restart("kill")
        ann = await gateway.join("ann", **POSITIONS)
    await ann.frame(private, "secret 1")
    await ann.frame(open_to_all, "open 1")
    bob = await gateway.join("bob")  # has to be here to be granted to
    id = await ann.send("stream/grant-read", {"stream_id": private, "participant_id": "bob"})
    await ann.receive("stream/read-granted", of=id)
    await bob.close()
    await ann.receive("system/presence", event="leave")
    await ann.frame(private, "readable")
    id = await ann.send("stream/revoke-read", {"stream_id": private, "participant_id": "bob"})
    await ann.receive("stream/read-revoked", of=id)
    await ann.frame(private, "secret 2")
    data = {"stream_id": private, "sequence": 1, "content": "secret 3"}
    await ann.send("stream/data", data)
    await ann.frame(open_to_all, "open 2")
    await ann.settle()
    bob = await resume(gateway, "bob", was)
    assert bob.welcome["payload"]["resume"]["recovered"]
    await bob.settle()
    assert [frame.data for message in bob.got if (frame := positioned_frame(message))] == [
        b"open 1",
        b"readable",
        b"open 2",
    ]
    assert "secret" not in str(bob.got)
    await gateway.end("term")


async def test_no_private_message_of_another(gateway: JournaledGateway) -> None:
    ann, bob, cy = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "cy")]
    await bob.settle()
    await cy.settle()
    was, cy_was = position(bob), position(cy)
    for client in (bob, cy):
        await client.close()
        await ann.receive("system/presence", event="leave")
    await ann.send("stream/close", {"stream_id": "stream-9"})
    await ann.error("stream_not_found")
    id = await ann.send("space/invite", {"participant_id": "guest", "capabilities": [{"kind": "chat"}]})
    token = (await ann.receive("space/invite-ack", of=id))["payload"]["token"]
    await ann.settle()
    ann_was = position(ann)
    cy = await resume(gateway, "cy", cy_was)
    await cy.send("chat", {})
    await cy.error("validation_error")
    bob = await resume(gateway, "bob", was)
    await bob.settle()
    kinds = [each["kind"] for each in bob.got if isinstance(each, dict)]
    assert "system/error" not in kinds
    assert "space/invite-ack" not in kinds
    assert kinds.count("system/welcome") == 1
    assert token not in str(bob.got)
    assert is_told_in_order(bob)
    # One's own error is one's own to have again.
    ann = await resume(gateway, "ann", {**ann_was, "seq": ann_was["seq"] - 6})
    await ann.settle()
    await gateway.end("term")


async def test_nothing_from_before_the_first_join(gateway: JournaledGateway) -> None:
    ann = await gateway.join("ann", **POSITIONS)
    stream = await ann.open_stream()
    await ann.frame(stream, "before you came")
    await ann.settle()
    epoch = ann.welcome["payload"]["epoch"]
    # Never here: a position that was made up, or heard of.
    bob = await resume(gateway, "bob", {"epoch": epoch, "seq": 1})
    first = bob.welcome["payload"]["seq"]
    assert bob.welcome["payload"]["resume"]["recovered"] is False
    await bob.close()
    await ann.receive("system/presence", event="leave")
    await ann.frame(stream, "after")
    await ann.settle()
    for how in ("connection", "kill"):
        if how == "kill":
            await gateway.restart("kill")
        bob = await resume(gateway, "bob", {"epoch": epoch, "seq": 1})
        assert bob.welcome["payload"]["resume"]["from_seq"] == first + 1
        await bob.settle()
        assert min(seq for seq, _ in told(bob)) > first
        assert "before you came" not in str(bob.got)
        assert [frame.data for message in bob.got if (frame := positioned_frame(message))] == [b"after"]
        await bob.close()
    await gateway.end("term")


# -- a clear no -----------------------------------------------------------------------------------


async def refused(gateway: JournaledGateway, participant: str, at: dict[str, Any], **fields: Any) -> str:
    """The reason why there is nothing to send again. The welcome comes all the same, and then the live flow."""
    client = await gateway.join(participant, **{**POSITIONS, **fields}, resume=at)
    recovery = client.welcome["payload"]["resume"]
    assert recovery["recovered"] is False
    before = await client.settle()
    assert [each for each in before if seq_of(each) is not None and not is_welcome(each)] == []
    return str(recovery["reason"])


async def test_a_position_of_another_journal(gateway: JournaledGateway) -> None:
    bob = await gateway.join("bob", **POSITIONS)
    await bob.settle()
    was = position(bob)
    await gateway.end("term")
    shutil.rmtree(gateway.data)
    gateway.start()
    await gateway.join("ann")
    assert "another journal" in await refused(gateway, "bob", was)
    assert "another journal" in await refused(gateway, "bob", {"epoch": "", "seq": 0})
    await gateway.end("term")


async def test_a_position_of_a_space_that_was_erased(gateway: JournaledGateway) -> None:
    """The space begins anew with ``seq`` 1. When it has come as far as it was, a position of before means something
    else there: the epoch tells."""
    bob = await gateway.join("bob", **POSITIONS)
    await bob.settle()
    was = position(bob)
    await gateway.end("term")
    with contextlib.closing(LocalJournal(gateway.data)) as journal:
        assert erase(journal, "demo", journal.recover()).records
    gateway.start()
    ann = await gateway.join("ann", **POSITIONS)
    for number in range(20):
        await ann.send("chat", {"text": f"{number}"})
    await ann.settle()
    assert position(ann)["seq"] > was["seq"]
    assert "a run that is forgotten" in await refused(gateway, "bob", was)
    await gateway.restart("term")
    assert "a run that is forgotten" in await refused(gateway, "bob", was)
    await gateway.end("term")


async def test_a_position_beyond_the_end(gateway: JournaledGateway) -> None:
    bob = await gateway.join("bob", **POSITIONS)
    await bob.settle()
    was = position(bob)
    assert "ends at" in await refused(gateway, "bob", {**was, "seq": was["seq"] + 10_000})
    await gateway.restart("kill")
    assert "did not survive" in await refused(gateway, "bob", {**was, "seq": was["seq"] + 10_000})
    await gateway.end("term")


async def test_more_than_is_sent_again(tmp_path: Path) -> None:
    config = {**CONFIG, "mewstream": {"limits": {"resume_records": 50}}}
    async with journaled(tmp_path, config) as gateway:
        ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
        stream = await ann.open_stream()
        await bob.settle()
        was = position(bob)
        await bob.close()
        await ann.receive("system/presence", event="leave")
        for number in range(45):
            await ann.frame(stream, f"{number}")
        await ann.settle()
        bob = await resume(gateway, "bob", was)
        assert bob.welcome["payload"]["resume"]["recovered"]
        await bob.settle()
        was = position(bob)
        await bob.close()
        await ann.receive("system/presence", event="leave")
        for number in range(60):
            await ann.frame(stream, f"{number}")
        await ann.settle()
        assert "at most 50" in await refused(gateway, "bob", was)
        await gateway.end("term")


async def test_without_positions(gateway: JournaledGateway) -> None:
    bob = await gateway.join("bob", **POSITIONS)
    await bob.settle()
    was = position(bob)
    await bob.close()
    assert "positions" in await refused(gateway, "bob", was, extensions=[])
    await gateway.end("term")


def prune(data: Path) -> int:
    """Remove all that retention allows, while no gateway runs; the first offset that is left."""
    journal = LocalJournal(data)
    plan = plan_pruning(
        journal.root,
        Retention(max_bytes=1),
        now=0,
        partitions=len(journal.partitions),
        snapshots=journal.snapshot_offsets(),
    )
    journal.prune(plan)
    journal.close()
    return max(plan.begins_at.values(), default=0)


async def test_a_position_that_was_pruned(tmp_path: Path) -> None:
    async with journaled(tmp_path, CONFIG, segment_bytes=4000) as gateway:
        ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
        stream = await ann.open_stream()
        await bob.settle()
        was = position(bob)
        for number in range(100):
            await ann.frame(stream, f"{number}")
            if number % 10 == 0:
                await ann.settle()
        await bob.settle()
        late = position(bob)
        await gateway.end("term")
        assert prune(gateway.data) > was["seq"]
        gateway.start()
        assert "too old" in await refused(gateway, "bob", was)
        # What is still there is told.
        ann = await gateway.join("ann", **POSITIONS)
        bob = await resume(gateway, "bob", late)
        assert bob.welcome["payload"]["resume"]["recovered"]
        # The state has survived its records.
        assert [each["stream_id"] for each in bob.welcome["payload"]["active_streams"]] == [stream]
        assert await ann.open_stream() == "stream-2"
        await gateway.end("term")


# -- over HTTP ------------------------------------------------------------------------------------


async def messages(gateway: JournaledGateway, participant: str, since: int | str) -> dict[str, Any]:
    path = f"/participants/{participant}/messages"
    status, body = await gateway.http("GET", path, participant, params={"since": since})
    assert status == 200, body
    return dict(body)


async def test_messages_since_are_read_from_the_journal(gateway: JournaledGateway) -> None:
    ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
    private = await ann.open_stream(target=["ann"])
    stream = await ann.open_stream()
    await ann.frame(stream, "one")
    await ann.frame(private, "secret")
    await ann.send("stream/close", {"stream_id": "stream-9"})
    await ann.error("stream_not_found")
    middle = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    await ann.send("chat", {"text": "two"})
    await ann.settle()
    await bob.settle()
    start = bob.welcome["payload"]["seq"]
    live = await messages(gateway, "bob", start)
    for how in ("kill", "term"):
        await gateway.restart(how)
        again = await messages(gateway, "bob", start)
        assert again["messages"][: len(live["messages"])] == live["messages"]
        assert "secret" not in str(again)
        assert "stream_not_found" not in str(again)
        assert "stream_not_found" in str(await messages(gateway, "ann", start))
        by_time = await messages(gateway, "bob", middle)
        first = by_time["messages"][0]["seq"]
        assert by_time["messages"] == [each for each in again["messages"] if each["seq"] >= first]
        assert by_time["messages"][0]["payload"] == {"text": "two"}
        # From where one answer ends the next goes on.
        assert (await messages(gateway, "bob", again["seq"]))["messages"] == []
    await gateway.end("term")


async def test_messages_since_a_position_that_was_pruned(tmp_path: Path) -> None:
    async with journaled(tmp_path, CONFIG, segment_bytes=4000) as gateway:
        ann = await gateway.join("ann", **POSITIONS)
        stream = await ann.open_stream()
        for number in range(60):
            await ann.frame(stream, f"{number}")
            if number % 10 == 0:
                await ann.settle()
        await ann.settle()
        await gateway.end("term")
        assert prune(gateway.data) > 10
        gateway.start()
        path = "/participants/ann/messages"
        for since in (5, 0):
            status, body = await gateway.http("GET", path, "ann", params={"since": since})
            assert status < 500, body
        await gateway.end("term")
