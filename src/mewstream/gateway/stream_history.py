"""The frames of one stream that somebody may read again: found and encoded in a thread, a portion at a time.

The newest are in memory, older ones in the journal. Whoever reads has a cursor, the ``seq`` up to which it has seen
everything that it may see, and asks for the portion after it. So nothing is kept for a reader that is slow: what it has
not read waits in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from mewstream.gateway.recorder import Recorder
from mewstream.gateway.replay_threads import ReplayThreads
from mewstream.gateway.wsframes import header
from mewstream.io.log_lines import event
from mewstream.journal.errors import JournalError, PositionGone
from mewstream.journal.memory import RecentRecords
from mewstream.protocol import frames
from mewstream.protocol.errors import HistoryGone, JournalUnavailable
from mewstream.protocol.frames import Form
from mewstream.protocol.history_rules import Start, may_see, oldest_readable
from mewstream.protocol.records import Frame, FrameBlock, Record
from mewstream.protocol.render import with_seq
from mewstream.protocol.state import SpaceState, Stream

log = logging.getLogger("mewstream.gateway")

#: What one portion has at most: bytes of messages, and records of the log that are searched for them.
PORTION_BYTES = 128 << 10
PORTION_RECORDS = 20_000
#: The same for frames that are encoded on the event loop, between two of its other tasks.
LAST_BYTES = 64 << 10
LAST_FRAMES = 256

#: Seconds after which a reader looks again whether what it needs was written.
AGAIN_SECONDS = 0.01
#: Records that are searched in one go for frames that are only counted.
_COUNTED_RECORDS = 200_000

T = TypeVar("T")
Encode = Callable[[Frame | FrameBlock], list[bytes]]


class View(NamedTuple):
    """What of a stream one reader may see."""

    stream_id: str
    reader: str
    history: str
    """The policy of the stream."""

    def shows(self, part: Record | FrameBlock) -> bool:
        if not isinstance(part, Frame | FrameBlock) or part.stream_id != self.stream_id:
            return False
        if part.readers is None and part.readers_seq is not None:
            return False  # the set was not looked up, and must not become everyone
        return may_see(self.history, part.readers, self.reader)


class Found(NamedTuple):
    """The frames that a read is about: those above ``after`` and up to ``upto`` that the reader may see."""

    after: int
    upto: int
    frames: int
    last: deque[int] | None
    """The numbers of the newest, if a read asked for a number of them."""

    @classmethod
    def nothing(cls, after: int) -> Found:
        return cls(after, after, 0, None)


class Portion(NamedTuple):
    messages: list[bytes]
    seqs: list[int]
    cursor: int
    """Everything up to here was searched."""


def encoder(form: Form) -> Encode:
    """Returns a function that encodes frames as WebSocket messages."""

    def encode(part: Frame | FrameBlock) -> list[bytes]:
        if isinstance(part, Frame) and part.kind != "frame":
            bodies = [part.data if form is Form.PLAIN else with_seq(part.data, part.seq)]
        else:
            data = part.data if isinstance(part, FrameBlock) else (part.data,)
            bodies = frames.in_form(form, part.stream_id, part.seq, part.sender, part.ts, data)
        return [header(part.opcode, len(body)) + body for body in bodies]

    return encode


class StreamHistory:
    """The history of the streams of one space."""

    def __init__(self, state: SpaceState, recent: RecentRecords, recorder: Recorder, threads: ReplayThreads) -> None:
        self._state = state
        self._recent = recent
        self._recorder = recorder
        self._threads = threads

    # -- finding ----------------------------------------------------------------------------------

    async def find(self, view: View, start: Start, position_at: int) -> Found:
        """Find the frames that a read is about, up to now. ``position_at`` is the last position before the time in
        ``start``, if it has one. Raises :class:`HistoryGone` and :class:`JournalUnavailable`."""
        state = self._state
        stream = state.streams[view.stream_id]
        oldest = oldest_readable(state, stream, view.reader)
        found = Found(oldest, oldest, 0, deque(maxlen=start.last) if start.last is not None else None)
        if start.last is not None:
            return await self._find_last(view, stream, found, start.last)
        begin = position_at if start.micros is not None else 0 if start.seq is None else start.seq - 1
        begin = max(oldest, begin)
        return await self.find_more(view, found._replace(after=begin, upto=begin), is_first=True)

    async def find_more(self, view: View, found: Found, *, is_first: bool = False) -> Found:
        """Count what has come since. Most of it, while more comes, so call it until little is left."""
        while found.upto < self._state.seq:
            upto = self._state.seq
            if is_first:
                found = await self._from_what_is_kept(view, found)
                is_first = False
                continue
            seqs, reached = await self._count(view, found.upto, upto)
            if found.last is not None:
                found.last.extend(seqs)
            found = found._replace(upto=reached, frames=found.frames + len(seqs))
            if reached >= upto and self._state.seq - reached <= PORTION_RECORDS:
                break
        return found

    def rest(self, view: View, found: Found) -> Found:
        """Count what has come up to this very moment. It must be in memory still."""
        seqs = list(_seqs(self._recent.parts_above(found.upto), view, found.upto))
        found = found._replace(upto=self._state.seq, frames=found.frames + len(seqs))
        if found.last is not None:
            found.last.extend(seqs)
            after = found.last[0] - 1 if found.last else self._state.seq
            found = found._replace(after=after, frames=len(found.last))
        return found

    def is_near(self, cursor: int) -> bool:
        """Whether what follows a position is in memory, and little."""
        return self._state.seq - cursor <= PORTION_RECORDS and (
            cursor >= self._state.seq or self._recent.reaches(cursor)
        )

    async def _find_last(self, view: View, stream: Stream, found: Found, last: int) -> Found:
        """Search from the end, in windows that grow until enough is found."""
        end, width = self._state.seq, max(4 * last, 1_000)
        while True:
            begin = max(found.after, end - width)
            seqs: list[int] = []
            try:
                reached = begin
                while reached < end:
                    more, reached = await self._count(view, reached, end)
                    seqs += more
            except PositionGone:
                seqs, reached = await self._count_kept(view, found.after, end)
                begin = found.after
            if len(seqs) >= last or begin <= found.after:
                assert found.last is not None
                found.last.extend(seqs)
                return found._replace(upto=end, frames=len(seqs))
            width *= 4

    async def _count(self, view: View, after: int, upto: int) -> tuple[list[int], int]:
        """The numbers of the visible frames above ``after``, and how far they were searched."""
        if self._recent.reaches(after):
            parts = self._recent.parts_above(after)
            return await self._run(view, lambda: ([seq for seq in _seqs(parts, view, after) if seq <= upto], upto))
        portions = self._recorder.frames(self._state.id, view.stream_id, after, upto, with_data=False)
        if portions is None:
            raise PositionGone("this gateway keeps no journal")
        seqs, reached = await self._run(view, lambda: _count_in(portions, view, after))
        if reached == after:
            await asyncio.sleep(AGAIN_SECONDS)
        return seqs, reached

    async def _count_kept(self, view: View, oldest: int, upto: int) -> tuple[list[int], int]:
        """The same for everything above ``oldest`` that is kept."""
        kept = await self._first_kept(view)
        seqs: list[int] = []
        reached = max(oldest, kept.seq - 1) if kept is not None else upto
        while reached < upto:
            more, reached = await self._count(view, reached, upto)
            seqs += more
        return seqs, upto

    async def _from_what_is_kept(self, view: View, found: Found) -> Found:
        """Begin to count, or raise :class:`HistoryGone` if frames after the beginning are not kept any more."""
        try:
            seqs, reached = await self._count(view, found.after, self._state.seq)
            return found._replace(upto=reached, frames=len(seqs))
        except PositionGone:
            pass
        kept = await self._first_kept(view)
        stream = self._state.streams.get(view.stream_id)
        if kept is None and (stream is None or not stream.frames):
            return found._replace(upto=self._state.seq)
        if kept is not None and kept.stream_seq == 1:
            return found._replace(after=kept.seq - 1, upto=kept.seq - 1)
        first_seq = kept.seq if kept is not None else self._state.seq + 1
        raise HistoryGone(
            f"the frames of {view.stream_id} from there on are not kept any more: the first one has the seq "
            f"{first_seq}",
            stream_id=view.stream_id,
            first_seq=first_seq,
        )

    async def _first_kept(self, view: View) -> Frame | FrameBlock | None:
        """The oldest frame of a stream that is kept, whoever may see it."""
        parts = self._recent.parts_above(0)
        everything = self._recorder.frames(self._state.id, view.stream_id, 0, self._state.seq, with_data=False)

        def find() -> Frame | FrameBlock | None:
            for _, found in everything or ():
                if found:
                    return found[0]
            mine = (part for part in parts if isinstance(part, Frame | FrameBlock))
            return next((part for part in mine if part.stream_id == view.stream_id), None)

        return await self._run(view, find)

    # -- portions ---------------------------------------------------------------------------------

    async def portion(self, view: View, after: int, upto: int, encode: Encode, *, most: int | None = None) -> Portion:
        """The next messages above ``after``, up to ``upto``. ``most`` is how many they are at most. Raises
        :class:`HistoryGone` if they were pruned meanwhile, and :class:`JournalUnavailable`."""
        if self._recent.reaches(after):
            source: Iterator[tuple[int, list[Frame | FrameBlock]]] = _parts(self._recent.parts_above(after), upto)
        else:
            portions = self._recorder.frames(self._state.id, view.stream_id, after, upto)
            if portions is None:
                raise _gone(view, self._recent.first_seq or 0)
            source = portions  # type: ignore[assignment]  # frames are parts too
        try:
            return await self._run(view, lambda: _portion(source, view, after, upto, encode, most))
        except PositionGone:
            raise _gone(view, self._recent.first_seq or 0) from None

    def newest(self, view: View, after: int, encode: Encode) -> list[bytes] | None:
        """Everything after a position at once, or None if that is much or not in memory."""
        if after >= self._state.seq:
            return []
        if not self._recent.reaches(after):
            return None
        parts = self._recent.parts_above(after)
        mine = [part for part in parts if isinstance(part, Frame | FrameBlock) and part.stream_id == view.stream_id]
        count = sum(len(part) if isinstance(part, FrameBlock) else 1 for part in mine)
        if len(parts) > 8 * LAST_FRAMES or count > LAST_FRAMES:
            return None
        messages = [message for part in mine if view.shows(part) for message in encode(_above(part, after))]
        return messages if sum(map(len, messages)) <= LAST_BYTES else None

    async def _run(self, view: View, task: Callable[[], T]) -> T:
        try:
            return await self._threads.reading.run((self._state.id, view.reader), task)
        except PositionGone:
            raise
        except (JournalError, OSError) as flaw:
            log.error(
                "the journal of %s cannot be read: %s",
                self._state.id,
                flaw,
                extra=event("journal_unreadable", space=self._state.id),
            )
            raise JournalUnavailable("the history cannot be read: the log of the gateway says why") from None


def _gone(view: View, first_seq: int) -> HistoryGone:
    text = f"the next frames of {view.stream_id} are not kept any more"
    return HistoryGone(text, stream_id=view.stream_id, first_seq=first_seq)


def _seqs(parts: list[Record | FrameBlock], view: View, after: int) -> Iterator[int]:
    for part in parts:
        if view.shows(part):
            if isinstance(part, FrameBlock):
                yield from range(max(part.seq, after + 1), part.last_seq + 1)
            else:
                yield part.seq


def _count_in(portions: Iterator[tuple[int, list[Frame]]], view: View, after: int) -> tuple[list[int], int]:
    """Runs in a thread, for as long as the reader of a portion would."""
    seqs: list[int] = []
    reached = after
    for reached, found in portions:
        seqs += [frame.seq for frame in found if view.shows(frame)]
        if reached - after >= _COUNTED_RECORDS:
            break
    return seqs, reached


def _parts(parts: list[Record | FrameBlock], upto: int) -> Iterator[tuple[int, list[Frame | FrameBlock]]]:
    for part in parts:
        if part.seq > upto:
            return
        reached = part.last_seq if isinstance(part, FrameBlock) else part.seq
        yield reached, [part] if isinstance(part, Frame | FrameBlock) else []
    yield upto, []


def _portion(
    source: Iterator[tuple[int, list[Frame | FrameBlock]]],
    view: View,
    after: int,
    upto: int,
    encode: Encode,
    most: int | None,
) -> Portion:
    """Runs in a thread."""
    messages: list[bytes] = []
    seqs: list[int] = []
    size, cursor = 0, after
    for reached, found in source:
        for part in found:
            if view.shows(part):
                part = _between(part, after, upto)
                encoded = encode(part)
                messages += encoded
                seqs += range(part.seq, part.seq + len(encoded))
                size += sum(map(len, encoded))
        cursor = reached
        if size >= PORTION_BYTES or cursor - after >= PORTION_RECORDS or (most is not None and len(messages) >= most):
            break
    if most is not None and len(messages) > most:
        messages, seqs = messages[:most], seqs[:most]
        cursor = seqs[-1]
    return Portion(messages, seqs, min(cursor, upto))


def _above(part: Frame | FrameBlock, after: int) -> Frame | FrameBlock:
    return _between(part, after, part.last_seq) if isinstance(part, FrameBlock) else part


def _between(part: Frame | FrameBlock, after: int, upto: int) -> Frame | FrameBlock:
    """A block without the frames up to ``after`` and above ``upto``."""
    if isinstance(part, Frame) or (part.seq > after and part.last_seq <= upto):
        return part
    skipped = max(0, after + 1 - part.seq)
    data = part.data[skipped : upto + 1 - part.seq]
    return msgspec.structs.replace(part, seq=part.seq + skipped, stream_seq=part.stream_seq + skipped, data=data)
