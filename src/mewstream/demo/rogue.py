"""Those who do not use the SDK, and do not behave: one who tries what is forbidden, and one who does not read."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

_RECEIVE_BUFFER = 16 << 10


class RawClient(WSListener):
    """A bare socket that has joined. It says what it likes. A ``narrow`` one stops reading after its welcome."""

    def __init__(self, *, narrow: bool) -> None:
        self._narrow = narrow
        self._ids = itertools.count(1)
        # Whoever comes back must not repeat the ids of its last connection.
        self._prefix = secrets.token_hex(4)
        self.answered = asyncio.Event()
        self.refused: list[str] = []
        """The errors that came."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
        elif frame.msg_type == WSMsgType.TEXT and (text := frame.get_payload_as_bytes()).startswith(b"{"):
            envelope = msgspec.json.decode(text)
            if envelope.get("kind") == "system/error":
                self.refused.append(str(envelope["payload"]["error"]))
            self.answered.set()
            if self._narrow:
                transport.underlying_transport.pause_reading()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.answered.set()

    def say(self, message: Any) -> None:
        self._transport.send(WSMsgType.TEXT, msgspec.json.encode(message))

    async def send(self, kind: str, **payload: Any) -> None:
        id = f"{self._prefix}-{next(self._ids)}"
        self.say({"protocol": "mew/v0.4", "id": id, "kind": kind, "payload": payload})

    async def frame(self, stream: str, text: str) -> None:
        self._transport.send(WSMsgType.TEXT, f"#{stream}#{text}".encode())

    async def listen(self, seconds: float) -> None:
        """Wait for what comes."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._transport.send_close(WSCloseCode.OK)
        self._transport.disconnect()
        with contextlib.suppress(Exception):  # however it ends, it has ended
            await self._transport.wait_disconnected()


@asynccontextmanager
async def raw_client(
    url: str, space: str, participant: str, token: str, *, narrow: bool = False
) -> AsyncIterator[RawClient]:
    """Join by a bare socket; a ``narrow`` one has room for little that was not read."""
    client = RawClient(narrow=narrow)
    await ws_connect(lambda: client, f"{url}/ws", socket_factory=_narrow_socket if narrow else None)
    try:
        client.say({"type": "join", "space": space, "participantId": participant, "token": token})
        await client.answered.wait()
        yield client
    finally:
        await client.close()


def _narrow_socket(address: Any) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    made.setblocking(False)
    return made
