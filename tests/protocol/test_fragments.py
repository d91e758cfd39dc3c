"""RFC 6455, section 5.4: fragmented messages."""

from __future__ import annotations

import tracemalloc

import pytest

from mewstream.protocol.errors import LimitExceeded
from mewstream.protocol.fragments import CONTINUATION, Assembler, FragmentError
from mewstream.protocol.frames import BINARY, TEXT


def test_the_last_fragment_gives_the_message() -> None:
    assembler = Assembler()
    assert assembler.add(TEXT, False, b"one ", 100) is None
    assert assembler.is_open
    assert assembler.add(CONTINUATION, False, b"", 100) is None
    assert assembler.add(CONTINUATION, True, b"message", 100) == (TEXT, b"one message")
    assert not assembler.is_open


def test_messages_follow_each_other() -> None:
    assembler = Assembler()
    assembler.add(TEXT, False, b"first", 100)
    assembler.add(CONTINUATION, True, b"", 100)
    assert assembler.add(BINARY, False, b"\xff", 100) is None, "the text before it leaves nothing behind"
    assert assembler.add(CONTINUATION, True, b"\xfe", 100) == (BINARY, b"\xff\xfe")


def test_a_continuation_of_nothing() -> None:
    with pytest.raises(FragmentError, match="nothing"):
        Assembler().add(CONTINUATION, True, b"x", 100)


def test_a_message_inside_another() -> None:
    assembler = Assembler()
    assembler.add(TEXT, False, b"x", 100)
    with pytest.raises(FragmentError, match="inside"):
        assembler.add(BINARY, False, b"x", 100)


def test_the_limit_is_that_of_the_whole_message() -> None:
    assembler = Assembler()
    assembler.add(BINARY, False, b"x" * 6, 10)
    assembler.add(CONTINUATION, False, b"x" * 4, 10)
    with pytest.raises(LimitExceeded, match="larger than 10 bytes") as refused:
        assembler.add(CONTINUATION, False, b"x", 10)
    assert refused.value.details["limit"] == "message_bytes"


def test_a_character_may_be_split() -> None:
    assembler = Assembler()
    euro = "€".encode()
    assembler.add(TEXT, False, euro[:1], 100)
    assert assembler.add(CONTINUATION, True, euro[1:], 100) == (TEXT, euro)


def test_a_byte_at_a_time_costs_no_more_memory_than_the_message() -> None:
    assembler = Assembler()
    assembler.add(BINARY, False, b"x", 100_000)
    tracemalloc.start()
    try:
        for _ in range(50_000):
            assembler.add(CONTINUATION, False, bytes((120,)), 100_000)
            assembler.add(CONTINUATION, False, b"", 100_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000
    assert assembler.add(CONTINUATION, True, b"", 100_000) == (BINARY, b"x" * 50_001)


def test_text_that_cannot_become_utf8_is_noticed_at_once() -> None:
    assembler = Assembler()
    with pytest.raises(UnicodeDecodeError):
        assembler.add(TEXT, False, b"\xff", 100)


def test_text_that_ends_inside_a_character() -> None:
    assembler = Assembler()
    assembler.add(TEXT, False, b"\xe2", 100)
    with pytest.raises(UnicodeDecodeError):
        assembler.add(CONTINUATION, True, b"\x82", 100)
