"""A tiny WebSocket client on a bare TCP socket: sends what a well-behaved library will not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from support import TIMEOUT, Message, token_of

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Frame(NamedTuple):
    """One WebSocket frame of the gateway."""

    opcode: int
    payload: bytes
    fin: bool = True

    @property
    def json(self) -> Message:
        return dict(json.loads(self.payload))

    @property
    def is_envelope(self) -> bool:
        return self.opcode == TEXT and self.payload.startswith(b"{")

    @property
    def close_code(self) -> int | None:
        """None where the close has no code."""
        assert self.opcode == CLOSE, self
        return struct.unpack("!H", self.payload[:2])[0] if self.payload else None


def upgrade_head(path: str = "/ws", *, host: str = "127.0.0.1", connection: str = "Upgrade", **headers: str) -> bytes:
    """The request of a WebSocket handshake; a header that is given as "" is left out."""
    fields = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": connection,
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def ws_frame(
    opcode: int,
    payload: bytes | str = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    masked: bool = True,
    mask: bytes | None = None,
    claim: int | None = None,
) -> bytes:
    """The bytes of one frame of a client. ``claim``: the length that the header states, true or not."""
    if isinstance(payload, str):
        payload = payload.encode()
    size = len(payload) if claim is None else claim
    head = bytes((fin << 7 | rsv << 4 | opcode,))
    flag = 0x80 if masked else 0
    if size < 126:
        head += bytes((flag | size,))
    elif size < 1 << 16:
        head += struct.pack("!BH", flag | 126, size)
    else:
        head += struct.pack("!BQ", flag | 127, size)
    if not masked:
        return head + payload
    mask = os.urandom(4) if mask is None else mask
    pad = (mask * (len(payload) // 4 + 1))[: len(payload)]
    hidden = (int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")).to_bytes(len(payload), "big")
    return head + mask + hidden


def text(message: str | bytes | Any, **options: Any) -> bytes:
    """A text message; anything that is neither text nor bytes goes as JSON."""
    if not isinstance(message, str | bytes):
        message = json.dumps(message)
    return ws_frame(TEXT, message, **options)


def join_message(participant: str, **fields: Any) -> Message:
    return {"type": "join", "participantId": participant, "token": token_of(participant), **fields}


class RawSocket:
    """A connection to the gateway. Reading gives frames as they came; nothing is answered by itself."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.got: list[Frame] = []
        """Every frame that was read, in order."""
        self._buffer = bytearray()

    @classmethod
    async def open(cls, port: int, *, receive_buffer: int | None = None) -> RawSocket:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock)

    @classmethod
    async def upgraded(cls, port: int, *, receive_buffer: int | None = None, **head: Any) -> RawSocket:
        self = await cls.open(port, receive_buffer=receive_buffer)
        await self.send(upgrade_head(**head))
        status, answer = await self.read_head()
        assert status == 101, answer
        return self

    @classmethod
    async def joined(
        cls, port: int, participant: str, *, receive_buffer: int | None = None, **fields: Any
    ) -> RawSocket:
        """Connect, join and read the welcome."""
        self = await cls.upgraded(port, receive_buffer=receive_buffer)
        await self.send(text(join_message(participant, **fields)))
        welcome = await self.read_frame()
        assert welcome is not None
        assert welcome.json["kind"] == "system/welcome", welcome
        return self

    async def __aenter__(self) -> RawSocket:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sock.close()

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(self.sock, data), 6 * TIMEOUT)

    async def read_head(self) -> tuple[int, bytes]:
        """The status and the whole head of an HTTP answer; status 0 where the connection ended without one."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if not await self._fill(TIMEOUT):
                return 0, bytes(self._buffer)
        head = bytes(self._buffer[: end + 4])
        del self._buffer[: end + 4]
        return int(head.split(b" ", 2)[1]), head

    async def read_all(self, within: float = TIMEOUT) -> bytes:
        """Whatever comes until the gateway closes the connection."""
        while await self._fill(within):
            pass
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    async def read_frame(self, within: float = TIMEOUT) -> Frame | None:
        """The next frame; None at the end of the connection."""
        while True:
            for frame in self.frames_received():
                return frame
            if not await self._fill(within):
                return None

    async def read_until(self, accept: Callable[[Frame], bool], within: float = TIMEOUT) -> list[Frame]:
        """Every frame up to and with the first that is accepted; it must come."""
        frames: list[Frame] = []
        while True:
            for frame in self.frames_received():
                frames.append(frame)
                if accept(frame):
                    return frames
            assert await self._fill(within), f"the connection ended; last: {self.got[-3:]}"

    async def read_to_close(self, within: float = TIMEOUT) -> tuple[list[Frame], int | None]:
        """Every frame until the connection ends, and the code of the close among them (the only one, and the
        last frame); None where there was none."""
        frames: list[Frame] = []
        while (frame := await self.read_frame(within)) is not None:
            frames.append(frame)
            if frame.opcode == CLOSE:
                await self._answer_close()
        closes = [frame for frame in frames if frame.opcode == CLOSE]
        assert closes in ([], frames[-1:]), f"something follows the close frame: {frames[-5:]}"
        return [frame for frame in frames if frame.opcode != CLOSE], closes[0].close_code if closes else None

    async def error(self, code: str) -> Message:
        """The next envelope, which must be this error."""
        frame = await self.read_frame()
        assert frame is not None, "the connection ended without an error"
        assert frame.is_envelope, frame
        assert frame.json["kind"] == "system/error", frame
        assert frame.json["payload"]["error"] == code, frame
        assert frame.json["payload"]["message"], frame
        return frame.json

    def frames_received(self) -> Iterator[Frame]:
        """Take the frames that are complete in the buffer, one at a time."""
        buffer = self._buffer
        position = 0
        try:
            while len(buffer) - position >= 2:
                size = buffer[position + 1]
                start = position + 2
                if size == 126:
                    start += 2
                    size = int.from_bytes(buffer[position + 2 : start], "big")
                elif size == 127:
                    start += 8
                    size = int.from_bytes(buffer[position + 2 : start], "big")
                if len(buffer) < start + size:
                    return
                frame = Frame(buffer[position] & 15, bytes(buffer[start : start + size]), buffer[position] > 127)
                position = start + size
                self.got.append(frame)
                yield frame
        finally:
            del buffer[:position]

    async def _answer_close(self) -> None:
        try:
            await self.send(ws_frame(CLOSE, struct.pack("!H", 1000)))
        except OSError:
            pass

    async def _fill(self, within: float) -> bool:
        loop = asyncio.get_running_loop()
        try:
            data = await asyncio.wait_for(loop.sock_recv(self.sock, 1 << 18), within)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)
