"""Resources and prompts that one participant offers and another reads, over a real gateway."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from sdk_helping import enter, until

import mewstream
from mewstream import Call, Image, McpError, events
from mewstream.client import resources
from mewstream.client.mcp import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from mewstream.client.prompts import Prompt
from mewstream.client.resources import MAX_SUBSCRIPTIONS, Resource, Subscribers
from support import GatewayProcess


class Weather(msgspec.Struct):
    city: str
    days: int


async def test_resources(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        with pytest.raises(McpError) as caught:
            await ann.list_resources("bob")
        assert caught.value.code == METHOD_NOT_FOUND

        @bob.resource("config://app", title="The settings", mime_type="text/x-ini")
        def config() -> str:
            """What is set."""
            return "a = 1"

        @bob.resource("logo://png")
        async def logo() -> bytes:
            return b"\x89PNG"

        @bob.resource("weather://{city}/{days}")
        def weather(city: str, days: int, call: Call) -> Weather:
            assert call.sender == "ann"
            return Weather(city, days)

        @bob.resource("own://form")
        def own() -> dict[str, Any]:
            return {"contents": [{"uri": "own://form", "text": "x"}], "_meta": {}}

        @bob.resource("broken://thing")
        def broken() -> str:
            raise OSError("no disk")

        listed = {each["uri"]: each for each in await ann.list_resources("bob")}
        assert listed["config://app"] == {
            "uri": "config://app",
            "name": "config",
            "title": "The settings",
            "description": "What is set.",
            "mimeType": "text/x-ini",
        }
        assert "weather://{city}/{days}" not in listed
        templates = await ann.list_resource_templates("bob")
        assert templates == [{"uriTemplate": "weather://{city}/{days}", "name": "weather"}]
        assert await ann.read_resource("config://app", to="bob") == [
            {"uri": "config://app", "mimeType": "text/x-ini", "text": "a = 1"}
        ]
        assert await ann.read_resource("logo://png", to="bob") == [
            {"uri": "logo://png", "mimeType": "application/octet-stream", "blob": "iVBORw=="}
        ]
        (found,) = await ann.read_resource("weather://Z%C3%BCrich/3", to="bob")
        assert found["mimeType"] == "application/json"
        assert msgspec.json.decode(found["text"]) == {"city": "Zürich", "days": 3}
        assert (await ann.read_resource("own://form", to="bob"))[0]["text"] == "x"
        for uri, code in [
            ("config://other", RESOURCE_NOT_FOUND),
            ("weather://{city}/{days}", INVALID_PARAMS),
            ("weather://Bern/many", INVALID_PARAMS),
            ("weather://Bern/3/4", RESOURCE_NOT_FOUND),
            ("x" * 100_000, RESOURCE_NOT_FOUND),
            ("broken://thing", INTERNAL_ERROR),
            (7, INVALID_PARAMS),
            (None, INVALID_PARAMS),
        ]:
            with pytest.raises(McpError) as caught:
                await ann.request("resources/read", {"uri": uri}, to="bob")
            assert caught.value.code == code, uri
            assert len(str(caught.value)) < 300
        initialized = await ann.request("initialize", to="bob")
        assert initialized["capabilities"] == {"resources": {"listChanged": True, "subscribe": True}}


async def test_who_has_subscribed_is_told_of_changes(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:
        cy = await enter(gateway, "cy")

        @bob.resource("count://{name}")
        def count(name: str) -> str:
            return name

        news = ann.events()
        for each in (ann, cy):
            await each.subscribe_resource("count://a", to="bob")
            await each.subscribe_resource("count://a", to="bob")
        with pytest.raises(McpError) as caught:
            await ann.subscribe_resource("other://a", to="bob")
        assert caught.value.code == RESOURCE_NOT_FOUND
        bob.resource_updated("count://a")
        told = await until(news, events.Notified)
        assert (told.sender, told.method, told.params) == (
            "bob",
            "notifications/resources/updated",
            {"uri": "count://a"},
        )
        assert told.to == ["ann", "cy"]
        await cy.close()
        await until(news, events.Left)
        bob.resource_updated("count://a")
        assert (await until(news, events.Notified)).to == ["ann"]
        await ann.unsubscribe_resource("count://a", to="bob")
        await ann.unsubscribe_resource("count://never", to="bob")
        bob.resource_updated("count://a")
        await bob.chat("end")
        assert not [each for each in await _until_chat(news) if isinstance(each, events.Notified)]


async def _until_chat(news: mewstream.Events) -> list[Any]:
    seen: list[Any] = []
    async for event in news:
        if isinstance(event, events.Chat):
            return seen
        seen.append(event)
    return seen


async def test_prompts(gateway: GatewayProcess) -> None:
    async with enter(gateway, "ann") as ann, enter(gateway, "bob") as bob:

        @bob.prompt
        def review(code: str, lines: int = 10) -> str:
            """Review some code.

            Args:
                code: The code.
            """
            return f"Review {lines} lines of {code}"

        @bob.prompt("talk", title="A talk")
        async def talk(call: Call) -> list[Any]:
            return [
                "hello",
                {"role": "assistant", "content": f"hello {call.sender}"},
                Image(b"x", "image/png"),
                {"role": "user", "content": {"type": "text", "text": "bye"}},
            ]

        @bob.prompt
        def strange() -> Any:
            return [object()]

        @bob.prompt
        def own() -> Any:
            return {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}], "description": "d"}

        listed = {each["name"]: each for each in await ann.list_prompts("bob")}
        assert listed["review"] == {
            "name": "review",
            "description": "Review some code.",
            "arguments": [
                {"name": "code", "description": "The code.", "required": True},
                {"name": "lines", "required": False},
            ],
        }
        assert listed["talk"] == {"name": "talk", "title": "A talk"}
        messages = await ann.get_prompt("review", {"code": "x = 1", "lines": "3"}, to="bob")
        assert messages == [{"role": "user", "content": {"type": "text", "text": "Review 3 lines of x = 1"}}]
        roles = [(each["role"], each["content"]["type"]) for each in await ann.get_prompt("talk", to="bob")]
        assert roles == [("user", "text"), ("assistant", "text"), ("user", "image"), ("user", "text")]
        assert len(await ann.get_prompt("own", to="bob")) == 1
        for params, code in [
            ({"name": "review"}, INVALID_PARAMS),
            ({"name": "review", "arguments": {"code": "x", "lines": "many"}}, INVALID_PARAMS),
            ({"name": "review", "arguments": ["x"]}, INVALID_PARAMS),
            ({"name": "unheard-of"}, INVALID_PARAMS),
            ({"name": ["x"]}, INVALID_PARAMS),
            ({"name": "strange"}, INTERNAL_ERROR),
        ]:
            with pytest.raises(McpError) as caught:
                await ann.request("prompts/get", params, to="bob")
            assert caught.value.code == code, params


class TestTemplates:
    """No sockets."""

    @staticmethod
    def of(uri: str) -> Resource:
        names = [name for _, name in resources._PLACEHOLDER.findall(uri)]
        function = eval(f"lambda {', '.join(names)}: 1")
        return Resource(uri, function)

    @pytest.mark.parametrize(
        ("template", "uri", "values"),
        [
            ("a://{x}", "a://1", {"x": "1"}),
            ("a://{x}/b/{y}", "a://1/b/2", {"x": "1", "y": "2"}),
            ("a://{x}", "a://1/2", None),
            ("a://{x}", "a://", None),
            ("a://{+x}", "a://1/2", {"x": "1/2"}),
            ("a://{x}.txt", "a://file.txt", {"x": "file"}),
            ("a://.+/{x}", "a://bb/1", None),
            ("a://{x}", "a://%E2%82%AC", {"x": "€"}),
            # Nothing that is decoded leads out of a directory.
            ("a://{x}", "a://..", None),
            ("a://{x}", "a://%2e%2e", None),
            ("a://{x}", "a://..%2fetc%2fpasswd", None),
            ("a://{x}", "a://..%5cetc", None),
            ("a://{x}", "a://a%00b", None),
            ("a://{+x}", "a://a%00b", None),
        ],
    )
    def test_matching(self, template: str, uri: str, values: dict[str, str] | None) -> None:
        assert self.of(template).match(uri) == values

    def test_what_is_no_uri_or_does_not_fit(self) -> None:
        for uri in ("app", "://x", "a://{x", "a://{}", "a://{x y}"):
            with pytest.raises(ValueError, match=r"is no (URI|template)"):
                Resource(uri, lambda: 1)
        for function in (lambda: 1, lambda y: y, lambda x, y: x):
            with pytest.raises(TypeError, match=re.escape("the placeholders of a://{x} are x")):
                Resource("a://{x}", function)
        with pytest.raises(TypeError):
            Resource("a://{x}/{x}", lambda x: x)

    def test_a_hostile_uri_takes_no_time(self) -> None:
        resource = self.of("a://{+x}/{+y}/{+z}/end")
        with pytest.raises(McpError):
            resources.find({resource.uri: resource}, "a://" + "/" * 1_000_000)


class TestSubscribers:
    def test_are_bounded(self) -> None:
        subscribers = Subscribers()
        for number in range(MAX_SUBSCRIPTIONS):
            subscribers.add(f"a://{number}", "ann")
        with pytest.raises(McpError, match="the most"):
            subscribers.add("a://more", "ann")
        subscribers.add("a://more", "bob")
        subscribers.remove("a://0", "ann")
        subscribers.add("a://more", "ann")
        assert subscribers.of("a://more") == ["ann", "bob"]
        subscribers.left("ann")
        assert subscribers.of("a://more") == ["bob"]
        subscribers.remove("a://more", "bob")
        assert not subscribers._by_uri


def test_a_prompt_says_what_it_takes() -> None:
    def silent(a, *, b=None):  # type: ignore[no-untyped-def]
        return "x"

    described = Prompt("p", silent).described
    assert described["arguments"] == [{"name": "a", "required": True}, {"name": "b", "required": False}]
