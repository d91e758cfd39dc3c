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


class Reading:
    """A subscription that begins with history."""

    def __init__(self, queue: FrameQueue, stream: str, start: Any) -> None:
        self.queue = queue
        self.stream = stream
        self.start = start
        self.after = 0
        """The position of the last frame that it got."""
        self.has_begun = False
        """The gateway has answered, on this connection: frames from now on are for it."""
        self.is_live = False
        """It has got everything that was there before."""
        self.has_ended = False
        """The stream has ended. What is not here yet may still come."""


class Routes:
    """The queues of all subscriptions. Tuples of queues are replaced and never changed, so that a subscription may
    come or go while one is being iterated."""

    def __init__(self) -> None:
        self._streams: dict[bytes, tuple[FrameQueue, ...]] = {}
        self._every_stream: tuple[FrameQueue, ...] = ()
        self._unresolved: dict[str, tuple[FrameQueue, ...]] = {}
        """Subscriptions by a name that may turn out to be an alias."""
        self._readings: dict[bytes, tuple[Reading, ...]] = {}
        self._newest: dict[bytes, int] = {}
        """Of each stream in ``_readings``, the position up to which the other subscriptions have got its frames."""
        self._events: tuple[BoundedQueue[Event], ...] = ()
        self.run_prefix = _NO_PREFIX
        """Frames of one stream come in long runs: those that begin with this are for ``run_queues``."""
        self.run_queues: tuple[FrameQueue, ...] = ()
        self.on_change: Callable[[], None] = lambda: None
        """Called when other streams may be wanted than before."""

    def wanted(self) -> set[str] | None:
        """Return the names of the streams whose frames somebody takes, or None if it is every stream."""
        return None if self._every_stream else {name.decode() for name in (*self._streams, *self._readings)}

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

    def add_reading(self, reading: Reading) -> None:
        self.end_run()
        _add(self._readings, reading.stream.encode(), reading)
        self.on_change()

    def remove_reading(self, reading: Reading) -> None:
        self.end_run()
        _remove(self._readings, reading)
        self.on_change()

    def readings(self) -> list[Reading]:
        return [reading for readings in self._readings.values() for reading in readings]

    def history_begins(self, reading: Reading, to_seq: int) -> None:
        """Note that the frames of a stream up to ``to_seq`` are history. Other subscriptions have got those before."""
        key = reading.stream.encode()
        self._newest[key] = max(self._newest.get(key, 0), to_seq)

    def _frame_of(self, key: bytes, seq: int, put: Callable[[FrameQueue], None]) -> None:
        """Route a frame of a stream whose history somebody reads."""
        if seq > self._newest.get(key, 0):
            self._newest[key] = seq
            for queue in self._streams.get(key, ()) + self._every_stream:
                put(queue)
        for reading in self._readings[key]:
            if reading.has_begun and seq > reading.after:
                reading.after = seq
                put(reading.queue)

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
        for reading in self._readings.get(id.encode(), ()):
            reading.has_ended = True
            if reading.is_live:
                self.remove_reading(reading)
                reading.queue.end()
        if ended:
            self.on_change()

    def end(self, error: ConnectionClosed | None) -> None:
        """End every subscription; with an error, that is what their readers get behind the last entry."""
        self.end_run()
        for queue in self._frame_queues():
            queue.end(error)
        for events in self._events:
            events.end(error)
        self._streams, self._unresolved, self._readings = {}, {}, {}
        self._every_stream = self._events = ()

    # -- what is received -----------------------------------------------------------------------------

    def frame(self, message: bytes, is_text: bool, has_positions: bool) -> None:
        """Route a raw frame, the first of a run."""
        prefix = frames.stream_prefix(message, has_positions=has_positions)
        if self._readings and (key := prefix[1:-1]) in self._readings:
            self._frame_of(key, frames.seq_of(message), lambda queue: queue.put(message if is_text else (message,)))
            self.end_run()
            return
        self.run_prefix = prefix or _NO_PREFIX
        self.run_queues = self._streams.get(prefix[1:-1], ()) + self._every_stream
        for queue in self.run_queues:
            queue.put(message if is_text else (message,))

    def end_run(self) -> None:
        """Look up the route of the next frame again, because subscriptions or the form of frames have changed."""
        self.run_prefix = _NO_PREFIX

    def data(self, message: Message) -> None:
        """Route a ``stream/data`` envelope."""
        if self._readings and (key := message.stream_id.encode()) in self._readings:
            self._frame_of(key, message.seq or 0, lambda queue: queue.put_numbered(message))
            return
        for queue in self._queues_of(message.stream_id):
            queue.put_numbered(message)

    def frames_dropped(self, stream: str, count: int, first_seq: int) -> None:
        """Add the gap of frames that the gateway has dropped, the first of them at ``first_seq``."""
        for queue in self._queues_of(stream):
            queue.put_dropped(stream, count, first_seq)

    def frames_lost(self) -> None:
        """Add a gap of 1 to every subscription, because it is not known how many frames of any stream were lost."""
        for queues in (*self._streams.values(), self._every_stream):  # readings ask for what they have missed
            for queue in queues:
                queue.put_gap(1)

    def publish(self, events: Sequence[Event]) -> None:
        for queue in self._events:
            for event in events:
                queue.put(event)

    def _queues_of(self, stream: str) -> tuple[FrameQueue, ...]:
        return self._streams.get(stream.encode(), ()) + self._every_stream

    def _frame_queues(self) -> list[FrameQueue]:
        others = [queue for queues in (*self._streams.values(), self._every_stream) for queue in queues]
        return others + [reading.queue for reading in self.readings()]


def _add(queues: dict[Any, tuple[Any, ...]], key: Any, queue: Any) -> None:
    queues[key] = (*queues.get(key, ()), queue)


def _remove(queues: dict[Any, tuple[Any, ...]], queue: Any) -> None:
    for key, listed in list(queues.items()):
        queues[key] = _without(listed, queue)
        if not queues[key]:
            del queues[key]


def _without(queues: tuple[Any, ...], queue: Any) -> tuple[Any, ...]:
    return tuple(each for each in queues if each is not queue)
