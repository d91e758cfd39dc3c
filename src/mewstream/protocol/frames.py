"""Stream frames: ``#<stream_id>#<data>``, text or binary; the data is opaque.

Clients that asked for positions get ``#<stream_id>|<seq>|<writer>#<data>`` instead, and may send
``#<stream_id>|<id>#<data>`` (decision 24). All forms are written and read here, except that the fan-out writes the
short head itself, once for all frames of a block.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import LimitExceeded, PeerError, ValidationFailed

#: A ping whose payload begins so is answered when everything that its sender sent before it is recorded.
RECORDED_PING = b"recorded:"

TEXT = 1
BINARY = 2

_EXPECTED = "expected #<stream_id>#<data>"
#: A longer number is not a seq but the name of something else.
_MAX_SEQ_DIGITS = 19


class Form(IntEnum):
    """What stands before the data of a frame that a reader gets."""

    PLAIN = 0
    POSITIONS = 1
    TIMES = 2


class FrameHead(NamedTuple):
    """What stands before the data of a frame. ``seq`` is 0 and ``writer`` empty in a frame without positions, and
    ``ts`` is 0 in one without times."""

    stream_id: str
    seq: int
    writer: str
    ts: int = 0


def split_frame(message: bytes, *, max_id_bytes: int, has_id: bool = False) -> tuple[str, int]:
    """The stream id of a message that starts with ``#``, and where its data begins. ``has_id``: it may be followed by
    ``|`` and an id of the frame, which :func:`split_reference` takes off."""
    end = message.find(b"#", 1, (2 * max_id_bytes + 3) if has_id else (max_id_bytes + 2))
    if end < 0 or (end > max_id_bytes + 1 and message.find(b"|", 1, max_id_bytes + 2) < 0):
        if message.find(b"#", 1) > 0:
            raise LimitExceeded(f"the id in the head of a frame is longer than {max_id_bytes} bytes", limit="id_bytes")
        raise ValidationFailed(f"a frame without its second '#': {_EXPECTED}")
    if end == 1:
        raise ValidationFailed(f"a frame with an empty stream id: {_EXPECTED}")
    try:
        return message[1:end].decode(), end + 1
    except UnicodeDecodeError:
        raise ValidationFailed("the stream id of a frame is not UTF-8") from None


def split_reference(reference: str) -> tuple[str, str]:
    """A stream and the id of a frame, from ``<stream_id>|<id>``."""
    stream, _, id = reference.partition("|")
    return stream, id


def flaw_in_frame_id(id: str, *, max_bytes: int) -> PeerError | None:
    if not id or "|" in id:
        return ValidationFailed("the id of a frame must be at least one character, and none of them |", field="id")
    if len(id.encode()) > max_bytes:
        return LimitExceeded(f"the id of a frame is longer than {max_bytes} bytes", limit="id_bytes")
    return None


def frame(stream_id: str, data: bytes) -> bytes:
    return b"#%b#%b" % (stream_id.encode(), data)


def frame_with_id(stream_id: str, id: str, data: bytes) -> bytes:
    """A frame as its writer may send it, with an id for a refusal to refer to."""
    return b"#%b|%b#%b" % (stream_id.encode(), id.encode(), data)


def frame_with_position(stream_id: str, seq: int, writer: str, data: bytes) -> bytes:
    return b"#%b|%d|%b#%b" % (stream_id.encode(), seq, writer.encode(), data)


def frames_with_positions(stream_id: str, first_seq: int, writer: str, bodies: Sequence[bytes]) -> list[bytes]:
    """The same for consecutive frames of one writer, whose head is encoded once for all of them."""
    head, tail = f"#{stream_id}|".encode(), f"|{writer}#".encode()
    return [b"%b%d%b%b" % (head, seq, tail, data) for seq, data in enumerate(bodies, first_seq)]


def frames_with_times(stream_id: str, first_seq: int, writer: str, ts: int, bodies: Sequence[bytes]) -> list[bytes]:
    """The same with the time of the frames, in microseconds: those of a block have the same."""
    head, tail = f"#{stream_id}|".encode(), f"|{writer}|{ts}#".encode()
    return [b"%b%d%b%b" % (head, seq, tail, data) for seq, data in enumerate(bodies, first_seq)]


def in_form(form: Form, stream_id: str, first_seq: int, writer: str, ts: int, bodies: Sequence[bytes]) -> list[bytes]:
    """Consecutive frames of one writer in any form."""
    match form:
        case Form.TIMES:
            return frames_with_times(stream_id, first_seq, writer, ts, bodies)
        case Form.POSITIONS:
            return frames_with_positions(stream_id, first_seq, writer, bodies)
    return [frame(stream_id, data) for data in bodies]


def data_of(message: bytes) -> bytes:
    """The data of a frame of either form."""
    return message[message.find(b"#", 1) + 1 :]


def head_of(message: bytes) -> FrameHead:
    """The head of a frame that a gateway sent, in whichever form it has."""
    head = message[1 : message.find(b"#", 1)]
    parts = head.split(b"|")
    if len(parts) in (3, 4) and _is_seq(parts[1]):
        ts = int(parts[3]) if len(parts) == 4 and _is_seq(parts[3]) else 0
        return FrameHead(parts[0].decode(errors="replace"), int(parts[1]), parts[2].decode(errors="replace"), ts)
    return FrameHead(head.decode(errors="replace"), 0, "")


def seq_of(message: bytes) -> int:
    """The seq in a frame with a position; 0 in any other message."""
    parts = message[: message.find(b"#", 1)].split(b"|", 2)
    return int(parts[1]) if len(parts) == 3 and _is_seq(parts[1]) else 0


def stream_prefix(message: bytes, *, has_positions: bool) -> bytes:
    """What every frame of the same stream begins with: ``#``, the stream's id, and the character that ends it.
    Empty if the frame is malformed."""
    return message[: message.find(b"|" if has_positions else b"#", 1) + 1]


def _is_seq(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= _MAX_SEQ_DIGITS


def as_json(stream_id: str, writer: str, data: bytes, opcode: int) -> bytes:
    """A raw frame as one compact JSON object, for output logs and HTTP."""
    described: dict[str, str] = {"kind": "frame", "stream_id": stream_id, "from": writer}
    try:
        if opcode == TEXT:
            described["data"] = data.decode()
    except UnicodeDecodeError:
        pass
    if "data" not in described:
        described["data_base64"] = base64.b64encode(data).decode()
    return encode_json(described)
