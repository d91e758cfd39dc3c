"""Stream frames: ``#<stream_id>#<data>``, text or binary; the data is opaque.

Those who asked for positions get ``#<stream_id>|<seq>|<writer>#<data>`` instead (decision 24).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from mewstream.protocol.envelope import encode_json
from mewstream.protocol.errors import LimitExceeded, ValidationFailed

#: A ping whose payload begins so is answered when everything that its sender sent before it is recorded.
RECORDED_PING = b"recorded:"

HASH = 0x23
TEXT = 1
BINARY = 2

_EXPECTED = "expected #<stream_id>#<data>"


def split_frame(message: bytes, *, max_id_bytes: int) -> tuple[str, int]:
    """The stream id of a message that starts with ``#``, and where its data begins."""
    end = message.find(b"#", 1, max_id_bytes + 2)
    if end < 0:
        if message.find(b"#", 1) > 0:
            raise LimitExceeded(f"the stream id is longer than {max_id_bytes} bytes", limit="id_bytes")
        raise ValidationFailed(f"a frame without its second '#': {_EXPECTED}")
    if end == 1:
        raise ValidationFailed(f"a frame with an empty stream id: {_EXPECTED}")
    try:
        return message[1:end].decode(), end + 1
    except UnicodeDecodeError:
        raise ValidationFailed("the stream id of a frame is not UTF-8") from None


def frame(stream_id: str, data: bytes) -> bytes:
    return b"#%b#%b" % (stream_id.encode(), data)


def frame_with_position(stream_id: str, seq: int, writer: str, data: bytes) -> bytes:
    return b"#%b|%d|%b#%b" % (stream_id.encode(), seq, writer.encode(), data)


def frames_with_positions(stream_id: str, first_seq: int, writer: str, bodies: Sequence[bytes]) -> list[bytes]:
    """The same for consecutive frames of one writer, whose head is encoded once for all of them."""
    head, tail = f"#{stream_id}|".encode(), f"|{writer}#".encode()
    return [b"%b%d%b%b" % (head, seq, tail, data) for seq, data in enumerate(bodies, first_seq)]


def as_json(stream_id: str, writer: str, data: bytes, opcode: int) -> bytes:
    """A raw frame as one compact JSON object, for those who read lines and not sockets."""
    described: dict[str, str] = {"kind": "frame", "stream_id": stream_id, "from": writer}
    try:
        if opcode == TEXT:
            described["data"] = data.decode()
    except UnicodeDecodeError:
        pass
    if "data" not in described:
        described["data_base64"] = base64.b64encode(data).decode()
    return encode_json(described)
