"""Replay: what a participant would have received before, from memory or from the journal.

It serves two requests. A client that joins with ``resume`` gets its backlog: every message it has missed, in order and
exactly once, or a clear answer why not. A client that polls over HTTP gets pages of messages.

A position is (epoch, seq). It is valid as long as the log knows that run of the gateway and still has everything after
that seq. A run that was killed may have sent a few frames that it had not written. A client that has seen those cannot
resume.

The newest records are in memory. Older ones are read, filtered and rendered in threads (:mod:`.replay_threads`),
because that takes a while and concerns one participant only.
"""

from __future__ import annotations

import bisect
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from mewstream.gateway.recorder import Recorder
from mewstream.gateway.replay_threads import ReplayThreads
from mewstream.gateway.wsframes import header
from mewstream.io.log_lines import event
from mewstream.journal.errors import JournalError, PositionGone
from mewstream.journal.interface import Entry
from mewstream.journal.memory import RecentRecords
from mewstream.protocol import frames
from mewstream.protocol.errors import InvalidRequest, JournalUnavailable
from mewstream.protocol.frames import Form
from mewstream.protocol.history_rules import is_reader
from mewstream.protocol.interest import InterestForgotten
from mewstream.protocol.interest_state import PastInterest, remembered_since
from mewstream.protocol.position import Position
from mewstream.protocol.records import EnvelopeAccepted, Frame, Record
from mewstream.protocol.render import needs_extensions, render, visible_to, with_seq
from mewstream.protocol.state import SpaceState

log = logging.getLogger("mewstream.gateway")

#: Records that are read for each message that a participant asks for, because it may not see all of them.
_RECORDS_PER_MESSAGE = 4
#: Bytes of records that are read for one page over HTTP, and bytes of messages that it may hold.
MAX_PAGE_BYTES = 4 << 20
#: Replayed messages that are handed to the fan-out together, so that many small ones cost little.
CHUNK_MESSAGES = 256
#: Never sent: the connection is gone.
_CLOSED = "the connection is closed"


class ResumeRefused(Exception):
    """There is no replay, for this reason. The client has to start from its welcome alone."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Replayed(NamedTuple):
    """A message that is sent again, in the form for clients that asked for positions."""

    seq: int
    opcode: int
    body: bytes


class Backlog(NamedTuple):
    """What a participant has missed between two positions. Everything later is still in memory."""

    after: int
    upto: int
    messages: list[Replayed]


class Viewer:
    """Filters records for one participant. Consecutive frames mostly have the same reader set, which may be large, so
    it is searched once for all of them."""

    def __init__(self, participant: str, interest: PastInterest, *, knows_extensions: bool = True) -> None:
        """``interest`` is what held before the first record that is shown."""
        self.participant = participant
        self._interest = interest
        self._knows_extensions = knows_extensions
        self._readers: tuple[str, ...] | None = None
        self._is_reader = False

    def sees(self, record: Record) -> bool:
        """Whether a record's message was for this participant, connected or not."""
        if type(record) is not Frame:
            self._interest.follow(record)
            if not self._knows_extensions and needs_extensions(record):
                return False
            return visible_to(record, self.participant)
        if record.readers is None:
            return visible_to(record, self.participant) and self._interest.wants(record.stream_id)
        if record.readers is not self._readers:
            self._readers = record.readers
            self._is_reader = visible_to(record, self.participant)
        return self._is_reader and self._interest.wants(record.stream_id)


class PollingViewer(Viewer):
    """Filters records for a participant that polls, which sees of a stream what its policy lets readers read."""

    def __init__(self, participant: str, state: SpaceState, interest: PastInterest) -> None:
        super().__init__(participant, interest, knows_extensions=state.knows_extensions(participant))
        self._state = state

    def sees(self, record: Record) -> bool:
        if isinstance(record, Frame):
            stream = self._state.streams.get(record.stream_id)
            if stream is None:
                if self._state.is_history_hidden(record.stream_id):
                    return False
            elif stream.policy.history == "none" or not is_reader(stream, self.participant):
                return False
            elif stream.policy.history == "all":
                return self._interest.wants(record.stream_id)
        return super().sees(record)


class Epochs:
    """The runs of the gateway that a log knew at one moment."""

    def __init__(self, state: SpaceState) -> None:
        runs = sorted((first, epoch) for epoch, first in state.epochs.items())
        self._firsts = [first for first, _ in runs]
        self._names = [epoch for _, epoch in runs]
        self._current = state.epoch

    def at(self, seq: int) -> str:
        """The run that wrote a record."""
        place = bisect.bisect_right(self._firsts, seq)
        return self._names[place - 1] if place else self._current


