"""Bounded queues between the connection, which never waits, and one reader each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal, NamedTuple, TypeVar

from mewstream.client.errors import ConnectionClosed
from mewstream.client.frame import sequence_of
from mewstream.client.messages import Message
from mewstream.protocol.errors import MewError

T = TypeVar("T")

OnSlow = Literal["drop-oldest", "latest", "pause"]
Hold = Callable[[object], None]

#: A text frame, a binary one, or a ``stream/data`` envelope.
FrameEntry = bytes | tuple[bytes] | Message

#: How many writers' sequence numbers a subscription remembers, and how many of the jumps in them.
_NUMBERED_WRITERS = 10_000
_JUMPS = 64


class _AfterGap(NamedTuple, Generic[T]):
    """An entry, and how many are missing right before it."""

    entry: T
    gap: int


class BoundedQueue(Generic[T]):
    """A full queue with ``drop-oldest`` drops its oldest entry, with ``latest`` everything but the newest. With
    ``pause`` it drops nothing, calls ``hold`` with itself, and ``release`` when it is half empty again."""

    __slots__ = (
        *("_ended", "_error", "_fast_limit", "_gap_after", "_gap_before", "_held", "_hold", "_is_awaited", "_limit"),
        *("_release", "_waiter"),
        *("dropped", "entries", "gap", "is_simple", "on_slow"),
    )

    def __init__(
        self,
        limit: int,
        on_slow: OnSlow = "drop-oldest",
        *,
        hold: Hold | None = None,
        release: Hold | None = None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"a queue holds at least 1, not {limit}")
        if on_slow not in ("drop-oldest", "latest", "pause"):
            raise ValueError(f"on_slow is {on_slow!r}: expected 'drop-oldest', 'latest' or 'pause'")
        self.entries: deque[T | _AfterGap[T]] = deque()
        self.on_slow = on_slow
        self.dropped = 0
        """How many entries were dropped in all."""
        self.gap = 0
        """How many entries are missing right before the one that was taken last."""
        self.is_simple = True
        """Whether the next entry may be taken without :meth:`take`: no gap before it, and reading is not paused."""
        self._gap_before = 0
        """How many were dropped before the entry that is taken next."""
        self._gap_after = 0
        """How many are missing between the newest entry and the next one."""
        self._limit = limit
        self._fast_limit = limit
        """The limit, or 0 while :meth:`put` must do more than append."""
        self._waiter: asyncio.Future[None] | None = None
        self._is_awaited = False
        self._ended = False
        self._error: MewError | None = None
        self._hold = hold
        self._release = release
        self._held = False

    def put(self, entry: T) -> None:
        """Add an entry, and drop others or pause if there is no room. A queue that has ended ignores it."""
        entries = self.entries
        if len(entries) < self._fast_limit:
            entries.append(entry)
        elif self._ended:
            return
        else:
            self._put_slowly(entry)
        if self._waiter is not None:
            self._wake()

    def _put_slowly(self, entry: T) -> None:
        if len(self.entries) >= self._limit:
            self._overflow()
        if self._gap_after:
            self.entries.append(_AfterGap(entry, self._gap_after))
            self._gap_after = 0
            self._fast_limit = self._limit
        else:
            self.entries.append(entry)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def put_gap(self, count: int) -> None:
        """Note that ``count`` entries are missing between the newest entry and the next one."""
        self._gap_after += max(0, count)
        if self._gap_after:
            self._fast_limit = 0

    def _overflow(self) -> None:
        self.is_simple = False
        if self.on_slow == "pause":
            # What has been read already is kept: little more than the limit, for reading stops.
            if not self._held and self._hold is not None:
                self._held = True
                self._hold(self)
            return
        for _ in range(len(self.entries) if self.on_slow == "latest" else 1):
            entry = self.entries.popleft()
            self._gap_before += 1 + (entry.gap if isinstance(entry, _AfterGap) else 0)
            self.dropped += 1

    def end(self, error: MewError | None = None) -> None:
        """Accept no more entries. Those in the queue can still be taken; after them, :meth:`wait` raises ``error``."""
        if self._ended:
            return
        self._ended = True
        self._fast_limit = 0
        self._error = error
        self._release_reading()
        self._wake()

    async def wait(self) -> bool:
        """Wait for an entry. Returns False, or raises the error of :meth:`end`, if none will come. Raises
        RuntimeError if another task waits already."""
        while not self.entries:
            if self._ended:
                if self._error is not None:
                    raise self._error.again() if isinstance(self._error, ConnectionClosed) else self._error
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
        """Remove and return the oldest entry, and set ``gap`` to what is missing before it."""
        entry = self.entries.popleft()
        if self._held and len(self.entries) <= self._limit // 2:
            self._release_reading()
        self.gap, self._gap_before = self._gap_before, 0
        self.is_simple = not self._held
        if type(entry) is _AfterGap:
            self.gap += entry.gap
            entry = entry.entry
        return entry  # type: ignore[return-value]  # mypy does not narrow by type() is

    def _release_reading(self) -> None:
        if self._held:
            self._held = False
            if self._release is not None:
                self._release(self)


class FrameQueue(BoundedQueue[FrameEntry]):
    """A queue of frames. It sees from the sequence numbers of ``stream/data`` how many are missing, and counts none
    of them twice if the gateway reports them too."""

    __slots__ = ("_jumps", "_sequences")

    def __init__(self, limit: int, on_slow: OnSlow, *, hold: Hold, release: Hold) -> None:
        super().__init__(limit, on_slow, hold=hold, release=release)
        self._sequences: dict[tuple[str, str], int] = {}
        self._jumps: deque[tuple[str, int, int]] = deque(maxlen=_JUMPS)
        """Stream, position and size of the latest jumps in the sequence numbers."""

    def put_numbered(self, message: Message) -> None:
        """Add a ``stream/data`` envelope, behind a gap if its sequence number has jumped."""
        skipped = self._skipped(message)
        if skipped:
            self._jumps.append((message.stream_id, message.seq or 0, skipped))
            # A gap that is known already, if there is one right here, is the same gap.
            self.put_gap(skipped - self._gap_after)
        self.put(message)

    def _skipped(self, message: Message) -> int:
        """Return how many numbers are missing before this one. A writer that starts again has skipped none."""
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
        """Add a gap for frames that the gateway reports as dropped, but for those that were seen as jumps before."""
        known = sum(jump for where, seq, jump in self._jumps if where == stream and seq > first_seq)
        self._jumps = deque((each for each in self._jumps if each[0] != stream), maxlen=_JUMPS)
        self.put_gap(count - known)
