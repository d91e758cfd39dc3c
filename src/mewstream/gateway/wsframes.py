"""WebSocket headers of a server, from tables: a header costs a look-up, not a computation."""

from __future__ import annotations

import struct

_FIN = 0x80
OP_TEXT, OP_BINARY, OP_CLOSE, OP_PING, OP_PONG = 1, 2, 8, 9, 10

_SHORT = {op: [bytes((_FIN | op, size)) for size in range(126)] for op in (OP_TEXT, OP_BINARY)}
_MEDIUM = struct.Struct("!BBH")
_LONG = struct.Struct("!BBQ")

#: An upper bound of what a header adds, for counting queued bytes.
MAX_HEADER = 10


def header(opcode: int, size: int) -> bytes:
    """The header of one whole (FIN) unmasked message of text or binary."""
    if size < 126:
        return _SHORT[opcode][size]
    if size < 1 << 16:
        return _MEDIUM.pack(_FIN | opcode, 126, size)
    return _LONG.pack(_FIN | opcode, 127, size)


def control(opcode: int, payload: bytes = b"") -> bytes:
    """A close, ping or pong; its payload is at most 125 bytes."""
    payload = payload[:125]
    return bytes((_FIN | opcode, len(payload))) + payload


def close_reason(text: str) -> bytes:
    """As much of it as a close has room for. It never ends in the middle of a character: a reason must be UTF-8."""
    return text.encode()[:123].decode("utf-8", "ignore").encode()
