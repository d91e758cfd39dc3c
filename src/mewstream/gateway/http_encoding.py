"""Compressed request bodies (``Content-Encoding: gzip`` and ``deflate``), decompressed within a bound."""

from __future__ import annotations

import zlib

from mewstream.gateway.http_message import HttpError, Request, too_large
from mewstream.protocol.errors import ValidationFailed

_NAMES = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate"}


def encoding_of(request: Request) -> str | None:
    """The encoding of the body, or None. Raises :class:`HttpError` (415) for an encoding that is not supported."""
    tokens = [token for token in request.tokens(b"content-encoding") if token != b"identity"]
    if not tokens:
        return None
    if len(tokens) > 1 or tokens[0] not in _NAMES:
        flaw = ValidationFailed("the Content-Encoding is not known, expected gzip or deflate, once, or none")
        raise HttpError(415, flaw, Accept_Encoding="gzip, deflate")
    return _NAMES[tokens[0]]


def decode(body: bytes, encoding: str | None, max_bytes: int) -> bytes:
    """Decompress a body. Raises :class:`HttpError` if it is broken, or larger than ``max_bytes`` afterwards."""
    if encoding is None:
        return body
    if encoding == "gzip":
        window_bits = zlib.MAX_WBITS | 16
    else:
        # deflate should be in the zlib format (RFC 9110, 8.4.1.2), but some clients send it without the zlib header.
        window_bits = zlib.MAX_WBITS if body and body[0] & 15 == 8 else -zlib.MAX_WBITS
    decoder = zlib.decompressobj(window_bits)
    broken = HttpError(400, ValidationFailed(f"the body is not {encoding}, as its Content-Encoding says"))
    try:
        decoded = decoder.decompress(body, max_bytes + 1)
    except zlib.error:
        raise broken from None
    if len(decoded) > max_bytes:
        raise HttpError(413, too_large(max_bytes))
    if not decoder.eof or decoder.unused_data:
        raise broken
    return decoded
