"""Tools that one participant offers and another calls, over a real gateway."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import msgspec
import pytest
from sdk_helping import enter, eventually, until

import mewstream
from mewstream import Audio, Call, Image, McpError, ToolError, events
from mewstream.client import listing, mcp_server
from mewstream.client.mcp import INVALID_PARAMS
from support import GatewayProcess, running_gateway, space_config

NUMBERS = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


class Place(msgspec.Struct):
    x: int
    name: str = ""


async def test_a_decorator_is_enough(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:

        @bob.tool
        async def walk(steps: Annotated[int, msgspec.Meta(ge=0)], place: Place | None = None) -> Place:
            """Walk to the right.

            Args:
                steps: How far.
            """
            return Place(steps + (place.x if place else 0), "there")

        @bob.tool(title="Shout it", annotations={"readOnlyHint": True})
        def shout(text: str) -> str:
            return text.upper()

        tools = {each["name"]: each for each in await ann.list_tools("bob")}
        assert list(tools) == ["walk", "shout"]
        assert tools["walk"]["description"] == "Walk to the right."
        steps = {"type": "integer", "minimum": 0, "description": "How far."}
        assert tools["walk"]["inputSchema"]["properties"]["steps"] == steps
        assert tools["walk"]["outputSchema"]["required"] == ["x"]
        assert (tools["shout"]["title"], tools["shout"]["annotations"]) == ("Shout it", {"readOnlyHint": True})
        assert "outputSchema" not in tools["shout"]

        result = await ann.call_tool("walk", {"steps": 2, "place": {"x": 40}}, to="bob")
        assert result["structuredContent"] == {"x": 42, "name": "there"}
        assert msgspec.json.decode(result["content"][0]["text"]) == result["structuredContent"]
        assert await ann.call_tool("walk", {"steps": 2}, to="bob", type=Place) == Place(2, "there")
        assert await ann.call_tool("shout", {"text": "hi"}, to="bob", type=str) == "HI"
        assert shout("still a function") == "STILL A FUNCTION"
        bob.remove_tool("walk")
        assert [each["name"] for each in await ann.list_tools("bob")] == ["shout"]
        with pytest.raises(KeyError):
            bob.remove_tool("walk")


async def test_plain_functions_run_in_threads(gateway: GatewayProcess) -> None:
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

        bob.tool("double", double, NUMBERS)
        bob.tool("plain", plain, NUMBERS, description="In brackets.")
        bob.tool("callable", Callable())
        listed = {tool["name"]: tool for tool in (await ann.request("tools/list", to="bob"))["tools"]}
        assert listed["double"] == {"name": "double", "description": "Twice as much.", "inputSchema": NUMBERS}
        assert listed["plain"]["description"] == "In brackets."
        assert "description" not in listed["callable"]
        result = await ann.call_tool("double", {"a": 4}, to="bob")
        assert result == {"content": [{"type": "text", "text": "8"}], "structuredContent": {"result": 8}}
        assert (await ann.call_tool("plain", {"a": 4}, to="bob"))["content"][0]["text"] == "<4>"
        assert threads[0] == threading.main_thread().name != threads[1]
        assert (await ann.call_tool("callable", {"b": 1}, to="bob"))["content"][0]["text"] == "{'b': 1}"


async def test_what_goes_wrong_is_a_result_that_says_so(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:

        @bob.tool
        def broken() -> None:
            raise ZeroDivisionError("by nought")

        @bob.tool
        async def closed() -> None:
            raise mewstream.StreamNotFound("no such stream here")

        @bob.tool
        def unspeakable() -> Any:
            return object()

        @bob.tool
        def liar() -> Place:
            return {"x": "far"}  # type: ignore[return-value]

        @bob.tool
        def own_error() -> None:
            raise McpError("mine", code=17, data=[1])

        bob.tool("typed", lambda a: a, NUMBERS)
        bob.tool("hinted", lambda a: a)
        for name, arguments, text in [
            ("broken", {}, "ZeroDivisionError: by nought"),
            ("closed", {}, "StreamNotFound: no such stream here"),
            ("unspeakable", {}, "unspeakable returned something that is not what it promises"),
            ("liar", {}, "liar returned something that is not what it promises: Expected `int`, got `str`"),
            ("typed", {"a": "x"}, "the arguments of typed are wrong"),
            ("typed", {}, "the arguments of typed are wrong"),
            ("hinted", {}, "the arguments of hinted are wrong: Object missing required field `a`"),
            ("broken", {"unexpected": 1}, "the arguments of broken are wrong: Object contains unknown field"),
        ]:
            result = await ann.call_tool(name, arguments, to="bob")
            assert result["isError"] is True, name
            assert text in result["content"][0]["text"]
            with pytest.raises(ToolError) as failed:
                await ann.call_tool(name, arguments, to="bob", type=int)
            assert text in str(failed.value)
            assert failed.value.result["isError"] is True
        for params, code, text in [
            ({"name": "unheard-of"}, INVALID_PARAMS, "unknown tool: 'unheard-of'; there are broken, closed"),
            ({"name": ["x"]}, INVALID_PARAMS, "unknown tool"),
            ({}, INVALID_PARAMS, "unknown tool: None"),
            ({"name": "broken", "arguments": ["list"]}, INVALID_PARAMS, "expected an object"),
            ({"name": "own_error"}, 17, "mine"),
        ]:
            with pytest.raises(McpError, match=text) as caught:
                await ann.request("tools/call", params, to="bob")
            assert caught.value.code == code
        assert caught.value.data == [1]
        with pytest.raises(mewstream.ValidationFailed):
            bob.tool("bad", lambda: 1, {"type": "no-such-type"})
        with pytest.raises(TypeError, match="not a function"):
            bob.tool("bad", "not a function")  # type: ignore[call-overload]


async def test_what_tools_return(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        text = {"type": "text", "text": "hi"}
        raw = {"content": [text], "structuredContent": {"own": 1}, "_meta": {"a": 1}}
        returned = {
            "nothing": None,
            "text": "hi",
            "number": 1.5,
            "list": ["a", "b"],
            "empty": [],
            "object": {"content": "of a letter"},
            "raw": raw,
            "image": Image(b"png", "image/png"),
            "mixed": ["see", Image(b"png", "image/png"), Audio(b"wav", "audio/wav"), text],
            "block": text,
        }
        for name, value in returned.items():
            bob.tool(name, lambda value=value: value)
        picture = {"type": "image", "data": "cG5n", "mimeType": "image/png"}
        sound = {"type": "audio", "data": "d2F2", "mimeType": "audio/wav"}
        expected = {
            "nothing": {"content": [{"type": "text", "text": "null"}]},
            "text": {"content": [text]},
            "number": {"content": [{"type": "text", "text": "1.5"}], "structuredContent": {"result": 1.5}},
            "list": {"content": [{"type": "text", "text": '["a","b"]'}], "structuredContent": {"result": ["a", "b"]}},
            "empty": {"content": [{"type": "text", "text": "[]"}], "structuredContent": {"result": []}},
            "object": {
                "content": [{"type": "text", "text": '{"content":"of a letter"}'}],
                "structuredContent": {"content": "of a letter"},
            },
            "raw": raw,
            "image": {"content": [picture]},
            "mixed": {"content": [{"type": "text", "text": "see"}, picture, sound, text]},
            "block": {"content": [text]},
        }
        for name, result in expected.items():
            assert await ann.call_tool(name, to="bob") == result, name
        assert await ann.call_tool("list", to="bob", type=list[str]) == ["a", "b"]
        assert await ann.call_tool("number", to="bob", type=float) == 1.5
        assert await ann.call_tool("text", to="bob", type=str) == "hi"
        with pytest.raises(ToolError, match="something else than expected"):
            await ann.call_tool("text", to="bob", type=int)
        assert repr(Image(b"png", "image/png")) == "Image(3 bytes, 'image/png')"


async def test_a_result_that_is_no_object(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:

        @bob.on_request
        async def answer(call: Call) -> Any:
            return [1]

        with pytest.raises(McpError, match="no result of a tool"):
            await ann.call_tool("x", to="bob")
        assert await ann.list_tools("bob") == []
        assert await ann.read_resource("x:", to="bob") == []


async def test_progress(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, enter(gateway, "dee") as dee:

        @bob.tool
        async def slow(call: Call) -> str:
            call.progress(1, total=3, message="begun")
            await asyncio.sleep(0)
            call.progress(2.5)
            return call.sender

        @bob.tool
        def in_a_thread(call: Call) -> str:
            for step in range(3):
                call.progress(step)
            return threading.current_thread().name

        reports: list[tuple[float, float | None, str | None]] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reports.append((progress, total, message))

        assert await ann.call_tool("slow", to="bob", type=str, on_progress=report) == "ann"
        assert reports == [(1, 3, "begun"), (2.5, None, None)]
        reports.clear()
        where = await ann.call_tool("in_a_thread", to="bob", type=str, on_progress=lambda *each: reports.append(each))
        assert where.startswith("mewstream-tool")
        assert reports == [(0, None, None), (1, None, None), (2, None, None)]

        def clumsy(*report: Any) -> None:
            raise ValueError("of the caller")

        assert await ann.call_tool("slow", to="bob", type=str, on_progress=clumsy) == "ann"
        # Nobody but the one who was asked reports progress, and strange reports are none.
        went_on = asyncio.Event()

        @bob.tool
        async def waits(call: Call) -> str:
            await went_on.wait()
            return "done"

        seen = dee.events()
        reports.clear()
        calling = asyncio.create_task(ann.call_tool("waits", to="bob", on_progress=report))
        asked = await until(seen, events.Requested, method="tools/call")
        assert asked.message is not None
        token = asked.params["_meta"]["progressToken"]
        forged = {"method": "notifications/progress", "params": {"progressToken": token, "progress": 99}}
        await dee.send("mcp/request", forged, to="ann")
        for strange in [{"progress": "x"}, {"progress": True}, {}, {"progress": 10**400, "total": "y", "message": 1}]:
            params = {"progressToken": token, **strange}
            await bob.send("mcp/request", {"method": "notifications/progress", "params": params}, to="ann")
        await bob.send("mcp/request", {"method": "notifications/progress", "params": "none"}, to="ann")
        went_on.set()
        assert (await calling)["content"][0]["text"] == "done"
        assert reports == [(10**400, None, None)]


async def test_a_call_that_nobody_waits_for_is_cancelled(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob, enter(gateway, "dee") as dee:
        ended: list[str] = []
        calls: list[Call] = []
        release = threading.Event()

        @bob.tool
        async def forever(call: Call) -> None:
            calls.append(call)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(call.sender)
                raise

        @bob.tool
        def in_a_thread(call: Call) -> None:
            calls.append(call)
            release.wait(10)
            ended.append("thread")

        news, everything = dee.events(), dee.events()
        calling = asyncio.create_task(ann.call_tool("forever", to="bob"))
        asked = await until(news, events.Requested)
        assert asked.message is not None
        await eventually(lambda: len(calls) == 1)
        # Nobody else can cancel it.
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": asked.message.id}}
        await dee.send("mcp/request", cancelled, to="bob")
        assert await dee.request("ping", to="bob") == {}
        assert not ended
        calling.cancel()
        await eventually(lambda: ended == ["ann"])
        told = await until(news, events.Notified, sender="ann")
        assert (told.method, told.params["requestId"]) == ("notifications/cancelled", asked.message.id)
        with pytest.raises(mewstream.RequestTimeout):
            await ann.call_tool("forever", to="bob", timeout=0.2)
        await eventually(lambda: ended == ["ann", "ann"])
        calling = asyncio.create_task(ann.call_tool("in_a_thread", to="bob"))
        await eventually(lambda: len(calls) == 3)
        calling.cancel()
        await eventually(lambda: calls[2].is_cancelled)
        release.set()
        await eventually(lambda: ended[-1] == "thread")
        responses = [
            each for each in _drained(everything) if isinstance(each, events.Received) and each.sender == "bob"
        ]
        assert [each.message.payload for each in responses if each.message] == [{"result": {}}], "only the ping's"


def is_answer(event: mewstream.Event) -> bool:
    return isinstance(event, events.Received) and event.kind == "mcp/response"


def _drained(news: mewstream.Events) -> list[mewstream.Event]:
    return [news._take() for _ in range(news.pending)]


async def test_a_long_list_comes_in_pages(gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        for number in range(250):
            bob.tool(f"tool-{number}", lambda: 1)
        bob.tool("large", lambda: 1, description="x" * 200_000)
        first = await ann.request("tools/list", to="bob")
        assert len(first["tools"]) == 100
        assert [each["name"] for each in await ann.list_tools("bob")][-2:] == ["tool-249", "large"]
        second = await ann.request("tools/list", {"cursor": first["nextCursor"]}, to="bob")
        assert second["tools"][0]["name"] == "tool-100"
        for cursor in ["-1", "0", "1000", "٣", "x", 7, "9" * 5000]:
            with pytest.raises(McpError, match="no cursor") as caught:
                await ann.request("tools/list", {"cursor": cursor}, to="bob")
            assert caught.value.code == INVALID_PARAMS

        @bob.on_request
        async def answer(call: Call) -> Any:
            return {"prompts": [{"name": "again"}], "nextCursor": "again"}

        monkeypatch.setattr(listing, "MAX_PAGES", 5)
        with pytest.raises(McpError, match="does not end"):
            await ann.list_prompts("bob")


async def test_who_has_asked_for_the_tools_is_told_of_new_ones(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        news = ann.events()
        bob.tool("one", lambda: 1)
        await ann.list_tools("bob")
        bob.tool("two", lambda: 1)
        told = await until(news, events.Notified)
        assert (told.sender, told.method, told.to) == ("bob", "notifications/tools/list_changed", ["ann"])
        assert len(await ann.list_tools("bob")) == 2


async def test_notifications_that_are_not_allowed_are_not_missed() -> None:
    """Somebody who may only answer offers tools like anybody else: what it may not tell, it does not."""
    with running_gateway(space_config("ann", "bob", capabilities={"bob": []})) as gateway:
        async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
            news = bob.events()

            @bob.tool
            async def slow(call: Call) -> int:
                for step in range(100):
                    call.progress(step)
                    await asyncio.sleep(0)
                return 1

            assert await ann.call_tool("slow", to="bob", type=int, on_progress=lambda *_: None) == 1
            await ann.list_tools("bob")
            bob.tool("two", lambda: 1)
            await ann.chat("end")
            seen = []
            async for event in news:
                seen.append(event)
                if isinstance(event, events.Chat):
                    break
            assert not [each for each in seen if isinstance(each, events.Refused)]
            await ann.grant_capabilities("bob", [{"kind": "mcp/request"}])
            await until(news, events.CapabilitiesChanged)
            reports: list[Any] = []
            await ann.call_tool("slow", to="bob", on_progress=lambda *each: reports.append(each))
            assert reports


async def test_a_result_that_is_too_large() -> None:
    config = space_config("ann", "bob", mewstream={"policies": {"reconnect_grace": 30}})
    with running_gateway(config) as gateway:
        await _large_results(gateway)


async def _large_results(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        bob.tool("large", lambda: "x" * (20 << 20))
        bob.tool("small", lambda: "x")

        @bob.resource("large:thing")
        def thing() -> str:
            return "x" * (20 << 20)

        result = await ann.call_tool("large", to="bob")
        assert result["isError"] is True
        assert "larger than the gateway takes" in result["content"][0]["text"]
        with pytest.raises(McpError, match="larger than the gateway takes"):
            await ann.read_resource("large:thing", to="bob")
        assert await ann.call_tool("small", to="bob", type=str) == "x"


async def test_a_flood_of_calls_is_bounded(gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "MAX_WAITING", 10)
    monkeypatch.setattr(mcp_server, "MAX_REFUSED", 5)
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
        await eventually(lambda: running == mcp_server.MAX_RUNNING and sum(call.done() for call in calls) > 0)
        assert len(bob._server._running) <= mcp_server.MAX_RUNNING + 15
        await bob.chat("alive")
        go_on.set()
        await eventually(lambda: sum(call.done() for call in calls) >= mcp_server.MAX_RUNNING + 10)
        done = [call for call in calls if call.done()]
        assert {str(call.exception()) for call in done if call.exception()} == {
            "too many calls are waiting: try again later"
        }
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_slow_tools_do_not_keep_a_ping_waiting(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        release = threading.Event()
        bob.tool("slow", lambda: release.wait(30))
        calls = [asyncio.create_task(ann.call_tool("slow", to="bob")) for _ in range(100)]
        try:
            assert await ann.request("ping", to="bob") == {}
            with pytest.raises(McpError, match="no method"):
                await ann.request("unheard/of", to="bob")
            assert await asyncio.to_thread(lambda: 1) == 1, "nor anything else that needs a thread"
        finally:
            release.set()
            await asyncio.gather(*calls)


async def test_a_tool_may_use_and_end_its_space(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann:
        bob = await enter(gateway, "bob")

        async def leave() -> None:
            await bob.chat("bye")
            await bob.drain()

        bob.tool("leave", leave)
        news = ann.events()
        calling = asyncio.create_task(ann.call_tool("leave", to="bob"))
        assert (await until(news, events.Chat)).text == "bye"
        await until(news, events.Left, participant="bob")
        await bob.wait_closed()
        with pytest.raises(mewstream.ParticipantNotFound, match="bob left before it answered"):
            await calling
