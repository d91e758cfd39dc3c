"""A writer that floods us is read in turns with the others, and what it sends is not kept in memory."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator

import psutil
import pytest
from raw_socket import TEXT, RawSocket, text, ws_frame

from support import GatewayProcess, running_gateway, space_config

ENOUGH = 10_000


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(space_config("alice", "bob", "carol")) as running:
        yield running


async def _open(writer: RawSocket) -> str:
    await writer.send(text({"kind": "stream/request", "payload": {}}))
    opened = await writer.read_until(lambda frame: b'"kind":"stream/open"' in frame.payload)
    return str(opened[-1].json["payload"]["stream_id"])


async def _fill(writer: RawSocket, piece: bytes) -> tuple[int, asyncio.Future[None]]:
    """Send until the system takes no more; how many pieces that were, and the sending of the rest of the last one."""
    count = 0
    writer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    writer.sock.setblocking(False)
    while True:
        try:
            sent = writer.sock.send(piece)
        except BlockingIOError:
            await asyncio.sleep(0.05)
            try:
                sent = writer.sock.send(piece)
            except BlockingIOError:
                return count, asyncio.ensure_future(asyncio.sleep(0))
        count += 1
        if sent < len(piece):
            return count, asyncio.ensure_future(writer.send(piece[sent:]))


async def test_others_have_their_turn(gateway: GatewayProcess) -> None:
    """While the gateway stands still, a flood comes in, and after it a word of another. It is heard long before the
    flood is worked off. The writer and the other read nothing: that does not hold up the flood for long."""
    async with (
        await RawSocket.joined(gateway.port, "alice") as writer,
        await RawSocket.joined(gateway.port, "bob") as other,
        await RawSocket.joined(gateway.port, "carol") as reader,
    ):
        stream = await _open(writer)
        many = b"".join(ws_frame(TEXT, f"#{stream}#".encode() + b"x" * 80) for _ in range(100))
        os.kill(gateway.pid, signal.SIGSTOP)
        try:
            pieces, rest = await _fill(writer, many)
            await other.send(text({"kind": "chat", "payload": {"text": "let me through"}}))
        finally:
            os.kill(gateway.pid, signal.SIGCONT)
        assert pieces * 100 > ENOUGH, "no flood"
        before = await reader.read_until(lambda frame: b"let me through" in frame.payload)
        flood = [frame for frame in before if frame.payload.startswith(b"#")]
        assert len(flood) < 1_000, "a flood was worked off while another waited"
        await rest
        heard = len(flood)
        while heard < pieces * 100:  # and nothing of it is lost
            frame = await reader.read_frame()
            assert frame is not None
            heard += frame.payload.startswith(b"#")


async def test_what_a_flood_brings_is_not_kept(gateway: GatewayProcess) -> None:
    """The buffer for what is read does not grow to what the system holds."""
    async with (
        await RawSocket.joined(gateway.port, "alice") as writer,
        await RawSocket.joined(gateway.port, "bob", receive_buffer=4096),  # does not read
    ):
        stream = await _open(writer)
        many = b"".join(ws_frame(TEXT, f"#{stream}#".encode() + b"x" * 80) for _ in range(2_000))
        process = psutil.Process(gateway.pid)

        async def drain() -> None:
            while await asyncio.get_running_loop().sock_recv(writer.sock, 1 << 20):
                pass

        draining = asyncio.ensure_future(drain())
        for _ in range(20):
            await writer.send(many)
        before, most = process.memory_info().rss, 0
        for _ in range(150):
            await writer.send(many)
            most = max(most, process.memory_info().rss)
        draining.cancel()
        assert most - before < 20 << 20
