"""Reading from streams and from a space, by ``async for``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mewstream.client.frame import Frame, from_message, from_wire, sequence_of
from mewstream.client.messages import Message
from mewstream.client.queue import BoundedQueue

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from mewstream.client.events import Event

#: A raw frame (is it text, does it have a position), an envelope, or how many frames are missing here.
Entry = tuple[bytes, bool, bool] | Message | int


class _Feed:
    """What subscriptions of frames and of events have in common."""

    _detach: Callable[[], None]

    @property
    def pending(self) -> int:
        """How many wait to be taken."""
        raise NotImplementedError

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
        # A loop that was left by `break` must not go on collecting.
        self._detach()


class Subscription(_Feed):
    """The frames of one stream, or of all. Ends when the stream ends, or the connection for good."""

    def __init__(self, queue: BoundedQueue[Entry], detach: Callable[[], None]) -> None:
        self._queue = queue
        self._detach = detach
        self._sequences: dict[tuple[str, str], int] = {}

    @property
    def pending(self) -> int:
        return len(self._queue.entries)

    @property
    def dropped(self) -> int:
        """How many frames were forgotten because this reader was too slow."""
        return self._queue.dropped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        queue = self._queue
        while queue.entries or await queue.wait():
            missed, queue.missed = queue.missed, 0
            entry = queue.take()
            if type(entry) is tuple:
                return from_wire(*entry, missed)
            if isinstance(entry, Message):
                # What was dropped here is skipped in the numbers too.
                return from_message(entry, max(missed, self._skipped(entry)))
            assert isinstance(entry, int)
            queue.missed += missed + entry
        raise StopAsyncIteration

    def _skipped(self, message: Message) -> int:
        """How many numbers the writer has left out. One that begins anew has not skipped any."""
        sequence = sequence_of(message)
        if sequence is None:
            return 0
        key = (message.stream_id, message.sender)
        before = self._sequences.get(key)
        self._sequences[key] = sequence
        return max(0, sequence - before - 1) if before is not None else 0


class Events(_Feed):
    """Everything but frames, as typed events."""

    def __init__(self, queue: BoundedQueue[Event], detach: Callable[[], None]) -> None:
        self._queue = queue
        self._detach = detach

    @property
    def pending(self) -> int:
        return len(self._queue.entries)

    @property
    def dropped(self) -> int:
        """How many events were forgotten because this reader was too slow."""
        return self._queue.dropped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        queue = self._queue
        if queue.entries or await queue.wait():
            return queue.take()
        raise StopAsyncIteration
