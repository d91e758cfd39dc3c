"""Reading from streams and from a space, by ``async for``."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from mewstream.client.errors import RequestTimeout, SubscriptionEnded
from mewstream.client.frame import Frame, from_message
from mewstream.client.messages import Message
from mewstream.client.queue import BoundedQueue, FrameEntry

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from mewstream.client.events import Event

Q = TypeVar("Q")
T = TypeVar("T")


class _Feed(ABC, Generic[Q, T]):
    """What subscriptions of frames and of events have in common."""

    def __init__(self, queue: BoundedQueue[Q], detach: Callable[[], None]) -> None:
        self._queue = queue
        self._detach = detach
        self._loop = asyncio.get_running_loop()

    @property
    def pending(self) -> int:
        """How many wait to be taken."""
        return len(self._queue.entries)

    @property
    def dropped(self) -> int:
        """How many were forgotten because this reader was too slow."""
        return self._queue.dropped

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        queue = self._queue
        if queue.entries or await queue.wait():
            return self._take()
        raise StopAsyncIteration

    async def receive(self, timeout: float | None = None) -> T:
        """The next one. Raises :class:`RequestTimeout` when none comes in time, and
        :class:`SubscriptionEnded` when none will."""
        try:
            async with asyncio.timeout(timeout):
                is_there = await self._queue.wait()
        except TimeoutError:
            raise RequestTimeout(f"nothing came within {timeout:g} seconds") from None
        if is_there:
            return self._take()
        raise SubscriptionEnded("there is nothing more to receive: the stream or the subscription has ended")

    @abstractmethod
    def _take(self) -> T:
        """The oldest entry of the queue, which is not empty."""

    def close(self) -> None:
        """Stop listening. What is pending can still be taken."""
        self._detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A loop that was left by `break` must not go on collecting. The garbage collector may call this
        # anywhere, in another thread too, so it is only asked for here. A closed loop needs nothing.
        with contextlib.suppress(AttributeError, RuntimeError):
            self._loop.call_soon_threadsafe(self._detach)


class Subscription(_Feed[FrameEntry, Frame]):
    """The frames of one stream, or of all. Ends when the stream ends, or the connection for good."""

    async def __aiter__(self) -> AsyncIterator[Frame]:
        """The hot path: a generator keeps its names, where a method would look them up for each frame. It
        holds the subscription, and nothing holds it: a loop that is left ends both."""
        queue = self._queue
        entries = queue.entries
        while entries or await queue.wait():
            if queue.is_simple and type(entries[0]) is bytes:
                yield Frame(entries.popleft())  # type: ignore[arg-type]
            else:
                yield self._take()

    def _take(self) -> Frame:
        entry = self._queue.take()
        gap = self._queue.gap
        if isinstance(entry, Message):
            return from_message(entry, gap)
        return Frame(entry[0], False, gap) if isinstance(entry, tuple) else Frame(entry, True, gap)


class Events(_Feed["Event", "Event"]):
    """Everything but frames, as typed events."""

    def _take(self) -> Event:
        return self._queue.take()
