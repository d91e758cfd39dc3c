"""A body that comes in chunks (RFC 9112, 7.1), without I/O and by the letter.

``h11`` takes a bare line feed for the end of the trailers, joins folded lines there, and lets anything stand behind a
semicolon. A proxy in front of us may find the end of the same body elsewhere, and what follows it would be a request to
one of the two only. So what is not clear is refused, as it is in a head.
"""

from __future__ import annotations

import re
from enum import Enum

from mewstream.gateway.http_message import BadRequest

#: A chunk of a few bytes costs far more than its size; after so many the body is refused.
MAX_CHUNKS = 16 << 10
#: So many chunks are taken in one turn of the loop.
CHUNKS_PER_TURN = 512
#: The size of a chunk and its extensions, which nobody needs.
MAX_LINE_BYTES = 256
MAX_TRAILER_BYTES = 16 << 10

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*|[ \t]*)")
_TRAILERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)+\r\n")


class BodyTooLarge(Exception):
    """More than the request may bring."""


class _Part(Enum):
    """What comes next."""

    SIZE = "size"
    DATA = "data"
    TRAILERS = "trailers"
    NOTHING = "nothing"


class ChunkedBody:
    """Ask for the body whenever something has come, until it is complete."""

    def __init__(self) -> None:
        self.has_more = False
        """The body was left in the middle, for others to have their turn: ask again."""
        self._next = _Part.SIZE
        self._body = bytearray()
        self._chunks = 0
        self._left = 0
        """Bytes of this chunk that have not come yet."""

    def read(self, received: bytearray, most: int) -> bytes | None:
        """Take what has come of the body from the beginning of ``received``. The body, when it is complete; it raises
        BodyTooLarge as soon as there must be more than ``most`` bytes."""
        place = 0
        until = self._chunks + CHUNKS_PER_TURN
        while self._next is not _Part.NOTHING and self._chunks < until:
            if self._next is _Part.SIZE:
                taken = self._read_size(received, place, most)
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

    # Each takes what comes at a place, and says where it ends; None: more must come first.

    def _read_size(self, received: bytearray, place: int, most: int) -> int | None:
        end = received.find(b"\r\n", place, place + MAX_LINE_BYTES)
        if end < 0:
            if len(received) - place >= MAX_LINE_BYTES:
                raise _not_understood()
            return None
        size = _SIZE.fullmatch(received, place, end)
        if size is None:
            raise _not_understood()
        self._left = int(size[1], 16)
        if len(self._body) + self._left > most:
            raise BodyTooLarge
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
            raise _not_understood()
        if len(ending) < 2:
            return None
        self._next = _Part.SIZE
        return place + 2

    def _read_trailers(self, received: bytearray, place: int) -> int | None:
        """They are looked at, and mean nothing."""
        if received.startswith(b"\r\n", place):
            self._next = _Part.NOTHING
            return place + 2
        end = received.find(b"\r\n\r\n", place)
        if end < 0:
            # A bare line feed ends nothing, and a folded line continues nothing: there is no need to wait.
            if len(received) - place > MAX_TRAILER_BYTES or received.startswith((b"\n", b" ", b"\t"), place):
                raise _not_understood()
            return None
        if end - place > MAX_TRAILER_BYTES or not _TRAILERS.fullmatch(received, place, end + 4):
            raise _not_understood()
        self._next = _Part.NOTHING
        return end + 4


def _not_understood() -> BadRequest:
    return BadRequest("the chunks of the body are not understood, expected them by the letter of RFC 9112, 7.1")
