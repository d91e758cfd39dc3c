"""Who gets which frames and events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mewstream.client.queue import BoundedQueue, FrameQueue
from mewstream.protocol import frames

if TYPE_CHECKING:
    from mewstream.client.errors import ConnectionClosed
    from mewstream.client.events import Event
    from mewstream.client.messages import Message


#: No message begins so.
_NEVER = b"\x00"


class Routes:
    """Queues of frames by stream, and of events. Lists are replaced and never changed, so that whoever
    walks through one is not disturbed."""

    def __init__(self) -> None:
        self._streams: dict[bytes, tuple[FrameQueue, ...]] = {}
        self._everything: tuple[FrameQueue, ...] = ()
        self._awaited: dict[str, tuple[FrameQueue, ...]] = {}
        """By a name that may turn out to be an alias."""
        self._feeds: tuple[BoundedQueue[Event], ...] = ()
        self.hot_head = _NEVER
        """Frames that begin so are for ``hot_queues``: those of one stream come in long runs."""
        self.hot_queues: tuple[FrameQueue, ...] = ()

    # -- coming and going -----------------------------------------------------------------------------

    def add(self, queue: FrameQueue, stream: str | None, *, is_known: bool = True) -> Callable[[], None]:
        """The frames of a stream by its id, or of all. Returns what takes it back."""
        self.forget_run()
        if stream is None:
            self._everything += (queue,)
        else:
            _add(self._streams, stream.encode(), queue)
            if not is_known:
                _add(self._awaited, stream, queue)
        return lambda: self._remove(queue)

    def _remove(self, queue: FrameQueue) -> None:
        self.forget_run()
        self._everything = _without(self._everything, queue)
        _remove(self._streams, queue)
        _remove(self._awaited, queue)
        queue.end()

    def add_feed(self, feed: BoundedQueue[Event]) -> Callable[[], None]:
        self._feeds += (feed,)

        def remove() -> None:
            self._feeds = _without(self._feeds, feed)
            feed.end()

        return remove

    def opened(self, id: str, alias: str | None) -> None:
        """Whoever waits for a stream of this name has found it."""
        self.forget_run()
        self._awaited.pop(id, None)
        queues = self._awaited.pop(alias, ()) if alias is not None and alias != id else ()
        if alias is not None and queues:
            self._streams.pop(alias.encode(), None)
            for queue in queues:
                _add(self._streams, id.encode(), queue)

    def ended(self, id: str) -> None:
        self.forget_run()
        for queue in self._streams.pop(id.encode(), ()):
            queue.end()

    def end(self, error: ConnectionClosed | None) -> None:
        self.forget_run()
        for queues in (*self._streams.values(), self._everything):
            for queue in queues:
                queue.end(error)
        for feed in self._feeds:
            feed.end(error)
        self._streams, self._awaited = {}, {}
        self._everything = self._feeds = ()

    # -- what comes -----------------------------------------------------------------------------------

    def frame(self, message: bytes, is_text: bool, has_positions: bool) -> None:
        """The first raw frame of a run of frames of one stream."""
        prefix = frames.stream_prefix(message, has_positions=has_positions)
        self.hot_head = prefix or _NEVER
        self.hot_queues = self._streams.get(prefix[1:-1], ()) + self._everything
        for queue in self.hot_queues:
            queue.put(message if is_text else (message,))

    def forget_run(self) -> None:
        """Who reads what has changed, or the form of frames."""
        self.hot_head = _NEVER

    def data(self, message: Message) -> None:
        for queue in self._of(message.stream_id):
            queue.put_numbered(message)

    def dropped(self, stream: str, count: int, first_seq: int) -> None:
        for queue in self._of(stream):
            queue.put_dropped(stream, count, first_seq)

    def lost_track(self) -> None:
        """Frames of all streams may be missing; nobody knows how many."""
        for queues in (*self._streams.values(), self._everything):
            for queue in queues:
                queue.put_gap(1)

    def publish(self, events: Sequence[Event]) -> None:
        for feed in self._feeds:
            for event in events:
                feed.put(event)

    def _of(self, stream: str) -> tuple[FrameQueue, ...]:
        return self._streams.get(stream.encode("utf-8", "replace"), ()) + self._everything


def _add(queues: dict[Any, tuple[FrameQueue, ...]], key: Any, queue: FrameQueue) -> None:
    queues[key] = (*queues.get(key, ()), queue)


def _remove(queues: dict[Any, tuple[FrameQueue, ...]], queue: FrameQueue) -> None:
    for key, listed in list(queues.items()):
        if queue in listed:
            left = _without(listed, queue)
            if left:
                queues[key] = left
            else:
                del queues[key]


def _without(queues: tuple[Any, ...], queue: Any) -> tuple[Any, ...]:
    return tuple(each for each in queues if each is not queue)
