"""MCP between participants: requests, who may answer them, proposals; and people: invitations, kicks, capabilities."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from sdk_helping import enter, eventually, until

import mewstream
from mewstream import Call, McpError, ProposalRejected, RequestTimeout, events
from mewstream.client.mcp import METHOD_NOT_FOUND
from support import GatewayProcess


async def test_a_request_that_another_answers(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        news = bob.events()
        asked: list[Call] = []

        @bob.on_request
        async def answer(call: Call) -> Any:
            asked.append(call)
            if call.params:
                return {"degrees": 7}
            raise McpError("no idea", code=-5, data={"try": "cy"})

        assert await ann.request("weather/get", {"city": "Bern"}, to="bob") == {"degrees": 7}
        assert (asked[0].sender, asked[0].method, asked[0].params) == ("ann", "weather/get", {"city": "Bern"})
        assert repr(asked[0]) == "Call('weather/get', sender='ann')"
        seen = await until(news, events.Requested)
        assert (seen.sender, seen.method, seen.params, seen.to) == ("ann", "weather/get", {"city": "Bern"}, ["bob"])
        with pytest.raises(McpError, match="no idea") as caught:
            await ann.request("weather/get", to=["bob", "cy"])
        assert (caught.value.code, caught.value.data) == (-5, {"try": "cy"})


async def test_an_unknown_method_is_answered_at_once(gateway: GatewayProcess) -> None:
    """By whoever is asked, with tools and without; a ping and the handshake are answered by everyone."""
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        for _ in range(2):
            with pytest.raises(McpError, match="no method 'something/else'") as caught:
                await ann.request("something/else", to="bob")
            assert caught.value.code == METHOD_NOT_FOUND
            assert await ann.request("ping", to="bob") == {}
            bob.tool("one", lambda: 1)
        initialized = await ann.request("initialize", {"protocolVersion": "2025-06-18"}, to="bob")
        assert initialized["protocolVersion"] == "2025-06-18"
        assert initialized["capabilities"] == {"tools": {"listChanged": True}}
        assert initialized["serverInfo"]["name"] == "bob"
        initialized = await ann.request("initialize", {"protocolVersion": "1999-01-01"}, to="bob")
        assert initialized["protocolVersion"] == "2025-11-25"
        with pytest.raises(McpError) as caught:
            await ann.request("x" * 10_000, to="bob")
        assert len(str(caught.value)) < 200, "what was asked is not repeated at length"


async def test_of_several_who_are_asked_the_one_who_knows_answers(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob"), enter(gateway, "cy") as cy:
        went_on = asyncio.Event()

        @cy.on_request
        async def answer(call: Call) -> str:
            await went_on.wait()
            return "here"

        asking = asyncio.create_task(ann.request("where", to=["bob", "cy"]))
        seen = ann.events()
        await until(seen, events.Received, kind="mcp/response", sender="bob")
        await ann.chat("bob does not know")
        assert not asking.done()
        went_on.set()
        assert await asking == "here"
        with pytest.raises(McpError) as caught:
            await ann.request("where", to=["bob"])
        assert caught.value.code == METHOD_NOT_FOUND


async def test_who_speaks_json_rpc_gets_its_members_back(gateway: GatewayProcess) -> None:
    async with enter(gateway, "bob"):
        ann = await gateway.join("ann")
        await ann.send("mcp/request", {"jsonrpc": "2.0", "id": 42, "method": "ping"}, to=["bob"])
        answer = await ann.receive("mcp/response")
        assert answer["payload"] == {"jsonrpc": "2.0", "id": 42, "result": {}}
        await ann.send("mcp/request", {"method": "ping"}, to=["bob"])
        assert (await ann.receive("mcp/response"))["payload"] == {"result": {}}
        await ann.close()


async def test_nobody_answers_in_anothers_place(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, enter(gateway, "dee") as dee:
        seen = dee.events()
        went_on = asyncio.Event()

        @bob.on_request
        async def answer(call: Call) -> str:
            await went_on.wait()
            return "true"

        asking = asyncio.create_task(ann.request("secret", to="bob"))
        asked = await until(seen, events.Requested)
        assert asked.message is not None
        await dee.send("mcp/response", {"result": "forged"}, to="ann", correlation_id=asked.message.id)
        await ann.chat("the forged answer has come")
        assert not asking.done()
        went_on.set()
        assert await asking == "true"
        # An envelope of another with an id of ours answers nothing of ours.
        for space in (ann, dee):
            space._calls.next_id = lambda: "the-same"  # type: ignore[method-assign]
        assert (await dee.chat("not yours")).sender == "dee"
        with pytest.raises(mewstream.InvalidRequest, match="used by another"):
            await ann.chat("mine")


async def test_ids_cannot_be_guessed(gateway: GatewayProcess) -> None:
    """Who has seen one could else use the next ones, and have ours refused."""
    async with enter(gateway, "ann") as ann:
        ids = [(await ann.chat("hi")).id for _ in range(5)]
        assert len({id.rsplit("-", 1)[1] for id in ids}) == len(ids)
        assert all(map(ann.has_sent, ids))


async def test_proposals(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, enter(gateway, "cy") as cy:
        cy.tool("add", lambda a, b: a + b)
        news = bob.events()
        params = {"name": "add", "arguments": {"a": 1, "b": 2}}
        proposal = await ann.propose("tools/call", params, to="cy")
        proposed = await until(news, events.Proposed)
        assert (proposed.proposal, proposed.sender, proposed.method) == (proposal.id, "ann", "tools/call")
        assert not proposal.is_settled
        result = await bob.fulfil(proposed)
        assert result["structuredContent"] == {"result": 3}
        assert await proposal.result(timeout=5) == result
        assert proposal.is_settled

        proposal = await ann.propose("tools/call", params)
        proposed = await until(news, events.Proposed)
        with pytest.raises(ValueError, match="to="):
            await bob.fulfil(proposed)
        waiting = asyncio.create_task(proposal.result())
        with pytest.raises(RequestTimeout, match="fulfilled or rejected"):
            await proposal.result(timeout=0.05)
        await bob.reject(proposed, reason="too dear")
        with pytest.raises(ProposalRejected, match="too dear") as caught:
            await waiting
        assert caught.value.by == "bob"
        declined = await until(news, events.ProposalDeclined)
        assert (declined.proposal, declined.by, declined.reason) == (proposal.id, "bob", "too dear")

        proposal = await ann.propose("tools/call", params, to="cy")
        waiting = asyncio.create_task(proposal.result())
        await proposal.withdraw(reason="changed my mind")
        withdrawn = await until(news, events.ProposalWithdrawn)
        assert (withdrawn.proposal, withdrawn.by, withdrawn.reason) == (proposal.id, "ann", "changed my mind")
        with pytest.raises(ProposalRejected, match="withdrawn"):
            await waiting

        failing = await ann.propose("tools/call", {"name": "unknown"}, to="cy")
        proposed = await until(news, events.Proposed, proposal=failing.id)
        with pytest.raises(McpError):
            await bob.fulfil(proposed)
        with pytest.raises(McpError):
            await failing.result(timeout=5)


async def test_a_proposal_is_not_settled_by_bystanders(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, enter(gateway, "dee") as dee:
        news = bob.events()
        went_on = asyncio.Event()

        @bob.on_request
        async def answer(call: Call) -> str:
            await went_on.wait()
            return "true"

        proposal = await ann.propose("x", to="bob")
        await dee.send("mcp/response", {"result": "forged"}, to="ann", correlation_id=proposal.id)
        proposed = await until(news, events.Proposed)
        # A fulfilment by somebody who was not asked, carried out by somebody else: dee asks itself.
        forged = await dee.send("mcp/request", {"method": "x"}, to="dee", correlation_id=proposal.id)
        await dee.send("mcp/response", {"result": "forged"}, to="ann", correlation_id=forged.id)
        fulfilling = asyncio.create_task(bob.fulfil(proposed, to="bob"))
        asked = await until(news, events.Requested, sender="bob")
        assert asked.message is not None
        await dee.send("mcp/response", {"result": "forged"}, to="ann", correlation_id=asked.message.id)
        await ann.chat("all forged answers have come")
        assert not proposal.is_settled
        went_on.set()
        assert await proposal.result(timeout=5) == "true"
        assert await fulfilling == "true"
        forgotten = await ann.propose("y", to="bob")
        del forgotten
        gc.collect()
        assert len(ann._inbox.proposals._open) == 1  # what nobody can wait for is not kept


async def test_capabilities(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "dee") as dee:
        await eventually(lambda: "dee" in ann.participants)
        news = dee.events()
        with pytest.raises(mewstream.CapabilityViolation):
            await dee.send("custom/kind")
        grant = await ann.grant_capabilities("dee", [{"kind": "custom/*"}], reason="try it")
        changed = await until(news, events.CapabilitiesChanged)
        assert {"kind": "custom/*"} in changed.capabilities
        assert {"kind": "custom/*"} in dee.capabilities
        await dee.send("custom/kind")
        await ann.revoke_capabilities("dee", grant_id=grant)
        changed = await until(news, events.CapabilitiesChanged)
        assert {"kind": "custom/*"} not in changed.capabilities
        await ann.grant_capabilities("dee", [{"kind": "custom/*"}])
        await until(news, events.CapabilitiesChanged)
        await ann.revoke_capabilities("dee", capabilities=[{"kind": "custom/*"}])
        await until(news, events.CapabilitiesChanged)
        with pytest.raises(mewstream.CapabilityViolation):
            await dee.send("custom/kind")


async def test_invitations(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        news = bob.events()
        invitation = await ann.invite("visitor", capabilities=[{"kind": "chat"}])
        invited = await until(news, events.Invited)
        assert (invited.participant, invited.by) == ("visitor", "ann")
        async with mewstream.connect(invitation.url or "", token=invitation.token) as visitor:
            assert visitor.participant == "visitor"
            await visitor.chat("hello")
            await ann.kick("visitor")
            await visitor.wait_closed()


async def test_stream_data_sent_as_an_envelope_is_answered_too(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, ann.announce() as stream:
        await stream.start()
        payload = {"stream": {"stream_id": stream.id}, "sequence": 7, "content": 1}
        assert (await ann.send("stream/data", payload)).payload["sequence"] == 7
