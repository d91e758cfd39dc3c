"""Bounded queues between the connection, which never waits, and one consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from mewstream.client.errors import ConnectionClosed
from mewstream.client.frame import sequence_of
from mewstream.client.messages import Message

T = TypeVar("T")

OnSlow = Literal["drop-oldest", "latest", "pause"]

#: A text frame, a binary one, or a ``stream/data`` envelope.
FrameEntry = bytes | tuple[bytes] | Message

#: How many writers' numbers and how many of their jumps a subscription remembers.
_NUMBERED_WRITERS = 10_000
_JUMPS = 64


class _AfterGap(Generic[T]):
    """An entry, and how many are missing right before it."""

    __slots__ = ("entry", "gap")

    def __init__(self, entry: T, gap: int) -> None:
        self.entry = entry
        self.gap = gap


class BoundedQueue(Generic[T]):
    """``drop-oldest`` forgets the oldest entry when it is full, ``latest`` everything but the newest;
    ``pause`` forgets nothing and asks for a pause instead, by ``hold`` and ``release``."""

    __slots__ = (
        *("_ended", "_error", "_gap_to_come", "_held", "_hold", "_is_awaited", "_limit", "_missed", "_release"),
        *("_room", "_waiter"),
        *("dropped", "entries", "gap", "is_calm", "on_slow"),
    )

    def __init__(
        self,
        limit: int,
        on_slow: OnSlow = "drop-oldest",
        *,
        hold: Callable[[object], None] | None = None,
        release: Callable[[object], None] | None = None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"a queue holds at least 1, not {limit}")
        if on_slow not in ("drop-oldest", "latest", "pause"):
            raise ValueError(f"on_slow is {on_slow!r}: expected 'drop-oldest', 'latest' or 'pause'")
        self.entries: deque[T | _AfterGap[T]] = deque()
        self.on_slow = on_slow
        self.dropped = 0
        """Ever."""
        self.gap = 0
        """How many were missing right before the entry that was taken last."""
        self.is_calm = True
        """Nothing is missing before the entry that is taken next, and nobody is held up."""
        self._missed = 0
        """Dropped before the entry that is taken next."""
        self._gap_to_come = 0
        """Missing before the entry that is put next."""
        self._limit = limit
        self._room = limit
        """The same, and 0 where an entry cannot simply be added."""
        self._waiter: asyncio.Future[None] | None = None
        self._is_awaited = False
        self._ended = False
        self._error: ConnectionClosed | None = None
        self._hold = hold
        self._release = release
        self._held = False

    def put(self, entry: T) -> None:
        entries = self.entries
        if len(entries) < self._room:
            entries.append(entry)
        elif self._ended:
            return
        else:
            self._put_with_care(entry)
        if self._waiter is not None:
            self._wake()

    def _put_with_care(self, entry: T) -> None:
        if len(self.entries) >= self._limit:
            self._overflow()
        if self._gap_to_come:
            self.entries.append(_AfterGap(entry, self._gap_to_come))
            self._gap_to_come = 0
            self._room = self._limit
        else:
            self.entries.append(entry)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def put_gap(self, count: int) -> None:
        """So many are missing between the last entry and the next."""
        self._gap_to_come += max(0, count)
        if self._gap_to_come:
            self._room = 0

    def _overflow(self) -> None:
        self.is_calm = False
        if self.on_slow == "pause":
            # What was read already is still kept: little more than the limit, for reading stops.
            if not self._held and self._hold is not None:
                self._held = True
                self._hold(self)
            return
        for _ in range(len(self.entries) if self.on_slow == "latest" else 1):
            entry = self.entries.popleft()
            self._missed += 1 + (entry.gap if isinstance(entry, _AfterGap) else 0)
            self.dropped += 1

    def end(self, error: ConnectionClosed | None = None) -> None:
        """No more will come; what is here can still be taken."""
        if self._ended:
            return
        self._ended = True
        self._room = 0
        self._error = error
        self._resume()
        self._wake()

    async def wait(self) -> bool:
        """Wait until there is an entry. False at the end."""
        while not self.entries:
            if self._ended:
                if self._error is not None:
                    raise self._error.again()
                return False
            if self._is_awaited:
                raise RuntimeError("only one task at a time may iterate: make a subscription for each")
            self._is_awaited = True
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                self._waiter = None
                self._is_awaited = False
        return True

    def take(self) -> T:
        """The oldest entry; ``gap`` belongs to it."""
        entry = self.entries.popleft()
        if self._held and len(self.entries) <= self._limit // 2:
            self._resume()
        self.gap, self._missed = self._missed, 0
        self.is_calm = not self._held
        if type(entry) is _AfterGap:
            self.gap += entry.gap
            entry = entry.entry
        return entry  # type: ignore[return-value]  # mypy does not narrow by type() is

    def _resume(self) -> None:
        if self._held:
            self._held = False
            if self._release is not None:
                self._release(self)


class FrameQueue(BoundedQueue[FrameEntry]):
    """Knows from the numbers of ``stream/data`` what is missing, and counts nothing twice."""

    __slots__ = ("_jumps", "_sequences")

    def __init__(
        self,
        limit: int,
        on_slow: OnSlow,
        *,
        hold: Callable[[object], None],
        release: Callable[[object], None],
    ) -> None:
        super().__init__(limit, on_slow, hold=hold, release=release)
        self._sequences: dict[tuple[str, str], int] = {}
        self._jumps: deque[tuple[str, int, int]] = deque(maxlen=_JUMPS)
        """Stream, position and size of the latest jumps in the numbers."""

    def put_numbered(self, message: Message) -> None:
        skipped = self._skipped(message)
        if skipped:
            self._jumps.append((message.stream_id, message.seq or 0, skipped))
            # A loss that was told already, if there is one right here, is the same loss.
            self.put_gap(skipped - self._gap_to_come)
        self.put(message)

    def _skipped(self, message: Message) -> int:
        """How many numbers the writer has left out. One that begins anew has not skipped any."""
        sequence = sequence_of(message)
        if sequence is None:
            return 0
        if len(self._sequences) > _NUMBERED_WRITERS:
            self._sequences.clear()
        key = (message.stream_id, message.sender)
        before = self._sequences.get(key)
        self._sequences[key] = sequence
        return max(0, sequence - before - 1) if before is not None else 0

    def put_dropped(self, stream: str, count: int, first_seq: int) -> None:
        """The gateway says, after the fact, that it has dropped frames. Jumps have told of some already."""
        known = sum(jump for where, seq, jump in self._jumps if where == stream and seq > first_seq)
        self._jumps = deque((each for each in self._jumps if each[0] != stream), maxlen=_JUMPS)
        self.put_gap(count - known)
