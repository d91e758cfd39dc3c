"""How one gets into a space: ``async with mewstream.connect(...) as space``."""

from __future__ import annotations

import ssl as ssl_module
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from mewstream.client.backoff import Backoff
from mewstream.client.connection import websocket_url
from mewstream.client.joining import Door, Token
from mewstream.client.space import REQUEST_SECONDS, Space

if TYPE_CHECKING:
    from types import TracebackType


class Connecting:
    """A space being joined: ``await`` it, or use it with ``async with``."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Space]]) -> None:
        self.make = make
        self._space: Space | None = None

    def __await__(self) -> Generator[Any, None, Space]:
        return self.make().__await__()

    async def __aenter__(self) -> Space:
        self._space = await self.make()
        return self._space

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._space is not None
        await self._space.__aexit__(kind, error, traceback)


def connect(
    url: str = "ws://127.0.0.1:8080",
    *,
    space: str | None = None,
    participant: str | None = None,
    token: Token | None = None,
    reconnect: Backoff | bool = True,
    ssl: ssl_module.SSLContext | None = None,
    connect_timeout: float = 10.0,
    request_timeout: float = REQUEST_SECONDS,
) -> Connecting:
    """Join a space.

        async with mewstream.connect("ws://127.0.0.1:8080", space="demo", participant="ai", token=token) as space:
            ...

    ``space`` may be left out where the gateway serves one only, ``participant`` where the token says it.
    ``token`` may be a function, or an async one, that is called for every connection. A lost connection
    is made again with growing, random delays, and goes on where it was: see
    :class:`mewstream.Resumed`. ``reconnect=False`` ends the space instead.

    Leaving the block drains: what was sent is recorded before we go.
    """
    address = websocket_url(url)
    backoff = (Backoff() if reconnect else None) if isinstance(reconnect, bool) else reconnect

    async def make() -> Space:
        door = Door(
            address,
            space=space,
            participant=participant,
            token=token,
            ssl_context=ssl,
            timeout=connect_timeout,
        )
        made = Space(door, reconnect=backoff, request_timeout=request_timeout)
        await made._link.open()
        try:
            await made._know_everything()
        except BaseException:
            await made.close()
            raise
        return made

    return Connecting(make)
