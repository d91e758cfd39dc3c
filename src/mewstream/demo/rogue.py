"""Those who do not use the SDK, and do not behave: one who tries what is forbidden, and one who does not read."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

_RECEIVE_BUFFER = 16 << 10


class RawClient:
    """A bare socket that has joined. It says what it likes."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = connection
        self._ids = itertools.count(1)
        # Whoever comes back must not repeat the ids of its last connection.
        self._prefix = secrets.token_hex(4)
        self.refused: list[str] = []

    async def send(self, kind: str, **payload: Any) -> None:
        id = f"{self._prefix}-{next(self._ids)}"
        await self._socket.send_json({"protocol": "mew/v0.4", "id": id, "kind": kind, "payload": payload})

    async def frame(self, stream: str, text: str) -> None:
        await self._socket.send_str(f"#{stream}#{text}")

    async def listen(self, seconds: float) -> None:
        """Read for a while, and remember which errors came."""
        try:
            async with asyncio.timeout(seconds):
                async for message in self._socket:
                    if message.type is aiohttp.WSMsgType.TEXT and message.data.startswith("{"):
                        envelope = message.json()
                        if envelope.get("kind") == "system/error":
                            self.refused.append(str(envelope["payload"]["error"]))
        except TimeoutError:
            pass


@asynccontextmanager
async def raw_client(
    url: str, space: str, participant: str, token: str, *, narrow: bool = False
) -> AsyncIterator[RawClient]:
    """Join by a bare socket; a ``narrow`` one has room for little that was not read."""
    connector = aiohttp.TCPConnector(socket_factory=_narrow_socket if narrow else None)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.ws_connect(f"{url}/ws", max_msg_size=0) as connection,
    ):
        await connection.send_json({"type": "join", "space": space, "participantId": participant, "token": token})
        await connection.receive()
        yield RawClient(connection)


def _narrow_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    made.setblocking(False)
    return made
