"""One HTTP request, as the short commands send it: against real servers that answer well, badly, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from mewstream.cli import http_request
from mewstream.cli.http_request import RequestFailed, request
from support import GatewayProcess, space_config, token_of

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await answer(reader, writer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def answering(*parts: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()

    return answer


@pytest.mark.parametrize(
    ("parts", "status", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"], 200, b"{}"),
        ([b"HTTP/1.1 200 OK\r\nContent-", b"Length: 2\r\n\r\n{", b"}"], 200, b"{}"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"], 200, b"{}"),
        ([b"HTTP/1.0 200 OK\r\n\r\nuntil the end"], 200, b"until the end"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"], 404, b""),
        ([b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"], 302, b""),
    ],
)
async def test_answers(parts: list[bytes], status: int, body: bytes) -> None:
    async with server(answering(*parts)) as url:
        assert await request("GET", url, headers={}) == (status, body)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"HTTP/1.1 200 OK\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"],
        [b"\x15\x03\x03\x00\x02\x02\x46 this is no HTTP at all\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000],
    ],
    ids=["nothing", "half a head", "half a body", "another protocol", "an endless head"],
)
async def test_what_is_no_answer(parts: list[bytes]) -> None:
    async with server(answering(*parts)) as url:
        with pytest.raises(RequestFailed) as failed:
            await request("GET", url, headers={})
    assert failed.value.is_connected and str(failed.value)


async def test_an_answer_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    monkeypatch.setattr(http_request, "MAX_ANSWER_BYTES", 1 << 20)
    async with server(pour) as url:
        with pytest.raises(RequestFailed, match="larger than 1048576 bytes"):
            await request("GET", url, headers={})


async def test_no_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    monkeypatch.setattr(http_request, "TIMEOUT_SECONDS", 0.2)
    async with server(wait) as url:
        with pytest.raises(TimeoutError):
            await request("GET", url, headers={})


async def test_what_is_sent() -> None:
    got: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        got.extend([head, await reader.readexactly(2)])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with server(note) as url:
        await request("POST", f"{url}/a%2Fb/ü?x=1&y=%20", headers={"Authorization": "Bearer t"}, body=b"{}")
    line, *fields = got[0].decode().split("\r\n")
    assert line == "POST /a%2Fb/%C3%BC?x=1&y=%20 HTTP/1.1"
    assert {"Authorization: Bearer t", "Content-Length: 2", f"Host: {url.removeprefix('http://')}"} <= set(fields)
    assert got[1] == b"{}"


@pytest.mark.parametrize("host", ["127.0.0.1:1", "nosuch.invalid", "x" * 70])
async def test_nobody_there(host: str) -> None:
    with pytest.raises(RequestFailed) as failed:
        await request("GET", f"http://{host}/", headers={})
    assert not failed.value.is_connected and str(failed.value)


def test_commands_over_tls(tmp_path: Path) -> None:
    """With the authority in SSL_CERT_FILE, as the documents say; without it the certificate is not trusted."""
    authority, other = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    for name, each in (("right.pem", authority), ("wrong.pem", other)):
        each.cert_pem.write_to_path(tmp_path / name)
    options = ("--tls-cert", str(cert), "--tls-key", str(key))
    gateway = GatewayProcess(tmp_path, space_config("ann"), options=options).start()

    def status(trusted: str, scheme: str) -> subprocess.CompletedProcess[str]:
        url = f"{scheme}://localhost:{gateway.port}"
        environment = {"SSL_CERT_FILE": str(tmp_path / trusted), "MEW_TOKEN": token_of("ann"), "PATH": "/usr/bin"}
        command = [sys.executable, "-m", "mewstream", "status", "--as", "ann", "--url", url]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    try:
        assert status("right.pem", "wss").returncode == 0
        refused = status("wrong.pem", "wss")
        assert refused.returncode == 3 and "its certificate is not trusted" in refused.stderr
        plain = status("right.pem", "ws")
        assert plain.returncode == 3 and plain.stderr.count("\n") == 1
    finally:
        gateway.stop()
