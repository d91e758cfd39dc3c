"""Which function answers which request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from mewstream.gateway.http_message import Request, Response, no_such_route

Handler = Callable[[Request], Response | Coroutine[Any, Any, Response]]


class Route(NamedTuple):
    method: str
    segments: tuple[str, ...]
    """``{name}`` stands for any one segment."""
    handler: Handler
    body_limit: Callable[[Request], int] | None = None
    """Judges the head, before any of the body is read: how many bytes of it are taken. None: no body is."""
    patience: float = 1.0
    """So many times the bound on answers that wait may be reached before this route is answered 503."""


class Routes:
    def __init__(self) -> None:
        self._by_length: dict[int, list[Route]] = {}

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        body_limit: Callable[[Request], int] | None = None,
        patience: float = 1.0,
    ) -> None:
        segments = tuple(path.split("/")[1:])
        route = Route(method, segments, handler, body_limit, patience)
        self._by_length.setdefault(len(segments), []).append(route)

    def find(self, request: Request) -> Route:
        """The route of a request, whose ``params`` are filled in. HEAD is answered as GET is, without the body."""
        method = "GET" if request.method == "HEAD" else request.method
        allowed: list[str] = []
        for route in self._by_length.get(len(request.path), ()):
            params = _match(route.segments, request.path)
            if params is None:
                continue
            if route.method == method:
                request.params = params
                return route
            allowed += ["GET", "HEAD"] if route.method == "GET" else [route.method]
        if allowed:
            raise no_such_route(405, "Method Not Allowed", Allow=", ".join(allowed))
        raise no_such_route(404, "Not Found")


def _match(segments: tuple[str, ...], path: tuple[str, ...]) -> dict[str, str] | None:
    """Both have the same length."""
    params: dict[str, str] = {}
    for expected, found in zip(segments, path, strict=True):
        if expected.startswith("{"):
            if not found:
                return None
            params[expected[1:-1]] = found
        elif expected != found:
            return None
    return params
