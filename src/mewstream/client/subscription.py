"""Reading from streams and from a space, by ``async for``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, cast

from mewstream.client.frame import Frame, from_message, sequence_of
from mewstream.client.messages import Message
from mewstream.client.queue import BoundedQueue, Missing

if TYPE_CHECKING:
    from types import AsyncGeneratorType, TracebackType
    from typing import Self

    from mewstream.client.events import Event

#: A text frame, a binary one, or an envelope.
Entry = bytes | tuple[bytes] | Message


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
        self._frames: AsyncGeneratorType[Frame, None] | None = None

    @property
    def pending(self) -> int:
        return len(self._queue.entries)

    @property
    def dropped(self) -> int:
        """How many frames were forgotten because this reader was too slow."""
        return self._queue.dropped

    def __aiter__(self) -> AsyncIterator[Frame]:
        # A generator that was cancelled while it waited is over, the subscription is not.
        if self._frames is None or self._frames.ag_frame is None:
            self._frames = cast("AsyncGeneratorType[Frame, None]", _frames(self._queue, self._sequences))
        return self._frames

    async def __anext__(self) -> Frame:
        return await self.__aiter__().__anext__()


async def _frames(queue: BoundedQueue[Entry], sequences: dict[tuple[str, str], int]) -> AsyncGenerator[Frame, None]:
    """The hot path: a generator keeps its names, where a method would look them up for each frame."""
    entries = queue.entries
    take = queue.take if queue.on_slow == "pause" else entries.popleft
    while entries or await queue.wait():
        entry = take()
        if type(entry) is bytes and not queue.missed:
            yield Frame(entry)
            continue
        missed, queue.missed = queue.missed, 0
        if type(entry) is bytes:
            yield Frame(entry, True, missed)
        elif isinstance(entry, Missing):
            queue.missed = missed + entry.count
        elif isinstance(entry, Message):
            # What was dropped here is skipped in the numbers too.
            yield from_message(entry, max(missed, _skipped(entry, sequences)))
        else:
            yield Frame(cast("tuple[bytes]", entry)[0], False, missed)


def _skipped(message: Message, sequences: dict[tuple[str, str], int]) -> int:
    """How many numbers the writer has left out. One that begins anew has not skipped any."""
    sequence = sequence_of(message)
    if sequence is None:
        return 0
    key = (message.stream_id, message.sender)
    before = sequences.get(key)
    sequences[key] = sequence
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
        while queue.entries or await queue.wait():
            event = queue.take()
            if not isinstance(event, Missing):
                return event
        raise StopAsyncIteration
