"""When silent connections are pinged and closed: by a clock of our own, and over sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from raw_socket import PING, PONG, RawSocket, ws_frame

from mewstream.gateway.pings import CHECKS, STALLED_INTERVALS, Pings
from mewstream.protocol.close_codes import CloseReason
from support import joined, running_gateway, space_config

INTERVAL = 20.0
#: A ping and a close come at most so late: when it is next looked who is silent.
LATE = INTERVAL / CHECKS


class Clock:
    """The part of an event loop that has to do with time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Clock:
        self._due.append((self.now + delay, callback))
        return self

    def cancel(self) -> None:
        self._due.clear()

    def run_until(self, end: float) -> None:
        while self._due and min(self._due, key=lambda each: each[0])[0] <= end:
            due = min(self._due, key=lambda each: each[0])
            self._due.remove(due)
            self.now = due[0]
            due[1]()
        self.now = end


class Peer:
    """A connection, as pings see it."""

    def __init__(self, clock: Clock, *, answers: bool = False, is_behind: bool = False, is_held: bool = False) -> None:
        self._clock = clock
        self._answers = answers
        self.is_behind = is_behind
        self.is_held = is_held
        self.heard_at = clock.now
        self.pings: list[float] = []
        self.closed: tuple[float, CloseReason] | None = None
        self.outbound = self.reading = self

    def ping(self) -> None:
        self.pings.append(self._clock.now)
        if self._answers:
            self.heard_at = self._clock.now

    def close(self, reason: CloseReason) -> None:
        assert self.closed is None
        self.closed = self._clock.now, reason
        del self.peers[self]

    peers: dict[Any, float]


def watched(clock: Clock, *peers: Peer) -> Pings:
    pinged_at: dict[Any, float] = dict.fromkeys(peers, 0.0)
    for peer in peers:
        peer.peers = pinged_at
    return Pings(clock, INTERVAL, pinged_at)  # type: ignore[arg-type]


@pytest.mark.parametrize("offset", [0.0, 0.1, 2.4, 7.0, 13.3, 19.9])
def test_a_silent_one_is_pinged_after_the_interval_and_not_after_two(offset: float) -> None:
    """At whatever moment between two looks it fell silent."""
    clock = Clock()
    peer = Peer(clock, answers=True)
    watched(clock, peer)
    clock.run_until(clock.now + offset)
    peer.heard_at = fell_silent = clock.now
    clock.run_until(fell_silent + INTERVAL + LATE)
    assert len(peer.pings) == 1
    assert INTERVAL <= peer.pings[0] - fell_silent <= INTERVAL + LATE


def test_who_answers_is_pinged_again_and_stays() -> None:
    clock = Clock()
    peer = Peer(clock, answers=True)
    watched(clock, peer)
    clock.run_until(clock.now + 100 * INTERVAL)
    assert 85 <= len(peer.pings) <= 100
    assert peer.closed is None


def test_who_does_not_answer_is_closed_an_interval_later() -> None:
    clock = Clock()
    peer = Peer(clock)
    watched(clock, peer)
    start = clock.now
    clock.run_until(start + 3 * INTERVAL)
    assert len(peer.pings) == 1
    assert peer.closed is not None
    at, reason = peer.closed
    assert reason is CloseReason.PING_TIMEOUT
    assert 2 * INTERVAL <= at - start <= 2 * (INTERVAL + LATE)


def test_who_talks_is_not_asked() -> None:
    clock = Clock()
    peer = Peer(clock)
    watched(clock, peer)
    for _ in range(50):
        clock.run_until(clock.now + 0.9 * INTERVAL)
        peer.heard_at = clock.now
    assert peer.pings == []
    assert peer.closed is None


def test_who_is_behind_is_given_more_time() -> None:
    """A ping would wait behind what it has not taken."""
    clock = Clock()
    peer = Peer(clock, is_behind=True)
    watched(clock, peer)
    start = clock.now
    clock.run_until(start + (STALLED_INTERVALS + 1) * INTERVAL)
    assert peer.pings == []
    assert peer.closed is not None
    at, reason = peer.closed
    assert reason is CloseReason.SLOW_CONSUMER
    assert STALLED_INTERVALS * INTERVAL <= at - start <= STALLED_INTERVALS * INTERVAL + LATE


def test_who_is_not_listened_to_is_not_blamed() -> None:
    """While reading is held up, its answer would not be heard."""
    clock = Clock()
    peer = Peer(clock, is_held=True)
    watched(clock, peer)
    clock.run_until(clock.now + 10 * INTERVAL)
    assert (peer.pings, peer.closed) == ([], None)
    peer.is_held = False
    clock.run_until(clock.now + 2 * INTERVAL)
    assert len(peer.pings) == 1, "from then on it has its time again"


def test_one_timer_for_all() -> None:
    clock = Clock()
    pings = watched(clock, *(Peer(clock, answers=True) for _ in range(100)))
    clock.run_until(clock.now + 5 * INTERVAL)
    assert len(clock._due) == 1
    pings.stop()
    assert clock._due == []


# -- over sockets ---------------------------------------------------------------------------------

CONFIG = space_config("alice", "mallory", gateway={"ping_interval": 0.3})


async def test_who_does_not_answer_is_let_go() -> None:
    with running_gateway(CONFIG) as gateway:
        async with joined(gateway, "alice") as (alice,), await RawSocket.joined(gateway.port, "mallory") as raw:
            frames, code = await raw.read_to_close()
            assert PING in [frame.opcode for frame in frames], "it was asked first"
            assert code == CloseReason.PING_TIMEOUT.value.code
            await alice.receive("system/presence", event="leave")
            await alice.settle()  # a library answers by itself: alice is still here


async def test_who_answers_stays() -> None:
    with running_gateway(CONFIG) as gateway:
        async with await RawSocket.joined(gateway.port, "mallory") as raw:
            for _ in range(4):
                await raw.read_until(lambda frame: frame.opcode == PING)
                await raw.send(ws_frame(PONG, b""))
