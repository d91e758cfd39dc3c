"""Playing recorded frames into a live stream, with their original timing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from mewstream.cli.recording import RecordedFrame, RecordedStream
from mewstream.client.errors import FramesUnconfirmed
from mewstream.client.events import Resumed
from mewstream.client.space import Space
from mewstream.client.stream import Stream
from mewstream.client.subscription import Events
from mewstream.protocol.times import SECOND

_FRAMES_AT_A_TIME = 512
#: After this many frames, wait for the gateway to confirm that it has recorded them.
_FRAMES_PER_FLUSH = 1000

#: Fields of the recorded request that are not repeated: rights, names and policies belong to the live space.
_NOT_REPEATED = frozenset(
    {
        *("target", "auto_grant", "scope", "desired_id", "if_exists"),
        *("on_owner_leave", "owner_leave_grace", "on_slow", "validate", "idle_timeout", "history", "priority"),
    }
)


async def open_again(space: Space, recorded: RecordedStream, *, description: str | None) -> Stream:
    """Open a new stream with the description of the recorded one, by request or by announcement as it was."""
    opened = recorded.opened
    fields = dict(opened.request) if opened is not None else {}
    fields = {key: value for key, value in fields.items() if key not in _NOT_REPEATED}
    fields["replay_of"] = f"{recorded.space}/{recorded.id}"
    if description is not None:
        fields["description"] = description
    if opened is None or opened.status == "live":
        return await space.open_stream(fields=fields)
    stream = await space.announce(fields=fields)
    await stream.start()
    return stream


@dataclass(slots=True)
class Played:
    """How many frames were played."""

    sent: int = 0
    confirmed: int = 0
    """Sent frames that the gateway has certainly recorded."""
    unconfirmed: int = 0
    """Frames that were in transit when a connection was lost. The gateway may or may not have recorded them."""


class Player:
    """Plays frames into a stream. ``speed`` 2 is twice as fast as recorded; 0 is as fast as possible.

    The time at which a frame is due is measured from the first one, so that delays do not add up."""

    def __init__(self, space: Space, stream: Stream, *, speed: float) -> None:
        self._space = space
        self._stream = stream
        self._speed = speed
        self._stop = asyncio.Event()
        self.played = Played()

    def stop(self) -> None:
        """Stop after the frame that is being sent."""
        self._stop.set()

    async def play(self, frames: Iterator[RecordedFrame], advance: Callable[[int], None]) -> None:
        """Play until the end or until :meth:`stop`. ``advance`` is called with the size of every frame.

        Raises a PeerError if the gateway refuses a frame."""
        with self._space.events() as events:
            start: float | None = None
            first_ts = 0
            async for frame in _read_ahead(frames):
                if start is None:
                    start, first_ts = asyncio.get_running_loop().time(), frame.ts
                if self._speed:
                    await self._wait_until(start + (frame.ts - first_ts) / SECOND / self._speed)
                if self._stop.is_set():
                    break
                await self._stream.send(frame.data, numbered=frame.is_numbered, format=frame.format_id)
                self.played.sent += 1
                advance(frame.size)
                if self.played.sent % _FRAMES_PER_FLUSH == 0:
                    await self._confirm(events)
            await self._confirm(events)

    async def _wait_until(self, due: float) -> None:
        delay = due - asyncio.get_running_loop().time()
        if delay > 0:
            try:
                async with asyncio.timeout(delay):
                    await self._stop.wait()
            except TimeoutError:
                pass

    async def _confirm(self, events: Events) -> None:
        while True:
            try:
                await self._stream.flush()
                break
            except FramesUnconfirmed:
                continue  # a Resumed event says how many
        while events.pending:
            event = await anext(events)
            if isinstance(event, Resumed):
                self.played.unconfirmed += event.unconfirmed
        self.played.confirmed = self.played.sent - self.played.unconfirmed


async def _read_ahead(frames: Iterator[RecordedFrame]) -> AsyncIterator[RecordedFrame]:
    """Read frames in a thread while earlier ones are sent, so that reading never delays a frame."""

    def read() -> list[RecordedFrame]:
        return list(itertools.islice(frames, _FRAMES_AT_A_TIME))

    coming = asyncio.create_task(asyncio.to_thread(read))
    try:
        while chunk := await coming:
            coming = asyncio.create_task(asyncio.to_thread(read))
            for frame in chunk:
                yield frame
    finally:
        # A thread cannot be cancelled, so wait until it has read its frames.
        await asyncio.wait({coming})
