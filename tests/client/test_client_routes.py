"""``client/routes``: which subscription gets which frame. No sockets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mewstream import ConnectionClosed
from mewstream.client.events import Chat, Event
from mewstream.client.messages import Message
from mewstream.client.queue import BoundedQueue, FrameQueue
from mewstream.client.routes import Routes
from mewstream.protocol import kinds


def subscribe(routes: Routes, name: str | None, *, is_known: bool = True) -> tuple[FrameQueue, Callable[[], None]]:
    queue = FrameQueue(100, "drop-oldest", hold=lambda _: None, release=lambda _: None)
    return queue, routes.add(queue, name, is_known=is_known)


def frame(routes: Routes, message: bytes, *, is_text: bool = True, has_positions: bool = True) -> None:
    """As a link hands them over: those of a run straight to its queues."""
    if message.startswith(routes.run_prefix):
        for queue in routes.run_queues:
            queue.put(message if is_text else (message,))
    else:
        routes.frame(message, is_text, has_positions)


class TestFrames:
    def test_by_stream_and_of_every_stream(self) -> None:
        routes = Routes()
        (one, _), (other, _), (every, _) = subscribe(routes, "s"), subscribe(routes, "t"), subscribe(routes, None)
        frame(routes, b"#s|1|w#a")
        frame(routes, b"#s|2|w#b")
        frame(routes, b"#t|3|w#c", is_text=False)
        assert list(one.entries) == [b"#s|1|w#a", b"#s|2|w#b"]
        assert list(other.entries) == [(b"#t|3|w#c",)]
        assert list(every.entries) == [b"#s|1|w#a", b"#s|2|w#b", (b"#t|3|w#c",)]

    def test_an_id_that_begins_like_another(self) -> None:
        routes = Routes()
        (short, _), (long, _) = subscribe(routes, "stream-1"), subscribe(routes, "stream-12")
        frame(routes, b"#stream-1|1|w#a")
        frame(routes, b"#stream-12|2|w#b")
        assert list(short.entries) == [b"#stream-1|1|w#a"]
        assert list(long.entries) == [b"#stream-12|2|w#b"]

    def test_without_positions(self) -> None:
        routes = Routes()
        queue, _ = subscribe(routes, "s")
        frame(routes, b"#s#a|b", has_positions=False)
        assert list(queue.entries) == [b"#s#a|b"]

    @pytest.mark.parametrize("message", [b"#", b"#s", b"#s#no position"])
    def test_a_malformed_frame_goes_to_no_stream_and_begins_no_run(self, message: bytes) -> None:
        routes = Routes()
        queue, _ = subscribe(routes, "s")
        frame(routes, message)
        frame(routes, message)
        assert not queue.entries
        assert not message.startswith(routes.run_prefix)

    def test_a_subscription_in_the_middle_of_a_run(self) -> None:
        routes = Routes()
        first, _ = subscribe(routes, "s")
        frame(routes, b"#s|1|w#a")
        second, leave = subscribe(routes, "s")
        frame(routes, b"#s|2|w#b")
        leave()
        frame(routes, b"#s|3|w#c")
        assert list(first.entries) == [b"#s|1|w#a", b"#s|2|w#b", b"#s|3|w#c"]
        assert list(second.entries) == [b"#s|2|w#b"]

    def test_numbered_data(self) -> None:
        routes = Routes()
        (one, _), (every, _) = subscribe(routes, "s"), subscribe(routes, None)
        message = Message(kind=kinds.STREAM_DATA, sender="w", payload={"stream_id": "s", "sequence": 1})
        routes.data(message)
        assert list(one.entries) == list(every.entries) == [message]

    async def test_the_last_subscription_leaves_nothing_behind(self) -> None:
        routes = Routes()
        queue, leave = subscribe(routes, "s", is_known=False)
        leave()
        assert (routes._streams, routes._unresolved, routes._every_stream) == ({}, {}, ())
        assert not await queue.wait()


class TestNames:
    def test_a_name_that_turns_out_to_be_an_alias(self) -> None:
        routes = Routes()
        queue, _ = subscribe(routes, "positions", is_known=False)
        routes.stream_opened("stream-1", "positions")
        frame(routes, b"#stream-1|1|w#a")
        frame(routes, b"#positions|2|w#b")
        assert list(queue.entries) == [b"#stream-1|1|w#a"]

    def test_a_name_that_turns_out_to_be_an_id(self) -> None:
        """From then on it is no alias of anything."""
        routes = Routes()
        queue, _ = subscribe(routes, "stream-1", is_known=False)
        routes.stream_opened("stream-1", None)
        routes.stream_opened("stream-2", "stream-1")
        frame(routes, b"#stream-1|1|w#a")
        frame(routes, b"#stream-2|2|w#b")
        assert list(queue.entries) == [b"#stream-1|1|w#a"]


class TestEnds:
    async def test_of_a_stream(self) -> None:
        routes = Routes()
        (one, _), (every, _) = subscribe(routes, "s"), subscribe(routes, None)
        frame(routes, b"#s|1|w#a")
        routes.stream_ended("s")
        frame(routes, b"#s|2|w#b")
        assert await one.wait()
        assert one.take() == b"#s|1|w#a"
        assert not await one.wait()
        assert list(every.entries) == [b"#s|1|w#a", b"#s|2|w#b"]

    async def test_of_everything(self) -> None:
        routes = Routes()
        (one, _), (every, _) = subscribe(routes, "s"), subscribe(routes, None)
        events: BoundedQueue[Event] = BoundedQueue(10)
        routes.add_events(events)
        routes.end(ConnectionClosed("gone"))
        for queue in (one, every, events):
            with pytest.raises(ConnectionClosed, match="gone"):
                await queue.wait()


class TestGaps:
    def test_what_the_gateway_dropped(self) -> None:
        routes = Routes()
        (one, _), (other, _), (every, _) = subscribe(routes, "s"), subscribe(routes, "t"), subscribe(routes, None)
        routes.frames_dropped("s", 3, 10)
        frame(routes, b"#s|20|w#a")
        frame(routes, b"#t|21|w#b")
        for queue, gap in ((one, 3), (other, 0), (every, 3)):
            queue.take()
            assert queue.gap == gap

    def test_what_nobody_counted(self) -> None:
        routes = Routes()
        (one, _), (every, _) = subscribe(routes, "s"), subscribe(routes, None)
        routes.frames_lost()
        frame(routes, b"#s|20|w#a")
        for queue in (one, every):
            queue.take()
            assert queue.gap == 1


async def test_events() -> None:
    routes = Routes()
    first: BoundedQueue[Event] = BoundedQueue(10)
    second: BoundedQueue[Event] = BoundedQueue(10)
    leave = routes.add_events(first)
    routes.add_events(second)
    routes.publish([Chat("w", "one"), Chat("w", "two")])
    leave()
    routes.publish([Chat("w", "three")])
    assert [event.text for event in first.entries if isinstance(event, Chat)] == ["one", "two"]
    assert [event.text for event in second.entries if isinstance(event, Chat)] == ["one", "two", "three"]
    assert await first.wait()
