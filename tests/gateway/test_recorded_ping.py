"""A ping that asks whether everything before it is recorded (docs/protocol.md, Frames)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import Frame
from support import GatewayProcess, space_config

#: So long that nothing is written by time in a test.
LAZY = {"journal": {"flush_interval": 60.0, "flush_bytes": 1 << 30}}


def frames_in(data: Path) -> list[bytes]:
    reader = JournalReader(data / "journal")
    return [entry.record.data for entry in reader.read("demo", 0) if isinstance(entry.record, Frame)]


async def test_what_was_sent_before_the_answer_survives_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    gateway = GatewayProcess(tmp_path, space_config("alice", gateway=LAZY), options=("--data", str(data))).start()
    try:
        alice = await gateway.join("alice")
        await alice.send("stream/request", {})
        stream = (await alice.receive("stream/open"))["payload"]["stream_id"]
        for number in range(50):
            await alice.send_raw(f"#{stream}#{number}")
        assert frames_in(data) == [], "the test would show nothing"
        await asyncio.wait_for(await alice.connection.ping(b"recorded:1"), 10)
    finally:
        assert gateway.process is not None
        gateway.process.kill()
        gateway.stop(expect_clean_log=False)
    assert frames_in(data) == [b"%d" % number for number in range(50)]


async def test_of_several_that_wait_the_last_is_answered(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"), "--durability", "fsync")
    gateway = GatewayProcess(tmp_path, space_config("alice"), options=options).start()
    try:
        alice = await gateway.join("alice")
        waiting = [await alice.connection.ping(b"recorded:%d" % number) for number in range(1000)]
        # The websockets library takes the answer to a later ping for those before it too.
        await asyncio.wait_for(asyncio.gather(*waiting), 10)
    finally:
        gateway.stop()


async def test_without_a_journal_it_is_answered_at_once(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, space_config("alice")).start()
    try:
        alice = await gateway.join("alice")
        await asyncio.wait_for(await alice.connection.ping(b"recorded:1"), 10)
        await asyncio.wait_for(await alice.connection.ping(b"anything"), 10)
    finally:
        gateway.stop()
