"""A straightforward MEW gateway on the `websockets` library: what others are compared with.

It is what a competent developer writes in a day: asyncio on uvloop, one task per connection, one
``await connection.send()`` per recipient and message. It keeps the rules of the streams (who may
write, grant, revoke, transfer, close), and nothing of what comes after the day: no journal, no
limits, no resume.

    python benchmarks/baseline_gateway.py --config space.yaml --port 8081
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import uvloop
import yaml
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

Message = dict[str, Any]
GATEWAY = "system:gateway"


class Refused(Exception):
    """The sender is told; the connection goes on."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stream:
    def __init__(self, id: str, owner: str, request: Message) -> None:
        self.id = id
        self.owner = owner
        self.writers = {owner: None}  # in the order of their grants
        self.targets: list[str] | None = request.get("target")
        self.request = request
        self.created = _now()

    def describe(self) -> Message:
        return {
            "direction": "upload",
            **self.request,
            "stream_id": self.id,
            "owner": self.owner,
            "authorized_writers": list(self.writers),
            "created": self.created,
        }


class Space:
    def __init__(self, document: Message) -> None:
        self.id = str(document["space"]["id"])
        default = (document.get("defaults") or {}).get("capabilities", [])
        self.tokens: dict[str, list[str]] = {}
        self.capabilities: dict[str, list[Message]] = {}
        self.present: dict[str, ServerConnection | None] = {}
        """Who is here; None for those who are here without a connection."""
        for id, entry in document["participants"].items():
            self.tokens[id] = entry["tokens"]
            self.capabilities[id] = entry.get("capabilities", default)
            if entry.get("auto_connect"):
                self.present[id] = None
        self.streams: dict[str, Stream] = {}
        self._stream_numbers = itertools.count(1)
        self._ids = itertools.count(1)

    # -- sending ----------------------------------------------------------------------------------

    async def deliver(self, message: str | bytes, recipients: list[str] | None = None) -> None:
        """One send per recipient."""
        for id in list(self.present) if recipients is None else recipients:
            connection = self.present.get(id)
            if connection is not None:
                try:
                    await connection.send(message)
                except ConnectionClosed:
                    pass  # its own task takes it out

    def envelope(self, kind: str, payload: Message, **fields: Any) -> str:
        return _dumps(
            {
                "protocol": "mew/v0.4",
                "id": f"gw-{next(self._ids)}",
                "ts": _now(),
                "from": GATEWAY,
                "kind": kind,
                **fields,
                "payload": payload,
            }
        )

    # -- joining ----------------------------------------------------------------------------------

    def describe(self, id: str) -> Message:
        return {"id": id, "capabilities": self.capabilities[id]}

    async def join(self, id: str, connection: ServerConnection) -> None:
        others = [self.describe(each) for each in self.present if each != id]
        self.present[id] = connection
        welcome = {
            "you": self.describe(id),
            "participants": others,
            "active_streams": [stream.describe() for stream in self.streams.values()],
        }
        # Built now, with the state of now, and before anybody else is told: then nothing overtakes it.
        presence = self.envelope("system/presence", {"event": "join", "participant": self.describe(id)})
        recipients = [each for each in self.present if each != id]
        await connection.send(self.envelope("system/welcome", welcome, to=[id]))
        await self.deliver(presence, recipients)

    async def leave(self, id: str, connection: ServerConnection) -> None:
        if self.present.get(id) is not connection:
            return
        del self.present[id]
        await self.deliver(self.envelope("system/presence", {"event": "leave", "participant": {"id": id}}))
        for stream in list(self.streams.values()):
            if id in stream.writers and id != stream.owner:
                del stream.writers[id]
                await self.deliver(self.envelope("stream/write-revoked", _rights(stream, id, "disconnected")))

    # -- receiving --------------------------------------------------------------------------------

    async def frame(self, sender: str, message: str | bytes) -> None:
        marker: Any = "#" if isinstance(message, str) else b"#"
        end = message.find(marker, 1)
        id = message[1:end]
        stream = self.streams.get(id if isinstance(id, str) else id.decode())
        if stream is None:
            raise Refused("stream_not_found", "no such stream")
        if sender not in stream.writers:
            raise Refused("unauthorized_stream_write", f"{sender} may not write to {stream.id}")
        await self.deliver(message, stream.targets)

    async def receive(self, sender: str, envelope: Message) -> None:
        kind = envelope["kind"]
        if envelope.get("from", sender) != sender or kind.startswith("system/"):
            raise Refused("unauthorized", "this is not yours to say")
        if not _may(self.capabilities[sender], kind):
            raise Refused("capability_violation", f"{sender} may not send {kind}")
        envelope = {"protocol": "mew/v0.4", "id": f"gw-{next(self._ids)}", "ts": _now(), "from": sender, **envelope}
        answer = self._acts.get(kind, Space._relay_only)(self, sender, envelope["id"], envelope.get("payload") or {})
        await self.deliver(_dumps(envelope))
        if answer is not None:
            await self.deliver(answer)

    def _relay_only(self, sender: str, id: str, payload: Message) -> str | None:
        return None

    def _request(self, sender: str, id: str, payload: Message) -> str:
        stream = Stream(f"stream-{next(self._stream_numbers)}", sender, payload)
        self.streams[stream.id] = stream
        return self.envelope("stream/open", {**stream.describe(), "encoding": "text"}, to=[sender], correlation_id=[id])

    def _grant(self, sender: str, id: str, payload: Message) -> str:
        stream, participant = self._owned(sender, payload), self._here(payload.get("participant_id"))
        stream.writers[participant] = None
        return self.envelope(
            "stream/write-granted", _rights(stream, participant, payload.get("reason")), correlation_id=[id]
        )

    def _revoke(self, sender: str, id: str, payload: Message) -> str:
        stream, participant = self._owned(sender, payload), payload.get("participant_id")
        if participant == stream.owner:
            raise Refused("invalid_operation", "the owner cannot be revoked")
        if participant not in stream.writers:
            raise Refused("invalid_operation", f"{participant} is no writer of {stream.id}")
        del stream.writers[participant]
        return self.envelope(
            "stream/write-revoked", _rights(stream, participant, payload.get("reason")), correlation_id=[id]
        )

    def _transfer(self, sender: str, id: str, payload: Message) -> str:
        stream, owner = self._owned(sender, payload), self._here(payload.get("new_owner"))
        stream.writers.pop(stream.owner)
        stream.writers = {owner: None, **stream.writers}
        previous, stream.owner = stream.owner, owner
        described = {"stream_id": stream.id, "previous_owner": previous, "new_owner": owner}
        return self.envelope(
            "stream/ownership-transferred",
            {**described, "authorized_writers": list(stream.writers), "reason": payload.get("reason")},
            correlation_id=[id],
        )

    def _close(self, sender: str, id: str, payload: Message) -> None:
        del self.streams[self._owned(sender, payload).id]

    def _owned(self, sender: str, payload: Message) -> Stream:
        stream = self.streams.get(payload.get("stream_id", ""))
        if stream is None:
            raise Refused("stream_not_found", "no such stream")
        if stream.owner != sender:
            raise Refused("unauthorized", f"{sender} does not own {stream.id}")
        return stream

    def _here(self, participant: Any) -> str:
        if participant not in self.present:
            raise Refused("participant_not_found", f"{participant} is not here")
        return str(participant)

    _acts: ClassVar[dict[str, Callable[[Space, str, str, Message], str | None]]] = {
        "stream/request": _request,
        "stream/grant-write": _grant,
        "stream/revoke-write": _revoke,
        "stream/transfer-ownership": _transfer,
        "stream/close": _close,
    }


