"""Requests out of bytes, without I/O: ``h11`` parses, and every request of a connection has the same limits.

``h11`` is lenient where RFC 9112 lets a server be: it joins folded lines and takes a bare line feed for a line break.
A proxy in front of us may read such a head in another way, and then the two disagree about where a request ends
(request smuggling). So a head is looked at before it is parsed, and what is not clear is refused.
"""

from __future__ import annotations

import re

import h11

from mewstream.gateway.http_message import BadRequest, Request

MAX_HEAD_BYTES = 16 << 10
MAX_HEADERS = 100
#: A body in pieces of a few bytes each costs far more than its size; after so many it is refused.
MAX_CHUNKS = 16 << 10
#: So many pieces of a body are taken in one turn of the loop.
CHUNKS_PER_TURN = 512
#: h11 bounds what is incomplete. It is given little at a time, so that no line between chunks is longer than a head.
_FED_BYTES = 4 << 10

#: Lines that end in CR LF, begin with a visible character (so none continues another) and have no control characters.
_CLEAR = re.compile(rb"(?:[\x21-\x7e\x80-\xff][\t\x20-\x7e\x80-\xff]*\r\n)+\r\n")
#: What no head can have: there is no need to wait for its end.
_UNCLEAR = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|[^\r]\n|\r[^\n]|\n[ \t]")
_TOKEN_START = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class BodyTooLarge(Exception):
    """More than the request may bring."""


class RequestParser:
    """Feed it, then ask for a request, then for its body, then for the next request."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._checked = 0
        self._length = 0
        """Of the body that comes next, where its head has told it."""
        self._chunked: h11.Connection | None = None
        """The parser of a body whose length nobody knows yet."""
        self._body = bytearray()
        self._chunks = 0
        self.has_more = False
        """The body was left in the middle, for others to have their turn: ask for it again."""

    @property
    def is_empty(self) -> bool:
        """Nothing of a further request is here yet."""
        return not self._received

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
            raise BadRequest(error.error_status_hint) from None
        assert isinstance(event, h11.Request)
        if event.http_version not in (b"1.0", b"1.1"):
            raise BadRequest
        request = Request(
            event.method, event.target, event.headers.raw_items(), is_http_1_1=event.http_version == b"1.1"
        )
        if not request.is_chunked:
            self._length = request.content_length or 0
        elif not request.is_http_1_1 or request.content_length is not None:
            raise BadRequest  # two ways to tell where the body ends, or one that this version does not have
        else:
            self._chunked = message
        return request

    def _next_head(self) -> bytes | None:
        received = self._received
        while received.startswith(b"\r\n"):  # RFC 9112, 2.2: some clients send one too many
            del received[:2]
        if received and received[0] not in _TOKEN_START and received != b"\r":
            raise BadRequest
        start = max(0, self._checked - 3)
        end = received.find(b"\r\n\r\n", start)
        if end > MAX_HEAD_BYTES or (end < 0 and len(received) > MAX_HEAD_BYTES):
            raise BadRequest(431)
        if end < 0:
            if _UNCLEAR.search(received, start):
                raise BadRequest
            self._checked = len(received)
            return None
        head = bytes(received[: end + 4])
        del received[: end + 4]
        self._checked = 0
        if not _CLEAR.fullmatch(head):
            raise BadRequest
        if head.count(b"\n") > MAX_HEADERS + 2:
            raise BadRequest(431)
        return head

    # -- bodies -----------------------------------------------------------------------------------

    def body(self, most: int) -> bytes | None:
        """The body, when it is complete. It raises BodyTooLarge as soon as there must be more than ``most`` bytes."""
        if self._chunked is not None:
            return self._chunked_body(self._chunked, most)
        length = self._length
        if length > most:
            raise BodyTooLarge
        if len(self._received) < length:
            return None
        body = bytes(self._received[:length])
        del self._received[:length]
        self._length = 0
        return body

    def _chunked_body(self, message: h11.Connection, most: int) -> bytes | None:
        self.has_more = False
        try:
            for _ in range(CHUNKS_PER_TURN):
                event = message.next_event()
                if type(event) is h11.Data:
                    self._body += event.data
                    self._chunks += event.chunk_start
                    if len(self._body) > most:
                        raise BodyTooLarge
                    if self._chunks > MAX_CHUNKS:
                        raise BadRequest
                elif type(event) is h11.EndOfMessage:
                    body, self._body = bytes(self._body), bytearray()
                    self._chunked = None
                    self._chunks = 0
                    self._received[:0] = message.trailing_data[0]
                    return body
                elif self._received:
                    message.receive_data(bytes(self._received[:_FED_BYTES]))
                    del self._received[:_FED_BYTES]
                else:
                    return None
        except h11.RemoteProtocolError:
            raise BadRequest from None
        self.has_more = True
        return None
