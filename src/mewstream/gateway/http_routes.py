"""Routing: which function answers which request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from mewstream.gateway.http_message import HttpError, Request, Response
from mewstream.protocol.errors import ValidationFailed

Handler = Callable[[Request], Response | Coroutine[Any, Any, Response]]


class Route(NamedTuple):
    method: str
    path: str
    """``{name}`` stands for any one segment."""
    handler: Handler
    body_limit: Callable[[Request], int] | None = None
    """Checks the head before any of the body is read, and returns how many bytes the body may have. None if the route
    takes no body."""
    patience: float = 1.0
    """How many times the limit on unsent answers may be reached before this route is answered with 503."""


class Routes:
    def __init__(self, *routes: Route) -> None:
        self._routes = [(tuple(route.path.split("/")[1:]), route) for route in routes]

    def methods(self, path: tuple[str, ...]) -> list[str]:
        """The methods of a path. GET stands for HEAD too. Empty if there is no such path."""
        found = [route.method for segments, route in self._routes if _match(segments, path) is not None]
        return [each for method in found for each in (("GET", "HEAD") if method == "GET" else (method,))]

    def find(self, request: Request) -> Route:
        """Return the route of a request, and fill in the request's ``params``. HEAD is routed as GET.

        Raises :class:`HttpError` with 404 or 405 if there is none."""
        method = "GET" if request.method == "HEAD" else request.method
        for segments, route in self._routes:
            params = _match(segments, request.path)
            if params is not None and route.method == method:
                request.params = params
                return route
        hint = "see docs/protocol.md for the routes"
        if allowed := self.methods(request.path):
            raise HttpError(405, ValidationFailed(f"Method Not Allowed: {hint}"), Allow=", ".join(allowed))
        raise HttpError(404, ValidationFailed(f"Not Found: {hint}"))


def _match(segments: tuple[str, ...], path: tuple[str, ...]) -> dict[str, str] | None:
    """The values of the variable segments, or None if the path is another one."""
    if len(segments) != len(path):
        return None
    params: dict[str, str] = {}
    for expected, found in zip(segments, path, strict=True):
        if expected.startswith("{") and found:
            params[expected[1:-1]] = found
        elif expected != found:
            return None
    return params
