"""The baseline keeps the rules of the streams, so that a comparison with it means something."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench_running import ROOT

from support import Client, space_config, token_of

sys.path.insert(0, str(ROOT / "benchmarks"))


class Baseline:
    def __init__(self, port: int) -> None:
        self.url = f"ws://127.0.0.1:{port}/ws"

    async def join(self, participant: str) -> Client:
        client = await Client.connect(self.url)
        client.participant = participant
        await client.send_raw(
            f'{{"type":"join","participantId":"{participant}","space":"demo","token":"{token_of(participant)}"}}'
        )
        client.welcome = await client.receive("system/welcome")
        return client

    @asynccontextmanager
    async def joined(self, *participants: str) -> Any:
        clients = [await self.join(participant) for participant in participants]
        try:
            yield clients
        finally:
            for client in clients:
                await client.close()


@pytest.fixture
def baseline(tmp_path: Path) -> Iterator[Baseline]:
    file = tmp_path / "space.yaml"
    file.write_text(
        yaml.safe_dump(space_config("owner", "friend", "other", capabilities={"other": [{"kind": "chat"}]}))
    )
    script = ROOT / "benchmarks" / "baseline_gateway.py"
    command = [sys.executable, str(script), "--config", str(file), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Baseline(int(process.stdout.readline().rsplit(":", 1)[1]))
        finally:
            process.terminate()


class TestBaseline:
    async def test_welcome_presence_and_chat(self, baseline: Baseline) -> None:
        async with baseline.joined("owner", "friend") as (owner, friend):
            assert [each["id"] for each in friend.welcome["payload"]["participants"]] == ["owner"]
            await owner.receive("system/presence", event="join")
            await owner.send("chat", {"text": "hello"})
            for client in (owner, friend):
                assert (await client.receive("chat"))["payload"]["text"] == "hello"
            await friend.close()
            await owner.receive("system/presence", event="leave")

    async def test_a_wrong_token_is_refused(self, baseline: Baseline) -> None:
        client = await Client.connect(baseline.url)
        await client.send_raw('{"type":"join","participantId":"owner","space":"demo","token":"wrong"}')
        assert await client.closed() == 1008

    async def test_frames_keep_their_kind(self, baseline: Baseline) -> None:
        async with baseline.joined("owner", "friend") as (owner, friend):
            stream = await owner.open_stream()
            for data in ("text", b"\x00binary"):
                await owner.frame(stream, data)
                assert await friend.receive_frame(stream) == data
                assert await owner.receive_frame(stream) == data

    async def test_only_writers_write(self, baseline: Baseline) -> None:
        async with baseline.joined("owner", "friend") as (owner, friend):
            stream = await owner.open_stream()
            await friend.frame(stream, "no")
            await friend.error("unauthorized_stream_write")
            await owner.send("stream/grant-write", {"stream_id": stream, "participant_id": "friend"})
            await friend.receive("stream/write-granted", authorized_writers=["owner", "friend"])
            await friend.frame(stream, "yes")
            assert await owner.receive_frame(stream) == "yes"
            await owner.send("stream/revoke-write", {"stream_id": stream, "participant_id": "friend"})
            await friend.receive("stream/write-revoked", authorized_writers=["owner"])
            await friend.frame(stream, "no more")
            await friend.error("unauthorized_stream_write")

    async def test_transfer_and_close(self, baseline: Baseline) -> None:
        async with baseline.joined("owner", "friend") as (owner, friend):
            stream = await owner.open_stream()
            await friend.send("stream/close", {"stream_id": stream})
            await friend.error("unauthorized")
            await owner.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": "friend"})
            told = await friend.receive("stream/ownership-transferred", previous_owner="owner", new_owner="friend")
            assert told["payload"]["authorized_writers"] == ["friend"]
            await friend.send("stream/close", {"stream_id": stream})
            await owner.receive("stream/close", stream_id=stream)
            await friend.frame(stream, "late")
            await friend.error("stream_not_found")

    async def test_capabilities_and_forged_kinds(self, baseline: Baseline) -> None:
        async with baseline.joined("owner", "other") as (owner, other):
            await other.send("stream/request", {})
            await other.error("capability_violation")
            await owner.send("system/presence", {})
            await owner.error("unauthorized")

    async def test_a_writer_that_leaves_loses_its_right(self, baseline: Baseline) -> None:
        async with baseline.joined("owner", "friend") as (owner, friend):
            stream = await owner.open_stream()
            await owner.send("stream/grant-write", {"stream_id": stream, "participant_id": "friend"})
            await owner.receive("stream/write-granted")
            await friend.close()
            await owner.receive("stream/write-revoked", participant_id="friend", authorized_writers=["owner"])


class TestTheOthers:
    """The rest of benchmarks/ runs; how fast is not for a test to say."""

    def test_the_bare_loop_delivers_everything(self) -> None:
        from bare_fanout import bare_fanout

        run = bare_fanout(3, seconds=0.2)
        assert run["deliveries_per_second"] == pytest.approx(run["frames_per_second"] * 3)

    def test_the_writer_check_accepts_the_last_of_many(self) -> None:
        import writer_check

        few, many = writer_check.compare(1, 50, rounds=1)
        assert few > 0 and many > 0

    def test_the_comparison_prints_every_line_with_its_aim(self) -> None:
        script = ROOT / "benchmarks" / "compare.py"
        command = [sys.executable, str(script), "--quick", "--rounds", "1", "--only", "check,single,flood"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert "Traceback" not in done.stderr, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == 5, done.stdout
        for line in lines[:-1]:
            assert line.startswith(("held", "NOT HELD")) and "(aim: at most" in line
        assert done.returncode == (0 if lines[-1].startswith("4 of 4 held") else 1)


def test_no_port_is_left_open() -> None:
    """The bare loop closes what it opened."""
    from bare_fanout import bare_fanout

    before = len(list(Path("/proc/self/fd").iterdir()))
    bare_fanout(2, seconds=0.1)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
