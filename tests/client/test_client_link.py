"""``client/link``: the states of a link, its position, and what it knows of unconfirmed frames.

Without sockets: connections and joins are played by the classes below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from mewstream import Backoff, ConnectError, ConnectionClosed, FramesUnconfirmed, JoinRefused, RequestTimeout
from mewstream.client.confirmations import Tally
from mewstream.client.connection import Connection
from mewstream.client.events import Resumed
from mewstream.client.interest import Interest
from mewstream.client.joining import Joiner, may_reconnect
from mewstream.client.link import Link
from mewstream.client.messages import Message, encode
from mewstream.client.routes import Routes
from mewstream.client.state import State
from mewstream.protocol import close_codes, kinds
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.frames import RECORDED_PING
from mewstream.protocol.position import Position

AT_ONCE = Backoff(first=0, most=0)


class PlayedConnection:
    """A connection that keeps what is sent, and that can be lost."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.pings: list[bytes] = []
        self.is_full = False
        self.is_held = False
        self.ended: list[str] = []
        self.room = asyncio.Event()
        self.link: Any = None

    def send(self, message: bytes, *, is_text: bool) -> None:
        self.sent.append(message)

    def ping(self, payload: bytes) -> None:
        self.pings.append(payload)

    async def writable(self) -> None:
        if self.is_full:
            await self.room.wait()

    def hold_reading(self) -> None:
        self.is_held = True

    def release_reading(self) -> None:
        self.is_held = False

    async def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")

    def receive(self, message: bytes) -> None:
        self.link.message_received(message, True)

    def pong(self) -> None:
        self.link.pong_received(self.pings[-1])

    def lose(self, code: int = close_codes.ABNORMAL, reason: str = "lost") -> None:
        self.link.connection_lost(self, code, reason)


class PlayedGateway:
    """Plays the joins: each takes the next welcome, or raises the next exception, and waits where there is none."""

    def __init__(self, *outcomes: dict[str, Any] | Exception) -> None:
        self.outcomes: asyncio.Queue[dict[str, Any] | Exception] = asyncio.Queue()
        for outcome in outcomes:
            self.outcomes.put_nowait(outcome)
        self.resumes: list[Position | None] = []
        self.connections: list[PlayedConnection] = []

    may_join_again = staticmethod(may_reconnect)

    async def join(
        self, welcomed: Callable[[Connection, Message], Any], resume: Position | None, interest: Mapping[str, Any]
    ) -> PlayedConnection:
        self.resumes.append(resume)
        outcome = await self.outcomes.get()
        if isinstance(outcome, Exception):
            raise outcome
        connection = PlayedConnection()
        self.connections.append(connection)
        message = Message(kind=kinds.WELCOME, sender=kinds.GATEWAY, payload=outcome, seq=outcome.get("seq"))
        connection.link = welcomed(cast(Connection, connection), message)
        return connection

    @property
    def connection(self) -> PlayedConnection:
        return self.connections[-1]


class PlayedOwner:
    def __init__(self) -> None:
        self.routes = Routes()
        self.interest = Interest(self.routes.wanted, lambda kind, payload: None)
        self.envelopes: list[Message] = []
        self.resumes: list[Resumed | None] = []
        self.losses: list[int] = []
        self.disconnects: list[str] = []
        self.error: ConnectionClosed | None = None
        self.fails = False

    def envelope(self, message: Message) -> None:
        self.envelopes.append(message)
        if self.fails:
            raise ValueError("a flaw of ours")

    def welcomed(self, welcome: Message, resumed: Resumed | None) -> None:
        self.resumes.append(resumed)
        if self.fails:
            raise ValueError("a flaw of ours")

    def connection_lost(self, code: int) -> None:
        self.losses.append(code)

    def disconnected(self, reason: str) -> None:
        self.disconnects.append(reason)

    def ended(self, error: ConnectionClosed) -> None:
        self.error = error


class Play:
    """A link between a gateway and an owner that are played."""

    def __init__(
        self, *outcomes: dict[str, Any] | Exception, reconnect: Backoff | None = AT_ONCE, timeout: float = 60
    ) -> None:
        self.gateway = PlayedGateway(*outcomes)
        self.owner = PlayedOwner()
        self.link = Link(cast(Joiner, self.gateway), self.owner, reconnect=reconnect, timeout=timeout)

    @property
    def connection(self) -> PlayedConnection:
        return self.gateway.connection

    async def reaches(self, state: State) -> None:
        while self.link.state is not state:
            await self.link._state_changed.wait()

    async def send(self, tally: Tally, data: bytes = b"x") -> None:
        await self.link.send_frame(b"#s#" + data, tally, is_text=True)


