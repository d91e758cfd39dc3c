# ruff: noqa: ASYNC110, ASYNC221 - a few short commands, and a status to wait for
"""A disk that is full: the gateway says so, refuses what it cannot record, and recovers by itself.

Filesystems of a few MiB are mounted for this; where that is not permitted, a limit on the size of
files (``RLIMIT_FSIZE``) takes their place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import oracle
import pytest
from making import POSITIONS, JournaledGateway, journaled, positioned_frame, seq_of

from support import Client, GatewayProcess, space_config, token_of


def _may_mount() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], capture_output=True, check=False
        )
        if mounted.returncode == 0:
            subprocess.run(["umount", directory], check=True)
        return mounted.returncode == 0


MAY_MOUNT = _may_mount()


class TinyDisk:
    """A tmpfs that a ballast file fills to the last byte."""

    def __init__(self, path: Path, mebibytes: int = 4) -> None:
        self.path = path
        path.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)], check=True)

    def fill(self, gateway: GatewayProcess) -> None:
        with contextlib.suppress(OSError), (self.path / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1 << 8, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def free(self, gateway: GatewayProcess) -> None:
        (self.path / "ballast").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False)


class LimitedFiles:
    """The gateway may make no file larger than this; its log stays below."""

    SIZE = 64 << 10

    def __init__(self, path: Path, mebibytes: int = 4) -> None:
        self.path = path
        path.mkdir(parents=True)

    def fill(self, gateway: GatewayProcess) -> None:
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (self.SIZE, resource.RLIM_INFINITY))

    def free(self, gateway: GatewayProcess) -> None:
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def close(self) -> None: ...


Disk = TinyDisk | LimitedFiles


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = (TinyDisk if MAY_MOUNT else LimitedFiles)(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture(params=["tmpfs", "rlimit"] if MAY_MOUNT else ["rlimit"])
def any_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    made = (TinyDisk if request.param == "tmpfs" else LimitedFiles)(tmp_path / "disk")
    yield made
    made.close()


CONFIG = space_config("ann", "bob", "cy", "dee")


@contextlib.asynccontextmanager
async def serving(directory: Path, disk: Disk, **journal: Any) -> AsyncIterator[JournaledGateway]:
    async with journaled(directory, CONFIG, data=disk.path / "data", **journal) as gateway:
        yield gateway


async def until_status(gateway: GatewayProcess, status: str) -> None:
    async with asyncio.timeout(10):
        while (await gateway.http("GET", "/health"))[1]["status"] != status:
            await asyncio.sleep(0.05)


async def until_failing(gateway: GatewayProcess, disk: Disk, writer: Client, stream: str) -> None:
    """Fill the disk, and write frames until the gateway notices."""
    disk.fill(gateway)
    async with asyncio.timeout(20):
        while (await gateway.http("GET", "/health"))[1]["status"] != "journal_unavailable":
            await writer.frame(stream, bytes(8000))
            await asyncio.sleep(0.02)


def in_journal(data: Path, *clients: Client) -> None:
    """Everything that these clients were told is in the log, at the place they were told."""
    rows = {row["seq"]: row for row in oracle.space_rows(data)}
    oracle.fold(rows.values())
    for client in clients:
        for message in client.got:
            seq = seq_of(message)
            if seq is None:
                continue
            assert seq in rows, f"{client.participant} was told of {seq}: {str(message)[:200]}"
            frame = positioned_frame(message)
            if frame is not None:
                assert (rows[seq]["record"], rows[seq]["data"]) == ("frame", frame.data)
            elif isinstance(message, dict) and rows[seq]["record"] == "envelope":
                assert rows[seq]["detail"]["id"] == message["id"] or message["kind"] == "system/welcome"


async def test_a_full_disk(tmp_path: Path, any_disk: Disk) -> None:
    disk = any_disk
    async with serving(tmp_path, disk) as gateway:
        ann, bob, dee = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob", "dee")]
        stream = await ann.open_stream()
        for _ in range(10):
            await ann.frame(stream, bytes(8000))
        await until_failing(gateway, disk, ann, stream)

        # It says so: in the log, in the metrics, in its health.
        _, metrics = await gateway.http("GET", "/metrics")
        assert "\nmewstream_journal_failing 1.0" in metrics
        assert gateway.log.read_text().count("the journal cannot be written") == 1

        # What cannot be recorded is refused, on the socket and over HTTP.
        id = await bob.send("chat", {"text": "refused"})
        assert (await bob.error("journal_unavailable", of=id)).get("seq") is None
        id = await bob.send("stream/request", {"direction": "upload"})
        await bob.error("journal_unavailable", of=id)
        await bob.frame(stream, "refused")
        await bob.error("journal_unavailable")
        status, body = await gateway.post("bob", {"kind": "chat", "payload": {"text": "refused"}})
        assert (status, body["payload"]["error"]) == (503, "journal_unavailable")

        # Nobody new comes in, who is here stays, who leaves leaves.
        cy = await gateway.stranger()
        await cy.send_raw(json.dumps({"type": "join", "participantId": "cy", "token": token_of("cy")}))
        assert await cy.closed() == 4003
        assert [message["payload"]["error"] for message in cy.got] == ["journal_unavailable"]  # type: ignore[index]
        await dee.close()
        for client in (ann, bob):
            await (await client.connection.ping())
        assert (await gateway.http("GET", "/participants", "ann"))[0] == 200
        assert (await gateway.http("GET", "/participants/ann/messages", "ann"))[0] == 200
        assert gateway.log.read_text().count("the journal cannot be written") == 1

        # Room again: it goes on by itself.
        disk.free(gateway)
        await until_status(gateway, "ok")
        _, metrics = await gateway.http("GET", "/metrics")
        assert "\nmewstream_journal_failing 0.0" in metrics
        for client in (ann, bob):
            await client.settle()
        await bob.send("chat", {"text": "after"})
        await ann.receive("chat", text="after")
        cy = await gateway.join("cy", **POSITIONS)
        assert "dee" not in {each["id"] for each in cy.welcome["payload"]["participants"]}
        left = [each for each in ann.got if isinstance(each, dict) and each["kind"] == "system/presence"]
        assert left[-2]["payload"] == {"event": "leave", "participant": {"id": "dee"}} or any(
            each["payload"]["event"] == "leave" for each in left
        )
        assert not any(isinstance(each, dict) and each["payload"].get("text") == "refused" for each in ann.got)
        await gateway.end("term")
        log = gateway.log.read_text()
        assert log.count("the journal cannot be written") == 1
        assert log.count("the journal can be written again") == 1
        in_journal(disk.path / "data", ann, bob, cy)


async def test_a_full_disk_and_a_kill(tmp_path: Path, disk: Disk) -> None:
    """Killed while it cannot write: all that anyone was told of, but frames, is there after a start."""
    async with serving(tmp_path, disk) as gateway:
        ann = await gateway.join("ann", **POSITIONS)
        stream = await ann.open_stream()
        for number in range(20):
            await ann.send("chat", {"text": f"{number}"})
            await ann.frame(stream, bytes(8000))
        await ann.settle()
        told = max(seq for message in ann.got if isinstance(message, dict) and (seq := seq_of(message)) is not None)
        await until_failing(gateway, disk, ann, stream)
        await gateway.end("kill")
        disk.free(gateway) if isinstance(disk, TinyDisk) else None
        gateway.start()
        ann = await gateway.join("ann", **POSITIONS)
        seq = ann.welcome["seq"]
        assert oracle.at(disk.path / "data", seq).summary() == oracle.of_welcome(ann.welcome)
        assert len(oracle.space_rows(disk.path / "data")) >= told
        await gateway.end("term")


async def test_a_full_disk_just_when_a_segment_is_full(tmp_path: Path, disk: Disk) -> None:
    """The new segment cannot be begun. That must not cost the old one, nor the descriptors of others."""
    async with serving(tmp_path, disk, segment_bytes=1) as gateway:
        ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
        stream = await ann.open_stream()
        for _ in range(10):
            await ann.frame(stream, bytes(8000))
        if isinstance(disk, LimitedFiles):
            # Segments are small here: even a header must be too much.
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            disk.fill = lambda gateway: None  # type: ignore[method-assign]
        await until_failing(gateway, disk, ann, stream)
        await bob.send("chat", {"text": "refused"})
        await bob.error("journal_unavailable")
        await asyncio.sleep(2.5)  # it tries again, twice, and fails
        disk.free(gateway)
        await until_status(gateway, "ok")
        await bob.send("chat", {"text": "after"})
        await ann.receive("chat", text="after")
        await gateway.end("term")
        in_journal(disk.path / "data", ann, bob)


async def test_what_http_accepted_is_there(tmp_path: Path, disk: Disk) -> None:
    """The disk is full and nobody knows yet. With many bytes waiting the writing fails while the message
    is being taken: its answer must not be that it was accepted."""
    async with serving(tmp_path, disk, flush_bytes=1, flush_interval=60) as gateway:
        ann = await gateway.join("ann", **POSITIONS)
        stream = await ann.open_stream()
        for _ in range(20):
            await ann.frame(stream, bytes(8000))
        await ann.settle()
        disk.fill(gateway)
        envelope = {"id": "over-http", "kind": "stream/request", "payload": {"pad": "x" * 20_000}}
        status = 0
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(1.5):
                status, _ = await gateway.post("ann", envelope)
        await gateway.end("kill")
        disk.free(gateway) if isinstance(disk, TinyDisk) else None
        gateway.start()
        await gateway.end("term")
        rows = oracle.space_rows(disk.path / "data")
        there = any(row["record"] == "envelope" and row["detail"]["id"] == "over-http" for row in rows)
        assert there or status != 200, "answered 200, and lost"


async def test_an_invitation_on_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    """Its token cannot be kept. The inviter stays connected and is told, now or when there is room."""
    if isinstance(disk, LimitedFiles):
        disk.SIZE = 1
    async with serving(tmp_path, disk) as gateway:
        ann, bob = [await gateway.join(each, **POSITIONS) for each in ("ann", "bob")]
        await ann.settle()
        disk.fill(gateway)
        id = await ann.send("space/invite", {"participant_id": "guest", "capabilities": [{"kind": "chat"}]})
        await asyncio.sleep(0.3)
        disk.free(gateway)
        await until_status(gateway, "ok")
        answer = await ann.wait_for(
            lambda message: (
                isinstance(message, dict)
                and message["kind"] in ("space/invite-ack", "system/error")
                and id in message.get("correlation_id", ())
            ),
            timeout=3,
        )
        if answer["kind"] == "space/invite-ack":
            guest = await gateway.stranger()
            token = answer["payload"]["token"]
            await guest.send_raw(json.dumps({"type": "join", "participantId": "guest", "token": token}))
            await guest.receive("system/welcome")
        await bob.send("chat", {"text": "after"})
        await ann.receive("chat", text="after")
        await gateway.end("term")
        in_journal(disk.path / "data", ann, bob)


# -- no directory to write to ---------------------------------------------------------------------


def _start_and_fail(gateway: GatewayProcess) -> str:
    """It must end by itself, with exit code 2 and one line; returns that line."""
    with pytest.raises(AssertionError, match="did not start"):
        gateway.start()
    assert gateway.process is not None
    assert gateway.process.wait(timeout=20) == 2
    lines = gateway.log.read_text().strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


async def test_a_directory_that_is_read_only(tmp_path: Path) -> None:
    if MAY_MOUNT:
        disk = TinyDisk(tmp_path / "disk")
        try:
            data = disk.path / "data"
            data.mkdir()
            subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
            async with journaled(tmp_path, CONFIG, data=data, start=False) as gateway:
                line = _start_and_fail(gateway)
        finally:
            disk.close()
    else:
        data = Path("/proc/mewstream")
        async with journaled(tmp_path, CONFIG, data=data, start=False) as gateway:
            line = _start_and_fail(gateway)
    assert line.startswith("mewstream: cannot use")
    assert str(data) in line


async def test_a_disk_that_becomes_read_only_between_two_runs(tmp_path: Path) -> None:
    if not MAY_MOUNT:
        data = tmp_path / "data"
        (data / "journal").parent.mkdir()
        (data / "journal").write_text("in the way")
        async with journaled(tmp_path, CONFIG, data=data, start=False) as gateway:
            assert "journal" in _start_and_fail(gateway)
        return
    disk = TinyDisk(tmp_path / "disk")
    try:
        async with journaled(tmp_path, CONFIG, data=disk.path / "data", start=False) as gateway:
            gateway.start()
            await gateway.end("term")
            gateway.log.write_text("")
            subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
            line = _start_and_fail(gateway)
            assert "Read-only file system" in line
    finally:
        disk.close()


async def test_a_disk_that_is_full_at_the_start(tmp_path: Path) -> None:
    if not MAY_MOUNT:
        pytest.fail("needs a filesystem of its own: run as root")
    disk = TinyDisk(tmp_path / "disk", 1)
    try:
        async with journaled(tmp_path, CONFIG, data=disk.path / "data", start=False) as gateway:
            (disk.path / "data").mkdir()
            disk.fill(gateway)
            line = _start_and_fail(gateway)
            assert "No space left" in line
    finally:
        disk.close()