def resume_after(state: SpaceState, participant: str, resume: Position) -> int:
    """The seq after which a participant has missed messages. Raises :class:`ResumeRefused`."""
    if resume.epoch not in state.epochs:
        raise ResumeRefused("the position is of another journal, or of a run that is forgotten")
    end = min((first - 1 for first in state.epochs.values() if first > state.epochs[resume.epoch]), default=state.seq)
    if resume.seq > end:
        raise ResumeRefused(f"the log of that run ends at {end}: what came after it did not survive")
    first_join = state.first_joins.get(participant)
    if first_join is None:
        raise ResumeRefused("you have not been in this space before")
    after, limit = max(resume.seq, first_join), state.limits.resume_records
    if state.seq - after > limit:
        raise ResumeRefused(f"{state.seq - after} records were missed, at most {limit} are sent again")
    return after


def replay_record(
    space: str, epochs: Epochs, record: Record, viewer: Viewer, form: Form = Form.POSITIONS
) -> Replayed | None:
    """The message of a record for a participant, or None if it has none for that participant."""
    if not viewer.sees(record):
        return None
    if isinstance(record, Frame) and record.kind == "frame":
        [body] = frames.in_form(form, record.stream_id, record.seq, record.sender, record.ts, [record.data])
        return Replayed(record.seq, record.opcode, body)
    rendered = render(space, epochs.at(record.seq), record)
    return None if rendered is None else Replayed(record.seq, frames.TEXT, with_seq(rendered, record.seq))


def chunks(messages: list[Replayed]) -> Iterator[tuple[bytes, int]]:
    """The bytes of consecutive WebSocket messages, with the seq of the last of each chunk."""
    for start in range(0, len(messages), CHUNK_MESSAGES):
        chunk = messages[start : start + CHUNK_MESSAGES]
        yield b"".join(header(each.opcode, len(each.body)) + each.body for each in chunk), chunk[-1].seq


