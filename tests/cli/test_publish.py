"""``mewstream publish``: every byte in order, an honest count, and a clean end."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from shell import MEWSTREAM, TIMEOUT, Shell, running

from mewstream.cli.frame_splitter import FrameSplitter
from mewstream.protocol.errors import ConfigError
from support import Client, GatewayProcess, active_stream, joined, running_gateway, space_config


async def run(shell: Shell, *arguments: str, **options: Any) -> Any:
    return await asyncio.to_thread(lambda: shell.run(*arguments, **options))


async def frames(client: Client, count: int) -> list[str | bytes]:
    """The data of the next frames, of whichever stream."""
    found = []
    while len(found) < count:
        message = await client.wait_for(lambda each: not isinstance(each, dict))
        head = b"#" if isinstance(message, bytes) else "#"
        found.append(message.split(head, 2)[2])
    return found


class TestCutting:
    """The cuts do not depend on how the bytes arrive."""

    @pytest.mark.parametrize(
        ("cut", "content", "expected"),
        [
            ("lines", b"a\nb\r\n\nc", [b"a", b"b", b"", b"c"]),
            ("lines", b"", []),
            ("lines", "ü\n€\n".encode(), ["ü".encode(), "€".encode()]),
            ("jsonl", b'{"a": 1}\n\n  [2]  \r\n"x"', [b'{"a": 1}', b"[2]", b'"x"']),
            ("raw", b"0123456789\n", [b"0123", b"4567", b"89\n"]),
            ("raw", b"01234567", [b"0123", b"4567"]),
        ],
    )
    def test_any_pieces(self, cut: Any, content: bytes, expected: list[bytes]) -> None:
        for size in range(1, len(content) + 2):
            cutter = FrameSplitter(cut, 4, "input")
            pieces = [content[start : start + size] for start in range(0, len(content), size)]
            found = [frame for piece in pieces for frame in cutter.feed(piece)]
            assert [*found, *cutter.finish()] == expected, size

    @pytest.mark.parametrize(
        ("cut", "content", "line"), [("lines", b"good\n\xff\n", 2), ("jsonl", b"1\n\n{oops}\n4", 3), ("jsonl", b"{", 1)]
    )
    def test_a_bad_line_is_named(self, cut: Any, content: bytes, line: int) -> None:
        cutter = FrameSplitter(cut, 4, "input")
        with pytest.raises(ConfigError, match=f"^input: line {line} is not"):
            [*cutter.feed(content), *cutter.finish()]

    def test_a_line_without_an_end(self) -> None:
        cutter = FrameSplitter("lines", 4, "input")
        assert list(cutter.feed(b"first\n")) == [b"first"]
        with pytest.raises(ConfigError, match="line 2 is longer than"):
            while True:
                assert list(cutter.feed(b"x" * (1 << 20))) == []


class TestContent:
    async def test_lines_from_stdin(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "viewer") as (viewer,):
            lines = [f"line {number} ü" for number in range(2000)]
            done = await run(shell, "publish", "--as", "server", "--json", input="\n".join(lines))
            assert await frames(viewer, 2000) == lines
            sizes = sum(len(line.encode()) for line in lines)
            assert done.json == {
                "stream": done.json["stream"],
                "sent": 2000,
                "recorded": 2000,
                "unconfirmed": 0,
                "bytes": sizes,
            }
            assert done.err == f"mewstream: publishing to {done.json['stream']}\n", "no bar where nobody sees it"
            await viewer.receive("stream/close", stream_id=done.json["stream"])

    async def test_bytes_of_a_file(self, gateway: GatewayProcess, shell: Shell, tmp_path: Path) -> None:
        content = os.urandom(100_001)
        (tmp_path / "blob").write_bytes(content)
        async with joined(gateway, "viewer") as (viewer,):
            done = await run(shell, "publish", "--as", "server", "--raw", "--chunk-bytes", "1000", "blob")
            got = await frames(viewer, 101)
            assert all(isinstance(each, bytes) for each in got)
            assert b"".join(got) == content and {len(each) for each in got[:-1]} == {1000}  # type: ignore[arg-type]
            assert "101 frames recorded, 100001 bytes sent" in done.out

    async def test_json_lines(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "viewer") as (viewer,):
            await run(shell, "publish", "--as", "server", "--jsonl", "--rate", "500", input='{"x":  1}\n\n[2]\n')
            assert await frames(viewer, 2) == ['{"x":  1}', "[2]"]

    async def test_a_bad_line_ends_it_and_what_came_before_is_there(
        self, gateway: GatewayProcess, shell: Shell
    ) -> None:
        async with joined(gateway, "viewer") as (viewer,):
            done = await run(shell, "publish", "--as", "server", "--jsonl", input="1\n2\noops\n4\n", code=2)
            assert "stdin: line 3 is not JSON" in done.err and "2 frames were sent" in done.err
            assert await frames(viewer, 2) == ["1", "2"]
            await viewer.receive("stream/close")


class TestStreams:
    async def test_a_new_one_as_described(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "bob", "viewer") as (bob, _):
            options = [
                "--description",
                "the log",
                "--content-type",
                "text/x-log",
                "--alias",
                "log",
                "--target",
                "viewer",
            ]
            options += ["--grant", "bob", "--keep-open"]
            done = await run(shell, "publish", "--as", "server", *options, "--json", input="x")
            granted = await bob.receive("stream/write-granted", participant_id="bob")
            assert granted["payload"]["stream_id"] == done.json["stream"]
            async with joined(gateway, "alice") as (alice,):
                entry = active_stream(alice.welcome, done.json["stream"])
            assert entry["description"] == "the log" and entry["content_type"] == "text/x-log"
            assert entry["alias"] == "log" and entry["authorized_readers"] == ["viewer"]
            await run(shell, "close", "--as", "server", "log")

    async def test_one_of_another(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "alice", "viewer") as (alice, viewer):
            stream = await alice.open_stream(desired_id="shared", auto_grant=["server"])
            done = await run(shell, "publish", "--as", "server", "--stream", "shared", input="from the shell\n")
            assert done.out.startswith(f"{stream}: 1 frames recorded") and done.err == ""
            assert await frames(viewer, 1) == ["from the shell"]
            refused = await run(shell, "publish", "--as", "bob", "--stream", "shared", input="x\n", code=1)
            assert "may not write" in refused.err
            await alice.settle()
            assert not [each for each in viewer.got if isinstance(each, dict) and each["kind"] == "stream/close"]
            await alice.send("stream/close", {"stream_id": stream})

    async def test_an_announced_one_gets_numbered_content(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "alice", "viewer") as (alice, viewer):
            id = await alice.send("stream/announce", {"formats": [{"id": "f"}], "auto_grant": ["server"]})
            stream = (await alice.receive("stream/ready", of=id))["payload"]["stream"]["stream_id"]
            await alice.send("stream/start", {"stream": {"stream_id": stream}})
            await viewer.receive("stream/start")
            await run(shell, "publish", "--as", "server", "--stream", stream, "--jsonl", input='{"x":1}\n2\n')
            for sequence, content in ((1, {"x": 1}), (2, 2)):
                got = (await viewer.receive("stream/data"))["payload"]
                assert (got["sequence"], got["content"]) == (sequence, content)
            await alice.send("stream/close", {"stream_id": stream})

    def test_what_cannot_be(self, shell: Shell) -> None:
        assert "there is no stream 'nosuch'" in shell.run("publish", "--as", "server", "--stream", "nosuch", code=1).err
        shell.run("publish", "--as", "chatter", input="x", code=1)
        shell.run("publish", "--as", "server", "--grant", "nobody", input="x", code=1)
        shell.run("publish", "--as", "server", "nosuch.file", code=2)
        for options in (["--stream", "x", "--alias", "y"], ["--chunk-bytes", "5"], ["--rate", "0"], ["--raw", "."]):
            shell.run("publish", "--as", "server", *options, code=2)

    def test_a_frame_that_is_too_large_is_told_as_that(self, shell: Shell) -> None:
        """And not as a connection that was lost."""
        done = shell.run("publish", "--as", "server", input=b"x" * (3 << 19), code=1)
        assert "the message is larger than" in done.err and "1 frames were sent to" in done.err

    def test_sizes_have_units(self, shell: Shell) -> None:
        content = bytes(3000)
        done = shell.run("publish", "--as", "server", "--raw", "--chunk-bytes", "1KiB", "--json", input=content)
        assert done.json["sent"] == 3
        done = shell.run("publish", "--as", "server", "--raw", "--chunk-bytes", "1 furlong", code=2)
        assert "'1 furlong' is no size: expected a number of bytes, or one with kB" in done.err
        assert "expected from 1 to" in shell.run("publish", "--as", "server", "--raw", "--chunk-bytes", "0", code=2).err

    async def test_frames_that_are_refused_on_the_way(self, gateway: GatewayProcess, shell: Shell) -> None:
        async with joined(gateway, "alice") as (alice,):
            stream = await alice.open_stream(auto_grant=["server"])
            with running(shell, "publish", "--as", "server", "--stream", stream) as command:
                await alice.receive("stream/write-granted", participant_id="server")
                command.stdin.write(b"first\n")
                command.stdin.flush()
                assert await frames(alice, 1) == ["first"]
                await alice.send("stream/revoke-write", {"stream_id": stream, "participant_id": "server"})
                await alice.receive("stream/write-revoked")
                await asyncio.to_thread(command.stdin.write, b"second\n" * 1000)
                await asyncio.to_thread(command.stdin.close)
                await asyncio.to_thread(command.ends, 1)
                assert (
                    "may not write" in command.err[-1] or "not allowed" in command.err[-1] or stream in command.err[-1]
                )
            await alice.send("stream/close", {"stream_id": stream})


class TestTheEnd:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    async def test_interrupted(self, gateway: GatewayProcess, shell: Shell, number: int, code: int) -> None:
        """While it waits for input that does not come."""
        async with joined(gateway, "viewer") as (viewer,):
            with running(shell, "publish", "--as", "server") as command:
                command.stdin.write(b"one\ntwo\n")
                command.stdin.flush()
                assert await frames(viewer, 2) == ["one", "two"]
                command.signal(number)
                await asyncio.to_thread(command.ends, code)
                (said,) = command.out
                assert said.endswith(": 2 frames recorded, 6 bytes sent")
            await viewer.receive("stream/close")

    async def test_a_gateway_that_dies_and_comes_back(self, tmp_path: Path) -> None:
        """Nothing is claimed that is not known: of the first frame nobody knows, and it says so."""
        (tmp_path / "gateway").mkdir()
        gateway = GatewayProcess(tmp_path / "gateway", space_config("server", "viewer"), options=("--data", "data"))
        gateway.start()
        shell = Shell(tmp_path, gateway, "server", "viewer")
        try:
            async with joined(gateway, "viewer") as (viewer,):
                with running(shell, "publish", "--as", "server", "--json") as command:
                    command.stdin.write(b"one\n")
                    command.stdin.flush()
                    assert await frames(viewer, 1) == ["one"]
                    assert gateway.process is not None
                    gateway.process.kill()
                    gateway.process.wait()
                    gateway.process.stdout.close()
                    await asyncio.to_thread(command.says, "the connection is lost")
                    gateway.start()
                    await asyncio.to_thread(command.says, "connected again")
                    command.stdin.write(b"two\n")
                    command.stdin.close()
                    await asyncio.to_thread(command.ends, 3)
                    (found,) = command.objects
                    assert (found["sent"], found["recorded"], found["unconfirmed"]) == (2, 1, 1)
        finally:
            gateway.stop()

    def test_a_bar_on_a_terminal(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x" * 100 + "\n")
        master, terminal = pty.openpty()
        with subprocess.Popen(
            [*MEWSTREAM, "publish", "--as", "server", "file"],
            cwd=tmp_path,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=terminal,
        ) as process:
            os.close(terminal)
            drawn = b""
            while True:
                try:
                    piece = os.read(master, 65536)
                except OSError:
                    break
                if not piece:
                    break
                drawn += piece
            os.close(master)
            assert process.wait(TIMEOUT) == 0
            assert process.stdout is not None and b"1 frames recorded" in process.stdout.read()
        assert b"\x1b[" in drawn and "━".encode() in drawn


def test_an_empty_input_is_an_empty_stream(tmp_path: Path) -> None:
    with running_gateway(space_config("server")) as gateway:
        assert Shell(tmp_path, gateway, "server").run("publish", "--as", "server", "--json").json["sent"] == 0
