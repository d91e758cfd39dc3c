"""Welcomes are put together from parts that were encoded before: they say what the state says, whatever happens."""

from __future__ import annotations

import msgspec
import pytest
from making import Script

from mewstream.gateway.welcomes import Welcomes
from mewstream.protocol import commands
from mewstream.protocol.envelope import encode_json


def _told(welcomes: Welcomes, participant: str) -> object:
    return msgspec.json.decode(encode_json(welcomes.payload(participant)))


def _expected(script: Script, participant: str) -> object:
    return msgspec.json.decode(encode_json(script.state.welcome(participant)))


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
