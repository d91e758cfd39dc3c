"""An MCP request that somebody has sent us, while it is being answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mewstream.client import untrusted
from mewstream.client.mcp import PROGRESS
from mewstream.client.messages import without_none

if TYPE_CHECKING:
    from mewstream.client.events import Requested

#: Sends a notification to the participant who asked.
Notify = Callable[[str, dict[str, Any]], None]


class Call:
    """The request that a tool, a resource, a prompt or a function of :meth:`Space.on_request` answers. A tool gets it
    as the parameter with this type, which its callers do not see."""

    def __init__(self, request: Requested, notify: Notify) -> None:
        self.sender = request.sender
        """The participant who asks."""
        self.method = request.method
        """The method, such as ``tools/call``."""
        self.params = untrusted.as_object(request.params)
        """The parameters, as they were sent."""
        self.id = request.message.id if request.message is not None else ""
        """The id of the request's envelope."""
        self.is_cancelled = False
        """Whether the caller does not want the answer any longer. An async function is cancelled; one that runs in a
        thread can look here from time to time."""
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        token = untrusted.as_object(self.params.get("_meta")).get("progressToken")
        self._progress_token = token if isinstance(token, str | int) else None

    def progress(self, progress: float, *, total: float | None = None, message: str | None = None) -> None:
        """Tell the caller how far we are, if it wants to know. This never waits, and may be called in any thread. What
        the connection has no room for is not sent."""
        if self._progress_token is None or self.is_cancelled:
            return
        params = without_none(progressToken=self._progress_token, progress=progress, total=total, message=message)
        try:
            is_in_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_in_loop = False
        if is_in_loop:
            self._notify(PROGRESS, params)
        else:
            self._loop.call_soon_threadsafe(self._notify, PROGRESS, params)

    def __repr__(self) -> str:
        return f"Call({self.method!r}, sender={self.sender!r})"
