"""What the tests of the SDK share: joining, waiting for events, a wire that can be cut, a scripted gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

import mewstream
from mewstream import Backoff, Event, Events
from support import TIMEOUT, GatewayProcess, token_of

QUICK = Backoff(first=0.02, most=0.1)

E = TypeVar("E", bound=Event)


def enter(gateway: GatewayProcess, participant: str, **options: Any) -> mewstream.Connecting:
    options.setdefault("token", token_of(participant))
    options.setdefault("reconnect", QUICK)
    options.setdefault("url", gateway.ws_url)
    return mewstream.connect(participant=participant, **options)


async def until(events: Events, kind: type[E], /, **fields: Any) -> E:
    """The next event of a kind that has these values; others are passed over."""
    passed = []
    try:
        async with asyncio.timeout(TIMEOUT):
            async for event in events:
                if isinstance(event, kind) and all(getattr(event, key) == value for key, value in fields.items()):
                    return event
                passed.append(event)
    except TimeoutError:
        pass
    raise AssertionError(f"no {kind.__name__} {fields}; there were {passed}")


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Wire:
    """A TCP proxy to a gateway, whose connections can be cut and whose door can be shut."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_shut = False
        self.is_deaf = False
        """Nothing of what the clients send is passed on."""
        self.connections = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.is_shut:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._gateway.port)
        self._writers |= {writer, there_writer}
        await asyncio.gather(
            self._carry(reader, there_writer, from_client=True), self._carry(there_reader, writer, from_client=False)
        )

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not (from_client and self.is_deaf):
                    writer.write(data)
                    await writer.drain()
        writer.close()
        self._writers.discard(writer)

    def cut(self) -> None:
        """Both sides lose the connection, without a goodbye."""
        for writer in list(self._writers):
            writer.transport.abort()

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connected(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self.is_shut = True
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)


@contextlib.asynccontextmanager
async def wire_to(gateway: GatewayProcess) -> AsyncIterator[Wire]:
    wire = Wire(gateway)
    server = await asyncio.start_server(wire.accepted, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        await wire.close()
        server.close()
        await server.wait_closed()


class Script:
    """One connection to a gateway that does what a test says."""

    def __init__(self, connection: ServerConnection, join: dict[str, Any]) -> None:
        self.connection = connection
        self.join = join

    async def welcome(self, payload: Any = None, **fields: Any) -> None:
        you = {"you": {"id": self.join.get("participantId"), "capabilities": [{"kind": "*"}]}}
        await self.tell("system/welcome", {**you, "participants": [], **(payload or {})}, **fields)

    async def tell(self, kind: Any, payload: Any = None, **fields: Any) -> None:
        envelope = {"protocol": "mew/v0.4", "id": "x", "from": "system:gateway", "kind": kind, "payload": payload}
        await self.connection.send(json.dumps({**envelope, **fields}))

    async def hear(self) -> Any:
        """The next message; envelopes as objects."""
        message = await asyncio.wait_for(self.connection.recv(), TIMEOUT)
        return json.loads(message) if isinstance(message, str) and message[:1] == "{" else message

    async def relay(self, **fields: Any) -> Any:
        """Send the next envelope back to its sender, as gateways do."""
        message = await self.hear()
        await self.connection.send(json.dumps({**message, "from": self.join.get("participantId"), **fields}))
        return message

    async def relay_kind(self, kind: str) -> Any:
        """Send the next envelope of a kind back to its sender; others are passed over."""
        message = await self.hear_kind(kind)
        await self.connection.send(json.dumps({**message, "from": self.join.get("participantId")}))
        return message

    async def hear_kind(self, kind: str) -> Any:
        while True:
            message = await self.hear()
            if isinstance(message, dict) and message.get("kind") == kind:
                return message


@contextlib.asynccontextmanager
async def scripted(act: Callable[[Script], Awaitable[None]], **options: Any) -> AsyncIterator[str]:
    """A gateway of a few lines; ``act`` is called for each connection after its join has come."""
    failures: list[BaseException] = []

    async def serve_one(connection: ServerConnection) -> None:
        try:
            join = json.loads(await connection.recv())
            await act(Script(connection, join))
        except ConnectionClosed:
            pass
        except BaseException as error:
            failures.append(error)
            raise

    async with serve(serve_one, "127.0.0.1", 0, ping_interval=None, close_timeout=0.2, **options) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert not failures, failures
