"""Chunked request bodies (RFC 9112, 7.1), parsed strictly and without I/O.

``h11`` is more lenient: it takes a bare line feed for the end of the trailers, joins folded lines there, and accepts
anything behind a semicolon. A proxy in front of the gateway may find the end of the same body elsewhere, and would take
what follows for a part of the body, where the gateway takes it for a request. So everything ambiguous is refused, as it
is in a head.
"""

from __future__ import annotations

import re
from enum import Enum

from mewstream.gateway.http_message import BadRequest, too_large

#: A chunk of a few bytes costs far more than its size, so a body may not have more chunks than this.
MAX_CHUNKS = 16 << 10
#: Chunks that are parsed in one turn of the event loop.
CHUNKS_PER_TURN = 512
#: Bytes of the line with the size of a chunk and its extensions, which are ignored.
MAX_LINE_BYTES = 256
MAX_TRAILER_BYTES = 16 << 10

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*|[ \t]*)")
_TRAILERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)+\r\n")


class _Part(Enum):
    """What comes next."""

    SIZE = "size"
    DATA = "data"
    TRAILERS = "trailers"
    NOTHING = "nothing"


class ChunkedBody:
    """Parses one chunked body. Call :meth:`read` whenever data has arrived, until it returns the body."""

    def __init__(self) -> None:
        self.has_more = False
        """Parsing was interrupted to let other connections have their turn. Call :meth:`read` again."""
        self._next = _Part.SIZE
        self._body = bytearray()
        self._chunks = 0
        self._left = 0
        """Bytes of this chunk that have not arrived yet."""

    def read(self, received: bytearray, max_bytes: int) -> bytes | None:
        """Remove what has arrived of the body from the beginning of ``received``.

        Returns the body when it is complete, otherwise None. Raises :class:`BadRequest` as soon as the body is
        malformed or larger than ``max_bytes``."""
        place = 0
        until = self._chunks + CHUNKS_PER_TURN
        while self._next is not _Part.NOTHING and self._chunks < until:
            if self._next is _Part.SIZE:
                taken = self._read_size(received, place, max_bytes)
            elif self._next is _Part.DATA:
                taken = self._read_data(received, place)
            else:
                taken = self._read_trailers(received, place)
            if taken is None:
                break
            place = taken
        del received[:place]
        self.has_more = self._chunks >= until
        return bytes(self._body) if self._next is _Part.NOTHING else None

    # Each of these parses what begins at a place, and returns where it ends, or None if more must arrive first.

    def _read_size(self, received: bytearray, place: int, max_bytes: int) -> int | None:
        end = received.find(b"\r\n", place, place + MAX_LINE_BYTES)
        if end < 0:
            if len(received) - place >= MAX_LINE_BYTES:
                raise _malformed()
            return None
        size = _SIZE.fullmatch(received, place, end)
        if size is None:
            raise _malformed()
        self._left = int(size[1], 16)
        if len(self._body) + self._left > max_bytes:
            raise BadRequest(too_large(max_bytes), status=413)
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            raise BadRequest(f"the body has more than {MAX_CHUNKS} chunks: send larger ones")
        self._next = _Part.DATA if self._left else _Part.TRAILERS
        return end + 2

    def _read_data(self, received: bytearray, place: int) -> int | None:
        if self._left:
            piece = received[place : place + self._left]
            self._body += piece
            self._left -= len(piece)
            return place + len(piece) if piece else None
        ending = bytes(received[place : place + 2])
        if not b"\r\n".startswith(ending):
            raise _malformed()
        if len(ending) < 2:
            return None
        self._next = _Part.SIZE
        return place + 2

    def _read_trailers(self, received: bytearray, place: int) -> int | None:
        """Trailers are checked and ignored."""
        if received.startswith(b"\r\n", place):
            self._next = _Part.NOTHING
            return place + 2
        end = received.find(b"\r\n\r\n", place)
        if end < 0:
            # Neither a bare line feed nor a folded line can become valid: there is no need to wait for more.
            if len(received) - place > MAX_TRAILER_BYTES or received.startswith((b"\n", b" ", b"\t"), place):
                raise _malformed()
            return None
        if end - place > MAX_TRAILER_BYTES or not _TRAILERS.fullmatch(received, place, end + 4):
            raise _malformed()
        self._next = _Part.NOTHING
        return end + 4


def _malformed() -> BadRequest:
    return BadRequest("the chunks of the body are malformed, expected the form of RFC 9112, 7.1")
