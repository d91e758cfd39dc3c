"""A small v0.4 gateway with none of our extensions, as the reference behaves: no ``active_streams``, no
positions, no resume, frames as ``#id#data``. It believes everyone, and forgets everything when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

GATEWAY = "system:gateway"


class PlainGateway:
    def __init__(self) -> None:
        self._sockets: dict[str, ServerConnection] = {}
        self._streams: dict[str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)
        self._server: Server | None = None
        self.port = 0
        self.joins: list[dict[str, Any]] = []
        self._invited: set[str] = set()
        self.is_mute = False
        """Requests are carried out, and not answered."""

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    ws_url = url

    async def start(self) -> None:
        self._server = await serve(self._serve, "127.0.0.1", self.port, ping_interval=None, close_timeout=0.2)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        self._sockets.clear()
        self._streams.clear()

    def cut(self, participant: str) -> None:
        self._sockets[participant].transport.abort()

    async def _serve(self, socket: ServerConnection) -> None:
        join = json.loads(await socket.recv())
        self.joins.append(join)
        me = join["participantId"]
        self._sockets[me] = socket
        others = [{"id": each, "capabilities": []} for each in self._sockets if each != me]
        await self._tell("system/welcome", {"you": {"id": me, "capabilities": []}, "participants": others}, to=[me])
        await self._all("system/presence", {"event": "join", "participant": {"id": me, "capabilities": []}}, but=me)
        with contextlib.suppress(ConnectionClosed):
            async for message in socket:
                await self._received(me, message)
        if self._sockets.get(me) is socket:
            del self._sockets[me]
            await self._all("system/presence", {"event": "leave", "participant": {"id": me}})

    async def _received(self, sender: str, message: str | bytes) -> None:
        first = message[:1]
        if first in ("#", b"#"):
            mark: Any = "#" if isinstance(message, str) else b"#"
            stream = message.split(mark, 2)[1]
            name = stream if isinstance(stream, str) else stream.decode()
            if name in self._streams and sender in self._streams[name]["authorized_writers"]:
                await self._send_all(message)
            return
        envelope = json.loads(message)
        if self.is_mute:
            return
        await self._send_all(json.dumps({**envelope, "from": sender, "ts": "2026-01-01T00:00:00Z"}))
        await self._act(sender, envelope["kind"], envelope.get("payload", {}), [envelope["id"]])

    async def _act(self, sender: str, kind: str, payload: dict[str, Any], of: list[str]) -> None:
        if kind == "space/invite":
            await self._tell("space/invite-ack", self._invite(payload["participant_id"]), to=[sender], of=of)
            return
        if kind == "stream/request":
            id = f"stream-{next(self._numbers)}"
            opened = {**payload, "stream_id": id, "encoding": "text", "owner": sender, "authorized_writers": [sender]}
            self._streams[id] = opened
            await self._all("stream/open", opened, to=[sender], of=of)
            return
        stream = self._streams.get(payload.get("stream_id", ""))
        if not kind.startswith("stream/") or (stream is None and kind != "stream/announce"):
            if kind.startswith("stream/"):
                await self._tell("system/error", {"error": "stream_not_found", "message": "none"}, to=[sender], of=of)
            return
        if stream is None:
            return  # a handshake is not known here
        writers = stream["authorized_writers"]
        if kind == "stream/close":
            del self._streams[stream["stream_id"]]
        elif kind == "stream/grant-write":
            writers.append(payload["participant_id"])
            told = {**payload, "authorized_writers": writers, "reason": payload.get("reason")}
            await self._all("stream/write-granted", told, of=of)
        elif kind == "stream/transfer-ownership":
            previous, stream["owner"] = stream["owner"], payload["new_owner"]
            stream["authorized_writers"] = [payload["new_owner"]]
            told = {**payload, "previous_owner": previous, "authorized_writers": stream["authorized_writers"]}
            await self._all("stream/ownership-transferred", told, of=of)

    def _invite(self, name: str) -> dict[str, Any]:
        """No error beside it, whatever comes of it."""
        if name in self._invited:
            return {"status": "already_exists", "participant_id": name}
        if "/" in name:
            return {"status": "error", "participant_id": name, "message": "invalid characters"}
        self._invited.add(name)
        return {"status": "created", "participant_id": name, "token": f"token-of-{name}"}

    async def _tell(self, kind: str, payload: Any, *, to: list[str], of: list[str] | None = None) -> None:
        for name in to:
            await self._sockets[name].send(self._envelope(kind, payload, to, of))

    async def _all(
        self, kind: str, payload: Any, *, to: list[str] | None = None, of: list[str] | None = None, but: str = ""
    ) -> None:
        await self._send_all(self._envelope(kind, payload, to, of), but)

    async def _send_all(self, message: str | bytes, but: str = "") -> None:
        for name, socket in list(self._sockets.items()):
            if name != but:
                with contextlib.suppress(ConnectionClosed):
                    await socket.send(message)

    def _envelope(self, kind: str, payload: Any, to: list[str] | None, of: list[str] | None) -> str:
        envelope = {"protocol": "mew/v0.4", "id": f"gw-{next(self._ids)}", "ts": "2026-01-01T00:00:00Z"}
        told: dict[str, Any] = {**envelope, "from": GATEWAY, "to": to or [], "kind": kind, "payload": payload}
        if of is not None:
            told["correlation_id"] = of[0]  # a bare text, as some send it
        return json.dumps(told)


@contextlib.asynccontextmanager
async def plain_gateway() -> AsyncIterator[PlainGateway]:
    gateway = PlainGateway()
    await gateway.start()
    try:
        yield gateway
    finally:
        await asyncio.wait_for(gateway.stop(), 10)
