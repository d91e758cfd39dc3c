"""A space that a participant has joined, without ``async``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from mewstream.client import space as client
from mewstream.client.errors import ConnectionClosed
from mewstream.client.messages import Message
from mewstream.client.queue import OnSlow
from mewstream.client.view import Participants
from mewstream.protocol.position import Position
from mewstream.sync.calling import Calling
from mewstream.sync.control import Control
from mewstream.sync.event_loop import EventLoop, documented_as
from mewstream.sync.feeds import Events, Subscription, begun
from mewstream.sync.membership import Membership
from mewstream.sync.offering import Offering
from mewstream.sync.opening import StreamOpening
from mewstream.sync.stream import Stream, Streams

if TYPE_CHECKING:
    from types import TracebackType


@documented_as(client.Space)
class Space(StreamOpening, Calling, Offering, Control, Membership):
    """A space, as :class:`mewstream.client.space.Space`."""

    def __init__(self, loop: EventLoop, space: client.Space) -> None:
        self._loop = loop
        self._space = space

    @property
    def participant(self) -> str:
        return self._space.participant

    @property
    def capabilities(self) -> list[Any]:
        return self._space.capabilities

    @property
    def participants(self) -> Participants:
        return self._space.participants

    @property
    def streams(self) -> Streams:
        return Streams(self._loop, self._space)

    @property
    def features(self) -> frozenset[str]:
        return self._space.features

    @property
    def position(self) -> Position | None:
        return self._space.position

    @property
    def is_connected(self) -> bool:
        return self._space.is_connected

    @property
    def is_closed(self) -> bool:
        return self._space.is_closed

    @property
    def error(self) -> ConnectionClosed | None:
        return self._space.error

    def __repr__(self) -> str:
        return repr(self._space)

    def stream(self, name: str, *, timeout: float | None = None) -> Stream:
        return Stream(self._loop, self._loop.run(self._space.stream(name, timeout=timeout)))

    def subscribe(
        self, stream: Stream | str | None = None, *, on_slow: OnSlow = "drop-oldest", max_pending: int | None = None
    ) -> Subscription:
        name = stream._stream if isinstance(stream, Stream) else stream
        return Subscription(
            self._loop,
            self._loop.run(begun(lambda: self._space.subscribe(name, on_slow=on_slow, max_pending=max_pending))),
        )

    def events(self, *, max_pending: int = client.MAX_PENDING_EVENTS) -> Events:
        return Events(self._loop, self._loop.call(lambda: self._space.events(max_pending=max_pending)))

    def send(
        self,
        kind: str,
        payload: Any = None,
        *,
        to: str | Sequence[str] | None = None,
        correlation_id: str | Sequence[str] | None = None,
        context: str | None = None,
    ) -> Message:
        return self._loop.run(self._space.send(kind, payload, to=to, correlation_id=correlation_id, context=context))

    def has_sent(self, id: str) -> bool:
        return self._space.has_sent(id)

    def chat(self, text: str, *, to: str | Sequence[str] | None = None) -> Message:
        return self._loop.run(self._space.chat(text, to=to))

    def flush(self) -> None:
        self._loop.run(self._space.flush())

    def wait_closed(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # closed here, by another thread
            self._loop.run(self._space.wait_closed())

    def drain(self) -> None:
        self._finish(self._space.drain)

    def close(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # another thread has closed it
            self._finish(self._space.close)

    def _finish(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            if not self._loop.is_stopping:
                self._loop.run(work())
        finally:
            self._loop.stop()

    def __enter__(self) -> Space:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.drain()
        else:
            self.close()
