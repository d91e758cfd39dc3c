"""A WebSocket connection without a socket: what its state is, and what becomes of the frames that picows hands over.

Gateway and space are real; the transport and the frames are not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from doubles import FakeFrame, FakeTransport, space_settings
from picows import WSMsgType

from mewstream.gateway.config import GatewayConfig
from mewstream.gateway.gateway import Gateway
from mewstream.gateway.space import Space
from mewstream.gateway.websocket import STRANGER_MESSAGE_BYTES, ConnectionState, WebSocketMember
from mewstream.protocol.close_codes import CloseReason
from mewstream.protocol.policy import Limits

LIMITS = Limits(message_bytes=10_000)


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    config = GatewayConfig(spaces={"demo": space_settings("ann", "bob", limits=LIMITS)}, drain_seconds=0)
    gateway = Gateway(config, base_url="ws://here")
    yield gateway
    for peer in list(gateway.peers):
        peer.on_ws_disconnected(FakeTransport().as_transport)
    await gateway.drain()
    gateway.close()


class Peer:
    """The other end of a connection."""

    def __init__(self, gateway: Gateway, token: str | None = None) -> None:
        self.transport = FakeTransport()
        self.member = WebSocketMember(gateway, space=None, token=token)
        self.member.on_ws_connected(self.transport.as_transport)

    @property
    def state(self) -> ConnectionState:
        return self.member.state

    def sends(self, payload: bytes | dict[str, Any], kind: WSMsgType = WSMsgType.TEXT, **frame: Any) -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.member.on_ws_frame(self.transport.as_transport, FakeFrame(kind, data, **frame).as_frame)

    def joins(self, participant: str, **fields: Any) -> None:
        self.sends({"type": "join", "participantId": participant, "token": participant} | fields)

    async def got(self) -> bytes:
        """Everything that was written, after as many turns as it may take on a busy machine."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.transport.written

    @property
    def close_code(self) -> int | None:
        return self.transport.closes[0][0] if self.transport.closes else None


def space_of(gateway: Gateway) -> Space:
    return gateway.spaces["demo"]


async def opened(gateway: Gateway, peer: Peer) -> None:
    peer.sends({"kind": "stream/request", "payload": {}})
    assert "stream-1" in space_of(gateway).state.streams


