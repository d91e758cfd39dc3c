"""``mewstream tail``: in a pipe, interrupted, cut off, and against a reader that does not read."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from shell import MEWSTREAM, TIMEOUT, Running, Shell, running

from support import Client, GatewayProcess, joined, running_gateway, space_config


@asynccontextmanager
async def tailing(shell: Shell, *arguments: str, reads_stdout: bool = True) -> AsyncIterator[Running]:
    """A tail that listens already."""
    with running(shell, "tail", "--as", "viewer", *arguments, reads_stdout=reads_stdout) as command:
        await asyncio.to_thread(command.says, "as viewer")
        yield command


async def wait(function: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(function, *arguments)


async def flood(writer: Client, stream: str, count: int, data: str = "") -> None:
    for number in range(count):
        await writer.frame(stream, f"{number} {data}")


def on_terminal(shell: Shell, environment: dict[str, str]) -> bytes:
    """One line of a tail whose stdout is a terminal."""
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [*MEWSTREAM, "tail", "--as", "viewer", "--count", "1"],
        cwd=shell.directory,
        env=shell.environment | environment,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
    )
    os.close(terminal)
    assert process.wait(TIMEOUT) == 0
    text = os.read(master, 65536)
    os.close(master)
    return text


class TestFrames:
    async def test_json(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server") as (server,):
            stream = await server.open_stream(desired_id="tailed")
            async with tailing(shell, "tailed", "--json") as tail:
                await server.frame(stream, 'ü "x"\n')
                await server.frame(stream, b"\x00\xff")
                await wait(tail.prints, 2)
                text, binary = tail.objects
                assert text == {"stream": stream, "seq": text["seq"], "writer": "server", "data": 'ü "x"\n'}
                assert base64.b64decode(binary["data_base64"]) == b"\x00\xff" and "data" not in binary
                assert binary["seq"] == text["seq"] + 1
                await server.send("stream/close", {"stream_id": stream})
                await wait(tail.ends, 0)
                assert len(tail.out) == 2

    async def test_raw_is_what_publish_sent(self, gateway: GatewayProcess, shell: Shell) -> None:
        with running(shell, "tail", "--as", "viewer", "copy", "--raw", reads_stdout=False) as tail:
            await wait(tail.says, "waiting for copy")
            content = bytes(range(256)) * 1000
            await wait(lambda: shell.run("publish", "--as", "server", "--alias", "copy", "--raw", input=content))
            assert await wait(tail.stdout.read) == content
            await wait(tail.ends, 0)

    async def test_text_cannot_steer_a_terminal(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server") as (server,):
            async with tailing(shell, "--count", "2") as tail:
                stream = await server.open_stream()
                await server.frame(stream, "\x1b]0;owned\x07\r\x9b2J")
                await wait(tail.ends, 0)
                assert len(tail.out) == 2 and tail.out[1].startswith(f"{stream} server: ")
                assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(tail.out))
            await server.send("stream/close", {"stream_id": stream})

    async def test_colours_on_a_terminal(self, gateway: GatewayProcess, shell: Shell) -> None:
        for no_color, expected in (({}, True), ({"NO_COLOR": "1"}, False)):
            async with joined(gateway, "server") as (server,):
                shown = asyncio.create_task(wait(on_terminal, shell, no_color))
                await server.receive("system/presence", event="join")
                # It has joined, and looks at what is said a moment later.
                while not shown.done():
                    await server.send("chat", {"text": "hello \x1b[2J"})
                    await asyncio.wait([shown], timeout=0.2)
                text = await shown
                assert (b"\x1b[1mserver\x1b[0m" in text) is expected
                assert b"says: hello \\x1b[2J" in text and b"\x1b[2J" not in text

    @pytest.mark.parametrize("count", [1, 3])
    async def test_count(self, gateway: GatewayProcess, shell: Shell, count: int) -> None:
        async with joined(gateway, "server") as (server,):
            stream = await server.open_stream()
            async with tailing(shell, stream, "--raw", "--count", str(count)) as tail:
                await flood(server, stream, 10)
                await wait(tail.ends, 0)
                assert tail.out == [f"{number} " for number in range(count)]
            await server.send("stream/close", {"stream_id": stream})

    async def test_for_a_while(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with tailing(shell, "--for", "0.2s") as tail:
            await wait(tail.ends, 0)


class TestTheWholeSpace:
    @pytest.mark.parametrize("options", [[], ["--all"]])
    async def test_each_operation_is_told_once(self, gateway: GatewayProcess, shell: Shell, options: list[str]) -> None:
        async with joined(gateway, "server", "bob") as (server, bob), tailing(shell, "--json", *options) as tail:
            stream = await server.open_stream()
            about = {"stream_id": stream, "participant_id": "bob"}
            await server.send("stream/grant-write", about)
            await server.send("stream/revoke-write", about)
            await server.send("stream/revoke-read", about)
            await server.send("stream/grant-read", about)
            await server.send("stream/transfer-ownership", {"stream_id": stream, "new_owner": "bob"})
            await bob.receive("stream/ownership-transferred")
            await bob.send("stream/close", {"stream_id": stream})
            await server.receive("stream/close")
            await server.send("stream/announce", {"intent": "x"})
            grant = await server.send("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "x"}]})
            await bob.receive("capability/grant")
            await bob.send("capability/grant-ack", {"status": "accepted"}, correlation_id=[grant])
            await bob.send("chat", {"text": "the end"})
            await wait(tail.wait_until, lambda: any("the end" in line for line in tail.out))
            told = [each.get("kind", each["event"]) for each in tail.objects]
            assert [each for each in told if "/" not in each] == [
                *("stream-opened", "write-granted", "write-revoked", "read-revoked", "read-granted"),
                *("ownership-transferred", "stream-closed", "stream-opened", "chat"),
            ]
            relayed = [each for each in told if "/" in each]
            if not options:
                assert relayed == ["capability/grant"], "which the gateway tells nobody else of"
            else:
                assert relayed == [
                    *("stream/request", "stream/grant-write", "stream/revoke-write", "stream/revoke-read"),
                    *("stream/grant-read", "stream/transfer-ownership", "stream/announce"),
                    *("capability/grant", "capability/grant-ack"),
                ]

    async def test_frames_and_events_in_the_order_of_the_space(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server") as (server,), tailing(shell, "--json") as tail:
            for number in range(50):
                stream = await server.open_stream(description=f"number {number}")
                await server.frame(stream, "data")
                await server.send("chat", {"text": f"said {number}"})
                await server.send("stream/close", {"stream_id": stream, "reason": "done"})
            await server.send("chat", {"text": "the end"})
            await wait(tail.wait_until, lambda: any("the end" in line for line in tail.out))
            found = tail.objects
            positions = [each["seq"] for each in found]
            assert positions == sorted(positions) and len(set(positions)) == len(positions)
            kinds = [each.get("event", "frame") for each in found]
            order = ["stream-opened", "frame", "chat", "stream-closed"]
            assert kinds == order * 50 + ["chat"]
            (closed, *_) = [each for each in found if each.get("event") == "stream-closed"]
            assert closed["reason"] == "done" and closed["by"] == "server" and closed["how"] == "closed"

    async def test_rights_and_people(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server") as (server,):
            async with tailing(shell, "--json") as tail:
                stream = await server.open_stream(auto_grant=["bob"])
                async with joined(gateway, "bob"):
                    await server.receive("stream/write-granted")
                    payload = {"stream_id": stream, "new_owner": "bob", "reason": "yours"}
                    await server.send("stream/transfer-ownership", payload)
                    await server.receive("stream/ownership-transferred")
                await wait(tail.wait_until, lambda: any('"left"' in line for line in tail.out))
                by_name = {each["event"]: each for each in tail.objects}
                assert by_name["joined"]["participant"] == by_name["left"]["participant"] == "bob"
                assert by_name["write-granted"]["participant"] == "bob"
                moved = by_name["ownership-transferred"]
                assert (moved["previous_owner"], moved["new_owner"], moved["reason"]) == ("server", "bob", "yours")
            await server.send("stream/close", {"stream_id": stream})


class TestPipes:
    async def test_a_reader_that_goes_away(self, gateway: GatewayProcess, shell: Shell) -> None:
        """As ``tail | head -n 2``."""
        async with joined(gateway, "server") as (server,):
            stream = await server.open_stream()
            async with tailing(shell, stream, "--json", reads_stdout=False) as tail:
                await flood(server, stream, 2)
                lines = [await wait(tail.stdout.readline) for _ in range(2)]
                assert [json.loads(line)["data"] for line in lines] == ["0 ", "1 "], "lines come at once"
                tail.stdout.close()
                await flood(server, stream, 1)
                await wait(tail.ends, 0)
                assert len(tail.err) == 1, "closed pipes are no news"
            await server.send("stream/close", {"stream_id": stream})

    async def test_a_reader_that_does_not_read(self, tmp_path: Path) -> None:
        """The space goes on, memory is bounded, and what is missing is told, to the frame."""
        total = 30_000
        with running_gateway(space_config("server", "viewer")) as gateway:
            shell = Shell(tmp_path, gateway, "viewer")
            async with joined(gateway, "server") as (server,):
                stream = await server.open_stream()
                async with tailing(shell, stream, "--json", reads_stdout=False) as tail:
                    reading = asyncio.create_task(drain(server))
                    await flood(server, stream, total, "x" * 50)
                    await server.send("stream/close", {"stream_id": stream})
                    assert await reading == total
                    got = (await wait(tail.stdout.read)).splitlines()
                    await wait(tail.ends, 0)
                frames = [json.loads(line) for line in got]
                gaps = sum(frame.get("gap", 0) for frame in frames)
                assert gaps > 0 and len(frames) + gaps == total
                assert frames[-1]["data"].startswith(f"{total - 1} ")
                assert sum(int(re.findall(r": (\d+) frames are missing", line)[0]) for line in tail.err[1:]) == gaps

    async def test_interrupted_while_nobody_reads(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server") as (server,):
            stream = await server.open_stream()
            async with tailing(shell, stream, "--json", reads_stdout=False) as tail:
                reading = asyncio.create_task(drain(server))
                await flood(server, stream, 3000, "x" * 100)  # more than a pipe holds
                await server.send("stream/close", {"stream_id": stream})
                await reading
                tail.signal(signal.SIGINT)
                await wait(tail.ends, 130)


async def drain(client: Client) -> int:
    """Count frames until the stream is closed."""
    count = 0
    while True:
        message = await client.next(timeout=60)
        if isinstance(message, dict) and message["kind"] == "stream/close":
            return count
        count += not isinstance(message, dict)


class TestTheEnd:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    async def test_signals(self, gateway: GatewayProcess, shell: Shell, number: int, code: int) -> None:
        async with joined(gateway, "server") as (server,), tailing(shell) as tail:
            tail.signal(number)
            await wait(tail.ends, code)
            left = await server.receive("system/presence", event="leave")
            assert left["payload"]["participant"]["id"] == "viewer"

    async def test_kicked(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "server") as (server,), tailing(shell, "--json") as tail:
            await server.send("space/kick", {"participant_id": "viewer"})
            await wait(tail.ends, 3)
            assert "removed from the space" in tail.err[-1]

    async def test_a_gateway_that_dies_and_comes_back(self, tmp_path: Path) -> None:
        (tmp_path / "gateway").mkdir()
        gateway = GatewayProcess(tmp_path / "gateway", space_config("server", "viewer"), options=("--data", "data"))
        gateway.start()
        shell = Shell(tmp_path, gateway, "viewer")
        try:
            async with joined(gateway, "server") as (server,):
                stream = await server.open_stream()
                async with tailing(shell, stream, "--json") as tail:
                    await server.frame(stream, "before")
                    await wait(tail.prints, 1)
                    await server.settle()  # a frame is told before it is recorded, a message is not
                    assert gateway.process is not None
                    gateway.process.kill()
                    gateway.process.wait()
                    gateway.process.stdout.close()
                    await wait(tail.says, "the connection is lost")
                    gateway.start()
                    await wait(tail.says, "connected again, nothing was missed")
                    async with joined(gateway, "server") as (again,):
                        await again.frame(stream, "after")
                        await wait(tail.prints, 2)
                    assert [each["data"] for each in tail.objects] == ["before", "after"]
                    assert "gap" not in tail.objects[1]
        finally:
            gateway.stop()
