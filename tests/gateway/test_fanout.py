"""The gate of the outbox: a control message is told when it is recorded, and nothing overtakes anything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import pytest

from mewstream.gateway.fanout import Audience, Outbox, Parcel


class Listener:
    positions = False

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def push(self, data: bytes, parcels: Sequence[Parcel]) -> None:
        self.got += [body for parcel in parcels for body in parcel.bodies]


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
    return Parcel(Audience((listener,)), 1, [b"control %d" % number], None, number)


def frame(listener: Listener, number: int) -> Parcel:
    return Parcel(Audience((listener,)), 1, [b"frame %d" % number], None, number, "stream-1", "writer")


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


class TestGrownAudiences:
    """Audiences that share their lists are told of as if each had its own."""

    def test_one_knows_nothing_of_who_came_after_it(self) -> None:
        first, second, third = Listener(), Listener(), Listener()
        alone = Audience((first,))
        both = alone.grown(second)
        others = alone.grown(third)
        for number, audience in enumerate((alone, both, others)):
            self.tell([Parcel(audience, 1, [b"%d" % number], None, number)])
        assert (first.got, second.got, third.got) == ([b"0", b"1", b"2"], [b"1"], [b"2"])

    @pytest.mark.parametrize("seed", range(20))
    def test_everyone_gets_in_order_what_was_for_it(self, seed: int) -> None:
        chance = random.Random(seed)
        expected: dict[Listener, list[bytes]] = {}
        audiences: list[tuple[Audience, list[Listener]]] = [(Audience(), [])]
        parcels: list[Parcel] = []
        for number in range(200):
            audience, members = chance.choice(audiences[-3:])
            match chance.randrange(4):
                case 0:
                    newcomer = Listener()
                    newcomer.positions = chance.random() < 0.3
                    expected[newcomer] = []
                    audiences.append((audience.grown(newcomer), [*members, newcomer]))
                case 1 if members:
                    alone = chance.choice(members)
                    audiences.append((Audience((alone,)), [alone]))
                    audiences.append((audience, members))
                case _ if members:
                    parcels.append(Parcel(audience, 1, [b"%d" % number], None, number))
                    for each in members:
                        expected[each].append(b"%d" % number)
            if chance.random() < 0.1:
                self.tell(parcels)
                parcels = []
        self.tell(parcels)
        assert len(expected) > 10
        assert all(each.got == told for each, told in expected.items())

    def tell(self, parcels: list[Parcel]) -> None:
        loop = asyncio.new_event_loop()
        outbox = Outbox(loop, 1 << 20, Gate(at_once=True))
        for each in parcels:
            outbox.add(each)
        outbox.flush()
        loop.close()
