"""What a program iterates over with ``async for``: the frames of streams, and the events of a space."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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


class Feed(AsyncIterator[T], Generic[Q, T]):
    """What subscriptions of frames and of events have in common.

    Iterating ends when nothing more will come, and raises :class:`ConnectionClosed` if the connection was lost for
    good. Only one task at a time may iterate; RuntimeError says so.
    """

    def __init__(self, queue: BoundedQueue[Q], detach: Callable[[], None]) -> None:
        self._queue = queue
        self._detach = detach
        self._loop = asyncio.get_running_loop()

    @property
    def pending(self) -> int:
        """How many entries wait in the queue."""
        return len(self._queue.entries)

    @property
    def dropped(self) -> int:
        """How many entries were dropped because this reader was too slow."""
        return self._queue.dropped

    async def __anext__(self) -> T:
        queue = self._queue
        if queue.entries or await queue.wait():
            return self._take()
        raise StopAsyncIteration

    async def receive(self, timeout: float | None = None) -> T:
        """Wait for the next entry and return it. Raises :class:`RequestTimeout` if none comes within ``timeout``
        seconds, :class:`SubscriptionEnded` if none will come, and :class:`ConnectionClosed`."""
        try:
            async with asyncio.timeout(timeout):
                has_entry = await self._queue.wait()
        except TimeoutError:
            raise RequestTimeout(f"nothing came within {timeout:g} seconds") from None
        if has_entry:
            return self._take()
        raise SubscriptionEnded("there is nothing more to receive: the stream or the subscription has ended")

    @abstractmethod
    def _take(self) -> T:
        """Take the oldest entry from the queue, which must not be empty."""

    def close(self) -> None:
        """End the subscription. What is in the queue can still be taken."""
        self._detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # The queue of a loop that was left by `break` must not fill any further. The garbage collector may call this
        # in any thread, so the work is left to the event loop; a closed event loop has none to do.
        with contextlib.suppress(AttributeError, RuntimeError):
            self._loop.call_soon_threadsafe(self._detach)


class Subscription(Feed[FrameEntry, Frame]):
    """The frames of one stream, or of all. It ends with the stream, or with the space.

    It can be awaited: then it has begun, and every frame that is accepted from now on will come. That matters if what
    is sent next comes from somebody else, to whom nothing of ours is known."""

    def __init__(
        self, queue: BoundedQueue[FrameEntry], detach: Callable[[], None], begun: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(queue, detach)
        self._begun = begun

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self._wait().__await__()

    async def _wait(self) -> Subscription:
        await self._begun()
        return self

    async def __aiter__(self) -> AsyncIterator[Frame]:
        """The hot path: a generator keeps its local names, where a method would look them up again for each frame. It
        refers to the subscription and nothing refers to it, so that a loop which is left ends both."""
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


class Events(Feed["Event", "Event"]):
    """The events of a space: everything but frames."""

    def _take(self) -> Event:
        return self._queue.take()
