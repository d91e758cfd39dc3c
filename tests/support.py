"""A real gateway in a process of its own, and a plain v0.4 client to talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from websockets.asyncio.client import ClientConnection, connect

from forked import ForkedCommand

Message = dict[str, Any]
TIMEOUT = 10.0
#: For tests in which somebody whose connection breaks has left at once.
AT_ONCE = {"policies": {"reconnect_grace": 0}}
_connections = itertools.count(1)


def token_of(participant: str) -> str:
    return f"token-of-{participant}"


def space_config(
    *participants: str,
    space: str = "demo",
    capabilities: dict[str, list[Any]] | None = None,
    always_here: Collection[str] = (),
    **sections: Any,
) -> dict[str, Any]:
    """A space.yaml: everyone may do everything, unless ``capabilities`` says otherwise, and may join as often as the
    tests of a module need, which share a gateway. Those who are ``always_here`` need no socket, and may poll from the
    start."""
    ours = sections.pop("mewstream", {})
    sections["mewstream"] = {**ours, "limits": {"joins_per_second": 0, **ours.get("limits", {})}}
    return {
        "space": {"id": space, "name": space},
        "participants": {
            id: {
                "tokens": [token_of(id)],
                "capabilities": (capabilities or {}).get(id, [{"kind": "*"}]),
                **({"auto_connect": True} if id in always_here else {}),
            }
            for id in (*participants, *always_here)
        },
        **sections,
    }


class GatewayProcess:
    """``mewstream serve`` on a free port. ``directory`` is its working directory."""

    def __init__(
        self,
        directory: Path,
        *configs: dict[str, Any],
        options: tuple[str, ...] = (),
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.directory = directory
        self._prepare = prepare
        self.files = [directory / f"space-{number}.yaml" for number, _ in enumerate(configs)]
        for file, config in zip(self.files, configs, strict=True):
            file.write_text(yaml.safe_dump(config))
        self.options = options
        self.port = 0
        self.process: ForkedCommand | None = None
        self.log = directory / "gateway.log"

    def start(self) -> GatewayProcess:
        arguments = ["serve", "--port", str(self.port)]
        for file in self.files:
            arguments += ["--config", str(file)]
        self.process = ForkedCommand([*arguments, *self.options], self.directory, self.log, prepare=self._prepare)
        line = self.process.stdout.readline()
        assert "listening on http" in line, f"the gateway did not start: {line} {self.log.read_text()}"
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def stop(self, *, expect_clean_log: bool = True) -> str:
        """SIGTERM, and wait. The log must hold no traceback."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        self.process.stdout.close()
        text = self.log.read_text()
        if expect_clean_log:
            assert "Traceback" not in text, text
            assert self.process.returncode == 0, text
        return text

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def join(self, participant: str, *, space: str | None = None, **fields: Any) -> Client:
        """Connect, join, and wait for the welcome."""
        client = await Client.connect(f"{self.ws_url}/ws")
        client.participant = participant
        join = {"type": "join", "participantId": participant, "token": token_of(participant), **fields}
        if space is not None:
            join["space"] = space
        await client.send_raw(json.dumps(join))
        client.welcome = await client.receive("system/welcome")
        return client

    async def post(self, participant: str, envelope: Any, *, space: str | None = None) -> tuple[int, Message]:
        return await self.http("POST", f"/participants/{participant}/messages", participant, space=space, json=envelope)

    async def http(
        self, method: str, path: str, participant: str | None = None, *, space: str | None = None, **options: Any
    ) -> tuple[int, Any]:
        headers = options.pop("headers", {})
        if participant is not None:
            headers["Authorization"] = f"Bearer {token_of(participant)}"
        params = options.pop("params", {})
        if space is not None:
            params["space"] = space
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, headers=headers, params=params, **options) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if "json" in response.content_type else text


@contextlib.contextmanager
def running_gateway(
    *configs: dict[str, Any],
    options: tuple[str, ...] = (),
    clean_log: bool = True,
    prepare: Callable[[], None] | None = None,
) -> Any:
    """``prepare`` is called in the process of the gateway before it begins; see :mod:`instruments`."""
    with tempfile.TemporaryDirectory() as directory:
        gateway = GatewayProcess(Path(directory), *configs, options=options, prepare=prepare).start()
        try:
            yield gateway
        finally:
            gateway.stop(expect_clean_log=clean_log)


def without_everyday_lines(log: str) -> str:
    """A log without the lines that everyone can cause: those who come and go, and those who are refused."""
    lines = log.splitlines(keepends=True)
    return "".join(each for each in lines if not re.search(r" INFO \S+: ", each))


