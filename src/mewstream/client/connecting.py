"""How a program joins a space: ``async with mewstream.connect(...) as space``."""

from __future__ import annotations

import asyncio
import ssl as ssl_module

from mewstream.client.awaitable import AwaitableContext
from mewstream.client.backoff import Backoff
from mewstream.client.connection import websocket_url
from mewstream.client.joining import Joiner, Token
from mewstream.client.space import REQUEST_SECONDS, Space
from mewstream.settings.connection import find_connection


class Connecting(AwaitableContext[Space]):
    """A space being joined: ``await`` it, or use it with ``async with``, which drains the space at the end."""


def connect(
    url: str | None = None,
    *,
    space: str | None = None,
    participant: str | None = None,
    token: Token | None = None,
    profile: str | None = None,
    reconnect: Backoff | bool = True,
    ssl: ssl_module.SSLContext | None = None,
    connect_timeout: float = 10.0,
    request_timeout: float = REQUEST_SECONDS,
) -> Connecting:
    """Join a space.

        async with mewstream.connect("ws://127.0.0.1:8080", space="demo", participant="ai", token=token) as space:
            ...

    What is not given is found as the commands find it: in the environment (``MEW_URL``, ``MEW_SPACE``,
    ``MEW_PARTICIPANT``, ``MEW_TOKEN_<ID>``, ``MEW_TOKEN``), in a ``profile``, or in the space file of a gateway on this
    machine. ``space`` may be missing if the gateway serves only one, ``participant`` if the token implies it. ``token``
    may be a function, plain or async, which is called for every connection. A lost connection is made again after
    growing, random delays, and resumes where it was: see :class:`mewstream.Resumed`. With ``reconnect=False`` the
    space ends instead. Leaving the block drains the space: what was sent is recorded before we leave.

    Returns a :class:`Connecting` to be awaited or used with ``async with``. Raises :class:`ConnectError` for an
    address that cannot be used, and :class:`ConfigError` for a profile or a space file that cannot. Joining raises
    :class:`JoinRefused` if the gateway refuses us for good, :class:`ConnectError` if there is no connection, and
    :class:`RequestTimeout` if a long list of streams does not come in time.
    """
    found = find_connection(url=url, space=space, participant=participant, profile=profile)
    address = websocket_url(found.url)
    backoff = (Backoff() if reconnect else None) if isinstance(reconnect, bool) else reconnect

    async def found_token() -> str | None:
        return await asyncio.to_thread(found.token)  # it may read files

    async def make() -> Space:
        joiner = Joiner(
            url=address,
            space=found.space,
            participant=found.participant,
            token=token if token is not None else found_token,
            ssl_context=ssl,
            timeout=connect_timeout,
        )
        made = Space(joiner, reconnect=backoff, request_timeout=request_timeout)
        await made._open()
        return made

    return Connecting(make)
