"""Answers the MCP requests that are addressed to us."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

import mewstream
from mewstream.client import resources, untrusted
from mewstream.client.call import Call
from mewstream.client.content import error_result
from mewstream.client.errors import McpError
from mewstream.client.events import Notified, Requested
from mewstream.client.listing import page
from mewstream.client.mcp import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    RESOURCE_UPDATED,
    SERVER_ERROR,
    quoted,
)
from mewstream.client.messages import without_none
from mewstream.client.prompts import Prompt
from mewstream.client.resources import Resource, Subscribers
from mewstream.client.tools import Tool
from mewstream.client.user_code import UserCode
from mewstream.protocol import kinds
from mewstream.protocol.errors import LimitExceeded, MewError

if TYPE_CHECKING:
    from mewstream.client.space import Space

#: How many calls run at the same time, how many more may wait, and how many more than that are refused in words.
MAX_RUNNING = 64
MAX_WAITING = 1000
MAX_REFUSED = 1000
#: How many answers are kept for callers who ask again, and how large one may be. What was asked longer ago than these
#: is carried out again.
MAX_ANSWERS = 256
MAX_ANSWER_BYTES = 32 << 10

OnRequest = Callable[[Call], Any | Awaitable[Any]]

logger = logging.getLogger("mewstream.client")


@dataclass(eq=False)
class _Running:
    """A call that is being answered."""

    call: Call
    task: asyncio.Task[None] | None = None
    is_carried_out: bool = False
    """Whether it is being carried out now, and is not yet to begin, or being answered already."""
    failure: McpError | None = None
    """Why we ended it ourselves."""


class McpServer:
    """Tools, resources and prompts, and the requests for them. Functions of the program run in tasks of their own, or
    in threads, so that they do not delay the connection."""

    def __init__(self, space: Space) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.prompts: dict[str, Prompt] = {}
        self.on_request: OnRequest | None = None
        """Answers what tools, resources and prompts do not."""
        self._space = space
        self._code = UserCode("mewstream-tool", MAX_RUNNING)
        self._turns = asyncio.Semaphore(MAX_RUNNING)
        self._running: dict[tuple[str, str], _Running] = {}
        self._answers: OrderedDict[tuple[str, str], dict[str, Any] | None] = OrderedDict()
        """What we have answered, by the caller and the id of its request; None if that was too large to be kept."""
        self._subscribers = Subscribers()
        self._early: list[Requested] | None = []
        """Requests from before the program could offer anything; None since then."""
        self._listeners: dict[str, set[str]] = {"tools": set(), "resources": set(), "prompts": set()}
        """Who has asked for which list, and is told when it changes."""

    # -- what we offer --------------------------------------------------------------------------------

    def add_tool(self, tool: Tool) -> None:
        self.tools[tool.name] = tool
        self._changed("tools")

    def remove_tool(self, name: str) -> None:
        """Raises KeyError if there is none of that name."""
        del self.tools[name]
        self._changed("tools")

    def add_resource(self, resource: Resource) -> None:
        self.resources[resource.uri] = resource
        self._changed("resources")

    def add_prompt(self, prompt: Prompt) -> None:
        self.prompts[prompt.name] = prompt
        self._changed("prompts")

    def resource_updated(self, uri: str) -> None:
        """Tell those who have subscribed to a resource that it has changed."""
        self._space._inbox.notifications.send(RESOURCE_UPDATED, {"uri": uri}, self._subscribers.of(uri))

    def _changed(self, what: str) -> None:
        self._space._inbox.notifications.send(f"notifications/{what}/list_changed", {}, sorted(self._listeners[what]))

    # -- what is received -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to answer: the program has had the opportunity to say what it offers."""
        early, self._early = self._early or [], None
        for request in early:
            self.received(request)

    def received(self, request: Requested) -> None:
        """Begin to answer a request, if it is for us. A request that comes again is answered as before."""
        if self._space.participant not in request.to or request.message is None:
            return
        if self._early is not None:
            if len(self._early) < MAX_WAITING:
                self._early.append(request)
            return
        key = (request.sender, request.message.id)
        if key in self._running:
            return
        waiting = len(self._running)
        if waiting >= MAX_RUNNING + MAX_WAITING + MAX_REFUSED:
            return  # a flood: refusing each call would take unbounded memory
        running = self._running[key] = _Running(Call(request, self._notifier(request)))
        if key in self._answers:
            work = self._repeat(key, request)
        elif waiting >= MAX_RUNNING + MAX_WAITING:
            refusal = McpError("too many calls are waiting: try again later", code=SERVER_ERROR)
            work = self._respond(request, _error(refusal))
        else:
            work = self._answer(running, key, request)
        running.task = asyncio.get_running_loop().create_task(work)
        running.task.add_done_callback(lambda _: self._running.pop(key, None))

    def _notifier(self, request: Requested) -> Callable[[str, dict[str, Any]], None]:
        def notify(method: str, params: dict[str, Any]) -> None:
            about = request.message.id if request.message is not None else None
            self._space._inbox.notifications.send(method, params, [request.sender], about=about)

        return notify

    def notified(self, notification: Notified) -> None:
        """Cancel a call, if its caller says so."""
        if notification.method == CANCELLED and self._space.participant in notification.to:
            id = untrusted.as_object(notification.params).get("requestId")
            running = self._running.get((notification.sender, id)) if isinstance(id, str) else None
            if running is not None and running.task is not None:
                running.call.is_cancelled = True
                running.task.cancel()

    def left(self, participant: str) -> None:
        """Forget what a participant wanted to be told."""
        self._subscribers.left(participant)
        for listeners in self._listeners.values():
            listeners.discard(participant)

    def stop_calls(self, why: str) -> None:
        """Answer every call that is being carried out, or waits for its turn, with an error. One that came with this
        instruction is answered after it, and one that is being answered keeps its answer."""
        for running in self._running.values():
            if running.task is not None and running.is_carried_out:
                running.failure = McpError(why, code=SERVER_ERROR)
                running.task.cancel()

    def end(self) -> None:
        """Cancel every call without an answer."""
        for running in self._running.values():
            running.call.is_cancelled = True
            if running.task is not None:
                running.task.cancel()
        self._code.end()

    # -- answering ------------------------------------------------------------------------------------

    async def _answer(self, running: _Running, key: tuple[str, str], request: Requested) -> None:
        running.is_carried_out = True
        try:
            payload: dict[str, Any] = {"result": await self._carry_out(running.call)}
            size = len(msgspec.json.encode(payload))
        except McpError as failure:
            payload, size = _error(failure), 0
        except asyncio.CancelledError:
            if running.failure is None:
                raise
            payload, size = _error(running.failure), 0
        except Exception as failure:
            logger.exception("a request for %s could not be answered", running.call.method)
            payload, size = _error(McpError(f"{type(failure).__name__}: {failure}", code=INTERNAL_ERROR)), 0
        running.is_carried_out = False
        self._answers[key] = payload if size <= MAX_ANSWER_BYTES else None
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        await self._respond(request, payload)

    async def _repeat(self, key: tuple[str, str], request: Requested) -> None:
        payload = self._answers[key]
        if payload is None:
            payload = _error(McpError("this was answered before, and the answer is not kept", code=SERVER_ERROR))
        await self._respond(request, payload)

    async def _respond(self, request: Requested, payload: dict[str, Any]) -> None:
        try:
            try:
                await self._send(request, payload)
            except LimitExceeded:
                await self._send(request, _too_large(request.method))
        except MewError as failure:
            logger.info("an answer to %s could not be sent: %s", request.sender, failure)

    async def _send(self, request: Requested, payload: dict[str, Any]) -> None:
        assert request.message is not None
        asked = request.message.payload
        if "jsonrpc" in asked:  # whoever sends the members of JSON-RPC gets them back
            payload = {"jsonrpc": "2.0", "id": asked.get("id"), **payload}
        await self._space._call(kinds.MCP_RESPONSE, payload, to=request.sender, correlation_id=request.message.id)

    async def _carry_out(self, call: Call) -> Any:
        what, _, verb = call.method.partition("/")
        if verb.endswith("list") and what in self._listeners:
            self._listeners[what].add(call.sender)
        match call.method:
            case "ping":
                return {}
            case "initialize":
                return await self._initialize(call)
            case "tools/list" if self.tools:
                return page("tools", [each.described for each in self.tools.values()], call.params)
            case "tools/call" if self.tools:
                tool = self._tool(call)
                async with self._turns:
                    return await tool.call(call, self._code)
            case "resources/list" if self.resources:
                return page("resources", self._resources(are_templates=False), call.params)
            case "resources/templates/list" if self.resources:
                return page("resourceTemplates", self._resources(are_templates=True), call.params)
            case "resources/read" if self.resources:
                return await self._read(call)
            case "resources/subscribe" if self.resources:
                resources.find(self.resources, call.params.get("uri"))
                self._subscribers.add(call.params["uri"], call.sender)
                return {}
            case "resources/unsubscribe" if self.resources:
                self._subscribers.remove(str(call.params.get("uri")), call.sender)
                return {}
            case "prompts/list" if self.prompts:
                return page("prompts", [each.described for each in self.prompts.values()], call.params)
            case "prompts/get" if self.prompts:
                return await self._get_prompt(call)
        return await self._ask_program(call)

    async def _ask_program(self, call: Call) -> Any:
        if self.on_request is None:
            raise McpError(f"there is no method {quoted(call.method)} here", code=METHOD_NOT_FOUND)
        async with self._turns:
            return await self._code.run(self.on_request, call)

    async def _initialize(self, call: Call) -> Any:
        try:
            return await self._ask_program(call)
        except McpError as failure:
            if failure.code != METHOD_NOT_FOUND:
                raise
        asked = call.params.get("protocolVersion")
        capabilities = without_none(
            tools={"listChanged": True} if self.tools else None,
            resources={"listChanged": True, "subscribe": True} if self.resources else None,
            prompts={"listChanged": True} if self.prompts else None,
        )
        return {
            "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSION,
            "capabilities": capabilities,
            "serverInfo": {"name": self._space.participant, "version": mewstream.__version__},
        }

    def _resources(self, *, are_templates: bool) -> list[dict[str, Any]]:
        return [each.described for each in self.resources.values() if each.is_template is are_templates]

    def _tool(self, call: Call) -> Tool:
        name = call.params.get("name")
        tool = self.tools.get(name) if isinstance(name, str) else None
        if tool is None:
            known = ", ".join(list(self.tools)[:20])
            raise McpError(f"unknown tool: {quoted(name)}; there are {known}", code=INVALID_PARAMS)
        return tool

    async def _read(self, call: Call) -> dict[str, Any]:
        uri = call.params.get("uri")
        resource, values = resources.find(self.resources, uri)
        try:
            arguments: dict[str, Any] = resource.signature.convert(values, strict=False)
        except msgspec.ValidationError as flaw:
            raise McpError(f"{quoted(uri)} does not fit {resource.uri}: {flaw}", code=INVALID_PARAMS) from None
        if resource.signature.call_parameter is not None:
            arguments[resource.signature.call_parameter] = call
        async with self._turns:
            return resource.contents(str(uri), await self._code.run(resource.handler, **arguments))

    async def _get_prompt(self, call: Call) -> dict[str, Any]:
        name = call.params.get("name")
        prompt = self.prompts.get(name) if isinstance(name, str) else None
        if prompt is None:
            raise McpError(f"unknown prompt: {quoted(name)}", code=INVALID_PARAMS)
        arguments = prompt.arguments(call.params.get("arguments"))
        if prompt.signature.call_parameter is not None:
            arguments[prompt.signature.call_parameter] = call
        async with self._turns:
            return prompt.result(await self._code.run(prompt.handler, **arguments))


def _error(error: McpError) -> dict[str, Any]:
    return {"error": without_none(code=error.code, message=error.message, data=error.data)}


def _too_large(method: str) -> dict[str, Any]:
    text = "the result is larger than the gateway takes"
    if method == "tools/call":
        return {"result": error_result(text)}
    return _error(McpError(text, code=SERVER_ERROR))
