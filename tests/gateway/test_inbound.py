"""The receiving side of a connection, without one: turns, reading that is held, rates and fragments."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from doubles import FakeTransport, ManualLoop

from mewstream.gateway.inbound import Assembler, FragmentError, Rate, Reading, Throttle, Turns
from mewstream.protocol.errors import LimitExceeded
from mewstream.protocol.policy import Limits


def as_asyncio(transport: FakeTransport) -> asyncio.Transport:
    return cast(asyncio.Transport, transport)


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


class TestTurns:
    def test_one_that_alone_has_sent_for_a_while(self, loop: ManualLoop) -> None:
        turns = Turns(loop.as_loop)
        turns.has_read("a")
        assert not turns.is_alone("a")
        loop.advance(1)
        turns.has_read("a")
        assert turns.is_alone("a") and not turns.is_alone("b")
        turns.has_read("b")
        turns.has_read("a")
        assert not turns.is_alone("a")


class TestReading:
    def test_it_goes_on_when_the_last_reason_is_gone(self, loop: ManualLoop, transport: FakeTransport) -> None:
        reading = Reading(loop.as_loop, as_asyncio(transport))
        reading.hold("a")
        reading.hold("b")
        reading.hold("a")
        assert transport.is_paused and reading.is_held
        reading.release("a")
        reading.release("never held")
        assert transport.is_paused
        reading.release("b")
        assert not transport.is_paused and not reading.is_held

    def test_a_turn_for_others(self, loop: ManualLoop, transport: FakeTransport) -> None:
        reading = Reading(loop.as_loop, as_asyncio(transport))
        reading.take_turns()
        assert transport.is_paused
        loop.advance()
        assert not transport.is_paused

    def test_with_tls_it_pauses_after_what_was_decrypted(self, loop: ManualLoop, transport: FakeTransport) -> None:
        transport.get_extra_info = lambda name: object()  # type: ignore[method-assign, assignment]
        reading = Reading(loop.as_loop, as_asyncio(transport))
        reading.hold("a")
        assert not transport.is_paused
        loop.advance()
        assert transport.is_paused

    def test_a_connection_that_closes_is_left_alone(self, loop: ManualLoop, transport: FakeTransport) -> None:
        reading = Reading(loop.as_loop, as_asyncio(transport))
        transport.close()
        reading.hold("a")
        assert not transport.is_paused


class TestRate:
    def test_whoever_overdraws_waits(self) -> None:
        rate = Rate("r", 10.0, 0.0)
        assert rate.take(10, 0.0) == 0.0
        assert rate.take(5, 0.0) == pytest.approx(0.5)
        assert rate.take(0, 0.5) == pytest.approx(0.0)

    def test_a_look_takes_nothing(self) -> None:
        rate = Rate("r", 10.0, 0.0, burst=20)
        assert rate.has(20, 0.0) and rate.has(20, 0.0)
        rate.take(15, 0.0)
        assert not rate.has(10, 0.0)
        assert rate.wait_for(10, 0.0) == pytest.approx(0.5)
        assert rate.wait_for(1000, 0.0) == pytest.approx(1.5), "more than it ever holds: when it is full"


class TestThrottle:
    LIMITS = Limits(envelopes_per_second=10, frames_per_second=100, bytes_per_second=1000, caused_bytes_per_second=1000)

    def test_over_a_socket_reading_pauses(self, loop: ManualLoop, transport: FakeTransport) -> None:
        throttle = Throttle(loop.as_loop, Reading(loop.as_loop, as_asyncio(transport)), self.LIMITS)
        assert throttle.watches_frames
        throttle.frames(100, 500)
        assert not transport.is_paused
        throttle.frames(50, 100)
        assert transport.is_paused
        loop.advance(0.4)
        assert transport.is_paused
        loop.advance(0.2)
        assert not transport.is_paused

    def test_frames_that_came_together_cost_what_each_costs(self, loop: ManualLoop) -> None:
        together, singly = FakeTransport(), FakeTransport()
        throttle = Throttle(loop.as_loop, Reading(loop.as_loop, as_asyncio(together)), self.LIMITS)
        throttle.frames(120, 1200)
        throttle = Throttle(loop.as_loop, Reading(loop.as_loop, as_asyncio(singly)), self.LIMITS)
        for _ in range(120):
            throttle.frames(1, 10)
        for seconds in (0.15, 0.1):
            assert together.is_paused and singly.is_paused
            loop.advance(seconds)
        assert not together.is_paused and not singly.is_paused

    def test_over_http_the_sender_is_told_and_charged_nothing(self, loop: ManualLoop) -> None:
        throttle = Throttle(loop.as_loop, None, self.LIMITS)
        for _ in range(10):
            throttle.envelope(10)
        for _ in range(3):
            with pytest.raises(LimitExceeded) as refused:
                throttle.envelope(10)
            assert refused.value.details == {"limit": "envelopes_per_second", "retry_after": 0.1}

    def test_what_was_caused_is_owed(self, loop: ManualLoop, transport: FakeTransport) -> None:
        throttle = Throttle(loop.as_loop, Reading(loop.as_loop, as_asyncio(transport)), self.LIMITS)
        throttle.caused(4000)
        assert throttle.seconds_owed() == 0.0
        throttle.caused(2000)
        assert throttle.seconds_owed() == pytest.approx(2.0)

    def test_no_limits(self, loop: ManualLoop) -> None:
        none = Limits(envelopes_per_second=0, caused_bytes_per_second=0)
        throttle = Throttle(loop.as_loop, None, none)
        for _ in range(100_000):
            throttle.envelope(1 << 20)
        assert not throttle.watches_frames and throttle.seconds_owed() == 0.0


class TestFragments:
    def test_a_message_in_pieces(self) -> None:
        assembler = Assembler()
        assert assembler.add(1, False, "gr\u00fc".encode()[:3], 100) is None
        assert assembler.is_open
        assert assembler.add(0, False, "gr\u00fc".encode()[3:], 100) is None
        assert assembler.add(0, True, b"n", 100) == (1, "gr\u00fcn".encode())
        assert not assembler.is_open

    @pytest.mark.parametrize("opcodes", [(0,), (1, 2)])
    def test_an_order_that_is_not_allowed(self, opcodes: tuple[int, ...]) -> None:
        assembler = Assembler()
        with pytest.raises(FragmentError):
            for opcode in opcodes:
                assembler.add(opcode, False, b"x", 100)

    def test_more_than_the_limit(self) -> None:
        assembler = Assembler()
        assembler.add(2, False, bytes(60), 100)
        with pytest.raises(LimitExceeded):
            assembler.add(0, False, bytes(60), 100)

    def test_text_that_cannot_become_utf8_is_refused_at_once(self) -> None:
        with pytest.raises(UnicodeDecodeError):
            Assembler().add(1, False, b"\xff", 100)

    def test_many_tiny_ones(self) -> None:
        assembler = Assembler()
        assembler.add(2, False, b"x", 10_000)
        for _ in range(5_000):
            assembler.add(0, False, b"y", 10_000)
            assert len(assembler._parts) < 256
        assert assembler.add(0, True, b"", 10_000) == (2, b"x" + b"y" * 5_000)
