"""A gateway in whose space a peer plays the cases of :mod:`websocket_cases`, and a neighbour who sees what it may."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator

from raw_socket import PONG, TEXT, Frame, RawSocket, join_message, text, upgrade_head
from websocket_case import LIMIT, STREAM, WHO, Case, Chat, HangUp, Refusal, Told, Welcome, closing, echo, written

from support import GatewayProcess, space_config, without_everyday_lines

NEIGHBOUR = "wendy"
Cutter = Callable[[bytes], Iterable[bytes]]
"""How what a peer sends is cut into pieces."""
Connect = Callable[[], Awaitable[RawSocket]]

CONFIG = space_config(
    WHO,
    NEIGHBOUR,
    gateway={"drain_seconds": 0},
    mewstream={
        "limits": {"message_bytes": LIMIT, "envelopes_per_second": 0.0},
        "policies": {"reconnect_grace": 0, "on_owner_leave": "keep"},
    },
)


class Scene:
    """``connect`` opens a connection to the gateway, plain or over TLS."""

    def __init__(self, gateway: GatewayProcess, connect: Connect) -> None:
        self.gateway = gateway
        self._connect = connect
        self._numbers = itertools.count()

    async def prepare(self) -> None:
        """Each has a stream that survives its owner's connections."""
        raw = await self._joined(WHO)
        assert await self._open_stream(raw) == STREAM
        await self._leave(raw)
        self._neighbour = await self._joined(NEIGHBOUR)
        self._stream = await self._open_stream(self._neighbour)

    async def _begin_again(self) -> None:
        """A case that fails must not make the next ones fail, whose neighbour would see the rest of it."""
        self._neighbour.sock.close()
        self._neighbour = await self._joined(NEIGHBOUR)

    async def _joined(self, participant: str) -> RawSocket:
        raw = await self._connect()
        await raw.send(upgrade_head() + text(join_message(participant)))
        assert (await raw.read_head())[0] == 101
        assert [meaning_of(frame) for frame in await read(raw, 1)] == [Welcome()]
        return raw

    async def _open_stream(self, raw: RawSocket) -> str:
        await raw.send(text({"kind": "stream/request", "payload": {"direction": "upload"}}))
        opened = (await raw.read_until(lambda frame: frame.json["kind"] == "stream/open"))[-1]
        return str(opened.json["payload"]["stream_id"])

    async def _leave(self, raw: RawSocket) -> None:
        await raw.send(closing())
        assert (await raw.read_to_close())[1] == 1000
        raw.sock.close()

    # -- a case -----------------------------------------------------------------------------------

    async def check(self, case: Case, *, cut: Cutter = lambda data: [data], behind_upgrade: bool = False) -> None:
        """Play it, and look at what the sender, the neighbour and the log were told. ``behind_upgrade``: handshake,
        join and case are sent together."""
        log = without_everyday_lines(self.gateway.log.read_text())
        try:
            expected = await self._play(case, cut, behind_upgrade=behind_upgrade)
            await self._is_undisturbed(expected)
        except BaseException:
            await self._begin_again()
            raise
        assert without_everyday_lines(self.gateway.log.read_text()) == log

    async def _play(self, case: Case, cut: Cutter, *, behind_upgrade: bool) -> list[Told]:
        """What the sender was told; a part of that, the neighbour was told too."""
        head = upgrade_head(Sec_WebSocket_Extensions=case.offers)
        join = b"" if case.is_stranger else text(join_message(WHO))
        expected: list[Told] = [*([] if case.is_stranger else [Welcome()]), *case.told]
        came: list[Frame] = []
        async with await self._connect() as raw:
            sent = case.sent
            if behind_upgrade:
                sent = head + join + sent
            else:
                await raw.send(head)
                await is_upgraded(raw)
                await raw.send(join)
                came += await read(raw, len(expected) - len(case.told))
            sending = asyncio.create_task(send(raw, sent, cut, case))
            if behind_upgrade:
                await is_upgraded(raw)
            if case.codes is not None:
                frames, code = await raw.read_to_close()
                assert code in case.codes, f"closed with {code} behind {frames}"
                came += frames
            elif case.hang_up is HangUp.HALF:
                frames, code = await raw.read_to_close()
                assert code is None
                came += frames
            elif case.hang_up is HangUp.RESET:
                came += await read(raw, len(expected) - len(came))
                raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                await sending
                marker = f"alive-{next(self._numbers)}"
                expected.append(echo(marker))
                await raw.send(written(marker))
                came += await raw.read_until(lambda frame: frame == echo(marker))
                await self._leave(raw)
            await sending
        compare(came, expected, is_cut=case.is_cut)
        return expected

    async def _is_undisturbed(self, expected: list[Told]) -> None:
        """The neighbour saw the peer come and go and what it said to all, and is served as before."""
        seen: list[Frame] = []
        if Welcome() in expected:
            seen = await self._neighbour.read_until(lambda frame: presence_of(frame) == "leave")
            assert [presence_of(seen[0]), presence_of(seen[-1])] == ["join", "leave"]
            seen = seen[1:-1]
        assert [meaning_of(frame) for frame in seen] == [told for told in expected if is_public(told)]
        mine = f"#{self._stream}#{next(self._numbers)}"
        await self._neighbour.send(text(mine))
        assert await self._neighbour.read_frame() == Frame(TEXT, mine.encode())

    def close(self) -> None:
        self._neighbour.sock.close()


