"""Small files of JSON that carry their own checksum, in a line before the content."""

from __future__ import annotations

import zlib
from typing import Self

import msgspec


class CheckedFile(msgspec.Struct):
    """The content of such a file."""

    def encode(self) -> bytes:
        body = msgspec.json.encode(self)
        return b"%08x\n%b" % (zlib.crc32(body), body)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Raises :class:`ValueError` if the file is damaged, or holds something else."""
        checksum, _, body = data.partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(body):
            raise ValueError("its checksum is wrong")
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.MsgspecError as flaw:
            raise ValueError(str(flaw)) from None
