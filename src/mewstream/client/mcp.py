"""Tools that a participant serves to its space, and the answers to what others ask."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mewstream.client.errors import McpError
from mewstream.client.events import Requested
from mewstream.protocol.errors import MewError
from mewstream.protocol.formats import checker_for

if TYPE_CHECKING:
    from mewstream.client.space import Space

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
BUSY = -32000

#: Calls that are carried out at the same time, and those that may wait besides.
MAX_RUNNING = 64
MAX_WAITING = 1000

Handler = Callable[..., Any | Awaitable[Any]]


class _Tool(msgspec.Struct):
    name: str
    handler: Handler
    schema: dict[str, Any]
    description: str | None

    def described(self) -> dict[str, Any]:
        described: dict[str, Any] = {"name": self.name, "inputSchema": self.schema}
        if self.description:
            described["description"] = self.description
        return described


class Tools:
    """Answers ``tools/list`` and ``tools/call``. Handlers run in tasks of their own, plain functions
    in threads: neither can hold up the connection."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._tools: dict[str, _Tool] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(MAX_RUNNING)

    def add(self, name: str, handler: Handler, schema: dict[str, Any] | None, description: str | None) -> None:
        doc = inspect.getdoc(handler)
        self._tools[name] = _Tool(name, handler, schema or {"type": "object"}, description or doc)

    def received(self, request: Requested) -> None:
        """A request for us. Methods that are no business of ours are left to whoever follows the events."""
        if not self._tools or self._space.participant not in request.to:
            return
        if request.method not in ("tools/list", "tools/call"):
            return
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, request: Requested) -> None:
        try:
            if len(self._running) > MAX_WAITING:
                raise McpError("too many calls are waiting: try again later", code=BUSY)
            async with self._turns:
                result = await self._carry_out(request)
            await self._space.respond(request, result)
        except McpError as error:
            await self._fail(request, error)
        except MewError:
            pass  # the connection is gone: nobody waits for the answer any more
        except Exception as error:
            await self._fail(request, McpError(f"{type(error).__name__}: {error}", code=INTERNAL_ERROR))

    async def _fail(self, request: Requested, error: McpError) -> None:
        try:
            await self._space.respond(request, error=error)
        except MewError:
            pass

    async def _carry_out(self, request: Requested) -> Any:
        if request.method == "tools/list":
            return {"tools": [tool.described() for tool in self._tools.values()]}
        params = request.params if isinstance(request.params, dict) else {}
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            known = ", ".join(self._tools)
            raise McpError(f"there is no tool {params.get('name')!r}: there are {known}", code=METHOD_NOT_FOUND)
        arguments = params.get("arguments") or {}
        problems = checker_for({"id": tool.name, "schema": tool.schema}).problems(arguments)
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
        for task in self._running:
            task.cancel()


def _content(found: Any) -> Any:
    """A result as MCP wants it, unless the handler has made one."""
    if isinstance(found, dict) and "content" in found:
        return found
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if not isinstance(found, str) and found is not None:
        result["structuredContent"] = found if isinstance(found, dict) else {"result": found}
    return result
