"""Rights that are asked for and handed over, with the SDK."""

from __future__ import annotations

import pytest
from sdk_helping import enter, eventually, until

import mewstream
from mewstream import InvalidOperation, Unauthorized, events
from support import GatewayProcess, active_stream


async def test_asking_denying_and_handing_over(gateway: GatewayProcess) -> None:
    async with (
        enter(gateway, "ann") as ann,
        enter(gateway, "dee") as dee,
        enter(gateway, "cy") as cy,
        ann.open_stream() as stream,
    ):
        seen, theirs = ann.events(), await dee.stream(stream.id)
        news = dee.events()
        with pytest.raises(InvalidOperation):
            await stream.ask()
        await theirs.ask(reason="my turn")
        asked = await until(seen, events.WriteRequested)
        assert (asked.stream, asked.participant, asked.reason) == (stream.id, "dee", "my turn")
        await (await cy.stream(stream.id)).ask()
        await theirs.ask(reason="please")
        await eventually(lambda: stream.write_requests == {"dee": "please", "cy": None})
        assert theirs.write_requests == {"dee": "please", "cy": None}
        with pytest.raises(Unauthorized):
            await theirs.deny("cy")
        await stream.deny("dee", reason="not now")
        denied = await until(news, events.WriteDenied)
        assert (denied.participant, denied.by, denied.reason) == ("dee", "ann", "not now")
        with pytest.raises(InvalidOperation):
            await stream.deny("dee")

        await stream.hand_over("cy")
        assert (stream.authorized_writers, stream.write_requests) == (["ann", "cy"], {})
        await stream.hand_over("dee", reason="next")
        assert stream.authorized_writers == ["ann", "dee"]
        granted = await until(news, events.WriteGranted, participant="dee")
        assert granted.reason == "next"
        await stream.hand_over("dee")
        assert stream.authorized_writers == ["ann", "dee"]
        await stream.grant("cy")
        with pytest.raises(ValueError, match=r"dee, cy|cy, dee"):
            await stream.hand_over("ann")
        with pytest.raises(InvalidOperation):
            await stream.grant("cy", replaces="ann")
        await stream.grant("cy", replaces="dee", max_frames=1)
        assert stream.conditions["cy"]["max_frames"] == 1


async def test_who_leaves_asks_no_more(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, ann.open_stream() as stream:
        async with enter(gateway, "bob") as bob:
            await (await bob.stream(stream.id)).ask()
            await eventually(lambda: "bob" in stream.write_requests)
            async with enter(gateway, "cy") as cy:
                assert cy.streams[stream.id].write_requests == {"bob": None}
        await eventually(lambda: not stream.write_requests)


async def test_delegation(gateway: GatewayProcess) -> None:
    async with (
        enter(gateway, "ann") as ann,
        enter(gateway, "dee") as dee,
        enter(gateway, "bob") as bob,
        enter(gateway, "cy") as cy,
        ann.open_stream() as stream,
    ):
        news, theirs = cy.events(), await dee.stream(stream.id)
        await cy.stream(stream.id)
        with pytest.raises(ValueError, match="delegate=1"):
            await stream.grant("dee", max_writers=1)
        await stream.grant("dee", delegate=2, max_writers=2)
        granted = await until(news, events.WriteGranted, participant="dee")
        assert granted.delegate == {"depth": 2, "max_writers": 2}
        with pytest.raises(InvalidOperation):
            await theirs.grant("bob", delegate=2)
        await theirs.grant("bob", delegate=1)
        await theirs.grant("cy")
        expected = [
            {"participant_id": "dee", "by": "ann", "depth": 2},
            {"participant_id": "bob", "by": "dee", "depth": 1},
            {"participant_id": "cy", "by": "dee", "depth": 0},
        ]
        await eventually(lambda: stream.delegations == expected)
        with pytest.raises(Unauthorized):
            await theirs.revoke("nobody")
        await theirs.revoke("cy")
        await stream.grant("dee", delegate=1)
        await eventually(lambda: [each["depth"] for each in stream.delegations] == [1, 0])
        await same_as_welcome(gateway, stream)
        await stream.revoke("dee")
        assert stream.authorized_writers == ["ann"]
        assert stream.delegations == []
        await until(news, events.WriteRevoked, participant="bob", reason="delegation_ended")
        await stream.grant("dee", delegate=2)
        await theirs.grant("bob", delegate=1)
        await theirs.grant("cy")
        await stream.transfer("dee")
        await eventually(lambda: [each["participant_id"] for each in theirs.delegations] == ["bob"])
        await same_as_welcome(gateway, theirs)
        assert bob.streams[stream.id].delegations == theirs.delegations


async def same_as_welcome(gateway: GatewayProcess, stream: mewstream.Stream) -> None:
    """What a view has made of the changes is what a late joiner is told."""
    late = await gateway.join("late")
    assert active_stream(late.welcome, stream.id).get("delegations", []) == stream.delegations
    await late.close()
