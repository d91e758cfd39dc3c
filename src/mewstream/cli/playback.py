"""Playing recorded frames into a live stream, with the pauses that they had."""

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
#: The gateway is asked so often whether it has recorded them.
_FRAMES_PER_FLUSH = 1000

#: Rights, names and policies are the business of the live space; "self" is no name for a field of ours.
_NOT_CARRIED = frozenset(
    {
        *("target", "auto_grant", "scope", "desired_id", "self"),
        *("on_owner_leave", "owner_leave_grace", "on_slow", "validate"),
    }
)


async def open_again(space: Space, recorded: RecordedStream, *, description: str | None) -> Stream:
    """A new stream that is described as the recorded one was, and opened in the same way."""
    opened = recorded.opened
    fields = dict(opened.request) if opened is not None else {}
    fields = {key: value for key, value in fields.items() if key not in _NOT_CARRIED}
    fields["replay_of"] = f"{recorded.space}/{recorded.id}"
    if description is not None:
        fields["description"] = description
    if opened is None or opened.status == "live":
        return await space.open_stream(**fields)
    stream = await space.announce(**fields)
    await stream.start()
    return stream


@dataclass(slots=True)
class Played:
    """How far it has come."""

    sent: int = 0
    confirmed: int = 0
    """Of those, how many the gateway has recorded for sure."""
    doubtful: int = 0
    """Sent when a connection was lost: the gateway may have them or not."""


class Player:
    """``speed`` 2 is twice as fast as it was; 0 is as fast as possible.

    A frame is due at a time that is counted from the first one, so that delays do not add up."""

    def __init__(self, space: Space, stream: Stream, *, speed: float) -> None:
        self._space = space
        self._stream = stream
        self._speed = speed
        self._stop = asyncio.Event()
        self.played = Played()

    def stop(self) -> None:
        """End after the frame that is being sent."""
        self._stop.set()

    async def play(self, frames: Iterator[RecordedFrame], advance: Callable[[int], None]) -> None:
        """Until the end, or until it is stopped. Raises what the gateway refuses. ``advance`` is told the
        bytes of every frame."""
        with self._space.events() as news:
            start: float | None = None
            first_ts = 0
            async for frame in _ahead(frames):
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
                    await self._confirm(news)
            await self._confirm(news)

    async def _wait_until(self, due: float) -> None:
        delay = due - asyncio.get_running_loop().time()
        if delay > 0:
            try:
                async with asyncio.timeout(delay):
                    await self._stop.wait()
            except TimeoutError:
                pass

    async def _confirm(self, news: Events) -> None:
        while True:
            try:
                await self._stream.flush()
                break
            except FramesUnconfirmed:
                continue  # connected again, the space tells how many are in doubt
        while news.pending:
            event = await anext(news)
            if isinstance(event, Resumed):
                self.played.doubtful += event.unconfirmed
        self.played.confirmed = self.played.sent - self.played.doubtful


async def _ahead(frames: Iterator[RecordedFrame]) -> AsyncIterator[RecordedFrame]:
    """Read in a thread, and the next ones while the last ones are sent: reading must not make anything late."""

    def read() -> list[RecordedFrame]:
        return list(itertools.islice(frames, _FRAMES_AT_A_TIME))

    coming = asyncio.create_task(asyncio.to_thread(read))
    try:
        while chunk := await coming:
            coming = asyncio.create_task(asyncio.to_thread(read))
            for frame in chunk:
                yield frame
    finally:
        # A thread cannot be cancelled: it ends with the frames that it is reading.
        await asyncio.wait({coming})
