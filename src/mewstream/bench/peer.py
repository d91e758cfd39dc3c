"""One participant on a blocking socket, for everything but the measured part."""

from __future__ import annotations

import base64
import os
import socket
import struct
import time
from collections import deque
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from mewstream.bench import wire
from mewstream.bench.errors import BenchError, Refused, Unreachable
from mewstream.bench.roster import Participant
from mewstream.protocol.errors import ConfigError

#: Seconds to wait for an answer. It is long, because a gateway at its limit may be slow.
PATIENCE = 60.0
_CHUNK = 1 << 18
# Two fields of Linux's struct tcp_info.
_BYTES_RECEIVED, _SEGMENTS_RECEIVED = struct.Struct("Q"), struct.Struct("I")

Envelope = dict[str, Any]


class Address(NamedTuple):
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urlsplit(url if "//" in url else f"ws://{url}")
        if parts.scheme in ("wss", "https"):
            raise ConfigError(
                "bench measures without TLS, got a wss or https URL: give the address behind it, ws://host:port"
            )
        try:
            host, port = parts.hostname, parts.port or 80
        except ValueError:
            host, port = None, 0
        if parts.scheme not in ("ws", "http") or not host or parts.username is not None:
            raise ConfigError("the URL of the gateway cannot be used, expected for instance ws://127.0.0.1:8080/ws")
        path = parts.path or "/ws"
        return cls(host, port, f"{path}?{parts.query}" if parts.query else path)


