"""A frame of a stream, as a subscriber gets it."""

from __future__ import annotations

import builtins
from typing import Any, TypeVar, overload

import msgspec

from mewstream.client import loose
from mewstream.client.messages import Message
from mewstream.protocol.errors import FormatViolation

T = TypeVar("T")

#: More digits than this are no position.
_SEQ_DIGITS = 19


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
        seq = self._head()[1]
        return int(seq) if seq else None

    @property
    def writer(self) -> str | None:
        """Who wrote it; None where the gateway does not tell."""
        return self._head()[2] or None

    def _head(self) -> tuple[str, str, str]:
        """``#<stream_id>#<data>``, or ``#<stream_id>|<seq>|<writer>#<data>``."""
        head = self._message[1 : self._message.find(b"#", 1)].decode(errors="replace")
        parts = head.split("|")
        if len(parts) == 3 and (not parts[1] or (parts[1].isdecimal() and len(parts[1]) <= _SEQ_DIGITS)):
            return parts[0], parts[1], parts[2]
        return head, "", ""

    @property
    def text(self) -> str:
        return self.data.decode()

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, type: builtins.type[T]) -> T: ...

    def json(self, type: Any = Any) -> Any:
        """The data as JSON; ``type`` may be anything that msgspec decodes into, such as a dataclass.
        Raises :class:`FormatViolation` where it is not that."""
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
    """A ``stream/data`` envelope."""
    content = msgspec.json.encode(message.payload.get("content"))
    seq = "" if message.seq is None else message.seq
    head = f"#{_name(message.stream_id)}|{seq}|{_name(message.sender)}#"
    format_id = loose.text(message.payload.get("format_id"))
    return Frame(head.encode("utf-8", "replace") + content, True, gap, sequence_of(message), format_id)


def _name(name: str) -> str:
    """No name has these; one that does must not pass for something else."""
    return name.replace("#", "?").replace("|", "?")


def sequence_of(message: Message) -> int | None:
    return loose.number(message.payload.get("sequence"))


def seq_of(frame: bytes) -> int:
    """The position in a raw frame that has one."""
    parts = frame[: frame.find(b"#", 1)].split(b"|", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() and len(parts[1]) <= _SEQ_DIGITS else 0
