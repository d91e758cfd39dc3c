"""A frame of a stream, as a subscriber gets it."""

from __future__ import annotations

from typing import Any

import msgspec

from mewstream.client.messages import Message
from mewstream.protocol import frames

_decode_json = msgspec.json.decode


class Frame(msgspec.Struct, frozen=True, eq=False, gc=False):
    """``is_text`` tells a text frame from a binary one. ``sequence`` is the writer's own number, which
    only ``stream/data`` has.

    ``gap`` is how many frames are missing right before this one: dropped here because the reader was
    too slow, dropped by the gateway, skipped by the writer, or lost while there was no connection
    (where nobody knows how many, it is 1).
    """

    # As it came; a reader that skips a frame does not pay for taking it apart.
    _message: bytes
    is_text: bool = True
    gap: int = 0
    sequence: int | None = None
    format_id: str | None = None

    @property
    def data(self) -> bytes:
        """What the writer sent; for ``stream/data`` the JSON of its content."""
        message = self._message
        return message[message.find(b"#", 1) + 1 :]

    @property
    def stream(self) -> str:
        """The id of its stream."""
        return self._head()[0]

    @property
    def seq(self) -> int | None:
        """Its position in the space; None where the gateway does not tell."""
        head = self._head()
        return int(head[1]) if len(head) == 3 else None

    @property
    def writer(self) -> str | None:
        """Who wrote it; None where the gateway does not tell."""
        head = self._head()
        return head[2] if len(head) == 3 else None

    def _head(self) -> list[str]:
        """``#<stream_id>#<data>``, or ``#<stream_id>|<seq>|<writer>#<data>``."""
        return self._message[1 : self._message.find(b"#", 1)].decode().split("|")

    @property
    def text(self) -> str:
        return self.data.decode()

    def json(self, type: Any = Any) -> Any:
        """The data as JSON; ``type`` may be anything that msgspec decodes into."""
        return _decode_json(self.data, type=type)

    def __len__(self) -> int:
        return len(self.data)

    def __bytes__(self) -> bytes:
        return self.data

    def __repr__(self) -> str:
        data = self.data if len(self.data) <= 60 else self.data[:60] + b"..."
        return f"Frame(stream={self.stream!r}, writer={self.writer!r}, data={data!r})"


def from_message(message: Message, gap: int) -> Frame:
    """A ``stream/data`` envelope."""
    content = msgspec.json.encode(message.payload.get("content"))
    if message.seq is None:
        raw = frames.frame(message.stream_id, content)
    else:
        raw = frames.frame_with_position(message.stream_id, message.seq, message.sender, content)
    format_id = message.payload.get("format_id")
    return Frame(raw, True, gap, sequence_of(message), format_id if isinstance(format_id, str) else None)


def sequence_of(message: Message) -> int | None:
    sequence = message.payload.get("sequence")
    return sequence if isinstance(sequence, int) else None
