"""A frame of a stream, as a subscription gives it."""

from __future__ import annotations

import builtins
from typing import Any, TypeVar, overload

import msgspec

from mewstream.client import untrusted
from mewstream.client.messages import Message
from mewstream.protocol.errors import FormatViolation
from mewstream.protocol.frames import data_of, frame_with_position, head_of, seq_of

T = TypeVar("T")


class Frame(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One frame. ``is_text`` tells a text frame from a binary one. ``sequence`` is the writer's own number, which
    only ``stream/data`` has, and ``format_id`` its format.

    ``gap`` is how many frames are missing right before this one: dropped here because the reader was too slow,
    dropped by the gateway, skipped by the writer, or lost while there was no connection. It is 1 where frames are
    missing and nobody knows how many.
    """

    # The frame as it was received: a reader that skips it does not pay for parsing it.
    _message: bytes
    is_text: bool = True
    gap: int = 0
    sequence: int | None = None
    format_id: str | None = None

    @property
    def data(self) -> bytes:
        """The bytes that the writer sent; for ``stream/data`` the JSON of its content."""
        return data_of(self._message)

    @property
    def stream(self) -> str:
        """The id of the stream."""
        return head_of(self._message).stream_id

    @property
    def seq(self) -> int | None:
        """The frame's position in the space; None where the gateway sends no positions."""
        return seq_of(self._message) or None

    @property
    def writer(self) -> str | None:
        """The participant who wrote it; None where the gateway sends no positions."""
        return head_of(self._message).writer or None

    @property
    def text(self) -> str:
        """The data as text. Raises UnicodeDecodeError where it is not UTF-8."""
        return self.data.decode()

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, type: builtins.type[T]) -> T: ...

    def json(self, type: Any = Any) -> Any:
        """Decode the data as JSON, into ``type`` where that is given: anything that msgspec decodes into, such as a
        dataclass. Raises :class:`FormatViolation` where the data is something else."""
        try:
            return msgspec.json.decode(self.data, type=type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"a frame of {self.stream} from {self.writer or 'somebody'} is not what was expected: {error}"
            raise FormatViolation(text, stream_id=self.stream) from None

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return True  # an empty frame is a frame

    def __bytes__(self) -> bytes:
        return self.data

    def __repr__(self) -> str:
        data = self.data if len(self.data) <= 60 else self.data[:60] + b"..."
        return f"Frame(stream={self.stream!r}, writer={self.writer!r}, data={data!r})"


def from_message(message: Message, gap: int) -> Frame:
    """The frame that a ``stream/data`` envelope is."""
    content = msgspec.json.encode(message.payload.get("content"))
    data = frame_with_position(_name(message.stream_id), message.seq or 0, _name(message.sender), content)
    return Frame(data, True, gap, sequence_of(message), untrusted.text(message.payload.get("format_id")))


def _name(name: str) -> str:
    """A name that cannot be mistaken for the rest of a frame's head. No valid name has these characters."""
    return name.replace("#", "?").replace("|", "?")


def sequence_of(message: Message) -> int | None:
    """The writer's own number of a ``stream/data`` envelope."""
    return untrusted.number(message.payload.get("sequence"))
