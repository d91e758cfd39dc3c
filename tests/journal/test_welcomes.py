"""Welcomes are put together from parts that were encoded before: they say what the state says, whatever happens."""

from __future__ import annotations

import pytest
from making import Script

from mewstream.gateway.welcomes import Welcomes
from mewstream.protocol import commands
from mewstream.protocol.envelope import encode_json


def _told(welcomes: Welcomes, participant: str) -> bytes:
    return encode_json(welcomes.payload(participant))


def _expected(script: Script, participant: str) -> bytes:
    return encode_json(script.state.welcome(participant))


@pytest.mark.parametrize("seed", range(8))
def test_they_say_what_the_state_says_after_everything_that_happens(seed: int) -> None:
    script = Script(seed=seed).begin()
    welcomes = Welcomes(script.state)
    happened = set()
    for number in range(400):
        happened |= {type(record).__name__ for record in script.step()}
        if number % 40 == 17:
            gone = script.random.choice(script.people)
            if script.state.is_present(gone):
                script.do(commands.Disconnect(gone, script.state.participants[gone].session))
        if number % 40 == 30:  # a new start, whose configuration gives other capabilities
            capabilities = [{"kind": "*"}, {"kind": f"run/{number}"}]
            config = {"participants": {each: {"capabilities": capabilities} for each in script.people}}
            script.do(commands.Start(f"e-{number}", config))
        for each in script.people:
            assert _told(welcomes, each) == _expected(script, each), (number, each)
    assert {
        "WriteGranted",
        "WriteRevoked",
        "OwnershipTransferred",
        "ReadGranted",
        "Frame",
        "CapabilitiesGranted",
    } <= happened


@pytest.mark.parametrize("seed", range(8))
def test_they_say_so_however_much_has_happened_since_the_last(seed: int) -> None:
    """Many come and go, with rights and without, and only sometimes somebody is welcomed."""
    script = Script(seed=seed)
    script.people = tuple(f"p{number}" for number in range(30))
    chance = script.random
    config = {"participants": {each: {"capabilities": [{"kind": "*"}]} for each in script.people}}
    script.do(commands.Start("e-2", config))
    welcomes = Welcomes(script.state)
    happened, asked = set(), 0
    for number in range(1500):
        who, other = chance.sample(script.people, 2)
        match chance.randrange(6):
            case 0 | 1:
                made = script.do(commands.Join(who, "websocket"))
            case 2 if script.state.is_present(who):
                made = script.do(commands.Disconnect(who, script.state.participants[who].session))
            case 3 if script.state.capability_grants:
                granted = chance.choice(list(script.state.capability_grants.values()))
                made = script.send(who, "capability/revoke", grant_id=chance.choice(list(granted)))
            case 4 if number % 10 == 0:
                script.people += (f"guest-{number}",)
                made = script.send(who, "space/invite", participant_id=f"guest-{number}")
            case 5:
                made = script.send(who, "stream/request", auto_grant=[other])
            case _:
                made = script.step()
        happened |= {type(record).__name__ for record in made}
        if chance.random() < 0.2:
            asked += 1
            each = chance.choice(script.people)
            assert _told(welcomes, each) == _expected(script, each), (number, each)
    assert asked > 100
    assert {"Left", "Invited", "CapabilitiesRevoked", "StreamEnded", "ReadRevoked"} <= happened


def test_those_of_a_storm_are_made_from_one_piece() -> None:
    """Nobody is described again for a newcomer: what a welcome costs is its bytes."""
    script = Script()
    people = [f"p{number}" for number in range(50)]
    config = {"participants": {each: {"capabilities": [{"kind": "*"}]} for each in people}}
    script.do(commands.Start("e-2", config))
    welcomes = Welcomes(script.state)
    for number, each in enumerate(people):
        script.do(commands.Join(each, "websocket"))
        assert _told(welcomes, each) == _expected(script, each)
        assert len(welcomes.payload(each)["participants"]) == (number > 0)
    assert len(welcomes.payload("p20")["participants"]) == 2, "those before it, and those after"


def test_what_is_kept_of_those_who_have_gone_is_bounded() -> None:
    script = Script().begin()
    welcomes = Welcomes(script.state)
    for number in range(200):
        script.send("ann", "stream/request", direction="upload")
        newest = list(script.state.streams)[-1]
        assert _told(welcomes, "bob") == _expected(script, "bob")
        if number >= 5:
            script.send("ann", "stream/close", stream_id=newest)
    assert len(welcomes._streams) <= 2 * len(script.state.streams) + 1
