"""The rest of a welcome that was too long for one message: asked for page by page, in order with all that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mewstream.client import events, loose
from mewstream.client.messages import Message
from mewstream.client.view import View
from mewstream.protocol import kinds


class Pages:
    """``ask`` sends a message and returns its id. A page is the state at the place where it comes: what is told before
    it is in it, and what is told after it is not."""

    def __init__(self, view: View, ask: Callable[[str, dict[str, Any]], str]) -> None:
        self._view = view
        self._ask = ask
        self._awaited: dict[str, str] = {}
        """The kind of page, and the id of the question that it answers: an older one is of an older welcome."""
        self._is_news = False
        self._complete = asyncio.Event()

    async def wait(self) -> None:
        """Until everything that a welcome has promised is known, or there will be no more of it."""
        await self._complete.wait()

    def welcomed(self, welcome: Message, *, is_news: bool) -> None:
        """Ask for what this welcome leaves out. ``is_news``: what is found is told as an event."""
        self._awaited.clear()
        self._is_news = is_news
        if self._view.lacks_streams:
            listed = loose.objects(welcome.payload.get("active_streams"))
            self._next(kinds.STREAM_LISTED, listed[-1].get("stream_id") if listed else None)
        if self._view.lacks_participants:
            self._next(kinds.PARTICIPANT_LISTED, None)
        self._look()

    def received(self, page: Message) -> list[events.Event]:
        """What must have happened since the state before the welcome."""
        if self._awaited.get(page.kind, "") not in page.correlation_id:
            return []
        after = loose.text(page.payload.get("next"))
        found = self._view.listed(page, is_last=after is None)
        if after is not None:
            self._next(page.kind, after)
        else:
            del self._awaited[page.kind]
            self._look()
        return found if self._is_news else []

    def end(self) -> None:
        self._complete.set()

    def _next(self, answer: str, after: Any) -> None:
        question = kinds.STREAM_LIST if answer == kinds.STREAM_LISTED else kinds.PARTICIPANT_LIST
        self._awaited[answer] = self._ask(question, {} if after is None else {"after": after})

    def _look(self) -> None:
        if self._awaited:
            self._complete.clear()
        else:
            self._complete.set()
