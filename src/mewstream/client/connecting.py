"""How a program joins a space: ``async with mewstream.connect(...) as space``."""

from __future__ import annotations

import ssl as ssl_module

from mewstream.client.awaitable import AwaitableContext
from mewstream.client.backoff import Backoff
from mewstream.client.connection import websocket_url
from mewstream.client.joining import Joiner, Token
from mewstream.client.space import REQUEST_SECONDS, Space


class Connecting(AwaitableContext[Space]):
    """A space being joined: ``await`` it, or use it with ``async with``, which drains the space at the end."""


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

    ``space`` may be left out where the gateway serves only one, ``participant`` where the token implies it. ``token``
    may be a function, plain or async, which is called for every connection. A lost connection is made again after
    growing, random delays, and resumes where it was: see :class:`mewstream.Resumed`. With ``reconnect=False`` the
    space ends instead. Leaving the block drains the space: what was sent is recorded before we leave.

    Returns a :class:`Connecting` to be awaited or used with ``async with``. Raises :class:`ConnectError` for an
    address that cannot be used. Joining raises :class:`JoinRefused` where the gateway refuses us for good,
    :class:`ConnectError` where there is no connection, and :class:`RequestTimeout` where a long list of streams does
    not come in time.
    """
    address = websocket_url(url)
    backoff = (Backoff() if reconnect else None) if isinstance(reconnect, bool) else reconnect

    async def make() -> Space:
        joiner = Joiner(
            url=address, space=space, participant=participant, token=token, ssl_context=ssl, timeout=connect_timeout
        )
        made = Space(joiner, reconnect=backoff, request_timeout=request_timeout)
        await made._open()
        return made

    return Connecting(make)
