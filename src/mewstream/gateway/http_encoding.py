"""Compressed bodies of requests: ``Content-Encoding: gzip`` and ``deflate``, within a bound."""

from __future__ import annotations

import zlib

from mewstream.gateway.http_message import HttpError, Request, too_large
from mewstream.protocol.errors import ValidationFailed

_ZLIB, _GZIP = zlib.MAX_WBITS, zlib.MAX_WBITS | 16
_NAMES = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate"}


def encoding_of(request: Request) -> str | None:
    """The encoding of the body, or None. It is judged before the body is read."""
    tokens = [token for token in request.tokens(b"content-encoding") if token != b"identity"]
    if not tokens:
        return None
    if len(tokens) > 1 or tokens[0] not in _NAMES:
        flaw = ValidationFailed("the Content-Encoding is not known, expected gzip or deflate, once, or none")
        raise HttpError(415, flaw, Accept_Encoding="gzip, deflate")
    return _NAMES[tokens[0]]


def decode(body: bytes, encoding: str | None, most: int) -> bytes:
    """The body as it was before it was compressed, of at most ``most`` bytes."""
    if encoding is None:
        return body
    decoder = zlib.decompressobj(_window_bits(body, encoding))
    try:
        decoded = decoder.decompress(body, most + 1)
    except zlib.error:
        raise _broken(encoding) from None
    if len(decoded) > most:
        raise too_large(most)
    if not decoder.eof or decoder.unused_data:
        raise _broken(encoding)
    return decoded


def _window_bits(body: bytes, encoding: str) -> int:
    if encoding == "gzip":
        return _GZIP
    # deflate should be in the format of zlib (RFC 9110, 8.4.1.2); some clients send it without that.
    return _ZLIB if body and body[0] & 15 == 8 else -_ZLIB


def _broken(encoding: str) -> HttpError:
    return HttpError(400, ValidationFailed(f"the body is not {encoding}, as its Content-Encoding says"))
