"""Envelopes on the wire, as a participant reads and writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mewstream.protocol import kinds


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope that somebody in the space sent. ``seq`` is its position; None where the gateway sends no
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
        """The id of the stream that the payload names, by ``stream_id`` or ``stream``; empty where it names none."""
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
    """Other gateways may send one text where we expect a list, and null for what is left out."""
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
    fields: dict[str, Any] = {"protocol": kinds.PROTOCOL, "id": id, "kind": kind}
    if to is not None:
        fields["to"] = to
    if correlation_id is not None:
        fields["correlation_id"] = correlation_id
    if context is not None:
        fields["context"] = context
    fields["payload"] = payload
    return _encode(fields)


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


def names(to: str | Sequence[str] | None) -> list[str] | None:
    """A list of names from a list or from one name; None, which means everyone, stays None."""
    if to is None:
        return None
    return [to] if isinstance(to, str) else list(to)
