"""What has happened in a space: the newest records from memory, older ones from the journal."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator

from mewstream.gateway.joining import Resume
from mewstream.gateway.recorder import Recorder
from mewstream.gateway.resume import CannotResume, Missed, epoch_of, position
from mewstream.journal.errors import JournalError
from mewstream.journal.memory import RecentRecords
from mewstream.protocol import frames
from mewstream.protocol.errors import InvalidRequest
from mewstream.protocol.records import EnvelopeAccepted, Frame, FrameBlock, Record
from mewstream.protocol.render import render, visible_to, with_seq
from mewstream.protocol.state import SpaceState

#: A reader that may see little of what it reads is given so many records for each message it asks for.
_RECORDS_PER_MESSAGE = 4


#: One page of history over HTTP: its reader asks again from where it ends.
MAX_PAGE_BYTES = 4 << 20


def _size(record: Record) -> int:
    return len(record.data) if isinstance(record, Frame | EnvelopeAccepted) else 0


class Past:
    def __init__(self, space: str, recorder: Recorder, loop: asyncio.AbstractEventLoop) -> None:
        self._space = space
        self._recorder = recorder
        self._loop = loop
        self._recent = RecentRecords()

    def append(self, record: Record) -> None:
        self._recent.append(record)

    def extend(self, block: FrameBlock, data_bytes: int) -> None:
        self._recent.extend(block, data_bytes)

    def reaches(self, after: int) -> bool:
        """Whether everything above a position is in memory."""
        return self._recent.reaches(after)

    def read(self, after: int) -> Iterator[Record]:
        """Records above a position, from memory."""
        return self._recent.read(after)

    async def missed(self, state: SpaceState, participant: str, resume: Resume) -> Missed | CannotResume:
        limit = state.limits.resume_records
        try:
            after = position(state, participant, resume, limit)
            if self._recent.reaches(after):
                return Missed(after, after, [])
            most = state.delivery.queue_bytes
            records = await self._history(after, limit, most)
            if sum(map(_size, records)) > most:
                return CannotResume(f"more than {most} bytes were missed")
        except CannotResume as no:
            return no
        except JournalError as gone:
            return CannotResume(f"the position is too old: {gone}")
        return Missed(after, records[-1].seq if records else after, records)

    async def messages_since(
        self, state: SpaceState, participant: str, after: int, limit: int, *, from_memory: bool
    ) -> tuple[list[bytes], int]:
        records = await self._records_since(after, limit, from_memory)
        messages: list[bytes] = []
        seq = after
        size = 0
        for record in records:
            if len(messages) >= limit or size >= MAX_PAGE_BYTES:
                break
            seq = record.seq
            if not visible_to(record, participant):
                continue
            body = render(self._space, epoch_of(state, seq), record)
            if body is None and isinstance(record, Frame):
                body = frames.as_json(record.stream_id, record.sender, record.data, record.opcode)
            if body is not None:
                messages.append(with_seq(body, seq))
                size += len(body)
        return messages, seq

    async def _records_since(self, after: int, limit: int, from_memory: bool) -> Iterable[Record]:
        if from_memory and self._recent.reaches(after):
            return self._recent.read(after)
        try:
            return await self._history(after, _RECORDS_PER_MESSAGE * limit, MAX_PAGE_BYTES)
        except CannotResume:
            return self._recent.read(after)  # there is no journal: this is all there is
        except JournalError as gone:
            raise InvalidRequest(f"what came after that is not kept any more: {gone}") from None

    async def position_at(self, micros: int) -> int:
        first = next(self._recent.read(0), None)
        if first is not None and first.ts < micros:
            return max((record.seq for record in self._recent.read(0) if record.ts < micros), default=0)
        return await self._loop.run_in_executor(None, self._recorder.seq_before, self._space, micros)

    async def _history(self, after: int, limit: int, max_bytes: int) -> list[Record]:
        """From the journal, read beside the loop; no more than the first that goes beyond ``max_bytes``."""
        entries = self._recorder.history(self._space, after)
        if entries is None:
            raise CannotResume("the position is too old: this gateway keeps no journal")

        def read() -> list[Record]:
            records: list[Record] = []
            size = 0
            for entry in itertools.islice(entries, limit):
                records.append(entry.record)
                size += _size(entry.record)
                if size > max_bytes:
                    break
            return records

        return await self._loop.run_in_executor(None, read)
