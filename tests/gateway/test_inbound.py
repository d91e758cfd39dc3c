"""The receiving side of a connection, without one: turns and rates."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from doubles import FakeTransport, ManualLoop

from mewstream.gateway.inbound import ParticipantRates, Rate, Throttle, Turns
from mewstream.io.reading import Reading
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


class TestParticipantRates:
    def test_each_participant_has_its_own_which_is_kept(self, loop: ManualLoop) -> None:
        rates = ParticipantRates(loop.as_loop, "r", 10.0, burst=20)
        ann, bob = rates.of("ann"), rates.of("bob")
        assert ann is not None and bob is not None and ann is not bob
        ann.take(30, loop.now)
        assert rates.of("ann") is ann and not ann.has(1, loop.now) and bob.has(20, loop.now)

    def test_the_one_that_was_used_longest_ago_is_forgotten(
        self, loop: ManualLoop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ParticipantRates, "_MOST", 2)
        rates = ParticipantRates(loop.as_loop, "r", 10.0, burst=20)
        ann, bob = rates.of("ann"), rates.of("bob")
        assert rates.of("ann") is ann
        rates.of("cy")
        assert rates.of("ann") is ann and rates.of("bob") is not bob

    def test_no_limit(self, loop: ManualLoop) -> None:
        assert ParticipantRates(loop.as_loop, "r", 0.0, burst=0).of("ann") is None


class TestThrottle:
    LIMITS = Limits(envelopes_per_second=10, frames_per_second=100, bytes_per_second=1000)

    def test_over_a_socket_reading_pauses(self, loop: ManualLoop, transport: FakeTransport) -> None:
        throttle = Throttle(loop.as_loop, Reading(loop.as_loop, as_asyncio(transport)), self.LIMITS, caused=None)
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
        throttle = Throttle(loop.as_loop, Reading(loop.as_loop, as_asyncio(together)), self.LIMITS, caused=None)
        throttle.frames(120, 1200)
        throttle = Throttle(loop.as_loop, Reading(loop.as_loop, as_asyncio(singly)), self.LIMITS, caused=None)
        for _ in range(120):
            throttle.frames(1, 10)
        for seconds in (0.15, 0.1):
            assert together.is_paused and singly.is_paused
            loop.advance(seconds)
        assert not together.is_paused and not singly.is_paused

    def test_over_http_the_sender_is_told_and_charged_nothing(self, loop: ManualLoop) -> None:
        throttle = Throttle(loop.as_loop, None, self.LIMITS, caused=None)
        for _ in range(10):
            throttle.envelope(10)
        for _ in range(3):
            with pytest.raises(LimitExceeded) as refused:
                throttle.envelope(10)
            assert refused.value.details == {"limit": "envelopes_per_second", "retry_after": 0.1}

    def test_what_was_caused_is_owed(self, loop: ManualLoop, transport: FakeTransport) -> None:
        caused = Rate("caused_bytes_per_second", 1000, loop.now, burst=4000)
        throttle = Throttle(loop.as_loop, Reading(loop.as_loop, as_asyncio(transport)), self.LIMITS, caused=caused)
        throttle.caused(4000)
        assert throttle.seconds_owed() == 0.0
        throttle.caused(2000)
        assert throttle.seconds_owed() == pytest.approx(2.0)

    def test_no_limits(self, loop: ManualLoop) -> None:
        none = Limits(envelopes_per_second=0, caused_bytes_per_second=0)
        throttle = Throttle(loop.as_loop, None, none, caused=None)
        for _ in range(100_000):
            throttle.envelope(1 << 20)
        assert not throttle.watches_frames and throttle.seconds_owed() == 0.0
