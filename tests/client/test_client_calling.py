"""Calls whose other side is not there, goes away, or is cut off; and calls that one may not make."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sdk_helping import enter, eventually, scripted, until, wire_to

import mewstream
from mewstream import (
    AnswerLost,
    Call,
    CapabilityViolation,
    McpError,
    ParticipantNotFound,
    ProposalRejected,
    RequestTimeout,
    events,
)
from mewstream.client.calls import Calls
from mewstream.client.messages import Message
from mewstream.protocol import kinds
from support import TIMEOUT, GatewayProcess, running_gateway, space_config

#: Longer than any test takes: who waits this long was not told at once.
LONG = 300.0


class TestAbsent:
    async def test_a_call_to_somebody_absent_fails_at_once(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, asyncio.timeout(TIMEOUT):
            for to in ("bob", "nobody-at-all"):
                with pytest.raises(ParticipantNotFound, match=f"{to} is not in the space"):
                    await ann.call_tool("x", to=to, timeout=LONG)
            with pytest.raises(ParticipantNotFound, match="bob and cy are not in the space"):
                await ann.request("ping", to=["bob", "cy"], timeout=LONG)
            with pytest.raises(ParticipantNotFound, match="nobody is not in the space"):
                await ann.request("ping", to=[], timeout=LONG)
            assert await ann.request("ping", to="ann") == {}, "we are here ourselves"

    async def test_who_joined_a_moment_ago_is_not_absent(self) -> None:
        """It is there for the gateway, which has just not told us yet."""

        async def act(script: Any) -> None:
            await script.welcome({"epoch": "e"}, seq=1)
            asked = await script.hear_kind("stream/sync")
            await script.tell("system/presence", {"event": "join", "participant": {"id": "bob"}})
            await script.tell("stream/synced", {"epoch": "e", "seq": 2}, correlation_id=[asked["id"]])
            request = await script.relay_kind("mcp/request")
            await script.tell("mcp/response", {"result": 1}, correlation_id=[request["id"]], **{"from": "bob"})

        async with scripted(act) as url, mewstream.connect(url, participant="me", token="t") as space:
            assert await space.request("x", to="bob") == 1

    async def test_also_when_the_callee_leaves_during_the_call(self, gateway: GatewayProcess) -> None:
        async with enter(gateway, "ann") as ann, asyncio.timeout(TIMEOUT):
            bob, cy = await enter(gateway, "bob"), await enter(gateway, "cy")
            for each in (bob, cy):

                @each.on_request
                async def never(call: Call) -> None:
                    await asyncio.Event().wait()

            news = cy.events()
            one = asyncio.create_task(ann.request("x", to="bob", timeout=LONG))
            two = asyncio.create_task(ann.request("x", to=["bob", "cy"], timeout=LONG))
            proposal = await ann.propose("x", to="bob")
            await until(news, events.Requested)
            await until(news, events.Requested)
            await bob.close()
            with pytest.raises(ParticipantNotFound, match="bob left before it answered"):
                await one
            with pytest.raises(ParticipantNotFound, match="bob left before the proposal was fulfilled"):
                await proposal.result()
            assert not two.done()
            await ann.kick("cy")
            with pytest.raises(ParticipantNotFound, match="cy left before it answered"):
                await two
            await cy.wait_closed()

    async def test_a_process_that_is_killed(self, gateway: GatewayProcess) -> None:
        """It does not say goodbye, and its socket is closed for it."""
        script = f"""
import asyncio, mewstream
async def main():
    async with mewstream.connect({gateway.ws_url!r}, participant="bob", token="token-of-bob") as space:
        @space.tool
        async def forever() -> None:
            await asyncio.Event().wait()
        print("ready", flush=True)
        await space.wait_closed()
