"""Files that carry their own checksum."""

from __future__ import annotations

import msgspec
import pytest

from mewstream.journal.checked import encode_checked, parse_checked


class Content(msgspec.Struct):
    name: str
    numbers: list[int]


def test_what_is_written_is_read() -> None:
    content = Content("änn", [1, 2])
    assert parse_checked(encode_checked(content), Content) == content


def test_every_changed_byte_is_found() -> None:
    data = encode_checked(Content("ann", [1, 2]))
    for place in range(len(data)):
        with pytest.raises(ValueError, match="its checksum is wrong"):
            parse_checked(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], Content)
        with pytest.raises(ValueError, match="its checksum is wrong"):
            parse_checked(data[:place], Content)


def test_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="numbers"):
        parse_checked(encode_checked({"name": "ann"}), Content)
