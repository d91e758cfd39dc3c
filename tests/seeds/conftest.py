"""A stage for each test: a space of its own in the gateway that the tests of a module share.

A module that uses ``stage`` defines a module-scoped fixture ``gateway`` whose spaces are ``space-0``,
``space-1`` and so on, one for each of its tests (``space_count``), and any others it needs by name.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from websockets.protocol import State

from support import Client, GatewayProcess, Message, active_stream

ACKNOWLEDGED_BY = {
    "stream/grant-write": "stream/write-granted",
    "stream/revoke-write": "stream/write-revoked",
    "stream/transfer-ownership": "stream/ownership-transferred",
    "stream/grant-read": "stream/read-granted",
    "stream/revoke-read": "stream/read-revoked",
}
HTTP_STATUS = {
    "validation_error": 400,
    "invalid_operation": 400,
    "reserved_kind": 400,
    "unauthorized": 403,
    "stream_not_found": 404,
    "participant_not_found": 404,
    "limit_exceeded": 429,
}


class Stage:
    """One space, and those whom a test has brought into it."""

    def __init__(self, gateway: GatewayProcess, space: str) -> None:
        self.gateway = gateway
        self.space = space
        self.clients: list[Client] = []
        self._connections = itertools.count(1)

    async def join(self, participant: str, **fields: Any) -> Client:
        client = await self.gateway.join(participant, space=self.space, **fields)
        # Somebody who comes back must not use the ids of its first connection again.
        client._counter = 10_000 * next(self._connections)
        self.clients.append(client)
        return client

    async def cast(self, *participants: str) -> list[Client]:
        return [await self.join(participant) for participant in participants]

    async def leave(self, client: Client) -> None:
        """Disconnect; on return everyone else has been told."""
        self.clients.remove(client)
        await _close(client)
        for other in self.clients:
            await other.receive("system/presence", event="leave", participant={"id": client.participant})

    async def close(self) -> None:
        for client in self.clients:
            await _close(client)

    async def post(self, participant: str, kind: str, payload: Message, **fields: Any) -> tuple[int, Message]:
        return await self.gateway.post(participant, {"kind": kind, "payload": payload, **fields}, space=self.space)

    async def late_view(self, stream_id: str) -> Message:
        """A stream as somebody sees it who comes now."""
        client = await self.gateway.join("latecomer", space=self.space)
        await client.close()
        return active_stream(client.welcome, stream_id)

    async def ask(self, client: Client, kind: str, **payload: Any) -> Message:
        """Change a right; the payload of the acknowledgement, which comes from the gateway."""
        id = await client.send(kind, payload)
        told = await client.receive(ACKNOWLEDGED_BY[kind], of=id)
        assert told["from"] == "system:gateway", told
        return dict(told["payload"])

    async def refused(self, transport: str, client: Client, kind: str, code: str, **payload: Any) -> Message:
        """Send what must be refused, by socket or HTTP: its sender is told why, the others nothing."""
        id = f"refused-{transport}-{next(self._connections)}"
        if transport == "http":
            status, error = await self.post(client.participant, kind, payload, id=id)
            assert status == HTTP_STATUS[code], error
        else:
            await client.send(kind, payload, id=id)
            error = await client.receive("system/error", of=id)
        assert error["payload"]["error"] == code, error
        assert error["payload"]["message"], error
        assert (error["kind"], error["from"], error["to"]) == ("system/error", "system:gateway", [client.participant])
        assert error["correlation_id"] == [id]
        for other in self.clients:
            for message in await other.settle():
                if isinstance(message, dict):
                    assert message["id"] != id, f"{other.participant} was relayed what had been refused"
                    assert other is client or id not in message.get("correlation_id", ()), message
        return error

    async def accepted(self, writer: Client, stream_id: str, data: str | bytes) -> None:
        """A frame is taken, and the next that everyone here gets of the stream, its writer included."""
        await writer.frame(stream_id, data)
        for client in self.clients:
            assert await client.receive_frame(stream_id) == data

    async def rejected(
        self, writer: Client, stream_id: str, data: str, code: str = "unauthorized_stream_write"
    ) -> Message:
        """A frame is dropped: its writer is told so, and nobody gets it."""
        await writer.frame(stream_id, data)
        error = await writer.error(code)
        assert error["to"] == [writer.participant]
        assert error["payload"]["stream_id"] == stream_id
        for client in self.clients:
            for message in await client.settle():
                if isinstance(message, dict):
                    assert message["kind"] != "system/error", f"{client.participant} was told {message}"
                else:
                    assert data not in message, f"{client.participant} got a frame that had been refused"
        return error


async def _close(client: Client) -> None:
    """Close, having read everything: with a full receive queue ``websockets`` never sees the close frame."""
    if client.connection.state is State.OPEN:
        await client.settle()
    await client.close()


@pytest.fixture(scope="module")
def space_count(request: pytest.FixtureRequest) -> int:
    """How many tests of this module run."""
    return sum(getattr(item, "module", None) is request.module for item in request.session.items)


@pytest.fixture(scope="module")
def _space_numbers() -> itertools.count[int]:
    return itertools.count()


@pytest.fixture
async def stages(gateway: GatewayProcess) -> AsyncIterator[Callable[[str], Stage]]:
    """Stages by the name of their space."""
    opened: list[Stage] = []

    def open_stage(space: str) -> Stage:
        opened.append(Stage(gateway, space))
        return opened[-1]

    yield open_stage
    for stage in opened:
        await stage.close()


@pytest.fixture
def stage(stages: Callable[[str], Stage], _space_numbers: itertools.count[int]) -> Stage:
    """A space that no other test has used."""
    return stages(f"space-{next(_space_numbers)}")
