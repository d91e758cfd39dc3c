"""How a program joins a space without ``async``: ``with mewstream.sync.connect(...) as space``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mewstream.client import connecting
from mewstream.client import space as client
from mewstream.sync.event_loop import EventLoop
from mewstream.sync.space import Space

if TYPE_CHECKING:
    import ssl as ssl_module

    from mewstream.client.backoff import Backoff
    from mewstream.client.joining import Token


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
    request_timeout: float = client.REQUEST_SECONDS,
) -> Space:
    """Join a space, with the options of :func:`mewstream.connect`. Returns the :class:`Space`: use it with ``with``,
    or call ``drain()`` at the end. Raises what joining raises there."""
    joining = connecting.connect(
        url,
        space=space,
        participant=participant,
        token=token,
        profile=profile,
        reconnect=reconnect,
        ssl=ssl,
        connect_timeout=connect_timeout,
        request_timeout=request_timeout,
    )
    loop = EventLoop()
    try:
        return Space(loop, loop.run(joining.make()))
    except BaseException:
        loop.stop()
        raise
