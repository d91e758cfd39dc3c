"""The sending side of a connection, without one: written through, queued, dropped or closed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from doubles import FakeMember, FakeTransport, ManualLoop

from mewstream.gateway.back_pressure import BackPressure
from mewstream.gateway.fanout import Audience, Parcel
from mewstream.gateway.membership import Member
from mewstream.gateway.outbound import CLOSE_TIMEOUT, Ending, Outbound
from mewstream.gateway.wsframes import control
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.policy import Delivery

DELIVERY = Delivery(write_buffer_bytes=1_000, soft_queue_bytes=2_000, queue_bytes=4_000, writer_pause=1.0)
BODY = bytes(500)


class Pressure(BackPressure):
    """The back-pressure of a space in which many are behind when the test says so."""

    def __init__(self) -> None:
        self.many = False
        self.writer = FakeMember("writer")

    def hold_writers(self, why: object, writers: Iterable[str]) -> list[Member]:
        held: list[Member] = [self.writer for name in writers if name == "writer"]
        for member in held:
            member.hold_reading(why)
        return held

    def fell_behind(self, connection: object) -> None: ...

    def are_many_behind(self) -> bool:
        return self.many


class Scene:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.transport = FakeTransport()
        self.pressure = Pressure()
        self.times_caught_up = 0
        self.outbound = Outbound(self.loop.as_loop, self.transport.as_transport, DELIVERY)
        self.outbound.back_pressure = self.pressure
        self.outbound.on_caught_up = self._caught_up
        self.closed: list[CloseReason] = []
        self.outbound.on_close = self.closed.append
        self._audience = Audience((FakeMember("reader"),))
        self._seq = 0

    @property
    def queued_bytes(self) -> int:
        return self.outbound._queued_bytes

    @property
    def is_writer_held(self) -> bool:
        return bool(self.pressure.writer.held)

    def _caught_up(self) -> None:
        self.times_caught_up += 1

    def push(self, parcel: Parcel) -> None:
        self.outbound.push(b"".join(parcel.pieces(False)), [parcel])

    def frames(self, *bodies: bytes, on_slow: str = "drop-oldest", stream: str = "stream-1") -> Parcel:
        parcel = Parcel(self._audience, 2, bodies, None, self._seq + 1, stream, "writer", on_slow)
        self._seq += len(bodies)
        return parcel

    def control(self, body: bytes = b"{}") -> Parcel:
        self._seq += 1
        return Parcel(self._audience, 1, [body], None, self._seq)

    def fall_behind(self) -> None:
        """The peer takes nothing any more."""
        self.outbound.pause_writing()

    def catch_up(self) -> None:
        self.outbound.resume_writing()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_it_is_written_through_while_the_peer_keeps_up(scene: Scene) -> None:
    scene.push(scene.frames(b"one"))
    scene.push(scene.control(b"two"))
    assert scene.transport.written == b"\x82\x03one\x81\x03two"
    assert scene.queued_bytes == 0


def test_what_waits_is_sent_in_order_when_the_peer_reads_again(scene: Scene) -> None:
    scene.fall_behind()
    scene.push(scene.frames(b"one", b"two"))
    scene.push(scene.control(b"three"))
    assert scene.transport.written == b"" and scene.outbound.is_behind and scene.queued_bytes > 0
    scene.catch_up()
    assert scene.transport.written == b"\x82\x03one\x82\x03two\x81\x05three"
    assert (scene.queued_bytes, scene.times_caught_up) == (0, 1)


class TestPolicies:
    def flood(self, scene: Scene, on_slow: str, count: int = 12) -> None:
        scene.pressure.many = False
        scene.fall_behind()
        for _ in range(count):
            scene.push(scene.frames(BODY, on_slow=on_slow))

    def test_drop_oldest_keeps_the_newest(self, scene: Scene) -> None:
        self.flood(scene, "drop-oldest")
        drop = scene.outbound.drops["stream-1"]
        assert drop.first_seq == 1 and drop.count == drop.last_seq == scene.outbound.dropped_frames
        assert 12 - drop.count == scene.queued_bytes // (500 + 10 + 160)
        assert scene.queued_bytes <= DELIVERY.queue_bytes

    def test_latest_keeps_one_of_a_stream(self, scene: Scene) -> None:
        self.flood(scene, "latest", count=7)
        drop = scene.outbound.drops["stream-1"]
        assert (drop.count, drop.first_seq) == (5, 1)
        assert drop.policy == "latest"

    def test_disconnect_closes(self, scene: Scene) -> None:
        self.flood(scene, "disconnect")
        assert scene.closed == [CloseReason.SLOW_CONSUMER] and scene.outbound.ending is Ending.CLOSED
        [(code, reason)] = scene.transport.closes
        assert code == CloseReason.SLOW_CONSUMER.value.code and b"12 frames" not in reason and b"frames were" in reason

    def test_control_messages_are_never_dropped(self, scene: Scene) -> None:
        scene.fall_behind()
        for _ in range(5):
            scene.push(scene.control(BODY))
        assert scene.outbound.ending is None and scene.queued_bytes == 5 * (500 + 10 + 160)
        scene.push(scene.control(BODY))
        assert scene.closed == [CloseReason.SLOW_CONSUMER]

    def test_frames_give_way_to_control_messages(self, scene: Scene) -> None:
        self.flood(scene, "drop-oldest", count=5)
        for _ in range(3):
            scene.push(scene.control(BODY))
        assert scene.outbound.ending is None and scene.outbound.drops["stream-1"].count == 3


class TestHoldingWriters:
    def over_the_soft_mark(self, scene: Scene) -> None:
        scene.fall_behind()
        for _ in range(4):
            scene.push(scene.frames(BODY))

    def test_at_the_soft_mark_and_for_a_bounded_time(self, scene: Scene) -> None:
        self.over_the_soft_mark(scene)
        assert scene.is_writer_held
        scene.loop.advance(DELIVERY.writer_pause * 1.1)
        assert not scene.is_writer_held
        scene.push(scene.frames(BODY))
        assert not scene.is_writer_held, "its time is used up"

    def test_they_are_released_when_it_has_caught_up(self, scene: Scene) -> None:
        self.over_the_soft_mark(scene)
        scene.catch_up()
        assert not scene.is_writer_held

    def test_where_many_are_behind_they_wait_longer(self, scene: Scene) -> None:
        scene.pressure.many = True
        self.over_the_soft_mark(scene)
        scene.loop.advance(DELIVERY.writer_pause * 5)
        assert scene.is_writer_held
        scene.loop.advance(DELIVERY.writer_pause * 30)
        assert not scene.is_writer_held, "but not for one that takes nothing at all"


class TestClosing:
    def test_nothing_follows_a_close(self, scene: Scene) -> None:
        scene.outbound.close(CloseReason.KICKED)
        scene.push(scene.frames(b"late"))
        scene.outbound.ping()
        scene.outbound.pong(b"late")
        scene.outbound.close(CloseReason.DRAINING)
        assert scene.transport.written == b"" and len(scene.transport.closes) == 1
        assert scene.outbound.drops["stream-1"].count == 1, "it was not delivered, and that is known"

    def test_a_peer_that_does_not_go_is_cut_off(self, scene: Scene) -> None:
        scene.outbound.close(CloseReason.KICKED)
        assert not scene.transport.is_aborted
        scene.loop.advance(CLOSE_TIMEOUT * 1.1)
        assert scene.transport.is_aborted

    def test_the_answer_to_a_close_of_the_peer(self, scene: Scene) -> None:
        scene.transport.recv = object()
        scene.outbound.answer_close(1000)
        assert scene.transport.closes == [(1000, b"")] and scene.transport.is_closed
        assert scene.closed == [], "it was not we who closed"

    def test_one_that_was_replaced_and_reads_nothing_is_not_waited_for(self, scene: Scene) -> None:
        scene.transport.buffered = 1 << 20
        scene.outbound.close(CloseReason.REPLACED)
        assert scene.transport.is_aborted and not scene.transport.closes

    def test_what_comes_for_a_lost_connection_is_not_a_drop(self, scene: Scene) -> None:
        scene.outbound.lost()
        scene.push(scene.frames(b"x"))
        assert not scene.outbound.drops


def test_of_pings_that_come_while_it_is_behind_the_last_is_answered(scene: Scene) -> None:
    scene.fall_behind()
    for number in range(1000):
        scene.outbound.pong(b"%d" % number)
    assert scene.transport.written == b""
    scene.catch_up()
    assert scene.transport.written == control(10, b"999")
