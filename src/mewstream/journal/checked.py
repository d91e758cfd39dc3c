"""Small files of JSON that carry their own checksum, in a line before the content."""

from __future__ import annotations

import zlib
from typing import TypeVar

import msgspec

T = TypeVar("T")


def encode_checked(content: object) -> bytes:
    body = msgspec.json.encode(content)
    return b"%08x\n%b" % (zlib.crc32(body), body)


def parse_checked(data: bytes, type: type[T]) -> T:
    """Raises :class:`ValueError` if the file is damaged, or holds something else."""
    checksum, _, body = data.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(body):
        raise ValueError("its checksum is wrong")
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.MsgspecError as flaw:
        raise ValueError(str(flaw)) from None