def welcome(seq: int | None = 10, epoch: str | None = "e1", **resume: Any) -> dict[str, Any]:
    found = {"seq": seq, "epoch": epoch, "resume": resume or None}
    return {key: value for key, value in found.items() if value is not None}


async def settled() -> None:
    """Every task that can run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


class TestStates:
    async def test_new_joining_joined(self) -> None:
        play = Play()
        assert play.link.state is State.NEW
        opening = asyncio.ensure_future(play.link.open())
        await settled()
        assert (play.link.state, play.link.is_connected) == (State.JOINING, False)
        play.gateway.outcomes.put_nowait(welcome())
        await opening
        assert (play.link.state, play.link.is_connected) == (State.JOINED, True)
        assert play.owner.resumes == [None]
        await play.link.close()

    async def test_the_first_join_fails(self) -> None:
        play = Play(ConnectError("nobody is there"))
        with pytest.raises(ConnectError, match="nobody is there"):
            await play.link.open()

    async def test_a_lost_connection_is_made_again(self) -> None:
        play = Play(welcome())
        await play.link.open()
        play.connection.lose(reason="cut")
        assert (play.link.state, play.link.is_connected) == (State.JOINING, False)
        play.gateway.outcomes.put_nowait(welcome())
        await play.reaches(State.JOINED)
        assert play.owner.losses == [close_codes.ABNORMAL]
        assert play.owner.disconnects == ["cut"]
        await play.link.close()

    async def test_the_end_of_an_older_connection_changes_nothing(self) -> None:
        play = Play(welcome(), welcome())
        await play.link.open()
        old = play.connection
        old.lose()
        await play.reaches(State.JOINED)
        old.lose()
        assert play.link.state is State.JOINED
        assert play.owner.losses == [close_codes.ABNORMAL]
        await play.link.close()

    @pytest.mark.parametrize(
        "reason", [CloseReason.KICKED, CloseReason.BAD_TOKEN, CloseReason.REPLACED, CloseReason.REPLACED_BY_RECONNECT]
    )
    async def test_a_close_that_is_final(self, reason: CloseReason) -> None:
        play = Play(welcome(), welcome())
        await play.link.open()
        play.connection.lose(reason.value.code, reason.value.text)
        await play.link.wait_closed()
        assert play.link.state is State.GONE
        assert play.link.error is play.owner.error
        assert play.link.error is not None
        assert play.link.error.code == reason.value.code
        assert len(play.gateway.connections) == 1

    async def test_without_reconnect_every_loss_is_final(self) -> None:
        play = Play(welcome(), welcome(), reconnect=None)
        await play.link.open()
        play.connection.lose()
        await play.link.wait_closed()
        assert play.owner.disconnects == []
        assert len(play.gateway.connections) == 1

    async def test_a_refused_join_ends_it(self) -> None:
        play = Play(welcome(), JoinRefused("wrong token", code="unauthorized"), welcome())
        await play.link.open()
        play.connection.lose()
        await play.link.wait_closed()
        assert "wrong token" in str(play.link.error)

    async def test_as_many_attempts_as_are_allowed(self) -> None:
        failures = [ConnectError("no"), OSError("whatever the function for the token raises"), ConnectError("no")]
        play = Play(welcome(), *failures, welcome(), reconnect=Backoff(first=0, most=0, attempts=3))
        await play.link.open()
        play.connection.lose()
        await play.link.wait_closed()
        assert len(play.gateway.resumes) == 4

    async def test_attempts_are_counted_in_a_row(self) -> None:
        play = Play(
            *(welcome(), ConnectError("no"), welcome(), ConnectError("no"), welcome()),
            reconnect=Backoff(first=0, most=0, attempts=2),
        )
        await play.link.open()
        for _ in range(2):
            play.connection.lose()
            await play.reaches(State.JOINED)
        assert len(play.gateway.connections) == 3
        await play.link.close()

    async def test_close(self) -> None:
        play = Play(welcome())
        await play.link.open()
        waiting = asyncio.ensure_future(play.link.wait_closed())
        await play.link.close()
        await waiting
        assert play.link.state is State.GONE
        assert play.connection.ended[0] == "close"
        assert play.owner.error is not None
        assert play.owner.error.code == close_codes.NORMAL
        with pytest.raises(ConnectionClosed):
            await play.link.ready()


class TestPositions:
    async def test_the_newest_of_envelopes_and_frames(self) -> None:
        play = Play(welcome(10))
        await play.link.open()
        assert play.link.position == Position("e1", 10)
        play.connection.receive(b'{"kind":"chat","seq":11}')
        assert play.link.position == Position("e1", 11)
        play.connection.receive(b"#s|13|w#data")
        assert play.link.position == Position("e1", 13)
        assert play.link.has_seen(Message(kind="chat", seq=12))
        assert not play.link.has_seen(Message(kind="chat", seq=14))
        assert not play.link.has_seen(Message(kind="chat"))
        await play.link.close()

    async def test_a_reconnect_resumes_from_there(self) -> None:
        play = Play(welcome(10), welcome(20, recovered=True, from_seq=14, to_seq=20))
        await play.link.open()
        play.connection.receive(b"#s|13|w#data")
        play.connection.lose()
        await play.reaches(State.JOINED)
        assert play.gateway.resumes == [None, Position("e1", 13)]
        assert play.owner.resumes == [None, Resumed(True, None, 0)]
        assert play.link.position == Position("e1", 13), "what is replayed has not come yet"
        await play.link.close()

    async def test_a_gateway_that_cannot_give_it(self) -> None:
        play = Play(welcome(10), welcome(20, "e2", recovered=False, reason="the journal is another"))
        await play.link.open()
        play.connection.lose()
        await play.reaches(State.JOINED)
        assert play.owner.resumes == [None, Resumed(False, "the journal is another", 0)]
        assert play.link.position == Position("e2", 20)
        await play.link.close()

    async def test_a_gateway_without_positions(self) -> None:
        play = Play(welcome(None, None), welcome(None, None))
        await play.link.open()
        assert play.link.position is None
        play.connection.lose()
        await play.reaches(State.JOINED)
        assert play.gateway.resumes == [None, None]
        assert play.owner.resumes[1] == Resumed(False, "this gateway cannot resume", 0)
        await play.link.close()


class TestReceiving:
    async def test_frames_and_envelopes(self) -> None:
        play = Play(welcome())
        await play.link.open()
        play.connection.receive(encode(kinds.CHAT, {"text": "hi"}, id="1"))
        play.connection.receive(b"not an envelope")
        assert [message.payload for message in play.owner.envelopes] == [{"text": "hi"}]
        await play.link.close()

    async def test_an_owner_that_fails_ends_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        play = Play(welcome())
        play.owner.fails = True
        await play.link.open()
        play.connection.receive(b'{"kind":"chat","seq":11}')
        assert play.link.state is State.JOINED
        assert play.link.position == Position("e1", 11)
        assert "a flaw of ours" in caplog.text
        await play.link.close()

    async def test_reading_stays_paused_on_the_next_connection(self) -> None:
        play = Play(welcome(), welcome())
        await play.link.open()
        play.link.hold("one")
        play.link.hold("other")
        assert play.connection.is_held
        play.connection.lose()
        await play.reaches(State.JOINED)
        assert play.connection.is_held
        play.link.release("one")
        assert play.connection.is_held
        play.link.release("other")
        assert not play.connection.is_held
        await play.link.close()


class TestSending:
    async def test_it_waits_for_a_connection(self) -> None:
        play = Play(welcome())
        await play.link.open()
        play.connection.lose()
        sending = asyncio.ensure_future(play.send(Tally()))
        await settled()
        assert not sending.done()
        play.gateway.outcomes.put_nowait(welcome())
        await sending
        assert play.connection.sent == [b"#s#x"]
        await play.link.close()

    async def test_it_waits_while_the_connection_is_full(self) -> None:
        play = Play(welcome())
        await play.link.open()
        play.connection.is_full = True
        sending = asyncio.ensure_future(play.send(Tally()))
        await settled()
        assert not sending.done()
        play.connection.is_full = False
        play.connection.room.set()
        await sending
        await play.link.close()

    async def test_those_who_wait_are_told_of_the_end(self) -> None:
        play = Play(welcome())
        await play.link.open()
        play.connection.lose()
        sending = asyncio.ensure_future(play.send(Tally()))
        await settled()
        await play.link.close()
        with pytest.raises(ConnectionClosed):
            await sending

    async def test_a_post_without_a_connection_is_not_sent(self) -> None:
        play = Play(welcome())
        await play.link.open()
        play.link.post(b"one")
        play.connection.lose()
        play.link.post(b"two")
        assert play.connection.sent == [b"one"]
        await play.link.close()


class TestConfirming:
    async def test_a_flush_waits_for_the_answer_to_its_ping(self) -> None:
        play = Play(welcome())
        await play.link.open()
        tally = Tally()
        await play.send(tally)
        flush = asyncio.ensure_future(play.link.round_trip(tally))
        await settled()
        assert play.connection.pings[0].startswith(RECORDED_PING)
        assert not flush.done()
        play.connection.pong()
        await flush
        assert (tally.sent, tally.confirmed) == (1, 1)
        await play.link.close()

    async def test_a_later_answer_answers_for_the_earlier_ones(self) -> None:
        play = Play(welcome())
        await play.link.open()
        flushes = [asyncio.ensure_future(play.link.flush()) for _ in range(3)]
        await settled()
        play.connection.pong()
        await asyncio.gather(*flushes)
        await play.link.close()

    async def test_an_empty_pong_makes_it_ask_again(self) -> None:
        play = Play(welcome())
        await play.link.open()
        flush = asyncio.ensure_future(play.link.flush())
        await settled()
        play.link.pong_received(b"")
        assert len(play.connection.pings) == 2
        play.connection.pong()
        await flush
        play.link.pong_received(b"")
        assert len(play.connection.pings) == 2, "nobody waits"
        await play.link.close()

    async def test_frames_that_a_lost_connection_left_unconfirmed(self) -> None:
        play = Play(welcome(), welcome())
        await play.link.open()
        tally, other = Tally(), Tally()
        await play.send(tally)
        await play.send(tally)
        flush = asyncio.ensure_future(play.link.round_trip(tally))
        await settled()
        play.connection.lose(reason="cut")
        with pytest.raises(FramesUnconfirmed, match="cut") as unconfirmed:
            await flush
        assert unconfirmed.value.count == 2
        await play.reaches(State.JOINED)
        resume = play.owner.resumes[-1]
        assert resume is not None
        assert resume.unconfirmed == 2
        for each in (tally, other):  # it is reported once, and to those whom it concerns
            flush = asyncio.ensure_future(play.link.round_trip(each))
            await settled()
            play.connection.pong()
            await flush
        await play.link.close()

    async def test_a_round_trip_goes_over_as_many_connections_as_it_takes(self) -> None:
        play = Play(welcome(), welcome())
        await play.link.open()
        trip = asyncio.ensure_future(play.link.round_trip())
        await settled()
        play.connection.lose()
        await play.reaches(State.JOINED)
        await settled()
        play.connection.pong()
        await trip
        await play.link.close()

    async def test_nobody_answers(self) -> None:
        play = Play(welcome(), timeout=0)
        await play.link.open()
        with pytest.raises(RequestTimeout, match=r"within 0 seconds$"):
            await play.link.flush()
        play.link.hold("a subscription")
        with pytest.raises(RequestTimeout, match="reading is paused"):
            await play.link.flush()
        await play.link.close()


class TestDraining:
    async def test_nothing_unconfirmed(self) -> None:
        play = Play(welcome())
        await play.link.open()
        await play.link.drain()
        assert play.link.state is State.GONE
        assert play.connection.pings == []
        assert play.connection.ended[0] == "close"

    async def test_it_waits_for_what_was_sent_and_lets_nothing_more_out(self) -> None:
        play = Play(welcome())
        await play.link.open()
        await play.send(Tally())
        drain = asyncio.ensure_future(play.link.drain())
        again = asyncio.ensure_future(play.link.drain())
        await settled()
        assert play.link.state is State.CLOSING
        assert play.link.is_connected
        with pytest.raises(ConnectionClosed, match="drained"):
            await play.send(Tally())
        assert play.connection.ended == []
        play.connection.pong()
        await drain
        await again
        assert play.link.state is State.GONE

    async def test_the_connection_is_lost_meanwhile(self) -> None:
        play = Play(welcome())
        await play.link.open()
        await play.send(Tally())
        drain = asyncio.ensure_future(play.link.drain())
        await settled()
        play.connection.lose()
        assert play.link.state is State.CLOSING, "a link that leaves does not begin to join again"
        with pytest.raises(FramesUnconfirmed):
            await drain
        assert play.link.state is State.GONE

    async def test_there_is_no_connection(self) -> None:
        play = Play(welcome())
        await play.link.open()
        await play.send(Tally())
        play.connection.lose()
        with pytest.raises(FramesUnconfirmed) as unconfirmed:
            await play.link.drain()
        assert unconfirmed.value.count == 1
        assert play.link.state is State.GONE

    async def test_what_a_resume_has_reported_is_not_reported_again(self) -> None:
        play = Play(welcome(), welcome())
        await play.link.open()
        await play.send(Tally())
        play.connection.lose()
        await play.reaches(State.JOINED)
        await play.send(Tally())
        drain = asyncio.ensure_future(play.link.drain())
        await settled()
        play.connection.pong()
        await drain

    async def test_it_is_gone_already(self) -> None:
        play = Play(welcome())
        await play.link.open()
        await play.link.close()
        await play.link.drain()