class TestStates:
    async def test_a_join_makes_a_member(self, gateway: Gateway) -> None:
        peer = Peer(gateway)
        assert peer.state is ConnectionState.NEW and peer.member.space is None
        peer.joins("ann")
        assert peer.state is ConnectionState.JOINED and peer.member.space is space_of(gateway)
        assert b'"system/welcome"' in await peer.got()

    async def test_a_token_in_the_header_is_enough(self, gateway: Gateway) -> None:
        assert Peer(gateway, token="ann").state is ConnectionState.JOINED

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            (b"not a join", CloseReason.PROTOCOL_ERROR),
            (b'{"kind":"chat","payload":{"text":"hello"}}', CloseReason.PROTOCOL_ERROR),
            (b'{"type":"join","participantId":"ann","token":"wrong"}', CloseReason.BAD_TOKEN),
            (b'{"type":"join","participantId":"ann","token":"ann","space":"other"}', CloseReason.UNKNOWN_SPACE),
            (b"x" * (STRANGER_MESSAGE_BYTES + 1), CloseReason.TOO_BIG),
        ],
    )
    async def test_a_stranger_is_told_why_it_is_closed(
        self, gateway: Gateway, message: bytes, reason: CloseReason
    ) -> None:
        peer = Peer(gateway)
        peer.sends(message)
        assert peer.state is ConnectionState.CLOSING and peer.close_code == reason.value.standard
        assert b'"system/error"' in peer.transport.written
        peer.joins("ann")
        assert peer.member.space is None, "nothing more is heard from it"

    async def test_what_comes_while_it_joins_waits(self, gateway: Gateway) -> None:
        peer = Peer(gateway)
        resume = {"epoch": space_of(gateway).state.epoch, "seq": 0}
        peer.joins("ann", extensions=["positions"], resume=resume)
        assert peer.state is ConnectionState.JOINING and peer.transport.is_paused
        peer.sends({"kind": "chat", "id": "early", "payload": {"text": "hello"}})
        assert space_of(gateway).state.seq == 1, "nothing has happened but the start"
        await asyncio.sleep(0.01)
        assert peer.state is ConnectionState.JOINED and not peer.transport.is_paused
        written = await peer.got()
        assert 0 < written.index(b'"system/welcome"') < written.index(b'"early"')

    @pytest.mark.parametrize(("count", "size"), [(10, 9_000), (3_000, 0)])
    async def test_too_much_of_it_is_refused(self, gateway: Gateway, count: int, size: int) -> None:
        peer = Peer(gateway)
        peer.joins("ann", extensions=["positions"], resume={"epoch": "any", "seq": 0})
        for _ in range(count):
            peer.sends(b" " * size)
        assert peer.state is ConnectionState.CLOSING and peer.close_code == 1009
        await asyncio.sleep(0.01)
        assert peer.state is ConnectionState.CLOSING and peer.member.space is None

    async def test_one_that_is_replaced(self, gateway: Gateway) -> None:
        first, second = Peer(gateway, token="ann"), Peer(gateway, token="ann")
        await first.got()
        assert first.state is ConnectionState.CLOSING and first.close_code == CloseReason.REPLACED.value.code
        assert second.state is ConnectionState.JOINED
        first.member.on_ws_disconnected(first.transport.as_transport)
        assert first.state is ConnectionState.GONE
        assert space_of(gateway).members.get("ann") is second.member

    async def test_a_close_of_the_peer_is_answered(self, gateway: Gateway) -> None:
        peer = Peer(gateway, token="ann")
        await peer.got()
        peer.sends((1000).to_bytes(2), WSMsgType.CLOSE)
        assert peer.state is ConnectionState.CLOSING and peer.close_code == 1000
        assert space_of(gateway).members.get("ann") is None
        peer.member.close(CloseReason.DRAINING)
        assert len(peer.transport.closes) == 1

    @pytest.mark.parametrize("code", [999, 1005, 1006, 1015, 2999, 5000])
    async def test_a_code_that_may_not_be_sent(self, gateway: Gateway, code: int) -> None:
        peer = Peer(gateway, token="ann")
        await peer.got()
        peer.sends(code.to_bytes(2), WSMsgType.CLOSE)
        assert peer.close_code == 1002

    async def test_a_state_never_goes_back(self, gateway: Gateway) -> None:
        peer = Peer(gateway, token="ann")
        peer.member.on_ws_disconnected(peer.transport.as_transport)
        peer.member.close(CloseReason.KICKED)
        assert peer.state is ConnectionState.GONE and not peer.transport.closes

    async def test_no_join_in_time(self, gateway: Gateway) -> None:
        peer, other = Peer(gateway), Peer(gateway, token="ann")
        for each in (peer, other):
            each.member._join_timed_out()
        assert peer.close_code == 1008 and other.state is ConnectionState.JOINED


