"""HTTP on a bare TCP socket: several requests of one connection, and what no library would send."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from raw_socket import RawSocket

from support import TIMEOUT, token_of


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The code of the error envelope."""
        assert self.json["kind"] == "system/error", self
        return str(self.json["payload"]["error"])

    @property
    def is_last(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


def request(
    method: str = "GET", path: str = "/health", *lines: str, participant: str | None = None, body: bytes | None = None
) -> bytes:
    """A request of HTTP/1.1; ``lines`` are further headers."""
    headers = ["Host: gateway.example", *lines]
    if participant is not None:
        headers.append(f"Authorization: Bearer {token_of(participant)}")
    if body is not None:
        headers.append(f"Content-Length: {len(body)}")
    return "\r\n".join([f"{method} {path} HTTP/1.1", *headers, "", ""]).encode("latin-1") + (body or b"")


def chat(participant: str, text: str = "hello", **fields: Any) -> bytes:
    """A request that posts a chat."""
    body = json.dumps({"kind": "chat", "payload": {"text": text}, **fields}).encode()
    return request("POST", f"/participants/{participant}/messages", participant=participant, body=body)


class HttpSocket(RawSocket):
    """A connection of which nothing is hidden."""

    @classmethod
    async def connected(cls, port: int, *, receive_buffer: int | None = None) -> HttpSocket:
        self = await cls.open(port, receive_buffer=receive_buffer)
        assert isinstance(self, cls)
        return self

    async def __aenter__(self) -> HttpSocket:
        return self

    async def ask(self, data: bytes) -> Answer:
        await self.send(data)
        return await self.answer()

    async def answer(self, *, has_body: bool = True) -> Answer:
        """The next answer; status 0 where the connection ended without one. 100 is passed over."""
        status, head = await self.read_head()
        if status == 100:
            return await self.answer(has_body=has_body)
        lines = head.decode("latin-1").split("\r\n")[1:]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        size = int(headers.get("content-length", 0)) if has_body and status != 101 else 0
        while len(self._buffer) < size:
            assert await self._fill(TIMEOUT), f"the connection ended within an answer: {head!r}"
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return Answer(status, headers, body)

    async def is_ended(self, within: float = 3 * TIMEOUT) -> bool:
        """Whether the gateway ends the connection without another word."""
        return await self.read_all(within) == b""
