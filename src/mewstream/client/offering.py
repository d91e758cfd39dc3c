"""What we offer to a space by MCP: tools, resources and prompts, each a function with a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from mewstream.client.mcp_server import McpServer, OnRequest
from mewstream.client.prompts import Prompt
from mewstream.client.requests import Requests
from mewstream.client.resources import Resource
from mewstream.client.tools import Handler, Tool

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound=OnRequest)


class Offering(Requests):
    """The part of a :class:`Space` that answers others by MCP."""

    _server: McpServer

    @overload
    def tool(self, name: F, /) -> F: ...

    @overload
    def tool(
        self,
        name: str | None = None,
        *,
        schema: dict[str, Any] | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]: ...

    @overload
    def tool(
        self,
        name: str,
        handler: F,
        schema: dict[str, Any] | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> F: ...

    def tool(
        self,
        name: str | Handler | None = None,
        handler: Handler | None = None,
        schema: dict[str, Any] | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> Any:
        """Offer a function as an MCP tool::

            @space.tool
            async def walk(steps: int, direction: Literal["left", "right"] = "right") -> Position:
                \"""Walk a number of steps.\"""

        Its name, its docstring and its type hints are what callers see, as JSON Schema; msgspec says which types there
        are. An async function runs in a task, a plain one in a thread. Arguments of other types never reach it, and
        its caller is told what is wrong with them. What it returns is the result: text, an :class:`Image` or
        :class:`Audio`, a list of these, or anything else as structured content. What it raises is a result with
        ``isError``; an :class:`McpError` is an error of the protocol. A parameter of the type :class:`Call` gets the
        call itself: who calls, and a function that reports progress.

        With ``schema`` (JSON Schema, needs the extra ``schemas``) the function gets the arguments as they come.
        ``annotations`` are MCP's hints, such as ``{"readOnlyHint": True}``. Raises TypeError if a type cannot be
        expressed in JSON.
        """
        return decorator(
            name,
            handler,
            lambda name, function: self._server.add_tool(
                Tool(name, function, schema=schema, title=title, description=description, annotations=annotations)
            ),
        )

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer. Raises KeyError if there is none of that name."""
        self._server.remove_tool(name)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> Callable[[F], F]:
        """Offer what a function returns as an MCP resource, as a decorator: text, bytes, or anything else as JSON.

        The URI may have placeholders for the parameters of the function: ``{city}`` stands for one segment,
        ``{+path}`` for several. Tell those who have subscribed of a change with :meth:`resource_updated`. Raises
        ValueError for a URI that is none, and TypeError if the placeholders are not the parameters.
        """

        def decorate(function: F) -> F:
            self._server.add_resource(
                Resource(uri, function, name=name, title=title, description=description, mime_type=mime_type)
            )
            return function

        return decorate

    def resource_updated(self, uri: str) -> None:
        """Tell those who have subscribed to a resource of ours that it has changed. This waits for nothing."""
        self._server.resource_updated(uri)

    @overload
    def prompt(self, name: F, /) -> F: ...

    @overload
    def prompt(
        self, name: str | None = None, *, title: str | None = None, description: str | None = None
    ) -> Callable[[F], F]: ...

    def prompt(
        self, name: str | Handler | None = None, *, title: str | None = None, description: str | None = None
    ) -> Any:
        """Offer a function as an MCP prompt, as a decorator. It returns a text, or a list of texts and of messages
        with ``role`` and ``content``. Raises TypeError if a parameter cannot be given as text."""
        return decorator(
            name,
            None,
            lambda name, function: self._server.add_prompt(
                Prompt(name, function, title=title, description=description)
            ),
        )

    def on_request(self, function: R) -> R:
        """Answer the MCP requests that no tool, resource or prompt of ours answers, as a decorator. The function gets
        a :class:`Call` and returns the result, or raises :class:`McpError`. Without it, these requests are answered
        with the error -32601, method not found."""
        self._server.on_request = function
        return function


def decorator(name: str | Handler | None, function: Handler | None, add: Callable[[str, Handler], None]) -> Any:
    """Add a function: at once if it is given, as ``name`` or ``function``, otherwise when the decorator that is
    returned gets it."""
    given = name if isinstance(name, str) else None
    if name is not None and not isinstance(name, str):
        function = name

    def decorate(function: Handler) -> Handler:
        if not callable(function):
            raise TypeError(f"what is to be offered is of the type {type(function).__name__}, not a function")
        add(given or str(getattr(function, "__name__", type(function).__name__)), function)
        return function

    return decorate if function is None else decorate(function)
