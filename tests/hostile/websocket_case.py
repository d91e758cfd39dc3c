"""What a case of :mod:`websocket_cases` is made of, and how one is written.

What is written to ``STREAM`` comes back to its writer byte for byte, and reaches a neighbour in the same space.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from raw_socket import CLOSE, CONTINUATION, PONG, TEXT, Frame, join_message, ws_frame

WHO = "mallory"
STREAM = "stream-1"
HEAD = f"#{STREAM}#".encode()
LIMIT = 100_000
"""The largest message of the space."""
MASK = b"\x37\xfa\x21\x3d"
JOIN = json.dumps(join_message(WHO)).encode()


class Chat(NamedTuple):
    """An envelope that everyone gets."""

    text: str


class Refusal(NamedTuple):
    """A ``system/error``, which the sender alone gets."""

    code: str


class Welcome(NamedTuple):
    """The peer has joined."""


#: Frames of the stream and chats reach the neighbour too.
Told = Frame | Chat | Refusal | Welcome


class HangUp(Enum):
    """How a peer goes without a word."""

    HALF = "it sends nothing more, and goes on listening"
    RESET = "it resets the connection"


class Case(NamedTuple):
    name: str
    sent: bytes
    told: tuple[Told, ...] = ()
    """All that the sender gets before the end. Pongs may overtake messages."""
    codes: frozenset[int | None] | None = None
    """How the gateway closes the connection (None among them: without a code). None: the connection goes on."""
    is_stranger: bool = False
    """It has not joined."""
    is_cut: bool = False
    """The parser looks one frame ahead: the answers to what came just before a broken frame may be missing."""
    hang_up: HangUp | None = None
    offers: str = ""
    """The extensions that its handshake asked for."""

    @property
    def section(self) -> str:
        return self.name.partition(":")[0]


CASES: list[Case] = []
"""Those of :mod:`websocket_cases`."""


# -- how cases are written ------------------------------------------------------------------------


def frame(
    opcode: int,
    payload: bytes | str = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    masked: bool = True,
    mask: bytes = MASK,
    claim: int | None = None,
) -> bytes:
    return ws_frame(opcode, payload, fin=fin, rsv=rsv, masked=masked, mask=mask, claim=claim)


def written(data: bytes | str = b"", opcode: int = TEXT) -> bytes:
    """A message for the stream."""
    return frame(opcode, HEAD + _bytes(data))


def echo(data: bytes | str = b"", opcode: int = TEXT) -> Frame:
    """The same as everyone gets it."""
    return Frame(opcode, HEAD + _bytes(data))


def pong(payload: bytes | str = b"") -> Frame:
    return Frame(PONG, _bytes(payload))


def chat(text: str) -> bytes:
    return json.dumps({"kind": "chat", "payload": {"text": text}}, ensure_ascii=False).encode()


def fragments(opcode: int, parts: Iterable[bytes], *, between: bytes = b"", ends: bool = True) -> bytes:
    """One message in several frames, with other frames between them."""
    cut = list(parts)
    return between.join(
        frame(CONTINUATION if place else opcode, part, fin=ends and place == len(cut) - 1)
        for place, part in enumerate(cut)
    )


def closing(code: int | None = 1000, reason: bytes | str = b"") -> bytes:
    return frame(CLOSE, b"" if code is None else struct.pack("!H", code) + _bytes(reason))


def _bytes(data: bytes | str) -> bytes:
    return data if isinstance(data, bytes) else data.encode()


def each_byte(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


def fine(name: str, sent: bytes, *told: Told) -> None:
    """Answered, and the connection goes on."""
    CASES.append(Case(name, sent, told))


def broken(name: str, sent: bytes, *told: Told, code: int = 1002) -> None:
    """The parser refuses it."""
    CASES.append(Case(name, sent, told, frozenset({code}), is_cut=True))


def refused(name: str, sent: bytes, code: int, *told: Told) -> None:
    """The gateway says why, and closes."""
    CASES.append(Case(name, sent, told, frozenset({code})))


def closed(name: str, sent: bytes, *codes: int | None, told: tuple[Told, ...] = (), is_cut: bool = False) -> None:
    """The peer closes, and is answered."""
    CASES.append(Case(name, sent, told, frozenset(codes), is_cut=is_cut))


def stranger(name: str, sent: bytes, code: int | None, *told: Told, is_cut: bool = False) -> None:
    """Of a peer that has not joined; ``code`` None: it goes on."""
    CASES.append(Case(name, sent, told, None if code is None else frozenset({code}), is_stranger=True, is_cut=is_cut))


def lost(name: str, sent: bytes, hang_up: HangUp, *told: Told, is_stranger: bool = False) -> None:
    CASES.append(Case(name, sent, told, hang_up=hang_up, is_stranger=is_stranger))


INVALID = Refusal("validation_error")
TOO_LARGE = Refusal("limit_exceeded")
