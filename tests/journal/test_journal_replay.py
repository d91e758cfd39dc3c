"""A gateway reads the journal for its participants: little more than it sends them, in threads, and only while they are
members."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import oracle
import psutil
import pytest
from making import (
    POSITIONS,
    JournaledGateway,
    QuickFiles,
    journaled,
    position,
    positioned_frame,
    segment_files,
)

from mewstream.journal.local import LocalJournal
from mewstream.journal.retention import PrunePlan
from support import Client, space_config

QUICK = QuickFiles()
CONFIG = space_config("ann", "bob", "cy", always_here=("pia", "quinn"))


# -- over HTTP ------------------------------------------------------------------------------------


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[JournaledGateway]:
    async with journaled(tmp_path, CONFIG) as made:
        yield made


async def polled(gateway: JournaledGateway, who: str, since: int | str = 0) -> tuple[int, Any]:
    return await gateway.http("GET", f"/participants/{who}/messages", who, params={"since": since})


async def texts(gateway: JournaledGateway, who: str, since: int | str = 0) -> list[str]:
    status, answer = await polled(gateway, who, since)
    assert status == 200, answer
    return [each["payload"]["text"] for each in answer["messages"] if each["kind"] == "chat"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_nothing_from_before_the_first_join(gateway: JournaledGateway, restarted: bool) -> None:
    ann = await gateway.join("ann", **POSITIONS)
    await ann.send("chat", {"text": "before bob"})
    await ann.settle()
    at_first = {"epoch": ann.welcome["payload"]["epoch"], "seq": 1}
    bob = await gateway.join("bob", **POSITIONS)
    await ann.send("chat", {"text": "with bob"})
    await ann.settle()
    await bob.close()
    await ann.receive("system/presence", event="leave")
    await ann.send("chat", {"text": "while bob was away"})
    await ann.settle()
    if restarted:
        await gateway.restart("kill")
        ann = await gateway.join("ann", **POSITIONS)
    bob = await gateway.join("bob", **POSITIONS)
    for since in (0, 1, 2, "1970-01-01T00:00:00Z"):
        assert await texts(gateway, "bob", since) == ["with bob", "while bob was away"], since
    assert await texts(gateway, "ann", 0) == ["before bob", "with bob", "while bob was away"]
    assert await texts(gateway, "pia", 0) == ["before bob", "with bob", "while bob was away"]
    # Nor by coming back.
    await bob.close()
    bob = await gateway.join("bob", **POSITIONS, resume=at_first)
    await bob.settle()
    assert "before bob" not in json.dumps([each for each in bob.got if isinstance(each, dict)])
    assert "with bob" in json.dumps([each for each in bob.got if isinstance(each, dict)])
    await gateway.end("term")


async def test_who_is_not_here_reads_nothing(gateway: JournaledGateway) -> None:
    """Not who has never come, not who has left, not who was sent away; and who is expected back does."""
    ann = await gateway.join("ann")

    async def is_refused(who: str) -> None:
        for since in (0, 1, "2020-01-01T00:00:00Z"):
            status, answer = await polled(gateway, who, since)
            assert (status, answer["payload"]["error"]) == (403, "unauthorized")
            assert "join" in answer["payload"]["message"]

    await is_refused("bob")
    bob = await gateway.join("bob")
    assert (await polled(gateway, "bob"))[0] == 200
    await bob.close()
    await ann.receive("system/presence", event="leave")
    await is_refused("bob")
    bob = await gateway.join("bob")
    assert (await polled(gateway, "bob"))[0] == 200
    await ann.send("space/kick", {"participant_id": "bob"})
    await bob.closed()
    await is_refused("bob")
    # Who was here when the gateway ended is expected back.
    await gateway.restart("kill")
    assert (await polled(gateway, "ann"))[0] == 200
    await gateway.end("term")


async def test_sent_away_while_it_reads(tmp_path: Path) -> None:
    """The answer is made for one who is here, and given to one who still is."""
    async with journaled(tmp_path, CONFIG) as gateway:
        ann, bob = [await gateway.join(each) for each in ("ann", "bob")]
        stream = await ann.open_stream()
        for _ in range(4):
            await asyncio.gather(*(ann.frame(stream, "x" * 1000) for _ in range(1000)))
            await ann.settle()
        await bob.settle()
        outcomes = set()
        for _ in range(20):
            reading = [asyncio.create_task(polled(gateway, "bob")) for _ in range(3)]
            id = await ann.send("space/kick", {"participant_id": "bob"})
            await ann.receive("space/kick", timeout=10)
            told = json.dumps([id])
            for task in reading:
                status, answer = await task
                outcomes.add(status)
                if status == 403:
                    assert "messages" not in answer, told
            bob = await gateway.join("bob")
        assert outcomes <= {200, 403}
        assert 403 in outcomes
        await gateway.end("term")


async def history(gateway: JournaledGateway) -> dict[str, float]:
    _, text = await gateway.http("GET", "/metrics")
    return {
        name: float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        for name in ("batches", "bytes")
        if line.startswith(f"mewstream_history_{name}_read_total ")
    }


async def long_log(gateway: JournaledGateway, frames: int) -> None:
    ann = await gateway.join("ann", **POSITIONS)
    stream = await ann.open_stream()
    for start in range(0, frames, 2000):
        await asyncio.gather(*(ann.frame(stream, random.randbytes(50).hex()) for _ in range(start, start + 2000)))
        await ann.settle()
        ann.got.clear()
    await ann.close()


async def test_a_page_of_a_long_log(tmp_path: Path) -> None:
    """It reads about what it tells, and its memory is that of a page: by 40 at a time, a resume beside them, and
    however often. The whole log was read for each page."""
    config = space_config("ann", "bob", always_here=tuple(f"reader-{number}" for number in range(10)))
    async with journaled(tmp_path, config, segment_bytes=1 << 20) as gateway:
        bob = await gateway.join("bob", **POSITIONS)
        await bob.settle()
        await long_log(gateway, 60_000)
        # Nothing in memory: all of it comes from the journal. Sealed by a quiet gateway, within a second.
        was = position(bob)
        await gateway.restart("term")
        async with asyncio.timeout(30):
            while not is_sealed(gateway.data):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        whole = sum(file.stat().st_size for file in gateway.data.rglob("*.arrow"))
        assert whole > 3 << 20
        # The open segment does not say by itself what is in it: it is read once.
        assert (await polled(gateway, "reader-0", 59_000))[0] == 200
        status, first = await polled(gateway, "reader-0", 1)
        assert status == 200
        process = psutil.Process(gateway.pid)
        before, memory = await history(gateway), process.memory_info().rss
        costs = []
        for number in range(10):
            start = await history(gateway)
            status, answer = await polled(gateway, f"reader-{number}", 1 + number * 5000)
            assert status == 200
            assert len(answer["messages"]) > 900
            end = await history(gateway)
            costs.append((end["batches"] - start["batches"], end["bytes"] - start["bytes"]))
        # A page of 1000 lies in one batch, or two: each is 16,384 rows at most.
        assert max(batches for batches, _ in costs) <= 3, costs
        assert max(size for _, size in costs) < whole / 4, costs

        async def poll_forever(who: str) -> None:
            while True:
                await polled(gateway, who, 1)

        polling = [asyncio.create_task(poll_forever(f"reader-{number % 10}")) for number in range(40)]
        await asyncio.sleep(0.5)
        late = {**was, "seq": 60_000 - 3000}
        for _ in range(3):
            bob = await gateway.join("bob", **POSITIONS, resume=late)
            assert bob.welcome["payload"]["resume"]["recovered"], bob.welcome["payload"]["resume"]
            await bob.settle()
            got = sum(positioned_frame(each) is not None for each in bob.got)
            assert got > 2900
            await bob.close()
        grown = process.memory_info().rss - memory
        for task in polling:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*polling, return_exceptions=True)
        assert grown < 150 << 20, f"{grown >> 20} MiB"
        pages = (await history(gateway))["bytes"] - before["bytes"]
        assert pages > 0
        assert first["messages"][0]["seq"] > 1
        await gateway.end("term")


def is_sealed(data: Path) -> bool:
    """All segments but the last of each partition."""
    for partition in (data / "journal").glob("p*"):
        names = {file.name.partition(".")[0] for file in partition.glob("*.index")}
        if len(list(partition.glob("*.sealed.index"))) < len(names) - 1 or list(partition.glob("*.tmp")):
            return False
    return True


async def test_pages_go_on_where_they_ended(gateway: JournaledGateway) -> None:
    """Page by page it is everything once, from memory and from the journal."""
    cy = await gateway.join("cy", **POSITIONS)
    await cy.settle()
    await long_log(gateway, 6_000)
    for restarted in (False, True):
        if restarted:
            await gateway.restart("kill")
        found: list[int] = []
        since = 0
        while True:
            status, answer = await polled(gateway, "pia", since)
            assert status == 200
            found += [each["seq"] for each in answer["messages"]]
            if answer["seq"] == since:
                break
            since = answer["seq"]
        assert found == sorted(set(found))
        rows = oracle.space_rows(gateway.data)
        frames = [row["seq"] for row in rows if row["record"] == "frame"]
        assert [seq for seq in found if seq in set(frames)] == frames
        assert len(frames) == 6_000
    await gateway.end("term")


# -- what cannot be read --------------------------------------------------------------------------


async def test_no_answer_names_a_path(tmp_path: Path) -> None:
    """The journal is damaged: who asks is told that it is, and the operator where."""
    async with journaled(tmp_path, CONFIG, segment_bytes=20_000) as gateway:
        cy = await gateway.join("cy", **POSITIONS)
        await cy.settle()
        was = position(cy)
        await long_log(gateway, 4_000)
        await gateway.end("term")
        number = next(int(row["partition"][1:]) for row in oracle.rows(gateway.data))
        for file in segment_files(gateway.data, number, "arrow")[:-1]:
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
        gateway.start()
        status, answer = await polled(gateway, "pia", 10)
        assert (status, answer["payload"]["error"]) == (503, "journal_unavailable")
        by_time = await polled(gateway, "pia", "2020-01-01T00:00:00Z")
        cy = await gateway.join("cy", **POSITIONS, resume=was)
        resumed = cy.welcome["payload"]["resume"]
        assert resumed == {"recovered": False, "reason": "the journal could not be read"}
        for told in (answer, by_time, resumed):
            assert str(tmp_path) not in json.dumps(told)
            assert ".arrow" not in json.dumps(told)
            assert "/p" not in json.dumps(told)
        assert ".arrow: offset" in gateway.log.read_text()
        await gateway.end("term")


async def test_what_was_pruned_is_told_without_a_path(tmp_path: Path) -> None:
    async with journaled(tmp_path, CONFIG, segment_bytes=20_000) as gateway:
        cy = await gateway.join("cy", **POSITIONS)
        await cy.settle()
        was = position(cy)
        await long_log(gateway, 4_000)
        await gateway.end("term")
        begins_at = prune(gateway.data)
        gateway.start()
        status, answer = await polled(gateway, "pia", 10)
        assert (status, answer["payload"]["error"]) == (400, "invalid_request")
        assert "is not kept any more" in answer["payload"]["message"]
        assert str(tmp_path) not in json.dumps(answer)
        # From the beginning is from what there is.
        status, answer = await polled(gateway, "pia", 0)
        assert status == 200
        assert answer["messages"][0]["seq"] > begins_at > 10
        cy = await gateway.join("cy", **POSITIONS, resume=was)
        reason = cy.welcome["payload"]["resume"]["reason"]
        assert reason.startswith("the position is too old: seq ")
        assert str(tmp_path) not in reason
        await gateway.end("term")


def prune(data: Path) -> int:
    """Half of the segments of the partition that has any; where it begins now."""
    journal = LocalJournal(data)
    number = max(range(4), key=lambda each: journal.partitions[each].next_offset)
    segments = journal.reader.segments(number)
    gone = segments[: len(segments) // 2]
    journal.prune(PrunePlan(segments=gone, begins_at={number: gone[-1].next_offset}))
    journal.close()
    return gone[-1].next_offset


async def test_a_resume_that_nobody_waits_for(gateway: JournaledGateway) -> None:
    """Connections that come, ask for much and go do not keep the next ones waiting."""
    cy = await gateway.join("cy", **POSITIONS)
    await cy.settle()
    was = position(cy)
    await cy.close()
    await long_log(gateway, 8_000)
    await gateway.restart("term")
    gone: list[Client] = []
    for _ in range(30):
        client = await gateway.stranger()
        join = {"type": "join", "participantId": "cy", "token": "token-of-cy", **POSITIONS, "resume": was}
        await client.send_raw(json.dumps(join))
        gone.append(client)
    for client in gone:
        client.connection.transport.abort()
    cy = await gateway.join("cy", **POSITIONS, resume=was)
    assert cy.welcome["payload"]["resume"]["recovered"], cy.welcome["payload"]["resume"]
    await gateway.end("term")
