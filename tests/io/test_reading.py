"""Pausing a transport, by what the transport is asked to do."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest

from mewstream.io.reading import Reading


class RecordedTransport(asyncio.Transport):
    def __init__(self, *, tls: bool = False) -> None:
        super().__init__({"sslcontext": ssl.create_default_context()} if tls else {})
        self.asked: list[str] = []
        self.closing = False

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")

    def is_closing(self) -> bool:
        return self.closing


def reading(transport: RecordedTransport) -> Reading:
    return Reading(asyncio.get_running_loop(), transport)


async def test_it_is_paused_until_the_last_reason_is_released() -> None:
    transport = RecordedTransport()
    under_test = reading(transport)
    under_test.hold("a")
    under_test.hold("b")
    under_test.release("a")
    assert under_test.is_held
    assert set(transport.asked) == {"pause"}
    under_test.release("b")
    assert not under_test.is_held
    assert transport.asked[-1] == "resume"


async def test_a_reason_that_was_never_given() -> None:
    transport = RecordedTransport()
    reading(transport).release("a")
    assert transport.asked == []


async def test_tls_is_paused_when_the_read_is_over() -> None:
    """A TLS transport that is paused in the middle of a read keeps what it has decrypted."""
    transport = RecordedTransport(tls=True)
    under_test = reading(transport)
    under_test.hold("a")
    assert transport.asked == []
    await asyncio.sleep(0)
    assert transport.asked == ["pause"]


async def test_tls_that_is_released_before_it_was_paused() -> None:
    transport = RecordedTransport(tls=True)
    under_test = reading(transport)
    under_test.hold("a")
    under_test.release("a")
    await asyncio.sleep(0)
    assert "pause" not in transport.asked


async def test_a_closing_transport_is_left_alone() -> None:
    transport = RecordedTransport()
    transport.closing = True
    under_test = reading(transport)
    under_test.hold("a")
    under_test.release("a")
    assert transport.asked == []


@pytest.mark.parametrize(("tls", "asked"), [(False, ["pause", "resume"]), (True, [])])
async def test_taking_turns_pauses_for_one_turn(tls: bool, asked: list[Any]) -> None:
    transport = RecordedTransport(tls=tls)
    reading(transport).take_turns()
    await asyncio.sleep(0)
    assert transport.asked == asked
