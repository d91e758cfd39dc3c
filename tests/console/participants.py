"""The others in the space: real participants, with the Python SDK."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import mewstream
from support import GatewayProcess, token_of

TIMEOUT = 60.0
E = TypeVar("E", bound=mewstream.Event)


def joined(gateway: GatewayProcess, participant: str) -> mewstream.Connecting:
    backoff = mewstream.Backoff(first=0.05, most=0.5)
    return mewstream.connect(
        gateway.ws_url, space="demo", participant=participant, token=token_of(participant), reconnect=backoff
    )


async def event_of(news: mewstream.Events, kind: type[E]) -> E:
    """The next event of this type."""
    async with asyncio.timeout(TIMEOUT):
        async for event in news:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"no {kind}")
