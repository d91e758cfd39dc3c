"""A network that can be cut: a TCP proxy between a participant and the gateway."""

from __future__ import annotations

import asyncio
import contextlib


class CuttableNetwork:
    """``async with CuttableNetwork(port) as network:`` what connects to ``network.url`` reaches that port."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_whole = asyncio.Event()
        self._is_whole.set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Every connection is torn, and none is made until :meth:`mend`."""
        self._is_whole.clear()
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_whole.set()

    async def __aenter__(self) -> CuttableNetwork:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_whole.is_set():
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        both = {writer, far_writer}
        self._writers |= both
        try:
            await asyncio.gather(_pour(reader, far_writer), _pour(far_reader, writer))
        finally:
            self._writers -= both


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
