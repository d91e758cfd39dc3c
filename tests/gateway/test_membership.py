"""Who is connected to a space, and the audiences that are made of them."""

from __future__ import annotations

from doubles import FakeMember

from mewstream.gateway.fanout import Audience
from mewstream.gateway.membership import Membership
from mewstream.protocol.fold import fold
from mewstream.protocol.records import Joined, StreamOpened, StreamPolicy
from mewstream.protocol.state import SpaceState


def listeners(audience: Audience) -> set[object]:
    return {each for _, shared, size in audience.parts for each in shared[:size]}


def space_with_stream(readers: list[str] | None) -> SpaceState:
    people = [Joined(number, number, None, id, [], "ws") for number, id in enumerate(("ann", "bob", "cy"), 1)]
    opened = StreamOpened(
        4, 4, None, "stream-1", "live", "ann", "r", {}, StreamPolicy("keep", 0, "latest", "off"), ["ann"], readers
    )
    return fold("demo", [*people, opened])


def test_everyone_who_listens_gets_what_is_for_everyone() -> None:
    members = Membership(SpaceState("demo"))
    ann, bob, silent = FakeMember("ann"), FakeMember("bob"), FakeMember("silent")
    silent.is_listening = False
    for each in (ann, bob, silent):
        assert members.add(each) is None
    assert len(members) == 3 and set(members) == {ann, bob, silent}
    assert listeners(members.everyone) == {ann, bob}
    assert listeners(members.everyone_but(ann)) == {bob}


def test_a_second_connection_takes_the_place_of_the_first() -> None:
    members = Membership(SpaceState("demo"))
    first, second = FakeMember("ann"), FakeMember("ann")
    members.add(first)
    assert members.add(second) is first
    assert members.get("ann") is second and members.is_current(second) and not members.is_current(first)
    assert listeners(members.everyone) == {second}


def test_who_was_removed_gets_nothing_more() -> None:
    members = Membership(SpaceState("demo"))
    ann, bob = FakeMember("ann"), FakeMember("bob")
    members.add(ann)
    members.add(bob)
    members.remove(ann)
    assert members.get("ann") is None and not members.is_current(ann)
    assert listeners(members.everyone) == {bob}


def test_positions_that_are_asked_for_later_need_a_new_audience() -> None:
    members = Membership(SpaceState("demo"))
    ann = FakeMember("ann")
    members.add(ann)
    assert not members.everyone.wants_positions
    ann.ask_for_positions()
    members.refresh()
    assert members.everyone.wants_positions


class TestReaders:
    def test_without_a_set_everyone_reads(self) -> None:
        state = space_with_stream(None)
        members = Membership(state)
        members.add(FakeMember("ann"))
        assert members.readers_of(state.streams["stream-1"]) is members.everyone

    def test_of_a_set_those_who_are_connected(self) -> None:
        state = space_with_stream(["bob", "cy", "absent"])
        members = Membership(state)
        ann, bob = FakeMember("ann"), FakeMember("bob")
        members.add(ann)
        members.add(bob)
        assert listeners(members.readers_of(state.streams["stream-1"])) == {bob}

    def test_the_audience_is_kept_until_something_changes(self) -> None:
        state = space_with_stream(["bob", "cy"])
        stream = state.streams["stream-1"]
        members = Membership(state)
        members.add(FakeMember("bob"))
        first = members.readers_of(stream)
        assert members.readers_of(stream) is first
        stream.version += 1
        second = members.readers_of(stream)
        assert second is not first
        cy = FakeMember("cy")
        members.add(cy)
        assert cy in listeners(members.readers_of(stream))
