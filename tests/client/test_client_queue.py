"""``client/queue``: what a bounded queue keeps, drops and counts. No sockets."""

from __future__ import annotations

import asyncio

import pytest

from mewstream import ConnectionClosed
from mewstream.client.messages import Message
from mewstream.client.queue import BoundedQueue, FrameQueue, OnSlow
from mewstream.protocol import kinds


def taken(queue: BoundedQueue[int]) -> list[tuple[int, int]]:
    """Everything that is in the queue, each entry with the gap before it."""
    found = []
    while queue.entries:
        entry = queue.take()
        found.append((queue.gap, entry))
    return found


def filled(limit: int, on_slow: OnSlow, count: int) -> BoundedQueue[int]:
    queue: BoundedQueue[int] = BoundedQueue(limit, on_slow)
    for entry in range(count):
        queue.put(entry)
    return queue


class Reader:
    """Counts how often a queue asks for a pause and takes it back."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def hold(self, why: object) -> None:
        self.asked.append("hold")

    def release(self, why: object) -> None:
        self.asked.append("release")


class TestFull:
    def test_within_the_limit_nothing_is_dropped(self) -> None:
        queue = filled(3, "drop-oldest", 3)
        assert queue.is_simple
        assert taken(queue) == [(0, 0), (0, 1), (0, 2)]
        assert queue.dropped == 0

    def test_drop_oldest(self) -> None:
        queue = filled(3, "drop-oldest", 5)
        assert not queue.is_simple
        assert taken(queue) == [(2, 2), (0, 3), (0, 4)]
        assert queue.dropped == 2

    def test_latest(self) -> None:
        queue = filled(1, "latest", 5)
        assert taken(queue) == [(4, 4)]
        assert queue.dropped == 4

    def test_latest_drops_all_when_there_is_no_room(self) -> None:
        assert taken(filled(3, "latest", 4)) == [(3, 3)]

    def test_pause_drops_nothing_and_asks_once(self) -> None:
        reader = Reader()
        queue: BoundedQueue[int] = BoundedQueue(4, "pause", hold=reader.hold, release=reader.release)
        for entry in range(6):
            queue.put(entry)
        assert reader.asked == ["hold"]
        for _ in range(3):
            queue.take()
        assert reader.asked == ["hold"], "more than half of the limit is still waiting"
        queue.take()
        assert reader.asked == ["hold", "release"]
        assert queue.dropped == 0

    def test_the_end_takes_a_pause_back(self) -> None:
        reader = Reader()
        queue: BoundedQueue[int] = BoundedQueue(1, "pause", hold=reader.hold, release=reader.release)
        queue.put(1)
        queue.put(2)
        queue.end()
        assert reader.asked == ["hold", "release"]


class TestGaps:
    def test_a_gap_belongs_to_the_next_entry(self) -> None:
        queue = filled(10, "drop-oldest", 1)
        queue.put_gap(2)
        queue.put_gap(1)
        queue.put(7)
        queue.put(8)
        assert taken(queue) == [(0, 0), (3, 7), (0, 8)]

    def test_no_gap_is_none(self) -> None:
        queue = filled(10, "drop-oldest", 0)
        queue.put_gap(-3)
        queue.put(1)
        assert taken(queue) == [(0, 1)]

    def test_an_entry_that_is_dropped_leaves_its_gap_behind(self) -> None:
        queue: BoundedQueue[int] = BoundedQueue(2)
        queue.put_gap(5)
        for entry in range(3):
            queue.put(entry)
        assert taken(queue) == [(6, 1), (0, 2)]


class TestWaiting:
    async def test_an_entry_wakes_the_reader(self) -> None:
        queue: BoundedQueue[int] = BoundedQueue(1)
        waiting = asyncio.ensure_future(queue.wait())
        await asyncio.sleep(0)
        queue.put(1)
        assert await waiting

    async def test_what_was_there_before_the_end_can_be_taken(self) -> None:
        queue = filled(2, "drop-oldest", 1)
        queue.end()
        queue.put(2)
        assert await queue.wait()
        assert taken(queue) == [(0, 0)]
        assert not await queue.wait()

    async def test_the_end_wakes_the_reader(self) -> None:
        queue: BoundedQueue[int] = BoundedQueue(1)
        waiting = asyncio.ensure_future(queue.wait())
        await asyncio.sleep(0)
        queue.end()
        assert not await waiting

    async def test_an_error_comes_behind_the_last_entry_and_every_time(self) -> None:
        queue = filled(2, "drop-oldest", 1)
        error = ConnectionClosed("gone")
        queue.end(error)
        queue.end()
        assert await queue.wait()
        queue.take()
        for _ in range(2):
            with pytest.raises(ConnectionClosed) as raised:
                await queue.wait()
            assert raised.value is not error, "an exception that is raised twice would collect both tracebacks"

    async def test_only_one_reader(self) -> None:
        queue: BoundedQueue[int] = BoundedQueue(1)
        waiting = asyncio.ensure_future(queue.wait())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one task at a time"):
            await queue.wait()
        queue.end()
        await waiting

    async def test_a_reader_that_was_cancelled_leaves_room_for_another(self) -> None:
        queue: BoundedQueue[int] = BoundedQueue(1)
        waiting = asyncio.ensure_future(queue.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        queue.put(1)
        assert await queue.wait()


@pytest.mark.parametrize(("limit", "on_slow"), [(0, "pause"), (1, "sometimes")])
def test_settings_that_make_no_queue(limit: int, on_slow: OnSlow) -> None:
    with pytest.raises(ValueError, match=r"at least 1|expected"):
        BoundedQueue(limit, on_slow)


class TestNumbers:
    """Sequence numbers of ``stream/data``."""

    def queue(self) -> FrameQueue:
        reader = Reader()
        return FrameQueue(100, "drop-oldest", hold=reader.hold, release=reader.release)

    def message(self, sequence: int | None, seq: int = 0, *, writer: str = "w", stream: str = "s") -> Message:
        payload = {"stream": {"stream_id": stream}, "sequence": sequence}
        return Message(kind=kinds.STREAM_DATA, sender=writer, payload=payload, seq=seq)

    def gaps(self, queue: FrameQueue) -> list[int]:
        found = []
        while queue.entries:
            queue.take()
            found.append(queue.gap)
        return found

    def put(self, queue: FrameQueue, *messages: Message) -> None:
        for message in messages:
            queue.put_numbered(message)

    def test_a_jump_is_a_gap(self) -> None:
        queue = self.queue()
        self.put(queue, *(self.message(number) for number in (1, 2, 5, 6)))
        assert self.gaps(queue) == [0, 0, 2, 0]

    def test_writers_and_streams_count_for_themselves(self) -> None:
        queue = self.queue()
        self.put(queue, self.message(1), self.message(9, writer="other"), self.message(5, stream="other"))
        assert self.gaps(queue) == [0, 0, 0]

    def test_a_writer_that_begins_anew(self) -> None:
        queue = self.queue()
        self.put(queue, self.message(7), self.message(1), self.message(2))
        assert self.gaps(queue) == [0, 0, 0]

    def test_without_a_number(self) -> None:
        queue = self.queue()
        self.put(queue, self.message(1), self.message(None), self.message(2))
        assert self.gaps(queue) == [0, 0, 0]

    def test_what_is_known_as_lost_is_not_counted_again_as_a_jump(self) -> None:
        queue = self.queue()
        self.put(queue, self.message(1))
        queue.put_gap(1)  # lost with a connection, nobody knew how many
        self.put(queue, self.message(5))
        assert self.gaps(queue) == [0, 3]

    def test_what_was_seen_as_a_jump_is_not_counted_again_when_the_gateway_reports_it(self) -> None:
        queue = self.queue()
        self.put(queue, self.message(1, seq=10), self.message(4, seq=13))
        queue.put_dropped("s", 2, first_seq=11)
        self.put(queue, self.message(5, seq=14))
        assert self.gaps(queue) == [0, 2, 0]

    def test_a_report_counts_what_no_jump_has_shown(self) -> None:
        queue = self.queue()
        self.put(queue, self.message(1, seq=10), self.message(4, seq=13))
        queue.put_dropped("s", 5, first_seq=11)
        queue.put_dropped("s", 1, first_seq=20)
        self.put(queue, self.message(5, seq=14))
        assert self.gaps(queue) == [0, 2, 4]

    def test_a_jump_on_another_stream_explains_nothing(self) -> None:
        queue = self.queue()
        self.put(queue, self.message(1, seq=10, stream="other"), self.message(4, seq=13, stream="other"))
        queue.put_dropped("s", 2, first_seq=11)
        self.put(queue, self.message(1, seq=14))
        assert self.gaps(queue) == [0, 2, 2]
