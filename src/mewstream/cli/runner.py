"""Running a command's coroutine, and reporting on its connection."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from mewstream.cli.output import complain

if TYPE_CHECKING:
    from mewstream.client import Space
    from mewstream.client.events import Event

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. SIGTERM cancels it, as Ctrl-C does, so that it can clean up."""
    terminated = False

    async def until_terminated() -> T:
        task = asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return await main

    try:
        return asyncio.run(until_terminated())
    except asyncio.CancelledError:
        if terminated:
            sys.exit(128 + signal.SIGTERM)
        raise


@asynccontextmanager
async def connection_reports(space: Space) -> AsyncIterator[None]:
    """Within this block, print to stderr when the connection is lost and when it is restored."""
    events = space.events()

    async def report() -> None:
        async for event in events:
            if message := _connection_message(event):
                complain(message)

    task = asyncio.create_task(report())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _connection_message(event: Event) -> str | None:
    """Return the message for an event that concerns the connection itself; None for any other event."""
    from mewstream.client.events import Disconnected, Resumed

    match event:
        case Disconnected(reason=reason):
            return f"the connection is lost ({reason or 'no reason given'}): trying again"
        case Resumed(recovered=True):
            return "connected again, nothing was missed"
        case Resumed(reason=reason):
            return f"connected again; what happened meanwhile is missed ({reason or 'no reason given'})"
    return None
