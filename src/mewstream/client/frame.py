"""A frame of a stream, as a subscriber gets it."""

from __future__ import annotations

from typing import Any

import msgspec

from mewstream.client.messages import Message

_decode_json = msgspec.json.decode


class Frame:
    """``data`` are the bytes that the writer sent; for ``stream/data`` the JSON of its content.

    ``writer`` and ``seq`` (the position in the space) are None where the gateway does not tell.
    ``sequence`` is the writer's own number, which only ``stream/data`` has.
    ``gap`` is how many frames are missing right before this one: dropped here because the reader was
    too slow, dropped by the gateway, skipped by the writer, or lost while there was no connection
    (where nobody knows how many, it is 1).
    """

    __slots__ = ("data", "format_id", "gap", "is_text", "seq", "sequence", "stream", "writer")

    def __init__(
        self,
        stream: str,
        data: bytes,
        writer: str | None = None,
        seq: int | None = None,
        is_text: bool = True,
        gap: int = 0,
        sequence: int | None = None,
        format_id: str | None = None,
    ) -> None:
        self.stream = stream
        self.data = data
        self.writer = writer
        self.seq = seq
        self.is_text = is_text
        self.gap = gap
        self.sequence = sequence
        self.format_id = format_id

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


def from_wire(message: bytes, is_text: bool, has_positions: bool, gap: int) -> Frame:
    """A raw frame: ``#<stream_id>#<data>``, or ``#<stream_id>|<seq>|<writer>#<data>``."""
    end = message.find(b"#", 1)
    if has_positions:
        parts = message[1:end].decode().split("|")
        if len(parts) == 3:
            return Frame(parts[0], message[end + 1 :], parts[2], int(parts[1]), is_text, gap)
    return Frame(message[1:end].decode(), message[end + 1 :], None, None, is_text, gap)


def from_message(message: Message, gap: int) -> Frame:
    """A ``stream/data`` envelope."""
    payload = message.payload
    return Frame(
        message.stream_id,
        msgspec.json.encode(payload.get("content")),
        message.sender or None,
        message.seq,
        True,
        gap,
        sequence=sequence_of(message),
        format_id=payload.get("format_id"),
    )


def sequence_of(message: Message) -> int | None:
    sequence = message.payload.get("sequence")
    return sequence if isinstance(sequence, int) else None