def open_socket(address: Address, *, patience: float = PATIENCE) -> socket.socket:
    """Open a WebSocket connection, without joining a space."""
    try:
        connection = socket.create_connection((address.host, address.port), timeout=patience)
    except OSError as error:
        raise Unreachable(f"no connection to {address.host}:{address.port}: {error.strerror or error}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET {address.path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    head = b""
    try:
        # Byte by byte, because the bytes after the head belong to the first message.
        while not head.endswith(b"\r\n\r\n"):
            byte = connection.recv(1)
            if not byte:
                break
            head += byte
    except OSError:
        pass
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    if " 101 " not in f"{status} ":
        connection.close()
        raise Unreachable(
            f"{address.host}:{address.port}{address.path} is no WebSocket, it answered {status[:80]!r}: "
            "expected a MEW gateway"
        )
    return connection


class Peer:
    """A joined participant."""

    def __init__(self, address: Address, participant: Participant, *, patience: float = PATIENCE) -> None:
        self.participant = participant
        self.id = participant.id
        self.patience = patience
        self.socket = open_socket(address, patience=patience)
        self._messages = wire.Messages()
        self._taken: deque[tuple[int, bytes]] = deque()
        self._ids = 0
        self._prefix = f"{participant.id}-{time.time_ns():x}"
        self.welcome: Envelope = {}

    @classmethod
    def join(cls, address: Address, participant: Participant, *, patience: float = PATIENCE) -> Peer:
        peer = cls(address, participant, patience=patience)
        peer.send_join()
        peer.welcome = peer.receive("system/welcome")
        return peer

    def send_join(self) -> None:
        self.socket.sendall(join_message(self.participant))

    def close(self) -> None:
        self.socket.close()

    # -- sending ----------------------------------------------------------------------------------

    def envelope(self, kind: str, payload: Envelope) -> tuple[str, bytes]:
        """An envelope with a new id, and its bytes for the socket."""
        self._ids += 1
        id = f"{self._prefix}-{self._ids}"
        envelope = {"protocol": "mew/v0.4", "id": id, "from": self.id, "kind": kind, "payload": payload}
        return id, wire.client_message(wire.TEXT, msgspec.json.encode(envelope))

    def send(self, kind: str, payload: Envelope) -> str:
        id, message = self.envelope(kind, payload)
        self.socket.sendall(message)
        return id

    def send_frame(self, stream: str, data: bytes) -> None:
        self.socket.sendall(wire.client_message(wire.TEXT, b"#%b#%b" % (stream.encode(), data)))

    # -- receiving --------------------------------------------------------------------------------

    def next(self) -> tuple[int, bytes]:
        """The next text or binary message. Pings are answered."""
        deadline = time.monotonic() + self.patience
        while True:
            while self._taken:
                opcode, payload = self._taken.popleft()
                if opcode == wire.PING:
                    self.socket.sendall(wire.client_message(wire.PONG, payload))
                elif opcode == wire.CLOSE:
                    raise Unreachable(f"the gateway closed the connection of {self.id}: {describe_close(payload)}")
                elif opcode in (wire.TEXT, wire.BINARY):
                    return opcode, payload
            try:
                self.socket.settimeout(max(0.001, deadline - time.monotonic()))
                data = self.socket.recv(_CHUNK)
            except TimeoutError:
                raise BenchError(
                    f"{self.id} got no answer within {self.patience:g} seconds: is the gateway overloaded?"
                ) from None
            except OSError as error:
                raise Unreachable(f"the connection of {self.id} was lost: {error.strerror}") from None
            if not data:
                raise Unreachable(f"the gateway closed the connection of {self.id} without a word")
            self._messages.feed(data)
            self._taken.extend(self._messages.take())

    def receive(self, kind: str, of: str | None = None) -> Envelope:
        """The next envelope of a kind, correlated to ``of``. Raises Refused for an error of the gateway."""
        while True:
            _, payload = self.next()
            if payload[:1] != b"{":
                continue
            envelope: Envelope = msgspec.json.decode(payload)
            if envelope.get("kind") == kind and (of is None or of in (envelope.get("correlation_id") or ())):
                return envelope
            refuse_errors(self.id, envelope)

    def settle(self, marker: str) -> int | None:
        """Read until the chat with an id, and return the opcode of the last frame before it."""
        opcode_of_frame: int | None = None
        quoted = b'"%b"' % marker.encode()
        while True:
            opcode, payload = self.next()
            if payload[:1] == b"#":
                opcode_of_frame = opcode
            elif quoted in payload:
                envelope: Envelope = msgspec.json.decode(payload)
                refuse_errors(self.id, envelope)
                return opcode_of_frame

    def attend(self) -> None:
        """Read what is available, answer pings and discard everything else."""
        data = self.socket.recv(_CHUNK)
        if not data:
            raise Unreachable(f"the gateway closed the connection of {self.id} without a word")
        self._messages.feed(data)
        for opcode, payload in self._messages.take():
            if opcode == wire.PING:
                self.socket.sendall(wire.client_message(wire.PONG, payload))
            elif opcode == wire.CLOSE:
                raise Unreachable(f"the gateway closed the connection of {self.id}: {describe_close(payload)}")

    def open_stream(self, **payload: Any) -> str:
        id = self.send("stream/request", {"direction": "upload", "description": "bench", **payload})
        return str(self.receive("stream/open", id)["payload"]["stream_id"])

    def received(self) -> tuple[int, int]:
        """The bytes received so far, and the number of network segments, which on one machine is nearly the number of
        writes of the gateway. Zeros if the system does not report them."""
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            return _BYTES_RECEIVED.unpack_from(info, 128)[0], _SEGMENTS_RECEIVED.unpack_from(info, 152)[0]
        except (OSError, AttributeError, struct.error):
            return 0, 0

    def unread(self) -> bytes:
        """The bytes that were received and not consumed, for a reader that takes over the connection."""
        left = b"".join(wire.server_header(opcode, len(payload)) + payload for opcode, payload in self._taken)
        self._taken.clear()
        return left + self._messages.unread


def join_message(participant: Participant) -> bytes:
    join = {
        "type": "join",
        "participantId": participant.id,
        "space": participant.space,
        "token": participant.token,
        "capabilities": [],
    }
    return wire.client_message(wire.TEXT, msgspec.json.encode(join))


def refuse_errors(participant: str, envelope: Envelope) -> None:
    if envelope.get("kind") == "system/error":
        payload = envelope.get("payload") or {}
        raise Refused(
            f"the gateway refused what {participant} asked for: "
            f"{payload.get('error')}: {payload.get('message') or payload.get('attempted_kind')}"
        )


def describe_close(payload: bytes) -> str:
    if len(payload) < 2:
        return "no code"
    return f"{struct.unpack_from('!H', payload)[0]} {payload[2:].decode(errors='replace')}".rstrip()
