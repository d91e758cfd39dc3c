"""Encoding and parsing WebSocket messages."""

from __future__ import annotations

import struct
from typing import NamedTuple

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_FIN = 0x80
_MASKED = 0x80
#: A mask of zeros is valid, and costs nothing to apply.
_NO_MASK = bytes(4)


def server_header(opcode: int, size: int) -> bytes:
    """The header of an unfragmented message from a gateway."""
    return _header(opcode, size, 0)


def client_message(opcode: int, payload: bytes) -> bytes:
    """A message from a client."""
    return _header(opcode, len(payload), _MASKED) + _NO_MASK + payload


def _header(opcode: int, size: int, masked: int) -> bytes:
    if size < 126:
        return bytes((_FIN | opcode, masked | size))
    if size < 1 << 16:
        return struct.pack("!BBH", _FIN | opcode, masked | 126, size)
    return struct.pack("!BBQ", _FIN | opcode, masked | 127, size)


class Piece(NamedTuple):
    """The position of one WebSocket frame in a buffer: a message, or a fragment of one."""

    opcode: int
    """0 for a continuation of a fragmented message."""
    is_last: bool
    start: int
    """Start of its payload."""
    end: int


def piece_at(buffer: bytes | bytearray, start: int) -> Piece | None:
    """The WebSocket frame that begins at a position; None if it is not complete yet."""
    have = len(buffer) - start
    if have < 2:
        return None
    first, size = buffer[start], buffer[start + 1]
    at = start + 2
    if size == 126:
        if have < 4:
            return None
        (size,) = struct.unpack_from("!H", buffer, at)
        at += 2
    elif size == 127:
        if have < 10:
            return None
        (size,) = struct.unpack_from("!Q", buffer, at)
        at += 8
    if len(buffer) < at + size:
        return None
    return Piece(first & 0x0F, bool(first & _FIN), at, at + size)


class Messages:
    """Splits the bytes of a gateway into messages, and assembles fragments."""

    def __init__(self, begun: bytes = b"") -> None:
        self._buffer = bytearray(begun)
        self._fragments = bytearray()
        self._opcode = 0

    def feed(self, data: bytes | memoryview) -> None:
        self._buffer += data

    @property
    def unread(self) -> bytes:
        """The bytes of messages that :meth:`take` has not returned yet."""
        return bytes(self._buffer)

    @property
    def is_between(self) -> bool:
        """Whether no fragmented message is incomplete."""
        return not self._opcode

    def take(self, most: int | None = None) -> list[tuple[int, bytes]]:
        """The opcode and payload of every complete message, or of at most this many."""
        messages: list[tuple[int, bytes]] = []
        start = 0
        buffer = self._buffer
        while (most is None or len(messages) < most) and (piece := piece_at(buffer, start)) is not None:
            payload = bytes(buffer[piece.start : piece.end])
            start = piece.end
            if piece.opcode >= CLOSE or (piece.is_last and piece.opcode):
                messages.append((piece.opcode, payload))
                continue
            self._opcode = piece.opcode or self._opcode
            self._fragments += payload
            if piece.is_last:
                messages.append((self._opcode, bytes(self._fragments)))
                self._fragments.clear()
                self._opcode = 0
        del buffer[:start]
        return messages