class Client:
    """A plain client: sends JSON and frames, and keeps everything it got, in order."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.participant = ""
        self.welcome: Message = {}
        self.got: list[Message | str | bytes] = []
        """Everything that came: envelopes as objects, frames as they were."""
        self._unread: list[Message | str | bytes] = []
        self._counter = 0
        # A participant that comes back must not repeat the ids of its last connection.
        self._prefix = next(_connections)

    @classmethod
    async def connect(cls, url: str, **options: Any) -> Client:
        options.setdefault("max_size", None)
        options.setdefault("max_queue", None)  # else a close waits behind what nobody reads
        return cls(await connect(url, ping_interval=None, **options))

    async def send_raw(self, data: str | bytes) -> None:
        await self.connection.send(data)

    async def send(self, kind: str, payload: Any = None, **fields: Any) -> str:
        """Send an envelope; the answer is its id."""
        self._counter += 1
        id = fields.pop("id", f"{self.participant}-{self._prefix}-{self._counter}")
        envelope = {"id": id, "kind": kind, "payload": payload if payload is not None else {}, **fields}
        await self.send_raw(json.dumps(envelope))
        return id

    async def frame(self, stream_id: str, data: str | bytes) -> None:
        if isinstance(data, bytes):
            await self.send_raw(b"#%b#%b" % (stream_id.encode(), data))
        else:
            await self.send_raw(f"#{stream_id}#{data}")

    async def next(self, timeout: float = TIMEOUT) -> Message | str | bytes:
        """The next message, whatever it is."""
        if self._unread:
            return self._unread.pop(0)
        raw = await asyncio.wait_for(self.connection.recv(), timeout)
        message: Message | str | bytes = raw
        if isinstance(raw, str) and raw.startswith("{"):
            message = json.loads(raw)
        self.got.append(message)
        return message

    async def wait_for(self, accept: Callable[[Any], bool], timeout: float = TIMEOUT) -> Any:
        """The next message that is accepted; those before it are passed over (but stay in ``got``)."""
        async with asyncio.timeout(timeout):
            while True:
                message = await self.next(timeout)
                if accept(message):
                    return message

    async def receive(self, kind: str, *, of: str | None = None, timeout: float = TIMEOUT, **payload: Any) -> Message:
        """The next envelope of a kind, correlated to ``of``, whose payload has these values."""

        def accept(message: Any) -> bool:
            return (
                isinstance(message, dict)
                and message.get("kind") == kind
                and (of is None or of in message.get("correlation_id", ()))
                and all(message["payload"].get(key) == value for key, value in payload.items())
            )

        try:
            return await self.wait_for(accept, timeout)  # type: ignore[no-any-return]
        except TimeoutError:
            raise AssertionError(f"{self.participant}: no {kind} {of or ''} {payload}; got {self.got[-10:]}") from None

    async def receive_frame(self, stream_id: str, timeout: float = TIMEOUT) -> str | bytes:
        """The data of the next raw frame of a stream, as text or bytes like it came."""
        message = await self.wait_for(
            lambda each: not isinstance(each, dict) and _is_frame_of(each, stream_id), timeout
        )
        return message[len(stream_id) + 2 :]  # type: ignore[no-any-return]

    async def error(self, code: str, *, of: str | None = None, timeout: float = TIMEOUT) -> Message:
        """The next ``system/error``, which must have this code."""
        message = await self.receive("system/error", of=of, timeout=timeout)
        assert message["payload"]["error"] == code, message
        assert message["payload"]["message"], message
        return message

    async def settle(self) -> list[Message | str | bytes]:
        """Everything that is on its way: sends a marker and returns what came before its echo."""
        self._counter += 1
        marker = f"settle-{self.participant}-{self._prefix}-{self._counter}"
        await self.send_raw(json.dumps({"id": marker, "kind": "mcp/response", "payload": {"marker": marker}}))
        before: list[Message | str | bytes] = []
        while True:
            message = await self.next()
            if isinstance(message, dict) and message.get("id") == marker:
                return before
            before.append(message)

    async def open_stream(self, **payload: Any) -> str:
        """Request a stream and wait until it is open."""
        id = await self.send("stream/request", {"direction": "upload", **payload})
        opened = await self.receive("stream/open", of=id)
        return str(opened["payload"]["stream_id"])

    async def closed(self, timeout: float = TIMEOUT) -> int:
        """Wait until the gateway closes the connection; its code."""
        async with asyncio.timeout(timeout):
            with contextlib.suppress(Exception):
                while True:
                    raw = await self.connection.recv()
                    self.got.append(json.loads(raw) if isinstance(raw, str) and raw.startswith("{") else raw)
        assert self.connection.close_code is not None
        return self.connection.close_code

    async def close(self) -> None:
        await self.connection.close()


def _is_frame_of(message: str | bytes, stream_id: str) -> bool:
    if isinstance(message, bytes):
        return message.startswith(f"#{stream_id}#".encode())
    return message.startswith(f"#{stream_id}#")


def active_stream(welcome: Message, stream_id: str) -> Message:
    """The entry of a stream in a welcome."""
    (entry,) = [each for each in welcome["payload"]["active_streams"] if each["stream_id"] == stream_id]
    return dict(entry)


@contextlib.asynccontextmanager
async def joined(gateway: GatewayProcess, *participants: str, **fields: Any) -> AsyncIterator[list[Client]]:
    clients = [await gateway.join(participant, **fields) for participant in participants]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()
