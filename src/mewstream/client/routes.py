"""Which subscriptions get which frames and events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mewstream.client.queue import BoundedQueue, FrameQueue
from mewstream.protocol import frames

if TYPE_CHECKING:
    from mewstream.client.errors import ConnectionClosed
    from mewstream.client.events import Event
    from mewstream.client.messages import Message

#: A prefix that no message has.
_NO_PREFIX = b"\x00"


class Routes:
    """The queues of all subscriptions. Tuples of queues are replaced and never changed, so that a subscription may
    come or go while one is being iterated."""

    def __init__(self) -> None:
        self._streams: dict[bytes, tuple[FrameQueue, ...]] = {}
        self._every_stream: tuple[FrameQueue, ...] = ()
        self._unresolved: dict[str, tuple[FrameQueue, ...]] = {}
        """Subscriptions by a name that may turn out to be an alias."""
        self._events: tuple[BoundedQueue[Event], ...] = ()
        self.run_prefix = _NO_PREFIX
        """Frames of one stream come in long runs: those that begin with this are for ``run_queues``."""
        self.run_queues: tuple[FrameQueue, ...] = ()
        self.on_change: Callable[[], None] = lambda: None
        """Called when other streams may be wanted than before."""

    def wanted(self) -> set[str] | None:
        """Return the names of the streams whose frames somebody takes, or None if it is every stream."""
        return None if self._every_stream else {name.decode() for name in self._streams}

    # -- subscriptions --------------------------------------------------------------------------------

    def add(self, queue: FrameQueue, stream: str | None, *, is_known: bool = True) -> Callable[[], None]:
        """Route the frames of a stream to the queue, or of every stream if it is None. ``is_known`` says that the
        name is an id and not perhaps an alias. Returns a function that ends the subscription."""
        self.end_run()
        if stream is None:
            self._every_stream += (queue,)
        else:
            _add(self._streams, stream.encode(), queue)
            if not is_known:
                _add(self._unresolved, stream, queue)
        self.on_change()
        return lambda: self._remove(queue)

    def _remove(self, queue: FrameQueue) -> None:
        self.end_run()
        self._every_stream = _without(self._every_stream, queue)
        _remove(self._streams, queue)
        _remove(self._unresolved, queue)
        queue.end()
        self.on_change()

    def add_events(self, queue: BoundedQueue[Event]) -> Callable[[], None]:
        """Route events to the queue. Returns a function that ends the subscription."""
        self._events += (queue,)

        def remove() -> None:
            self._events = _without(self._events, queue)
            queue.end()

        return remove

    def stream_opened(self, id: str, alias: str | None) -> None:
        """Turn subscriptions by this alias into subscriptions of this stream."""
        self.end_run()
        self._unresolved.pop(id, None)
        queues = self._unresolved.pop(alias, ()) if alias is not None and alias != id else ()
        if alias is not None and queues:
            self._streams.pop(alias.encode(), None)
            for queue in queues:
                _add(self._streams, id.encode(), queue)
            self.on_change()

    def stream_ended(self, id: str) -> None:
        """End the subscriptions of a stream, though not those of every stream."""
        self.end_run()
        ended = self._streams.pop(id.encode(), ())
        for queue in ended:
            queue.end()
        if ended:
            self.on_change()

    def end(self, error: ConnectionClosed | None) -> None:
        """End every subscription; with an error, that is what their readers get behind the last entry."""
        self.end_run()
        for queue in self._frame_queues():
            queue.end(error)
        for events in self._events:
            events.end(error)
        self._streams, self._unresolved = {}, {}
        self._every_stream = self._events = ()

    # -- what is received -----------------------------------------------------------------------------

    def frame(self, message: bytes, is_text: bool, has_positions: bool) -> None:
        """Route a raw frame, the first of a run."""
        prefix = frames.stream_prefix(message, has_positions=has_positions)
        self.run_prefix = prefix or _NO_PREFIX
        self.run_queues = self._streams.get(prefix[1:-1], ()) + self._every_stream
        for queue in self.run_queues:
            queue.put(message if is_text else (message,))

    def end_run(self) -> None:
        """Look up the route of the next frame again, because subscriptions or the form of frames have changed."""
        self.run_prefix = _NO_PREFIX

    def data(self, message: Message) -> None:
        """Route a ``stream/data`` envelope."""
        for queue in self._queues_of(message.stream_id):
            queue.put_numbered(message)

    def frames_dropped(self, stream: str, count: int, first_seq: int) -> None:
        """Add the gap of frames that the gateway has dropped, the first of them at ``first_seq``."""
        for queue in self._queues_of(stream):
            queue.put_dropped(stream, count, first_seq)

    def frames_lost(self) -> None:
        """Add a gap of 1 to every subscription, because it is not known how many frames of any stream were lost."""
        for queue in self._frame_queues():
            queue.put_gap(1)

    def publish(self, events: Sequence[Event]) -> None:
        for queue in self._events:
            for event in events:
                queue.put(event)

    def _queues_of(self, stream: str) -> tuple[FrameQueue, ...]:
        return self._streams.get(stream.encode(), ()) + self._every_stream

    def _frame_queues(self) -> list[FrameQueue]:
        return [queue for queues in (*self._streams.values(), self._every_stream) for queue in queues]


def _add(queues: dict[Any, tuple[FrameQueue, ...]], key: Any, queue: FrameQueue) -> None:
    queues[key] = (*queues.get(key, ()), queue)


def _remove(queues: dict[Any, tuple[FrameQueue, ...]], queue: FrameQueue) -> None:
    for key, listed in list(queues.items()):
        queues[key] = _without(listed, queue)
        if not queues[key]:
            del queues[key]


def _without(queues: tuple[Any, ...], queue: Any) -> tuple[Any, ...]:
    return tuple(each for each in queues if each is not queue)
