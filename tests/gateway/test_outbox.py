"""The gate of the outbox: a control message is told when it is recorded, and nothing overtakes anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mewstream.gateway.fanout import Audience, Outbox, Parcel


class Listener:
    positions = False

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        self.got += [parcel.body for parcel in parcels]


class Gate:
    """Opens at once, or when told to."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once
        self.asked: list[Callable[[], None]] = []
        self.times = 0

    def __call__(self, done: Callable[[], None]) -> None:
        self.times += 1
        if self.at_once:
            done()
        else:
            self.asked.append(done)

    def open(self) -> None:
        self.asked.pop(0)()


def control(listener: Listener, number: int) -> Parcel:
    return Parcel(Audience((listener,)), 1, b"control %d" % number, None, number)


def frame(listener: Listener, number: int) -> Parcel:
    return Parcel(Audience((listener,)), 1, b"frame %d" % number, None, number, "stream-1", "writer")


async def test_one_answer_of_the_gate_is_good_for_all_that_waited() -> None:
    listener, gate = Listener(), Gate(at_once=False)
    outbox = Outbox(asyncio.get_running_loop(), 1 << 20, gate)
    for number in range(100):
        outbox.add(control(listener, number))
        outbox.flush()
    assert listener.got == [] and gate.times == 1
    gate.open()  # asked when only the first was there
    assert listener.got == [b"control 0"] and gate.times == 2
    gate.open()
    assert listener.got == [b"control %d" % number for number in range(100)] and gate.times == 2


async def test_frames_wait_behind_a_control_message_and_go_with_it() -> None:
    listener, gate = Listener(), Gate(at_once=False)
    outbox = Outbox(asyncio.get_running_loop(), 1 << 20, gate)
    done: list[str] = []
    outbox.add(frame(listener, 1))
    outbox.flush()
    assert listener.got == [b"frame 1"], "a frame by itself waits for nobody"
    outbox.add(control(listener, 2))
    outbox.flush()
    outbox.add(frame(listener, 3))
    outbox.flush()
    outbox.then(lambda: done.append("then"))
    assert listener.got == [b"frame 1"] and not done
    gate.open()
    assert listener.got == [b"frame 1", b"control 2", b"frame 3"] and done == ["then"]


async def test_thousands_that_waited_for_a_disk_are_told_when_it_is_back() -> None:
    listener, gate = Listener(), Gate(at_once=False)
    outbox = Outbox(asyncio.get_running_loop(), 1 << 20, gate)
    for number in range(5_000):
        outbox.add(control(listener, number))
        outbox.flush()
    gate.at_once = True
    gate.open()
    assert len(listener.got) == 5_000
    outbox.add(control(listener, 5_000))
    outbox.flush()
    assert listener.got[-1] == b"control 5000", "it goes on as before"


async def test_one_that_cannot_be_told_keeps_nobody_waiting(caplog: object) -> None:
    class Broken(Listener):
        def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
            raise RuntimeError("broken")

    listener, gate = Listener(), Gate(at_once=False)
    outbox = Outbox(asyncio.get_running_loop(), 1 << 20, gate)
    outbox.add(control(Broken(), 1))
    outbox.flush()
    outbox.add(control(listener, 2))
    outbox.flush()
    gate.open()
    gate.open()
    assert listener.got == [b"control 2"]