class Replay:
    """The records of one space, for participants that were not connected or that poll."""

    def __init__(self, state: SpaceState, recent: RecentRecords, recorder: Recorder, threads: ReplayThreads) -> None:
        """``recent`` holds the newest records; the space appends to it."""
        self._state = state
        self._space = state.id
        self._recorder = recorder
        self._threads = threads
        self._recent = recent

    # -- resuming ---------------------------------------------------------------------------------

    async def backlog(
        self, participant: str, resume: Position, is_wanted: Callable[[], bool], form: Form = Form.POSITIONS
    ) -> Backlog | ResumeRefused:
        """What a participant has missed. ``is_wanted`` says, in a thread too, whether its connection is still there."""
        state = self._state
        limits = state.limits.resume_records, state.delivery.queue_bytes
        try:
            after = resume_after(state, participant, resume)
            if self._recent.reaches(after):
                return Backlog(after, after, [])
            entries = self._recorder.read(self._space, after)
            if entries is None:
                return ResumeRefused("the position is too old: this gateway keeps no journal")
            viewer, epochs = Viewer(participant, PastInterest(state, participant, after)), Epochs(state)
            return await self._threads.resuming.run(
                (self._space, participant),
                lambda: self._read_backlog(entries, after, viewer, epochs, *limits, is_wanted, form),
            )
        except ResumeRefused as no:
            return no
        except InterestForgotten as forgotten:
            return ResumeRefused(str(forgotten))
        except PositionGone as gone:
            return ResumeRefused(f"the position is too old: {gone}")
        except (JournalError, OSError) as flaw:
            # The error may name files, which only the operator should see.
            log.error(
                "the backlog of %s in %s cannot be read: %s",
                participant,
                self._space,
                flaw,
                extra=event("journal_unreadable", space=self._space, participant=participant),
            )
            return ResumeRefused("the journal could not be read")

    def _read_backlog(
        self,
        entries: Iterable[Entry],
        after: int,
        viewer: Viewer,
        epochs: Epochs,
        most_records: int,
        most_bytes: int,
        is_wanted: Callable[[], bool],
        form: Form,
    ) -> Backlog:
        """Runs in a thread. Records that the viewer may not see count too, or much would be read to send little."""
        messages: list[Replayed] = []
        upto, size = after, 0
        for entry in itertools.islice(entries, most_records):
            if not is_wanted():
                raise ResumeRefused(_CLOSED)
            upto = entry.record.seq
            size += entry.size
            if size > most_bytes:
                raise ResumeRefused(f"more than {most_bytes} bytes were missed")
            message = replay_record(self._space, epochs, entry.record, viewer, form)
            if message is not None:
                messages.append(message)
        return Backlog(after, upto, messages)

    def complete(
        self, participant: str, backlog: Backlog, form: Form = Form.POSITIONS
    ) -> list[Replayed] | ResumeRefused:
        """All messages of a backlog, with those since it was read. They end at the current seq."""
        if not self._recent.reaches(backlog.upto):
            return ResumeRefused("the log moved on too fast to be read")
        try:
            interest = PastInterest(self._state, participant, backlog.upto)
        except InterestForgotten as forgotten:
            return ResumeRefused(str(forgotten))
        viewer, epochs = Viewer(participant, interest), Epochs(self._state)
        messages = backlog.messages + [
            message
            for record in self._recent.read(backlog.upto)
            if (message := replay_record(self._space, epochs, record, viewer, form)) is not None
        ]
        most = self._state.delivery.queue_bytes * 3 // 4
        if sum(len(message.body) for message in messages) > most:
            return ResumeRefused(f"more than {most} bytes were missed")
        return messages

    # -- polling ----------------------------------------------------------------------------------

    async def messages_since(
        self, participant: str, after: int, limit: int, *, from_memory: bool
    ) -> tuple[list[bytes], int]:
        """A page of messages, and the position at its end. ``after`` 0 means everything that is left since the first
        join of the participant. Nothing from before that join is ever shown."""
        state = self._state
        begin = max(after, state.first_joins.get(participant, state.seq))
        if after == 0:
            begin = max(begin, remembered_since(state, participant))
        try:
            interest = PastInterest(state, participant, begin)
        except InterestForgotten as forgotten:
            raise InvalidRequest(f"{forgotten}: ask for messages since {forgotten.since}") from None
        most = _RECORDS_PER_MESSAGE * limit
        entries = self._entries_above(begin, most, from_memory, is_from_start=after == 0)
        viewer, epochs = PollingViewer(participant, state, interest), Epochs(state)
        try:
            return await self._threads.polling.run(
                (self._space, participant), lambda: self._page(entries, begin, limit, viewer, epochs)
            )
        except PositionGone as gone:
            raise InvalidRequest(f"what came after that is not kept any more: {gone}") from None
        except (JournalError, OSError) as flaw:
            log.error(
                "the journal of %s cannot be read: %s",
                self._space,
                flaw,
                extra=event("journal_unreadable", space=self._space),
            )
            raise JournalUnavailable("what came after that cannot be read: the log of the gateway says why") from None

    def _entries_above(self, after: int, most: int, from_memory: bool, *, is_from_start: bool) -> Iterator[Entry]:
        if not (from_memory and self._recent.reaches(after)):
            entries = self._recorder.read(self._space, after)
            everything = self._recorder.read(self._space, 0)
            if entries is not None and everything is not None:
                return itertools.islice(_or_else(entries, everything) if is_from_start else entries, most)
        # A copy, because the window in memory moves on while a thread reads.
        recent = list(itertools.islice(self._recent.read(after), most))
        return (Entry(0, self._space, "", record, _size(record)) for record in recent)

    def _page(
        self, entries: Iterator[Entry], after: int, limit: int, viewer: Viewer, epochs: Epochs
    ) -> tuple[list[bytes], int]:
        """Runs in a thread."""
        messages: list[bytes] = []
        seq, read_bytes, page_bytes = after, 0, 0
        for entry in entries:
            record = entry.record
            seq = record.seq
            read_bytes += entry.size
            if viewer.sees(record):
                body = render(self._space, epochs.at(seq), record)
                if body is None and isinstance(record, Frame):
                    body = frames.as_json(record.stream_id, record.sender, record.data, record.opcode)
                if body is not None:
                    messages.append(with_seq(body, seq))
                    page_bytes += len(body)
            if len(messages) >= limit or max(read_bytes, page_bytes) >= MAX_PAGE_BYTES:
                break
        return messages, seq

    async def position_at(self, participant: str, micros: int) -> int:
        """The last position before a time."""
        found = self._recent.seq_before(micros)
        if found is not None:
            return found
        reader = (self._space, participant)
        try:
            return await self._threads.polling.run(reader, lambda: self._recorder.seq_before(self._space, micros))
        except (JournalError, OSError) as flaw:
            log.error(
                "the journal of %s cannot be read: %s",
                self._space,
                flaw,
                extra=event("journal_unreadable", space=self._space),
            )
            raise JournalUnavailable("that time cannot be found: the log of the gateway says why") from None


def _or_else(entries: Iterator[Entry], others: Iterator[Entry]) -> Iterator[Entry]:
    """``entries``, or the others if the first of these was pruned."""
    try:
        yield from entries
    except PositionGone:
        yield from others


def _size(record: Record) -> int:
    return len(record.data) if isinstance(record, Frame | EnvelopeAccepted) else 0
