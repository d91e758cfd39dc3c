"""What a program iterates over with ``for``: the frames of streams, and the events of a space."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from mewstream.client.errors import ConnectionClosed, SubscriptionEnded
from mewstream.client.events import Event
from mewstream.client.frame import Frame
from mewstream.client.subscription import Feed as AsyncFeed
from mewstream.client.subscription import Subscription as AsyncSubscription
from mewstream.protocol.close_codes import NORMAL
from mewstream.sync.event_loop import EventLoop, documented_as

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

T = TypeVar("T")


@documented_as(AsyncFeed)
class _Feed(Iterator[T]):
    def __init__(self, loop: EventLoop, feed: AsyncFeed[Any, T]) -> None:
        self._loop = loop
        self._feed = feed

    @property
    def pending(self) -> int:
        return self._feed.pending

    @property
    def dropped(self) -> int:
        return self._feed.dropped

    def __next__(self) -> T:
        try:
            return self._loop.run(self._feed.receive())
        except SubscriptionEnded:
            raise StopIteration from None
        except ConnectionClosed as error:
            if error.code == NORMAL:
                raise StopIteration from None
            raise

    def receive(self, timeout: float | None = None) -> T:
        return self._loop.run(self._feed.receive(timeout))

    def close(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # then it has ended
            self._loop.call(self._feed.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Subscription(_Feed[Frame]):
    """The frames of one stream, or of all, to iterate over with ``for``."""


async def begun(subscribe: Callable[[], AsyncSubscription]) -> AsyncSubscription:
    """Subscribe, and wait until that has begun."""
    return await subscribe()


class Events(_Feed[Event]):
    """The events of a space, to iterate over with ``for``."""
