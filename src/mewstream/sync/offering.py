"""What we offer to a space by MCP, without ``async``. Functions run in threads, where they may use the space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from mewstream.client import offering
from mewstream.client import space as client
from mewstream.client.mcp_server import OnRequest
from mewstream.client.tools import Handler
from mewstream.sync.event_loop import EventLoop, documented_as

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound=OnRequest)


@documented_as(offering.Offering)
class Offering:
    """The part of a space that answers others by MCP."""

    _loop: EventLoop
    _space: client.Space

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
        def add(name: str, function: Handler) -> None:
            self._loop.call(
                lambda: self._space.tool(
                    name, function, schema, title=title, description=description, annotations=annotations
                )
            )

        return offering.decorator(name, handler, add)

    def remove_tool(self, name: str) -> None:
        self._loop.call(lambda: self._space.remove_tool(name))

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            add = self._space.resource(uri, name=name, title=title, description=description, mime_type=mime_type)
            return self._loop.call(lambda: add(function))

        return decorate

    def resource_updated(self, uri: str) -> None:
        self._loop.call(lambda: self._space.resource_updated(uri))

    @overload
    def prompt(self, name: F, /) -> F: ...

    @overload
    def prompt(
        self, name: str | None = None, *, title: str | None = None, description: str | None = None
    ) -> Callable[[F], F]: ...

    def prompt(
        self, name: str | Handler | None = None, *, title: str | None = None, description: str | None = None
    ) -> Any:
        def add(name: str, function: Handler) -> None:
            self._loop.call(lambda: self._space.prompt(name, title=title, description=description)(function))

        return offering.decorator(name, None, add)

    def on_request(self, function: R) -> R:
        return self._loop.call(lambda: self._space.on_request(function))
