"""``stream/sync``, which asks whether everything before it is recorded (docs/protocol.md, Frames)."""

from __future__ import annotations

from pathlib import Path

from mewstream.journal.reader import JournalReader
from mewstream.protocol.records import Frame
from support import GatewayProcess, running_gateway, space_config

#: So long that nothing is written by time in a test.
LAZY = {"journal": {"flush_interval": 60.0, "flush_bytes": 1 << 30}}


def entries_in(data: Path) -> list[object]:
    return [entry.record for entry in JournalReader(data / "journal").read("demo", 0)]


async def test_what_was_sent_before_the_answer_survives_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    gateway = GatewayProcess(tmp_path, space_config("alice", gateway=LAZY), options=("--data", str(data))).start()
    try:
        alice = await gateway.join("alice")
        await alice.send("stream/request", {})
        stream = (await alice.receive("stream/open"))["payload"]["stream_id"]
        for number in range(50):
            await alice.send_raw(f"#{stream}#{number}")
        assert not any(isinstance(each, Frame) for each in entries_in(data)), "the test would show nothing"
        await alice.send("stream/sync", id="sync-1")
        synced = await alice.receive("stream/synced")
    finally:
        assert gateway.process is not None
        gateway.process.kill()
        gateway.stop(expect_clean_log=False)
    recorded = entries_in(data)
    frames = [each for each in recorded if isinstance(each, Frame)]
    assert [each.data for each in frames] == [b"%d" % number for number in range(50)]
    assert synced["correlation_id"] == ["sync-1"]
    assert synced["to"] == ["alice"]
    assert synced["payload"]["seq"] == frames[-1].seq
    assert "sync" not in repr(recorded), "the question has no record"


async def test_it_needs_no_capability_and_nobody_else_is_told() -> None:
    capabilities = {"bob": [], "carol": [{"kind": "*"}, {"kind": "!stream/sync"}]}
    with running_gateway(space_config("alice", "bob", "carol", capabilities=capabilities)) as gateway:
        alice, bob, carol = [await gateway.join(each) for each in ("alice", "bob", "carol")]
        await bob.send("stream/sync", id="sync-1")
        assert (await bob.receive("stream/synced"))["correlation_id"] == ["sync-1"]
        await carol.send("stream/sync")
        assert (await carol.receive("system/error"))["payload"]["error"] == "capability_violation"
        await carol.send("stream/synced")
        assert (await carol.receive("system/error"))["payload"]["error"] == "reserved_kind"
        await alice.send("chat", {"text": "end"})
        await alice.receive("chat")
        assert not [each for each in alice.got if isinstance(each, dict) and "sync" in each["kind"]]


async def test_refusals_of_frames_before_it_come_first() -> None:
    with running_gateway(space_config("alice")) as gateway:
        alice = await gateway.join("alice")
        await alice.send_raw("#stream-9#lost")
        await alice.send("stream/sync")
        await alice.receive("stream/synced")
        assert [each["kind"] for each in alice.got if isinstance(each, dict)] == [
            *("system/welcome", "system/error", "stream/synced"),
        ]


async def test_http_has_none() -> None:
    with running_gateway(space_config("alice")) as gateway:
        alice = await gateway.join("alice")
        status, body = await gateway.post("alice", {"kind": "stream/sync"})
        assert (status, body["payload"]["error"]) == (400, "invalid_request")
        await alice.close()
