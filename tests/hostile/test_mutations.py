"""Cases of both suites with some of their bytes changed: whatever the gateway makes of them, it makes no error of its
own, ends what it was sent, and serves others."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Iterator

import http_cases
import pytest
from http_socket import HttpSocket, request
from raw_socket import RawSocket, join_message, text, upgrade_head
from websocket_case import WHO
from websocket_cases import CASES
from websocket_scene import CONFIG

from support import GatewayProcess, running_gateway, without_everyday_lines

#: Bytes that mean something to a parser of heads or of frames.
TELLING = (
    b"\r\n",
    b"\n",
    b"\r",
    b":",
    b" ",
    b",",
    b";",
    b"0",
    b"\0",
    b"\x7e",
    b"\x7f",
    b"\x80",
    b"\x88",
    b"\xfe",
    b"#",
)
ROUNDS = [*range(3), *(pytest.param(number, marks=pytest.mark.long) for number in range(3, 400))]
EACH = 60
LARGEST = 5_000

HEADS = [case.sent for case in http_cases.CASES if 0 < len(case.sent) <= LARGEST]
FRAMES = [case.sent for case in CASES if 0 < len(case.sent) <= LARGEST]
HANDSHAKE = upgrade_head()
JOIN = text(join_message(WHO), mask=bytes(4))


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    settings = {"drain_seconds": 0, "head_timeout": 2, "body_timeout": 2, "idle_timeout": 2, "join_timeout": 2}
    with running_gateway(CONFIG | {"gateway": settings}) as gateway:
        yield gateway


def changed(chance: random.Random, data: bytes) -> bytes:
    """One to five places of it."""
    mutant = bytearray(data)
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(len(mutant) + 1)
        end = min(len(mutant), place + chance.choice((1, 1, 2, 4, 30)))
        match chance.randrange(5):
            case 0:
                mutant[place:end] = b""
            case 1:
                mutant[place:place] = chance.choice(TELLING)
            case 2:
                mutant[place:end] = chance.choice(TELLING)
            case 3:
                mutant[place:place] = mutant[place:end] * chance.choice((1, 2, 9))
            case _ if place < len(mutant):
                mutant[place] ^= 1 << chance.randrange(8)
    return bytes(mutant)


def visit(chance: random.Random) -> bytes:
    """All that one peer sends."""
    match chance.randrange(4):
        case 0:
            return changed(chance, chance.choice(HEADS))
        case 1:
            return request() + changed(chance, chance.choice(HEADS)) + HANDSHAKE + JOIN
        case 2:
            return HANDSHAKE + JOIN + changed(chance, chance.choice(FRAMES))
        case _:
            return changed(chance, HANDSHAKE + JOIN + chance.choice(FRAMES))


async def play(gateway: GatewayProcess, data: bytes) -> None:
    async with await RawSocket.open(gateway.port) as raw:
        with contextlib.suppress(ConnectionError):
            await raw.send(data)
            raw.sock.shutdown(socket.SHUT_WR)
        await raw.read_all()


@pytest.mark.parametrize("number", ROUNDS)
async def test_changed_cases(gateway: GatewayProcess, number: int) -> None:
    chance = random.Random(number)
    log = without_everyday_lines(gateway.log.read_text())
    await asyncio.gather(*(play(gateway, visit(chance)) for _ in range(EACH)))
    async with await HttpSocket.connected(gateway.port) as other:
        assert (await other.ask(request())).json["status"] == "ok"
    assert without_everyday_lines(gateway.log.read_text()) == log
