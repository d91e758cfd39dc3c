"""The tools that we serve to the space, and the answers to MCP requests."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mewstream.client import untrusted
from mewstream.client.errors import McpError
from mewstream.client.events import Requested
from mewstream.client.messages import without_none
from mewstream.client.schema_checks import checker_of
from mewstream.protocol.errors import MewError

if TYPE_CHECKING:
    from mewstream.client.messages import Message
    from mewstream.client.space import Space
    from mewstream.protocol.formats import FormatChecker

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000

#: How many calls run at the same time, how many more may wait, and how many more than that are refused in words.
MAX_RUNNING = 64
MAX_WAITING = 1000
MAX_REFUSED = 1000

Handler = Callable[..., Any | Awaitable[Any]]

logger = logging.getLogger("mewstream.client")


class _Tool(NamedTuple):
    name: str
    handler: Handler
    schema: dict[str, Any]
    description: str | None
    checker: FormatChecker | None
    """None if any object will do."""

    def described(self) -> dict[str, Any]:
        return without_none(name=self.name, inputSchema=self.schema, description=self.description)


class Tools:
    """Answers ``tools/list`` and ``tools/call``. Handlers run in tasks of their own, plain functions in threads, so
    that neither delays the connection."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._tools: dict[str, _Tool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(MAX_RUNNING)

    def add(self, name: str, handler: Handler, schema: dict[str, Any] | None, description: str | None) -> None:
        if not callable(handler):
            raise TypeError(f"the handler of the tool {name} is of the type {type(handler).__name__}, not a function")
        doc = inspect.getdoc(handler) if inspect.isroutine(handler) else None
        checker = checker_of({"id": name, "schema": schema}) if schema else None
        self._tools[name] = _Tool(name, handler, schema or {"type": "object"}, description or doc or None, checker)

    def received(self, request: Requested) -> None:
        """Answer a request if it is for one of our tools. All others are left to the program, which gets the event."""
        if not self._tools or self._space.participant not in request.to:
            return
        if request.method not in ("tools/list", "tools/call"):
            return
        waiting = len(self._tasks)
        if waiting < MAX_RUNNING + MAX_WAITING:
            work = self._answer(request)
        elif waiting < MAX_RUNNING + MAX_WAITING + MAX_REFUSED:
            work = self._respond(
                request, error=McpError("too many calls are waiting: try again later", code=SERVER_ERROR)
            )
        else:
            return  # a flood: refusing each call would take unbounded memory
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Requested) -> None:
        error: McpError | None = None
        result = None
        try:
            async with self._turns:
                result = await self._carry_out(request)
            msgspec.json.encode(result)
        except McpError as failure:
            error = failure
        except Exception as failure:
            logger.exception("the handler of a tool failed")
            error = McpError(f"{type(failure).__name__}: {failure}", code=INTERNAL_ERROR)
        await self._respond(request, result, error=error)

    async def _respond(self, request: Requested, result: Any = None, *, error: McpError | None = None) -> None:
        try:
            await self._space.respond(request, result, error=error)
        except MewError as failure:
            logger.info("an answer to %s could not be sent: %s", request.sender, failure)

    async def _carry_out(self, request: Requested) -> Any:
        if request.method == "tools/list":
            return {"tools": [tool.described() for tool in self._tools.values()]}
        params = untrusted.as_object(request.params)
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            known = ", ".join(self._tools)
            raise McpError(f"there is no tool {params.get('name')!r}: there are {known}", code=METHOD_NOT_FOUND)
        arguments = params.get("arguments")
        arguments = {} if arguments is None else arguments
        problems = tool.checker.problems(arguments) if tool.checker else []
        if not problems and not isinstance(arguments, dict):
            problems = ["expected an object with the arguments by name"]
        if problems:
            raise McpError(f"the arguments of {tool.name} are wrong: {problems[0]}", code=INVALID_PARAMS, data=problems)
        if inspect.iscoroutinefunction(tool.handler):
            found = await tool.handler(**arguments)
        else:
            found = await asyncio.to_thread(tool.handler, **arguments)
            if inspect.isawaitable(found):
                found = await found
        return _content(found)

    def cancel(self) -> None:
        """Cancel the calls that are running or waiting."""
        for task in self._tasks:
            task.cancel()


def _content(found: Any) -> Any:
    """Return a handler's result in the form of an MCP tool result, unless it has that form already."""
    if isinstance(found, dict) and "content" in found:
        return found
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if not isinstance(found, str) and found is not None:
        result["structuredContent"] = found if isinstance(found, dict) else {"result": found}
    return result


def result_of(response: Message) -> Any:
    """Return the result in an ``mcp/response``. Raises :class:`McpError` if it holds an error instead."""
    payload = response.payload
    error = payload.get("error")
    if error is None:
        return payload.get("result", payload)
    described = error if isinstance(error, dict) else {"message": str(error)}
    code = untrusted.number(described.get("code"))
    raise McpError(
        str(described.get("message") or "the request failed"),
        code=SERVER_ERROR if code is None else code,
        data=described.get("data"),
    )
