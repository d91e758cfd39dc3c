"""One writer at full speed to N readers through a real gateway: frames per second, and CPU time per delivery.

The readers count bytes and nothing else (every frame has the same size on the wire), so that they are not the
bottleneck; every run checks that each reader got every byte.
"""

from __future__ import annotations

import base64
import json
import os
import random
import selectors
import socket
import struct
import time
from pathlib import Path
from typing import NamedTuple

SIZE = 100
CHUNK_FRAMES = 256
#: So many different ones are sent in turn: what is alike within some 64 KB would be compressed too well.
CHUNKS = 64


class Run(NamedTuple):
    frames: int
    seconds: float
    cpu_seconds: float

    @property
    def frames_per_second(self) -> float:
        return self.frames / self.seconds


def handshake(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    assert b" 101 " in head, head
    return connection


def masked(message: bytes, opcode: int = 1) -> bytes:
    """A client's frame. The mask is zero: that costs nothing to apply."""
    size = len(message)
    if size < 126:
        return bytes((0x80 | opcode, 0x80 | size)) + bytes(4) + message
    return struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size) + bytes(4) + message


def read_message(connection: socket.socket) -> bytes:
    first, size = _exactly(connection, 2)
    if size == 126:
        (size,) = struct.unpack("!H", _exactly(connection, 2))
    elif size == 127:
        (size,) = struct.unpack("!Q", _exactly(connection, 8))
    return _exactly(connection, size) if first else b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the gateway closed the connection"
        data += piece
    return data


def join(port: int, participant: str, token: str) -> socket.socket:
    connection = handshake(port)
    message = {"type": "join", "participantId": participant, "token": token}
    connection.sendall(masked(json.dumps(message).encode()))
    welcome = read_message(connection)
    assert b"system/welcome" in welcome, welcome
    return connection


def drain(connections: list[socket.socket]) -> None:
    """Read whatever is on its way until there is silence."""
    for connection in connections:
        connection.settimeout(0.2)
        try:
            while connection.recv(1 << 20):
                pass
        except TimeoutError:
            pass
        connection.settimeout(None)


def payloads(count: int) -> list[bytes]:
    """Positions as JSON, all of one size and none like another."""
    drawn = ([random.random() for _ in "xyzw"] for _ in range(count))
    texts = (f'{{"x":{x:.15f},"y":{y:.15f},"z":{z:.15f},"heading":{w:.9f}' for x, y, z, w in drawn)
    return [(text.ljust(SIZE - 1) + "}").encode() for text in texts]


def saturate(port: int, readers: list[str], writer: str, frames: int, pid: int, token_of: object) -> Run:
    """Send so many frames as fast as they are taken, and wait until every reader has them all."""
    assert callable(token_of)
    sender = join(port, writer, token_of(writer))
    receivers = [join(port, reader, token_of(reader)) for reader in readers]
    sender.sendall(masked(b'{"kind":"stream/request","payload":{"target":%b}}' % json.dumps(readers).encode()))
    while True:
        message = json.loads(read_message(sender))
        if message["kind"] == "stream/open":
            stream = message["payload"]["stream_id"].encode()
            break
    drain(receivers)
    size = len(stream) + 2 + SIZE
    wire = size + (2 if size < 126 else 4)
    several = [b"".join(masked(b"#%b#%b" % (stream, each)) for each in payloads(CHUNK_FRAMES)) for _ in range(CHUNKS)]
    expected = frames // CHUNK_FRAMES * CHUNK_FRAMES * wire
    got = dict.fromkeys(range(len(receivers)), 0)
    selector = selectors.DefaultSelector()
    for number, receiver in enumerate(receivers):
        receiver.setblocking(False)
        selector.register(receiver, selectors.EVENT_READ, number)
    sender.setblocking(False)
    selector.register(sender, selectors.EVENT_WRITE | selectors.EVENT_READ, -1)
    buffer = bytearray(1 << 20)
    chunks, rest = frames // CHUNK_FRAMES, b""
    cpu, started = _cpu(pid), time.perf_counter()
    waiting = len(receivers)
    while waiting:
        for key, events in selector.select():
            if key.data < 0:
                if events & selectors.EVENT_READ:
                    sender.recv_into(buffer)
                if events & selectors.EVENT_WRITE:
                    if not rest and chunks:
                        chunks -= 1
                        rest = several[chunks % CHUNKS]
                    if rest:
                        rest = rest[sender.send(rest) :]
                    elif not chunks:
                        selector.modify(sender, selectors.EVENT_READ, -1)
            else:
                size = key.fileobj.recv_into(buffer)  # type: ignore[union-attr]
                assert size, "a reader was disconnected"
                got[key.data] += size
                if got[key.data] >= expected:
                    waiting -= 1
                    selector.unregister(key.fileobj)
    seconds = time.perf_counter() - started
    cpu = _cpu(pid) - cpu
    assert all(count == expected for count in got.values()), got
    for connection in (sender, *receivers):
        connection.close()
    return Run(expected // wire, seconds, cpu)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
