"""What has happened in a space: the newest records from memory, older ones from the journal.

What a participant is told of it is chosen and made beside the loop (:mod:`.history_reads`): it takes a while, and is
nobody's business but the one's who asked.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator

from mewstream.gateway.history_reads import HistoryReads
from mewstream.gateway.joining import Resume
from mewstream.gateway.recorder import Recorder
from mewstream.gateway.resume import CannotResume, Epochs, Missed, Told, Viewer, position, tell_again
from mewstream.journal.errors import JournalError, PositionGone
from mewstream.journal.memory import RecentRecords
from mewstream.journal.schema import Entry
from mewstream.protocol import frames
from mewstream.protocol.errors import InvalidRequest, JournalUnavailable
from mewstream.protocol.records import EnvelopeAccepted, Frame, FrameBlock, Record
from mewstream.protocol.render import render, with_seq
from mewstream.protocol.state import SpaceState

log = logging.getLogger("mewstream.gateway")

#: A reader that may see little of what it reads is given so many records for each message it asks for.
_RECORDS_PER_MESSAGE = 4
#: One page of history over HTTP: its reader asks again from where it ends. So much is looked at, and so much is told.
MAX_PAGE_BYTES = 4 << 20
_NOBODY = "nobody waits for it any more"


class Past:
    def __init__(self, space: str, recorder: Recorder, reads: HistoryReads) -> None:
        self._space = space
        self._recorder = recorder
        self._reads = reads
        self._recent = RecentRecords()

    def append(self, record: Record, size: int) -> None:
        """``size`` is what the recorder said of it."""
        self._recent.append(record, size)

    def extend(self, block: FrameBlock, data_bytes: int) -> None:
        self._recent.extend(block, data_bytes)

    def reaches(self, after: int) -> bool:
        """Whether everything above a position is in memory."""
        return self._recent.reaches(after)

    def read(self, after: int) -> Iterator[Record]:
        """Records above a position, from memory."""
        return self._recent.read(after)

    # -- for those who come back ------------------------------------------------------------------

    async def missed(
        self, state: SpaceState, participant: str, resume: Resume, is_wanted: Callable[[], bool]
    ) -> Missed | CannotResume:
        """``is_wanted`` says, in a thread too, whether anybody still waits for it."""
        limits = state.limits.resume_records, state.delivery.queue_bytes
        try:
            after = position(state, participant, resume, limits[0])
            if self._recent.reaches(after):
                return Missed(after, after, [])
            entries = self._recorder.history(self._space, after)
            if entries is None:
                return CannotResume("the position is too old: this gateway keeps no journal")
            viewer, epochs = Viewer(participant), Epochs(state)
            return await self._reads.resuming.run(
                (self._space, participant),
                lambda: self._tell_missed(entries, after, viewer, epochs, *limits, is_wanted),
            )
        except CannotResume as no:
            return no
        except PositionGone as gone:
            return CannotResume(f"the position is too old: {gone}")
        except (JournalError, OSError) as flaw:
            # Where files are is nobody's business but the operator's.
            log.error("what %s has missed in %s cannot be read: %s", participant, self._space, flaw)
            return CannotResume("the journal could not be read")

    def _tell_missed(
        self,
        entries: Iterable[Entry],
        after: int,
        viewer: Viewer,
        epochs: Epochs,
        most_records: int,
        most_bytes: int,
        is_wanted: Callable[[], bool],
    ) -> Missed:
        """In a thread. All that anybody was told counts, or much would be read to tell little."""
        told: list[Told] = []
        upto, size = after, 0
        for entry in itertools.islice(entries, most_records):
            if not is_wanted():
                raise CannotResume(_NOBODY)
            upto = entry.record.seq
            size += entry.size
            if size > most_bytes:
                raise CannotResume(f"more than {most_bytes} bytes were missed")
            message = tell_again(self._space, epochs, entry.record, viewer)
            if message is not None:
                told.append(message)
        return Missed(after, upto, told)

    # -- for those who ask ------------------------------------------------------------------------

    async def messages_since(
        self, state: SpaceState, participant: str, after: int, limit: int, *, from_memory: bool
    ) -> tuple[list[bytes], int]:
        """``after`` 0: from the participant's first join on, or what there is since then. Nothing from before that
        join is ever told."""
        begin = max(after, state.first_joins.get(participant, state.seq))
        most = _RECORDS_PER_MESSAGE * limit
        entries = self._entries_above(begin, most, from_memory, is_from_start=after == 0)
        viewer, epochs = Viewer(participant), Epochs(state)
        try:
            return await self._reads.polling.run(
                (self._space, participant), lambda: self._page(entries, begin, limit, viewer, epochs)
            )
        except PositionGone as gone:
            raise InvalidRequest(f"what came after that is not kept any more: {gone}") from None
        except (JournalError, OSError) as flaw:
            log.error("the past of %s cannot be read: %s", self._space, flaw)
            raise JournalUnavailable("what came after that cannot be read: the log of the gateway says why") from None

    def _entries_above(self, after: int, most: int, from_memory: bool, *, is_from_start: bool) -> Iterator[Entry]:
        if not (from_memory and self._recent.reaches(after)):
            entries = self._recorder.history(self._space, after)
            what_there_is = self._recorder.history(self._space, 0)
            if entries is not None and what_there_is is not None:
                return itertools.islice(_or_else(entries, what_there_is) if is_from_start else entries, most)
        # What is there now: the window moves on meanwhile.
        recent = list(itertools.islice(self._recent.read(after), most))
        return (Entry(0, self._space, "", record, _size(record)) for record in recent)

    def _page(
        self, entries: Iterator[Entry], after: int, limit: int, viewer: Viewer, epochs: Epochs
    ) -> tuple[list[bytes], int]:
        """In a thread."""
        messages: list[bytes] = []
        seq, looked_at, told = after, 0, 0
        for entry in entries:
            record = entry.record
            seq = record.seq
            looked_at += entry.size
            if viewer.sees(record):
                body = render(self._space, epochs.at(seq), record)
                if body is None and isinstance(record, Frame):
                    body = frames.as_json(record.stream_id, record.sender, record.data, record.opcode)
                if body is not None:
                    messages.append(with_seq(body, seq))
                    told += len(body)
            if len(messages) >= limit or max(looked_at, told) >= MAX_PAGE_BYTES:
                break
        return messages, seq

    async def position_at(self, participant: str, micros: int) -> int:
        """The last position before a time."""
        found = self._recent.seq_before(micros)
        if found is not None:
            return found
        reader = (self._space, participant)
        try:
            return await self._reads.polling.run(reader, lambda: self._recorder.seq_before(self._space, micros))
        except (JournalError, OSError) as flaw:
            log.error("the past of %s cannot be read: %s", self._space, flaw)
            raise JournalUnavailable("that time cannot be found: the log of the gateway says why") from None


def _or_else(entries: Iterator[Entry], others: Iterator[Entry]) -> Iterator[Entry]:
    """The others, where the first of these was pruned."""
    try:
        yield from entries
    except PositionGone:
        yield from others


def _size(record: Record) -> int:
    return len(record.data) if isinstance(record, Frame | EnvelopeAccepted) else 0
