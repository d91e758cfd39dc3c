"""Requests out of bytes, without I/O: ``h11`` parses, and every request of a connection has the same limits.

``h11`` is lenient where RFC 9112 lets a server be: it joins folded lines and takes a bare line feed for a line break.
A proxy in front of us may read such a head in another way, and then the two disagree about where a request ends
(request smuggling). So a head is looked at before it is parsed, and what is not clear is refused. For the same reason
bodies in chunks are not read by ``h11`` but by :mod:`mewstream.gateway.http_chunks`.
"""

from __future__ import annotations

import re

import h11

from mewstream.gateway.http_chunks import BodyTooLarge, ChunkedBody
from mewstream.gateway.http_message import BadRequest, Request

MAX_HEAD_BYTES = 16 << 10
MAX_HEADERS = 100

#: Lines that end in CR LF, begin with a visible character (so none continues another) and have no control characters.
_CLEAR = re.compile(rb"(?:[\x21-\x7e\x80-\xff][\t\x20-\x7e\x80-\xff]*\r\n)+\r\n")
#: What no head can have: there is no need to wait for its end.
_UNCLEAR = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|[^\r]\n|\r[^\n]|\n[ \t]")
_TOKEN_START = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class RequestParser:
    """Feed it, then ask for a request, then for its body, then for the next request."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._checked = 0
        self._length = 0
        """Of the body that comes next, where its head has told it."""
        self._chunked: ChunkedBody | None = None
        """The body that comes next, where its head has not told its length."""

    @property
    def is_empty(self) -> bool:
        """Nothing of a further request is here yet."""
        return not self._received

    @property
    def has_more(self) -> bool:
        """A body was left in the middle, for others to have their turn: ask for it again."""
        return self._chunked is not None and self._chunked.has_more

    def feed(self, data: bytes | bytearray) -> None:
        self._received += data

    def take_rest(self) -> bytes:
        """What follows the last request: it is another protocol's."""
        rest, self._received = bytes(self._received), bytearray()
        return rest

    # -- heads ------------------------------------------------------------------------------------

    def next_request(self) -> Request | None:
        """The next request, when its head is complete. Its body must be read before the next is asked for."""
        head = self._next_head()
        if head is None:
            return None
        message = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        message.receive_data(head)
        try:
            event = message.next_event()
        except h11.RemoteProtocolError as error:
            # It is a part of its own traceback, which would keep the connection until the collector of cycles comes by.
            error.__traceback__ = None
            raise _not_understood(error.error_status_hint) from None
        assert isinstance(event, h11.Request)
        if event.http_version not in (b"1.0", b"1.1"):
            raise BadRequest("the version of HTTP is not known, expected HTTP/1.1")
        request = Request(
            event.method, event.target, event.headers.raw_items(), is_http_1_1=event.http_version == b"1.1"
        )
        if not request.is_chunked:
            self._length = request.content_length or 0
        elif not request.is_http_1_1 or request.content_length is not None:
            raise BadRequest("expected a Content-Length or, in HTTP/1.1, Transfer-Encoding: chunked, and not both")
        else:
            self._chunked = ChunkedBody()
        return request

    def _next_head(self) -> bytes | None:
        received = self._received
        while received.startswith(b"\r\n"):  # RFC 9112, 2.2: some clients send one too many
            del received[:2]
        if received and received[0] not in _TOKEN_START and received != b"\r":
            raise _not_understood()
        start = max(0, self._checked - 3)
        end = received.find(b"\r\n\r\n", start)
        if end > MAX_HEAD_BYTES or (end < 0 and len(received) > MAX_HEAD_BYTES):
            raise _too_large()
        if end < 0:
            if _UNCLEAR.search(received, start):
                raise _not_understood()
            self._checked = len(received)
            return None
        head = bytes(received[: end + 4])
        del received[: end + 4]
        self._checked = 0
        if not _CLEAR.fullmatch(head):
            raise _not_understood()
        if head.count(b"\n") > MAX_HEADERS + 2:
            raise _too_large()
        return head

    # -- bodies -----------------------------------------------------------------------------------

    def body(self, most: int) -> bytes | None:
        """The body, when it is complete. It raises BodyTooLarge as soon as there must be more than ``most`` bytes."""
        if self._chunked is not None:
            chunked = self._chunked.read(self._received, most)
            if chunked is not None:
                self._chunked = None
            return chunked
        length = self._length
        if length > most:
            raise BodyTooLarge
        if len(self._received) < length:
            return None
        body = bytes(self._received[:length])
        del self._received[:length]
        self._length = 0
        return body


def _not_understood(status: int = 400) -> BadRequest:
    return BadRequest("the head of the request is not understood, expected HTTP/1.1 (RFC 9112)", status=status)


def _too_large() -> BadRequest:
    text = f"the head of the request has more than {MAX_HEAD_BYTES} bytes, or more than {MAX_HEADERS} headers"
    return BadRequest(text, status=431)
