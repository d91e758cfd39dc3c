"""A bounded queue between the connection, which never waits, and one consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from mewstream.client.errors import ConnectionClosed

T = TypeVar("T")

OnSlow = Literal["drop-oldest", "latest", "pause"]


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands in a queue for what never came."""

    count: int


class BoundedQueue(Generic[T]):
    """``drop-oldest`` forgets the oldest entry when it is full, ``latest`` everything but the newest;
    ``pause`` forgets nothing and asks for a pause instead, by ``hold`` and ``release``."""

    __slots__ = (
        "_ended",
        "_error",
        "_held",
        "_hold",
        "_release",
        "_waiter",
        "dropped",
        "entries",
        "limit",
        "missed",
        "on_slow",
    )

    def __init__(
        self,
        limit: int,
        on_slow: OnSlow = "drop-oldest",
        *,
        hold: Callable[[object], None] | None = None,
        release: Callable[[object], None] | None = None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"a queue holds at least 1, not {limit}")
        if on_slow not in ("drop-oldest", "latest", "pause"):
            raise ValueError(f"on_slow is {on_slow!r}: expected 'drop-oldest', 'latest' or 'pause'")
        self.entries: deque[T | Missing] = deque()
        self.on_slow = on_slow
        self.dropped = 0
        """Ever."""
        self.missed = 0
        """Before the entry that comes next."""
        self.limit = limit
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: ConnectionClosed | None = None
        self._hold = hold
        self._release = release
        self._held = False

    def put(self, entry: T) -> None:
        entries = self.entries
        if self._ended:
            return
        if len(entries) >= self.limit:
            self._overflow()
        entries.append(entry)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def put_missed(self, count: int) -> None:
        """So many are missing between what is here and what comes next."""
        if self.entries:
            self.entries.append(Missing(count))
        else:
            self.missed += count

    def _overflow(self) -> None:
        if self.on_slow == "pause":
            # What was read already is still kept: little more than the limit, for reading stops.
            if not self._held and self._hold is not None:
                self._held = True
                self._hold(self)
            return
        forgotten = len(self.entries) if self.on_slow == "latest" else 1
        for _ in range(forgotten):
            entry = self.entries.popleft()
            if type(entry) is Missing:
                self.missed += entry.count
            else:
                self.dropped += 1
                self.missed += 1

    def end(self, error: ConnectionClosed | None = None) -> None:
        """No more will come; what is here can still be taken."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        self._resume()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> bool:
        """Wait until there is an entry. False at the end."""
        while not self.entries:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return False
            if self._waiter is not None:
                raise RuntimeError("only one task at a time may iterate: make a subscription for each")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return True

    def take(self) -> T | Missing:
        entry = self.entries.popleft()
        if self._held and len(self.entries) <= self.limit // 2:
            self._resume()
        return entry

    def _resume(self) -> None:
        if self._held:
            self._held = False
            if self._release is not None:
                self._release(self)
