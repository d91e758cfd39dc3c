"""Whether bytes are UTF-8: text messages and text frames have to be."""

from __future__ import annotations


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
