"""Files that carry their own checksum."""

from __future__ import annotations

import pytest

from mewstream.journal.checked import CheckedFile


class Content(CheckedFile):
    name: str
    numbers: list[int]


class Other(CheckedFile):
    name: str


def test_what_is_written_is_read() -> None:
    content = Content("änn", [1, 2])
    assert Content.parse(content.encode()) == content


def test_every_changed_byte_is_found() -> None:
    data = Content("ann", [1, 2]).encode()
    for place in range(len(data)):
        with pytest.raises(ValueError, match="its checksum is wrong"):
            Content.parse(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ValueError, match="its checksum is wrong"):
            Content.parse(data[:place])


def test_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="numbers"):
        Content.parse(Other("ann").encode())