class TestFrames:
    async def test_those_that_come_in_one_reading_become_one_block(self, gateway: Gateway) -> None:
        ann = Peer(gateway, token="ann")
        await opened(gateway, ann)
        before = space_of(gateway).state.seq
        for number in range(5):
            ann.sends(b"#stream-1#%d" % number, WSMsgType.BINARY, last=number == 4)
            assert space_of(gateway).state.seq == (before if number < 4 else before + 5)
        assert (await ann.got()).endswith(b"".join(b"\x82\x0b#stream-1#%d" % number for number in range(5)))

    async def test_another_stream_kind_or_message_ends_a_block(self, gateway: Gateway) -> None:
        ann = Peer(gateway, token="ann")
        await opened(gateway, ann)
        ann.sends(b"#stream-1#one", last=False)
        ann.sends(b"#stream-1#two", WSMsgType.BINARY, last=False)
        ann.sends(b"#stream-9#three", WSMsgType.BINARY, last=False)
        ann.sends({"kind": "chat", "payload": {"text": "four"}}, last=False)
        ann.sends(b"#stream-1#five")
        written = await ann.got()
        places = [written.index(each) for each in (b"#one", b"#two", b"stream_not_found", b'"four"', b"#five")]
        assert places == sorted(places)
        assert written[written.index(b"#stream-1#two") - 2] == 0x82, "binary stays binary"

    async def test_a_frame_that_is_none_is_refused_in_order(self, gateway: Gateway) -> None:
        ann = Peer(gateway, token="ann")
        await opened(gateway, ann)
        for each in (b"#stream-1#one", b"#no end", b"##", b"#" + b"x" * 200 + b"#", b"#stream-1#two"):
            ann.sends(each, last=each.endswith(b"two"))
        written = await ann.got()
        assert written.count(b'"system/error"') == 3
        assert written.index(b"#one") < written.index(b'"system/error"') < written.index(b"#two")
        assert ann.state is ConnectionState.JOINED

    async def test_a_lost_connection_has_sent_what_was_read(self, gateway: Gateway) -> None:
        ann, bob = Peer(gateway, token="ann"), Peer(gateway, token="bob")
        await opened(gateway, ann)
        ann.sends(b"#stream-1#last words", last=False)
        ann.member.on_ws_disconnected(ann.transport.as_transport)
        assert b"#stream-1#last words" in await bob.got()

    async def test_fragments_make_one_message(self, gateway: Gateway) -> None:
        ann = Peer(gateway, token="ann")
        await opened(gateway, ann)
        ann.sends(b"#stream-1#in ", WSMsgType.TEXT, fin=False)
        ann.sends(b"pieces", WSMsgType.CONTINUATION)
        assert (await ann.got()).endswith(b"#stream-1#in pieces")

    @pytest.mark.parametrize(
        ("payload", "frame", "code"),
        [
            (b"\xff", {}, 1007),
            (b"#stream-1#\xff", {}, 1007),
            (b"x" * 10_001, {}, 1009),
            (b"x", {"rsv1": True}, 1002),
            (b"x", {"kind": WSMsgType.CONTINUATION}, 1002),
        ],
    )
    async def test_what_breaks_the_protocol_closes(
        self, gateway: Gateway, payload: bytes, frame: dict[str, Any], code: int
    ) -> None:
        ann = Peer(gateway, token="ann")
        ann.sends(payload, **frame)
        written = await ann.got()
        assert ann.close_code == code and b'"system/error"' in written


class TestTurns:
    async def test_what_does_not_fit_into_a_turn_is_done_in_order_later(self, gateway: Gateway) -> None:
        ann = Peer(gateway, token="ann")
        await opened(gateway, ann)
        gateway.work.has_time()
        gateway.work.is_over = True
        ann.sends(b"#stream-1#one", last=False)
        ann.sends(b"#stream-1#two")
        assert ann.transport.is_paused, "nothing more is read meanwhile"
        ann.sends({"kind": "chat", "payload": {"text": "three"}}, last=False)
        ann.sends(b"#stream-1#four")
        assert b"#one" not in ann.transport.written
        written = await ann.got()
        places = [written.index(each) for each in (b"#one", b"#two", b'"three"', b"#four")]
        assert places == sorted(places) and not ann.transport.is_paused

    @pytest.mark.parametrize("malformed", [b"#", b"##", b"#" + b"x" * 200 + b"#", b"#\xff#"])
    async def test_frames_that_name_no_stream_keep_to_the_time_of_a_turn(
        self, gateway: Gateway, malformed: bytes
    ) -> None:
        ann = Peer(gateway, token="ann")
        await ann.got()
        before = space_of(gateway).state.seq
        gateway.work.has_time()
        gateway.work.is_over = True
        for number in range(3):
            ann.sends(malformed, WSMsgType.BINARY, last=number == 2)
        assert ann.transport.is_paused and space_of(gateway).state.seq == before
        assert (await ann.got()).count(b'"system/error"') == 3
        assert not ann.transport.is_paused


async def test_a_ping_is_answered_and_one_that_asks_when_all_is_recorded(gateway: Gateway) -> None:
    ann = Peer(gateway, token="ann")
    await ann.got()
    ann.sends(b"hello", WSMsgType.PING)
    ann.sends({"kind": "chat", "payload": {"text": "before"}})
    ann.sends(b"recorded:1", WSMsgType.PING)
    written = await ann.got()
    assert b"\x8a\x05hello" in written
    assert written.index(b'"before"') < written.index(b"\x8a\x0arecorded:1")