@contextlib.contextmanager
def prepared(gateway: GatewayProcess, connect: Connect) -> Iterator[Scene]:
    scene = Scene(gateway, connect)
    asyncio.run(scene.prepare())
    try:
        yield scene
    finally:
        scene.close()


async def send(raw: RawSocket, data: bytes, cut: Cutter, case: Case) -> None:
    # Who is refused may be cut off while it still sends.
    with contextlib.suppress(ConnectionError):
        for piece in cut(data):
            await raw.send(piece)
            await asyncio.sleep(0)
        if case.hang_up is HangUp.HALF:
            raw.sock.shutdown(socket.SHUT_WR)


async def is_upgraded(raw: RawSocket) -> None:
    status, head = await raw.read_head()
    assert status == 101, head
    assert b"sec-websocket-extensions" not in head.lower(), "none is agreed on"


async def read(raw: RawSocket, count: int) -> list[Frame]:
    frames = [await raw.read_frame() for _ in range(count)]
    assert None not in frames, f"the connection ended behind {frames}"
    return [frame for frame in frames if frame is not None]


# -- what frames say ------------------------------------------------------------------------------


def meaning_of(frame: Frame) -> Told:
    """An envelope is told by what matters of it; other frames speak for themselves."""
    if not frame.is_envelope:
        return frame
    envelope = frame.json
    match envelope["kind"]:
        case "system/welcome":
            return Welcome()
        case "system/error":
            return Refusal(envelope["payload"]["error"])
        case "chat":
            return Chat(envelope["payload"]["text"])
    raise AssertionError(f"nobody expects {envelope}")


def presence_of(frame: Frame) -> str | None:
    """Whether somebody came or went."""
    if not frame.is_envelope or frame.json["kind"] != "system/presence":
        return None
    return str(frame.json["payload"]["event"])


def is_pong(told: Told) -> bool:
    return isinstance(told, Frame) and told.opcode == PONG


def is_public(told: Told) -> bool:
    return isinstance(told, Chat) or (isinstance(told, Frame) and told.opcode != PONG)


def compare(came: list[Frame], expected: list[Told], *, is_cut: bool) -> None:
    """Messages in their order, and pongs in theirs."""
    found = [meaning_of(frame) for frame in came]
    for which in (is_pong, lambda told: not is_pong(told)):
        those, wanted = list(filter(which, found)), list(filter(which, expected))
        if is_cut:
            wanted = wanted[: len(those)]
        assert those == wanted
