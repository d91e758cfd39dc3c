"""MCP: requests, tools, proposals; and people: invitations, kicks, capabilities."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from sdk_helping import enter, eventually, until

import mewstream
from mewstream import McpError, ProposalRejected, RequestTimeout, events
from mewstream.client import mcp
from support import GatewayProcess

NUMBERS = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


async def test_a_request_that_another_answers(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        news = bob.events()
        asking = asyncio.create_task(ann.request("weather/get", {"city": "Bern"}, to="bob"))
        asked = await until(news, events.Requested)
        assert (asked.sender, asked.method, asked.params, asked.to) == ("ann", "weather/get", {"city": "Bern"}, ["bob"])
        await bob.respond(asked, {"degrees": 7})
        assert await asking == {"degrees": 7}
        asking = asyncio.create_task(ann.request("weather/get", to=["bob", "cy"]))
        asked = await until(news, events.Requested)
        await bob.respond(asked, error=McpError("no idea", code=-5, data={"try": "cy"}))
        with pytest.raises(McpError, match="no idea") as caught:
            await asking
        assert (caught.value.code, caught.value.data) == (-5, {"try": "cy"})


async def test_nobody_answers_in_anothers_place(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, enter(gateway, "dee") as dee:
        news, seen = bob.events(), dee.events()
        asking = asyncio.create_task(ann.request("secret", to="bob"))
        asked = await until(seen, events.Requested)
        await dee.respond(asked, "forged")
        await ann.chat("the forged answer has come")
        assert not asking.done()
        await bob.respond(await until(news, events.Requested), "true")
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


async def test_tools(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        threads: list[str] = []

        async def double(a: int) -> int:
            """Twice as much."""
            threads.append(threading.current_thread().name)
            return 2 * a

        def plain(a: int) -> str:
            threads.append(threading.current_thread().name)
            return f"<{a}>"

        class Callable:
            async def __call__(self, **arguments: Any) -> dict[str, Any]:
                return {"content": [{"type": "text", "text": str(arguments)}]}

        def broken() -> None:
            raise ZeroDivisionError("by nought")

        async def closed() -> None:
            raise mewstream.StreamNotFound("no such stream here")

        def unspeakable() -> Any:
            return object()

        bob.tool("double", double, NUMBERS)
        bob.tool("plain", plain, NUMBERS, description="In brackets.")
        bob.tool("callable", Callable())
        bob.tool("broken", broken)
        bob.tool("closed", closed)
        bob.tool("unspeakable", unspeakable)
        bob.tool("own-error", lambda: (_ for _ in ()).throw(McpError("mine", code=17)))
        bob.tool("nothing", lambda: None)
        listed = {tool["name"]: tool for tool in (await ann.request("tools/list", to="bob"))["tools"]}
        assert listed["double"] == {"name": "double", "description": "Twice as much.", "inputSchema": NUMBERS}
        assert listed["plain"]["description"] == "In brackets."
        assert "description" not in listed["callable"]
        result = await ann.call_tool("double", {"a": 4}, to="bob")
        assert result == {"content": [{"type": "text", "text": "8"}], "structuredContent": {"result": 8}}
        assert (await ann.call_tool("plain", {"a": 4}, to="bob"))["content"][0]["text"] == "<4>"
        assert threads[0] == threading.main_thread().name != threads[1]
        assert (await ann.call_tool("callable", {"b": 1}, to="bob"))["content"][0]["text"] == "{'b': 1}"
        assert (await ann.call_tool("nothing", to="bob"))["content"][0]["text"] == "null"
        for name, arguments, code, text in [
            ("double", {"a": "x"}, mcp.INVALID_PARAMS, "arguments of double"),
            ("double", {}, mcp.INVALID_PARAMS, "arguments of double"),
            ("callable", ["list"], mcp.INVALID_PARAMS, "arguments of callable"),
            ("unheard-of", {}, mcp.METHOD_NOT_FOUND, "there are double, plain"),
            ("broken", {}, mcp.INTERNAL_ERROR, "ZeroDivisionError: by nought"),
            ("closed", {}, mcp.INTERNAL_ERROR, "no such stream here"),
            ("unspeakable", {}, mcp.INTERNAL_ERROR, "TypeError"),
            ("own-error", {}, 17, "mine"),
            ("broken", {"unexpected": 1}, mcp.INTERNAL_ERROR, "TypeError"),
        ]:
            with pytest.raises(McpError, match=text) as caught:
                await ann.call_tool(name, arguments, to="bob")  # type: ignore[arg-type]
            assert caught.value.code == code
        with pytest.raises(RequestTimeout):
            await ann.request("something/else", to="bob", timeout=0.1)
        with pytest.raises(mewstream.ValidationFailed):
            bob.tool("bad", plain, {"type": "no-such-type"})
        with pytest.raises(TypeError, match="not a function"):
            bob.tool("bad", "not a function")  # type: ignore[arg-type]


async def test_a_flood_of_calls_is_bounded(gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "MAX_WAITING", 10)
    monkeypatch.setattr(mcp, "MAX_REFUSED", 5)
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        running = 0
        go_on = asyncio.Event()

        async def slow() -> int:
            nonlocal running
            running += 1
            await go_on.wait()
            return 1

        bob.tool("slow", slow)
        calls = [asyncio.create_task(ann.call_tool("slow", to="bob", timeout=5)) for _ in range(200)]
        await eventually(lambda: running == mcp.MAX_RUNNING and sum(call.done() for call in calls) > 0)
        assert len(bob._tools._tasks) <= mcp.MAX_RUNNING + 15
        await bob.chat("alive")
        go_on.set()
        await eventually(lambda: sum(call.done() for call in calls) >= mcp.MAX_RUNNING + 10)
        done = [call for call in calls if call.done()]
        assert {str(call.exception()) for call in done if call.exception()} == {
            "too many calls are waiting: try again later"
        }
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_tool_may_use_and_end_its_space(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann:
        bob = await enter(gateway, "bob")

        async def leave() -> None:
            await bob.chat("bye")
            await bob.drain()

        bob.tool("leave", leave)
        news = ann.events()
        calling = asyncio.create_task(ann.call_tool("leave", to="bob", timeout=5))
        assert (await until(news, events.Chat)).text == "bye"
        await until(news, events.Left, participant="bob")
        await bob.wait_closed()
        calling.cancel()


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
        proposal = await ann.propose("x", to="bob")
        await dee.send("mcp/response", {"result": "forged"}, to="ann", correlation_id=proposal.id)
        fulfilling = asyncio.create_task(bob.fulfil(await until(news, events.Proposed), to="bob"))
        asked = await until(news, events.Requested)
        assert asked.message is not None
        await dee.send("mcp/response", {"result": "forged"}, to="ann", correlation_id=asked.message.id)
        await bob.respond(asked, "true")
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