class Gateway:
    def __init__(self, documents: list[Message]) -> None:
        self.spaces = {space.id: space for space in map(Space, documents)}

    async def handle(self, connection: ServerConnection) -> None:
        joined = self._identify(await connection.recv())
        if joined is None:
            await connection.close(1008, "a join with a valid token comes first")
            return
        space, id = joined
        await space.join(id, connection)
        try:
            async for message in connection:
                try:
                    if message[:1] in ("#", b"#"):
                        await space.frame(id, message)
                    else:
                        await space.receive(id, json.loads(message))
                except Refused as refused:
                    error = {"error": refused.code, "message": str(refused)}
                    await connection.send(space.envelope("system/error", error, to=[id]))
        except ConnectionClosed:
            pass
        finally:
            await space.leave(id, connection)

    def _identify(self, message: str | bytes) -> tuple[Space, str] | None:
        join = json.loads(message)
        join = join.get("payload", join)
        space = self.spaces.get(join["space"]) if "space" in join else next(iter(self.spaces.values()))
        id = join.get("participantId") or join.get("participant_id") or join.get("participant")
        if space is None or join.get("token") not in space.tokens.get(id, ()):
            return None
        return space, id


def _rights(stream: Stream, participant: str, reason: str | None) -> Message:
    return {
        "stream_id": stream.id,
        "participant_id": participant,
        "authorized_writers": list(stream.writers),
        "reason": reason,
    }


def _may(capabilities: list[Message], kind: str) -> bool:
    for each in capabilities:
        pattern = each["kind"]
        if pattern in ("*", kind) or (pattern.endswith("/*") and kind.startswith(pattern[:-1])):
            return True
    return False


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _dumps(message: Message) -> str:
    return json.dumps(message, separators=(",", ":"))


async def run(gateway: Gateway, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    # No compression: the frames are small, and ours does none either.
    server = await serve(gateway.handle, "127.0.0.1", port, compression=None, backlog=1024)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    # Not closed one by one: who is left is cut off with the process.
    server.close(close_connections=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="A straightforward MEW gateway, to compare with.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", type=int, default=8081)
    options = parser.parse_args()
    root = yaml.load(options.config.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    uvloop.run(run(Gateway(root.get("spaces", [root])), options.port))


if __name__ == "__main__":
    main()
