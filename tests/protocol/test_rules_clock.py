"""What a clock that was set does to what was promised. That it was set, the gateway finds out: see its clock."""

from __future__ import annotations

from harness import Outcome, Space

from mewstream.protocol import commands
from mewstream.protocol.records import ClockJumped, Paused
from mewstream.protocol.times import SECOND, rfc3339


def scene() -> Space:
    """Carol may write for ten minutes and is paused for a hundred seconds, dan is paused for five; an announced stream
    has a minute for its start, and bob a minute to come back."""
    space = Space("alice", "bob", "carol", "dan", "admin", policies={"start_timeout": 60, "reconnect_grace": 60})
    stream = space.open("alice")
    space.grant("alice", stream, "carol", conditions={"expires_at": rfc3339(space.now + 600 * SECOND)})
    space.announce("alice")
    space.leave("bob")
    for who, seconds in (("carol", 100), ("dan", 5)):
        assert space.send("admin", "participant/pause", {"timeout_seconds": seconds}, to=[who]).error is None
    return space


def jump(space: Space, seconds: float, *, shift: float = 0, ahead: float = 0) -> Outcome:
    space.now += round(shift * SECOND)
    return space.do(commands.ClockJump(*(round(each * SECOND) for each in (seconds, shift, ahead))))


def test_set_forward() -> None:
    """What was promised for so many seconds has the rest of them; what ends at a time has ended."""
    space = scene()
    space.tick(20)  # the pause of dan is over
    outcome = jump(space, 3600, shift=3600)
    assert outcome.types == ["ClockJumped", "Paused"]
    assert outcome.one(Paused).participant == "carol"
    assert outcome.one(Paused).cause_seq == outcome.one(ClockJumped).seq
    assert outcome.messages == [], "it is no news to the participants"
    assert space.tick(39).types == ["WriteRevoked"]
    assert sorted(space.tick(2).types) == ["Left", "StreamEnded"]
    assert space.send("carol", "chat", {"text": "still paused"}).error == "invalid_operation"
    assert space.send("dan", "chat", {"text": "not any more"}).error is None
    space.tick(40)
    assert space.send("carol", "chat", {"text": "hi"}).error is None


def test_set_back() -> None:
    """The time of the space goes on as it was, and nothing moves."""
    space = scene()
    before = dict(space.state.timers), dict(space.state.paused)
    assert jump(space, -3600, ahead=3600).types == ["ClockJumped"]
    assert (space.state.timers, space.state.paused) == before
