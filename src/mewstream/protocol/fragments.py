"""Fragmented WebSocket messages (RFC 6455, section 5.4), put together again: at the gateway and in the SDK alike."""

from __future__ import annotations

import codecs

from mewstream.protocol.errors import LimitExceeded
from mewstream.protocol.frames import TEXT

_Utf8 = codecs.getincrementaldecoder("utf-8")

#: The opcode of every fragment but the first.
CONTINUATION = 0


class FragmentError(Exception):
    """Fragments came in an order that RFC 6455 (section 5.4) does not allow."""


class Assembler:
    """Puts the fragments of one connection together, one message at a time."""

    __slots__ = ("_buffer", "_opcode", "_text", "is_open")

    def __init__(self) -> None:
        self._buffer = bytearray()
        """One buffer and no list of fragments: a peer that sends a byte at a time must not cost an object each."""
        self._opcode = CONTINUATION
        self._text: codecs.IncrementalDecoder | None = None
        self.is_open = False
        """A message has begun and not ended."""

    def add(self, opcode: int, fin: bool, payload: bytes, max_bytes: int) -> tuple[int, bytes] | None:
        """Take the next fragment.

        Returns the opcode and the whole message if this was its last fragment, otherwise None. Raises
        :class:`FragmentError` if no fragment of this kind may come, :class:`LimitExceeded` as soon as the message
        is longer than ``max_bytes``, and UnicodeDecodeError as soon as a text cannot become UTF-8 any more (section
        8.1). After any of these the connection has to be closed.
        """
        if (opcode == CONTINUATION) != self.is_open:
            raise FragmentError("a new message inside a fragmented one" if opcode else "a continuation of nothing")
        if opcode:
            self.is_open = True
            self._opcode = opcode
            self._text = _Utf8() if opcode == TEXT else None
        if len(self._buffer) + len(payload) > max_bytes:
            raise LimitExceeded(f"the message is larger than {max_bytes} bytes", limit="message_bytes")
        if self._text is not None:
            self._text.decode(payload, fin)
        self._buffer += payload
        if not fin:
            return None
        whole = self._opcode, bytes(self._buffer)
        self.is_open = False
        self._buffer, self._text = bytearray(), None
        return whole