asyncio.run(main())
"""
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        async with enter(gateway, "ann") as ann, asyncio.timeout(TIMEOUT):
            calling = asyncio.create_task(ann.call_tool("forever", to="bob", timeout=LONG))
            await eventually(lambda: any(call.is_relayed for call in ann._calls._pending.values()))
            process.kill()
            with pytest.raises(ParticipantNotFound):
                await calling
        await process.wait()

    async def test_a_list_of_participants_that_is_not_complete(self) -> None:
        """Whoever is not listed yet may be there all the same."""

        async def act(script: Any) -> None:
            await script.welcome({"participants_total": 1, "participants": []}, seq=1)
            asked = await script.hear_kind("participant/list")
            page = {"participants": [], "total": 1, "next": "x"}
            await script.tell("participant/listed", page, correlation_id=[asked["id"]])
            again = await script.hear_kind("participant/list")
            await script.tell("participant/listed", {"participants": []}, correlation_id=[again["id"]])
            await script.welcome({"participants_total": 1, "participants": []}, seq=2)
            request = await script.relay_kind("mcp/request")
            await script.tell("mcp/response", {"result": 1}, correlation_id=[request["id"]], **{"from": "bob"})

        async with scripted(act) as url, mewstream.connect(url, participant="me", token="t") as space:
            await eventually(lambda: space._view.lacks_participants)
            assert await space.request("x", to="bob") == 1


class TestCutOff:
    @pytest.mark.parametrize("who", ["caller", "callee"])
    async def test_a_space_that_reconnects_during_a_call(self, who: str) -> None:
        """The answer comes, and the tool ran once."""
        config = space_config("ann", "bob", mewstream={"policies": {"reconnect_grace": 60}})
        with running_gateway(config) as gateway:
            async with wire_to(gateway) as wire:
                ann = await enter(gateway, "ann", **({"url": wire.url} if who == "caller" else {}))
                bob = await enter(gateway, "bob", **({"url": wire.url} if who == "callee" else {}))
                runs = 0
                went_on = asyncio.Event()

                @bob.tool
                async def once() -> int:
                    nonlocal runs
                    runs += 1
                    await went_on.wait()
                    return runs

                news = (ann if who == "caller" else bob).events()
                calling = asyncio.create_task(ann.call_tool("once", to="bob", type=int))
                await eventually(lambda: runs == 1)
                wire.cut()
                await until(news, events.Disconnected)
                went_on.set()
                await until(news, events.Resumed, recovered=True)
                assert await calling == 1 == runs
                await ann.close()
                await bob.close()

    async def test_a_call_over_the_end_of_a_gateway_without_a_journal(self) -> None:
        """The new gateway knows nothing: the request is sent again, and the callee answers as before."""
        with running_gateway(space_config("ann", "bob"), clean_log=False) as gateway:
            async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
                runs = 0
                went_on = asyncio.Event()

                @bob.tool
                async def once() -> int:
                    nonlocal runs
                    runs += 1
                    await went_on.wait()
                    return runs

                calling = asyncio.create_task(ann.call_tool("once", to="bob", type=int))
                await eventually(lambda: runs == 1)
                news = ann.events()
                gateway.process.kill()
                gateway.process.wait()
                gateway.process.stdout.close()
                went_on.set()
                await until(news, events.Disconnected)
                gateway.start()
                with contextlib.suppress(ParticipantNotFound):  # if bob comes back after ann
                    assert await calling == 1
                assert runs == 1

    async def test_answers_that_may_have_been_missed(self) -> None:
        """A gateway that remembers the request does not pass it on again, so nobody would answer it any more."""
        calls = Calls()
        ids = [calls.next_id() for _ in range(3)]
        passed_on = calls.begin(ids[0], b"{}", (kinds.MCP_RESPONSE,), ("bob",))
        not_passed_on = calls.begin(ids[1], b"{}", (kinds.MCP_RESPONSE,), ("bob",))
        of_gateway = calls.begin(ids[2], b"{}", (kinds.STREAM_OPEN,), (kinds.GATEWAY,))
        for id in (ids[0], ids[2]):
            calls.received(Message(kind=kinds.MCP_REQUEST, id=id, sender="me"))
        calls.missed()
        with pytest.raises(AnswerLost):
            await passed_on
        assert not not_passed_on.done()
        assert not of_gateway.done()
        assert len(calls.repeat()) == 2

    async def test_a_request_that_comes_again_is_answered_as_before(self) -> None:
        """From the same participant with the same id; an answer that was too long to be kept is not made up."""

        async def act(script: Any) -> None:
            await script.welcome({"participants": [{"id": "ann"}], "epoch": "e"}, seq=1)

            async def ask(id: str, name: str, sender: str = "ann") -> Any:
                payload = {"method": "tools/call", "params": {"name": name}}
                await script.tell("mcp/request", payload, id=id, to=["me"], **{"from": sender})
                answer = (await script.relay_kind("mcp/response"))["payload"]
                await script.tell("mcp/request", {"method": "ping"}, id=f"ping-{id}", to=["me"], **{"from": "pia"})
                await script.relay_kind("mcp/response")  # so that the relayed answer was read
                return answer

            first = await ask("r1", "count")
            assert first["result"]["structuredContent"] == {"result": 1}
            assert await ask("r1", "count") == first
            assert (await ask("r1", "count", sender="eve"))["result"]["structuredContent"] == {"result": 2}
            assert "result" in await ask("r2", "long")
            assert "not kept" in (await ask("r2", "long"))["error"]["message"]
            for number in range(300):
                await ask(f"more-{number}", "count")
            assert (await ask("r1", "count"))["result"]["structuredContent"] == {"result": 303}, "that was long ago"
            done.set()

        done = asyncio.Event()
        count = 0
        async with scripted(act) as url, mewstream.connect(url, participant="me", token="t") as space:

            @space.tool("count")
            async def counted() -> int:
                nonlocal count
                count += 1
                return count

            space.tool("long", lambda: "x" * 100_000)
            async with asyncio.timeout(TIMEOUT * 3):
                await done.wait()


@pytest.fixture(scope="module")
def strict() -> Iterator[GatewayProcess]:
    """dee may only propose, eve only chat, and fay may ask for lists and call one tool."""
    call = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "safe"}}}
    modest = {
        "dee": [{"kind": "mcp/proposal"}, {"kind": "chat"}],
        "eve": [{"kind": "chat"}],
        "fay": [call, {"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}, {"kind": "chat"}],
    }
    with running_gateway(space_config("ann", "bob", "dee", "eve", "fay", capabilities=modest)) as running:
        yield running


@contextlib.asynccontextmanager
async def approving(ann: mewstream.Space, *, approves: bool = True) -> AsyncIterator[list[events.Proposed]]:
    """ann decides on every proposal."""
    seen: list[events.Proposed] = []
    news = ann.events()

    async def decide() -> None:
        async for event in news:
            if isinstance(event, events.Proposed):
                seen.append(event)
                if approves:
                    with contextlib.suppress(McpError):
                        await ann.fulfil(event)
                else:
                    await ann.reject(event, reason="unsafe")

    task = asyncio.create_task(decide())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class TestProposed:
    async def test_what_one_may_not_call_is_proposed(self, strict: GatewayProcess) -> None:
        async with enter(strict, "ann") as ann, enter(strict, "bob") as bob, enter(strict, "dee") as dee:

            @bob.tool
            def risky(x: int) -> int:
                if x < 0:
                    raise McpError("not below nought", code=-7)
                return x + 1

            async with approving(ann) as seen:
                assert await dee.call_tool("risky", {"x": 1}, to="bob", type=int) == 2
                assert [each["name"] for each in await dee.list_tools("bob")] == ["risky"]
                with pytest.raises(McpError, match="not below nought"):
                    await dee.call_tool("risky", {"x": -1}, to="bob")
            assert [(each.sender, each.to) for each in seen] == [("dee", ["bob"])] * 3
            async with approving(ann, approves=False):
                with pytest.raises(ProposalRejected, match="ann rejected the proposal: unsafe") as rejected:
                    await dee.call_tool("risky", {"x": 1}, to="bob")
            assert rejected.value.by == "ann"

    async def test_only_what_one_may_not(self, strict: GatewayProcess) -> None:
        async with enter(strict, "ann") as ann, enter(strict, "bob") as bob, enter(strict, "fay") as fay:
            bob.tool("safe", lambda: "ok")
            bob.tool("unsafe", lambda: "ok")
            async with approving(ann) as seen:
                assert await fay.call_tool("safe", to="bob", type=str) == "ok"
                assert not seen
                assert await fay.call_tool("unsafe", to="bob", type=str) == "ok"
                assert len(seen) == 1

    async def test_not_if_the_program_does_not_want_it(self, strict: GatewayProcess) -> None:
        async with enter(strict, "bob"), enter(strict, "dee") as dee, enter(strict, "eve") as eve:
            with pytest.raises(CapabilityViolation):
                await dee.call_tool("x", to="bob", or_propose=False)
            with pytest.raises(CapabilityViolation) as violation:
                await eve.call_tool("x", to="bob")
            assert violation.value.details["attempted_kind"] == "mcp/request", "what was asked for, not the proposal"

    async def test_a_proposal_that_nobody_waits_for_is_withdrawn(self, strict: GatewayProcess) -> None:
        async with enter(strict, "ann") as ann, enter(strict, "bob"), enter(strict, "fay") as fay:
            news = ann.events()
            with pytest.raises(RequestTimeout):
                await fay.call_tool("unsafe", to="bob", timeout=0.3)
            withdrawn = await until(news, events.ProposalWithdrawn)
            assert (withdrawn.by, withdrawn.reason) == ("fay", "no_longer_needed")
            calling = asyncio.create_task(fay.call_tool("unsafe", to="bob"))
            await until(news, events.Proposed)
            calling.cancel()
            await until(news, events.ProposalWithdrawn)

    async def test_who_may_not_withdraw_is_not_bothered_by_that(self, strict: GatewayProcess) -> None:
        async with enter(strict, "bob"), enter(strict, "dee") as dee:
            news = dee.events()
            with pytest.raises(RequestTimeout):
                await dee.call_tool("x", to="bob", timeout=0.3)
            await dee.chat("end")
            seen: list[Any] = []
            async for event in news:
                seen.append(event)
                if isinstance(event, events.Chat):
                    break
            assert not [each for each in seen if isinstance(each, events.Refused)]

    async def test_the_time_for_both_is_the_callers(self, strict: GatewayProcess) -> None:
        async with enter(strict, "bob"), enter(strict, "dee") as dee:
            begun = time.monotonic()
            with pytest.raises(RequestTimeout):
                await dee.call_tool("x", to="bob", timeout=0.5)
            assert time.monotonic() - begun >= 0.45
