"""Envelopes on the wire, as a participant reads and writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mewstream.protocol import kinds


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope that a participant or the gateway sent. ``seq`` is its position; None if the gateway sends no
    positions."""

    kind: str
    id: str = ""
    ts: str = ""
    sender: str = msgspec.field(name="from", default="")
    to: list[str] = []
    correlation_id: list[str] = []
    context: Any = None
    payload: dict[str, Any] = {}
    seq: int | None = None

    @property
    def is_from_gateway(self) -> bool:
        """Whether the gateway itself sent it, which no participant can forge."""
        return self.sender == kinds.GATEWAY

    @property
    def stream_id(self) -> str:
        """The id of the stream that the payload names, by ``stream_id`` or ``stream``; empty if it names none."""
        stream = self.payload.get("stream")
        id = self.payload.get("stream_id") or (stream.get("stream_id") if isinstance(stream, dict) else None)
        return str(id) if id else ""


_decode = msgspec.json.Decoder(Message).decode
_encode = msgspec.json.Encoder().encode


def parse(data: bytes) -> Message | None:
    """Decode an envelope. Returns None for anything else: a gateway's mistake is never an exception."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_leniently(data)


def _parse_leniently(data: bytes) -> Message | None:
    """Decode an envelope of another gateway, which may send a string instead of a list, and null for what it omits."""
    try:
        fields = without_none(**msgspec.json.decode(data, type=dict[str, Any]))
        for key in ("to", "correlation_id"):
            if isinstance(fields.get(key), str):
                fields[key] = [fields[key]]
        return msgspec.convert(fields, Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def encode(
    kind: str,
    payload: Any,
    *,
    id: str,
    to: list[str] | None = None,
    correlation_id: list[str] | None = None,
    context: str | None = None,
) -> bytes:
    """Encode an envelope to send. The gateway fills in its sender and its time."""
    head = without_none(
        protocol=kinds.PROTOCOL, id=id, kind=kind, to=to, correlation_id=correlation_id, context=context
    )
    return _encode({**head, "payload": payload})


def without_none(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


def names(to: str | Sequence[str] | None) -> list[str] | None:
    """Return one name or several as a list; None, which means everyone, stays None."""
    if to is None:
        return None
    return [to] if isinstance(to, str) else list(to)
