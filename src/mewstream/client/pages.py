"""The rest of a welcome that was too long for one message, requested page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mewstream.client import events, untrusted
from mewstream.client.messages import Message
from mewstream.client.view import View
from mewstream.protocol import kinds


class Pages:
    """``post`` sends a message and returns its id. A page is the state at its own place among the messages: it
    contains what was sent before it, and not what is sent after it."""

    def __init__(self, view: View, post: Callable[[str, dict[str, Any]], str]) -> None:
        self._view = view
        self._post = post
        self._requests: dict[str, str] = {}
        """For each kind of page the id of the request for it. A page for an older request is of an older welcome."""
        self._has_events = False
        self._complete = asyncio.Event()

    async def wait(self) -> None:
        """Wait until everything that a welcome promised is known, or until the link has ended."""
        await self._complete.wait()

    def welcomed(self, welcome: Message, *, has_events: bool) -> None:
        """Request what this welcome leaves out. ``has_events`` says whether pages are published as events."""
        self._requests.clear()
        self._has_events = has_events
        if self._view.lacks_streams:
            listed = untrusted.objects(welcome.payload.get("active_streams"))
            self._request(kinds.STREAM_LISTED, listed[-1].get("stream_id") if listed else None)
        if self._view.lacks_participants:
            self._request(kinds.PARTICIPANT_LISTED, None)
        self._update()

    def received(self, page: Message) -> list[events.Event]:
        """Take over a page and request the next. Returns what must have happened before the welcome."""
        if self._requests.get(page.kind, "") not in page.correlation_id:
            return []
        after = untrusted.text(page.payload.get("next"))
        found = self._view.listed(page, is_last=after is None)
        if after is not None:
            self._request(page.kind, after)
        else:
            del self._requests[page.kind]
            self._update()
        return found if self._has_events else []

    def end(self) -> None:
        """No more pages will come."""
        self._complete.set()

    def _request(self, answer: str, after: Any) -> None:
        kind = kinds.STREAM_LIST if answer == kinds.STREAM_LISTED else kinds.PARTICIPANT_LIST
        self._requests[answer] = self._post(kind, {} if after is None else {"after": after})

    def _update(self) -> None:
        if self._requests:
            self._complete.clear()
        else:
            self._complete.set()
